//! The WIT side of the metrics.

use crate::capability::GuestState;
use crate::capability::bindings::imports::plant::metrics::metrics::Host;

impl Host for GuestState {
    async fn add(&mut self, name: String, by: u64, labels: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.held.check()?;
        self.metrics.add(&name, by, labels);
        Ok(())
    }

    async fn set(&mut self, name: String, to: f64, labels: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.held.check()?;
        self.metrics.set(&name, to, labels);
        Ok(())
    }

    async fn observe(&mut self, name: String, value: f64, labels: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.held.check()?;
        self.metrics.observe(&name, value, labels);
        Ok(())
    }
}
