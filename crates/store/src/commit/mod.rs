//! Commits one change of one run atomically, and only for the process that holds the run.

pub(crate) mod recovery;
mod rows;
pub(crate) mod usage;

use crate::Millis;
use crate::approvals::{ApprovalRequest, requests};
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::locking::begin_write;
use crate::outputs::{self, NewOutput};
use crate::quota::{Claim, QuotaExceeded};
use crate::rows::{CallRow, LegRow, RunState};
use crate::runs::FencedRun;
use crate::seal::SealError;
use crate::session_values::{self, SessionKey, ValueWrite, VersionConflict};
use crate::sql::{read_again, read_again_since};
use crate::sqlite_writer::{Program, WriteError};
use crate::statement::{Mismatch, Step};
use crate::transcript::{self, NewEntry};
use crate::watch::notify_others;
use contract::ids::ApprovalId;
use contract::limits::{
    MAX_OPEN_TURNS, MAX_STORED_RESPONSE_BYTES, MAX_TURN_BYTES, MAX_TURN_DELIVERIES, MAX_TURN_STEPS,
};
use recovery::{AttemptError, AttemptedRow, CommitStatus, RetryState, resolve_attempt};
use rows::{Execution, call_statements, journal_of_row, leg_statements, run_step, store_catalog};
use usage::Claimant;

/// A change of a run. Fields that are `None` stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub state: Option<RunState>,
    pub expires_at: Option<Millis>,
    pub progress: Option<String>,
    /// The cell's snapshot after this leg; it replaces the previous snapshot.
    pub snapshot: Option<(i64, Vec<u8>)>,
    pub result: Option<String>,
    /// Release the lease, so that the next process can take the run at once.
    pub release: bool,
    pub legs: Vec<LegRow>,
    pub calls: Vec<CallRow>,
    /// How many bytes these calls add to the journal, as counted by [`CallRow::journal_bytes`].
    pub journal_bytes: i64,
    pub approvals: Vec<ApprovalRequest>,
    /// Ids of the approvals that this change uses; each can be used once.
    pub used_approvals: Vec<ApprovalId>,
    pub entries: Vec<NewEntry>,
    /// Outputs that are written whole with this change.
    pub outputs: Vec<NewOutput>,
    /// Names of outputs that an [`OutputWriter`](crate::OutputWriter) has written and that become visible.
    pub finished_outputs: Vec<String>,
    /// Values of the run's session that this change writes, in order.
    pub values: Vec<ValueWrite>,
}

/// What a commit reports about a change that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitReport {
    /// Conditional writes of session values that had no effect. The rest of the change was written.
    pub conflicts: Vec<VersionConflict>,
}

impl Change {
    /// Adds to the bytes by which this change grows the journal.
    pub fn grow(&mut self, bytes: usize) {
        self.journal_bytes = self.journal_bytes.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Whether every statement of the change is known before the transaction begins. The rest of the change depends on
    /// what is stored.
    fn needs_no_reading(&self) -> bool {
        let Self { approvals, used_approvals, outputs, finished_outputs, values, .. } = self;
        approvals.is_empty()
            && used_approvals.is_empty()
            && outputs.is_empty()
            && finished_outputs.is_empty()
            && values.is_empty()
    }
}

/// A limit of the turns of the gateway that a change would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnLimit {
    #[error("the turn has too many steps: it may have {MAX_TURN_STEPS}; continue the conversation with a new turn")]
    Steps,
    #[error("the turn needs too much storage: it may have {MAX_TURN_BYTES} bytes; continue with less in a new turn")]
    Bytes,
    #[error("the turn asks its client for too many calls: it may ask for {MAX_TURN_DELIVERIES}; start a new turn")]
    Deliveries,
    #[error(
        "too many turns wait for the client or for people: one principal may have {MAX_OPEN_TURNS}; answer or abort some of them, then try again"
    )]
    OpenTurns,
    #[error("the response is too large to be stored: it may have {MAX_STORED_RESPONSE_BYTES} bytes; ask for less")]
    ResponseBytes,
}

