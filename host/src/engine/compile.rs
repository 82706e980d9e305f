//! Compiling a module, apart from everything that must be on time.
//!
//! Cranelift takes seconds and hundreds of megabytes for a large guest, and reads bytes that a stranger wrote. So it runs in a child
//! process with a low priority, a memory limit and a time-out, without this process's environment, which holds secrets. Whatever
//! happens to the child, the node goes on.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getppid, nice, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::cache::{self, Draft, Key};
use super::{Addressing, EngineError, settings};

/// The subcommand that [`compile_child`] is behind.
pub const SUBCOMMAND: &str = "compile-module";
/// Componentized Python takes 360 MB; this leaves room and still protects a small plant PC.
pub const MEMORY_MIB: u64 = 2048;
/// Componentized JavaScript takes 8 s on an idle core; this allows for a slow and busy one.
pub const AT_MOST: Duration = Duration::from_secs(300);
/// Modules are compiled by so many threads, so that a large box does not spend its memory on threads.
const THREADS: &str = "2";
/// The module is at fault (`EX_DATAERR`); every other failure is the host's.
const EXIT_INVALID: u8 = 65;
/// The largest module that is read.
const MODULE_BYTES: u64 = 256 << 20;

/// Where modules are compiled.
#[derive(Debug, Clone)]
pub enum Compiler {
    /// In a child process.
    Child {
        /// A program with the subcommand [`SUBCOMMAND`].
        program: PathBuf,
        /// The most memory it may take, in MiB.
        memory_mib: u64,
        /// When it is killed.
        at_most: Duration,
    },
    /// In this process, on a thread of its own: for tests, whose program has no such subcommand.
    InProcess,
}

impl Compiler {
    /// In a child process of the program that runs now, also when its file was replaced since.
    #[must_use]
    pub fn this_program() -> Self {
        Self::Child { program: PathBuf::from("/proc/self/exe"), memory_mib: MEMORY_MIB, at_most: AT_MOST }
    }

    pub(super) async fn compile(&self, wasm: &[u8], addressing: Addressing, to: &Draft) -> Result<(), EngineError> {
        match self {
            Self::Child { program, memory_mib, at_most } => {
                in_child(program, *memory_mib, *at_most, wasm, addressing, to.path()).await
            }
            Self::InProcess => {
                let (wasm, to) = (wasm.to_vec(), to.path().to_owned());
                let compiled = tokio::task::spawn_blocking(move || compile_to(&wasm, addressing, &to)).await;
                compiled.unwrap_or_else(|e| Err(EngineError::Compile(format!("the compiler ended: {e}"))))
            }
        }
    }
}

async fn in_child(
    program: &Path,
    memory_mib: u64,
    at_most: Duration,
    wasm: &[u8],
    addressing: Addressing,
    to: &Path,
) -> Result<(), EngineError> {
    let failed = |what: &str, e: std::io::Error| EngineError::Compile(format!("{what}: {e}"));
    let mut command = Command::new(program);
    command.arg(SUBCOMMAND).arg("--output").arg(to).arg("--memory-mib").arg(memory_mib.to_string());
    if addressing == Addressing::Checked {
        command.arg("--checked");
    }
    command.env_clear().env("RAYON_NUM_THREADS", THREADS).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| failed("no process can be started for it", e))?;
    let input = child.stdin.take();
    let feed = async move {
        if let Some(mut input) = input {
            // A child that ended early says why by itself.
            let _ = input.write_all(wasm).await;
        }
    };
    let both = async { tokio::join!(feed, child.wait_with_output()).1 };
    match tokio::time::timeout(at_most, both).await {
        Ok(Ok(output)) => judge(output.status, &String::from_utf8_lossy(&output.stderr), memory_mib),
        Ok(Err(e)) => Err(failed("its process cannot be waited for", e)),
        // The child is killed as it is dropped.
        Err(_) => Err(EngineError::Compile(format!("it takes longer than {at_most:?}: make the module smaller"))),
    }
}

