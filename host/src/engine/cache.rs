//! Compiled modules on disk, by what they were compiled from.
//!
//! A compiled module is native code: whoever can write one here runs code as this process. So the directory is private, each entry
//! names what it was made from and carries the hash of its bytes, and the bytes that are loaded are the very bytes that were checked.
//! An entry that is damaged, cut short or from elsewhere is compiled again and replaced. Several processes may share the directory:
//! an entry appears whole, by renaming, and two that compile the same module at once write the same entry twice.

use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use super::EngineError;

/// The first bytes of an entry; the last of them is the version of this format.
const MAGIC: [u8; 16] = *b"plant compiled\n\x01";
const DIGEST: usize = 32;
/// A draft that is older was left behind by a process that died.
const DRAFT_AGE: Duration = Duration::from_secs(24 * 3600);

/// What an entry was compiled from: the module's bytes, the version of the engine and every setting that its code depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; DIGEST]);

impl Key {
    /// The key of a module for an engine.
    #[must_use]
    pub fn of(wasm: &[u8], engine: &wasmtime::Engine) -> Self {
        let mut settings = IntoSha256(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut settings);
        let mut key = Sha256::new();
        key.update(MAGIC);
        key.update(settings.0.finalize());
        key.update(Sha256::digest(wasm));
        Self(key.finalize().into())
    }
}

/// Wasmtime describes its settings to a `Hasher`; 64 bits of an ordinary one would be too few to trust code by.
struct IntoSha256(Sha256);

impl Hasher for IntoSha256 {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    fn finish(&self) -> u64 {
        0
    }
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The directory of compiled modules.
#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

/// A file in the making; it goes when dropped, unless it was adopted.
#[derive(Debug)]
pub(super) struct Draft(PathBuf);

impl Draft {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It may have been adopted, or never written; a leftover is swept at a later start.
        let _ = fs::remove_file(&self.0);
    }
}

impl Cache {
    pub(super) fn open(directory: &Path) -> Result<Self, EngineError> {
        let shown = directory.display();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|e| {
            EngineError::Cache(format!(
                "the directory {shown} for compiled modules cannot be made ({e}): name another with --cache"
            ))
        })?;
        let seen = fs::metadata(directory).map_err(|e| {
            EngineError::Cache(format!("the directory {shown} for compiled modules cannot be read: {e}"))
        })?;
        if !seen.is_dir() {
            return Err(EngineError::Cache(format!(
                "{shown} is no directory: name one for compiled modules with --cache"
            )));
        }
        let us = rustix::process::geteuid().as_raw();
        if seen.uid() != us {
            return Err(EngineError::Cache(format!(
                "the directory {shown} for compiled modules belongs to user {} and must belong to user {us}, since native code is loaded \
                 from it: name another with --cache",
                seen.uid()
            )));
        }
        if seen.mode() & 0o077 != 0 {
            return Err(EngineError::Cache(format!(
                "the directory {shown} for compiled modules has mode {:04o} and must have 0700, since native code is loaded from it: \
                 run `chmod 700 {shown}`",
                seen.mode() & 0o7777
            )));
        }
        let cache = Self { directory: directory.to_owned() };
        cache.sweep();
        Ok(cache)
    }

    /// The entry for `key`, if there is a good one.
    pub(super) fn load(&self, key: &Key, engine: &wasmtime::Engine) -> Option<Component> {
        let path = self.entry(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => {
                tracing::warn!(file = %path.display(), error = %e, "a compiled module cannot be read and is compiled again");
                return None;
            }
        };
        match load_checked(&bytes, key, engine) {
            Ok(component) => Some(component),
            Err(reason) => {
                tracing::warn!(file = %path.display(), reason, "a compiled module is not usable and is compiled again");
                None
            }
        }
    }

    /// A name for a file that the compiler may write.
    pub(super) fn draft(&self) -> Draft {
        Draft(self.directory.join(format!("{}.draft", uuid::Uuid::new_v4())))
    }

    /// Checks and loads what the compiler wrote, and makes it the entry for `key`.
    pub(super) fn adopt(&self, draft: &Draft, key: &Key, engine: &wasmtime::Engine) -> Result<Component, EngineError> {
        let bytes = fs::read(draft.path())
            .map_err(|e| EngineError::Compile(format!("its compiler left no file {}: {e}", draft.path().display())))?;
        let component = load_checked(&bytes, key, engine)
            .map_err(|reason| EngineError::Compile(format!("what its compiler wrote is not usable: {reason}")))?;
        let path = self.entry(key);
        if let Err(e) = fs::rename(draft.path(), &path) {
            tracing::warn!(file = %path.display(), error = %e, "a compiled module cannot be kept and will be compiled again");
        }
        Ok(component)
    }

    fn entry(&self, key: &Key) -> PathBuf {
        self.directory.join(format!("{}.cwasm", hex(&key.0)))
    }

    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let age = entry.metadata().ok().and_then(|seen| seen.modified().ok()).and_then(|at| at.elapsed().ok());
            if path.extension().is_some_and(|e| e == "draft") && age.is_some_and(|age| age > DRAFT_AGE) {
                // Another process may sweep at the same moment: either may have removed it.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Writes an entry to a new file that only this user can read.
pub(super) fn write(path: &Path, key: &Key, code: &[u8]) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&MAGIC)?;
    file.write_all(&key.0)?;
    file.write_all(&Sha256::digest(code))?;
    file.write_all(code)
}

fn load_checked(entry: &[u8], key: &Key, engine: &wasmtime::Engine) -> Result<Component, String> {
    let rest = entry.strip_prefix(&MAGIC).ok_or("it is no compiled module of this version")?;
    let (made_from, rest) = rest.split_at_checked(DIGEST).ok_or("it is cut short")?;
    if made_from != key.0 {
        return Err("it was compiled from another module, or for other settings".into());
    }
    let (digest, code) = rest.split_at_checked(DIGEST).ok_or("it is cut short")?;
    if Sha256::digest(code).as_slice() != digest {
        return Err("its bytes are damaged".into());
    }
    #[expect(
        unsafe_code,
        reason = "the bytes in memory are those whose hash was checked above, from a directory only this user can write, and were \
                  compiled by this program for these settings"
    )]
    let loaded = unsafe { Component::deserialize(engine, code) };
    loaded.map_err(|e| format!("{e:#}"))
}
