//! Statements on PostgreSQL: exact values, exact counts, one round trip a batch, and bounds.

use std::time::Duration;

use host::store::{Array, Bounds, ColumnData, DbError, Params, Statement, Value};

use crate::ground::{Ground, columns, decimal, insert, row, sqlstate, text};

const UPSERT: &str = "INSERT INTO counts (machine, sequence, value) VALUES ($1, $2 + 1, $3) \
                      ON CONFLICT (machine) DO UPDATE SET sequence = excluded.sequence, value = excluded.value \
                      WHERE counts.sequence = excluded.sequence - 1";

#[tokio::test]
async fn counters_are_exact_over_the_whole_range_of_64_bits_and_totals_to_30_digits() {
    let ground = Ground::new().await;
    sqlx::raw_sql("CREATE TABLE totals (a numeric(30), b numeric(20, 5))").execute(&ground.pool).await.unwrap();
    let mut transaction = ground.begin().await;
    let values = vec![decimal("123456789012345678901234567890"), decimal("-123456789012345.00001")];
    transaction.execute(vec![row("INSERT INTO totals VALUES ($1, $2)", values.clone())]).await.unwrap();
    assert_eq!(transaction.query("SELECT a, b FROM totals", vec![]).await.unwrap().rows, [values]);
    let most = Array::Decimals(vec![u64::MAX.to_string(), "0".to_owned(), "9007199254740993".to_owned()]);
    let machines = Array::Ints(vec![1, 2, 3]);
    let sql = "INSERT INTO counts (machine, sequence, value) VALUES ($1, 1, $2)";
    transaction.execute(vec![columns(sql, vec![machines, most])]).await.unwrap();
    let big = columns(sql, vec![Array::Ints(vec![4, 5]), Array::Ints(vec![i64::MAX, (1 << 53) + 1])]);
    transaction.execute(vec![big]).await.unwrap();
    let answer = transaction.query("SELECT value FROM counts ORDER BY machine", vec![]).await.unwrap();
    let found: Vec<Value> = answer.rows.concat();
    let wanted =
        ["18446744073709551615", "0", "9007199254740993", "9223372036854775807", "9007199254740993"].map(decimal);
    assert_eq!(found, wanted);
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn an_upsert_over_columns_moves_only_the_rows_whose_sequence_matches() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin().await;
    let batch = |sequences: Vec<i64>, values: Vec<i64>| {
        columns(UPSERT, vec![Array::Ints(vec![1, 2, 3]), Array::Ints(sequences), Array::Ints(values)])
    };
    let done =
        transaction.execute(vec![batch(vec![0, 0, 0], vec![10, 20, 30]), batch(vec![1, 5, 1], vec![11, 21, 31])]);
    assert_eq!(done.await.unwrap(), [3, 2]);
    let answer = transaction.query("SELECT sequence, value FROM counts ORDER BY machine", vec![]).await.unwrap();
    let expected = [(2, "11"), (1, "20"), (2, "31")].map(|(s, v)| vec![Value::Int(s), decimal(v)]);
    assert_eq!(answer.rows, expected);
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn ten_thousand_rows_cost_as_many_round_trips_as_ten() {
    let ground = Ground::new().await;
    sqlx::raw_sql("ALTER SYSTEM SET log_statement = 'all'").execute(&ground.pool).await.unwrap();
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&ground.pool).await.unwrap();
    let mut messages = Vec::new();
    for (first, rows) in [(0, 10), (100, 10), (1_000, 10_000)] {
        let mut transaction = ground.begin().await;
        let before = logged(&ground);
        let machines: Vec<i64> = (first..first + rows).collect();
        let zeros = vec![0; machines.len()];
        let work = columns(UPSERT, vec![Array::Ints(machines.clone()), Array::Ints(zeros), Array::Ints(machines)]);
        let affected = transaction.execute(vec![work]).await.unwrap();
        assert_eq!(affected, [u64::try_from(rows).unwrap()]);
        transaction.commit().await.unwrap();
        messages.push(logged(&ground) - before);
    }
    assert_eq!(messages[1], 2, "one for the batch, one for the fence and the COMMIT: {messages:?}");
    assert_eq!(messages[2], messages[1], "{messages:?}");
}

