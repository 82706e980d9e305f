//! What goes wrong around the processes.

use crate::search::{Found, Step};
use crate::world::{Boot, Epoch, Message, World};

pub fn steps(world: &World, found: &mut Found) {
    if world.now < world.left.last_tick {
        found.then(world, Step("time passes", 0), |next| {
            next.now += 1;
            None
        });
    }
    if world.left.pieces > 0 {
        found.then(world, Step("the machine makes a piece", 0), |next| {
            next.left.pieces -= 1;
            next.made += 1;
            None
        });
    }
    if world.left.deletions > 0 && world.database.row.is_some_and(|row| row.holder.is_some()) {
        found.then(world, Step("somebody deletes the lease row", 0), |next| {
            next.left.deletions -= 1;
            next.database.row = None;
            next.tampered = true;
            None
        });
    }
    if world.left.wipes > 0 && world.database.row.is_some_and(|row| row.holder.is_some()) {
        found.then(world, Step("somebody deletes the lease and the fence", 0), |next| {
            next.left.wipes -= 1;
            next.database.row = None;
            next.database.fence = Epoch::default();
            next.database.boot = None;
            next.tampered = true;
            None
        });
    }
    if world.left.crashes > 0 {
        for (at, boot) in world.boots.iter().enumerate().filter(|(_, boot)| boot.alive) {
            found.then(world, Step("crashes", u8::try_from(at).unwrap_or_default()), |next| {
                next.left.crashes -= 1;
                next.boots[at] = crashed(boot);
                None
            });
        }
    }
    if world.left.clock_step != 0 && world.clock == 0 && world.left.fail_overs == 0 && world.replica.is_none() {
        found.then(world, Step("the database's clock steps", 0), |next| {
            next.clock = next.left.clock_step;
            next.tampered = true;
            None
        });
    }
    if world.left.sessions > 0 {
        for (at, _) in world.boots.iter().enumerate().filter(|(_, boot)| boot.alive && !boot.unlocked) {
            found.then(world, Step("loses its session", u8::try_from(at).unwrap_or_default()), |next| {
                next.left.sessions -= 1;
                next.boots[at].unlocked = true;
                None
            });
        }
    }
    fail_over(world, found);
}

/// What it sent goes on without it.
fn crashed(boot: &Boot) -> Boot {
    fn left<Q, A>(message: Message<Q, A>) -> Message<Q, A> {
        match message {
            Message::Sent(request) | Message::Abandoned(request) => Message::Abandoned(request),
            Message::None | Message::Answered(..) => Message::None,
        }
    }
    Boot {
        renewal: left(boot.renewal),
        asking: left(boot.asking),
        commit: left(boot.commit),
        release: boot.release,
        effect: boot.effect,
        late_effect: boot.late_effect,
        ..Boot::default()
    }
}

/// A replica that may be behind is promoted: what it had not received is lost, and with it what was on its way.
fn fail_over(world: &World, found: &mut Found) {
    if world.left.fail_overs == 0 {
        return;
    }
    if world.replica != Some(world.database) {
        found.then(world, Step("the replica catches up", 0), |next| {
            next.replica = Some(next.database);
            None
        });
    }
    let Some(replica) = world.replica else { return };
    found.then(world, Step("the replica is promoted", 0), |next| {
        next.left.fail_overs -= 1;
        next.database = replica;
        next.database.timeline += 1;
        next.clock = next.left.clock_step;
        next.tampered = true;
        for boot in &mut next.boots {
            boot.renewal = unanswered(boot.renewal);
            boot.asking = unanswered(boot.asking);
            boot.commit = unanswered(boot.commit);
            boot.release = None;
        }
        None
    });
}

/// The connection is gone; an answer that had arrived has arrived.
fn unanswered<Q, A>(message: Message<Q, A>) -> Message<Q, A> {
    match message {
        answered @ Message::Answered(..) => answered,
        Message::None | Message::Sent(_) | Message::Abandoned(_) => Message::None,
    }
}
