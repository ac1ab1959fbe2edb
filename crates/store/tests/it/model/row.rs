//! The model of a run's row: what each operation of the store may change, and when.
//!
//! The model checker checks these rules in every order of events; `walk` checks that the real store follows them.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// A result from the tool, or from the party that the call was parked for.
    Given,
    /// The outcome after a crash, for a call that must not be made twice.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    NotRequested,
    Dispatched,
    Parked,
    Settled(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Completed([Outcome; 2]),
    Aborted,
    Expired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub sequence: u8,
    pub fence: u8,
}

/// The change that a commit writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Change {
    Intend(usize),
    Park(usize),
    End(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub written: bool,
    pub over: Option<End>,
    pub sequence: u8,
    pub fence: u8,
    pub leased: bool,
    pub calls: [Call; 2],
}

/// The rules that prevent duplicate effects. Each can be disabled to show that it is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// A commit succeeds only at the sequence and fence that its writer holds.
    pub fence: bool,
    /// A sweep that expires a run also increments its fence.
    pub sweep_moves_fence: bool,
    /// The first outcome of a call wins.
    pub first_outcome_counts: bool,
    /// A call is journaled before it is dispatched.
    pub journal_first: bool,
    /// A node that may have slept past its lease checks the store before it dispatches.
    pub lease_clock: bool,
    /// After a lost answer, the node reads the store to find out whether the commit was written.
    pub look_for_lost_commits: bool,
}

pub(super) const ALL_RULES: Rules = Rules {
    fence: true,
    sweep_moves_fence: true,
    first_outcome_counts: true,
    journal_first: true,
    lease_clock: true,
    look_for_lost_commits: true,
};

impl Row {
    pub(super) const NEW: Self =
        Self { written: false, over: None, sequence: 0, fence: 1, leased: true, calls: [Call::NotRequested; 2] };

    fn is_live(&self) -> bool {
        self.written && self.over.is_none()
    }

    pub(super) fn commit(&mut self, rules: &Rules, held: Held, change: Change) -> bool {
        let ours = (self.sequence, self.fence) == (held.sequence, held.fence) && self.over.is_none();
        if rules.fence && !ours {
            return false;
        }
        self.written = true;
        self.sequence += 1;
        match change {
            Change::Intend(call) => self.call(call, Call::Dispatched),
            Change::Park(call) => self.call(call, Call::Parked),
            Change::End(end) => {
                self.over = Some(end);
                self.leased = false;
            }
        }
        true
    }

    /// Changes the state of a call. A call that was settled from outside stays settled.
    fn call(&mut self, call: usize, to: Call) {
        if !matches!(self.calls[call], Call::Settled(_)) {
            self.calls[call] = to;
        }
    }

    /// Takes over the run if it has no valid lease.
    pub(super) fn take(&mut self) -> Option<Held> {
        if self.leased { None } else { self.take_forcibly() }
    }

    /// Takes over the run even if it is leased.
    pub(super) fn take_forcibly(&mut self) -> Option<Held> {
        if !self.is_live() {
            return None;
        }
        self.sequence += 1;
        self.fence += 1;
        self.leased = true;
        Some(Held { sequence: self.sequence, fence: self.fence })
    }

    /// Extends the lease if the holder has not lost the run.
    pub(super) fn prolong(&mut self, rules: &Rules, held: Held) -> bool {
        let ours = self.is_live() && (self.fence == held.fence || !rules.fence);
        self.leased |= ours;
        ours
    }

    pub(super) fn expire(&mut self, rules: &Rules) -> bool {
        if !self.is_live() || self.leased {
            return false;
        }
        self.over = Some(End::Expired);
        self.sequence += 1;
        self.fence += u8::from(rules.sweep_moves_fence);
        true
    }

    /// Settles a call from outside. Returns whether the outcome was stored.
    pub(super) fn settle(&mut self, call: usize, outcome: Outcome) -> bool {
        let open = matches!(self.calls[call], Call::Dispatched | Call::Parked);
        if open {
            self.calls[call] = Call::Settled(outcome);
        }
        open
    }

    pub(super) fn has(&self, held: Held) -> bool {
        (self.sequence, self.fence) == (held.sequence, held.fence)
    }
}
