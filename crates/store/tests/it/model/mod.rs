//! The rules that keep effects single, checked in every order of crashes, sleeps and lost answers; and shown to be
//! needed, each of them.

mod row;
mod steps;
mod walk;
mod world;

use stateright::{Checker, HasDiscoveries, Model};

use row::{OURS, Rules};
use world::{KEPT, Nodes, ONCE, ONE_END, STALE};

#[test]
fn nothing_is_lost_and_nothing_done_twice_in_any_order() {
    let checker = Nodes::OURS.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    // A model that hardly moves would keep its promises, too.
    assert!(checker.unique_state_count() > 10_000, "{} states", checker.unique_state_count());
}

/// Without the rule, the model must find how the promise is broken.
fn breaks(rules: Rules, promise: &'static str) {
    let at_once = HasDiscoveries::AnyOf([promise].into());
    let checker = Nodes { rules }.checker().threads(2).finish_when(at_once).spawn_bfs().join();
    let found = checker.discovery(promise);
    assert!(found.is_some(), "nothing breaks «{promise}» without the rule: {rules:?}");
}

#[test]
fn without_the_fence_a_sleeper_writes_a_tool_is_called_twice_and_a_run_ends_twice() {
    for promise in [ONCE, STALE, ONE_END] {
        breaks(Rules { fence: false, ..OURS }, promise);
    }
}

#[test]
fn without_a_journal_first_a_tool_is_called_twice() {
    breaks(Rules { journal_first: false, ..OURS }, ONCE);
}

#[test]
fn without_a_look_for_lost_commits_a_tool_is_called_twice() {
    breaks(Rules { look_for_lost_commits: false, ..OURS }, ONCE);
}

#[test]
fn without_its_clock_a_sleeper_dispatches() {
    breaks(Rules { lease_clock: false, ..OURS }, STALE);
}

#[test]
fn without_the_first_outcome_counting_an_acknowledged_result_is_lost() {
    breaks(Rules { first_outcome_counts: false, ..OURS }, KEPT);
}

#[test]
fn without_a_fence_on_sweeps_an_end_is_told_that_is_not_the_runs() {
    breaks(Rules { sweep_moves_fence: false, ..OURS }, ONE_END);
}
