//! The subcommands, one file each.

pub mod check;
pub mod status;

/// The configuration, a module or the database's schema is not usable: nothing was started.
pub const EXIT_CONFIGURATION: u8 = 64;
