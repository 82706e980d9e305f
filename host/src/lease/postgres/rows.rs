//! Rows of the lease tables as the types of this module, and back.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::clock::BootInstant;
use crate::identity::{BootId, Epoch, Holder, NodeName, RoleKey};
use crate::lease::{Acquired, Cause, Grant, Renewal, Seen};

/// Roles and partitions as two columns, for `unnest`.
pub(super) fn columns<'k>(keys: impl Iterator<Item = &'k RoleKey>) -> (Vec<String>, Vec<String>) {
    keys.map(|key| (key.role.as_str().to_owned(), key.partition.clone())).unzip()
}

pub(super) fn number(epoch: Epoch) -> i64 {
    i64::try_from(epoch.number).unwrap_or(i64::MAX)
}

pub(super) fn timeline(epoch: Epoch) -> i32 {
    i32::try_from(epoch.timeline).unwrap_or(i32::MAX)
}

fn decode(error: impl std::fmt::Display) -> sqlx::Error {
    sqlx::Error::Decode(error.to_string().into())
}

fn epoch(row: &PgRow) -> Result<Epoch, sqlx::Error> {
    let (timeline, number): (i32, i64) = (row.try_get("timeline")?, row.try_get("epoch")?);
    Ok(Epoch { timeline: u32::try_from(timeline).map_err(decode)?, number: u64::try_from(number).map_err(decode)? })
}

pub(super) fn key(row: &PgRow) -> Result<RoleKey, sqlx::Error> {
    let role: String = row.try_get("role")?;
    Ok(RoleKey { role: role.parse().map_err(decode)?, partition: row.try_get("partition")? })
}

fn holder(row: &PgRow) -> Result<Option<Holder>, sqlx::Error> {
    let (node, boot): (Option<String>, Option<uuid::Uuid>) = (row.try_get("holder")?, row.try_get("holder_boot")?);
    let (Some(node), Some(boot)) = (node, boot) else { return Ok(None) };
    let node: NodeName = node.parse().map_err(decode)?;
    Ok(Some(Holder { node, boot: BootId(boot) }))
}

/// A lease as it stands in the tables.
pub(super) fn seen(row: &PgRow) -> Result<Seen, sqlx::Error> {
    seen_of(key(row)?, row)
}

fn seen_of(key: RoleKey, row: &PgRow) -> Result<Seen, sqlx::Error> {
    Ok(Seen {
        key,
        holder: holder(row)?,
        epoch: epoch(row)?,
        renewed_at_us: row.try_get("renewed_us")?,
        expires_in_ms: row.try_get("expires_in_ms")?,
        is_dead: row.try_get("is_dead").unwrap_or(false),
    })
}

/// What became of one lease in a renewal.
pub(super) fn renewal(row: &PgRow) -> Result<(RoleKey, Renewal), sqlx::Error> {
    let became: String = row.try_get("became")?;
    let became = match became.as_str() {
        "confirmed" => Renewal::Confirmed,
        "skipped" => Renewal::Skipped,
        "lost" => Renewal::Lost,
        other => return Err(decode(format!("a lease became {other:?}"))),
    };
    Ok((key(row)?, became))
}

/// The answer of `plant_acquire` to a question that was sent at `sent`.
pub(super) fn acquired(key: &RoleKey, sent: BootInstant, row: &PgRow) -> Result<Acquired, sqlx::Error> {
    if !row.try_get::<bool, _>("granted")? {
        return Ok(Acquired::Taken(seen_of(key.clone(), row)?));
    }
    let hold_back: i64 = row.try_get("hold_back_us")?;
    let cause: String = row.try_get("cause")?;
    Ok(Acquired::Granted(Grant {
        key: key.clone(),
        epoch: epoch(row)?,
        sent,
        hold_back: Duration::from_micros(u64::try_from(hold_back).map_err(decode)?),
        previous: holder(row)?,
        cause: cause.parse::<Cause>().map_err(|()| decode(format!("a lease was granted because of {cause:?}")))?,
    }))
}
