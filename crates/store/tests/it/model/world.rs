//! Two nodes, one run, and everything that can come between any two of their steps.
//!
//! The cell makes two calls at once and ends with their outcomes: the first is of a tool that must not be called
//! twice, the second is parked until somebody outside brings its outcome. A node that sleeps is one whose next step
//! comes late; `LeaseRunsOut` is the time passing meanwhile, for its own clock as for the store's.

use stateright::{Model, Property};

use super::row::{Call, Change, End, Held, OURS, Outcome, Row, Rules};
use super::steps::{dispatch, know, seize, take};

pub const ONCE: &str = "a default tool is dispatched once at most";
pub const KEPT: &str = "an acknowledged result reaches the cell";
pub const ONE_END: &str = "a run has one end, and that is what is told";
pub const STALE: &str = "who slept past its lease writes and dispatches nothing";
const CAN_END: &str = "a run can complete after a crash";
const CAN_LOSE: &str = "an outcome can be left unknown";

/// What can go wrong in one history.
const CRASHES: u8 = 2;
pub(super) const LOST_ANSWERS: u8 = 2;
const TAKEOVERS: u8 = 3;

pub(super) const DEFAULT: usize = 0;
pub(super) const CLIENT: usize = 1;

/// How a commit's answer comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Heard,
    LostAfterwards,
    LostBefore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Commit(usize, Change, Answer),
    /// Reads the row to find whether a commit whose answer was lost is in it.
    LookForCommit(usize),
    Dispatch(usize, usize),
    ToolAnswers(usize),
    /// Reads what somebody else has brought.
    LookForOutcome(usize),
    /// Says of a call that a crash caught that its outcome is unknown.
    GiveUp(usize, usize),
    Prolong(usize),
    Take(usize),
    SeizeToAbort(usize),
    Crash(usize),
    LeaseRunsOut,
    Expire,
    SettleFromOutside,
}

/// What a node knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mine {
    Open,
    Intended,
    Made,
    Waits,
    /// Found dispatched, by a node that is no more.
    Caught,
    Known(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) held: Held,
    /// Its own clock says that its lease lasts.
    pub(super) lease_lasts: bool,
    /// A commit whose answer was lost.
    pub(super) unsure: Option<Change>,
    pub(super) calls: [Mine; 2],
    pub(super) aborts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) row: Row,
    pub(super) nodes: [Option<Node>; 2],
    pub(super) crashes: u8,
    pub(super) lost: u8,
    pub(super) dispatched: [u8; 2],
    pub(super) acknowledged: bool,
    pub(super) told: Option<End>,
    pub(super) seized: bool,
    pub(super) stale: bool,
}

#[derive(Clone, Debug)]
pub struct Nodes {
    pub rules: Rules,
}

impl Nodes {
    pub const OURS: Self = Self { rules: OURS };
}

impl Model for Nodes {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let first = Node {
            held: Held { sequence: 0, fence: 1 },
            lease_lasts: true,
            unsure: None,
            calls: [Mine::Open; 2],
            aborts: false,
        };
        vec![World {
            row: Row::NEW,
            nodes: [Some(first), None],
            crashes: 0,
            lost: 0,
            dispatched: [0; 2],
            acknowledged: false,
            told: None,
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
            Action::ToolAnswers(number) => know(&mut next, number, DEFAULT, Outcome::Given),
            Action::LookForOutcome(number) => match next.row.calls[CLIENT] {
                Call::Settled(outcome) => know(&mut next, number, CLIENT, outcome),
                Call::Unasked | Call::Dispatched | Call::Parked => false,
            },
            Action::GiveUp(number, call) => self.give_up(&mut next, number, call),
            Action::Prolong(number) => self.prolong(&mut next, number),
            Action::Take(number) => take(&mut next, number),
            Action::SeizeToAbort(number) => seize(&mut next, number),
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
            Property::always(ONE_END, |_, world: &World| world.told.is_none() || world.told == world.row.over),
            Property::always(STALE, |_, world: &World| !world.stale),
            Property::sometimes(CAN_END, |_, world: &World| {
                world.crashes > 0 && world.told == Some(End::Completed([Outcome::Given; 2]))
            }),
            Property::sometimes(CAN_LOSE, |_, world: &World| {
                world.told == Some(End::Completed([Outcome::Unknown, Outcome::Given]))
            }),
        ]
    }
}
