//! One change of one run: everything it writes, or nothing, and only by whoever holds the run.

mod lost;
mod rows;

use crate::approvals::ApprovalRequest;
use crate::backend::{Store, StoreError};
use crate::quota::{Claim, Exceeded};
use crate::rows::{CallRow, LegRow, RunState};
use crate::runs::FencedRun;
use crate::seal::Unsealable;
use crate::transcript::Entry;
use crate::{Millis, approvals, fault, quota, transcript};
use lost::{Failed, Found, Patience};
use rows::{write_calls, write_legs};

pub(crate) use lost::passes;
pub(crate) use rows::{ROWS_A_STATEMENT, list, places};

/// What a commit must outlive before it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A loss of power: owed before anything that must not happen twice, and before a person is asked.
    #[default]
    Synced,
    /// The end of the process.
    Relaxed,
}

/// What changes. Fields left out stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub state: Option<RunState>,
    pub expires_at: Option<Millis>,
    pub progress: Option<String>,
    /// The cell, frozen after this leg. It replaces the one before.
    pub snapshot: Option<(i64, Vec<u8>)>,
    pub result: Option<String>,
    /// Nobody works on the run any more: the next to ask may take it at once.
    pub release: bool,
    pub legs: Vec<LegRow>,
    pub calls: Vec<CallRow>,
    /// How many bytes the journal grows by with these calls, as [`CallRow::journal_bytes`] counts them.
    pub journal_bytes: i64,
    pub approvals: Vec<ApprovalRequest>,
    /// Approvals that this change makes use of; each can be used once.
    pub used_approvals: Vec<String>,
    pub entries: Vec<Entry>,
}

impl Change {
    /// Counts bytes of calls that go into the journal with this change.
    pub fn grow(&mut self, bytes: usize) {
        self.journal_bytes = self.journal_bytes.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("the run has been taken over, or has ended")]
    Fenced,
    #[error("an approval was used before, or withdrawn")]
    ApprovalGone,
    /// Nothing was written, and the run is as it was.
    #[error(transparent)]
    Quota(Box<Exceeded>),
    #[error(transparent)]
    Seal(#[from] Unsealable),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for CommitError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// Writes a change. The run's sequence moves by one; where it is not where the holder left it, or the
    /// fence is another's, nothing is written. A server that is away for a moment is waited for; a commit whose
    /// answer was lost is looked for, never repeated before it is known not to be there.
    pub async fn commit(
        &self,
        held: &mut FencedRun,
        change: &Change,
        durability: Durability,
        now: Millis,
    ) -> Result<(), CommitError> {
        let sealed = match &change.snapshot {
            Some((leg, snapshot)) => Some((*leg, self.keys.seal(snapshot, &held.binding(*leg))?)),
            None => None,
        };
        fault::point("commit.before_begin")?;
        let claim = Claim::of(change, sealed.as_ref())
            .and_then(|claim| self.deferred_bytes.due(&held.scope.agent_id, claim, &self.quotas));
        let mut patience = Patience::begin();
        while let Err(error) = self.write(held, change, sealed.as_ref(), claim, durability, now).await {
            match self.look_for(held, error, &mut patience).await? {
                Found::Written => break,
                Found::Nothing => {}
            }
        }
        held.moved_on();
        fault::point("commit.after_commit")?;
        Ok(())
    }

    async fn write(
        &self,
        held: &FencedRun,
        change: &Change,
        sealed: Option<&(i64, Vec<u8>)>,
        claim: Option<Claim>,
        durability: Durability,
        now: Millis,
    ) -> Result<(), Failed> {
        let mut transaction = self.writer(durability).begin().await?;
        if !held.is_written() {
            fault::point("exec.before_insert")?;
        }
        held.move_on(&mut transaction, change, sealed, now).await?;
        fault::point("commit.in_transaction")?;
        write_legs(&mut transaction, &held.run_id, &change.legs).await?;
        write_calls(&mut transaction, &held.run_id, &change.calls).await?;
        approvals::write(&mut transaction, held, &change.approvals).await?;
        approvals::mark_used(&mut transaction, &change.used_approvals).await?;
        if change.state.is_some_and(RunState::is_over) {
            approvals::withdraw(&mut transaction, &held.run_id).await?;
        }
        if let Some(claim) = claim {
            quota::take(&mut transaction, held, claim, &self.quotas, now).await?;
        }
        transcript::write(&mut transaction, self.dialect, &held.scope.session_id, &held.run_id, &change.entries)
            .await?;
        if change.state.is_some() || change.release {
            self.tell_others(&mut transaction, &held.run_id).await?;
        }
        fault::point("commit.before_commit")?;
        fault::answered(transaction.commit().await).map_err(Failed::AtItsEnd)
    }
}
