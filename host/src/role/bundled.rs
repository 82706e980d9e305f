//! The roles that are compiled into this program, so that a plant runs without any further file.

/// A role that is part of this program.
#[derive(Debug, Clone, Copy)]
pub struct Bundled<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its component.
    pub wasm: &'a [u8],
}

/// The bundled roles; empty when the guests were not built before the host was.
pub static BUNDLED: &[Bundled<'static>] = &include!(concat!(env!("OUT_DIR"), "/bundled.rs"));
