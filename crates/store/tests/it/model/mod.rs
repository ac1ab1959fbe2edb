//! Model-checks the rules that prevent duplicate effects, in every order of crashes, sleeps and lost answers, and shows
//! that each rule is needed.

mod row;
mod steps;
mod walk;
mod world;

use stateright::{Checker, HasDiscoveries, Model};

use row::{ALL_RULES, Rules};
use world::{KEPT, Nodes, ONCE, ONE_END, STALE};

#[test]
fn with_all_rules_no_order_of_events_loses_or_repeats_anything() {
    let checker = Nodes::ALL_RULES.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    // A model with few states would satisfy the properties trivially.
    assert!(checker.unique_state_count() > 10_000, "{} states", checker.unique_state_count());
}

/// Checks that the model finds a violation of the property without the rule.
fn violates(rules: Rules, property: &'static str) {
    let at_once = HasDiscoveries::AnyOf([property].into());
    let checker = Nodes { rules }.checker().threads(2).finish_when(at_once).spawn_bfs().join();
    let found = checker.discovery(property);
    assert!(found.is_some(), "nothing violates «{property}» without the rule: {rules:?}");
}

#[test]
fn without_the_fence_a_sleeping_node_writes_a_tool_is_called_twice_and_a_run_ends_twice() {
    for property in [ONCE, STALE, ONE_END] {
        violates(Rules { fence: false, ..ALL_RULES }, property);
    }
}

#[test]
fn without_journaling_before_dispatch_a_tool_is_called_twice() {
    violates(Rules { journal_first: false, ..ALL_RULES }, ONCE);
}

#[test]
fn without_looking_for_lost_commits_a_tool_is_called_twice() {
    violates(Rules { look_for_lost_commits: false, ..ALL_RULES }, ONCE);
}

#[test]
fn without_the_lease_clock_a_sleeping_node_dispatches() {
    violates(Rules { lease_clock: false, ..ALL_RULES }, STALE);
}

#[test]
fn without_the_first_outcome_winning_an_acknowledged_result_is_lost() {
    violates(Rules { first_outcome_counts: false, ..ALL_RULES }, KEPT);
}

#[test]
fn without_a_new_fence_on_expiry_a_node_reports_a_wrong_end() {
    violates(Rules { sweep_moves_fence: false, ..ALL_RULES }, ONE_END);
}
