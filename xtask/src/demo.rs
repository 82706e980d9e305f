//! The demo: the simulated bottling line, and one node that counts it into a SQLite file.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use tempfile::TempDir;

use crate::{command, guests, layout, test};

/// Where the example's plant.toml looks for the line.
const LINE: &str = "opc.tcp://127.0.0.1:4840/";

/// Where the demo listens, on 127.0.0.1.
#[derive(Debug, Clone, Copy, Args)]
pub struct Ports {
    /// Where the node's page and API listen
    #[arg(long, default_value_t = 8080)]
    api_port: u16,
    /// Where the simulated line's OPC UA server listens
    #[arg(long, default_value_t = 4840)]
    opc_port: u16,
    /// Where the simulated line takes faults and tells the truth
    #[arg(long, default_value_t = 4880)]
    control_port: u16,
}

/// Builds, starts both, says where to look, and ends both on Ctrl-C.
pub fn demo(ports: Ports) -> anyhow::Result<()> {
    for (port, what, option) in [
        (ports.opc_port, "the simulated line", "--opc-port"),
        (ports.control_port, "its control address", "--control-port"),
        (ports.api_port, "the page", "--api-port"),
    ] {
        if TcpListener::bind(("127.0.0.1", port)).is_err() {
            bail!("127.0.0.1:{port} is in use, and {what} needs it: end what listens there, or pass `{option} N`");
        }
    }
    println!("building the guests and the host (the first time takes some minutes)");
    guests::build_all()?;
    command::run(command::cargo()?.args(["build", "--quiet"]).args(test::PACKAGES))?;

    let plant = TempDir::with_prefix("plant-demo-")?;
    write_plant(plant.path(), ports)?;
    let host = layout::target()?.join("debug/host");
    let [line, control, api] = [
        format!("opc.tcp://127.0.0.1:{}", ports.opc_port),
        format!("127.0.0.1:{}", ports.control_port),
        ports.api_port.to_string(),
    ];
    let simulate = ["simulate", "--speed", "20", "--listen", &line, "--control", &control];
    let mut line = start(&host, plant.path(), "line", &simulate)?;
    let run = ["run", "--config", "plant.toml", "--node", "a", "--api-port", &api];
    let mut node = match start(&host, plant.path(), "node", &run) {
        Ok(node) => node,
        Err(error) => return end(&mut line).and(Err(error)),
    };
    say(&host, plant.path(), ports);
    let outcome =
        until_stopped(&mut [("the line", &mut line, "line.log"), ("the node", &mut node, "node.log")], plant.path());
    end(&mut node)?;
    end(&mut line)?;
    outcome
}

/// The example, with the line where it listens here.
fn write_plant(plant: &Path, ports: Ports) -> anyhow::Result<()> {
    let example = layout::root()?.join("examples/bottling/plant.toml");
    let text = fs::read_to_string(&example).with_context(|| format!("cannot read {}", example.display()))?;
    let here = text.replace(LINE, &format!("opc.tcp://127.0.0.1:{}/", ports.opc_port));
    Ok(fs::write(plant.join("plant.toml"), here)?)
}

fn say(host: &Path, plant: &Path, ports: Ports) {
    let Ports { api_port, opc_port, control_port } = ports;
    println!(
        "\n  A bottling line of six machines is running (simulated, OPC UA on opc.tcp://127.0.0.1:{opc_port}),\n  \
         and node `a` counts it into a SQLite file.\n\n  \
         Look     http://127.0.0.1:{api_port}\n  \
         Ask      {host} status --url http://127.0.0.1:{api_port}\n  \
         Disturb  curl -X POST http://127.0.0.1:{control_port}/fault -d '{{\"machine\":\"FILL01\",\"counter\":\"good\",\"kind\":\"glitch\",\"for_ms\":2000}}'\n  \
         Truth    curl http://127.0.0.1:{control_port}/truth\n  \
         Logs     {directory}/node.log, {directory}/line.log\n\n  \
         Stop     Ctrl-C: ends both and removes {directory}\n",
        host = host.display(),
        directory = plant.display(),
    );
}

/// Starts `host` with its log and all that it keeps in the plant's directory; a process group of its own, so that Ctrl-C
/// reaches only us and we end things in order.
fn start(host: &Path, plant: &Path, log: &str, arguments: &[&str]) -> anyhow::Result<Child> {
    use std::os::unix::process::CommandExt;
    let log = fs::File::create(plant.join(format!("{log}.log")))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(host).args(arguments);
    command.current_dir(plant).stdout(log.try_clone()?).stderr(log).process_group(0);
    // Nothing is to stay behind in the user's own directories; compiling the modules anew takes less than a second.
    command.env("HOST_CACHE", plant.join("cache")).env("HOST_STATE", plant.join("state"));
    command.spawn().with_context(|| format!("cannot start {}", host.display()))
}

/// Returns when Ctrl-C (or SIGTERM) came, or when one of the processes ended by itself, which is an error.
fn until_stopped(processes: &mut [(&str, &mut Child, &str)], plant: &Path) -> anyhow::Result<()> {
    let stop = stop_signals()?;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
        for (name, process, log) in &mut *processes {
            if let Some(status) = process.try_wait()? {
                let log = fs::read_to_string(plant.join(log)).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(20).collect();
                bail!("{name} ended by itself ({status}); the end of its log, newest first:\n{}", last.join("\n"));
            }
        }
    }
}

/// A flag that the first SIGINT or SIGTERM raises.
fn stop_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

fn end(process: &mut Child) -> anyhow::Result<()> {
    if process.try_wait()?.is_none() {
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).context("a process without an id")?;
        kill_process(pid, Signal::TERM)?;
        process.wait()?;
    }
    Ok(())
}
