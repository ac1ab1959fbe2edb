//! The journal of a run: records what the run does before it has an effect.
//!
//! Most records can wait for the next commit: a leg, an answer from the catalog, the result of a tool that only reads.
//! A record that cannot wait is committed with everything before it, so the journal has no gaps.

mod totals;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use contract::frame::Method;
use contract::ids::{ApprovalId, CallId, RunId};
use contract::tool::Repeat;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use store::{
    CallRow, CallState, Change, CommitError, Durability, EntryKind, FencedRun, JournalTotals, LegRow, Millis, NewEntry,
    NewOutput, OutputWriter, Quota, QuotaExceeded, RunState, SessionKey, Store, StoreError, StoredReply, ValueWrite,
    VersionConflict,
};
use tokio::sync::Mutex as AsyncMutex;

use crate::clock::{LeaseClock, now_ms};
use totals::{CallKind, Totals};
use values::Values;

pub use totals::{JournalFull, OpenError};
pub use values::UncommittedValue;

/// Unwritten records are flushed beyond these limits even if no call needs it, because they take memory.
const MAX_UNWRITTEN_BYTES: usize = 1 << 20;
const MAX_UNWRITTEN_CALLS: usize = 1_000;

/// The journal of one run: changes that are collected in memory and written to the store in one commit.
#[derive(Debug)]
pub struct Journal {
    store: Store,
    run_id: RunId,
    session: SessionKey,
    /// Locked while writing: changes of a run are committed one at a time.
    held: AsyncMutex<FencedRun>,
    unwritten: Mutex<UnwrittenChanges>,
    /// `None` if no other process can take over the run unnoticed.
    lease: Option<LeaseClock>,
    /// The bytes of tools' results that the run has stored; `None` until they are needed.
    stored_results: AsyncMutex<Option<u64>>,
}

#[derive(Debug, Default)]
struct UnwrittenChanges {
    change: Change,
    /// Calls whose rows have changed.
    changed: BTreeSet<CallId>,
    /// Calls whose outcome was not delivered to the cell yet, and those whose outcome is not written yet.
    known: BTreeMap<CallId, OpenCall>,
    totals: Totals,
    /// Session values that the run has written.
    values: Values,
    had_effects: bool,
    settle_order: i64,
    anything: bool,
    must_sync: bool,
    lost: bool,
    /// Calls whose approval request was refused, because too many requests are open.
    approval_refused: BTreeMap<CallId, Box<QuotaExceeded>>,
    /// Outputs that were not completed, because the principal's quota has no space for them.
    outputs_refused: BTreeMap<String, Box<QuotaExceeded>>,
    /// Why the run could not be suspended.
    suspend_refused: Option<Box<QuotaExceeded>>,
    /// Why only the end of the run is written from now on: its principal's quota has no space for its journal.
    journal_refused: Option<Box<QuotaExceeded>>,
}

#[derive(Debug)]
struct OpenCall {
    row: CallRow,
    /// Whether the reply is known. The row holds the reply only until it is written.
    has_reply: bool,
    is_written: bool,
}

/// Proof that a call's intent is written, or need not be written yet. Only a journal creates one.
#[derive(Debug)]
pub struct IntentReceipt(());

impl Journal {
    pub fn new(store: Store, held: FencedRun) -> Self {
        Self {
            store,
            run_id: held.run_id.clone(),
            session: SessionKey::from(&held.scope),
            held: AsyncMutex::new(held),
            unwritten: Mutex::default(),
            lease: None,
            stored_results: AsyncMutex::default(),
        }
    }