/// Messages that the server has logged: each is one of the client's.
fn logged(ground: &Ground) -> usize {
    let log = std::fs::read_to_string(ground.server.path().join("log")).unwrap();
    log.lines().filter(|line| line.contains("LOG:  execute") || line.contains("LOG:  statement: ")).count()
}

#[tokio::test]
async fn what_cannot_run_over_arrays_runs_row_by_row_with_the_same_counts() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin().await;
    let machines = Array::Ints(vec![1, 2, 2, 9]);
    let inserted =
        columns("INSERT INTO counts (machine, sequence, value) VALUES ($1, 1, 0)", vec![Array::Ints(vec![1, 2])]);
    let moved = columns("UPDATE counts SET value = value + 1 WHERE machine = $1", vec![machines.clone()]);
    let gone = columns("DELETE FROM counts WHERE machine = $1", vec![machines]);
    let done = transaction.execute(vec![inserted, moved]).await.unwrap();
    assert_eq!(done, [2, 3]);
    let answer = transaction.query("SELECT value FROM counts ORDER BY machine", vec![]).await.unwrap();
    assert_eq!(answer.rows.concat(), [decimal("1"), decimal("2")]);
    assert_eq!(transaction.execute(vec![gone]).await.unwrap(), [2]);
}

#[tokio::test]
async fn a_batch_that_meets_a_row_twice_counts_as_row_by_row() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin().await;
    let machines = Array::Ints(vec![1, 2, 1, 1]);
    let sequences = Array::Ints(vec![0, 0, 1, 5]);
    let work = columns(UPSERT, vec![machines, sequences, Array::Ints(vec![10, 20, 11, 99])]);
    assert_eq!(transaction.execute(vec![work]).await.unwrap(), [3]);
    let answer = transaction.query("SELECT value FROM counts ORDER BY machine", vec![]).await.unwrap();
    assert_eq!(answer.rows.concat(), [decimal("11"), decimal("20")]);
}

#[tokio::test]
async fn a_column_may_have_nulls_and_values_of_any_kind() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin().await;
    let notes = ColumnData { values: Array::Texts(vec!["a".into(), "b".into(), "c".into()]), nulls: vec![2, 0] };
    let machines = ColumnData { values: Array::Ints(vec![1, 2, 3]), nulls: vec![] };
    let values = Array::Values(vec![Value::Int(5), decimal("6"), decimal("18446744073709551615")]);
    let values = ColumnData { values, nulls: vec![] };
    let times = ColumnData { values: Array::Timestamps(vec![0, 1_000, -1_000]), nulls: vec![] };
    let sql = "INSERT INTO counts (machine, sequence, note, value, at) VALUES ($1, 1, $2, $3, $4)".to_owned();
    let work = Statement { sql, params: Params::Columns(vec![machines, notes, values, times]) };
    assert_eq!(transaction.execute(vec![work]).await.unwrap(), [3]);
    let answer = transaction.query("SELECT note, value, at FROM counts ORDER BY machine", vec![]).await.unwrap();
    let expected = [
        vec![Value::Null, decimal("5"), Value::Timestamp(0)],
        vec![text("b"), decimal("6"), Value::Timestamp(1_000)],
        vec![Value::Null, decimal("18446744073709551615"), Value::Timestamp(-1_000)],
    ];
    assert_eq!(answer.rows, expected);
}

#[tokio::test]
async fn every_kind_of_value_comes_back_as_it_was_sent() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin().await;
    let sent = vec![
        Value::Boolean(true),
        Value::Int(i64::MIN),
        Value::Real(0.1),
        text("naïve ✓"),
        Value::Bytes(vec![0, 255]),
        decimal("0.10"),
        Value::Timestamp(1_700_000_000_123_456_000),
        Value::Uuid(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210),
        Value::Json("{\"a\": 1}".to_owned()),
        Value::Null,
    ];
    let sql = "SELECT $1::boolean AS a, $2::bigint, $3::float8, $4::text, $5::bytea, $6::numeric, $7::timestamptz, $8::uuid, $9::jsonb, $10::text";
    let answer = transaction.query(sql, sent.clone()).await.unwrap();
    assert_eq!(answer.rows, [sent]);
    let names: Vec<&str> = answer.columns.iter().map(|c| c.type_name.as_str()).collect();
    let wanted = ["bool", "int8", "float8", "text", "bytea", "numeric", "timestamptz", "uuid", "jsonb", "text"];
    assert_eq!(names, wanted);
    assert_eq!(answer.columns[0].name, "a");
}

