//! The database sessions that a role's transactions run on, and their end when another node takes the role over.
//!
//! A holder that froze inside a transaction keeps its row locks as long as its session lives. Nothing of it can commit any more, but the
//! new holder would wait for those rows. So each session carries the name of the boot and the role that it works for, and whoever takes
//! the role over ends those that were at work before.

use sqlx::PgConnection;

use crate::identity::{BootId, Holder, RoleKey};

/// The server cuts names at 63 bytes.
const LONGEST: usize = 63;

/// The name of a session that works for this role of this boot: the boot comes first, so that it is never cut.
pub(crate) fn name(boot: BootId, key: &RoleKey) -> String {
    // The server has ways of its own to write down anything else.
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    format!("{boot}:{}/{}", key.role, key.partition).chars().map(plain).take(LONGEST).collect()
}

/// Ends the transactions that this holder of the role had begun before `taken_us` (microseconds since the Unix epoch, by the database's
/// clock); says how many.
pub(super) async fn end(
    connection: &mut PgConnection,
    of: &Holder,
    key: &RoleKey,
    taken_us: i64,
) -> Result<i64, sqlx::Error> {
    const END: &str = "
        SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) FROM pg_stat_activity a
         WHERE a.datname = current_database() AND a.application_name = $1 AND a.pid <> pg_backend_pid()
           AND extract(epoch FROM a.xact_start) * 1000000 <= $2";
    sqlx::query_scalar(END).bind(name(of.boot, key)).bind(taken_us).fetch_one(connection).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_the_server_and_begins_with_the_boot() {
        let boot = BootId::random();
        let key =
            |role: &str, partition: &str| RoleKey { role: role.parse().unwrap(), partition: partition.to_owned() };
        assert_eq!(name(boot, &key("reader", "")), format!("{boot}:reader/"));
        assert_eq!(name(boot, &key("reader", "Zürich 1")), format!("{boot}:reader/Z_rich_1"));
        let long = name(boot, &key(&"r".repeat(63), "line"));
        assert_eq!((long.len(), long.starts_with(&boot.to_string())), (63, true));
    }
}
