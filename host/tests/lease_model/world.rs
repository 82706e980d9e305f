//! What the model keeps of a plant: one role, its two rows, a few boots, and the messages between them.
//!
//! Time is counted in ticks; a lease is four. Nothing makes a process or a message hurry: a step that is possible may be taken at once or
//! never, so that a frozen process and a late message are the same as everywhere else.

use std::time::Duration;

use host::clock::BootInstant;
use host::lease::decisions::Mark;

pub const LEASE: i8 = 4;
/// The same, as a process counts it.
pub const LEASE_TIME: Option<Duration> = Some(Duration::from_secs(4));
pub const BOOTS: usize = 3;
/// Long ago.
pub const PAST: i8 = i8::MIN / 2;

const TICK: u64 = 1_000_000_000;

/// A tick on the clock of a process.
pub fn at(tick: i8) -> BootInstant {
    BootInstant::from_nanos(u64::try_from(tick).unwrap_or(0) * TICK)
}

/// The tick of a moment on the clock of a process.
pub fn tick(moment: BootInstant) -> i8 {
    i8::try_from(moment.as_nanos() / TICK).unwrap_or(i8::MAX)
}

/// The rules of the protocol that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A holder is a boot, not a name.
    BootIsIdentity,
    /// Every start of an instance raises the epoch.
    StartRaisesEpoch,
    /// A release frees only the tenure that it was sent for.
    ReleaseMatchesEpoch,
    /// A release with an unfenceable effect on its way holds effects back.
    UnansweredIsUnclean,
    /// Later holders inherit a hold-back.
    HoldBackInherited,
    /// A hold-back is a whole lease from the takeover, not from the last renewal.
    HoldBackFromTakeover,
    /// A missing row is an unknown holder.
    MissingIsUnknown,
    /// Epochs grow although the lease row was deleted.
    EpochOutlivesRow,
    /// The fence asks whether the lease has run out.
    FenceAsksLease,
    /// Epochs are ordered by the database's timeline first.
    TimelineInEpoch,
    /// On a new timeline hold-backs start again.
    HoldBackOnNewHistory,
    /// The self-fence counts from the sending of a renewal.
    CountFromSending,
    /// A lease seen unchanged for a whole lease may be taken.
    UnchangedIsExpired,
    /// That it is unchanged is compared by the database, as it hands the lease over.
    ComparedUnderLock,
    /// A node that takes its own lease again is held back like another.
    OwnIsHeldBack,
    /// An epoch is above all that whoever asks has seen.
    AboveAllSeen,
    /// A proved death is no clean end: the process may only have lost its session.
    DeathIsUnclean,
}

/// All rules but those that are off.
#[derive(Debug, Clone, Copy)]
pub struct Rules(pub Option<Rule>);

impl Rules {
    pub fn on(self, rule: Rule) -> bool {
        self.0 != Some(rule)
    }
}

/// What must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Two tenures were given one epoch.
    EpochTwice,
    /// An unfenceable effect of an earlier tenure came after one of a later tenure.
    OldEffect,
    /// An effect was begun by whoever the database did not hold for the holder any more.
    EffectPastLease,
    /// A commit passed the fence although the lease was not its holder's any more.
    CommitPastLease,
    /// A commit of an earlier tenure came after one of a later tenure.
    OldCommit,
    /// More was booked than was made.
    CountedTwice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch {
    pub timeline: u8,
    pub number: u8,
}

impl From<Epoch> for host::identity::Epoch {
    fn from(Epoch { timeline, number }: Epoch) -> Self {
        Self { timeline: timeline.into(), number: number.into() }
    }
}

/// The lease row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    pub holder: Option<u8>,
    pub epoch: u8,
    pub renewed: i8,
    pub expires: i8,
}

/// What the database keeps: the lease, the fence, and what roles have committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Database {
    pub timeline: u8,
    pub row: Option<Row>,
    pub fence: Epoch,
    pub boot: Option<u8>,
    pub effects_from: i8,
    pub base: u8,
    pub booked: u8,
    pub committed_by: u8,
}