/// Why a change was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("another process has taken over the run, or the run has ended")]
    Fenced,
    #[error("an approval of this call was already used or withdrawn")]
    ApprovalGone,
    /// The change exceeds a quota. Nothing was written, and the run is unchanged.
    #[error(transparent)]
    Quota(Box<QuotaExceeded>),
    /// The change exceeds a limit of a turn. Nothing was written, and the turn is unchanged.
    #[error(transparent)]
    TurnLimit(#[from] TurnLimit),
    /// Nothing was written, and the turn is unchanged.
    #[error("another turn has sent a call of the run to the client")]
    DeliveredElsewhere,
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CommitError {
    /// Whether the text may contain internals, such as SQL and paths, that models and clients must not read.
    pub fn is_internal(&self) -> bool {
        match self {
            Self::Fenced | Self::ApprovalGone | Self::Quota(_) | Self::TurnLimit(_) | Self::DeliveredElsewhere => false,
            Self::Seal(_) | Self::Store(_) => true,
        }
    }
}

impl From<sqlx::Error> for CommitError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

pub(crate) async fn commit(
    backend: &Backend,
    held: &mut FencedRun,
    change: &Change,
    durability: Durability,
    now: Millis,
) -> Result<CommitReport, CommitError> {
    let sealed = match &change.snapshot {
        Some((leg, snapshot)) => Some((*leg, backend.keys.seal(snapshot, &held.binding(*leg))?)),
        None => None,
    };
    fault::point("commit.before_begin")?;
    let finished = read_again(|| outputs::stored_bytes(backend, &held.run_id, &change.finished_outputs)).await?;
    let claim = usage::claim_of(change, sealed.as_ref(), finished)
        .and_then(|claim| backend.deferred_bytes.due(&held.scope.agent_id, claim, &backend.quotas));
    let attempted = AttemptedRow {
        table: "runs",
        id_column: "run_id",
        id: &held.run_id,
        sequence: held.sequence,
        fence: held.fence,
    };
    let mut retry = RetryState::begin();
    let conflicts = loop {
        match write(backend, held, change, sealed.as_ref(), claim, durability, now).await {
            Ok(conflicts) => break Some(conflicts),
            Err(error) => match resolve_attempt(backend, &attempted, error, &mut retry).await? {
                CommitStatus::Written => break None,
                CommitStatus::NotWritten => {}
            },
        }
    };
    held.mark_written();
    fault::point("commit.after_commit")?;
    let conflicts = match conflicts {
        Some(conflicts) => conflicts,
        None => {
            let recorded = || session_values::conflicts(backend, &held.run_id, &change.values);
            read_again_since(retry.began(), recorded).await?
        }
    };
    Ok(CommitReport { conflicts })
}

/// Writes the change in one transaction.
async fn write(
    backend: &Backend,
    held: &FencedRun,
    change: &Change,
    sealed: Option<&(i64, Vec<u8>)>,
    claim: Option<Claim>,
    durability: Durability,
    now: Millis,
) -> Result<Vec<VersionConflict>, AttemptError> {
    if let Some(writer) = backend.sqlite_writer()
        && change.needs_no_reading()
    {
        let mut steps = first_steps(held, change, sealed, now, Execution::Planned)?;
        steps.extend(withdrawal(held, change));
        let added = claim.map(|claim| usage::addition(&held.scope.agent_id, claim, &backend.quotas, now));
        steps.extend(added.map(|added| Step::ChangeOne(added, Mismatch::Missing)));
        let entries = transcript::statements(&held.scope.session_id, &held.run_id, &change.entries);
        steps.extend(entries.map(Step::from));
        steps.push(Step::Point("commit.before_commit"));
        match writer.write(Program { steps, durability }).await {
            // The run's catalog is not stored, or the usage of the principal must be counted.
            Err(WriteError::Mismatch(Mismatch::Missing)) => {}
            Err(error) => return Err(error.into()),
            Ok(()) => return Ok(Vec::new()),
        }
    }
    let mut transaction = backend.writer(durability).begin().await?;
    for step in first_steps(held, change, sealed, now, Execution::Interactive)? {
        step.execute(&mut transaction).await?;
    }
    if let Some(run) = &held.unwritten {
        store_catalog(&mut transaction, run, now).await?;
    }
    requests::write(&mut transaction, held, &change.approvals).await?;
    if !requests::mark_used(&mut transaction, &change.used_approvals).await? {
        return Err(CommitError::ApprovalGone.into());
    }
    if let Some(step) = withdrawal(held, change) {
        step.execute(&mut transaction).await?;
    }
    outputs::write(&mut transaction, held, &change.outputs, &change.finished_outputs, now).await?;
    let mut conflicts = Vec::new();
    if !change.values.is_empty() {
        let session = SessionKey::from(&held.scope);
        let writer = (&session, &held.run_id);
        conflicts = session_values::write(&mut transaction, backend.dialect, writer, &change.values, now).await?;
        fault::point("values.in_transaction")?;
    }
    if let Some(claim) = claim {
        usage::take(&mut transaction, Claimant::from(held), claim, &backend.quotas, now).await?;
    }
    transcript::write(&mut transaction, backend.dialect, &held.scope.session_id, &held.run_id, &change.entries).await?;
    if change.state.is_some() || change.release {
        notify_others(backend, &mut transaction, &held.run_id).await?;
    }
    fault::point("commit.before_commit")?;
    let committed = fault::commit_result(transaction.commit().await);
    committed.map_err(|error| AttemptError::AtCommit(error.into()))?;
    Ok(conflicts)
}

/// Returns the steps that write the run, its legs and its calls.
fn first_steps<'a>(
    held: &'a FencedRun,
    change: &'a Change,
    sealed: Option<&'a (i64, Vec<u8>)>,
    now: Millis,
    execution: Execution,
) -> Result<Vec<Step<'a>>, StoreError> {
    let mut steps = Vec::new();
    if !held.is_written() {
        steps.push(Step::Point("exec.before_insert"));
    }
    let journal = journal_of_row(held, change)?;
    let has_rows = journal.is_none();
    steps.push(run_step(held, change, journal, sealed, now, execution));
    steps.push(Step::Point("commit.in_transaction"));
    if has_rows {
        steps.extend(leg_statements(&held.run_id, &change.legs).map(Step::from));
        steps.extend(call_statements(&held.run_id, &change.calls, execution)?.into_iter().map(Step::from));
    }
    Ok(steps)
}

