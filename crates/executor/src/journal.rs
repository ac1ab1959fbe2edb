//! What a run does, written down before it has an effect.
//!
//! Most of what happens can wait for the next commit: a leg, an answer from the catalog, the result of a tool
//! that only reads. What cannot wait takes everything before it along, so that the journal has no holes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::frame::Method;
use serde_json::json;
use store::{
    CallRow, CallState, Change, CommitError, Durability, Entry, EntryKind, Exceeded, FencedRun, JournalTotals, LegRow,
    Quota, RunState, Store, StoredReply};
use tokio::sync::Mutex as AsyncMutex;

use crate::clock::now_ms;
use crate::lease::LeaseClock;
use crate::totals::{JournalFull, NotOpened, Totals};

/// What may be unwritten before it is written without anybody's need: it takes memory.
const MAX_UNWRITTEN_BYTES: usize = 1 << 20;
const MAX_UNWRITTEN_CALLS: usize = 1_000;

#[derive(Debug)]
pub struct Journal {
    store: Store,
    run_id: String,
    /// Held by whoever writes: changes of a run are made one after the other.
    held: AsyncMutex<FencedRun>,
    unwritten: Mutex<Unwritten>,
    /// None where nobody could take the run without this holder's knowing.
    lease: Option<LeaseClock>,
}

#[derive(Debug, Default)]
struct Unwritten {
    change: Change,
    /// Calls whose rows have changed.
    changed: BTreeSet<u32>,
    /// Calls that the cell has not seen the end of, and those whose end is not written yet.
    known: BTreeMap<u32, Known>,
    totals: Totals,
    had_effects: bool,
    settle_order: i64,
    anything: bool,
    must_sync: bool,
    lost: bool,
    /// Calls that nobody can be asked about now, because too many are asked about already.
    approval_refused: BTreeMap<u32, Box<Exceeded>>,
    /// Why the run could not be put to rest.
    suspend_refused: Option<Box<Exceeded>>,
    /// Why nothing but the end of the run is written any more: its principal has no room for its journal.
    no_room: Option<Box<Exceeded>>,
}

#[derive(Debug)]
struct Known {
    row: CallRow,
    /// Its outcome is known. The row has the reply only until that is written.
    has_reply: bool,
    is_written: bool,
}

/// Proof that a call's intent is written down, or need not be yet. Only a journal makes one.
#[derive(Debug)]
pub struct Receipt(());

