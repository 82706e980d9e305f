//! What the kernel says of a process: the CPU time it has used, and the memory it has.

use std::fs;

use anyhow::Context;

/// What Linux counts CPU time in, for `/proc`, on every architecture that this runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// CPU seconds that a process and its threads have used so far, in user and in system mode; in hundredths.
///
/// # Errors
/// When there is no such process.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program's name, in brackets, may hold spaces.
    let (_, rest) = stat.rsplit_once(')').context("a /proc/PID/stat without a name")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || -> anyhow::Result<f64> { Ok(fields.next().context("a short /proc/PID/stat")?.parse()?) };
    Ok((ticks()? + ticks()?) / TICKS_A_SECOND)
}

/// Resident memory in MB (10⁶ bytes), and the part of it that is not backed by files.
///
/// # Errors
/// When there is no such process.
pub fn resident_megabytes(pid: u32) -> anyhow::Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let of = |key: &str| -> anyhow::Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)).with_context(|| format!("no {key}"))?;
        Ok(kib.parse::<f64>()? * 1024.0 / 1e6)
    };
    Ok((of("VmRSS")?, of("RssAnon")?))
}
