//! Goes through the schedules: all of them breadth-first, as far as they were told to, or some at random.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::world::{Plan, Rules, Violation, World};
use crate::{faults, process};

/// What happened, and at which boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step(pub &'static str, pub u8);

pub type Outcome = Option<Violation>;

/// What can happen next.
#[derive(Default)]
pub struct Found(Vec<(Step, World, Outcome)>);

impl Found {
    pub fn then(&mut self, world: &World, step: Step, change: impl FnOnce(&mut World) -> Outcome) {
        let mut next = *world;
        let outcome = change(&mut next);
        self.0.push((step, next, outcome));
    }
}

fn next(world: &World, rules: Rules) -> Vec<(Step, World, Outcome)> {
    let mut found = Found::default();
    faults::steps(world, &mut found);
    for boot in 0..world.left.boots {
        process::steps(world, rules, boot, &mut found);
    }
    found.0
}

/// The end of a search.
#[derive(Debug)]
pub enum End {
    /// The shortest way to a violation.
    Broken(Violation, Vec<Step>),
    /// None in so many states; `all` when there are no more.
    Holds { states: usize, all: bool },
}

/// Every schedule, the short ones first, until `most` states have been seen.
pub fn breadth_first(plan: Plan, rules: Rules, most: usize) -> End {
    let mut order = vec![World::new(plan)];
    let mut from: HashMap<World, (usize, Step)> = HashMap::new();
    let mut at = 0;
    while let Some(world) = order.get(at).copied() {
        for (step, reached, outcome) in next(&world, rules) {
            if let Some(violation) = outcome {
                return End::Broken(violation, way(&order, &from, at, step));
            }
            if reached != order[0] && !from.contains_key(&reached) {
                from.insert(reached, (at, step));
                order.push(reached);
            }
        }
        at += 1;
        if order.len() > most {
            return End::Holds { states: order.len(), all: false };
        }
    }
    End::Holds { states: order.len(), all: true }
}

fn way(order: &[World], from: &HashMap<World, (usize, Step)>, mut at: usize, last: Step) -> Vec<Step> {
    let mut steps = vec![last];
    while let Some((before, step)) = from.get(&order[at]) {
        steps.push(*step);
        at = *before;
    }
    steps.reverse();
    steps
}

/// So many schedules of at most `length` steps, no two of them the same; the same ones for the same seed.
pub fn random(plan: Plan, rules: Rules, seed: u64, schedules: usize, length: usize) -> End {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut states = 0;
    let mut tried = HashSet::new();
    while tried.len() < schedules {
        let mut world = World::new(plan);
        let mut steps = Vec::new();
        for _ in 0..length {
            let mut possible = next(&world, rules);
            if possible.is_empty() {
                break;
            }
            let (step, reached, outcome) = possible.swap_remove(dice.usize(..possible.len()));
            steps.push(step);
            if let Some(violation) = outcome {
                return End::Broken(violation, steps);
            }
            world = reached;
            states += 1;
        }
        let mut hasher = DefaultHasher::new();
        steps.hash(&mut hasher);
        tried.insert(hasher.finish());
    }
    End::Holds { states, all: false }
}

/// One schedule, as told; the violation that its last step is.
pub fn follow(plan: Plan, rules: Rules, schedule: &[(&'static str, u8)]) -> Outcome {
    let mut world = World::new(plan);
    let mut end = None;
    for (what, boot) in schedule {
        let step = Step(what, *boot);
        let possible = next(&world, rules).into_iter().find(|(found, _, _)| *found == step);
        let Some((_, reached, outcome)) = possible else { panic!("{step:?} is not possible: {world:#?}") };
        (world, end) = (reached, outcome);
    }
    end
}

/// How many ticks a fair schedule takes until somebody holds the lease: every step that is possible is taken once before time passes. `None`: not
/// within `most`.
pub fn ticks_until_held(mut world: World, rules: Rules, most: i8) -> Option<i8> {
    let start = world.now;
    world.left.last_tick = start + most;
    while world.now <= start + most {
        let mut taken = Vec::new();
        while let Some((step, reached, _)) =
            next(&world, rules).into_iter().find(|(step, _, _)| step.0 != "time passes" && !taken.contains(step))
        {
            taken.push(step);
            world = reached;
        }
        if world.boots.iter().any(|boot| boot.tenure.is_some_and(|tenure| world.now < tenure.deadline)) {
            return Some(world.now - start);
        }
        world.now += 1;
    }
    None
}
