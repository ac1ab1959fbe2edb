//! The model: two nodes, one run, and every event that can happen between two of their steps.
//!
//! The cell makes two calls at once and ends with their outcomes. The first calls a tool that must not be called twice;
//! the second is parked until its outcome is settled from outside. A sleeping node is one whose next step comes late;
//! `LeaseRunsOut` models the time that passes, for the node's clock and the store's.

use stateright::{Model, Property};

use super::row::{ALL_RULES, Call, Change, End, Held, Outcome, Row, Rules};
use super::steps::{dispatch, learn_outcome, take, take_forcibly};

pub(super) const ONCE: &str = "a default tool is dispatched once at most";
pub(super) const KEPT: &str = "an acknowledged result reaches the cell";
pub(super) const ONE_END: &str = "a run has one end, and that end is reported";
pub(super) const STALE: &str = "a node that slept past its lease writes and dispatches nothing";
const CAN_END: &str = "a run can complete after a crash";
const CAN_LOSE: &str = "an outcome can stay unknown";

/// The most crashes in one history.
const CRASHES: u8 = 2;
pub(super) const LOST_ANSWERS: u8 = 2;
const TAKEOVERS: u8 = 3;

pub(super) const DEFAULT: usize = 0;
pub(super) const CLIENT: usize = 1;

/// Whether a commit is written, and whether its answer arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Received,
    /// The commit is written, but its answer is lost.
    LostAfterwards,
    /// The commit is lost before it is written.
    LostBefore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    Commit(usize, Change, Answer),
    /// Reads the row to find whether a commit whose answer was lost is in it.
    LookForCommit(usize),
    Dispatch(usize, usize),
    ToolAnswers(usize),
    /// Reads whether the call was settled from outside.
    LookForOutcome(usize),
    /// Settles a call that a crash interrupted as unknown.
    GiveUp(usize, usize),
    Prolong(usize),
    Take(usize),
    SeizeToAbort(usize),
    Crash(usize),
    LeaseRunsOut,
    Expire,
    SettleFromOutside,
}

/// A node's view of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallView {
    Open,
    Intended,
    Made,
    Waits,
    /// Dispatched by a node that crashed or lost the run.
    Caught,
    Known(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) held: Held,
    /// Whether the lease is valid by the node's own clock.
    pub(super) lease_lasts: bool,
    /// A commit whose answer was lost.
    pub(super) unsure: Option<Change>,
    pub(super) calls: [CallView; 2],
    pub(super) aborts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) row: Row,
    pub(super) nodes: [Option<Node>; 2],
    pub(super) crashes: u8,
    pub(super) lost: u8,
    pub(super) dispatched: [u8; 2],
    pub(super) acknowledged: bool,
    pub(super) reported: Option<End>,
    pub(super) seized: bool,
    pub(super) stale: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Nodes {
    pub rules: Rules,
}

impl Nodes {
    pub(super) const ALL_RULES: Self = Self { rules: ALL_RULES };
}

impl Model for Nodes {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let first = Node {
            held: Held { sequence: 0, fence: 1 },
            lease_lasts: true,
            unsure: None,
            calls: [CallView::Open; 2],
            aborts: false,
        };
        vec![World {
            row: Row::NEW,
            nodes: [Some(first), None],
            crashes: 0,
            lost: 0,
            dispatched: [0; 2],
            acknowledged: false,
            reported: None,
            seized: false,
            stale: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (number, node) in world.nodes.iter().enumerate() {
            match node {
                Some(node) => {
                    self.steps(number, node, world, actions);
                    if world.crashes < CRASHES {
                        actions.push(Action::Crash(number));
                    }
                }
                None if world.row.fence <= TAKEOVERS => {
                    actions.push(Action::Take(number));
                    actions.push(Action::SeizeToAbort(number));
                }
                None => {}
            }
        }
        actions.extend([Action::LeaseRunsOut, Action::Expire, Action::SettleFromOutside]);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = *world;
        let happened = match action {
            Action::Commit(number, change, answer) => self.commit(&mut next, number, change, answer),
            Action::LookForCommit(number) => self.look_for_commit(&mut next, number),
            Action::Dispatch(number, call) => dispatch(&mut next, number, call),
            Action::ToolAnswers(number) => learn_outcome(&mut next, number, DEFAULT, Outcome::Given),
            Action::LookForOutcome(number) => match next.row.calls[CLIENT] {
                Call::Settled(outcome) => learn_outcome(&mut next, number, CLIENT, outcome),
                Call::NotRequested | Call::Dispatched | Call::Parked => false,
            },
            Action::GiveUp(number, call) => self.give_up(&mut next, number, call),
            Action::Prolong(number) => self.prolong(&mut next, number),
            Action::Take(number) => take(&mut next, number),
            Action::SeizeToAbort(number) => take_forcibly(&mut next, number),
            Action::Crash(number) => {
                next.nodes[number] = None;
                next.crashes += 1;
                true
            }
            Action::LeaseRunsOut => {
                next.row.leased = false;
                next.nodes.iter_mut().flatten().for_each(|node| node.lease_lasts = false);
                true
            }
            Action::Expire => next.row.expire(&self.rules),
            Action::SettleFromOutside => {
                let taken = next.dispatched[CLIENT] > 0 && next.row.settle(CLIENT, Outcome::Given);
                next.acknowledged |= taken;
                taken
            }
        };
        happened.then_some(next).filter(|next| next != world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONCE, |_, world: &World| world.dispatched.iter().all(|times| *times <= 1)),
            Property::always(KEPT, |_, world: &World| match world.row.over {
                Some(End::Completed(outcomes)) => !world.acknowledged || outcomes[CLIENT] == Outcome::Given,
                Some(End::Aborted | End::Expired) | None => true,
            }),
            Property::always(ONE_END, |_, world: &World| world.reported.is_none() || world.reported == world.row.over),
            Property::always(STALE, |_, world: &World| !world.stale),
            Property::sometimes(CAN_END, |_, world: &World| {
                world.crashes > 0 && world.reported == Some(End::Completed([Outcome::Given; 2]))
            }),
            Property::sometimes(CAN_LOSE, |_, world: &World| {
                world.reported == Some(End::Completed([Outcome::Unknown, Outcome::Given]))
            }),
        ]
    }
}
