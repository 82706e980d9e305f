//! Puts the bundled roles into the binary: those of `guests/NAME.wasm` that were built. Without any, the host has none and says so.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const BUNDLED: [&str; 5] = ["reader", "floor", "housekeeping", "erp-sync", "uns"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    // The migrations are embedded: a new file among them must rebuild the crate.
    println!("cargo::rerun-if-changed=../migrations");
    let guests = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../guests");
    let mut list = String::from("Roles {\n");
    writeln!(list, "    names: &{BUNDLED:?},")?;
    writeln!(list, "    modules: &[")?;
    let mut missing = false;
    for name in BUNDLED {
        let module = guests.join(format!("{name}.wasm"));
        if module.is_file() {
            let module = module.canonicalize()?;
            println!("cargo::rerun-if-changed={}", module.display());
            writeln!(list, "        Bundled {{ name: {name:?}, wasm: include_bytes!({module:?}) }},")?;
        } else {
            missing = true;
        }
    }
    list.push_str("    ],\n}");
    if missing {
        // A file that is not there can not be watched (cargo would build the host every time): the folder it would appear in can.
        println!("cargo::rerun-if-changed={}", guests.display());
    }
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("bundled.rs"), list)?;
    Ok(())
}
