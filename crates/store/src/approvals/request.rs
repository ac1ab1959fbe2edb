//! Writes approval requests, in the same commit as the call they are for.

use sqlx::AnyConnection;

use super::ApprovalRequest;
use crate::backend::{Store, StoreError};
use crate::commit::{CommitError, Durability};
use crate::runs::FencedRun;

pub(crate) async fn write(
    connection: &mut AnyConnection,
    held: &FencedRun,
    requests: &[ApprovalRequest],
) -> Result<(), CommitError> {
    for request in requests {
        sqlx::query(
            "INSERT INTO approvals (approval_id, run_id, call, agent_id, session_id, tool_id, tool_hash, input, \
             input_hash, reason, state, requested_at, expires_at, question, source_identity) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11, $12, $13, $14)",
        )
        .bind(request.approval_id.clone())
        .bind(held.run_id.clone())
        .bind(i64::from(request.call))
        .bind(held.scope.agent_id.clone())
        .bind(held.scope.session_id.clone())
        .bind(request.tool_id.clone())
        .bind(request.tool_hash.clone())
        .bind(request.input.to_string())
        .bind(request.input_hash.clone())
        .bind(request.reason.clone())
        .bind(request.requested_at)
        .bind(request.expires_at)
        .bind(request.question.as_ref().map(ToString::to_string))
        .bind(request.source_identity.clone())
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

pub(crate) async fn mark_used(connection: &mut AnyConnection, approvals: &[String]) -> Result<(), CommitError> {
    for approval in approvals {
        let used = sqlx::query("UPDATE approvals SET state = 'used' WHERE approval_id = $1 AND state = 'approved'")
            .bind(approval.clone())
            .execute(&mut *connection)
            .await?;
        if used.rows_affected() != 1 {
            return Err(CommitError::ApprovalGone);
        }
    }
    Ok(())
}

impl Store {
    /// Withdraws a pending approval whose decision is no longer needed.
    pub async fn withdraw(&self, approval_id: &str) -> Result<(), StoreError> {
        sqlx::query("UPDATE approvals SET state = 'void' WHERE approval_id = $1 AND state = 'pending'")
            .bind(approval_id.to_owned())
            .execute(self.writer(Durability::Relaxed))
            .await?;
        Ok(())
    }
}

/// Withdraws all pending approvals of a run that has ended.
pub(crate) async fn withdraw(connection: &mut AnyConnection, run_id: &str) -> Result<(), CommitError> {
    sqlx::query("UPDATE approvals SET state = 'void' WHERE run_id = $1 AND state = 'pending'")
        .bind(run_id.to_owned())
        .execute(&mut *connection)
        .await?;
    Ok(())
}