impl Journal {
    pub fn new(store: Store, held: FencedRun) -> Self {
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
    pub fn resumed(store: Store, held: FencedRun, calls: &[CallRow], totals: JournalTotals) -> Self {
        let journal = Self::new(store, held);
        {
            let mut unwritten = journal.lock();
            unwritten.settle_order = totals.settle_order;
            unwritten.had_effects = totals.had_effects;
            unwritten.totals = totals.into();
            let open = calls.iter().filter(|row| !is_done(row));
            let known = |row: &CallRow| {
                (row.call, Known { has_reply: row.reply.is_some(), is_written: true, row: row.clone() })
            };
            unwritten.known = open.map(known).collect();
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

    /// A call that its cell has just made. One that is refused is in the journal all the same, without its payload.
    pub fn opened(&self, mut row: CallRow) -> Result<(), NotOpened> {
        let mut unwritten = self.lock();
        let can_reject = ![Method::Timer, Method::Yield].iter().any(|method| method.as_str() == row.method);
        let opened = unwritten.totals.open(row.call, row.journal_bytes(), can_reject);
        match opened {
            Ok(()) => unwritten.change.grow(row.journal_bytes()),
            Err(NotOpened::Refused(_)) => {
                row.payload = String::new();
                unwritten.charge(row.journal_bytes());
            }
            Err(NotOpened::Spent(_) | NotOpened::Reused { .. }) => return opened,
        }
        unwritten.anything = true;
        unwritten.changed.insert(row.call);
        unwritten.known.insert(row.call, Known { row, has_reply: false, is_written: false });
        opened
    }

    /// Whether the journal can keep a reply of this length.
    pub fn has_room_for(&self, reply: usize) -> Result<(), JournalFull> {
        self.lock().totals.has_room_for(CallRow::reply_bytes(reply))
    }

    /// Whether so much is unwritten that it should be written now, to free the memory that it takes.
    pub fn is_due(&self) -> bool {
        let unwritten = self.lock();
        unwritten.changed.len() >= MAX_UNWRITTEN_CALLS
            || usize::try_from(unwritten.change.journal_bytes).unwrap_or(0) >= MAX_UNWRITTEN_BYTES
    }

    /// Drops the payload of a call that no tool is called for: its hash tells whether a leg that is run again makes the
    /// same call. What is written already stays.
    pub fn forget_payload(&self, call: u32) {
        let mut unwritten = self.lock();
        let Some(known) = unwritten.known.get_mut(&call).filter(|known| !known.is_written) else { return };
        let before = known.row.journal_bytes();
        known.row.payload = String::new();
        let freed = before - known.row.journal_bytes();
        unwritten.totals.give_back(freed);
        unwritten.change.journal_bytes -= i64::try_from(freed).unwrap_or(0);
    }

    pub fn cleared(&self, call: u32) {
        self.lock().update(call, |row| row.state = CallState::Cleared);
    }

    /// A call's end, in the order calls end in.
    pub fn settled(&self, call: u32, outcome: Option<String>, reply: StoredReply) {
        let mut unwritten = self.lock();
        // It may be heard of twice; the first time counts, and its cell may have seen it already.
        if unwritten.known.get(&call).is_none_or(|known| known.has_reply) {
            return;
        }
        let outcome_bytes = outcome.as_ref().map_or(0, String::len);
        unwritten.charge(CallRow::reply_bytes(reply.text().len()).saturating_add(outcome_bytes));
        unwritten.settle_order += 1;
        let order = unwritten.settle_order;
        unwritten.update(call, |row| {
            row.state = CallState::Settled;
            row.settle_order = row.settle_order.or(Some(order));
            row.outcome = outcome.or(row.outcome.take());
            row.reply = Some(reply);
        });
        if let Some(known) = unwritten.known.get_mut(&call) {
            known.has_reply = true;
        }
    }

    pub fn entry(&self, entry: Entry) {
        let mut unwritten = self.lock();
        unwritten.anything = true;
        unwritten.change.entries.push(entry);
    }

    /// The calls that the cell has not seen the end of, as they stand.
    pub fn calls(&self) -> Vec<CallRow> {
        self.lock().known.values().map(|known| known.row.clone()).collect()
    }

    /// Whether any call is with somebody whose word comes through the store.
    pub fn waits_for_others(&self) -> bool {
        let with_others = |Known { row, .. }: &Known| {
            matches!(row.state, CallState::Approval | CallState::Parked | CallState::Away) && row.outcome.is_none()
        };
        self.lock().known.values().any(with_others)
    }

    pub fn call(&self, call: u32) -> Option<CallRow> {
        self.lock().known.get(&call).map(|known| known.row.clone())
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
            unwritten.had_effects = true;
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
    pub fn mark_lost(&self) {
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
            let Unwritten { known, changed, change, .. } = &mut *unwritten;
            let mut grown = 0;
            if let Some(Known { row, .. }) = known.get_mut(&call).filter(|known| !known.has_reply) {
                let before = row.journal_bytes();
                row.state = state;
                with(row, change);
                changed.insert(call);
                grown = row.journal_bytes().saturating_sub(before);
            }
            unwritten.charge(grown);
        }
        self.flush().await?;
        self.lock().approval_refused.remove(&call).map_or(Ok(()), |exceeded| Err(CommitError::Quota(exceeded)))
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
        self.lock().suspend_refused.take().map_or(Ok(()), |exceeded| Err(CommitError::Quota(exceeded)))
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
            change.calls = unwritten.take_changed();
            unwritten.anything = false;
            let must_sync = std::mem::take(&mut unwritten.must_sync);
            (change, if must_sync { Durability::Synced } else { Durability::Relaxed })
        };
        self.lock().only_the_end(&mut change)?;
        let mut written = self.store.commit(&mut held, &change, durability, now_ms()).await;
        while let Err(CommitError::Quota(exceeded)) = written {
            // The caller that it was for gets an error. Other calls and results of the same change are written.
            self.lock().leave_out(&mut change, exceeded)?;
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
        self.lock().had_effects
    }

    /// Held for a look or a change, never across an await.
    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unwritten {
    fn update(&mut self, call: u32, change: impl FnOnce(&mut CallRow)) {
        let Some(Known { row, .. }) = self.known.get_mut(&call) else { return };
        let before = row.input.as_ref().map_or(0, String::len);
        change(row);
        let grown = row.input.as_ref().map_or(0, String::len).saturating_sub(before);
        self.changed.insert(call);
        self.anything = true;
        self.charge(grown);
    }

    fn charge(&mut self, bytes: usize) {
        self.totals.add(bytes);
        self.change.grow(bytes);
    }

    /// The rows to be written. What nobody needs once it is written is not kept: calls that the cell has seen the end
    /// of, payloads and replies of those whose end it is about to see.
    fn take_changed(&mut self) -> Vec<CallRow> {
        let mut rows = Vec::with_capacity(self.changed.len());
        for call in std::mem::take(&mut self.changed) {
            let Some(known) = self.known.get_mut(&call) else { continue };
            known.is_written = true;
            if is_done(&known.row) {
                rows.extend(self.known.remove(&call).map(|known| known.row));
            } else if known.has_reply {
                let row = &mut known.row;
                let (payload, reply) = (std::mem::take(&mut row.payload), row.reply.take());
                rows.push(CallRow { payload, reply, outcome: row.outcome.take(), ..row.clone() });
            } else {
                rows.push(known.row.clone());
            }
        }
        rows
    }

    /// Takes out of a change what there is no room for. Nothing of that kind is left in it.
    fn leave_out(&mut self, change: &mut Change, exceeded: Box<Exceeded>) -> Result<(), CommitError> {
        match exceeded.quota {
            Quota::OpenApprovals => {
                for asked in change.approvals.drain(..) {
                    let rows = change.calls.iter_mut().filter(|row| row.call == asked.call);
                    rows.chain(self.known.get_mut(&asked.call).map(|known| &mut known.row)).for_each(unask);
                    self.approval_refused.insert(asked.call, exceeded.clone());
                }
            }
            Quota::StoredBytes if change.snapshot.is_none() => {
                self.no_room = Some(exceeded);
                self.only_the_end(change)?;
            }
            Quota::WaitingRuns | Quota::StoredBytes => {
                (change.state, change.snapshot, change.expires_at, change.release) = (None, None, None, false);
                // What was to be told is not.
                change.entries.retain(|entry| entry.kind != EntryKind::ControlResult);
                self.suspend_refused = Some(exceeded);
            }
        }
        Ok(())
    }

    /// Where there is no room for the journal, the run ends: its end is written, and nothing else of it.
    fn only_the_end(&self, change: &mut Change) -> Result<(), CommitError> {
        let Some(exceeded) = &self.no_room else { return Ok(()) };
        if !change.state.is_some_and(RunState::is_over) {
            return Err(CommitError::Quota(exceeded.clone()));
        }
        change.calls.clear();
        change.legs.clear();
        change.journal_bytes = 0;
        change.entries.retain(|entry| !matches!(entry.kind, EntryKind::ToolCall | EntryKind::ToolResult));
        let entry = json!({"note": "journal_not_kept", "why": exceeded.to_string()});
        change.entries.push(Entry { at: now_ms(), kind: EntryKind::Note, entry });
        Ok(())
    }
}

/// Whether nothing becomes of the call any more. One that was cleared may still be at work, unless it is a timer.
fn is_done(row: &CallRow) -> bool {
    match row.state {
        CallState::Delivered => true,
        CallState::Cleared => row.method == Method::Timer.as_str(),
        _ => false,
    }
}

/// Nobody is asked about the call. One that was made before, and came back with a question, must not look as if it were
/// still to be made; one that is under way stays so.
fn unask(row: &mut CallRow) {
    if row.state == CallState::Approval {
        row.state = if row.attempt > 0 { CallState::Dispatched } else { CallState::Requested };
    }
}
