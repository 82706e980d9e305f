//! `cargo xtask demo` counts, ends on Ctrl-C, and leaves nothing behind.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use harness::process::{beside_the_host, bound_to_this_thread, free_port, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Units that the demo's page says are booked; none while it does not serve.
fn booked(port: u16) -> u64 {
    let asked = ureq::get(format!("http://127.0.0.1:{port}/api/production")).call();
    let Some(production) = asked.ok().and_then(|mut answer| answer.body_mut().read_json::<Value>().ok()) else {
        return 0;
    };
    let machines = production.get("machines").and_then(Value::as_array);
    machines.into_iter().flatten().filter_map(|line| line.get("booked")?.as_u64()).sum()
}

fn left_in(directory: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path().display().to_string()));
    entries.collect()
}

#[test]
fn the_demo_counts_and_leaves_nothing_behind_when_it_is_stopped() -> anyhow::Result<()> {
    let [api, opc, control] = [free_port()?, free_port()?, free_port()?];
    let (user, log) = (TempDir::with_prefix("plant-user-")?, tempfile::NamedTempFile::new()?);
    let mut command = bound_to_this_thread("TERM", beside_the_host()?.join("xtask"));
    command.arg("demo").args(["--api-port", &api.to_string(), "--opc-port", &opc.to_string()]);
    command.args(["--control-port", &control.to_string()]);
    for variable in ["XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR"] {
        let folder = user.path().join(variable);
        std::fs::create_dir(&folder)?;
        command.env(variable, folder);
    }
    let output = log.reopen()?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let mut demo = command.spawn()?;
    let counted = wait_until("the demo counts", Duration::from_secs(180), || {
        anyhow::ensure!(demo.try_wait()?.is_none(), "it ended by itself");
        Ok(booked(api) > 100)
    });
    let said = || std::fs::read_to_string(log.path()).unwrap_or_default();
    counted.with_context(said)?;
    let pid = i32::try_from(demo.id()).ok().and_then(Pid::from_raw).context("no process")?;
    kill_process(pid, Signal::INT)?;
    let mut ended = None;
    wait_until("the demo ends", Duration::from_secs(30), || {
        ended = demo.try_wait()?;
        Ok(ended.is_some())
    })?;
    assert!(ended.is_some_and(|status| status.success()), "{ended:?} {}", said());
    for variable in ["XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR"] {
        assert_eq!(left_in(&user.path().join(variable))?, Vec::<String>::new(), "{}", said());
    }
    for port in [api, opc, control] {
        std::net::TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port} is still in use"))?;
    }
    Ok(())
}
