//! The possible next steps of a node, and their effects.

use super::row::{Call, Change, End, Held, Outcome};
use super::world::{Action, Answer, CLIENT, CallView, DEFAULT, LOST_ANSWERS, Node, Nodes, World};

impl Nodes {
    /// Adds the possible next actions of a node that holds the run.
    pub(super) fn steps(&self, number: usize, node: &Node, world: &World, actions: &mut Vec<Action>) {
        if node.unsure.is_some() {
            actions.push(Action::LookForCommit(number));
            return;
        }
        let mut commit = |change| {
            actions.push(Action::Commit(number, change, Answer::Received));
            if world.lost < LOST_ANSWERS {
                actions.push(Action::Commit(number, change, Answer::LostAfterwards));
                actions.push(Action::Commit(number, change, Answer::LostBefore));
            }
        };
        if node.aborts {
            return commit(Change::End(End::Aborted));
        }
        if let [CallView::Known(first), CallView::Known(second)] = node.calls {
            return commit(Change::End(End::Completed([first, second])));
        }
        for call in [DEFAULT, CLIENT] {
            match node.calls[call] {
                CallView::Open if self.rules.journal_first => commit(Change::Intend(call)),
                CallView::Made if call == CLIENT => commit(Change::Park(call)),
                _ => {}
            }
        }
        for call in [DEFAULT, CLIENT] {
            let ready = node.calls[call] == CallView::Intended
                || !self.rules.journal_first && node.calls[call] == CallView::Open;
            match node.calls[call] {
                _ if ready && (node.lease_lasts || !self.rules.lease_clock) => {
                    actions.push(Action::Dispatch(number, call))
                }
                _ if ready => actions.push(Action::Prolong(number)),
                CallView::Made if call == DEFAULT => actions.push(Action::ToolAnswers(number)),
                CallView::Waits => actions.push(Action::LookForOutcome(number)),
                CallView::Caught => actions.push(Action::GiveUp(number, call)),
                CallView::Open | CallView::Intended | CallView::Made | CallView::Known(_) => {}
            }
        }
    }

    pub(super) fn commit(&self, world: &mut World, number: usize, change: Change, answer: Answer) -> bool {
        let Some(node) = world.nodes[number] else { return false };
        if answer == Answer::LostBefore {
            world.lost += 1;
            unsure(world, number, change);
            return true;
        }
        world.stale |= !world.row.has(node.held) && !self.rules.fence;
        let written = world.row.commit(&self.rules, node.held, change);
        match answer {
            Answer::Received if written => on_written(world, number, change),
            // A node that has lost the run stops.
            Answer::Received => world.nodes[number] = None,
            Answer::LostAfterwards | Answer::LostBefore => {
                world.lost += 1;
                unsure(world, number, change);
            }
        }
        true
    }

    pub(super) fn look_for_commit(&self, world: &mut World, number: usize) -> bool {
        let Some(node) = world.nodes[number] else { return false };
        let Some(change) = node.unsure else { return false };
        let there = world.row.has(Held { sequence: node.held.sequence + 1, ..node.held });
        if there || !self.rules.look_for_lost_commits {
            on_written(world, number, change);
        } else {
            world.nodes[number] = None;
        }
        true
    }

    pub(super) fn give_up(&self, world: &mut World, number: usize, call: usize) -> bool {
        if !self.rules.first_outcome_counts {
            return learn_outcome(world, number, call, Outcome::Unknown);
        }
        world.row.settle(call, Outcome::Unknown);
        match world.row.calls[call] {
            Call::Settled(outcome) => learn_outcome(world, number, call, outcome),
            Call::NotRequested | Call::Dispatched | Call::Parked => false,
        }
    }

    pub(super) fn prolong(&self, world: &mut World, number: usize) -> bool {
        let Some(node) = &mut world.nodes[number] else { return false };
        node.lease_lasts = world.row.prolong(&self.rules, node.held) || !world.row.written;
        if !node.lease_lasts {
            world.nodes[number] = None;
        }
        true
    }
}

fn unsure(world: &mut World, number: usize, change: Change) {
    if let Some(node) = &mut world.nodes[number] {
        node.unsure = Some(change);
    }
}

/// The node learns that its change is written, and continues.
fn on_written(world: &mut World, number: usize, change: Change) {
    let Some(node) = &mut world.nodes[number] else { return };
    node.held.sequence += 1;
    node.unsure = None;
    match change {
        Change::Intend(call) => node.calls[call] = CallView::Intended,
        Change::Park(call) => node.calls[call] = CallView::Waits,
        Change::End(end) => {
            // If nodes report different ends, keep the one that differs from the row's, so that the property fails.
            if world.reported.is_none() || world.reported == world.row.over {
                world.reported = Some(end);
            }
            world.nodes[number] = None;
        }
    }
}

pub(super) fn dispatch(world: &mut World, number: usize, call: usize) -> bool {
    let Some(node) = &mut world.nodes[number] else { return false };
    // An abort takes over the run even from an active node, and does not wait for a call that is being dispatched.
    world.stale |= world.row.fence != node.held.fence && !world.seized && world.row.over.is_none();
    world.dispatched[call] += 1;
    node.calls[call] = CallView::Made;
    true
}

pub(super) fn learn_outcome(world: &mut World, number: usize, call: usize, outcome: Outcome) -> bool {
    if let Some(node) = &mut world.nodes[number] {
        node.calls[call] = CallView::Known(outcome);
    }
    true
}

pub(super) fn take(world: &mut World, number: usize) -> bool {
    let Some(held) = world.row.take() else { return false };
    let view = |call: Call| match call {
        Call::NotRequested => CallView::Open,
        Call::Dispatched => CallView::Caught,
        Call::Parked => CallView::Waits,
        Call::Settled(outcome) => CallView::Known(outcome),
    };
    let calls = world.row.calls.map(view);
    world.nodes[number] = Some(Node { held, lease_lasts: true, unsure: None, calls, aborts: false });
    true
}

pub(super) fn take_forcibly(world: &mut World, number: usize) -> bool {
    let Some(held) = world.row.take_forcibly() else { return false };
    world.seized = true;
    world.nodes[number] =
        Some(Node { held, lease_lasts: true, unsure: None, calls: [CallView::Open; 2], aborts: true });
    true
}