#[tokio::test]
async fn types_without_a_value_of_their_own_come_with_their_name() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin().await;
    let sql = "SELECT date '2024-02-29', time '12:34:56.5', ARRAY[1, NULL, 3], ARRAY['a\"b'], 'NaN'::numeric, \
               'infinity'::timestamptz, 5::smallint, 1.5::real, name 'n', 'x'::char(3)";
    let answer = transaction.query(sql, vec![]).await.unwrap();
    let other = |name: &str, text: &str| Value::Other(name.to_owned(), text.to_owned());
    let wanted = vec![
        other("date", "2024-02-29"),
        other("time", "12:34:56.500"),
        other("int4[]", "{1,NULL,3}"),
        other("text[]", "{\"a\\\"b\"}"),
        other("numeric", "NaN"),
        other("timestamptz", "infinity"),
        Value::Int(5),
        Value::Real(1.5),
        text("n"),
        text("x  "),
    ];
    assert_eq!(answer.rows, [wanted]);
    let error = transaction.query("SELECT inet '127.0.0.1' AS address", vec![]).await.unwrap_err();
    assert_eq!(sqlstate(&error), "0A000");
    assert!(
        error.to_string().contains("column \"address\": values of type inet cannot be read: write CAST(… AS text)"),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_without_rows_names_its_columns() {
    let ground = Ground::new().await;
    let mut transaction = ground.begin().await;
    let answer = transaction.query("SELECT machine, note FROM counts", vec![]).await.unwrap();
    let names: Vec<&str> = answer.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["machine", "note"]);
    assert!(answer.rows.is_empty());
}

