//! `host simulate`.
use clap::Args;
/// `host simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {}
/// Not yet.
///
/// # Errors
/// Always.
pub async fn simulate(_: SimulateArgs) -> anyhow::Result<()> { anyhow::bail!("not yet") }
