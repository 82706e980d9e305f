//! The lease protocol as a model: for each rule, what happens without it, and that it does not happen with all of them.
//!
//! What a process decides in it is decided by `host::lease::decisions`, which decides it in a node too; what the database decides is told
//! again here, and the tests in `lease_rules` and `lease_postgres` check that its functions keep each rule. A test fails when a rule that is switched off leads to nothing (then it is not needed, or not modelled), and when the same plant
//! goes wrong with all rules on.

#[cfg(test)]
mod database;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod process;
#[cfg(test)]
mod search;
#[cfg(test)]
mod world;

#[cfg(test)]
mod tests {
    use crate::search::{End, breadth_first, follow, random, ticks_until_held};
    use crate::world::{LEASE, Plan, Rule, Rules, Violation, World};

    /// How far a search goes that is expected to find nothing: as far as the environment says, else so far.
    fn deeper(variable: &str, usual: usize) -> usize {
        std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
    }

    const ALL: Rules = Rules(None);
    const TWO: Plan = Plan {
        boots: 2,
        twins: false,
        last_tick: 0,
        highest_epoch: 3,
        pieces: 0,
        effects: false,
        effects_take_time: false,
        lost_answers: false,
        no_renewals: false,
        watched: false,
        deaths: false,
        sessions: 0,
        crashes: 0,
        traps: 0,
        releases: 0,
        deletions: 0,
        wipes: 0,
        fail_overs: 0,
        clock_step: 0,
    };

    /// The rule is needed for this plant, and all rules are enough.
    fn needed(rule: Rule, plan: Plan, wanted: Violation) {
        match breadth_first(plan, Rules(Some(rule)), 2_400_000) {
            End::Broken(violation, way) => assert_eq!(violation, wanted, "{way:#?}"),
            End::Holds { states, all } => panic!("without {rule:?} nothing goes wrong in {states} states (all: {all})"),
        }
        holds(plan);
    }

    fn holds(plan: Plan) {
        if let End::Broken(violation, way) = breadth_first(plan, ALL, deeper("PLANT_STATES", 80_000)) {
            panic!("{violation:?}: {way:#?}");
        }
    }

    #[test]
    fn if_a_holder_were_a_name_a_twin_would_take_a_live_nodes_lease() {
        let plan = Plan { twins: true, effects: true, last_tick: 4, highest_epoch: 2, ..TWO };
        needed(Rule::BootIsIdentity, plan, Violation::EffectPastLease);
    }

    #[test]
    fn if_a_start_did_not_raise_the_epoch_an_old_commit_would_land_after_the_state_was_read_again() {
        let plan = Plan { boots: 1, pieces: 2, traps: 1, last_tick: 2, ..TWO };
        needed(Rule::StartRaisesEpoch, plan, Violation::CountedTwice);
    }

    #[test]
    fn if_a_release_did_not_match_its_epoch_a_late_one_would_free_the_next_tenure() {
        let plan = Plan { boots: 1, releases: 1, effects: true, last_tick: 5, ..TWO };
        needed(Rule::ReleaseMatchesEpoch, plan, Violation::EffectPastLease);
    }

    #[test]
    fn if_a_release_were_always_clean_the_next_holder_would_not_wait_for_an_effect_on_its_way() {
        let plan = Plan { releases: 1, effects: true, effects_take_time: true, no_renewals: true, ..TWO };
        needed(Rule::UnansweredIsUnclean, plan, Violation::OldEffect);
    }

    #[test]
    fn if_a_hold_back_were_not_inherited_the_next_clean_release_would_forget_it() {
        let plan = Plan { releases: 1, deletions: 1, effects: true, no_renewals: true, highest_epoch: 4, ..TWO };
        needed(Rule::HoldBackInherited, plan, Violation::OldEffect);
    }

    #[test]
    fn if_a_hold_back_counted_from_the_last_renewal_a_step_of_the_clock_would_end_it() {
        let plan = Plan { clock_step: LEASE, effects: true, last_tick: 4, highest_epoch: 2, ..TWO };
        needed(Rule::HoldBackFromTakeover, plan, Violation::OldEffect);
    }

    #[test]
    fn if_a_missing_row_were_a_free_lease_its_holder_would_still_have_effects() {
        let plan = Plan { deletions: 1, effects: true, last_tick: 4, highest_epoch: 2, ..TWO };
        needed(Rule::MissingIsUnknown, plan, Violation::OldEffect);
    }

    #[test]
    fn if_epochs_were_kept_in_the_lease_row_a_deletion_would_issue_them_again() {
        let plan = Plan { deletions: 1, last_tick: 4, ..TWO };
        needed(Rule::EpochOutlivesRow, plan, Violation::EpochTwice);
    }

    #[test]
    fn if_the_fence_did_not_ask_for_the_lease_a_frozen_holder_would_commit_past_it() {
        let plan = Plan { pieces: 1, last_tick: 6, highest_epoch: 1, ..TWO };
        needed(Rule::FenceAsksLease, plan, Violation::CommitPastLease);
    }

    #[test]
    fn if_the_timeline_were_not_in_the_epoch_a_fail_over_would_issue_one_again() {
        let plan = Plan { fail_overs: 1, pieces: 1, no_renewals: true, ..TWO };
        needed(Rule::TimelineInEpoch, plan, Violation::EpochTwice);
    }

    #[test]
    fn if_hold_backs_did_not_start_again_on_a_new_timeline_a_lost_holder_would_still_have_effects() {
        let plan = Plan { fail_overs: 1, effects: true, last_tick: 4, highest_epoch: 2, ..TWO };
        needed(Rule::HoldBackOnNewHistory, plan, Violation::OldEffect);
    }

