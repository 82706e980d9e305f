//! The boots of a node's name on this box, and the proof that earlier ones are gone.
//!
//! A node that was started again after a crash is another boot, and has no right to what the one before it held: it might be alive on
//! another box. Here it is known better. A process keeps an exclusive lock on the file of its name as long as it lives, and has written
//! its boots there: whoever gets the lock knows that the processes that wrote before have ended. That holds while the same kernel runs;
//! after a restart of the box, or on a copy of its disk, the file says nothing.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

use crate::identity::{BootId, NodeName};

/// A file that is longer belongs to no node.
const LONGEST: u64 = 64 << 10;
/// So many boots are remembered.
const REMEMBERED: usize = 32;

/// This process's lock on the boots of its name. Without a file (the directory cannot be used, or another process has the lock) nothing
/// is proved and nothing is written down.
#[derive(Debug)]
pub struct Boots {
    gone: Vec<BootId>,
    kernel: String,
    file: Option<Mutex<File>>,
}

impl Boots {
    /// Locks the file of this node of this plant in `directory` and reads it. What goes wrong is no error: the node then waits for its old
    /// lease to run out, like anybody else.
    #[must_use]
    pub fn open(directory: &Path, plant: &str, node: &NodeName) -> Self {
        let none = Self { gone: Vec::new(), kernel: String::new(), file: None };
        let kernel = match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(kernel) => kernel.trim().to_owned(),
            Err(error) => {
                tracing::debug!(%error, "the kernel does not say which boot it is");
                return none;
            }
        };
        let path = directory.join(file_name(plant, node));
        match lock(directory, &path).and_then(|file| file.map(|file| read(file, &kernel)).transpose()) {
            Ok(Some((file, gone))) => Self { gone, kernel, file: Some(Mutex::new(file)) },
            // Another process of this name lives on this box; it is refused, or this one is.
            Ok(None) => none,
            Err(error) => {
                let path = path.display();
                tracing::warn!(
                    "{path} cannot be used ({error}): after a crash this node waits for its old lease; `--state` names another directory"
                );
                none
            }
        }
    }

    /// The boots that are gone.
    #[must_use]
    pub fn gone(&self) -> Vec<BootId> {
        self.gone.clone()
    }

    /// Writes down that this process is this boot from now on: before anybody else hears of it.
    pub fn begin(&self, boot: BootId) {
        let Some(file) = &self.file else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writeln!(file, "{} {}", self.kernel, boot).and_then(|()| file.flush()) {
            tracing::warn!(%error, "this boot was not written down: after a crash this node waits for its old lease");
        }
    }
}

/// Names of plants have all sorts of characters.
fn file_name(plant: &str, node: &NodeName) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    let plant: String = plant.chars().take(100).map(plain).collect();
    PathBuf::from(format!("{plant}.{node}.boots"))
}

/// The locked file; `None` when another process has it.
fn lock(directory: &Path, path: &Path) -> io::Result<Option<File>> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let file = File::options().create(true).read(true).append(true).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The boots that this kernel's processes have written, the newest ones; the file is emptied of all others.
fn read(mut file: File, kernel: &str) -> io::Result<(File, Vec<BootId>)> {
    let mut text = String::new();
    if (&file).take(LONGEST).read_to_string(&mut text).is_err() {
        // Not a text: as good as none.
        text.clear();
    }
    let boot = |line: &str| {
        let (of, boot) = line.split_once(' ')?;
        if of == kernel { boot.parse::<Uuid>().ok().map(BootId) } else { None }
    };
    let mut gone: Vec<BootId> = text.lines().filter_map(boot).collect();
    gone.drain(..gone.len().saturating_sub(REMEMBERED));
    let kept: String = gone.iter().map(|boot| format!("{kernel} {boot}\n")).collect();
    if kept != text {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(kept.as_bytes())?;
    }
    Ok((file, gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> NodeName {
        "a".parse().unwrap()
    }

    #[test]
    fn the_next_process_of_a_name_knows_that_the_one_before_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let boot = BootId::random();
        let first = Boots::open(&state, "plant", &name());
        assert!(first.gone().is_empty());
        first.begin(boot);

        let beside = Boots::open(&state, "plant", &name());
        assert!(beside.gone().is_empty(), "the first lives");
        beside.begin(BootId::random());
        assert!(Boots::open(&state, "plant", &"b".parse().unwrap()).gone().is_empty(), "another name");
        assert!(Boots::open(&state, "other", &name()).gone().is_empty(), "another plant");

        drop(first);
        let second = Boots::open(&state, "plant", &name());
        assert_eq!(second.gone(), [boot]);
    }

    #[test]
    fn what_another_kernel_wrote_proves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plant.a.boots");
        fs::write(&path, format!("another-kernel {}\nno line of ours\n", BootId::random())).unwrap();
        assert!(Boots::open(directory.path(), "plant", &name()).gone().is_empty());
        assert_eq!(fs::read_to_string(path).unwrap(), "");
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let boots = Boots::open(file.path(), "plant", &name());
        boots.begin(BootId::random());
        assert!(boots.gone().is_empty());
    }
}