/// Returns the step that withdraws the approvals of a run that ends. It must follow those that the change adds.
fn withdrawal<'a>(held: &'a FencedRun, change: &Change) -> Option<Step<'a>> {
    let is_over = change.state.is_some_and(RunState::is_over);
    // A run that is not stored yet has no approvals in the store.
    let may_have_some = held.is_written() || !change.approvals.is_empty();
    (is_over && may_have_some).then(|| requests::withdraw_all(&held.run_id).into())
}

/// Copies the values of a session to another one, within the quota of its principal, and returns how many.
pub(crate) async fn copy_values(
    backend: &Backend,
    from: &SessionKey,
    to: &SessionKey,
    now: Millis,
) -> Result<u64, CommitError> {
    let mut transaction = begin_write(backend, Durability::Synced).await?;
    let copied = session_values::copy(&mut transaction, backend.dialect, from, to, now).await?;
    if copied.keys > 0 {
        let claim = Claim { runs: 0, snapshot_bytes: 0, kept_bytes: copied.stored_bytes(), approvals: 0 };
        let claimant = Claimant { agent_id: &to.agent_id, run_id: None };
        usage::take(&mut transaction, claimant, claim, &backend.quotas, now).await?;
    }
    transaction.commit().await?;
    Ok(copied.keys)
}
