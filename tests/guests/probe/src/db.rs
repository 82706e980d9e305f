//! What the probe does with the database. Its table has one column: `CREATE TABLE probe (epoch BIGINT)`.

use plant_role::db::{Error, Options, Params, Statement, Transaction, Value};
use plant_role::lease;

use crate::count;

/// A transaction that was left open.
#[derive(Default)]
pub struct Held(Option<Transaction>);

/// One row, committed.
pub fn write() -> Result<(), String> {
    Transaction::commit(begin_and_insert().map_err(text)?).map_err(text)
}

/// One row in a transaction that stays open; then whatever comes.
pub fn open_and(then: fn() -> Result<(), String>) -> Result<(), String> {
    let _open = begin_and_insert().map_err(text)?;
    count("opened", 1);
    then()
}

impl Held {
    /// The first time leaves a transaction open; the second time commits it.
    pub fn hold(&mut self) -> Result<(), String> {
        match self.0.take() {
            None => {
                self.0 = Some(begin_and_insert().map_err(text)?);
                count("opened", 1);
                Ok(())
            }
            Some(open) => {
                let outcome = Transaction::commit(open).map_err(text);
                count(if outcome.is_ok() { "commits" } else { "refused_commits" }, 1);
                outcome
            }
        }
    }
}

/// What the second `begin` answers.
pub fn begin_twice() -> String {
    match Transaction::begin(Options::empty()) {
        Ok(_first) => match Transaction::begin(Options::empty()) {
            Ok(_second) => "two transactions are open".to_owned(),
            Err(error) => text(error),
        },
        Err(error) => text(error),
    }
}

fn begin_and_insert() -> Result<Transaction, Error> {
    let open = Transaction::begin(Options::empty())?;
    let epoch = i64::try_from(lease::current().epoch).unwrap_or(i64::MAX);
    let params = Params::Row(vec![Value::Int(epoch)]);
    open.execute(&[Statement { sql: "INSERT INTO probe (epoch) VALUES ($1)".to_owned(), params }])?;
    Ok(open)
}

fn text(error: Error) -> String {
    format!("{error:?}")
}
