//! Two nodes, one run, and everything that can come between any two of their steps.
//!
//! The cell makes two calls at once and ends with their outcomes: the first is of a tool that must not be called
//! twice, the second is parked until somebody outside brings its outcome. A node that sleeps is one whose next step
//! comes late; `LeaseRunsOut` is the time passing meanwhile, for its own clock as for the store's.

use stateright::{Model, Property};

use super::row::{Call, Change, End, Held, OURS, Outcome, Row, Rules};

pub const ONCE: &str = "a default tool is dispatched once at most";
pub const KEPT: &str = "an acknowledged result reaches the cell";
pub const ONE_END: &str = "a run has one end, and that is what is told";
pub const STALE: &str = "who slept past its lease writes and dispatches nothing";
const CAN_END: &str = "a run can complete after a crash";
const CAN_LOSE: &str = "an outcome can be left unknown";

/// What can go wrong in one history.
const CRASHES: u8 = 2;
const LOST_ANSWERS: u8 = 2;
const TAKEOVERS: u8 = 3;

const DEFAULT: usize = 0;
const CLIENT: usize = 1;

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
enum Mine {
    Open,
    Intended,
    Made,
    Waits,
    /// Found dispatched, by a node that is no more.
    Caught,
    Known(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    held: Held,
    /// Its own clock says that its lease lasts.
    lease_lasts: bool,
    /// A commit whose answer was lost.
    unsure: Option<Change>,
    calls: [Mine; 2],
    aborts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    row: Row,
    nodes: [Option<Node>; 2],
    crashes: u8,
    lost: u8,
    dispatched: [u8; 2],
    acknowledged: bool,
    told: Option<End>,
    seized: bool,
    stale: bool,
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

impl Nodes {
    /// What a node that has the run may do next.
    fn steps(&self, number: usize, node: &Node, world: &World, actions: &mut Vec<Action>) {
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

    fn commit(&self, world: &mut World, number: usize, change: Change, answer: Answer) -> bool {
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

    fn look_for_commit(&self, world: &mut World, number: usize) -> bool {
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

    fn give_up(&self, world: &mut World, number: usize, call: usize) -> bool {
        if !self.rules.first_outcome_counts {
            return know(world, number, call, Outcome::Unknown);
        }
        world.row.settle(call, Outcome::Unknown);
        match world.row.calls[call] {
            Call::Settled(outcome) => know(world, number, call, outcome),
            Call::Unasked | Call::Dispatched | Call::Parked => false,
        }
    }

    fn prolong(&self, world: &mut World, number: usize) -> bool {
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

fn dispatch(world: &mut World, number: usize, call: usize) -> bool {
    let Some(node) = &mut world.nodes[number] else { return false };
    // An abort takes the run also from whoever is awake; it does not wait for a call on its way out.
    world.stale |= world.row.fence != node.held.fence && !world.seized && world.row.over.is_none();
    world.dispatched[call] += 1;
    node.calls[call] = Mine::Made;
    true
}

fn know(world: &mut World, number: usize, call: usize, outcome: Outcome) -> bool {
    if let Some(node) = &mut world.nodes[number] {
        node.calls[call] = Mine::Known(outcome);
    }
    true
}

fn take(world: &mut World, number: usize) -> bool {
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

fn seize(world: &mut World, number: usize) -> bool {
    let Some(held) = world.row.seize() else { return false };
    world.seized = true;
    world.nodes[number] = Some(Node { held, lease_lasts: true, unsure: None, calls: [Mine::Open; 2], aborts: true });
    true
}
