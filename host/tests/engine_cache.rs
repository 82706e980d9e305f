//! The cache of compiled modules: what it trusts, what it replaces, and that processes may share it.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod guests;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use guests::Guest;
use host::engine::{Compiler, Engine, EngineError};

/// A directory that only this user can enter.
fn private() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn compiling(cache: &Path) -> Engine {
    Engine::with_compiler(cache, Compiler::InProcess).unwrap()
}

/// An engine that fails wherever it would have to compile.
fn only_loading(cache: &Path) -> Engine {
    let compiler = Compiler::Child { program: "/nonexistent".into(), memory_mib: 1, at_most: Duration::from_secs(1) };
    Engine::with_compiler(cache, compiler).unwrap()
}

fn in_child(cache: &Path, memory_mib: u64, at_most: Duration) -> Engine {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_host"));
    Engine::with_compiler(cache, Compiler::Child { program, memory_mib, at_most }).unwrap()
}

fn files(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn entry(cache: &Path) -> PathBuf {
    let files = files(cache);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[tokio::test]
async fn what_one_process_compiled_another_loads() {
    let cache = private();
    let wasm = Guest::default().build();
    assert!(only_loading(cache.path()).compile(&wasm).await.is_err());
    compiling(cache.path()).compile(&wasm).await.unwrap();
    only_loading(cache.path()).compile(&wasm).await.unwrap();
    assert_eq!(fs::metadata(entry(cache.path())).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_damaged_a_truncated_and_a_foreign_entry_are_replaced() {
    let cache = private();
    let wasm = Guest::default().build();
    compiling(cache.path()).compile(&wasm).await.unwrap();
    let entry = entry(cache.path());
    let good = fs::read(&entry).unwrap();

    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let truncated = good[..good.len() / 2].to_vec();
    let foreign = {
        let other = private();
        let looping = Guest { start: "(loop (br 0)) unreachable", ..Guest::default() };
        compiling(other.path()).compile(&looping.build()).await.unwrap();
        fs::read(self::entry(other.path())).unwrap()
    };
    for bad in [damaged, truncated, foreign, b"plant compiled\n\x01".to_vec(), b"garbage".to_vec(), Vec::new()] {
        fs::write(&entry, &bad).unwrap();
        assert!(only_loading(cache.path()).compile(&wasm).await.is_err(), "{} bytes were trusted", bad.len());
        compiling(cache.path()).compile(&wasm).await.unwrap();
        only_loading(cache.path()).compile(&wasm).await.unwrap();
    }
}

#[test]
fn a_directory_that_others_can_enter_is_refused_with_what_to_do() {
    let cache = tempfile::tempdir().unwrap();
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = Engine::with_compiler(cache.path(), Compiler::InProcess).unwrap_err().to_string();
    assert!(error.contains("has mode 0755 and must have 0700") && error.contains("chmod 700"), "{error}");
}

#[test]
fn a_directory_of_somebody_else_and_a_file_in_its_place_are_refused() {
    if rustix::process::geteuid().is_root() {
        let theirs = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(theirs.path(), Some(1), None).unwrap();
        let error = Engine::with_compiler(theirs.path(), Compiler::InProcess).unwrap_err().to_string();
        assert!(error.contains("belongs to user 1 and must belong to user 0"), "{error}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Engine::with_compiler(file.path(), Compiler::InProcess).unwrap_err().to_string();
    assert!(error.contains("cannot be made") || error.contains("is no directory"), "{error}");
}

#[test]
fn a_missing_directory_is_made_for_this_user_alone() {
    let parent = tempfile::tempdir().unwrap();
    let cache = parent.path().join("a/b");
    compiling(&cache);
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Compiles the module with four engines at the same moment, and looks at what is left of it.
fn four_at_once(make: impl Fn(&Path) -> Engine + Sync) {
    let cache = private();
    let wasm = Guest::default().build();
    let together = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let engine = make(cache.path());
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                together.wait();
                runtime.block_on(engine.compile(&wasm)).unwrap();
            });
        }
    });
    let loaded = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    loaded.block_on(only_loading(cache.path()).compile(&wasm)).unwrap();
    assert!(entry(cache.path()).extension().is_some_and(|extension| extension == "cwasm"));
}

#[test]
fn four_that_compile_one_module_at_once_leave_one_good_entry() {
    four_at_once(compiling);
}

#[test]
fn four_processes_that_compile_one_module_at_once_leave_one_good_entry() {
    four_at_once(|cache| in_child(cache, 2048, Duration::from_secs(120)));
}

#[tokio::test]
async fn a_module_that_is_not_valid_is_its_author_s_fault_and_leaves_nothing() {
    let cache = private();
    let mut wasm = Guest::default().build();
    let last = wasm.len() - 1;
    wasm[last] ^= 0x7f;
    wasm.truncate(last - 8);
    for engine in [compiling(cache.path()), in_child(cache.path(), 2048, Duration::from_secs(120))] {
        let error = engine.compile(&wasm).await.unwrap_err();
        assert!(matches!(error, EngineError::Invalid(_)), "{error}");
        assert!(error.to_string().len() > "it is not a valid component: ".len(), "{error}");
    }
    assert_eq!(files(cache.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_compiler_that_takes_too_much_memory_ends_and_says_how_much_it_may_take() {
    let cache = private();
    let engine = in_child(cache.path(), 1, Duration::from_secs(120));
    let error = engine.compile(&Guest::default().build()).await.unwrap_err();
    assert!(matches!(error, EngineError::Compile(_)) && error.to_string().contains("may take 1 MiB"), "{error}");
    assert_eq!(files(cache.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_compiler_that_takes_too_long_is_killed() {
    let cache = private();
    let program = cache.path().join("sleeper");
    fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let compiler = Compiler::Child { program, memory_mib: 1, at_most: Duration::from_millis(100) };
    let engine = Engine::with_compiler(&cache.path().join("cache"), compiler).unwrap();
    let error = engine.compile(&Guest::default().build()).await.unwrap_err().to_string();
    assert_eq!(error, "it could not be compiled: it takes longer than 100ms: make the module smaller");
}