    /// Sets the lease. Calls are made only while it lasts, or after the store has confirmed that this process still
    /// holds the run.
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseClock) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Continues a journal that is already in the store.
    pub fn resumed(store: Store, held: FencedRun, calls: &[CallRow], totals: JournalTotals) -> Self {
        let journal = Self::new(store, held);
        {
            let mut unwritten = journal.lock();
            unwritten.settle_order = totals.settle_order;
            unwritten.had_effects = totals.had_effects;
            unwritten.totals = totals.into();
            let open = calls.iter().filter(|row| !is_done(row));
            let known = |row: &CallRow| {
                (row.call, OpenCall { has_reply: row.reply.is_some(), is_written: true, row: row.clone() })
            };
            unwritten.known = open.map(known).collect();
        }
        journal
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Returns the session whose values the run reads and writes: that of the scope that it was started from.
    pub fn session(&self) -> &SessionKey {
        &self.session
    }

    /// Records that a leg has started, and that its replies were delivered to the cell.
    pub fn leg(&self, leg: LegRow) {
        let mut unwritten = self.lock();
        let delivered = leg.replies.clone();
        for call in delivered {
            unwritten.update(call, |row| row.state = CallState::Delivered);
        }
        unwritten.anything = true;
        unwritten.change.legs.push(leg);
    }

    /// Records that a leg has ended, after its calls were opened. It is written with the next commit.
    pub fn leg_ended(&self, leg: LegRow) {
        let mut unwritten = self.lock();
        unwritten.anything = true;
        match unwritten.change.legs.iter_mut().find(|begun| begun.leg == leg.leg) {
            Some(begun) => *begun = leg,
            None => unwritten.change.legs.push(leg),
        }
    }

    /// Records a call that the cell has just made. A refused call is recorded too, without its payload.
    pub fn opened(&self, mut row: CallRow) -> Result<(), OpenError> {
        let mut unwritten = self.lock();
        let cannot_reject = [Method::Timer, Method::Yield].iter().any(|method| method.as_str() == row.method);
        let kind = if cannot_reject { CallKind::NonRejecting } else { CallKind::Request };
        let opened = unwritten.totals.count_call(row.call, row.journal_bytes(), kind);
        match opened {
            Ok(()) => unwritten.change.grow(row.journal_bytes()),
            Err(OpenError::Refused(_)) => {
                row.payload = String::new();
                unwritten.charge(row.journal_bytes());
            }
            Err(OpenError::TooManyRefused(_) | OpenError::CannotReject(_) | OpenError::IdNotIncreasing { .. }) => {
                return opened;
            }
        }
        unwritten.anything = true;
        unwritten.changed.insert(row.call);
        unwritten.known.insert(row.call, OpenCall { row, has_reply: false, is_written: false });
        opened
    }

    /// Checks that the journal has space for this many bytes.
    pub fn check_room_for(&self, bytes: usize) -> Result<(), JournalFull> {
        self.lock().totals.check_room_for(bytes)
    }

    /// Checks that the journal has space for a reply of this length to a call, and for its transcript entry.
    pub fn check_room_for_reply(&self, call: CallId, length: usize) -> Result<(), JournalFull> {
        let unwritten = self.lock();
        let bytes = unwritten.known.get(&call).map_or(length, |known| known.row.reply_bytes(length));
        unwritten.totals.check_room_for(bytes)
    }

    /// Returns whether there are so many unwritten records that they should be written now, to free their memory.
    pub fn is_due(&self) -> bool {
        let unwritten = self.lock();
        unwritten.changed.len() >= MAX_UNWRITTEN_CALLS
            || usize::try_from(unwritten.change.journal_bytes).unwrap_or(0) + unwritten.values.bytes()
                >= MAX_UNWRITTEN_BYTES
    }

    /// Drops the payload of a call that does not call a tool. Its hash is enough to check that a replayed leg makes the
    /// same call. A payload that was already written stays.
    pub fn forget_payload(&self, call: CallId) {
        self.lock().forget_payload(call);
    }

    /// Records that the cell has cleared the call, such as a timer.
    pub fn cleared(&self, call: CallId) {
        self.lock().update(call, |row| row.state = CallState::Cleared);
    }

    /// Records the outcome of a call, and its position in the order in which calls settle.
    pub fn settled(&self, call: CallId, outcome: Option<String>, reply: StoredReply) {
        self.lock().settle(call, outcome, reply);
    }

    /// Returns what the run has set under a key, if that is not in the store yet.
    pub fn uncommitted_value(&self, key: &str) -> Option<UncommittedValue> {
        self.lock().values.get(key).cloned()
    }

    /// Returns the keys that the run has set and that are not in the store yet, with the bytes and versions of their
    /// values. A deleted key has no bytes.
    pub fn uncommitted_keys(&self) -> Vec<(String, Option<usize>, String)> {
        let unwritten = self.lock();
        let key = |(key, last): (&str, &UncommittedValue)| {
            (key.to_owned(), last.value.as_ref().map(String::len), last.version.clone())
        };
        unwritten.values.iter().map(key).collect()
    }

    /// Returns how many commits of this run have written session values.
    pub fn value_commits(&self) -> u64 {
        self.lock().values.commits()
    }

    /// Records an unconditional write of a session value and the reply to the call that makes it. Both are part of the
    /// next commit: if it is lost, the call is made again and writes the same version.
    pub fn write_value(&self, call: CallId, write: ValueWrite, reply: StoredReply) {
        let mut unwritten = self.lock();
        unwritten.forget_payload(call);
        let UnwrittenChanges { values, change, .. } = &mut *unwritten;
        values.add(change, write);
        unwritten.must_sync = true;
        unwritten.settle(call, None, reply);
    }

    /// Writes a session value at once, if the key has the expected version. Returns the conflict if it has not.
    ///
    /// The store keeps the decision with the write. If the reply to the call is lost, the call is made again, and the
    /// same write gets the same decision.
    pub async fn write_value_if(&self, write: ValueWrite) -> Result<Option<VersionConflict>, CommitError> {
        let version = write.version.clone();
        {
            let mut unwritten = self.lock();
            unwritten.change.values.push(write);
            unwritten.must_sync = true;
            unwritten.anything = true;
        }
        self.flush().await?;
        Ok(self.lock().values.take_conflict(&version))
    }

    /// Returns the calls that were dispatched to tools, and that are not in the store yet or have changed since.
    pub fn unwritten_dispatches(&self) -> Vec<CallRow> {
        let unwritten = self.lock();
        let rows = unwritten.known.values().map(|known| &known.row).filter(|row| row.attempt > 0);
        // The texts may be large; only the reply tells how the call ended.
        let without_texts =
            |row: &CallRow| CallRow { payload: String::new(), input: None, outcome: None, ticket: None, ..row.clone() };
        rows.map(without_texts).collect()
    }

    /// Adds an entry to the transcript.
    pub fn entry(&self, entry: NewEntry) {
        let mut unwritten = self.lock();
        unwritten.anything = true;
        unwritten.change.entries.push(entry);
    }

    /// Returns the calls that are not finished for the cell, in their current state.
    pub fn calls(&self) -> Vec<CallRow> {
        self.lock().known.values().map(|known| known.row.clone()).collect()
    }

    /// Returns whether any call waits for a decision or an outcome that arrives through the store.
    pub fn waits_for_others(&self) -> bool {
        let with_others = |OpenCall { row, .. }: &OpenCall| {
            matches!(row.state, CallState::Approval | CallState::Parked | CallState::Away) && row.outcome.is_none()
        };
        self.lock().known.values().any(with_others)
    }

    pub fn call(&self, call: CallId) -> Option<CallRow> {
        self.lock().known.get(&call).map(|known| known.row.clone())
    }

    /// Returns the control call that a call belongs to.
    pub fn parent_of(&self, call: CallId) -> Option<String> {
        self.lock().known.get(&call).map(|known| known.row.parent.clone())
    }

    /// Returns when the cell made a call.
    pub fn since(&self, call: CallId) -> Option<Millis> {
        self.lock().known.get(&call).map(|known| known.row.since)
    }

    /// Records that a call is about to be dispatched.
    ///
    /// If the tool may be called twice, a crash does no harm and this does not wait for the disk. Otherwise the intent is
    /// on the disk when this returns, with everything that led to it.
    pub async fn intend(
        &self,
        call: CallId,
        repeat: Repeat,
        used_approvals: impl IntoIterator<Item = ApprovalId>,
        change: impl FnOnce(&mut CallRow),
    ) -> Result<IntentReceipt, CommitError> {
        let waits = {
            let mut unwritten = self.lock();
            unwritten.update(call, |row| {
                row.state = CallState::Dispatched;
                row.attempt += 1;
                change(row);
            });
            unwritten.had_effects |= repeat != Repeat::Always;
            unwritten.change.used_approvals.extend(used_approvals);
            let waits = repeat == Repeat::Never || !unwritten.change.used_approvals.is_empty();
            unwritten.must_sync |= waits;
            if unwritten.lost {
                return Err(CommitError::Fenced);
            }
            waits
        };
        if waits {
            // On the heap, because most calls do not need it.
            Box::pin(self.flush()).await?;
        }
        self.confirm_lease().await?;
        Ok(IntentReceipt(()))
    }

    /// Asks the store whether this process still holds the run, if the lease may have expired.
    async fn confirm_lease(&self) -> Result<(), CommitError> {
        let Some(lease) = self.lease.as_ref().filter(|lease| !lease.lasts()) else { return Ok(()) };
        let held = self.held.lock().await;
        if Box::pin(self.store.extend_lease(&held, lease.until_ms())).await? {
            return Ok(());
        }
        self.lock().lost = true;
        Err(CommitError::Fenced)
    }

    /// Marks the run as taken over by another process: this journal writes nothing more.
    pub fn mark_lost(&self) {
        self.lock().lost = true;
    }

    /// Writes a call's new state at once, together with the given changes. A call that has settled in between stays
    /// settled: the cell may have seen the result already.
    pub async fn park(
        &self,
        call: CallId,
        state: CallState,
        with: impl FnOnce(&mut CallRow, &mut Change),
    ) -> Result<(), CommitError> {
        {
            let mut unwritten = self.lock();
            unwritten.must_sync = true;
            unwritten.anything = true;
            let UnwrittenChanges { known, changed, change, .. } = &mut *unwritten;
            let mut grown = 0;
            if let Some(OpenCall { row, .. }) = known.get_mut(&call).filter(|known| !known.has_reply) {
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

    /// Writes the outcome of a followed call, if this process still holds the run. Returns false if another outcome was
    /// stored before.
    pub async fn settle_away(&self, call: CallId, outcome: &str) -> Result<bool, CommitError> {
        let held = self.held.lock().await;
        if self.lock().lost {
            return Err(CommitError::Fenced);
        }
        self.store.settle_held(&held, call, outcome).await
    }

    /// Changes the run itself, and writes everything. If a quota does not allow the run to be suspended, everything
    /// else is written.
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

    /// Reserves bytes of the limit on the results that this run stores. Returns false if they do not fit.
    pub async fn reserve_stored_result(&self, bytes: u64, limit: u64) -> Result<bool, StoreError> {
        let mut stored = self.stored_results.lock().await;
        let before = match *stored {
            Some(before) => before,
            None => {
                let outputs = self.store.outputs_of_run(&self.run_id).await?;
                outputs.iter().filter(|output| output.source.is_some()).map(|output| output.bytes).sum()
            }
        };
        let after = before.saturating_add(bytes);
        *stored = Some(if after <= limit { after } else { before });
        Ok(after <= limit)
    }

    /// Gives back bytes that were reserved for a result that was not stored.
    pub async fn release_stored_result(&self, bytes: u64) {
        let mut stored = self.stored_results.lock().await;
        *stored = stored.map(|before| before.saturating_sub(bytes));
    }

    /// Starts to write an output of this run piece by piece. It becomes visible with [`Self::finish_outputs`].
    pub async fn output_writer(&self, output: &NewOutput) -> Result<OutputWriter, CommitError> {
        // The run itself may not be in the store yet.
        self.flush().await?;
        let held = self.held.lock().await;
        Ok(self.store.output_writer(&held, output, now_ms())?)
    }

    /// Makes outputs visible that were written piece by piece, and writes everything else. If the quota has no space for
    /// them, only everything else is written.
    pub async fn finish_outputs(&self, names: Vec<String>) -> Result<(), CommitError> {
        {
            let mut unwritten = self.lock();
            unwritten.change.finished_outputs.extend(names.iter().cloned());
            unwritten.anything = true;
        }
        self.flush().await?;
        let mut unwritten = self.lock();
        let refused = names.iter().filter_map(|name| unwritten.outputs_refused.remove(name)).last();
        refused.map_or(Ok(()), |exceeded| Err(CommitError::Quota(exceeded)))
    }

    /// Reads the run's snapshot from the store; `None` if it has none.
    pub async fn snapshot(&self) -> Result<Option<Vec<u8>>, CommitError> {
        let Some(row) = self.store.run(&self.run_id).await? else { return Ok(None) };
        let held = self.held.lock().await;
        Ok(self.store.open_snapshot(&held, &row)?)
    }

    /// Writes all unwritten records. Concurrent callers wait for each other; one commit may write the records of
    /// several.
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
            unwritten.values.begin_commit();
            unwritten.anything = false;
            let must_sync = std::mem::take(&mut unwritten.must_sync);
            (change, if must_sync { Durability::Synced } else { Durability::Relaxed })
        };
        self.lock().reduce_to_end(&mut change)?;
        let mut written = self.store.commit(&mut held, &change, durability, now_ms()).await;
        while let Err(CommitError::Quota(exceeded)) = written {
            // The affected caller gets an error. Other calls and results of the same change are written.
            self.lock().drop_over_quota(&mut change, exceeded)?;
            written = self.store.commit(&mut held, &change, durability, now_ms()).await;
        }
        match &mut written {
            Ok(committed) => self.lock().values.end_commit(&change, std::mem::take(&mut committed.conflicts)),
            // A failed write cannot be repeated later, so this process does nothing more for the run.
            Err(_) => self.lock().lost = true,
        }
        fault::point("journal.after_flush")?;
        written.map(|_| ())
    }

    /// Returns whether any tool was called that may change something.
    pub fn had_effects(&self) -> bool {
        self.lock().had_effects
    }

    /// Locks the unwritten records. The guard is never held across an await.
    fn lock(&self) -> MutexGuard<'_, UnwrittenChanges> {
        self.unwritten.lock()
    }
}

