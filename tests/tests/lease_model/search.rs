//! The search: all orders of steps, the shortest first; or some, at random.

use std::collections::HashMap;

use crate::step::{Step, steps};
use crate::world::{Rules, Setup, World};

/// Every world that can be reached, up to `at_most`; the shortest way to a broken one, and how many were seen.
pub fn everywhere(setup: &Setup, rules: &Rules, at_most: usize) -> (Option<String>, usize) {
    let first = World::new(setup);
    let mut ways: HashMap<World, usize> = HashMap::from([(first, 0)]);
    let mut reached: Vec<(World, usize, Step)> = vec![(first, 0, (0, ""))];
    let mut next = 0;
    while next < reached.len() && reached.len() < at_most {
        let from = next;
        for (step, world) in steps(&reached[from].0, setup, rules) {
            if ways.insert(world, from).is_some() {
                continue;
            }
            let broken = world.broken;
            reached.push((world, from, step));
            if let Some(broken) = broken {
                return (Some(format!("{broken:?} by\n{}", way(&reached))), reached.len());
            }
        }
        next += 1;
    }
    (None, reached.len())
}

/// The steps to the last world.
fn way(reached: &[(World, usize, Step)]) -> String {
    let mut steps = Vec::new();
    let mut at = reached.len() - 1;
    while at != 0 {
        let (who, what) = reached[at].2;
        steps.push(format!("  {who}: {what}"));
        at = reached[at].1;
    }
    steps.reverse();
    steps.join("\n")
}

/// `runs` orders of steps of length `length`, drawn by `seed`; the first that breaks something.
pub fn at_random(setup: &Setup, rules: &Rules, seed: u64, runs: usize, length: usize) -> Option<String> {
    let mut dice = seed;
    for _ in 0..runs {
        let mut world = World::new(setup);
        let mut way = Vec::new();
        for _ in 0..length {
            let mut choices = steps(&world, setup, rules);
            if choices.is_empty() {
                break;
            }
            let drawn = draw(&mut dice) % choices.len();
            let ((who, what), next) = choices.swap_remove(drawn);
            way.push(format!("  {who}: {what}"));
            world = next;
            if let Some(broken) = world.broken {
                return Some(format!("{broken:?} (seed {seed}) by\n{}", way.join("\n")));
            }
        }
    }
    None
}

/// A xorshift generator: the same schedules on every machine.
fn draw(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).unwrap_or(0)
}
