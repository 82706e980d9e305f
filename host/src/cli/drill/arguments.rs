//! What `host drill` can be told.

use std::path::PathBuf;

use clap::Args;

use super::faults::Fault;
use crate::cli::arguments::ConfigFile;
use crate::identity::NodeName;

const EXAMPLES: &str = "\
Examples:
  host drill --config plant.toml
  host drill --faults kill,stop --rounds 20 --report drill.md
  host drill --nodes 3 --faults cut --rounds 5

It starts its own nodes on this machine, and a simulated line where nothing listens at the plant's loopback endpoint.
Exit codes: 0 every fault was survived and the books are exact, 1 not so, or refused, 64 wrong configuration.";

/// `host drill`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct DrillArgs {
    /// The plant's configuration
    #[command(flatten)]
    pub config: ConfigFile,
    /// What is done to the holder, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Fault::ALL, value_name = "FAULT,…")]
    pub faults: Vec<Fault>,
    /// How often each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub rounds: u32,
    /// The role whose takeovers are measured
    #[arg(long, default_value = "reader", value_name = "ROLE")]
    pub role: String,
    /// How many nodes, called drill-a, drill-b and so on
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=8), value_name = "N")]
    pub nodes: u8,
    /// The nodes' names, where they are to be others
    #[arg(long, value_delimiter = ',', conflicts_with = "nodes", value_name = "NAME,…")]
    pub names: Vec<NodeName>,
    /// Where the report is written, beside standard output
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// How much faster than real time the simulated line runs, where the drill starts it
    #[arg(long, default_value_t = 10.0, value_parser = crate::cli::simulate::speed, value_name = "FACTOR")]
    pub speed: f64,
    /// Drill a plant that counts for real; needs --yes-count-real as well
    #[arg(long)]
    pub on_a_real_plant: bool,
    /// The name of the plant that counts for real
    #[arg(long, value_name = "PLANT")]
    pub yes_count_real: Option<String>,
}

impl DrillArgs {
    /// The nodes' names.
    ///
    /// # Errors
    /// When they are fewer than two, or one is there twice.
    pub fn node_names(&self) -> anyhow::Result<Vec<NodeName>> {
        if self.names.is_empty() {
            let letters = ('a'..='z').take(usize::from(self.nodes));
            return Ok(letters.map(|letter| format!("drill-{letter}").parse()).collect::<Result<_, _>>()?);
        }
        let mut sorted = self.names.clone();
        sorted.sort();
        sorted.dedup();
        if sorted.len() != self.names.len() || sorted.len() < 2 {
            anyhow::bail!("--names needs two different names at least, such as --names a,b: one node has no successor");
        }
        Ok(self.names.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        drill: DrillArgs,
    }

    fn typed(arguments: &[&str]) -> DrillArgs {
        Typed::try_parse_from(std::iter::once(&"drill").chain(arguments)).unwrap().drill
    }

    fn names(arguments: &[&str]) -> Vec<String> {
        typed(arguments).node_names().unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn without_being_told_it_does_every_fault_to_two_nodes() {
        let typed = typed(&[]);
        assert_eq!(typed.faults, Fault::ALL);
        assert_eq!((typed.rounds, typed.role.as_str()), (5, "reader"));
        assert_eq!(names(&[]), ["drill-a", "drill-b"]);
    }

    #[test]
    fn faults_and_names_are_lists() {
        assert_eq!(typed(&["--faults", "slow-store,kill"]).faults, [Fault::SlowStore, Fault::Kill]);
        assert_eq!(names(&["--names", "left,right"]), ["left", "right"]);
        assert_eq!(names(&["--nodes", "3"]), ["drill-a", "drill-b", "drill-c"]);
    }

    #[test]
    fn one_name_or_one_name_twice_is_no_pair() {
        for list in ["a", "a,a"] {
            let error = typed(&["--names", list]).node_names().unwrap_err().to_string();
            assert!(error.starts_with("--names needs two different names at least"), "{error}");
        }
    }
}
