//! Who may be drilled: a plant that does not count for real, has somebody to hand over to, and whose own nodes are at rest.

use anyhow::bail;

use super::arguments::DrillArgs;
use crate::config::{Config, Plant, Redundancy};
use crate::identity::RoleKey;
use crate::store::queries::NodeRow;

/// That a plant may be drilled at all.
///
/// # Errors
/// One sentence: why not, and what to do.
pub fn of_plant<'c>(config: &'c Config, arguments: &DrillArgs) -> anyhow::Result<&'c Redundancy> {
    real(&config.plant, arguments.on_a_real_plant, arguments.yes_count_real.as_deref())?;
    let Some(redundancy) = &config.redundancy else {
        bail!(
            "the plant {:?} has no [redundancy]: its one node has nobody to hand over to; add that section, and PostgreSQL in \
             [store], to drill it",
            config.plant.name
        );
    };
    Ok(redundancy)
}

/// A plant that counts for real is drilled only by somebody who says so twice, the second time by its name.
fn real(plant: &Plant, on_a_real_plant: bool, named: Option<&str>) -> anyhow::Result<()> {
    let name = &plant.name;
    if plant.simulated || (on_a_real_plant && named == Some(name.as_str())) {
        return Ok(());
    }
    match named {
        Some(other) if on_a_real_plant => bail!(
            "--yes-count-real names {other:?} and the plant is called {name:?}: the drill would end nodes that count for real, so give \
             the name of the plant that is meant"
        ),
        _ => bail!(
            "the plant {name:?} counts for real ([plant] simulated is not true), and a drill ends nodes while they count: drill a \
             simulated plant, or say --on-a-real-plant and --yes-count-real {name}"
        ),
    }
}

/// The role whose takeovers are measured.
///
/// # Errors
/// One sentence, when the plant has no such role.
pub fn of_role(config: &Config, role: &str) -> anyhow::Result<RoleKey> {
    let Some((name, found)) = config.roles.iter().find(|(name, _)| name.as_str() == role) else {
        let known: Vec<&str> = config.roles.keys().map(|name| name.as_str()).collect();
        bail!("the plant has no role {role:?} to drill: it has {}", known.join(", "));
    };
    let partition = found.partitions.first().cloned().unwrap_or_default();
    Ok(RoleKey { role: name.clone(), partition })
}

/// That no other node of the plant lives: it would take part, and the figures would be neither the drill's nor its own.
///
/// # Errors
/// One sentence with their names.
pub fn beside(nodes: &[NodeRow], redundancy: &Redundancy) -> anyhow::Result<()> {
    let lease = i64::try_from(redundancy.lease.as_micros()).unwrap_or(i64::MAX);
    let alive = nodes.iter().filter(|node| !node.is_dead && node.heartbeat_age_us < lease);
    let alive: Vec<&str> = alive.map(|node| node.node.as_str()).collect();
    if alive.is_empty() {
        return Ok(());
    }
    let (nodes, them) = if alive.len() == 1 { ("the node", "it") } else { ("the nodes", "them") };
    bail!(
        "{nodes} {} of this plant said within the last lease ({} s) to be alive, and would take the roles that the drill hands \
         around: stop {them} first",
        alive.join(", "),
        redundancy.lease.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Leases, OnDemotion, Scope};
    use std::time::Duration;

    fn plant(simulated: bool) -> Plant {
        let text = |text: &str| text.to_owned();
        Plant { name: text("bottling"), enterprise: text("e"), site: text("s"), timezone: text("UTC"), simulated }
    }

    fn refusal(on_a_real_plant: bool, named: Option<&str>) -> String {
        real(&plant(false), on_a_real_plant, named).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_plant_that_counts_for_real_is_refused_until_it_is_told_twice() {
        let wanted = "the plant \"bottling\" counts for real ([plant] simulated is not true), and a drill ends nodes while they \
                      count: drill a simulated plant, or say --on-a-real-plant and --yes-count-real bottling";
        assert_eq!(refusal(false, None), wanted);
        assert_eq!(refusal(true, None), wanted);
        assert_eq!(refusal(false, Some("bottling")), wanted);
        assert_eq!(refusal(true, Some("bottling")), "");
    }

    #[test]
    fn the_name_of_another_plant_is_not_its_own() {
        let wanted = "--yes-count-real names \"canning\" and the plant is called \"bottling\": the drill would end nodes that count \
                      for real, so give the name of the plant that is meant";
        assert_eq!(refusal(true, Some("canning")), wanted);
    }

    #[test]
    fn a_simulated_plant_needs_no_word() {
        assert!(real(&plant(true), false, None).is_ok());
    }

    fn node(name: &str, age_us: i64, is_dead: bool) -> NodeRow {
        NodeRow {
            node: name.to_owned(),
            boot_id: String::new(),
            address: String::new(),
            version: String::new(),
            started_at: 0,
            heartbeat_age_us: age_us,
            is_dead,
            is_drained: false,
            sections: None,
            could_take_over: None,
            why_not: None,
        }
    }

    #[test]
    fn living_nodes_are_named_and_dead_ones_do_not_matter() {
        let redundancy = Redundancy {
            lease: Duration::from_secs(4),
            leases: Leases::Postgres,
            scope: Scope::Role,
            on_demotion: OnDemotion::Standby,
        };
        let dead = [node("a", 4_000_000, false), node("b", 10, true)];
        assert!(beside(&dead, &redundancy).is_ok());
        let alive = [node("a", 3_999_999, false), node("b", 10, true), node("c", 0, false)];
        let error = beside(&alive, &redundancy).unwrap_err().to_string();
        assert_eq!(
            error,
            "the nodes a, c of this plant said within the last lease (4 s) to be alive, and would take the roles that the drill \
             hands around: stop them first"
        );
    }
}
