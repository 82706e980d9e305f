//! The lease store of a plant on one SQLite file: one process, and an epoch for each instance all the same.

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use host::config::Store;
    use host::identity::{BootId, Holder, RoleKey};
    use host::lease::postgres::Me;
    use host::lease::single::SingleSqlite;
    use host::lease::{Acquired, Cause, Grant, LeaseError, LeaseStore};
    use host::store::{self, Pool};
    use sqlx::SqlitePool;

    async fn file() -> (tempfile::TempDir, SqlitePool) {
        let directory = tempfile::tempdir().unwrap();
        let config = Store::Sqlite { path: directory.path().join("plant.db") };
        store::migrate(&config).await.unwrap();
        match Pool::connect(&config).await.unwrap() {
            Pool::Sqlite(pool) => (directory, pool),
            Pool::Postgres(_) => unreachable!(),
        }
    }

    fn node(name: &str, directory: &Path, pool: &SqlitePool) -> SingleSqlite {
        let holder = Holder { node: name.parse().unwrap(), boot: BootId::random() };
        let me = Me { holder, address: "http://127.0.0.1:8080".to_owned(), modules: BTreeMap::new(), gone: Vec::new() };
        SingleSqlite::new(me, &directory.join("plant.db"), pool.clone())
    }

    fn reader() -> RoleKey {
        RoleKey { role: "reader".parse().unwrap(), partition: String::new() }
    }

    fn granted(answer: Result<Acquired, LeaseError>) -> Grant {
        match answer.unwrap() {
            Acquired::Granted(grant) => grant,
            Acquired::Taken(seen) => panic!("{seen:?}"),
        }
    }

    async fn fence(pool: &SqlitePool) -> (i64, Option<String>) {
        sqlx::query_as("SELECT epoch, node FROM plant_fences").fetch_one(pool).await.unwrap()
    }

    #[tokio::test]
    async fn every_instance_has_an_epoch_of_its_own_across_restarts_and_releases_and_processes() {
        let (directory, pool) = file().await;
        let first = node("a", directory.path(), &pool);
        let mut epochs = Vec::new();
        epochs.push(granted(first.acquire(&reader(), None).await).epoch);
        epochs.push(granted(first.restart(&reader(), epochs[0]).await).epoch);
        first.release(&reader(), epochs[1], true, Cause::Release).await.unwrap();
        epochs.push(granted(first.acquire(&reader(), None).await).epoch);
        epochs.push(granted(node("a", directory.path(), &pool).acquire(&reader(), None).await).epoch);
        assert!(epochs.is_sorted_by(|one, next| one < next), "{epochs:?}");
        assert_eq!(fence(&pool).await, (i64::try_from(epochs[3].number).unwrap(), Some("a".to_owned())));
    }

    #[tokio::test]
    async fn a_release_raises_the_epoch_and_one_that_comes_late_frees_nothing() {
        let (directory, pool) = file().await;
        let a = node("a", directory.path(), &pool);
        let first = granted(a.acquire(&reader(), None).await);
        a.release(&reader(), first.epoch, true, Cause::Release).await.unwrap();
        assert_eq!(fence(&pool).await, (2, None));
        let second = granted(a.acquire(&reader(), None).await);
        a.release(&reader(), first.epoch, true, Cause::Release).await.unwrap();
        assert_eq!(fence(&pool).await, (i64::try_from(second.epoch.number).unwrap(), Some("a".to_owned())));
    }

    #[tokio::test]
    async fn it_never_expires_and_nothing_is_held_back() {
        let (directory, pool) = file().await;
        let a = node("a", directory.path(), &pool);
        assert_eq!(a.lease(), None);
        assert!(granted(a.acquire(&reader(), None).await).hold_back.is_zero());
    }
}
