//! The store against real databases: a PostgreSQL server for each test that wants one, and SQLite files.
//!
//! The modules are marked as tests although nothing else is built from them: the lints for code that ships then leave them alone.

#[cfg(test)]
mod connecting;
#[cfg(test)]
mod ground;
#[cfg(test)]
mod migrations;
#[cfg(test)]
mod pooler;
#[cfg(test)]
mod postgres_commit;
#[cfg(test)]
mod postgres_statements;
#[cfg(test)]
mod sqlite;
