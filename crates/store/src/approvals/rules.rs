//! Standing approvals: they allow calls of one tool without asking, until they are revoked.

use contract::limits::MAX_STANDING_RULES;
use serde::Serialize;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::{Approval, ApprovalScope, DecisionError};
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;

const COLUMNS: &str =
    "rule_id, tool_id, tool_hash, source_identity, agent_id, session_id, created_at, created_by, revoked_at";

/// A standing approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StandingRule {
    pub rule_id: String,
    pub tool_id: String,
    /// The definition of the tool that the rule is bound to. The rule does not allow any other.
    pub tool_hash: String,
    /// The source that the rule is bound to, as in [`ApprovalRequest`](super::ApprovalRequest). `None` for a rule from
    /// before this was recorded; such a rule allows nothing.
    pub source_identity: Option<String>,
    pub agent_id: Option<String>,
    pub session_id: Option<String>,
    pub created_at: Millis,
    pub created_by: String,
    pub revoked_at: Option<Millis>,
}

impl StandingRule {
    /// Whether the rule can still allow a call.
    pub fn is_in_force(&self) -> bool {
        self.revoked_at.is_none() && self.source_identity.is_some()
    }
}

/// What a standing approval is bound to: a tool, its definition and its source.
#[derive(Clone, Copy, Debug)]
pub struct RuleSubject<'a> {
    pub tool_id: &'a str,
    pub tool_hash: &'a str,
    pub source_identity: &'a str,
}

pub(crate) async fn has_standing_approval(
    backend: &Backend,
    subject: RuleSubject<'_>,
    agent_id: &str,
    session_id: &str,
) -> Result<bool, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) FROM rules WHERE tool_id = $1 AND tool_hash = $2 AND source_identity = $3 \
         AND revoked_at IS NULL AND (agent_id IS NULL OR agent_id = $4) \
         AND (session_id IS NULL OR session_id = $5)",
    )
    .bind(subject.tool_id.to_owned())
    .bind(subject.tool_hash.to_owned())
    .bind(subject.source_identity.to_owned())
    .bind(agent_id.to_owned())
    .bind(session_id.to_owned())
    .fetch_one(backend.reader())
    .await?;
    Ok(row.try_get::<i64, _>(0)? > 0)
}

pub(crate) async fn rules(backend: &Backend) -> Result<Vec<StandingRule>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM rules ORDER BY agent_id, session_id, created_at, rule_id");
    let rows = sqlx::query(&sql).fetch_all(backend.reader()).await?;
    rows.iter().map(read).collect()
}

pub(crate) async fn revoke_rule(backend: &Backend, rule_id: &str, now: Millis) -> Result<bool, StoreError> {
    let revoked = sqlx::query("UPDATE rules SET revoked_at = $1 WHERE rule_id = $2 AND revoked_at IS NULL")
        .bind(now)
        .bind(rule_id.to_owned())
        .execute(backend.writer(Durability::Synced))
        .await?;
    Ok(revoked.rows_affected() == 1)
}

fn read(row: &AnyRow) -> Result<StandingRule, StoreError> {
    Ok(StandingRule {
        rule_id: row.try_get(0)?,
        tool_id: row.try_get(1)?,
        tool_hash: row.try_get(2)?,
        source_identity: row.try_get(3)?,
        agent_id: row.try_get(4)?,
        session_id: row.try_get(5)?,
        created_at: row.try_get(6)?,
        created_by: row.try_get(7)?,
        revoked_at: row.try_get(8)?,
    })
}

/// Creates the standing approval that an approval with this reach implies. Without a source identity none is created,
/// and only this call is approved.
pub(super) async fn write_rule(
    connection: &mut AnyConnection,
    approval: &Approval,
    reach: ApprovalScope,
    by: &str,
    now: Millis,
) -> Result<Option<StandingRule>, DecisionError> {
    let session_id = match reach {
        ApprovalScope::Once => return Ok(None),
        ApprovalScope::Session => Some(approval.session_id.clone()),
        ApprovalScope::Agent => None,
    };
    if approval.source_identity.is_none() {
        return Ok(None);
    }
    delete_old_revoked_rules(connection, &approval.agent_id).await?;
    let row = sqlx::query("SELECT COUNT(*) FROM rules WHERE agent_id = $1 AND revoked_at IS NULL")
        .bind(approval.agent_id.clone())
        .fetch_one(&mut *connection)
        .await?;
    if usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(usize::MAX) >= MAX_STANDING_RULES {
        return Err(DecisionError::TooManyRules);
    }
    let rule = StandingRule {
        rule_id: format!("rule_{}", approval.approval_id),
        tool_id: approval.tool_id.clone(),
        tool_hash: approval.tool_hash.clone(),
        source_identity: approval.source_identity.clone(),
        agent_id: Some(approval.agent_id.clone()),
        session_id,
        created_at: now,
        created_by: by.to_owned(),
        revoked_at: None,
    };
    sqlx::query(
        "INSERT INTO rules (rule_id, tool_id, tool_hash, source_identity, agent_id, session_id, created_at, \
         created_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(rule.rule_id.clone())
    .bind(rule.tool_id.clone())
    .bind(rule.tool_hash.clone())
    .bind(rule.source_identity.clone())
    .bind(rule.agent_id.clone())
    .bind(rule.session_id.clone())
    .bind(rule.created_at)
    .bind(rule.created_by.clone())
    .execute(&mut *connection)
    .await?;
    Ok(Some(rule))
}

/// Keeps only the newest `MAX_STANDING_RULES` revoked rules of an agent, so that its rows stay bounded.
async fn delete_old_revoked_rules(connection: &mut AnyConnection, agent_id: &str) -> Result<(), sqlx::Error> {
    sqlx::query(
        "DELETE FROM rules WHERE agent_id = $1 AND revoked_at IS NOT NULL AND rule_id NOT IN \
         (SELECT rule_id FROM rules WHERE agent_id = $1 AND revoked_at IS NOT NULL \
         ORDER BY revoked_at DESC, rule_id LIMIT $2)",
    )
    .bind(agent_id.to_owned())
    .bind(i64::try_from(MAX_STANDING_RULES).unwrap_or(i64::MAX))
    .execute(connection)
    .await?;
    Ok(())
}
