//! What can happen next: each process and the database take one step at a time, in any order.

use crate::world::{
    Ask, Broken, Commit, Database, Epoch, Fence, Granted, Instance, LANDS_WITHIN, LEASE, Lease, Message, Release,
    Renew, Rules, STOP, Setup, World,
};

/// Who did what.
pub type Step = (usize, &'static str);
type Steps = Vec<(Step, World)>;

/// Every next world, with the step that leads there.
pub fn steps(world: &World, setup: &Setup, rules: &Rules) -> Steps {
    let mut next = Next { world, setup, rules, steps: Vec::new() };
    if world.broken.is_some() {
        return next.steps;
    }
    next.tick();
    for node in 0..setup.nodes {
        next.ask(node);
        next.answer_ask(node);
        next.renew(node);
        next.work(node);
        next.commit(node);
        next.begin_effect(node);
        next.release(node);
    }
    next.effects_happen();
    next.accidents();
    next.steps
}

/// Whoever is no process.
const DATABASE: usize = 9;

struct Next<'w> {
    world: &'w World,
    setup: &'w Setup,
    rules: &'w Rules,
    steps: Steps,
}

impl Next<'_> {
    /// Adds the world that `change` makes of this one.
    fn add(&mut self, who: usize, what: &'static str, change: impl FnOnce(&mut World)) {
        let mut world = *self.world;
        change(&mut world);
        self.steps.push(((who, what), world));
    }

    fn instance(&self, node: usize) -> Option<Instance> {
        self.world.nodes[node].instance
    }

    fn tick(&mut self) {
        let clock = self.world.clock + 1;
        let overdue = self.world.begun.iter().flatten().any(|(_, since)| clock > since + LANDS_WITHIN);
        if clock > self.setup.horizon || overdue {
            return;
        }
        self.add(DATABASE, "the clock ticks", |world| {
            world.clock = clock;
            for node in &mut world.nodes {
                if node.instance.is_some_and(|instance| instance.deadline <= clock) {
                    node.drop_instance();
                }
            }
        });
    }

    fn mine(&self, lease: &Lease, node: usize) -> bool {
        let names = &self.setup.names;
        lease.holder.is_some_and(|holder| if self.rules.boots { holder == node } else { names[holder] == names[node] })
    }

    // ---- acquire ----

    fn ask(&mut self, node: usize) {
        let (clock, me, lease) = (self.world.clock, self.world.nodes[node], self.world.database.lease);
        if me.instance.is_some() || me.ask.is_some() {
            return;
        }
        if let Some(lease) = lease.filter(|lease| lease.holder.is_some())
            && me.seen.is_none_or(|(epoch, renewed, _)| (epoch, renewed) != (lease.epoch, lease.renewed))
        {
            self.add(node, "looks at the lease", |world| {
                world.nodes[node].seen = Some((lease.epoch, lease.renewed, clock));
                world.nodes[node].highest = lease.epoch.max(world.nodes[node].highest);
            });
        }
        let unchanged =
            me.seen.filter(|(_, _, since)| clock >= since + LEASE).map(|(epoch, renewed, _)| (epoch, renewed));
        let worth = lease.is_none_or(|l| l.holder.is_none() || l.expires <= clock || self.mine(&l, node))
            || unchanged.is_some();
        if worth && self.world.database.fence.epoch.1.max(me.highest) < self.setup.epochs {
            let ask = Ask { sent: clock, restart: None, unchanged, at_least: me.highest };
            self.add(node, "asks for the lease", |world| world.nodes[node].ask = Some(Message::Sent(ask)));
        }
    }

    fn answer_ask(&mut self, node: usize) {
        let rules = self.rules;
        match self.world.nodes[node].ask {
            Some(message @ (Message::Sent(ask) | Message::Abandoned(ask))) => {
                let waits = matches!(message, Message::Sent(_));
                if waits && self.setup.lost {
                    self.add(node, "gives up waiting for the lease", |world| {
                        world.nodes[node].ask = Some(Message::Abandoned(ask));
                    });
                }
                let mine = self.world.database.lease.is_some_and(|lease| self.mine(&lease, node));
                self.add(node, "its question for the lease is answered", |world| {
                    let granted = grant(world, rules, node, mine, &ask);
                    world.nodes[node].ask = waits.then_some(Message::Answered(granted));
                });
            }
            Some(Message::Answered(answer)) => {
                if self.setup.lost {
                    self.add(node, "does not get the answer", |world| world.nodes[node].ask = None);
                }
                self.add(node, "hears whether the lease is granted", |world| {
                    world.nodes[node].ask = None;
                    let Some(granted) = answer.filter(|granted| world.clock < granted.sent + STOP) else { return };
                    let (line, number) = granted.epoch;
                    if world.given[usize::from(line)] & (1 << number) != 0 {
                        world.breaks(Broken::EpochTwice);
                    }
                    world.given[usize::from(line)] |= 1 << number;
                    world.nodes[node].highest = number.max(world.nodes[node].highest);
                    world.nodes[node].instance = Some(Instance {
                        epoch: granted.epoch,
                        tenure: granted.tenure,
                        deadline: granted.sent + STOP,
                        effects_from: world.clock + granted.hold_back,
                        baseline: None,
                    });
                });
            }
            None => {}
        }
    }

    // ---- renew ----

    fn renew(&mut self, node: usize) {
        let (clock, rules) = (self.world.clock, self.rules);
        match (self.world.nodes[node].renew, self.instance(node)) {
            (None, Some(instance)) if self.setup.renewals => {
                let renew = Renew { sent: clock, epoch: instance.epoch };
                self.add(node, "sends a renewal", |world| world.nodes[node].renew = Some(Message::Sent(renew)));
            }
            (Some(Message::Sent(renew) | Message::Abandoned(renew)), _) => {
                self.add(node, "its renewal arrives", |world| {
                    let held = holds(&world.database, rules, node, renew.epoch, clock);
                    if let Some(lease) = world.database.lease.as_mut().filter(|_| held) {
                        (lease.renewed, lease.expires) = (clock, clock + LEASE);
                    }
                    world.nodes[node].renew = Some(Message::Answered((renew, held)));
                });
            }
            (Some(Message::Answered((renew, held))), _) => {
                self.add(node, "hears whether its lease is renewed", |world| {
                    let me = &mut world.nodes[node];
                    me.renew = None;
                    let from = if rules.from_sending { renew.sent } else { clock };
                    match &mut me.instance {
                        Some(instance) if instance.epoch == renew.epoch && held => {
                            instance.deadline = instance.deadline.max(from + STOP);
                        }
                        Some(instance) if instance.epoch == renew.epoch => me.drop_instance(),
                        _ => {}
                    }
                });
            }
            (None, _) => {}
        }
    }

    // ---- work and its commits ----

    fn work(&mut self, node: usize) {
        let Some(instance) = self.instance(node) else { return };
        let (made, commit) = (self.world.made, self.world.nodes[node].commit);
        if made < self.setup.units {
            self.add(DATABASE, "the machine makes one", |world| world.made += 1);
        }
        match instance.baseline {
            None if commit.is_none() && self.setup.units > 0 => {
                let baseline = self.world.database.baseline;
                self.add(node, "reads the baseline", |world| {
                    world.nodes[node].update(|instance| instance.baseline = Some(baseline));
                });
            }
            Some(from) if commit.is_none() && from < made => {
                let commit = Commit { epoch: instance.epoch, tenure: instance.tenure, from, to: made };
                self.add(node, "sends COMMIT", |world| {
                    world.nodes[node].commit = Some(Message::Sent(commit));
                });
            }
            _ => {}
        }
        if self.world.restarts > 0 && self.world.nodes[node].ask.is_none() {
            self.restart(node, instance);
        }
    }

    /// After a trap, or a COMMIT whose outcome is unknown: what was sent may still arrive.
    fn restart(&mut self, node: usize, old: Instance) {
        let rules = self.rules;
        self.add(node, "starts its instance anew", |world| {
            world.restarts -= 1;
            let (clock, me) = (world.clock, &mut world.nodes[node]);
            if let Some(Message::Sent(commit)) = me.commit.take() {
                me.stray = Some(commit);
            }
            if rules.restart_raises {
                me.instance = None;
                let ask = Ask { sent: clock, restart: Some(old.epoch), unchanged: None, at_least: me.highest };
                me.ask = Some(Message::Sent(ask));
            } else {
                me.update(|instance| instance.baseline = None);
            }
        });
    }

    fn commit(&mut self, node: usize) {
        let rules = self.rules;
        if let Some(stray) = self.world.nodes[node].stray {
            self.add(node, "COMMIT of its former instance arrives", |world| {
                world.nodes[node].stray = None;
                book(world, rules, node, &stray);
            });
        }
        match self.world.nodes[node].commit {
            Some(Message::Sent(commit) | Message::Abandoned(commit)) => {
                self.add(node, "its COMMIT arrives", |world| {
                    let done = book(world, rules, node, &commit);
                    world.nodes[node].commit = Some(Message::Answered((commit, done)));
                });
            }
            Some(Message::Answered((commit, done))) => {
                self.add(node, "hears of its COMMIT", |world| {
                    let me = &mut world.nodes[node];
                    me.commit = None;
                    let same = me.instance.is_some_and(|instance| instance.tenure == commit.tenure);
                    if same && done {
                        me.update(|instance| instance.baseline = Some(commit.to));
                    } else if same {
                        me.drop_instance();
                    }
                });
            }
            None => {}
        }
    }

    // ---- effects that no transaction covers ----

    fn begin_effect(&mut self, node: usize) {
        let Some(instance) = self.instance(node).filter(|_| self.setup.effects) else { return };
        let begun = self.world.begun.iter().flatten().any(|(tenure, _)| *tenure == instance.tenure);
        let free = self.world.begun.iter().position(Option::is_none);
        if let Some(slot) = free.filter(|_| {
            !begun && self.world.clock >= instance.effects_from && self.world.newest_effect != instance.tenure
        }) {
            self.add(node, "begins an effect", |world| {
                world.begun[slot] = Some((instance.tenure, world.clock));
            });
        }
    }

    fn effects_happen(&mut self) {
        for slot in 0..2 {
            let Some((tenure, _)) = self.world.begun[slot] else { continue };
            self.add(usize::from(tenure), "the effect of the tenure happens", |world| {
                world.begun[slot] = None;
                if tenure < world.newest_effect {
                    world.breaks(Broken::EffectsOvertaken);
                }
                world.newest_effect = tenure.max(world.newest_effect);
            });
        }
    }

    // ---- release ----

    fn release(&mut self, node: usize) {
        let rules = self.rules;
        if let (Some(instance), None) = (self.instance(node), self.world.nodes[node].release)
            && self.world.releases > 0
        {
            let answered = !self.world.begun.iter().flatten().any(|(tenure, _)| *tenure == instance.tenure);
            let release = Release { epoch: instance.epoch, clean: answered || !rules.clean_answered };
            self.add(node, "releases", |world| {
                world.releases -= 1;
                world.nodes[node].drop_instance();
                world.nodes[node].release = Some(release);
            });
        }
        if let Some(release) = self.world.nodes[node].release {
            self.add(node, "its release arrives", |world| {
                world.nodes[node].release = None;
                free(world, rules, node, &release);
            });
        }
    }

    // ---- what befalls the database ----

    fn accidents(&mut self) {
        if self.world.deleted > 0 && self.world.database.lease.is_some() {
            self.add(DATABASE, "somebody deletes the lease", |world| {
                world.deleted -= 1;
                world.database.lease = None;
            });
        }
        if self.world.wiped > 0 && self.world.database.lease.is_some() {
            self.add(DATABASE, "somebody deletes the lease and the fence", |world| {
                world.wiped -= 1;
                world.database.lease = None;
                world.database.fence = Fence::default();
            });
        }
        if self.world.fail_overs > 0 && self.world.replica != Some(self.world.database) {
            self.add(DATABASE, "the replica catches up", |world| world.replica = Some(world.database));
            self.add(DATABASE, "the replica takes the database's place", |world| {
                world.fail_overs -= 1;
                let Some(replica) = world.replica.take() else { return };
                world.database = Database { timeline: replica.timeline + 1, ..replica };
                for node in &mut world.nodes {
                    node.lose_what_is_under_way();
                }
            });
        }
    }
}

