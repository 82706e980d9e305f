//! One INSERT for many rows: the text that was written for one row, turned into one statement over arrays.
//!
//! `INSERT INTO t (a, b) VALUES ($1, now()) ON CONFLICT …` becomes
//! `INSERT INTO t (a, b) SELECT batch.c1, now() FROM (SELECT UNNEST($1::bigint[]) AS c1) AS batch ON CONFLICT …`: one round trip for
//! any number of rows. In a list of columns, and not as a table, since the server would first write such a table down: that is a sixth
//! of what a booking costs. The rewriting works on tokens, so that everything that is not a parameter stays as it was written. What cannot
//! be turned round without changing its meaning is left alone, and runs row by row.

use sqlparser::ast::{ConflictTarget, Insert, OnConflictAction, OnInsert, SetExpr, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, Tokenizer, Whitespace};

/// An INSERT, cut where its parameters stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    before: String,
    tuple: Vec<Piece>,
    after: Vec<Piece>,
    keys: Option<Vec<usize>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `$n`, counted from 0.
    Parameter(usize),
}

/// How one column is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Sent<'a> {
    /// The type of the array's elements.
    pub(super) element: &'a str,
    /// The type that the statement wants, where it is another.
    pub(super) cast: Option<&'a str>,
}

impl Template {
    /// The template of `sql`, if it is an INSERT of one row of VALUES that can run over arrays.
    pub(super) fn of(sql: &str, statement: &Statement) -> Option<Self> {
        let Statement::Insert(insert) = statement else { return None };
        let source = insert.source.as_ref()?;
        let SetExpr::Values(values) = source.body.as_ref() else { return None };
        if source.with.is_some() || values.rows.len() != 1 || insert.columns.is_empty() {
            return None;
        }
        let dialect = PostgreSqlDialect {};
        let tokens = Tokenizer::new(&dialect, sql).with_unescape(false).tokenize().ok()?;
        let values_at = outside_parentheses(&tokens, Keyword::VALUES)?;
        let open = values_at + tokens.get(values_at..)?.iter().position(|t| *t == Token::LParen)?;
        let close = closing(&tokens, open)?;
        let tuple = tokens.get(open + 1..close)?;
        let plain = |t: &Token| {
            !matches!(keyword(t), Keyword::SELECT | Keyword::WITH | Keyword::DEFAULT | Keyword::VALUES | Keyword::TABLE)
        };
        if !tuple.iter().all(plain) {
            return None;
        }
        let columns: Vec<String> = insert.columns.iter().map(ToString::to_string).collect();
        let sources = sources(tuple, &columns)?;
        let after = after_values(tokens.get(close + 1..)?, &sources)?;
        let before = pieces(tokens.get(..values_at)?).first().map(text).unwrap_or_default();
        Some(Self { before, tuple: pieces(tuple), after, keys: keys(insert, &sources) })
    }

    /// The parameters that tell one row from another for ON CONFLICT … DO UPDATE, counted from 0. One statement may not touch a row
    /// twice, so rows that agree in them must run one after the other. `None` where a row may come twice.
    pub(super) fn keys(&self) -> Option<&[usize]> {
        self.keys.as_deref()
    }

    /// The statement over arrays: `sent` says how each parameter's column is sent.
    pub(super) fn render(&self, sent: &[Sent<'_>]) -> Option<String> {
        let mut sql = format!("{}SELECT ", self.before);
        for piece in &self.tuple {
            match piece {
                Piece::Text(text) => sql.push_str(text),
                Piece::Parameter(n) => match sent.get(*n)?.cast {
                    Some(cast) => sql.push_str(&format!("CAST(batch.c{} AS {cast})", n + 1)),
                    None => sql.push_str(&format!("batch.c{}", n + 1)),
                },
            }
        }
        let column = |(n, s): (usize, &Sent<'_>)| format!("UNNEST(${0}::{1}[]) AS c{0}", n + 1, s.element);
        let columns: Vec<String> = sent.iter().enumerate().map(column).collect();
        sql.push_str(&format!(" FROM (SELECT {}) AS batch", columns.join(", ")));
        for piece in &self.after {
            sql.push_str(&text(piece));
        }
        Some(sql)
    }
}

fn text(piece: &Piece) -> String {
    match piece {
        Piece::Text(text) => text.clone(),
        Piece::Parameter(n) => format!("${}", n + 1),
    }
}

fn keyword(token: &Token) -> Keyword {
    if let Token::Word(word) = token { word.keyword } else { Keyword::NoKeyword }
}

/// The first `wanted` that stands in no parentheses and is no quoted name.
fn outside_parentheses(tokens: &[Token], wanted: Keyword) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(word) if depth == 0 && word.quote_style.is_none() && word.keyword == wanted => return Some(at),
            _ => {}
        }
    }
    None
}

fn closing(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn parameter(token: &Token) -> Option<usize> {
    let Token::Placeholder(name) = token else { return None };
    name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// For each parameter that stands alone in the tuple, the column that it goes to.
fn sources<'a>(tuple: &[Token], columns: &'a [String]) -> Option<Vec<(usize, &'a str)>> {
    let mut depth = 0_usize;
    let mut expressions: Vec<Vec<&Token>> = vec![Vec::new()];
    for token in tuple {
        match token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            Token::Whitespace(_) => continue,
            Token::Comma if depth == 0 => {
                expressions.push(Vec::new());
                continue;
            }
            _ => {}
        }
        expressions.last_mut()?.push(token);
    }
    if expressions.len() != columns.len() {
        return None;
    }
    let alone = |(tokens, column): (&Vec<&Token>, &'a String)| match tokens.as_slice() {
        [only] => parameter(only).map(|n| (n, column.as_str())),
        _ => None,
    };
    Some(expressions.iter().zip(columns).filter_map(alone).collect())
}

