//! The WIT side of the log.

use super::Level;
use crate::capability::GuestState;
use crate::capability::bindings::imports::plant::log::log::{self as wit, Host};

impl Host for GuestState {
    async fn log(&mut self, level: wit::Level, message: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.held.check()?;
        self.log.line(level.into(), &message, &fields);
        Ok(())
    }
}

impl From<wit::Level> for Level {
    fn from(level: wit::Level) -> Self {
        match level {
            wit::Level::Trace => Self::Trace,
            wit::Level::Debug => Self::Debug,
            wit::Level::Info => Self::Info,
            wit::Level::Warn => Self::Warn,
            wit::Level::Error => Self::Error,
        }
    }
}