#[tokio::test]
async fn a_parameter_that_does_not_fit_is_an_error_that_names_it() {
    let ground = Ground::new().await;
    let cases = [
        ("SELECT $1::integer", vec![Value::Int(1 << 40)], "$1: 1099511627776 is out of range for int4"),
        ("SELECT $1::integer", vec![text("7")], "$1: a text came where the statement wants int4"),
        ("SELECT 1, $1::bigint", vec![decimal("1.5")], "$1: \"1.5\" is no whole number in the range of int8"),
        ("SELECT $1::numeric", vec![decimal("1e5")], "$1: \"1e5\": an exact number is written as digits"),
        ("SELECT $1::numeric", vec![Value::Real(f64::NAN)], "$1: NaN is no exact number"),
        (
            "SELECT $1::float8",
            vec![Value::Int((1 << 53) + 1)],
            "$1: 9007199254740993 has more digits than a float holds",
        ),
        ("SELECT $1::uuid", vec![text("x")], "$1: \"x\" is no uuid"),
        ("SELECT $1::inet", vec![text("::1")], "send a text and write CAST(CAST($n AS text) AS inet)"),
        ("SELECT $1::integer", vec![], "the statement has 1 parameters and 0 came"),
        ("SELECT 1", vec![Value::Null], "the statement has 0 parameters and 1 came"),
    ];
    for (sql, values, wanted) in cases {
        let error = ground.begin().await.query(sql, values).await.unwrap_err().to_string();
        assert!(error.contains(wanted), "{sql}: {error}");
    }
    let sql = "INSERT INTO counts (machine, sequence, value) VALUES ($1, 1, $2)";
    let cases = [
        (vec![Array::Ints(vec![1]), Array::Ints(vec![1, 2])], "column $2 has 2 positions and $1 has 1"),
        (vec![Array::Ints(vec![1])], "the statement has 2 parameters and 1 came"),
        (
            vec![Array::Texts(vec!["1".into()]), Array::Ints(vec![1])],
            "$1: a column of texts came where the statement wants int4",
        ),
        (vec![Array::Ints(vec![1, 2]), Array::Decimals(vec!["1".into(), "x".into()])], "$2 at position 1: \"x\""),
        (vec![Array::Ints(vec![1 << 40]), Array::Ints(vec![1])], "integer out of range"),
        (vec![], "there is no column"),
    ];
    for (arrays, wanted) in cases {
        let error = ground.begin().await.execute(vec![columns(sql, arrays)]).await.unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[tokio::test]
async fn two_statements_and_statements_that_end_the_transaction_are_refused() {
    let ground = Ground::new().await;
    for sql in
        ["SELECT 1; SELECT 2", "COMMIT", "SET statement_timeout = 0", "SELECT set_config('search_path', 'x', false)"]
    {
        let error = ground.begin().await.query(sql, vec![]).await.unwrap_err();
        assert!(matches!(error, DbError::Denied(_)), "{sql}: {error}");
        let error = ground.begin_with_a_row().await.execute(vec![row(sql, vec![])]).await.unwrap_err();
        assert!(matches!(error, DbError::Denied(_)), "{sql}: {error}");
    }
    assert_eq!(ground.rows().await, 0);
}

#[tokio::test]
async fn a_statement_that_takes_too_long_and_one_that_waits_for_a_lock_time_out() {
    let bounds =
        Bounds { statement: Duration::from_millis(1_500), lock: Duration::from_millis(200), ..Bounds::default() };
    let ground = Ground::with(bounds).await;
    let error = ground.begin().await.query("SELECT pg_sleep(30)", vec![]).await.unwrap_err();
    assert!(matches!(error, DbError::Timeout), "{error}");
    let mut blocker = ground.pool.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE counts").execute(&mut *blocker).await.unwrap();
    let error = ground.begin().await.execute(vec![insert(1, 1)]).await.unwrap_err();
    assert!(matches!(error, DbError::Timeout), "{error}");
    blocker.rollback().await.unwrap();
    ground.begin_with_a_row().await.commit().await.unwrap();
}

#[tokio::test]
async fn what_is_over_a_bound_is_too_large() {
    let bounds = Bounds {
        rows: 10,
        bytes: 10_000,
        runs: 5,
        statements: 2,
        parameters: 3,
        statement_bytes: 100,
        ..Bounds::default()
    };
    let ground = Ground::with(bounds).await;
    let series = "SELECT i FROM generate_series(1, $1::integer) AS s (i)";
    assert_eq!(ground.begin().await.query(series, vec![Value::Int(10)]).await.unwrap().rows.len(), 10);
    let too_large = |answer: Result<(), DbError>| match answer {
        Err(DbError::TooLarge(bound)) => bound,
        other => panic!("{other:?}"),
    };
    assert_eq!(too_large(ground.begin().await.query(series, vec![Value::Int(11)]).await.map(drop)), 10);
    assert_eq!(too_large(ground.begin().await.query("SELECT repeat('x', 20000)", vec![]).await.map(drop)), 10_000);
    assert_eq!(
        too_large(ground.begin().await.query("SELECT $1::text", vec![text(&"x".repeat(20_000))]).await.map(drop)),
        10_000
    );
    let long = format!("SELECT '{}'", "x".repeat(100));
    assert_eq!(too_large(ground.begin().await.query(&long, vec![]).await.map(drop)), 100);
    assert_eq!(too_large(ground.begin().await.query("SELECT $4::text", vec![]).await.map(drop)), 3);
    let many = vec![insert(1, 1), insert(2, 1), insert(3, 1)];
    assert_eq!(too_large(ground.begin().await.execute(many).await.map(drop)), 2);
    let runs = columns("INSERT INTO counts (machine) VALUES ($1)", vec![Array::Ints(vec![0; 6])]);
    assert_eq!(too_large(ground.begin().await.execute(vec![runs]).await.map(drop)), 5);
    ground.begin_with_a_row().await.commit().await.unwrap();
}

#[tokio::test]
async fn a_statement_over_a_table_that_was_changed_works_again() {
    let ground = Ground::new().await;
    let read = async || ground.begin().await.query("SELECT * FROM counts", vec![]).await;
    assert_eq!(read().await.unwrap().columns.len(), 5);
    sqlx::raw_sql("ALTER TABLE counts ADD COLUMN more text").execute(&ground.pool).await.unwrap();
    // Each connection that was open finds out once, with an error that is answered by beginning again.
    let mut tries = 0;
    let columns = loop {
        match read().await {
            Ok(answer) => break answer.columns.len(),
            Err(error) => assert_eq!(sqlstate(&error), "0A000"),
        }
        tries += 1;
        assert!(tries < 8, "every connection fails again and again");
    };
    assert_eq!(columns, 6);
}