/// Other columns of the target hold what is the same, or unknown, for every row: to leave them out can only find too many repeats.
fn keys(insert: &Insert, sources: &[(usize, &str)]) -> Option<Vec<usize>> {
    let Some(OnInsert::OnConflict(conflict)) = &insert.on else { return None };
    let (OnConflictAction::DoUpdate(_), Some(ConflictTarget::Columns { columns: target, .. })) =
        (&conflict.action, &conflict.conflict_target)
    else {
        return None;
    };
    let of = |column: &str| sources.iter().find(|(_, source)| *source == column).map(|(parameter, _)| *parameter);
    Some(target.iter().filter_map(|column| of(&column.to_string())).collect())
}

/// What follows the tuple. A parameter there means the row's own value, which is `excluded`'s; where it has none, there is no template.
fn after_values(tokens: &[Token], sources: &[(usize, &str)]) -> Option<Vec<Piece>> {
    let mut returning = false;
    let mut cut = pieces(tokens);
    for token in tokens {
        returning |= keyword(token) == Keyword::RETURNING;
        if returning && matches!(token, Token::Placeholder(_)) {
            return None;
        }
    }
    for piece in &mut cut {
        if let Piece::Parameter(n) = piece {
            let (_, column) = sources.iter().find(|(parameter, _)| parameter == n)?;
            *piece = Piece::Text(format!("excluded.{column}"));
        }
    }
    Some(cut)
}

fn pieces(tokens: &[Token]) -> Vec<Piece> {
    let mut cut = Vec::new();
    let mut text = String::new();
    for token in tokens {
        match (parameter(token), token) {
            (Some(n), _) => {
                cut.push(Piece::Text(std::mem::take(&mut text)));
                cut.push(Piece::Parameter(n));
            }
            (None, Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_))) => {
                text.push(' ')
            }
            (None, Token::SemiColon | Token::EOF) => {}
            (None, other) => text.push_str(&other.to_string()),
        }
    }
    cut.push(Piece::Text(text));
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Bounds, sql};

    fn template(text: &str) -> Option<Template> {
        let parsed = sql::parse(&PostgreSqlDialect {}, text, &Bounds::default()).unwrap();
        Template::of(text, &parsed.statement)
    }

    fn rendered(text: &str, sent: &[Sent<'_>]) -> String {
        template(text).unwrap().render(sent).unwrap()
    }

    const BIG: Sent<'_> = Sent { element: "bigint", cast: None };
    const EXACT: Sent<'_> = Sent { element: "bigint", cast: Some("numeric") };

    #[test]
    fn an_insert_of_one_row_becomes_one_over_arrays() {
        assert_eq!(
            rendered("INSERT INTO t (a, b, c) VALUES ($1, $2 + 1, now());", &[BIG, EXACT]),
            "INSERT INTO t (a, b, c) SELECT batch.c1, CAST(batch.c2 AS numeric) + 1, now() \
             FROM (SELECT UNNEST($1::bigint[]) AS c1, UNNEST($2::bigint[]) AS c2) AS batch"
        );
    }

    #[test]
    fn the_conflict_clause_stays_and_its_parameters_are_the_rows_own() {
        assert_eq!(
            rendered(
                "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = $2, c = 'it''s; $1' WHERE t.b = excluded.b - 1",
                &[BIG, BIG]
            ),
            "INSERT INTO t (a, b) SELECT batch.c1, batch.c2 FROM (SELECT UNNEST($1::bigint[]) AS c1, UNNEST($2::bigint[]) AS c2) AS batch \
             ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = 'it''s; $1' WHERE t.b = excluded.b - 1"
        );
    }

    #[test]
    fn comments_and_quoted_names_do_not_mislead() {
        assert_eq!(
            rendered("INSERT INTO \"values\" (a) -- VALUES ($9)\nVALUES /* ( */ ($1)", &[BIG]),
            "INSERT INTO \"values\" (a)  \nSELECT batch.c1 FROM (SELECT UNNEST($1::bigint[]) AS c1) AS batch"
        );
    }

    #[test]
    fn what_would_change_its_meaning_has_no_template() {
        for text in [
            "INSERT INTO t VALUES ($1)",
            "INSERT INTO t (a) VALUES ($1), ($1)",
            "INSERT INTO t (a) VALUES ((SELECT max(a) FROM t) + $1)",
            "INSERT INTO t (a, b) VALUES ($1, DEFAULT)",
            "INSERT INTO t (a) SELECT $1",
            "INSERT INTO t (a) VALUES ($1 + 1) ON CONFLICT (a) DO UPDATE SET b = $1",
            "INSERT INTO t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = $2",
            "INSERT INTO t (a) VALUES ($1) RETURNING a + $1",
            "UPDATE t SET a = $1 WHERE b = $2",
            "DELETE FROM t WHERE b = $1",
        ] {
            assert_eq!(template(text), None, "{text}");
        }
    }
}
