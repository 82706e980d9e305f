//! Opening sessions of PostgreSQL: which of the plant's servers takes writes, what every session is told, and what a person reads
//! when it does not work.

use std::str::FromStr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Row};
use tokio::time::timeout;

use super::Bounds;
use super::error::StoreError;

/// How long a server may take to open a session.
const CONNECT: Duration = Duration::from_secs(3);
/// The oldest server whose features are relied on.
const OLDEST: i32 = 130_000;

/// A session on the server that takes writes.
#[derive(Debug)]
pub(crate) struct Session {
    /// The connection.
    pub(crate) connection: PgConnection,
    /// The schema that holds the plant's functions, quoted; `None` before the first migration.
    pub(crate) schema: Option<String>,
}

/// Connection options from `plant.toml`'s URLs, with the timeouts of `bounds`.
pub(crate) fn options(urls: &[String], bounds: &Bounds) -> Result<Vec<PgConnectOptions>, StoreError> {
    if urls.is_empty() {
        return Err(StoreError::Configuration("[store] names no PostgreSQL server: give `url` or `urls`".to_owned()));
    }
    urls.iter().map(|url| parse(url).map(|options| with_timeouts(options, bounds))).collect()
}

/// A URL as it stands, without any of our timeouts.
pub(crate) fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    // The URL itself is not repeated: it may hold a password.
    let wanted = "write postgres://USER@HOST:PORT/DATABASE";
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        let scheme = url.split("://").next().filter(|_| url.contains("://")).unwrap_or("no scheme");
        return Err(StoreError::Configuration(format!("[store] url begins with {scheme:?}: {wanted}")));
    }
    let options = PgConnectOptions::from_str(url);
    let options =
        options.map_err(|e| StoreError::Configuration(format!("[store] url cannot be read ({e}): {wanted}")))?;
    Ok(options.application_name("plant-host").disable_statement_logging())
}

fn with_timeouts(options: PgConnectOptions, bounds: &Bounds) -> PgConnectOptions {
    let millis = |d: Duration| d.as_millis().max(1).to_string();
    // A box that lost its power says no goodbye: the server must notice by itself, or its session keeps its locks.
    options.options([
        ("statement_timeout", millis(bounds.statement)),
        ("lock_timeout", millis(bounds.lock)),
        ("idle_in_transaction_session_timeout", millis(bounds.idle)),
        // Statements are read by the rules of standard strings before they are sent.
        ("standard_conforming_strings", "on".to_owned()),
        ("tcp_keepalives_idle", "2".to_owned()),
        ("tcp_keepalives_interval", "1".to_owned()),
        ("tcp_keepalives_count", "3".to_owned()),
        ("tcp_user_timeout", "5000".to_owned()),
    ])
}

/// Opens a session on whichever server takes writes; all are asked at once.
pub(crate) async fn open(servers: &[PgConnectOptions]) -> Result<(Session, PgConnectOptions), StoreError> {
    let mut asked: FuturesUnordered<_> =
        servers.iter().map(|server| async move { (server, open_one(server).await) }).collect();
    let mut failures = Vec::new();
    while let Some((server, answer)) = asked.next().await {
        match answer {
            Ok(session) => return Ok((session, server.clone())),
            Err(error) => failures.push(error),
        }
    }
    if failures.len() == 1
        && let Some(only) = failures.pop()
    {
        return Err(only);
    }
    let each: Vec<String> = failures.iter().map(ToString::to_string).collect();
    Err(StoreError::Unavailable(format!("no server of [store] urls takes writes: {}", each.join("; "))))
}

async fn open_one(server: &PgConnectOptions) -> Result<Session, StoreError> {
    let opening = async {
        let mut connection = server.connect().await.map_err(|e| explain(server, &e))?;
        let schema = greet(&mut connection, server).await?;
        Ok(Session { connection, schema })
    };
    timeout(CONNECT, opening).await.unwrap_or_else(|_| {
        let at = place(server);
        let seconds = CONNECT.as_secs();
        Err(StoreError::Unavailable(format!(
            "PostgreSQL at {at} did not answer within {seconds} s: see that it runs and that no firewall drops its port"
        )))
    })
}

/// Asks a new session who it is; one round trip.
async fn greet(connection: &mut PgConnection, server: &PgConnectOptions) -> Result<Option<String>, StoreError> {
    // `set_config` over `pg_settings` sets what the server knows and says nothing about what it does not (before version 14).
    const GREETING: &str = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS standby, \
            current_setting('server_version_num')::integer AS version, \
            (SELECT count(set_config(name, '2s', false)) FROM pg_settings WHERE name = 'client_connection_check_interval') AS checks, \
            (SELECT quote_ident(n.nspname) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
              WHERE p.oid = to_regprocedure('plant_fence(text,text,integer,bigint,uuid)')) AS schema";
    let row = sqlx::raw_sql(GREETING).fetch_one(connection).await.map_err(|e| explain(server, &e))?;
    let read = |e: sqlx::Error| explain(server, &e);
    let version: i32 = row.try_get("version").map_err(read)?;
    if version < OLDEST {
        let (at, major) = (place(server), version / 10_000);
        return Err(StoreError::Refused(format!("PostgreSQL at {at} is version {major}: 13 or newer is needed")));
    }
    if row.try_get("standby").map_err(read)? {
        let at = place(server);
        return Err(StoreError::Unavailable(format!(
            "PostgreSQL at {at} takes no writes (a standby, or default_transaction_read_only): name the primary too, in [store] urls"
        )));
    }
    row.try_get("schema").map_err(read)
}

/// `host:port`, or the socket.
pub(crate) fn place(server: &PgConnectOptions) -> String {
    match server.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", server.get_host(), server.get_port()),
    }
}

/// An error of the driver as a sentence that says what to do.
pub(crate) fn explain(server: &PgConnectOptions, error: &sqlx::Error) -> StoreError {
    let at = place(server);
    let user = server.get_username();
    let database = server.get_database().unwrap_or(user);
    match error {
        sqlx::Error::Database(answer) => match answer.code().as_deref() {
            Some("28P01") => StoreError::Refused(format!(
                "PostgreSQL at {at} refused the password of user {user:?}: correct it where [store] takes it from"
            )),
            Some("28000") => StoreError::Refused(format!(
                "PostgreSQL at {at} does not let user {user:?} in ({}): create the login or allow it in pg_hba.conf",
                answer.message()
            )),
            Some("3D000") => StoreError::Refused(format!(
                "there is no database {database:?} at {at}: create it (createdb {database}) or correct [store] url"
            )),
            Some("42501") => StoreError::Refused(format!(
                "user {user:?} may not do this in database {database:?} at {at} ({}): grant it",
                answer.message()
            )),
            Some("53300") => StoreError::Unavailable(format!(
                "PostgreSQL at {at} has no connection left ({}): raise its max_connections",
                answer.message()
            )),
            _ => StoreError::Unavailable(format!("PostgreSQL at {at} answered: {}", answer.message())),
        },
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused => {
            StoreError::Unavailable(format!("nothing listens at {at}: start PostgreSQL there or correct [store] url"))
        }
        sqlx::Error::Io(io) => StoreError::Unavailable(format!(
            "PostgreSQL at {at} cannot be reached ({io}): check [store] url and the network"
        )),
        sqlx::Error::Tls(tls) => StoreError::Refused(format!(
            "the TLS connection to PostgreSQL at {at} failed ({tls}): check sslmode and sslrootcert in [store] url"
        )),
        other => StoreError::Unavailable(format!("PostgreSQL at {at} cannot be used: {other}")),
    }
}
