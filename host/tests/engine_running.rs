//! What the engine does to guests that take too much: memory, time, or a lease that is over.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends where it fails")]

mod guests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use guests::Guest;
use host::engine::{CallDeadline, CallError, Compiler, Engine, GuestLimits, LimitHit, Stopped};
use wasmtime::Store;
use wasmtime::component::{Instance, Linker};

/// Long enough for the slowest machine: whoever waits so long has failed.
const EVER: Duration = Duration::from_secs(60);
const LOOP: &str = "(loop (br 0)) unreachable";
/// Grows by 2000 pages, 125 MiB; where that fails, answers the error "no memory".
const HOG: &str = r"
    (if (i32.eq (memory.grow (i32.const 2000)) (i32.const -1))
        (then
            (i32.store8 (i32.const 0) (i32.const 1))
            (i32.store (i32.const 4) (i32.const 64))
            (i32.store (i32.const 8) (i32.const 9))))
    i32.const 0";

struct Running {
    store: Store<GuestLimits>,
    instance: Instance,
    deadline: CallDeadline,
    _engine: Engine,
    _cache: tempfile::TempDir,
}

async fn run(guest: &Guest<'_>, memory: usize, deadline: CallDeadline) -> Result<Running, CallError> {
    let cache = tempfile::tempdir().unwrap();
    let engine = Engine::with_compiler(&cache.path().join("cache"), Compiler::InProcess).unwrap();
    let component = engine.compile(&guest.build()).await.unwrap();
    let mut linker = Linker::new(engine.wasmtime());
    let mut host = linker.instance("test:host/wait@1.0.0").unwrap();
    host.func_wrap_async("wait", |_, (): ()| {
        Box::new(async {
            std::future::pending::<()>().await;
            Ok(())
        })
    })
    .unwrap();
    let mut store = Store::new(engine.wasmtime(), GuestLimits::new(memory));
    engine.prepare_store(&mut store, |limits| limits, &deadline);
    let pre = linker.instantiate_pre(&component).unwrap();
    let instance = deadline.call(EVER, pre.instantiate_async(&mut store)).await?;
    Ok(Running { store, instance, deadline, _engine: engine, _cache: cache })
}

impl Running {
    async fn start_without_deadline(&mut self) -> wasmtime::Result<Result<(), String>> {
        let Self { store, instance, .. } = self;
        let lifecycle = instance.get_export_index(&mut *store, None, "plant:role/lifecycle@1.0.0").unwrap();
        let start = instance.get_export_index(&mut *store, Some(&lifecycle), "start").unwrap();
        let start = instance.get_typed_func::<(), (Result<(), String>,)>(&mut *store, start)?;
        Ok(start.call_async(&mut *store, ()).await?.0)
    }

    async fn start(&mut self, at_most: Duration) -> Result<Result<(), String>, CallError> {
        let deadline = self.deadline.clone();
        deadline.call(at_most, self.start_without_deadline()).await
    }
}

fn stopped(outcome: Result<Result<(), String>, CallError>) -> Stopped {
    match outcome {
        Err(CallError::Stopped(stopped)) => stopped,
        other => panic!("not stopped but {other:?}"),
    }
}

#[tokio::test]
async fn a_guest_that_wants_too_much_memory_is_told_so_and_the_limit_is_remembered() {
    let guest = Guest { start: HOG, ..Guest::default() };
    let mut running = run(&guest, 64 << 20, CallDeadline::new(|| false)).await.unwrap();
    assert_eq!(running.start(EVER).await.unwrap(), Err("no memory".to_owned()));
    let (wanted, allowed) = (2001 * 65_536, 64 << 20);
    assert_eq!(running.store.data().hit(), Some(LimitHit::Memory { wanted, allowed }));

    let mut running = run(&guest, 256 << 20, CallDeadline::new(|| false)).await.unwrap();
    assert_eq!(running.start(EVER).await.unwrap(), Ok(()));
    assert_eq!(running.store.data().memory_bytes(), wanted);
}

