//! The roles that are compiled into this program, so that a plant runs without any further file.

/// A role that is part of this program.
#[derive(Debug, Clone, Copy)]
pub struct Bundled<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its component.
    pub wasm: &'a [u8],
}

/// The roles that come with the host.
#[derive(Debug, Clone, Copy)]
pub struct Roles<'a> {
    /// Their names, also of those that this program was built without: no other module may quietly go by one of them.
    pub names: &'a [&'a str],
    /// Those that are in this program; none when the guests were not built before the host was.
    pub modules: &'a [Bundled<'a>],
}

/// The roles that come with this host.
pub static BUNDLED: Roles<'static> = include!(concat!(env!("OUT_DIR"), "/bundled.rs"));