impl crate::world::Node {
    fn update(&mut self, change: impl FnOnce(&mut Instance)) {
        if let Some(instance) = &mut self.instance {
            change(instance);
        }
    }

    /// What it has sent stays sent.
    fn drop_instance(&mut self) {
        self.instance = None;
        if let Some(Message::Sent(commit)) = self.commit.take() {
            self.stray = Some(commit);
        }
    }

    /// Sessions end with their server.
    fn lose_what_is_under_way(&mut self) {
        (self.renew, self.commit, self.stray, self.release) = (None, None, None, None);
        if !matches!(self.ask, Some(Message::Answered(_))) {
            self.ask = None;
        }
    }
}

/// Whether the lease is this boot's at this epoch, and runs.
fn holds(database: &Database, rules: &Rules, node: usize, epoch: Epoch, clock: u8) -> bool {
    let here = !rules.timeline || (database.timeline == epoch.0 && database.fence.epoch.0 == epoch.0);
    here && database.lease.is_some_and(|l| l.holder == Some(node) && l.epoch == epoch.1 && l.expires > clock)
}

/// `plant_acquire`.
fn grant(world: &mut World, rules: &Rules, node: usize, mine: bool, ask: &Ask) -> Option<Granted> {
    let (clock, old) = (world.clock, world.database);
    let lease = old.lease.unwrap_or_default();
    let unchanged = ask.unchanged.is_some_and(|seen| !rules.compared || seen == (lease.epoch, lease.renewed));
    let granted = match (ask.restart, old.lease) {
        (Some(epoch), _) => holds(&old, rules, node, epoch, clock),
        (None, None) => true,
        (None, Some(lease)) => lease.holder.is_none() || mine || lease.expires <= clock || unchanged,
    };
    if !granted {
        return None;
    }
    let others = world.nodes.iter().enumerate().any(|(other, n)| other != node && n.instance.is_some());
    // The database can not know of a living holder whose lease it has lost.
    if others && world.undisturbed {
        world.breaks(Broken::TwoAtOnce);
    }
    let known_clean = ask.restart.is_some()
        || old.lease.is_some_and(|lease| lease.holder.is_none()) && old.fence.present
        || old.lease.is_none() && !rules.missing_unknown
        || mine && !rules.own_held_back;
    let known_clean = known_clean && (!rules.timeline || old.fence.epoch.0 == old.timeline);
    let basis = if rules.from_takeover || old.lease.is_none() || mine { clock } else { lease.renewed };
    let own = if known_clean { 0 } else { basis + LEASE };
    let effects_from = if rules.inherited { own.max(old.fence.effects_from) } else { own };
    let seen = if rules.at_least { ask.at_least } else { 0 };
    let number = old.fence.epoch.1.max(lease.epoch).max(seen) + 1;
    let line = if rules.timeline { old.timeline } else { 0 };
    world.tenures += 1;
    world.database.fence = Fence { epoch: (line, number), boot: Some(node), effects_from, present: true };
    world.database.lease = Some(Lease { holder: Some(node), epoch: number, renewed: clock, expires: clock + LEASE });
    let hold_back = effects_from.saturating_sub(clock);
    Some(Granted { sent: ask.sent, epoch: (line, number), tenure: world.tenures, hold_back })
}

