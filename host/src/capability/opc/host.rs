//! The WIT side of OPC UA.

use super::convert;
use crate::capability::GuestState;
use crate::capability::bindings::imports::plant::opc::opc::{self as wit, Error, Host};
use crate::opc::DataType;

type Answer<T> = wasmtime::Result<Result<T, Error>>;

impl Host for GuestState {
    async fn resolve(&mut self, connection: String, nodes: Vec<String>) -> Answer<Vec<Result<u32, Error>>> {
        if self.held.check().is_err() {
            return Ok(Err(Error::LeaseLost));
        }
        if let Err(sentence) = self.opc.grant.check(&connection) {
            return Ok(Err(Error::Denied(sentence)));
        }
        let resolved = self.opc.connections.resolve(&connection, nodes);
        Ok(match resolved {
            Ok(items) => Ok(items.into_iter().map(|item| item.map_err(Error::from)).collect()),
            Err(error) => Err(error.into()),
        })
    }

    async fn read(&mut self, items: Vec<u32>) -> Answer<Vec<wit::Sample>> {
        if self.held.check().is_err() {
            return Ok(Err(Error::LeaseLost));
        }
        Ok(self.opc.connections.read(&items).await.map(convert::samples).map_err(Error::from))
    }

    async fn subscribe(&mut self, items: Vec<u32>, how: wit::Monitoring) -> Answer<()> {
        if self.held.check().is_err() {
            return Ok(Err(Error::LeaseLost));
        }
        if !self.opc.takes_samples {
            let sentence = "this role exports no plant:opc/samples, so nobody would take what it subscribes to: export the handler";
            return Ok(Err(Error::Other(sentence.to_owned())));
        }
        Ok(self.opc.connections.subscribe(&items, how.into()).map_err(Error::from))
    }

    async fn data_types(&mut self, items: Vec<u32>) -> Answer<Vec<Option<String>>> {
        if self.held.check().is_err() {
            return Ok(Err(Error::LeaseLost));
        }
        let named =
            |types: Vec<Option<DataType>>| types.into_iter().map(|found| found.map(|t| t.to_string())).collect();
        Ok(self.opc.connections.data_types(&items).map(named).map_err(Error::from))
    }
}
