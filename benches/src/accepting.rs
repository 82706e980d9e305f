//! A database that accepts everything and keeps nothing: what is measured with it is the way to the database, without the database.

use async_trait::async_trait;
use host::clock::wall_nanos;
use host::lease::Held;
use host::store::{
    Array, Column, ColumnData, Database, DbError, Options, Params, Rowset, Statement, Transaction, Value,
};

/// Knows so many machines, `LOAD0001` and so on, and nothing else.
#[derive(Debug, Clone, Copy)]
pub struct Accepting {
    /// So many.
    pub machines: usize,
}

#[async_trait]
impl Database for Accepting {
    async fn begin(&self, held: &Held, _: Options) -> Result<Box<dyn Transaction>, DbError> {
        held.check().map_err(|_| DbError::LeaseLost)?;
        Ok(Box::new(Open { machines: self.machines, now: wall_nanos() }))
    }

    fn fence_refusals(&self) -> u64 {
        0
    }
}

struct Open {
    machines: usize,
    now: i64,
}

#[async_trait]
impl Transaction for Open {
    fn now(&self) -> i64 {
        self.now
    }

    async fn query(&mut self, sql: &str, _: Vec<Value>) -> Result<Rowset, DbError> {
        if sql != "SELECT code, id FROM machines" {
            return Ok(Rowset::default());
        }
        let column = |name: &str| Column { name: name.to_owned(), type_name: "text".to_owned() };
        let row =
            |n: usize| vec![Value::Text(crate::ground::code(n)), Value::Int(i64::try_from(n).unwrap_or(i64::MAX))];
        let rows = (1..=self.machines).map(row).collect();
        Ok(Rowset { columns: vec![column("code"), column("id")], rows })
    }

    async fn execute(&mut self, work: Vec<Statement>) -> Result<Vec<u64>, DbError> {
        Ok(work.iter().map(rows).collect())
    }

    async fn commit(self: Box<Self>) -> Result<(), DbError> {
        Ok(())
    }
}

/// How many rows a statement would write.
fn rows(statement: &Statement) -> u64 {
    let Params::Columns(columns) = &statement.params else { return 1 };
    let length = match columns.first() {
        Some(ColumnData { values: Array::Ints(v) | Array::Timestamps(v), .. }) => v.len(),
        Some(ColumnData { values: Array::Texts(v), .. }) => v.len(),
        _ => 0,
    };
    u64::try_from(length).unwrap_or(u64::MAX)
}
