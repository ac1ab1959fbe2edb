//! Records decisions on approvals.

use contract::limits::MAX_STANDING_RULES;
use sqlx::Row;

use super::read::{COLUMNS, read};
use super::rules::write_rule;
use super::{Approval, ApprovalState, Decision};
use crate::Millis;
use crate::backend::{Store, StoreError};
use crate::commit::Durability;

/// Why a decision was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    #[error("no such approval is pending: it was already decided or has expired, or its run has ended")]
    NotPending,
    #[error("the answer does not fit the question: {0}")]
    Unfit(String),
    #[error(
        "this agent already has the maximum of {MAX_STANDING_RULES} standing approvals; revoke one with `cellmate approvals rules revoke ID`, or approve this call once"
    )]
    TooManyRules,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for DecisionError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// Records a decision on a pending approval. Fails if it is already decided or expired, or its run has ended.
    pub async fn decide(
        &self,
        approval_id: &str,
        decision: &Decision,
        by: &str,
        now: Millis,
    ) -> Result<Approval, DecisionError> {
        let (state, note, edited) = match decision {
            Decision::Approve { edited_input, .. } => (ApprovalState::Approved, None, edited_input.clone()),
            Decision::Deny { note } => (ApprovalState::Denied, Some(note.clone()), None),
        };
        let mut transaction = self.writer(Durability::Synced).begin().await?;
        let decided = sqlx::query(
            "UPDATE approvals SET state = $1, decided_at = $2, decided_by = $3, note = $4, edited_input = $5 \
             WHERE approval_id = $6 AND state = 'pending' AND expires_at > $2 AND run_id IN \
             (SELECT run_id FROM runs WHERE state IN ('running', 'waiting'))",
        )
        .bind(state.as_str())
        .bind(now)
        .bind(by.to_owned())
        .bind(note)
        .bind(edited.map(|input| input.to_string()))
        .bind(approval_id.to_owned())
        .execute(&mut *transaction)
        .await?;
        if decided.rows_affected() != 1 {
            return Err(DecisionError::NotPending);
        }
        let row = sqlx::query(&format!("SELECT {COLUMNS} FROM approvals WHERE approval_id = $1"))
            .bind(approval_id.to_owned())
            .fetch_one(&mut *transaction)
            .await?;
        let approval = read(&row)?;
        if let Decision::Approve { reach, .. } = decision {
            write_rule(&mut transaction, &approval, *reach, by, now).await?;
        }
        self.notify_others(&mut transaction, &approval.run_id).await?;
        fault::point("decide.before_commit")?;
        if let Err(error) = fault::commit_answer(transaction.commit().await)
            && !self.was_decided(&approval, now).await?
        {
            return Err(error.into());
        }
        fault::point("decide.after_commit")?;
        Ok(approval)
    }

    /// Whether a decision whose commit was not confirmed is stored: by the same person, at the same time.
    async fn was_decided(&self, approval: &Approval, now: Millis) -> Result<bool, StoreError> {
        let row = sqlx::query(
            "SELECT COUNT(*) FROM approvals WHERE approval_id = $1 AND decided_by = $2 AND decided_at = $3",
        )
        .bind(approval.approval_id.clone())
        .bind(approval.decided_by.clone())
        .bind(now)
        .fetch_one(self.reader())
        .await?;
        Ok(row.try_get::<i64, _>(0)? == 1)
    }
}
