//! A run's row as the rules have it: what each operation of the store may change, and when.
//!
//! The model checks these rules in every order of events; `walk` checks that the store keeps to them.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// What its tool, or whoever it was parked with, gave.
    Given,
    /// What a crash leaves of a call that must not be made twice.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Unasked,
    Dispatched,
    Parked,
    Settled(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    Completed([Outcome; 2]),
    Aborted,
    Expired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub sequence: u8,
    pub fence: u8,
}

/// What a commit writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Intend(usize),
    Park(usize),
    End(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub written: bool,
    pub over: Option<End>,
    pub sequence: u8,
    pub fence: u8,
    pub leased: bool,
    pub calls: [Call; 2],
}

/// The rules that keep effects single. Each can be left out, to see what it is for.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A commit counts only at the sequence and fence its writer holds.
    pub fence: bool,
    /// A sweep that ends a run moves its fence, too.
    pub sweep_moves_fence: bool,
    /// The first outcome a call gets is its outcome, whoever brings another.
    pub first_outcome_counts: bool,
    /// A call is on the disk before its tool hears of it.
    pub journal_first: bool,
    /// Whoever may have slept past its lease asks the store before it dispatches.
    pub lease_clock: bool,
    /// A commit whose answer was lost is looked for.
    pub look_for_lost_commits: bool,
}

pub const OURS: Rules = Rules {
    fence: true,
    sweep_moves_fence: true,
    first_outcome_counts: true,
    journal_first: true,
    lease_clock: true,
    look_for_lost_commits: true,
};

impl Row {
    pub const NEW: Self =
        Self { written: false, over: None, sequence: 0, fence: 1, leased: true, calls: [Call::Unasked; 2] };

    fn is_live(&self) -> bool {
        self.written && self.over.is_none()
    }

    pub fn commit(&mut self, rules: &Rules, held: Held, change: Change) -> bool {
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

    /// What somebody else has settled meanwhile stays settled.
    fn call(&mut self, call: usize, to: Call) {
        if !matches!(self.calls[call], Call::Settled(_)) {
            self.calls[call] = to;
        }
    }

    /// Takes the run where nobody has it any more.
    pub fn take(&mut self) -> Option<Held> {
        if self.leased { None } else { self.seize() }
    }

    /// Takes the run from whoever has it.
    pub fn seize(&mut self) -> Option<Held> {
        if !self.is_live() {
            return None;
        }
        self.sequence += 1;
        self.fence += 1;
        self.leased = true;
        Some(Held { sequence: self.sequence, fence: self.fence })
    }

    /// Whoever still has the run may go on having it.
    pub fn prolong(&mut self, rules: &Rules, held: Held) -> bool {
        let ours = self.is_live() && (self.fence == held.fence || !rules.fence);
        self.leased |= ours;
        ours
    }

    pub fn expire(&mut self, rules: &Rules) -> bool {
        if !self.is_live() || self.leased {
            return false;
        }
        self.over = Some(End::Expired);
        self.sequence += 1;
        self.fence += u8::from(rules.sweep_moves_fence);
        true
    }

    /// An outcome brought by anybody. Whether it was taken down.
    pub fn settle(&mut self, call: usize, outcome: Outcome) -> bool {
        let open = matches!(self.calls[call], Call::Dispatched | Call::Parked);
        if open {
            self.calls[call] = Call::Settled(outcome);
        }
        open
    }

    pub fn has(&self, held: Held) -> bool {
        (self.sequence, self.fence) == (held.sequence, held.fence)
    }
}
