//! What a run does, written down before it has an effect.
//!
//! Most of what happens can wait for the next commit: a leg, an answer from the catalog, the result of a tool
//! that only reads. What cannot wait takes everything before it along, so that the journal has no holes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::{
    CallRow, CallState, Change, CommitError, Durability, Entry, EntryKind, Exceeded, Held, LegRow, Quota, Store,
    StoredReply, fault,
};
use tokio::sync::Mutex as AsyncMutex;

use crate::clock::now_ms;
use crate::lease::LeaseClock;

#[derive(Debug)]
pub struct Journal {
    store: Store,
    run_id: String,
    /// Held by whoever writes: changes of a run are made one after the other.
    held: AsyncMutex<Held>,
    unwritten: Mutex<Unwritten>,
    /// None where nobody could take the run without this holder's knowing.
    lease: Option<LeaseClock>,
}

#[derive(Debug, Default)]
struct Unwritten {
    change: Change,
    calls: BTreeMap<u32, CallRow>,
    /// All calls ever journaled by this holder, as they stand.
    known: BTreeMap<u32, CallRow>,
    settle_order: i64,
    anything: bool,
    must_sync: bool,
    lost: bool,
    /// Calls that nobody can be asked about now, because too many are asked about already.
    unasked: BTreeMap<u32, Box<Exceeded>>,
    /// Why the run could not be put to rest.
    restless: Option<Box<Exceeded>>,
}

/// Proof that a call's intent is written down, or need not be yet. Only a journal makes one.
#[derive(Debug)]
pub struct Receipt(());

impl Journal {
    pub fn new(store: Store, held: Held) -> Self {
        Self {
            store,
            run_id: held.run_id.clone(),
            held: AsyncMutex::new(held),
            unwritten: Mutex::default(),
            lease: None,
        }
    }

