//! Approval requests of single calls: written with the call that they are for, read, decided and withdrawn.

use std::collections::BTreeSet;

use contract::ids::{ApprovalId, RunId};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::rules::{StandingRule, write_rule};
use super::{Approval, ApprovalRequest, ApprovalScope, ApprovalState, Decision, DecisionError, RecordedDecision};
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::locking::begin_with_locks;
use crate::runs::read::call_id;
use crate::runs::{FencedRun, due};
use crate::statement::Statement;
use crate::watch::notify_others;

const COLUMNS: &str = "approval_id, run_id, call, agent_id, session_id, tool_id, tool_hash, input, input_hash, reason, \
                       state, requested_at, expires_at, decided_by, note, edited_input, question, source_identity, \
                       decided_at";

/// Returns the condition for a decision at the time `$2`. A run that has expired is not continued, even if no process has
/// noticed it yet.
fn can_be_decided() -> String {
    format!(
        "state = 'pending' AND expires_at > $2 AND run_id IN \
         (SELECT run_id FROM runs WHERE state IN ('running', 'waiting') AND NOT ({}))",
        due("$2")
    )
}

/// Writes approval requests, in the transaction that parks their call.
pub(crate) async fn write(
    connection: &mut AnyConnection,
    held: &FencedRun,
    requests: &[ApprovalRequest],
) -> Result<(), sqlx::Error> {
    for request in requests {
        sqlx::query(
            "INSERT INTO approvals (approval_id, run_id, call, agent_id, session_id, tool_id, tool_hash, input, \
             input_hash, reason, state, requested_at, expires_at, question, source_identity) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11, $12, $13, $14)",
        )
        .bind(request.approval_id.to_string())
        .bind(held.run_id.to_string())
        .bind(i64::from(request.call.0))
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

/// Marks approvals as used. Returns `false` if one of them was already used or withdrawn.
pub(crate) async fn mark_used(connection: &mut AnyConnection, approvals: &[ApprovalId]) -> Result<bool, sqlx::Error> {
    for approval in approvals {
        let used = sqlx::query("UPDATE approvals SET state = 'used' WHERE approval_id = $1 AND state = 'approved'")
            .bind(approval.to_string())
            .execute(&mut *connection)
            .await?;
        if used.rows_affected() != 1 {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) async fn withdraw(backend: &Backend, approval_id: &ApprovalId) -> Result<(), StoreError> {
    sqlx::query("UPDATE approvals SET state = 'void' WHERE approval_id = $1 AND state = 'pending'")
        .bind(approval_id.to_string())
        .execute(backend.writer(Durability::Relaxed))
        .await?;
    Ok(())
}

/// Returns the statement that withdraws all pending approvals of a run that has ended.
pub(crate) fn withdraw_all(run_id: &RunId) -> Statement<'_> {
    Statement::new("UPDATE approvals SET state = 'void' WHERE run_id = $1 AND state = 'pending'").bind(run_id.as_str())
}

/// Records a decision. If it creates a standing approval, every other pending approval that this one covers is approved
/// in the same transaction.
pub(crate) async fn decide(
    backend: &Backend,
    approval_id: &ApprovalId,
    decision: &Decision,
    by: &str,
    now: Millis,
) -> Result<RecordedDecision, DecisionError> {
    let (state, note, edited, reach) = match decision {
        Decision::Approve { edited_input, reach } => (ApprovalState::Approved, None, edited_input.clone(), *reach),
        Decision::Deny { note } => (ApprovalState::Denied, Some(note.clone()), None, ApprovalScope::Once),
    };
    let mut transaction = match reach {
        ApprovalScope::Once => backend.writer(Durability::Synced).begin().await?,
        // Approvals that are requested at the same time are either covered here, or requested after this transaction;
        // `executor` then finds the standing approval.
        ApprovalScope::Session | ApprovalScope::Agent => {
            begin_with_locks(backend, &["approvals"], "SHARE ROW EXCLUSIVE").await?
        }
    };
    let decided = sqlx::query(&format!(
        "UPDATE approvals SET state = $1, decided_at = $2, decided_by = $3, note = $4, edited_input = $5 \
         WHERE approval_id = $6 AND {}",
        can_be_decided()
    ))
    .bind(state.as_str())
    .bind(now)
    .bind(by.to_owned())
    .bind(note)
    .bind(edited.map(|input| input.to_string()))
    .bind(approval_id.to_string())
    .execute(&mut *transaction)
    .await?;
    if decided.rows_affected() != 1 {
        return Err(DecisionError::NotPending);
    }
    let row = sqlx::query(&format!("SELECT {COLUMNS} FROM approvals WHERE approval_id = $1"))
        .bind(approval_id.to_string())
        .fetch_one(&mut *transaction)
        .await?;
    let approval = read(&row)?;
    let covered = match write_rule(&mut transaction, &approval, reach, by, now).await? {
        Some(rule) => approve_covered(&mut transaction, &rule, by, now).await?,
        None => Vec::new(),
    };
    let recorded = RecordedDecision { approval, covered };
    let runs: BTreeSet<&RunId> = recorded.approvals().map(|approval| &approval.run_id).collect();
    for run_id in runs {
        notify_others(backend, &mut transaction, run_id).await?;
    }
    fault::point("decide.before_commit")?;
    if let Err(error) = fault::commit_result(transaction.commit().await)
        && !was_decided(backend, &recorded.approval, now).await?
    {
        return Err(error.into());
    }
    fault::point("decide.after_commit")?;
    Ok(recorded)
}

/// Approves the pending approvals that a new standing approval covers: those whose calls it would have allowed. A
/// tool's question is not covered; only a person can answer it.
async fn approve_covered(
    connection: &mut AnyConnection,
    rule: &StandingRule,
    by: &str,
    now: Millis,
) -> Result<Vec<Approval>, DecisionError> {
    let session = rule.session_id.as_ref().map_or("", |_| "AND session_id = $8");
    let sql = format!(
        "UPDATE approvals SET state = $1, decided_at = $2, decided_by = $3 WHERE {} \
         AND question IS NULL AND tool_id = $4 AND tool_hash = $5 AND source_identity = $6 AND agent_id = $7 \
         {session} RETURNING {COLUMNS}",
        can_be_decided()
    );
    let mut query = sqlx::query(&sql)
        .bind(ApprovalState::Approved.as_str())
        .bind(now)
        .bind(by.to_owned())
        .bind(rule.tool_id.clone())
        .bind(rule.tool_hash.clone())
        .bind(rule.source_identity.clone())
        .bind(rule.agent_id.clone());
    if let Some(session_id) = &rule.session_id {
        query = query.bind(session_id.clone());
    }
    let rows = query.fetch_all(connection).await?;
    let mut covered = rows.iter().map(read).collect::<Result<Vec<Approval>, StoreError>>()?;
    covered.sort_by(|one, other| {
        (one.requested_at, one.call, &one.approval_id).cmp(&(other.requested_at, other.call, &other.approval_id))
    });
    Ok(covered)
}

/// Whether a decision whose commit was not confirmed is stored: by the same person, at the same time.
async fn was_decided(backend: &Backend, approval: &Approval, now: Millis) -> Result<bool, StoreError> {
    let row =
        sqlx::query("SELECT COUNT(*) FROM approvals WHERE approval_id = $1 AND decided_by = $2 AND decided_at = $3")
            .bind(approval.approval_id.to_string())
            .bind(approval.decided_by.clone())
            .bind(now)
            .fetch_one(backend.reader())
            .await?;
    Ok(row.try_get::<i64, _>(0)? == 1)
}

pub(crate) async fn pending_approvals(backend: &Backend) -> Result<Vec<Approval>, StoreError> {
    approvals_where(backend, "state = 'pending'", None).await
}

pub(crate) async fn approval(backend: &Backend, approval_id: &ApprovalId) -> Result<Option<Approval>, StoreError> {
    Ok(approvals_where(backend, "approval_id = $1", Some(approval_id)).await?.pop())
}

pub(crate) async fn approvals_of_run(backend: &Backend, run_id: &RunId) -> Result<Vec<Approval>, StoreError> {
    approvals_where(backend, "run_id = $1", Some(run_id)).await
}

async fn approvals_where(backend: &Backend, condition: &str, value: Option<&str>) -> Result<Vec<Approval>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM approvals WHERE {condition} ORDER BY requested_at, call, approval_id");
    let mut query = sqlx::query(&sql);
    if let Some(value) = value {
        query = query.bind(value.to_owned());
    }
    let rows = query.fetch_all(backend.reader()).await?;
    rows.iter().map(read).collect()
}

fn read(row: &AnyRow) -> Result<Approval, StoreError> {
    let json = |text: String| {
        contract::json::read(&text).map_err(|_| StoreError::Corrupt("invalid JSON in an approval".to_owned()))
    };
    let state: String = row.try_get(10)?;
    let edited: Option<String> = row.try_get(15)?;
    let question: Option<String> = row.try_get(16)?;
    Ok(Approval {
        approval_id: row.try_get::<String, _>(0)?.into(),
        run_id: row.try_get::<String, _>(1)?.into(),
        call: call_id(row.try_get(2)?)?,
        agent_id: row.try_get(3)?,
        session_id: row.try_get(4)?,
        tool_id: row.try_get(5)?,
        tool_hash: row.try_get(6)?,
        source_identity: row.try_get(17)?,
        input: json(row.try_get(7)?)?,
        input_hash: row.try_get(8)?,
        reason: row.try_get(9)?,
        state: ApprovalState::ALL
            .into_iter()
            .find(|known| known.as_str() == state)
            .ok_or_else(|| StoreError::Corrupt(format!("approval state `{state}`")))?,
        requested_at: row.try_get(11)?,
        expires_at: row.try_get(12)?,
        decided_at: row.try_get(18)?,
        decided_by: row.try_get(13)?,
        note: row.try_get(14)?,
        edited_input: edited.map(json).transpose()?,
        question: question.map(json).transpose()?,
    })
}
