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

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn a_test_for_which_this_machine_is_too_small() -> anyhow::Result<()> {
    harness::skipped("this machine has no wings")
}

#[test]
fn a_test_that_is_skipped_is_said_to_be_on_standard_error_and_in_the_list() -> anyhow::Result<()> {
    let directory = tempfile::TempDir::new()?;
    let list = directory.path().join("skipped");
    let mut child = std::process::Command::new(std::env::current_exe()?);
    child.args(["--exact", "--ignored", "a_test_for_which_this_machine_is_too_small"]);
    let said = child.env_remove("NEXTEST_TEST_NAME").env("PLANT_SKIPPED", &list).output()?;
    assert!(said.status.success(), "{said:?}");
    let line = "a_test_for_which_this_machine_is_too_small: this machine has no wings\n";
    assert!(String::from_utf8_lossy(&said.stderr).contains(&format!("SKIPPED {line}")), "{said:?}");
    assert_eq!(std::fs::read_to_string(list)?, line);
    Ok(())
}
