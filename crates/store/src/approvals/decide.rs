//! A person's word, taken down.

use super::read::{COLUMNS, read};
use super::rules::write_rule;
use super::{Approval, ApprovalState, Decision};
use crate::Millis;
use crate::backend::{Store, StoreError};
use crate::commit::Durability;

#[derive(Debug, thiserror::Error)]
pub enum DecisionRefused {
    #[error("no approval of that name is pending: it was decided before, its time is over, or its run is")]
    NotPending,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for DecisionRefused {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// Records a person's word. It counts once, while it is asked for, and before its time is over.
    pub async fn decide(
        &self,
        approval_id: &str,
        decision: &Decision,
        by: &str,
        now: Millis,
    ) -> Result<Approval, DecisionRefused> {
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
            return Err(DecisionRefused::NotPending);
        }
        let row = sqlx::query(&format!("SELECT {COLUMNS} FROM approvals WHERE approval_id = $1"))
            .bind(approval_id.to_owned())
            .fetch_one(&mut *transaction)
            .await?;
        let approval = read(&row)?;
        if let Decision::Approve { reach, .. } = decision {
            write_rule(&mut transaction, &approval, *reach, by, now).await?;
        }
        transaction.commit().await?;
        Ok(approval)
    }
}