#[tokio::test]
async fn a_guest_whose_first_memory_is_too_large_does_not_start_and_the_limit_is_named() {
    let outcome = run(&Guest::default(), 1000, CallDeadline::new(|| false)).await;
    let error = outcome.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("exceeds memory limits"), "{error}");
}

#[tokio::test]
async fn an_endless_loop_ends_at_the_first_tick_after_its_lease_is_over() {
    let asked = Arc::new(AtomicU32::new(0));
    let armed = Arc::new(AtomicBool::new(false));
    let (count, on) = (asked.clone(), armed.clone());
    // Over from the third question on: the first is asked before the call, the others at one tick each.
    let deadline = CallDeadline::new(move || on.load(Ordering::SeqCst) && count.fetch_add(1, Ordering::SeqCst) >= 2);
    let mut running = run(&Guest { start: LOOP, ..Guest::default() }, 1 << 20, deadline).await.unwrap();
    armed.store(true, Ordering::SeqCst);
    assert_eq!(stopped(running.start(EVER).await), Stopped::LeaseLost);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_endless_loop_ends_at_its_deadline_and_lets_others_work_until_then() {
    let mut running =
        run(&Guest { start: LOOP, ..Guest::default() }, 1 << 20, CallDeadline::new(|| false)).await.unwrap();
    let turns = Arc::new(AtomicU32::new(0));
    let turned = turns.clone();
    // On the one thread of this test's runtime: it gets a turn only when the guest yields.
    let other = tokio::spawn(async move {
        loop {
            turned.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    });
    let at_most = Duration::from_millis(300);
    assert_eq!(stopped(running.start(at_most).await), Stopped::Overrun(at_most));
    other.abort();
    assert!(turns.load(Ordering::SeqCst) > 2, "{turns:?}");
}

#[tokio::test]
async fn a_call_that_waits_in_the_host_ends_at_its_deadline_too() {
    let guest = Guest {
        imports: r#"(import "test:host/wait@1.0.0" (instance $host (export "wait" (func))))
                    (core func $wait (canon lower (func $host "wait")))"#,
        core_imports: r#"(import "host" "wait" (func $wait))"#,
        with: r#"(with "host" (instance (export "wait" (func $wait))))"#,
        start: "(call $wait) i32.const 0",
        ..Guest::default()
    };
    let mut running = run(&guest, 1 << 20, CallDeadline::new(|| false)).await.unwrap();
    let at_most = Duration::from_millis(50);
    assert_eq!(stopped(running.start(at_most).await), Stopped::Overrun(at_most));
}

#[tokio::test]
async fn nothing_of_a_guest_runs_without_a_lease_or_outside_of_a_call() {
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let deadline = CallDeadline::new(move || seen.load(Ordering::SeqCst));
    let mut running = run(&Guest { start: LOOP, ..Guest::default() }, 1 << 20, deadline).await.unwrap();
    let unbounded = running.start_without_deadline().await.map_err(CallError::from);
    assert_eq!(stopped(unbounded), Stopped::Unbounded);
    over.store(true, Ordering::SeqCst);
    assert_eq!(stopped(running.start(EVER).await), Stopped::LeaseLost);
}

#[tokio::test]
#[ignore = "bounds this process's addresses for good: run by the test below, in a process of its own"]
async fn with_few_addresses() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let few = Some(3 << 30);
    setrlimit(Resource::As, Rlimit { current: few, maximum: few }).unwrap();
    let mut running =
        run(&Guest { start: HOG, ..Guest::default() }, 256 << 20, CallDeadline::new(|| false)).await.unwrap();
    assert_eq!(running.start(EVER).await.unwrap(), Ok(()));
}

#[test]
fn a_process_that_may_not_reserve_addresses_runs_guests_all_the_same() {
    let mut inner = std::process::Command::new(std::env::current_exe().unwrap());
    let output = inner.args(["--exact", "with_few_addresses", "--ignored"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