impl UnwrittenChanges {
    fn update(&mut self, call: CallId, change: impl FnOnce(&mut CallRow)) {
        let Some(OpenCall { row, .. }) = self.known.get_mut(&call) else { return };
        let before = row.input.as_ref().map_or(0, String::len);
        change(row);
        let grown = row.input.as_ref().map_or(0, String::len).saturating_sub(before);
        self.changed.insert(call);
        self.anything = true;
        self.charge(grown);
    }

    fn settle(&mut self, call: CallId, outcome: Option<String>, reply: StoredReply) {
        // An outcome may arrive twice. The first one wins, because the cell may have seen it already.
        let Some(known) = self.known.get(&call).filter(|known| !known.has_reply) else { return };
        let reply_bytes = known.row.reply_bytes(reply.text().len());
        self.charge(reply_bytes.saturating_add(outcome.as_ref().map_or(0, String::len)));
        self.settle_order += 1;
        let order = self.settle_order;
        self.update(call, |row| {
            row.state = CallState::Settled;
            row.settle_order = row.settle_order.or(Some(order));
            row.outcome = outcome.or(row.outcome.take());
            row.reply = Some(reply);
        });
        if let Some(known) = self.known.get_mut(&call) {
            known.has_reply = true;
        }
    }

    fn forget_payload(&mut self, call: CallId) {
        let Some(known) = self.known.get_mut(&call).filter(|known| !known.is_written) else { return };
        let before = known.row.journal_bytes();
        known.row.payload = String::new();
        let freed = before - known.row.journal_bytes();
        self.give_back(freed);
    }

