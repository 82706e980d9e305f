//! Whether this box is well enough to take roles.
//!
//! A node that holds a role keeps it: whoever took it over would not be better off for that alone. But a node whose disk is full, or whose
//! clock has just jumped, leaves what is free to others. Leases use no wall clock; what roles write down does.

use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::statvfs;

use crate::clock::{BootInstant, wall_nanos};

/// Less room than this, and certificates, logs and caches can not be written.
const ROOM: u64 = 16 << 20;
/// A clock that is set by so much at once was wrong before, or is now.
const JUMP: Duration = Duration::from_secs(1);
/// For so long after a jump a node is not trusted with the time.
const SETTLE: Duration = Duration::from_secs(10);

/// The box as it was looked at last.
pub(super) struct Fitness {
    directory: PathBuf,
    clocks: Clocks,
}

impl Fitness {
    /// `directory` is where the host writes.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, clocks: Clocks::new(wall_nanos(), BootInstant::now()) }
    }

    /// Looks again; a sentence when the box is not well.
    pub(super) fn look(&mut self) -> Option<String> {
        let jumped = self.clocks.look(wall_nanos(), BootInstant::now());
        self.full().or(jumped)
    }

    fn full(&self) -> Option<String> {
        let disk = statvfs(&self.directory).ok()?;
        let room = disk.f_bavail.saturating_mul(disk.f_frsize);
        let (place, mib) = (self.directory.display(), room >> 20);
        (room < ROOM).then(|| {
            format!("the disk of {place} is full ({mib} MiB left): this node takes no role until there is room")
        })
    }
}

/// The clock that people set, against the one that only runs.
struct Clocks {
    wall: i64,
    boot: BootInstant,
    jumped: Option<(BootInstant, i64)>,
}

impl Clocks {
    fn new(wall: i64, boot: BootInstant) -> Self {
        Self { wall, boot, jumped: None }
    }

    fn look(&mut self, wall: i64, boot: BootInstant) -> Option<String> {
        let passed = i64::try_from(boot.since(self.boot).as_nanos()).unwrap_or(i64::MAX);
        let jump = wall.saturating_sub(self.wall).saturating_sub(passed);
        (self.wall, self.boot) = (wall, boot);
        if u128::from(jump.unsigned_abs()) > JUMP.as_nanos() {
            self.jumped = Some((boot, jump));
        }
        let (_, jump) = self.jumped.filter(|(since, _)| boot.since(*since) < SETTLE)?;
        let (seconds, settle) = (jump / 1_000_000_000, SETTLE.as_secs());
        Some(format!("the clock of this box jumped by {seconds} s: this node takes no role for {settle} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_clock_that_runs_and_a_process_that_slept_are_no_jump() {
        let mut clocks = Clocks::new(100 * SECOND, at(10));
        assert_eq!(clocks.look(101 * SECOND, at(11)), None);
        assert_eq!(clocks.look(3_701 * SECOND, at(3_611)), None);
    }

    #[test]
    fn a_jump_is_said_for_a_while_in_either_direction() {
        let mut clocks = Clocks::new(10_000 * SECOND, at(10));
        let said = clocks.look(10_001 * SECOND - 3_600 * SECOND, at(11));
        assert!(said.unwrap().contains("jumped by -3600 s"));
        assert!(clocks.look(6_410 * SECOND, at(20)).is_some());
        assert_eq!(clocks.look(6_411 * SECOND, at(21)), None);
    }

    #[test]
    fn a_disk_with_room_is_well() {
        assert_eq!(Fitness::new(std::env::temp_dir()).look(), None);
    }
}