    #[test]
    fn if_the_self_fence_counted_from_the_answer_a_late_one_would_carry_a_holder_past_its_lease() {
        let plan = Plan { boots: 1, effects: true, last_tick: 6, highest_epoch: 1, ..TWO };
        needed(Rule::CountFromSending, plan, Violation::EffectPastLease);
    }

    #[test]
    fn if_an_unchanged_lease_were_not_taken_a_promoted_clock_that_is_behind_would_leave_the_role_unheld() {
        // A crashed holder, and a database whose clock is two leases behind.
        let plan = Plan { boots: 2, watched: true, clock_step: -2 * LEASE, highest_epoch: 9, ..TWO };
        let mut world = World::new(plan);
        assert!(ticks_until_held(world, ALL, LEASE).is_some(), "somebody takes it at the start");
        let row = world.database.row.as_mut().unwrap();
        (row.holder, row.epoch, row.expires) = (Some(0), 1, LEASE);
        (world.database.fence.number, world.boots[0].alive, world.clock) = (1, false, -2 * LEASE);
        let within = ticks_until_held(world, ALL, 3 * LEASE).unwrap();
        assert!(within <= LEASE + 1, "{within} ticks");
        let without = ticks_until_held(world, Rules(Some(Rule::UnchangedIsExpired)), 2 * LEASE);
        assert_eq!(without, None);
    }

    #[test]
    fn if_the_database_did_not_compare_what_was_seen_a_lease_would_be_taken_that_was_just_renewed() {
        let plan = Plan { watched: true, effects: true, last_tick: 4, highest_epoch: 2, ..TWO };
        needed(Rule::ComparedUnderLock, plan, Violation::EffectPastLease);
    }

    #[test]
    fn if_a_node_were_not_held_back_by_itself_its_successor_would_overtake_its_effect() {
        let plan = Plan { boots: 1, effects: true, effects_take_time: true, last_tick: 3, highest_epoch: 2, ..TWO };
        needed(Rule::OwnIsHeldBack, plan, Violation::OldEffect);
    }

    #[test]
    fn if_nobody_remembered_epochs_a_wiped_table_would_issue_them_again() {
        let plan = Plan { boots: 1, wipes: 1, last_tick: 4, ..TWO };
        needed(Rule::AboveAllSeen, plan, Violation::EpochTwice);
    }

    #[test]
    fn if_a_proved_death_were_a_clean_end_the_effect_of_a_process_that_lost_its_session_would_be_overtaken() {
        let plan = Plan { deaths: true, sessions: 1, effects: true, effects_take_time: true, no_renewals: true, ..TWO };
        needed(Rule::DeathIsUnclean, plan, Violation::OldEffect);
    }

    #[test]
    fn a_process_that_only_lost_its_session_and_its_successor_break_nothing_together() {
        let plan = Plan { deaths: true, sessions: 1, pieces: 1, effects: true, last_tick: 6, ..TWO };
        holds(plan);
    }

    #[test]
    fn a_freeze_between_an_effects_check_and_its_sending_is_prevented_by_no_rule() {
        let plan = Plan { effects: true, effects_take_time: true, last_tick: 9, ..TWO };
        let take =
            ["asks for the lease", "a request for the lease reaches the database", "learns what became of its request"];
        let renew = ["sends a renewal", "a renewal reaches the database", "learns what became of a renewal"];
        let ticks = |n: usize| std::iter::repeat_n(("time passes", 0), n);
        let mut schedule: Vec<(&'static str, u8)> = take.iter().map(|step| (*step, 0)).collect();
        // Frozen from here on, until the other has waited for as long as it must.
        schedule.push(("checks its lease for an effect", 0));
        schedule.extend(ticks(4));
        schedule.extend(take.iter().map(|step| (*step, 1)));
        schedule.extend(ticks(2));
        schedule.extend(renew.iter().map(|step| (*step, 1)));
        schedule.extend(ticks(2));
        schedule.extend([
            ("checks its lease for an effect", 1),
            ("an effect comes out", 1),
            ("an effect comes out", 0),
        ]);
        assert_eq!(follow(plan, ALL, &schedule), Some(Violation::OldEffect));
    }

    #[test]
    fn two_nodes_with_crashes_traps_and_lost_answers_break_nothing_as_far_as_all_schedules_are_tried() {
        let plan = Plan {
            crashes: 1,
            traps: 1,
            releases: 1,
            pieces: 2,
            effects: true,
            lost_answers: true,
            last_tick: 9,
            highest_epoch: 4,
            ..TWO
        };
        holds(plan);
        // The expiry of a lease and the end of a session together.
        holds(Plan { deaths: true, sessions: 1, ..plan });
    }

    #[test]
    fn three_nodes_break_nothing_in_random_schedules() {
        let everything = Plan {
            boots: 3,
            twins: true,
            crashes: 1,
            traps: 2,
            releases: 2,
            deletions: 1,
            pieces: 3,
            effects: true,
            lost_answers: true,
            last_tick: 30,
            highest_epoch: 9,
            ..TWO
        };
        let fail_over = Plan { deletions: 0, fail_overs: 1, clock_step: -LEASE, watched: true, ..everything };
        let sessions = Plan { deletions: 0, deaths: true, sessions: 3, ..everything };
        for (seed, plan) in [(1, everything), (2, fail_over), (3, sessions)] {
            if let End::Broken(violation, way) = random(plan, ALL, seed, deeper("PLANT_SCHEDULES", 34_000), 60) {
                panic!("{violation:?}: {way:#?}");
            }
        }
    }
}