    fn charge(&mut self, bytes: usize) {
        self.totals.add(bytes);
        self.change.grow(bytes);
    }

    fn give_back(&mut self, bytes: usize) {
        self.totals.subtract(bytes);
        self.change.journal_bytes -= i64::try_from(bytes).unwrap_or(0);
    }

    /// Returns the rows to write, and frees what is not needed after that: calls that the cell has finished with, and
    /// payloads and replies of calls that are about to be delivered.
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

    /// Removes from a change everything that the exceeded quota limits.
    fn drop_over_quota(&mut self, change: &mut Change, exceeded: Box<QuotaExceeded>) -> Result<(), CommitError> {
        match exceeded.quota {
            Quota::OpenApprovals => {
                for asked in change.approvals.drain(..) {
                    let rows = change.calls.iter_mut().filter(|row| row.call == asked.call);
                    rows.chain(self.known.get_mut(&asked.call).map(|known| &mut known.row))
                        .for_each(reset_refused_approval);
                    self.approval_refused.insert(asked.call, exceeded.clone());
                }
            }
            Quota::StoredBytes if !change.finished_outputs.is_empty() => {
                let refused = change.finished_outputs.drain(..).map(|name| (name, exceeded.clone()));
                self.outputs_refused.extend(refused);
            }
            Quota::StoredBytes if change.snapshot.is_none() && change.outputs.is_empty() => {
                self.journal_refused = Some(exceeded);
                self.reduce_to_end(change)?;
            }
            Quota::WaitingRuns | Quota::StoredBytes => {
                (change.state, change.snapshot, change.expires_at, change.release) = (None, None, None, false);
                change.result = None;
                change.outputs.clear();
                // The result was not returned to the model, so the transcript must not have it.
                change.entries.retain(|entry| entry.kind != EntryKind::ControlResult);
                self.suspend_refused = Some(exceeded);
            }
        }
        Ok(())
    }

