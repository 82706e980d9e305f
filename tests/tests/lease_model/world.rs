//! What there is: a database, processes, and messages between them that arrive late or never.

/// How long a lease lasts, in ticks.
pub const LEASE: u8 = 4;
/// After so long without a confirmed renewal a holder stops: three quarters.
pub const STOP: u8 = 3;
/// An effect that was begun has happened within so long, or never happens. What freezes for longer between its check and its sending is
/// beyond any protocol.
pub const LANDS_WITHIN: u8 = 4;

/// The rules; each can be switched off.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub boots: bool,
    pub from_sending: bool,
    pub compared: bool,
    pub release_epoch: bool,
    pub fence_lease: bool,
    pub restart_raises: bool,
    pub timeline: bool,
    pub at_least: bool,
    pub from_takeover: bool,
    pub inherited: bool,
    pub clean_answered: bool,
    pub missing_unknown: bool,
    pub own_held_back: bool,
}

impl Rules {
    pub const ALL: Self = Self {
        boots: true,
        from_sending: true,
        compared: true,
        release_epoch: true,
        fence_lease: true,
        restart_raises: true,
        timeline: true,
        at_least: true,
        from_takeover: true,
        inherited: true,
        clean_answered: true,
        missing_unknown: true,
        own_held_back: true,
    };
}

/// How large a world is, and what may befall it.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub nodes: usize,
    /// Processes with one number have one name.
    pub names: [u8; 3],
    /// The clock stops there.
    pub horizon: u8,
    /// No more epochs than these are asked for.
    pub epochs: u8,
    /// How much the machine makes.
    pub units: u8,
    /// Whether anybody renews: where nobody does, everybody might as well be frozen.
    pub renewals: bool,
    /// Whether answers are lost.
    pub lost: bool,
    /// Whether there are unfenceable effects.
    pub effects: bool,
    pub restarts: u8,
    pub releases: u8,
    /// How often somebody deletes the lease.
    pub deleted: u8,
    /// How often somebody deletes the lease and the fence.
    pub wiped: u8,
    /// How often a replica that may have missed the last writes takes the database's place.
    pub fail_overs: u8,
}

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A lease was handed over while its holder could still act.
    TwoAtOnce,
    /// One epoch was given to two instances.
    EpochTwice,
    /// An older instance committed after a newer one.
    OlderAfterNewer,
    /// A commit of somebody whose lease had run out or was given back.
    CommitWithoutLease,
    /// The books are not what the baseline says.
    Miscounted,
    /// An effect happened after one of a later tenure.
    EffectsOvertaken,
}

/// An epoch: timeline first.
pub type Epoch = (u8, u8);

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    pub holder: Option<usize>,
    pub epoch: u8,
    pub renewed: u8,
    pub expires: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    pub epoch: Epoch,
    pub boot: Option<usize>,
    pub effects_from: u8,
    /// There is a row at all.
    pub present: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Database {
    pub timeline: u8,
    pub lease: Option<Lease>,
    pub fence: Fence,
    pub baseline: u8,
    pub booked: u8,
}

/// A question on its way to the database, or its answer on the way back.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message<Q, A> {
    Sent(Q),
    /// Whoever asked does not wait any more; the database may still do it.
    Abandoned(Q),
    Answered(A),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ask {
    pub sent: u8,
    /// The caller's own instance is started anew at this epoch.
    pub restart: Option<Epoch>,
    /// The lease as it was seen a whole lease ago.
    pub unchanged: Option<(u8, u8)>,
    pub at_least: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Granted {
    pub sent: u8,
    pub epoch: Epoch,
    pub tenure: u8,
    pub hold_back: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Renew {
    pub sent: u8,
    pub epoch: Epoch,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commit {
    pub epoch: Epoch,
    pub tenure: u8,
    pub from: u8,
    pub to: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Release {
    pub epoch: Epoch,
    pub clean: bool,
}

/// An instance under its lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance {
    pub epoch: Epoch,
    pub tenure: u8,
    pub deadline: u8,
    pub effects_from: u8,
    /// The baseline that it has read.
    pub baseline: Option<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Node {
    pub instance: Option<Instance>,
    pub highest: u8,
    /// Epoch and renewal that were seen, and when first.
    pub seen: Option<(u8, u8, u8)>,
    pub ask: Option<Message<Ask, Option<Granted>>>,
    pub renew: Option<Message<Renew, (Renew, bool)>>,
    pub commit: Option<Message<Commit, (Commit, bool)>>,
    /// A commit of an instance that is gone.
    pub stray: Option<Commit>,
    pub release: Option<Release>,
}

/// An effect that was begun and has not happened.
pub type Begun = (u8, u8);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct World {
    pub clock: u8,
    pub database: Database,
    pub replica: Option<Database>,
    pub nodes: [Node; 3],
    pub made: u8,
    pub tenures: u8,
    pub begun: [Option<Begun>; 2],
    pub newest_effect: u8,
    pub newest_commit: Epoch,
    /// Bit n: an instance was started at epoch n of the timeline.
    pub given: [u32; 2],
    pub restarts: u8,
    pub releases: u8,
    pub deleted: u8,
    pub wiped: u8,
    pub fail_overs: u8,
    /// Nothing befalls the database in this world.
    pub undisturbed: bool,
    pub broken: Option<Broken>,
}

impl World {
    /// The role was given back cleanly, once upon a time.
    pub fn new(setup: &Setup) -> Self {
        let database = Database {
            lease: Some(Lease::default()),
            fence: Fence { present: true, ..Fence::default() },
            ..Database::default()
        };
        Self {
            clock: 0,
            database,
            replica: (setup.fail_overs > 0).then_some(database),
            nodes: [Node::default(); 3],
            made: 0,
            tenures: 0,
            begun: [None; 2],
            newest_effect: 0,
            newest_commit: (0, 0),
            given: [0; 2],
            restarts: setup.restarts,
            releases: setup.releases,
            deleted: setup.deleted,
            wiped: setup.wiped,
            fail_overs: setup.fail_overs,
            undisturbed: setup.deleted + setup.wiped + setup.fail_overs == 0,
            broken: None,
        }
    }

    /// The first thing that breaks is what is told.
    pub fn breaks(&mut self, how: Broken) {
        self.broken = self.broken.or(Some(how));
    }
}
