//! Late corrections by people: rows that are added, never edited.

use crate::store::Pool;

/// A correction as a person states it.
#[derive(Debug, Clone)]
pub struct NewCorrection<'a> {
    /// The machine's code.
    pub machine: &'a str,
    /// `good` or `scrap`.
    pub counter: &'a str,
    /// Units to add; below zero to take away.
    pub quantity: i64,
    /// Who says so.
    pub who: &'a str,
    /// Why.
    pub why: &'a str,
}

/// Adds it and answers its number; `None` when the database knows no such machine.
///
/// # Errors
/// When the database does not answer, or has not these tables.
pub async fn correct(pool: &Pool, new: &NewCorrection<'_>) -> Result<Option<i64>, sqlx::Error> {
    let row: Option<(i64,)> = match pool {
        Pool::Postgres(pool) => {
            let sql = "INSERT INTO corrections (machine_id, counter, quantity, who, why, at)
                       SELECT id, CASE $2 WHEN 'good' THEN 0 ELSE 1 END, $3, $4, $5, clock_timestamp()
                       FROM machines WHERE code = $1 RETURNING id";
            let query = sqlx::query_as(sql).bind(new.machine).bind(new.counter).bind(new.quantity);
            query.bind(new.who).bind(new.why).fetch_optional(pool).await?
        }
        Pool::Sqlite(pool) => {
            let sql = "INSERT INTO corrections (machine_id, counter, quantity, who, why, at)
                       SELECT id, CASE $2 WHEN 'good' THEN 0 ELSE 1 END, $3, $4, $5, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
                       FROM machines WHERE code = $1 RETURNING id";
            let query = sqlx::query_as(sql).bind(new.machine).bind(new.counter).bind(new.quantity);
            query.bind(new.who).bind(new.why).fetch_optional(pool).await?
        }
    };
    Ok(row.map(|(id,)| id))
}