/// A request on its way, or its answer on the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Message<Q, A> {
    #[default]
    None,
    Sent(Q),
    /// Sent, and nobody waits for the answer any more.
    Abandoned(Q),
    Answered(Q, A),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Renewal {
    pub sent: i8,
    pub epoch: Epoch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It looked free.
    Free,
    /// It was seen with this epoch and renewal for a whole lease.
    Unchanged(Epoch, i8),
    /// A new instance of the tenure at this epoch.
    Restart(Epoch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Asking {
    pub sent: i8,
    pub why: Why,
    pub at_least: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Granted {
    pub epoch: Epoch,
    pub tenure: u8,
    pub hold_back: i8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commit {
    pub epoch: Epoch,
    pub tenure: u8,
    pub from: u8,
    pub to: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Release {
    pub epoch: Epoch,
    pub clean: bool,
}

/// An instance and the lease that it runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tenure {
    pub number: u8,
    pub epoch: Epoch,
    pub deadline: i8,
    pub effects_from: i8,
    /// The state that it has read.
    pub base: Option<u8>,
}

/// One boot of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Boot {
    pub alive: bool,
    pub tenure: Option<Tenure>,
    pub renewal: Message<Renewal, bool>,
    pub asking: Message<Asking, Option<Granted>>,
    pub commit: Message<Commit, bool>,
    pub release: Option<Release>,
    /// The tenure that an effect was checked for and that has not come out yet.
    pub effect: Option<u8>,
    /// The same, of an earlier tenure.
    pub late_effect: Option<u8>,
    /// The highest epoch that it was granted.
    pub known: u8,
    /// The lease as it was seen last, and since when.
    pub seen: Option<(Epoch, i8, i8)>,
    /// Its session has ended, and with it the lock that shows that it lives.
    pub unlocked: bool,
}

/// How often each fault may still happen, and what the roles do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Plan {
    pub boots: u8,
    /// Boots 0 and 1 have one name.
    pub twins: bool,
    pub last_tick: i8,
    pub highest_epoch: u8,
    /// How much the machine makes.
    pub pieces: u8,
    pub effects: bool,
    /// A process may freeze between an effect's check and its sending.
    pub effects_take_time: bool,
    pub lost_answers: bool,
    pub no_renewals: bool,
    /// Who does not hold the lease looks at it.
    pub watched: bool,
    /// Who does not hold the lease waits for the holder's lock.
    pub deaths: bool,
    /// How often a session ends whose process goes on.
    pub sessions: u8,
    pub crashes: u8,
    pub traps: u8,
    pub releases: u8,
    pub deletions: u8,
    /// Deletions of both rows.
    pub wipes: u8,
    pub fail_overs: u8,
    /// The database's clock steps once by so much; at the fail-over, if there is one.
    pub clock_step: i8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct World {
    pub now: i8,
    pub clock: i8,
    pub database: Database,
    pub replica: Option<Database>,
    pub boots: [Boot; BOOTS],
    /// What may still happen.
    pub left: Plan,
    pub made: u8,
    pub tenures: u8,
    pub effect_of: u8,
    /// Somebody or something has changed the database behind the protocol's back: what it says of leases proves nothing.
    pub tampered: bool,
    /// Bit n: the epoch number n was issued, for each timeline.
    pub issued: [u16; 2],
    /// Bit n: boot n was taken for dead.
    pub dead: u8,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let database = Database {
            timeline: 0,
            row: Some(Row { holder: None, epoch: 0, renewed: 0, expires: 0 }),
            fence: Epoch::default(),
            boot: None,
            effects_from: PAST,
            base: 0,
            booked: 0,
            committed_by: 0,
        };
        let mut boots = [Boot::default(); BOOTS];
        boots.iter_mut().take(usize::from(plan.boots)).for_each(|boot| boot.alive = true);
        let (made, tenures, effect_of) = (0, 0, 0);
        World {
            now: 0,
            clock: 0,
            database,
            replica: None,
            boots,
            left: plan,
            made,
            tenures,
            effect_of,
            tampered: false,
            issued: [0; 2],
            dead: 0,
        }
    }

    /// The database's clock.
    pub fn database_now(&self) -> i8 {
        self.now + self.clock
    }

    /// Whether the database holds this boot for the holder.
    pub fn is_holder(&self, boot: u8) -> bool {
        self.database.row.is_some_and(|row| row.holder == Some(boot) && row.expires > self.database_now())
    }

    /// Whether this boot was taken for dead.
    pub fn is_dead(&self, boot: u8) -> bool {
        self.dead & (1 << boot) != 0
    }

    pub fn same_name(&self, one: u8, other: u8) -> bool {
        one == other || (self.left.twins && one < 2 && other < 2)
    }
}

/// What a boot has seen of the lease.
pub fn mark((epoch, renewed): (Epoch, i8)) -> Mark {
    Mark { epoch: epoch.into(), renewed_at_us: renewed.into() }
}
