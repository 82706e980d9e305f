//! The WIT side of the database.

use wasmtime::component::Resource;

use super::{OpenTransaction, convert};
use crate::capability::GuestState;
use crate::capability::bindings::imports::plant::db::db::{self as wit, Error, Host, HostTransaction};
use crate::clock::wall_nanos;
use crate::store::{DbError, Transaction};

type Answer<T> = wasmtime::Result<Result<T, Error>>;

impl Host for GuestState {}

impl HostTransaction for GuestState {
    async fn begin(&mut self, options: wit::Options) -> Answer<Resource<OpenTransaction>> {
        if let Err(refused) = self.may_begin() {
            return Ok(Err(refused));
        }
        let asked_at = wall_nanos();
        match self.db.database.begin(&self.held, options.into()).await {
            Ok(open) => {
                let now = open.now();
                self.db.compare_clocks(asked_at, now);
                let handle = self.table.push(OpenTransaction { open: Some(open), now })?;
                self.db.open = Some(handle.rep());
                Ok(Ok(handle))
            }
            Err(error) => Ok(Err(self.answered(error))),
        }
    }

    async fn now(&mut self, handle: Resource<OpenTransaction>) -> wasmtime::Result<i64> {
        self.held.check()?;
        Ok(self.table.get(&handle)?.now)
    }

    async fn query(
        &mut self,
        handle: Resource<OpenTransaction>,
        sql: String,
        params: Vec<wit::Value>,
    ) -> Answer<wit::Rowset> {
        if self.held.check().is_err() {
            return Ok(Err(Error::LeaseLost));
        }
        let Some(transaction) = self.table.get_mut(&handle)?.open.as_mut() else { return Ok(Err(closed())) };
        match transaction.query(&sql, convert::values(params)).await {
            Ok(rows) => Ok(Ok(rows.into())),
            Err(error) => Ok(Err(self.answered(error))),
        }
    }

    async fn execute(&mut self, handle: Resource<OpenTransaction>, work: Vec<wit::Statement>) -> Answer<Vec<u64>> {
        if self.held.check().is_err() {
            return Ok(Err(Error::LeaseLost));
        }
        let Some(transaction) = self.table.get_mut(&handle)?.open.as_mut() else { return Ok(Err(closed())) };
        match transaction.execute(convert::statements(work)).await {
            Ok(counts) => Ok(Ok(counts)),
            Err(error) => Ok(Err(self.answered(error))),
        }
    }

    async fn commit(&mut self, handle: Resource<OpenTransaction>) -> Answer<()> {
        let Some(transaction) = self.closed(handle)? else { return Ok(Err(closed())) };
        // Asked after the transaction was taken out: lost means that it is dropped here, and rolled back.
        if self.held.check().is_err() {
            return Ok(Err(Error::LeaseLost));
        }
        match transaction.commit().await {
            Ok(()) => Ok(Ok(())),
            Err(error) => Ok(Err(self.answered(error))),
        }
    }

    async fn drop(&mut self, handle: Resource<OpenTransaction>) -> wasmtime::Result<()> {
        self.closed(handle)?;
        Ok(())
    }
}

impl GuestState {
    fn may_begin(&self) -> Result<(), Error> {
        self.held.check().map_err(|_| Error::LeaseLost)?;
        self.db.grant.check().map_err(Error::Denied)?;
        if self.db.open.is_some() {
            return Err(Error::Other(
                "this instance has a transaction open: commit it or drop it before the next".to_owned(),
            ));
        }
        Ok(())
    }

    fn answered(&mut self, error: DbError) -> Error {
        self.db.note(&error);
        error.into()
    }

    /// Takes the handle away from the guest, and with it the transaction if it is still open.
    fn closed(&mut self, handle: Resource<OpenTransaction>) -> wasmtime::Result<Option<Box<dyn Transaction>>> {
        let rep = handle.rep();
        let transaction = self.table.delete(handle)?;
        if self.db.open == Some(rep) {
            self.db.open = None;
        }
        Ok(transaction.open)
    }
}

fn closed() -> Error {
    Error::Other(
        "this transaction was rolled back when the call that opened it returned: a transaction lives within one call"
            .to_owned(),
    )
}
