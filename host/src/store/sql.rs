//! What a role's statement is, before it is sent: one statement, and none that ends the transaction or changes the session.
//!
//! The fence stands at the end of the transaction that the host opened. A statement that could commit it, open another, or change
//! what the session resolves names by would go round the fence, so such statements are refused for every role, whatever its grants.

use sqlparser::ast::{Query, Select, SetExpr, Statement, TableFactor};
use sqlparser::dialect::Dialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::{Bounds, DbError};

/// Functions that change the session or outlive the transaction.
const SESSION_FUNCTIONS: &[&str] = &[
    "set_config",
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared",
    "pg_terminate_backend",
    "pg_cancel_backend",
    "load_extension",
];

/// A statement that may be sent.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    /// What it says.
    pub(super) statement: Statement,
    /// The highest `$n` in it.
    pub(super) parameters: usize,
}

/// Reads a statement, and refuses what may not be sent.
pub(super) fn parse(dialect: &dyn Dialect, sql: &str, bounds: &Bounds) -> Result<Parsed, DbError> {
    if sql.len() > bounds.statement_bytes {
        return Err(DbError::TooLarge(bounds.statement_bytes as u64));
    }
    if sql.contains('\0') {
        return Err(DbError::Denied("a statement may not contain a zero byte".to_owned()));
    }
    if sql.to_ascii_lowercase().contains("u&\"") {
        return Err(DbError::Denied("names written as U&\"…\" are not accepted: write the name itself".to_owned()));
    }
    let unreadable = |why: String| DbError::Database {
        code: "42601".to_owned(),
        message: format!("the statement cannot be read: {why}"),
        detail: None,
        constraint: None,
    };
    let tokens = Tokenizer::new(dialect, sql).tokenize_with_location().map_err(|e| unreadable(e.to_string()))?;
    refuse_session_functions(tokens.iter().map(|t| &t.token))?;
    let parameters = highest_parameter(tokens.iter().map(|t| &t.token), bounds)?;
    let mut parsed = Parser::new(dialect).with_tokens_with_locations(tokens).parse_statements();
    let parsed = parsed.as_mut().map_err(|e| unreadable(e.to_string()))?;
    match (parsed.pop(), parsed.len()) {
        (None, _) => Err(unreadable("it is empty".to_owned())),
        (Some(statement), 0) => {
            refuse_other_kinds(&statement)?;
            Ok(Parsed { statement, parameters })
        }
        (Some(_), before) => {
            let count = before + 1;
            Err(DbError::Denied(format!("{count} statements in one text: send one statement at a time")))
        }
    }
}

fn refuse_session_functions<'a>(tokens: impl Iterator<Item = &'a Token>) -> Result<(), DbError> {
    for token in tokens {
        if let Token::Word(word) = token
            && SESSION_FUNCTIONS.iter().any(|f| word.value.eq_ignore_ascii_case(f))
        {
            return Err(DbError::Denied(format!("{} changes the session, which belongs to the host", word.value)));
        }
    }
    Ok(())
}

fn highest_parameter<'a>(tokens: impl Iterator<Item = &'a Token>, bounds: &Bounds) -> Result<usize, DbError> {
    let mut highest = 0;
    for token in tokens {
        let Token::Placeholder(name) = token else { continue };
        let number = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()).filter(|n| *n > 0);
        let Some(number) = number else {
            return Err(DbError::Denied(format!("{name} is no parameter: write $1, $2, …")));
        };
        highest = highest.max(number);
    }
    if highest > bounds.parameters { Err(DbError::TooLarge(bounds.parameters as u64)) } else { Ok(highest) }
}

fn refuse_other_kinds(statement: &Statement) -> Result<(), DbError> {
    match statement {
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => Ok(()),
        Statement::Query(query) => refuse_into(query),
        other => {
            let text = other.to_string();
            let word = text.split_whitespace().next().unwrap_or("this").to_owned();
            Err(DbError::Denied(format!("{word} is not allowed: only SELECT, INSERT, UPDATE, DELETE and WITH are")))
        }
    }
}

/// `SELECT … INTO t` makes a table.
fn refuse_into(query: &Query) -> Result<(), DbError> {
    let mut ctes = query.with.iter().flat_map(|with| &with.cte_tables);
    ctes.try_for_each(|cte| refuse_into(&cte.query))?;
    refuse_into_body(&query.body)
}

