//! The subcommands, one file each.

pub mod arguments;
pub mod check;
pub mod init;
pub mod migrate;
pub mod opc;
pub mod role;
pub mod run;
pub mod simulate;
pub mod status;

/// The configuration, a module or the database's schema is not usable: nothing was started.
pub const EXIT_CONFIGURATION: u8 = 64;
