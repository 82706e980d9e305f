//! What no guest should do, and any guest may.

use std::hint::black_box;
use std::time::Duration;

/// Never returns, and calls nobody.
pub fn compute_for_ever() -> Result<(), String> {
    let mut n = 0_u64;
    loop {
        n = black_box(n.wrapping_add(1));
    }
}

/// Waits in the host, for longer than any call may take.
pub fn sleep_for_ever() -> Result<(), String> {
    std::thread::sleep(Duration::from_secs(100_000));
    Ok(())
}

/// Allocates until it is stopped.
pub fn eat_memory() -> Result<(), String> {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(vec![1; 1 << 20]);
        black_box(&eaten);
    }
}

/// Ends as a Rust guest ends that did not expect what it saw.
#[expect(clippy::panic, reason = "it is what a test wants to see")]
pub fn panic() -> Result<(), String> {
    panic!("the probe was asked to panic")
}

/// What a guest can see of the box: everything should be empty or refused.
pub fn look_around() -> String {
    let variables = std::env::vars().count();
    let arguments = std::env::args().count();
    let root = std::fs::read_dir("/").map(Iterator::count).map_err(|error| error.kind());
    let written = std::fs::write("probe.txt", "was here").map_err(|error| error.kind());
    format!("variables {variables}, arguments {arguments}, root {root:?}, written {written:?}")
}