fn refuse_into_body(body: &SetExpr) -> Result<(), DbError> {
    match body {
        SetExpr::Select(select) => refuse_into_select(select),
        SetExpr::Query(query) => refuse_into(query),
        SetExpr::SetOperation { left, right, .. } => {
            refuse_into_body(left)?;
            refuse_into_body(right)
        }
        SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) => refuse_other_kinds(inner),
        SetExpr::Merge(_) => {
            Err(DbError::Denied("MERGE is not allowed: only SELECT, INSERT, UPDATE, DELETE and WITH are".to_owned()))
        }
        SetExpr::Values(_) | SetExpr::Table(_) => Ok(()),
    }
}

fn refuse_into_select(select: &Select) -> Result<(), DbError> {
    if select.into.is_some() {
        return Err(DbError::Denied("SELECT … INTO makes a table: write INSERT INTO … SELECT".to_owned()));
    }
    for relation in
        select.from.iter().flat_map(|t| std::iter::once(&t.relation).chain(t.joins.iter().map(|j| &j.relation)))
    {
        if let TableFactor::Derived { subquery, .. } = relation {
            refuse_into(subquery)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::{PostgreSqlDialect, SQLiteDialect};

    fn denied(sql: &str) -> String {
        let bounds = Bounds::default();
        let postgres = parse(&PostgreSqlDialect {}, sql, &bounds).unwrap_err().to_string();
        assert!(parse(&SQLiteDialect {}, sql, &bounds).is_err(), "SQLite accepts {sql}");
        postgres
    }

    #[test]
    fn two_statements_in_one_text_are_refused() {
        assert!(denied("SELECT 1; DELETE FROM bookings").starts_with("2 statements in one text"));
        assert!(denied("INSERT INTO a VALUES (1); COMMIT").contains("statements"));
    }

    #[test]
    fn whatever_ends_the_transaction_or_changes_the_session_is_refused() {
        for sql in [
            "BEGIN",
            "COMMIT",
            "END",
            "ROLLBACK",
            "SAVEPOINT a",
            "SET statement_timeout = 0",
            "RESET ROLE",
            "PREPARE TRANSACTION 'a'",
            "CREATE TABLE a (b int)",
            "CREATE TEMP TABLE a (b int)",
            "DROP TABLE a",
            "ALTER TABLE a ADD b int",
            "TRUNCATE a",
            "COPY a FROM STDIN",
            "CALL a()",
            "DO $$ BEGIN COMMIT; END $$",
            "LOCK TABLE a",
            "LISTEN a",
            "NOTIFY a",
            "PRAGMA user_version",
            "ATTACH DATABASE 'a' AS b",
            "VACUUM",
            "EXPLAIN ANALYZE DELETE FROM a",
            "SELECT 1 INTO a",
            "SELECT * FROM (SELECT 1 INTO a) b",
            "WITH x AS (SELECT 1 INTO a) SELECT 2",
            "SELECT set_config('search_path', 'mine', false)",
            "SELECT \"set_config\"('search_path', 'mine', false)",
            "SELECT pg_catalog.SET_CONFIG('search_path', 'mine', false)",
            "SELECT U&\"set_confi\\0067\"('search_path', 'mine', false)",
            "SELECT pg_advisory_lock(1)",
            "SELECT 1 /* ; */; DELETE FROM a",
            "",
            "-- nothing",
            "SELECT ?",
            "SELECT $0",
            "SELECT $name",
        ] {
            denied(sql);
        }
    }

    #[test]
    fn reading_and_changing_rows_is_accepted() {
        for sql in [
            "SELECT a, b FROM c WHERE d = $1 ORDER BY a LIMIT 5",
            "WITH x AS (SELECT 1 AS a) SELECT a FROM x;",
            "INSERT INTO a (b) VALUES ($1) ON CONFLICT (b) DO UPDATE SET b = excluded.b WHERE a.b = excluded.b - 1",
            "UPDATE a SET b = $1 WHERE c = $2",
            "DELETE FROM a WHERE b = $1",
            "SELECT 'a; b' AS \"c; d\" -- ; e",
        ] {
            parse(&PostgreSqlDialect {}, sql, &Bounds::default()).unwrap();
            parse(&SQLiteDialect {}, sql, &Bounds::default()).unwrap();
        }
    }

    #[test]
    fn a_statement_longer_than_the_bound_is_too_large() {
        let bounds = Bounds { statement_bytes: 10, ..Bounds::default() };
        assert!(matches!(parse(&PostgreSqlDialect {}, "SELECT 12345", &bounds), Err(DbError::TooLarge(10))));
    }
}
