//! The Rust that builds guests: rustup's own `wasm32-wasip2` where it can be had, else one made of Debian's packages.
//!
//! Debian 12 packages a rustc with the WASI back end and the standard library's source, but not the built standard library for
//! `wasm32-wasip2`. So the packages are unpacked (not installed) into the target directory and the standard library is built
//! once; the linkers come with rustup's toolchain. About 80 s, 140 MB fetched, 560 MB on disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::{command, layout};

/// The target of every guest.
pub const TARGET: &str = "wasm32-wasip2";

/// Debian's rustc that is known to work, and what it is packed with.
const VERSION: &str = "1.96.0+dfsg1-1~deb12u2";
const PINNED: [&str; 4] = ["rustc-web", "libstd-rust-web-1.96", "libstd-rust-web-dev", "rust-web-src"];
const UNPINNED: [&str; 2] = ["libllvm22", "wasi-libc"];

/// A cargo that can build for [`TARGET`], after doing what that takes.
pub fn cargo_for_wasm() -> anyhow::Result<Command> {
    if rustup_has_target()? || rustup_adds_target() {
        return command::cargo();
    }
    let directory = layout::target()?.join("wasm-toolchain");
    // The number counts changes to the steps below.
    let stamp = directory.join(format!(".ready-{VERSION}-1"));
    if !stamp.exists() {
        println!("making a Rust for {TARGET} from Debian's packages in {} (once, about 80 s)", directory.display());
        make(&directory)
            .context("cannot make a Rust for WebAssembly: run `rustup target add wasm32-wasip2` if you can")?;
        fs::write(&stamp, "")?;
    }
    Ok(Command::new(directory.join("bin/cargo-wasm")))
}

fn rustup_has_target() -> anyhow::Result<bool> {
    let libraries = command::output(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]))?;
    Ok(Path::new(libraries.trim()).is_dir())
}

fn rustup_adds_target() -> bool {
    // Where the download is not reachable rustup may try for minutes.
    let limit = Duration::from_secs(60).as_secs().to_string();
    command::succeeds(Command::new("timeout").args([&limit, "rustup", "target", "add", TARGET]))
}

fn make(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    let packages = directory.join("packages");
    fs::create_dir_all(&packages)?;
    fs::create_dir_all(directory.join("bin"))?;
    download(&packages)?;
    unpack(directory, &packages)?;
    fs::remove_dir_all(&packages)?;
    lay_out_sysroot(directory)?;
    write_wrappers(directory)?;
    build_standard_library(directory)
}

fn download(packages: &Path) -> anyhow::Result<()> {
    let fetch = || {
        let mut apt = Command::new("apt-get");
        apt.current_dir(packages).args(["-qq", "download"]);
        apt.args(PINNED.map(|name| format!("{name}={VERSION}"))).args(UNPINNED);
        apt
    };
    if !command::succeeds(&mut fetch()) {
        command::run(Command::new("apt-get").args(["-q", "update"]))?;
        command::run(&mut fetch())?;
    }
    Ok(())
}

fn unpack(directory: &Path, packages: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(packages)? {
        let package = entry?.path();
        let source = package.file_name().is_some_and(|n| n.to_string_lossy().starts_with("rust-web-src"));
        if source {
            // Only the standard library's sources, of all of Rust's.
            let script = "dpkg --fsys-tarfile \"$1\" | tar -x -C \"$2\" --wildcards './usr/src/rustc-*/library/*'";
            command::run(Command::new("sh").args(["-ec", script, "sh"]).arg(&package).arg(directory))?;
        } else {
            command::run(Command::new("dpkg").arg("-x").arg(&package).arg(directory))?;
        }
    }
    Ok(())
}

fn rustlib(directory: &Path) -> PathBuf {
    directory.join("usr/lib/rustlib")
}

/// Where rustup's toolchain keeps `rust-lld` and `wasm-component-ld`.
fn linkers() -> anyhow::Result<PathBuf> {
    let sysroot = command::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin"))
}

/// Puts sources, C library and linkers where rustc and cargo look for them.
fn lay_out_sysroot(directory: &Path) -> anyhow::Result<()> {
    let rustlib = rustlib(directory);
    fs::create_dir_all(rustlib.join("src"))?;
    let source = fs::read_dir(directory.join("usr/src"))?.next().context("Debian's rust-web-src held no sources")??;
    symlink(source.path(), rustlib.join("src/rust"))?;
    let contained = rustlib.join(TARGET).join("lib/self-contained");
    fs::create_dir_all(&contained)?;
    for object in ["libc.a", "crt1-command.o", "crt1-reactor.o"] {
        fs::copy(directory.join("usr/lib/wasm32-wasi").join(object), contained.join(object))?;
    }
    let own = rustlib.join("x86_64-unknown-linux-gnu");
    fs::create_dir_all(&own)?;
    symlink(linkers()?, own.join("bin"))?;
    Ok(())
}

fn write_wrappers(directory: &Path) -> anyhow::Result<()> {
    let at = directory.display();
    let linkers = linkers()?;
    let linkers = linkers.display();
    let rustc = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH=\"{at}/usr/lib/x86_64-linux-gnu${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\" \
         exec \"{at}/usr/bin/rustc\" \"$@\"\n"
    );
    let real_cargo = command::output(Command::new("rustup").args(["which", "cargo"]))?;
    let cargo = format!(
        "#!/bin/sh\nunset RUSTUP_TOOLCHAIN\nPATH=\"{linkers}:{linkers}/gcc-ld:$PATH\" RUSTC=\"{at}/bin/rustc-wasm\" \
         exec \"{}\" \"$@\"\n",
        real_cargo.trim()
    );
    for (name, text) in [("rustc-wasm", rustc), ("cargo-wasm", cargo)] {
        let path = directory.join("bin").join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Builds `std` once and puts it into the sysroot, so that guests build as they do with rustup's toolchain.
fn build_standard_library(directory: &Path) -> anyhow::Result<()> {
    let project = directory.join("standard-library");
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("src/lib.rs"), "")?;
    let manifest = "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
                    [profile.release]\nopt-level = \"s\"\ncodegen-units = 1\npanic = \"abort\"\n\n[workspace]\n";
    fs::write(project.join("Cargo.toml"), manifest)?;
    let mut cargo = Command::new(directory.join("bin/cargo-wasm"));
    cargo.current_dir(&project).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Cembed-bitcode=yes");
    cargo.env("CARGO_TARGET_DIR", project.join("built")).env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.args(["build", "--quiet", "--release", "--target", TARGET, "-Zbuild-std=std,panic_abort"]);
    command::run(&mut cargo)?;
    let libraries = rustlib(directory).join(TARGET).join("lib");
    for entry in fs::read_dir(project.join("built").join(TARGET).join("release/deps"))? {
        let file = entry?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".rlib") && !name.starts_with("libempty") {
            fs::copy(file.path(), libraries.join(name.as_ref()))?;
        }
    }
    fs::remove_dir_all(project)?;
    Ok(())
}