/// `plant_fence` and COMMIT; whether it was done.
fn book(world: &mut World, rules: &Rules, node: usize, commit: &Commit) -> bool {
    let (clock, old) = (world.clock, world.database);
    let passed = old.fence.epoch == commit.epoch
        && old.fence.boot == Some(node)
        && (!rules.timeline || old.timeline == commit.epoch.0);
    if !passed || rules.fence_lease && !holds(&old, rules, node, commit.epoch, clock) {
        return false;
    }
    if !old.lease.is_some_and(|lease| lease.holder == Some(node) && lease.expires > clock) {
        world.breaks(Broken::CommitWithoutLease);
    }
    if commit.epoch < world.newest_commit {
        world.breaks(Broken::OlderAfterNewer);
    }
    world.newest_commit = commit.epoch;
    world.database.booked += commit.to - commit.from;
    world.database.baseline = commit.to;
    if world.database.booked != world.database.baseline {
        world.breaks(Broken::Miscounted);
    }
    true
}

/// `plant_release`.
fn free(world: &mut World, rules: &Rules, node: usize, release: &Release) {
    let clock = world.clock;
    let Some(lease) = world.database.lease.filter(|lease| lease.holder == Some(node)) else { return };
    if rules.release_epoch && (lease.epoch, world.database.fence.epoch) != (release.epoch.1, release.epoch) {
        return;
    }
    let fence = &mut world.database.fence;
    fence.epoch.1 = fence.epoch.1.max(lease.epoch) + 1;
    fence.boot = None;
    if !release.clean {
        fence.effects_from = fence.effects_from.max(clock + LEASE);
    }
    world.database.lease = Some(Lease { holder: None, epoch: fence.epoch.1, renewed: lease.renewed, expires: clock });
}
