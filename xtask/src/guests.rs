//! Building the guests: each crate for `wasm32-wasip2`, with its manifest appended as the custom section `plant:role`.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use wasm_encoder::{CustomSection, Encode, Section};

use crate::{command, layout, toolchain};

/// A guest crate: its name, its folder, and whether it is a role that is compiled into the host.
const GUESTS: [(&str, &str, bool); 2] = [("reader", "guests/reader", true), ("probe", "tests/guests/probe", false)];

/// Builds every guest. Bundled roles land in `guests/`, the tests' own in the target directory, which is answered.
pub fn build_all() -> anyhow::Result<PathBuf> {
    let root = layout::root()?;
    let mut cargo = toolchain::cargo_for_wasm()?;
    let built_in = layout::target()?.join("guests");
    cargo.current_dir(&root).args([
        "build",
        "--quiet",
        "--locked",
        "--profile",
        "guest",
        "--target",
        toolchain::TARGET,
    ]);
    cargo.arg("--target-dir").arg(&built_in);
    for (name, _, _) in GUESTS {
        cargo.args(["--package", name]);
    }
    // Flags that are meant for the host would be taken for the guests too.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
    command::run(&mut cargo)?;

    let for_tests = layout::target()?.join("test-guests");
    fs::create_dir_all(&for_tests)?;
    for (name, folder, bundled) in GUESTS {
        let component = built_in.join(toolchain::TARGET).join("guest").join(format!("{name}.wasm"));
        let to = if bundled { root.join("guests") } else { for_tests.clone() };
        finish(&component, &root.join(folder).join("role.toml"), &to.join(format!("{name}.wasm")))?;
    }
    Ok(for_tests)
}

/// Appends the manifest and writes the module, unless it is there already as it should be: then nothing that embeds it is rebuilt.
fn finish(component: &Path, manifest: &Path, to: &Path) -> anyhow::Result<()> {
    let mut wasm = fs::read(component).with_context(|| format!("cannot read {}", component.display()))?;
    let manifest = fs::read(manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let section = CustomSection { name: Cow::Borrowed("plant:role"), data: Cow::Owned(manifest) };
    wasm.push(section.id());
    section.encode(&mut wasm);
    if fs::read(to).is_ok_and(|there| there == wasm) {
        return Ok(());
    }
    fs::write(to, &wasm).with_context(|| format!("cannot write {}", to.display()))?;
    println!("built {} ({} kB)", to.display(), wasm.len() / 1000);
    Ok(())
}
