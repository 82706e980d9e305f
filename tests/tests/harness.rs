//! The harness itself.

use harness::Postgres;

#[tokio::test]
async fn a_private_postgresql_starts_dies_and_starts_again_with_its_data() -> anyhow::Result<()> {
    use sqlx::Connection;
    let mut server = Postgres::start()?;
    let mut connection = sqlx::PgConnection::connect(&server.url()).await?;
    sqlx::query("CREATE TABLE kept (n int)").execute(&mut connection).await?;
    server.kill()?;
    server.run()?;
    let mut connection = sqlx::PgConnection::connect(&server.url()).await?;
    let rows = sqlx::query("SELECT n FROM kept").fetch_all(&mut connection).await?;
    assert!(rows.is_empty());
    Ok(())
}
