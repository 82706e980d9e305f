//! The subcommands, one file each.

pub mod arguments;
pub mod audit;
pub mod check;
pub mod drill;
pub mod init;
pub mod migrate;
pub mod opc;
pub mod place;
pub mod role;
pub mod run;
pub mod simulate;
pub mod status;
pub mod takeovers;

/// What `redundancy.on_demotion = "exit"` ends with: whoever supervises the process is to start it again.
pub const EXIT_DEMOTED: u8 = 75;

/// The configuration, a module or the database's schema is not usable: nothing was started.
pub const EXIT_CONFIGURATION: u8 = 64;
