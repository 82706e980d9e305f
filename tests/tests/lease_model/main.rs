//! The lease protocol as a model: every order in which a few processes, a database and a network can take their steps.
//!
//! A freeze is a process that takes no step while the clock goes on, so that nothing needs to be said of freezes: between any two steps
//! there is one. Small worlds are searched to their end, larger ones at random. Each rule can be switched off; a rule without which nothing
//! goes wrong would not be worth its code, so each has its counterexample here. `host/tests/lease_rules` shows that the database keeps them.

#[cfg(test)]
mod search;
#[cfg(test)]
mod step;
#[cfg(test)]
mod world;

#[cfg(test)]
mod rules {
    use crate::search::{at_random, everywhere};
    use crate::world::{Broken, Rules, Setup};

    /// Two nodes and no accident but that any of them may freeze and any answer may be lost.
    const PAIR: Setup = Setup {
        nodes: 2,
        names: [0, 1, 2],
        horizon: 5,
        epochs: 2,
        units: 0,
        renewals: true,
        lost: true,
        effects: false,
        restarts: 0,
        releases: 0,
        deleted: 0,
        wiped: 0,
        fail_overs: 0,
    };

    /// Two nodes that act on the world outside.
    const ACTING: Setup = Setup { effects: true, renewals: false, lost: false, ..PAIR };

    /// A rule, the world in which it matters, how it is switched off, and what breaks there without it.
    type Case = (&'static str, Setup, fn(&mut Rules), Broken);

    /// What each rule is for.
    const CASES: [Case; 13] = [
        (
            "the holder is a boot, not a name",
            Setup { names: [0, 0, 1], horizon: 2, ..PAIR },
            |r| r.boots = false,
            Broken::TwoAtOnce,
        ),
        (
            "a deadline counts from the sending",
            Setup { lost: false, horizon: 4, ..PAIR },
            |r| r.from_sending = false,
            Broken::TwoAtOnce,
        ),
        (
            "what was seen is compared under the lock",
            Setup { lost: false, horizon: 4, ..PAIR },
            |r| r.compared = false,
            Broken::TwoAtOnce,
        ),
        (
            "a release names its epoch",
            Setup { releases: 1, epochs: 3, horizon: 2, ..PAIR },
            |r| r.release_epoch = false,
            Broken::TwoAtOnce,
        ),
        (
            "the fence asks for the lease",
            Setup { units: 1, lost: false, horizon: 4, ..PAIR },
            |r| r.fence_lease = false,
            Broken::CommitWithoutLease,
        ),
        (
            "every start raises the epoch",
            Setup { nodes: 1, units: 2, restarts: 1, epochs: 3, horizon: 1, ..PAIR },
            |r| r.restart_raises = false,
            Broken::Miscounted,
        ),
        (
            "an epoch has a timeline",
            Setup { units: 1, fail_overs: 1, horizon: 1, ..PAIR },
            |r| r.timeline = false,
            Broken::EpochTwice,
        ),
        (
            "an epoch is above all that were seen",
            Setup { nodes: 1, wiped: 1, epochs: 3, horizon: 3, ..PAIR },
            |r| r.at_least = false,
            Broken::EpochTwice,
        ),
        (
            "effects wait a lease from the takeover",
            Setup { horizon: 4, ..ACTING },
            |r| r.from_takeover = false,
            Broken::EffectsOvertaken,
        ),
        (
            "a hold-back is inherited",
            Setup { releases: 1, epochs: 4, horizon: 4, ..ACTING },
            |r| r.inherited = false,
            Broken::EffectsOvertaken,
        ),
        (
            "a release is clean when its effects are answered",
            Setup { releases: 1, epochs: 3, horizon: 2, ..ACTING },
            |r| r.clean_answered = false,
            Broken::EffectsOvertaken,
        ),
        (
            "a missing row is an unknown holder",
            Setup { deleted: 1, horizon: 2, ..ACTING },
            |r| r.missing_unknown = false,
            Broken::EffectsOvertaken,
        ),
        (
            "a node holds itself back too",
            Setup { nodes: 1, horizon: 4, ..ACTING },
            |r| r.own_held_back = false,
            Broken::EffectsOvertaken,
        ),
    ];

    #[test]
    fn with_every_rule_three_nodes_break_nothing_at_random() {
        let setup = Setup {
            nodes: 3,
            names: [0, 1, 0],
            horizon: 24,
            epochs: 12,
            units: 6,
            effects: true,
            restarts: 3,
            releases: 3,
            ..PAIR
        };
        let worse = [setup, Setup { deleted: 2, ..setup }, Setup { fail_overs: 1, ..setup }];
        for (seed, setup) in (1..).zip(worse) {
            let found = at_random(&setup, &Rules::ALL, seed, 250, 150);
            assert!(found.is_none(), "{}", found.unwrap_or_default());
        }
    }

    /// Without the rule something breaks; with it nothing does, in twice as many states as that took.
    fn is_needed(rule: &str) {
        let (_, setup, switch_off, breaks) = CASES.into_iter().find(|case| case.0 == rule).unwrap();
        let mut rules = Rules::ALL;
        switch_off(&mut rules);
        let (found, states) = everywhere(&setup, &rules, 400_000);
        let found = found.unwrap_or_else(|| panic!("{rule}: switched off, and all is well in {states} states"));
        assert!(found.contains(&format!("{breaks:?}")), "{rule}: {found}");
        let (found, _) = everywhere(&setup, &Rules::ALL, 2 * states);
        assert!(found.is_none(), "{rule}, with all the others: {}", found.unwrap_or_default());
    }

    macro_rules! each_rule_is_needed {
        ($($test:ident: $rule:literal,)*) => {
            $(#[test] fn $test() { is_needed($rule); })*

            #[test]
            fn no_rule_is_forgotten() {
                let tested = [$($rule),*];
                assert!(CASES.iter().all(|case| tested.contains(&case.0)) && tested.len() == CASES.len());
            }
        };
    }

    each_rule_is_needed! {
        by_name_alone_a_twin_takes_what_a_living_node_holds: "the holder is a boot, not a name",
        counted_from_the_answer_a_holder_goes_on_past_its_lease: "a deadline counts from the sending",
        compared_too_early_a_lease_is_taken_that_was_just_renewed: "what was seen is compared under the lock",
        without_its_epoch_a_late_release_frees_the_next_tenure: "a release names its epoch",
        by_epoch_alone_a_frozen_holder_commits_after_its_lease: "the fence asks for the lease",
        under_the_same_epoch_an_old_commit_lands_on_state_that_was_read: "every start raises the epoch",
        without_timelines_a_replica_issues_an_epoch_again: "an epoch has a timeline",
        without_what_was_seen_a_wiped_table_issues_an_epoch_again: "an epoch is above all that were seen",
        counted_from_the_last_renewal_an_effect_overtakes_an_older_one: "effects wait a lease from the takeover",
        forgotten_by_a_clean_release_an_effect_overtakes_an_older_one: "a hold-back is inherited",
        called_clean_too_early_an_effect_overtakes_an_older_one: "a release is clean when its effects are answered",
        a_deleted_row_taken_for_a_fresh_start_lets_an_effect_overtake_an_older_one: "a missing row is an unknown holder",
        its_own_successor_overtakes_a_holder_that_asked_again: "a node holds itself back too",
    }
}
