//! `host simulate`: the simulated bottling line as a program of its own.

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::simulator::{Address, Beginning, Settings, Simulator};

const EXAMPLES: &str = "\
Examples:
  host simulate
  host simulate --speed 20 --seed 7
  host simulate --listen opc.tcp://127.0.0.1:0 --control 127.0.0.1:0 --paused
  host simulate --counters 5000 --rate 20

While it runs:
  curl http://127.0.0.1:4880/truth
  curl -X POST http://127.0.0.1:4880/fault -d '{\"machine\":\"FILL01\",\"counter\":\"good\",\"kind\":\"glitch\",\"for_ms\":2000}'
  curl -X POST http://127.0.0.1:4880/server -d '{\"down_ms\":3000}'";

/// `host simulate`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct SimulateArgs {
    /// Where the OPC UA server listens; port 0 takes a free one
    #[arg(long, default_value = "opc.tcp://127.0.0.1:4840", value_name = "URL")]
    pub listen: Address,
    /// Where the truth is told and faults are ordered, over HTTP; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:4880", value_name = "HOST:PORT")]
    pub control: String,
    /// What all chance follows from: the same seed makes the same bottles
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// How much faster than real time: 1 makes about 6 units a second in all, 20 at least 100
    #[arg(long, default_value_t = 1.0, value_parser = speed, value_name = "FACTOR")]
    pub speed: f64,
    /// Begin paused, until POST /resume
    #[arg(long)]
    pub paused: bool,
    /// How many times a second values change, at most
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "HZ")]
    pub rate: u32,
    /// Add so many counters LOADnnnn.Count that change at every step, for load tests
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000), value_name = "N")]
    pub counters: u32,
    /// What every good counter shows at the start, to see one roll over; FILL01's goes to 65535
    #[arg(long, value_name = "COUNT")]
    pub first: Option<u64>,
}

pub(super) fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.01..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("give a factor from 0.01 to 1000".to_owned()),
    }
}

/// Runs until SIGINT or SIGTERM, then ends at once. Prints one line when clients can connect.
///
/// # Errors
/// When an address is in use, or a server ends by itself.
pub async fn simulate(args: SimulateArgs) -> anyhow::Result<()> {
    let mut interrupted = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminated = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut simulator = Simulator::start(Settings {
        listen: args.listen,
        control: args.control,
        beginning: Beginning {
            seed: args.seed,
            speed: args.speed,
            paused: args.paused,
            counters: usize::try_from(args.counters)?,
            first: args.first,
        },
        rate: args.rate,
    })
    .await?;
    println!("{} control {}", simulator.url(), simulator.control_url());
    tokio::select! {
        ended = simulator.ended() => Ok(ended?),
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}
