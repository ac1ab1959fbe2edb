//! What a node does next, and what comes of it.

use super::row::{Call, Change, End, Held, Outcome};
use super::world::{Action, Answer, CLIENT, DEFAULT, LOST_ANSWERS, Mine, Node, Nodes, World};

impl Nodes {
    /// What a node that has the run may do next.
    pub(super) fn steps(&self, number: usize, node: &Node, world: &World, actions: &mut Vec<Action>) {
        if node.unsure.is_some() {
            actions.push(Action::LookForCommit(number));
            return;
        }
        let mut commit = |change| {
            actions.push(Action::Commit(number, change, Answer::Heard));
            if world.lost < LOST_ANSWERS {
                actions.push(Action::Commit(number, change, Answer::LostAfterwards));
                actions.push(Action::Commit(number, change, Answer::LostBefore));
            }
        };
        if node.aborts {
            return commit(Change::End(End::Aborted));
        }
        if let [Mine::Known(first), Mine::Known(second)] = node.calls {
            return commit(Change::End(End::Completed([first, second])));
        }
        for call in [DEFAULT, CLIENT] {
            match node.calls[call] {
                Mine::Open if self.rules.journal_first => commit(Change::Intend(call)),
                Mine::Made if call == CLIENT => commit(Change::Park(call)),
                _ => {}
            }
        }
        for call in [DEFAULT, CLIENT] {
            let ready =
                node.calls[call] == Mine::Intended || !self.rules.journal_first && node.calls[call] == Mine::Open;
            match node.calls[call] {
                _ if ready && (node.lease_lasts || !self.rules.lease_clock) => {
                    actions.push(Action::Dispatch(number, call))
                }
                _ if ready => actions.push(Action::Prolong(number)),
                Mine::Made if call == DEFAULT => actions.push(Action::ToolAnswers(number)),
                Mine::Waits => actions.push(Action::LookForOutcome(number)),
                Mine::Caught => actions.push(Action::GiveUp(number, call)),
                Mine::Open | Mine::Intended | Mine::Made | Mine::Known(_) => {}
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
            Answer::Heard if written => wrote(world, number, change),
            // Whoever has lost the run stops.
            Answer::Heard => world.nodes[number] = None,
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
            wrote(world, number, change);
        } else {
            world.nodes[number] = None;
        }
        true
    }

    pub(super) fn give_up(&self, world: &mut World, number: usize, call: usize) -> bool {
        if !self.rules.first_outcome_counts {
            return know(world, number, call, Outcome::Unknown);
        }
        world.row.settle(call, Outcome::Unknown);
        match world.row.calls[call] {
            Call::Settled(outcome) => know(world, number, call, outcome),
            Call::Unasked | Call::Dispatched | Call::Parked => false,
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

/// The node knows that its change is written, and goes on.
fn wrote(world: &mut World, number: usize, change: Change) {
    let Some(node) = &mut world.nodes[number] else { return };
    node.held.sequence += 1;
    node.unsure = None;
    match change {
        Change::Intend(call) => node.calls[call] = Mine::Intended,
        Change::Park(call) => node.calls[call] = Mine::Waits,
        Change::End(end) => {
            // Two that are told different ends show as one that is not the row's.
            if world.told.is_none() || world.told == world.row.over {
                world.told = Some(end);
            }
            world.nodes[number] = None;
        }
    }
}

pub(super) fn dispatch(world: &mut World, number: usize, call: usize) -> bool {
    let Some(node) = &mut world.nodes[number] else { return false };
    // An abort takes the run also from whoever is awake; it does not wait for a call on its way out.
    world.stale |= world.row.fence != node.held.fence && !world.seized && world.row.over.is_none();
    world.dispatched[call] += 1;
    node.calls[call] = Mine::Made;
    true
}

pub(super) fn know(world: &mut World, number: usize, call: usize, outcome: Outcome) -> bool {
    if let Some(node) = &mut world.nodes[number] {
        node.calls[call] = Mine::Known(outcome);
    }
    true
}

pub(super) fn take(world: &mut World, number: usize) -> bool {
    let Some(held) = world.row.take() else { return false };
    let mine = |call: Call| match call {
        Call::Unasked => Mine::Open,
        Call::Dispatched => Mine::Caught,
        Call::Parked => Mine::Waits,
        Call::Settled(outcome) => Mine::Known(outcome),
    };
    let calls = world.row.calls.map(mine);
    world.nodes[number] = Some(Node { held, lease_lasts: true, unsure: None, calls, aborts: false });
    true
}

pub(super) fn seize(world: &mut World, number: usize) -> bool {
    let Some(held) = world.row.seize() else { return false };
    world.seized = true;
    world.nodes[number] = Some(Node { held, lease_lasts: true, unsure: None, calls: [Mine::Open; 2], aborts: true });
    true
}
