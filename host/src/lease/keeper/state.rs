//! What the keeper's parts share: the leases that are held, and what was seen of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Settings, commands};
use crate::clock::{BootInstant, wall_nanos};
use crate::identity::{Holder, RoleKey};
use crate::lease::decisions;
use crate::lease::{Cause, Grant, Held, HeldControl, LeaseError, LeaseEvent, LeaseStore, Placed, Seen, Unfit};

/// What the keeper knows, for status and for whoever waits.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The store's name.
    pub store: &'static str,
    /// How long a lease lasts; `None` for ever.
    pub lease: Option<Duration>,
    /// When a renewal or an acquisition was confirmed last, milliseconds since the Unix epoch; 0 when none was.
    pub last_renew_ms: i64,
    /// Since when this node holds something, or nothing; milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// Roles taken over from another holder.
    pub takeovers: u64,
    /// Leases lost or fenced.
    pub demotions: u64,
    /// What went wrong last with the store, until something goes right.
    pub last_error: Option<String>,
    /// What is held.
    pub held: Vec<Held>,
    /// How many leases this node has taken since it started, by cause.
    pub taken: BTreeMap<&'static str, u64>,
    /// What was seen last of the leases.
    pub seen: BTreeMap<RoleKey, Seen>,
    /// What people want of the roles, where they want anything, and how often they changed hands.
    pub placed: Vec<Placed>,
    /// Whether roles are taken only under a pair's lease.
    pub is_pair: bool,
    /// How many other nodes live.
    pub others: u64,
    /// Why this node may not take part.
    pub refused: Option<String>,
    /// Why this boot is over, so that the node must go on as another.
    pub dead: Option<String>,
}

impl Snapshot {
    /// Whether this lease is held here.
    #[must_use]
    pub fn holds(&self, key: &RoleKey) -> bool {
        self.held.iter().any(|held| held.key() == key)
    }

    /// What people want of a role, once that is known.
    #[must_use]
    pub fn placed(&self, key: &RoleKey) -> Option<&Placed> {
        self.placed.iter().find(|placed| placed.key == *key)
    }
}

/// A lease as it was seen, and since when it has not changed.
#[derive(Debug, Clone)]
pub(super) struct Unchanged {
    pub(super) seen: Seen,
    pub(super) since: BootInstant,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) held: BTreeMap<RoleKey, HeldControl>,
    pub(super) seen: BTreeMap<RoleKey, Unchanged>,
    /// Not competed for until then.
    pub(super) cooling: BTreeMap<RoleKey, BootInstant>,
    /// Being released or restarted: not competed for meanwhile.
    pub(super) busy: BTreeSet<RoleKey>,
}

pub(super) struct Shared {
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) me: Holder,
    pub(super) roles: Vec<RoleKey>,
    pub(super) pair: Option<RoleKey>,
    /// This node is known to the plant: it may compete.
    pub(super) registered: CancellationToken,
    /// It competes no more.
    pub(super) withdrawn: CancellationToken,
    /// A lease was lost or released just now, so that there is something to do.
    pub(super) look_again: Notify,
    /// What this node does not compete for just now.
    pub(super) unfit: watch::Receiver<Unfit>,
    state: Mutex<State>,
    granted: mpsc::Sender<Held>,
    snapshot: watch::Sender<Snapshot>,
    events: broadcast::Sender<LeaseEvent>,
}

impl Shared {
    pub(super) fn new(settings: Settings, granted: mpsc::Sender<Held>) -> Self {
        let Settings { store, me, roles, pair, unfit, events } = settings;
        let now_ms = wall_nanos() / 1_000_000;
        let first = Snapshot {
            store: store.name(),
            lease: store.lease(),
            since_ms: now_ms,
            is_pair: pair.is_some(),
            ..Snapshot::default()
        };
        Self {
            store,
            me,
            roles,
            pair,
            registered: CancellationToken::new(),
            withdrawn: CancellationToken::new(),
            look_again: Notify::new(),
            state: Mutex::default(),
            granted,
            snapshot: watch::Sender::new(first),
            unfit,
            events,
        }
    }