fn judge(status: ExitStatus, said: &str, memory_mib: u64) -> Result<(), EngineError> {
    let said = said.trim();
    if status.success() {
        return Ok(());
    }
    if status.code() == Some(i32::from(EXIT_INVALID)) {
        return Err(EngineError::Invalid(said.to_owned()));
    }
    let ended = match status.signal() {
        Some(signal) => format!("signal {signal} ended its process, which may take {memory_mib} MiB"),
        None => format!("its process ended with {status}, and may take {memory_mib} MiB"),
    };
    Err(EngineError::Compile(if said.is_empty() { ended } else { format!("{ended}: {said}") }))
}

/// The child's side: reads a module from the standard input and writes the compiled one to `output`. To be called before anything
/// else of the program was set up; the reason of a failure goes to the standard error.
#[must_use]
pub fn compile_child(output: &Path, memory_mib: u64, addressing: Addressing) -> ExitCode {
    match restrain(memory_mib).and_then(|()| read_and_compile(output, addressing)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(EngineError::Invalid(reason)) => complain(&reason, ExitCode::from(EXIT_INVALID)),
        Err(error) => complain(&error.to_string(), ExitCode::FAILURE),
    }
}

fn complain(reason: &str, code: ExitCode) -> ExitCode {
    // With nobody left to read it, the code has to do.
    let _ = writeln!(std::io::stderr(), "{reason}");
    code
}

/// Lowers this process's priority and bounds what it may use.
fn restrain(memory_mib: u64) -> Result<(), EngineError> {
    let failed = |what: &str, e: rustix::io::Errno| EngineError::Compile(format!("{what}: {e}"));
    let exactly = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    let bytes = memory_mib.saturating_mul(1 << 20);
    nice(10).map_err(|e| failed("its priority cannot be lowered", e))?;
    // `RLIMIT_DATA` is what it really takes. Addresses are cheaper: the allocator reserves some for every thread.
    setrlimit(Resource::Data, exactly(bytes)).map_err(|e| failed("its memory cannot be bounded", e))?;
    setrlimit(Resource::As, exactly(bytes.saturating_mul(4)))
        .map_err(|e| failed("its addresses cannot be bounded", e))?;
    setrlimit(Resource::Cpu, exactly(AT_MOST.as_secs() * 2)).map_err(|e| failed("its time cannot be bounded", e))?;
    setrlimit(Resource::Core, exactly(0)).map_err(|e| failed("its core file cannot be forbidden", e))?;
    end_with_the_parent()
}

/// A node that was killed cannot kill its child: the child looks for itself.
fn end_with_the_parent() -> Result<(), EngineError> {
    let parent = getppid();
    let watch = move || {
        while getppid() == parent {
            std::thread::sleep(Duration::from_millis(500));
        }
        std::process::exit(1);
    };
    let started = std::thread::Builder::new().name("parent-watch".into()).spawn(watch);
    started.map(drop).map_err(|e| EngineError::Compile(format!("no thread can be started: {e}")))
}

fn read_and_compile(output: &Path, addressing: Addressing) -> Result<(), EngineError> {
    let mut wasm = Vec::new();
    let read = std::io::stdin().lock().take(MODULE_BYTES + 1).read_to_end(&mut wasm);
    let read = read.map_err(|e| EngineError::Compile(format!("it cannot be read: {e}")))?;
    if read as u64 > MODULE_BYTES {
        return Err(EngineError::Invalid(format!("it is larger than {} MiB", MODULE_BYTES >> 20)));
    }
    compile_to(&wasm, addressing, output)
}

fn compile_to(wasm: &[u8], addressing: Addressing, output: &Path) -> Result<(), EngineError> {
    let engine = settings::compiling_engine(addressing)?;
    let code = engine.precompile_component(wasm).map_err(|e| EngineError::Invalid(format!("{e:#}")))?;
    cache::write(output, &Key::of(wasm, &engine), &code)
        .map_err(|e| EngineError::Compile(format!("{} cannot be written: {e}", output.display())))
}
