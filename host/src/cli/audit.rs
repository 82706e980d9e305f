//! `host audit`: who has said what about where roles run.

use anyhow::bail;
use serde_json::json;

use super::arguments::Audit;
use super::status::table;
use crate::config::Config;
use crate::store::Pool;
use crate::store::placements::{self, AuditRow};

/// Prints the newest orders, the newest first.
///
/// # Errors
/// A sentence when the plant keeps no such record, or its database does not answer.
pub async fn run(asked: &Audit) -> anyhow::Result<()> {
    let config = Config::load(&asked.config.config)?;
    let Pool::Postgres(pool) = Pool::connect(&config.store).await? else {
        bail!("orders about roles are kept only where the plant has PostgreSQL");
    };
    let orders = placements::audit(&pool, i64::from(asked.limit)).await?;
    if asked.json {
        let orders: Vec<_> = orders.iter().map(document).collect();
        println!("{}", serde_json::to_string_pretty(&orders)?);
    } else if orders.is_empty() {
        println!("Nobody has said anything about where roles run.");
    } else {
        print!("{}", printed(&orders));
    }
    Ok(())
}

fn document(order: &AuditRow) -> serde_json::Value {
    let AuditRow { at, who, action, role, partition, node, until, why } = order;
    json!({ "at": at, "who": who, "action": action, "role": role, "partition": partition, "node": node, "until": until, "why": why })
}

fn printed(orders: &[AuditRow]) -> String {
    let mut rows = vec![["AT", "WHO", "ACTION", "ROLE", "NODE", "UNTIL", "WHY"].map(str::to_owned).to_vec()];
    for order in orders {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let role = match (&order.role, order.partition.as_deref().filter(|partition| !partition.is_empty())) {
            (Some(role), Some(partition)) => format!("{role}/{partition}"),
            (role, _) => or_dash(role),
        };
        let (at, who, action) = (order.at.clone(), order.who.clone(), order.action.clone());
        rows.push(vec![at, who, action, role, or_dash(&order.node), or_dash(&order.until), or_dash(&order.why)]);
    }
    table(&rows, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_printed_with_what_was_left_out_as_a_dash() {
        let order = AuditRow {
            at: "2026-01-01T00:00:00Z".to_owned(),
            who: "ann@plant-a".to_owned(),
            action: "drain".to_owned(),
            role: None,
            partition: None,
            node: Some("a".to_owned()),
            until: None,
            why: Some("new disk".to_owned()),
        };
        let wanted = "AT                    WHO          ACTION  ROLE  NODE  UNTIL  WHY\n\
                      2026-01-01T00:00:00Z  ann@plant-a  drain   -     a     -      new disk\n";
        assert_eq!(printed(&[order]), wanted);
    }
}