    /// Calls are made only while this lasts, or once the store has confirmed that the run is still ours.
    #[must_use]
    pub fn under(mut self, lease: LeaseClock) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Goes on with a journal that is in the store already.
    pub fn resumed(store: Store, held: Held, calls: &[CallRow]) -> Self {
        let journal = Self::new(store, held);
        {
            let mut unwritten = journal.lock();
            unwritten.settle_order = calls.iter().filter_map(|call| call.settle_order).max().unwrap_or(0);
            unwritten.known = calls.iter().map(|call| (call.call, call.clone())).collect();
        }
        journal
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    pub fn leg(&self, leg: LegRow) {
        let mut unwritten = self.lock();
        let delivered = leg.replies.clone();
        for call in delivered {
            unwritten.update(call, |row| row.state = CallState::Delivered);
        }
        unwritten.anything = true;
        unwritten.change.legs.push(leg);
    }

    /// A leg has come to its end, and its calls are opened. It is written with the next thing that is.
    pub fn leg_ended(&self, leg: LegRow) {
        let mut unwritten = self.lock();
        unwritten.anything = true;
        match unwritten.change.legs.iter_mut().find(|begun| begun.leg == leg.leg) {
            Some(begun) => *begun = leg,
            None => unwritten.change.legs.push(leg),
        }
    }

    pub fn opened(&self, row: CallRow) {
        let mut unwritten = self.lock();
        unwritten.anything = true;
        unwritten.known.insert(row.call, row.clone());
        unwritten.calls.insert(row.call, row);
    }

    pub fn cleared(&self, call: u32) {
        self.lock().update(call, |row| row.state = CallState::Cleared);
    }

    /// A call's end, in the order calls end in.
    pub fn settled(&self, call: u32, outcome: Option<String>, reply: StoredReply) {
        let mut unwritten = self.lock();
        // It may be heard of twice; the first time counts, and its cell may have seen it already.
        if unwritten.known.get(&call).is_some_and(|row| row.reply.is_some()) {
            return;
        }
        unwritten.settle_order += 1;
        let order = unwritten.settle_order;
        unwritten.update(call, |row| {
            row.state = CallState::Settled;
            row.settle_order = row.settle_order.or(Some(order));
            row.outcome = outcome;
            row.reply = Some(reply);
        });
    }

    pub fn entry(&self, entry: Entry) {
        let mut unwritten = self.lock();
        unwritten.anything = true;
        unwritten.change.entries.push(entry);
    }

    /// All calls there are, as they stand.
    pub fn calls(&self) -> Vec<CallRow> {
        self.lock().known.values().cloned().collect()
    }

    /// Whether any call is with somebody whose word comes through the store.
    pub fn waits_for_others(&self) -> bool {
        let with_others = |row: &CallRow| {
            matches!(row.state, CallState::Approval | CallState::Parked | CallState::Away) && row.outcome.is_none()
        };
        self.lock().known.values().any(with_others)
    }

    pub fn call(&self, call: u32) -> Option<CallRow> {
        self.lock().known.get(&call).cloned()
    }

    /// The call is about to be made. Where it may be repeated, a crash costs nothing and this waits for
    /// nothing; otherwise it is on the disk when this returns, with all that led to it.
    pub async fn intend(
        &self,
        call: u32,
        repeatable: bool,
        used_approvals: impl IntoIterator<Item = String>,
        change: impl FnOnce(&mut CallRow),
    ) -> Result<Receipt, CommitError> {
        let waits = {
            let mut unwritten = self.lock();
            unwritten.update(call, |row| {
                row.state = CallState::Dispatched;
                row.attempt += 1;
                change(row);
            });
            unwritten.change.used_approvals.extend(used_approvals);
            let waits = !repeatable || !unwritten.change.used_approvals.is_empty();
            unwritten.must_sync |= waits;
            if unwritten.lost {
                return Err(CommitError::Fenced);
            }
            waits
        };
        if waits {
            self.flush().await?;
        }
        self.still_ours().await?;
        Ok(Receipt(()))
    }

    /// Whoever may have slept past its lease asks before it acts.
    async fn still_ours(&self) -> Result<(), CommitError> {
        let Some(lease) = self.lease.as_ref().filter(|lease| !lease.lasts()) else { return Ok(()) };
        let held = self.held.lock().await;
        if self.store.hold_on(&held, lease.until_ms()).await? {
            return Ok(());
        }
        self.lock().lost = true;
        Err(CommitError::Fenced)
    }

    /// The run is another's: nothing more is done on its behalf here.
    pub fn lose(&self) {
        self.lock().lost = true;
    }

    /// Writes a call's new state at once, with whatever else goes with it. One that was settled meanwhile stays so: its
    /// cell may have seen the result already.
    pub async fn park(
        &self,
        call: u32,
        state: CallState,
        with: impl FnOnce(&mut CallRow, &mut Change),
    ) -> Result<(), CommitError> {
        {
            let mut unwritten = self.lock();
            unwritten.must_sync = true;
            unwritten.anything = true;
            let Unwritten { known, calls, change, .. } = &mut *unwritten;
            if let Some(row) = known.get_mut(&call).filter(|row| row.reply.is_none()) {
                row.state = state;
                with(row, change);
                calls.insert(call, row.clone());
            }
        }
        self.flush().await?;
        self.lock().unasked.remove(&call).map_or(Ok(()), |exceeded| Err(CommitError::Quota(exceeded)))
    }

    /// Writes the outcome of a call that is away, where nobody has written another and the run is still ours. Whether
    /// it counts.
    pub async fn settle_away(&self, call: u32, outcome: &str) -> Result<bool, CommitError> {
        let held = self.held.lock().await;
        if self.lock().lost {
            return Err(CommitError::Fenced);
        }
        self.store.settle_held(&held, call, outcome).await
    }

    /// Changes the run itself, and writes everything. Where a quota is in the way of its rest, all else is written.
    pub async fn commit(&self, durability: Durability, with: impl FnOnce(&mut Change)) -> Result<(), CommitError> {
        {
            let mut unwritten = self.lock();
            with(&mut unwritten.change);
            unwritten.anything = true;
            unwritten.must_sync |= durability == Durability::Synced;
        }
        self.flush().await?;
        self.lock().restless.take().map_or(Ok(()), |exceeded| Err(CommitError::Quota(exceeded)))
    }

    /// Writes what is unwritten. Whoever comes while another writes finds its own part written too.
    pub async fn flush(&self) -> Result<(), CommitError> {
        fault::point("journal.before_flush")?;
        let mut held = self.held.lock().await;
        let (mut change, durability) = {
            let mut unwritten = self.lock();
            if unwritten.lost {
                return Err(CommitError::Fenced);
            }
            if !unwritten.anything {
                return Ok(());
            }
            let mut change = std::mem::take(&mut unwritten.change);
            change.calls = std::mem::take(&mut unwritten.calls).into_values().collect();
            unwritten.anything = false;
            let must_sync = std::mem::take(&mut unwritten.must_sync);
            (change, if must_sync { Durability::Synced } else { Durability::Relaxed })
        };
        let mut written = self.store.commit(&mut held, &change, durability, now_ms()).await;
        while let Err(CommitError::Quota(exceeded)) = written {
            // Whoever it was for is told. Others' calls and results, in the same change, are none the worse.
            self.lock().leave_out(&mut change, exceeded);
            written = self.store.commit(&mut held, &change, durability, now_ms()).await;
        }
        if written.is_err() {
            // What was not written cannot be made up for: nothing more is done on this run's behalf here.
            self.lock().lost = true;
        }
        fault::point("journal.after_flush")?;
        written
    }

    /// Whether any tool was called.
    pub fn had_effects(&self) -> bool {
        self.lock().known.values().any(|row| row.attempt > 0)
    }

    /// Held for a look or a change, never across an await.
    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unwritten {
    fn update(&mut self, call: u32, change: impl FnOnce(&mut CallRow)) {
        let Some(row) = self.known.get_mut(&call) else { return };
        change(row);
        self.calls.insert(call, row.clone());
        self.anything = true;
    }

    /// Takes out of a change what there is no room for. Nothing of that kind is left in it.
    fn leave_out(&mut self, change: &mut Change, exceeded: Box<Exceeded>) {
        match exceeded.quota {
            Quota::OpenApprovals => {
                for asked in change.approvals.drain(..) {
                    let rows = change.calls.iter_mut().filter(|row| row.call == asked.call);
                    rows.chain(self.known.get_mut(&asked.call)).for_each(unask);
                    self.unasked.insert(asked.call, exceeded.clone());
                }
            }
            Quota::WaitingRuns | Quota::SnapshotBytes => {
                (change.state, change.snapshot, change.expires_at, change.release) = (None, None, None, false);
                // What was to be told is not.
                change.entries.retain(|entry| entry.kind != EntryKind::ControlResult);
                self.restless = Some(exceeded);
            }
        }
    }
}

/// Nobody is asked about the call. One that was made before, and came back with a question, must not look as if it were
/// still to be made; one that is under way stays so.
fn unask(row: &mut CallRow) {
    if row.state == CallState::Approval {
        row.state = if row.attempt > 0 { CallState::Dispatched } else { CallState::Requested };
    }
}
