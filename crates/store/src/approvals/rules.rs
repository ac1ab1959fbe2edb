//! A yes for good.

use serde::Serialize;
use sqlx::{AnyConnection, Row};

use super::{Approval, Reach};
use crate::Millis;
use crate::backend::{Store, StoreError};
use crate::commit::Durability;

/// A yes for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StandingRule {
    pub rule_id: String,
    pub tool_id: String,
    /// The definition it is bound to; for one that has changed since, it counts for nothing.
    pub tool_hash: String,
    pub agent_id: Option<String>,
    pub session_id: Option<String>,
    pub created_at: Millis,
    pub created_by: String,
    pub revoked_at: Option<Millis>,
}

impl Store {
    /// Whether a standing rule lets this tool be called, as it is defined now, without asking.
    pub async fn is_allowed_for_good(
        &self,
        tool_id: &str,
        tool_hash: &str,
        agent_id: &str,
        session_id: &str,
    ) -> Result<bool, StoreError> {
        let row = sqlx::query(
            "SELECT COUNT(*) FROM rules WHERE tool_id = $1 AND tool_hash = $2 AND revoked_at IS NULL \
             AND (agent_id IS NULL OR agent_id = $3) AND (session_id IS NULL OR session_id = $4)",
        )
        .bind(tool_id.to_owned())
        .bind(tool_hash.to_owned())
        .bind(agent_id.to_owned())
        .bind(session_id.to_owned())
        .fetch_one(self.reader())
        .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }

    pub async fn rules(&self) -> Result<Vec<StandingRule>, StoreError> {
        let rows = sqlx::query(
            "SELECT rule_id, tool_id, tool_hash, agent_id, session_id, created_at, created_by, revoked_at FROM rules \
             ORDER BY created_at, rule_id",
        )
        .fetch_all(self.reader())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(StandingRule {
                    rule_id: row.try_get(0)?,
                    tool_id: row.try_get(1)?,
                    tool_hash: row.try_get(2)?,
                    agent_id: row.try_get(3)?,
                    session_id: row.try_get(4)?,
                    created_at: row.try_get(5)?,
                    created_by: row.try_get(6)?,
                    revoked_at: row.try_get(7)?,
                })
            })
            .collect()
    }

    /// Whether there was such a rule in force.
    pub async fn revoke_rule(&self, rule_id: &str, now: Millis) -> Result<bool, StoreError> {
        let revoked = sqlx::query("UPDATE rules SET revoked_at = $1 WHERE rule_id = $2 AND revoked_at IS NULL")
            .bind(now)
            .bind(rule_id.to_owned())
            .execute(self.writer(Durability::Synced))
            .await?;
        Ok(revoked.rows_affected() == 1)
    }
}

pub(super) async fn write_rule(
    connection: &mut AnyConnection,
    approval: &Approval,
    reach: Reach,
    by: &str,
    now: Millis,
) -> Result<(), sqlx::Error> {
    let session = match reach {
        Reach::Once => return Ok(()),
        Reach::Session => Some(approval.session_id.clone()),
        Reach::Agent => None,
    };
    sqlx::query(
        "INSERT INTO rules (rule_id, tool_id, tool_hash, agent_id, session_id, created_at, created_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(format!("rule_{}", approval.approval_id))
    .bind(approval.tool_id.clone())
    .bind(approval.tool_hash.clone())
    .bind(approval.agent_id.clone())
    .bind(session)
    .bind(now)
    .bind(by.to_owned())
    .execute(&mut *connection)
    .await?;
    Ok(())
}