    pub(super) fn snapshot(&self) -> watch::Receiver<Snapshot> {
        self.snapshot.subscribe()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the pair's lease, which is no role's.
    pub(super) fn is_pair(&self, key: &RoleKey) -> bool {
        self.pair.as_ref() == Some(key)
    }

    /// Whether people do not want the role here, as far as this node knows.
    pub(super) fn is_barred(&self, key: &RoleKey) -> bool {
        self.snapshot.borrow().placed(key).is_some_and(|placed| placed.barred.is_some())
    }

    /// Every lease that this node may hold.
    pub(super) fn all_keys(&self) -> Vec<RoleKey> {
        self.roles.iter().chain(&self.pair).cloned().collect()
    }

    /// How often leases are renewed and looked at.
    pub(super) fn period(&self) -> Duration {
        self.store.lease().map_or(Duration::from_secs(3), |lease| lease / 3)
    }

    /// The proof for a lease that was granted; it is ended at its deadline, whatever the store does.
    pub(super) fn hold(self: &Arc<Self>, grant: &Grant) -> Held {
        let effects_from = decisions::effects_from(BootInstant::now(), grant.hold_back);
        let deadline = decisions::deadline(self.store.lease(), grant.sent);
        let (held, control) = Held::new(grant.key.clone(), self.me.clone(), grant.epoch, deadline, effects_from);
        {
            let mut state = self.state();
            state.seen.remove(&grant.key);
            if let Some(old) = state.held.insert(grant.key.clone(), control.clone()) {
                old.end();
            }
        }
        if self.store.lease().is_some() {
            tokio::spawn(fence_in_time(self.clone(), control));
        }
        self.renewed();
        held
    }

    /// Hands a new tenure to the supervisor.
    pub(super) async fn grant(self: &Arc<Self>, grant: Grant) {
        let from = grant.previous.as_ref().map(|holder| holder.node.to_string());
        tracing::info!(role = %grant.key, epoch = %grant.epoch, cause = grant.cause.as_str(), from, "the lease is ours");
        let from_another = grant.previous.as_ref().is_some_and(|previous| previous.node != self.me.node);
        self.snapshot.send_modify(|now| {
            now.takeovers += u64::from(from_another);
            *now.taken.entry(grant.cause.as_str()).or_default() += 1;
        });
        let held = self.hold(&grant);
        let from = grant.previous.map(|holder| holder.node);
        self.tell(LeaseEvent::Taken { key: grant.key.clone(), from, cause: grant.cause, epoch: grant.epoch });
        if self.is_pair(&grant.key) {
            // Nothing runs under it but the roles, which are taken next.
            return;
        }
        if !self.is_active() {
            tracing::warn!(role = %grant.key, epoch = %grant.epoch, "the pair's lease was lost meanwhile: it is given back");
            return commands::release(self, &held, true, Cause::Release, None).await;
        }
        // The receiver has room for every role; where it has none, or is gone, nothing would be done under the lease.
        if let Err(unwanted) = self.granted.try_send(held) {
            tracing::warn!(role = %grant.key, epoch = %grant.epoch, "nobody takes the lease here: it is given back");
            commands::release(self, &unwanted.into_inner(), true, Cause::Release, Some(self.period())).await;
        }
    }

    /// Ends a lease of ours, unless a newer one of the role has taken its place.
    pub(super) fn lose(&self, control: &HeldControl, why: &str) {
        let lost = control.held();
        control.end();
        let mut state = self.state();
        if state.held.get(lost.key()).is_some_and(|now| now.held().epoch() == lost.epoch()) {
            state.held.remove(lost.key());
            drop(state);
            tracing::warn!(role = %lost.key(), epoch = %lost.epoch(), why, "the lease is lost");
            self.snapshot.send_modify(|now| now.demotions += 1);
            self.show();
            self.tell(LeaseEvent::Lost { key: lost.key().clone(), epoch: lost.epoch(), why: why.to_owned() });
            self.look_again.notify_one();
            if self.is_pair(lost.key()) {
                self.end_all("the pair's lease is lost");
            }
        }
    }

    /// The pair's lease was given up: this node is a standby now.
    pub(super) fn given_up(&self) {
        self.snapshot.send_modify(|now| now.demotions += 1);
    }

    /// Whether this node may take roles at all: in a pair only the one that holds the pair's lease may.
    pub(super) fn is_active(&self) -> bool {
        self.pair.as_ref().is_none_or(|pair| self.state().held.contains_key(pair))
    }

    /// Notes what people want, and says of a role that has begun to flap that it stays where it is.
    pub(super) fn placed(&self, placed: &[Placed]) {
        self.snapshot.send_if_modified(|now| {
            let was = |key: &RoleKey| now.placed(key).is_some_and(Placed::is_flapping);
            for Placed { key, .. } in placed.iter().filter(|placed| placed.is_flapping() && !was(&placed.key)) {
                tracing::warn!(role = %key, "it changes hands again and again: it stays where it is until that ends");
                self.tell(LeaseEvent::Flapping { key: key.clone() });
            }
            let news = now.placed != placed;
            if news {
                now.placed = placed.to_vec();
            }
            news
        });
    }

    /// The store has confirmed leases of ours.
    pub(super) fn renewed(&self) {
        self.snapshot.send_modify(|now| now.last_renew_ms = wall_nanos() / 1_000_000);
        self.answered();
        self.show();
    }

    /// The store has answered.
    pub(super) fn answered(&self) {
        self.snapshot.send_if_modified(|now| now.last_error.take().is_some());
    }

    /// The store has written down that this node lives, and knows of so many others.
    pub(super) fn beaten(&self, others: u64) {
        self.snapshot.send_if_modified(|now| std::mem::replace(&mut now.others, others) != others);
    }

    /// The store has failed.
    pub(super) fn failed(&self, error: &LeaseError) {
        let text = error.to_string();
        self.snapshot.send_if_modified(|now| {
            let news = now.last_error.as_deref() != Some(&text);
            if news {
                tracing::warn!(error = %text, "leases cannot be renewed or taken just now");
                now.last_error = Some(text.clone());
            }
            news
        });
    }

    /// Tells whoever listens; never waits.
    fn tell(&self, event: LeaseEvent) {
        // Perhaps nobody does.
        let _ = self.events.send(event);
    }

    /// This node may not take part: everything ends.
    pub(super) fn refuse(&self, sentence: &str) {
        self.tell(LeaseEvent::Refused { sentence: sentence.to_owned() });
        self.withdrawn.cancel();
        self.end_all(sentence);
        self.snapshot.send_modify(|now| now.refused = Some(sentence.to_owned()));
    }

    /// This boot is over: everything ends.
    pub(super) fn die(&self, sentence: &str) {
        self.withdrawn.cancel();
        self.end_all(sentence);
        self.snapshot.send_modify(|now| now.dead = Some(sentence.to_owned()));
    }

    /// Ends whatever is held, without giving it back.
    pub(super) fn end_all(&self, why: &str) {
        let held: Vec<HeldControl> = self.state().held.values().cloned().collect();
        held.iter().for_each(|control| self.lose(control, why));
    }

    /// Brings what is held and seen into the snapshot.
    pub(super) fn show(&self) {
        let (held, seen) = {
            let state = self.state();
            let held: Vec<Held> = state.held.values().map(HeldControl::held).collect();
            let seen = state.seen.iter().map(|(key, unchanged)| (key.clone(), unchanged.seen.clone())).collect();
            (held, seen)
        };
        self.snapshot.send_modify(|now| {
            if now.held.is_empty() != held.is_empty() {
                now.since_ms = wall_nanos() / 1_000_000;
            }
            now.held = held;
            now.seen = seen;
        });
    }
}

/// Ends a lease when its deadline passes. Waits for nothing but time, and looks at the clock that goes on while the box sleeps.
async fn fence_in_time(shared: Arc<Shared>, control: HeldControl) {
    let held = control.held();
    let look_again = shared.period() / 4;
    loop {
        let left = held.remaining();
        if left.is_zero() {
            return shared.lose(&control, "no renewal was confirmed in three quarters of a lease");
        }
        tokio::select! {
            () = held.lost() => return,
            () = tokio::time::sleep(left.min(look_again)) => {}
        }
    }
}