    /// If the quota has no space for the journal, reduces a change to the end of the run. Fails if the change does not
    /// end the run, or if it writes session values: the end that it reports would say that they are stored.
    fn reduce_to_end(&self, change: &mut Change) -> Result<(), CommitError> {
        let Some(exceeded) = &self.journal_refused else { return Ok(()) };
        if !change.state.is_some_and(RunState::is_over) || !change.values.is_empty() {
            return Err(CommitError::Quota(exceeded.clone()));
        }
        change.calls.clear();
        change.legs.clear();
        change.finished_outputs.clear();
        change.journal_bytes = 0;
        change.entries.retain(|entry| !matches!(entry.kind, EntryKind::ToolCall | EntryKind::ToolResult));
        let entry = json!({"note": "journal_not_kept", "why": exceeded.to_string()});
        change.entries.push(NewEntry::new(now_ms(), EntryKind::Note, &entry));
        Ok(())
    }
}

/// Returns whether the call is finished. A cleared call may still be in progress, unless it is a timer.
fn is_done(row: &CallRow) -> bool {
    match row.state {
        CallState::Delivered => true,
        CallState::Cleared => row.method == Method::Timer.as_str(),
        _ => false,
    }
}

/// Resets the state of a call whose approval request was refused. A call that was dispatched before and returned a
/// question must not look as if it had not been dispatched; one that is in progress stays so.
fn reset_refused_approval(row: &mut CallRow) {
    if row.state == CallState::Approval {
        row.state = if row.attempt > 0 { CallState::Dispatched } else { CallState::Requested };
    }
}
