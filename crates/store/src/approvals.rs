//! A person's word on a call: asked for once, given once, used once; or given for good, and listed.

use serde::Serialize;
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::Millis;
use crate::backend::{Store, StoreError};
use crate::commit::{CommitError, Durability};
use crate::runs::Held;

/// What is asked. It holds for this call of this run, this input and this definition of the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    pub approval_id: String,
    pub call: u32,
    pub tool_id: String,
    pub tool_hash: String,
    pub input: Value,
    pub input_hash: String,
    /// Why it is asked, for the person who answers.
    pub reason: String,
    pub requested_at: Millis,
    pub expires_at: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    Pending,
    Approved,
    Denied,
    Used,
    /// Its run is over, or its time is.
    Void,
}

impl ApprovalState {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Approved, Self::Denied, Self::Used, Self::Void];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Used => "used",
            Self::Void => "void",
        }
    }
}

/// A request and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub approval_id: String,
    pub run_id: String,
    pub call: u32,
    pub agent_id: String,
    pub session_id: String,
    pub tool_id: String,
    #[serde(skip)]
    pub tool_hash: String,
    pub input: Value,
    #[serde(skip)]
    pub input_hash: String,
    pub reason: String,
    pub state: ApprovalState,
    pub requested_at: Millis,
    pub expires_at: Millis,
    pub decided_by: Option<String>,
    pub note: Option<String>,
    pub edited_input: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Approve { edited_input: Option<Value>, reach: Reach },
    Deny { note: String },
}

/// How far a yes goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Once,
    /// This tool as it is defined now, for the rest of the session.
    Session,
    /// This tool as it is defined now, for this agent, until the rule is revoked.
    Agent,
}

/// A yes for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StandingRule {
    pub rule_id: String,
    pub tool_id: String,
    pub agent_id: Option<String>,
    pub session_id: Option<String>,
    pub created_at: Millis,
    pub created_by: String,
    pub revoked_at: Option<Millis>,
}

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

const COLUMNS: &str = "approval_id, run_id, call, agent_id, session_id, tool_id, tool_hash, input, input_hash, reason, \
                       state, requested_at, expires_at, decided_by, note, edited_input";

pub(crate) async fn write(
    connection: &mut AnyConnection,
    held: &Held,
    requests: &[ApprovalRequest],
) -> Result<(), CommitError> {
    for request in requests {
        sqlx::query(
            "INSERT INTO approvals (approval_id, run_id, call, agent_id, session_id, tool_id, tool_hash, input, \
             input_hash, reason, state, requested_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11, $12)",
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

    pub async fn pending_approvals(&self) -> Result<Vec<Approval>, StoreError> {
        self.approvals_where("state = 'pending'", None).await
    }

    pub async fn approvals_of_run(&self, run_id: &str) -> Result<Vec<Approval>, StoreError> {
        self.approvals_where("run_id = $1", Some(run_id)).await
    }

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
            "SELECT rule_id, tool_id, agent_id, session_id, created_at, created_by, revoked_at FROM rules \
             ORDER BY created_at, rule_id",
        )
        .fetch_all(self.reader())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(StandingRule {
                    rule_id: row.try_get(0)?,
                    tool_id: row.try_get(1)?,
                    agent_id: row.try_get(2)?,
                    session_id: row.try_get(3)?,
                    created_at: row.try_get(4)?,
                    created_by: row.try_get(5)?,
                    revoked_at: row.try_get(6)?,
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

    async fn approvals_where(&self, condition: &str, value: Option<&str>) -> Result<Vec<Approval>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM approvals WHERE {condition} ORDER BY requested_at, approval_id");
        let mut query = sqlx::query(&sql);
        if let Some(value) = value {
            query = query.bind(value.to_owned());
        }
        let rows = query.fetch_all(self.reader()).await?;
        rows.iter().map(read).collect()
    }
}

async fn write_rule(
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

fn read(row: &AnyRow) -> Result<Approval, StoreError> {
    let json =
        |text: String| contract::json::read(&text).map_err(|_| StoreError::Corrupt("an approval's input".to_owned()));
    let state: String = row.try_get(10)?;
    let edited: Option<String> = row.try_get(15)?;
    Ok(Approval {
        approval_id: row.try_get(0)?,
        run_id: row.try_get(1)?,
        call: u32::try_from(row.try_get::<i64, _>(2)?)
            .map_err(|_| StoreError::Corrupt("a call's number".to_owned()))?,
        agent_id: row.try_get(3)?,
        session_id: row.try_get(4)?,
        tool_id: row.try_get(5)?,
        tool_hash: row.try_get(6)?,
        input: json(row.try_get(7)?)?,
        input_hash: row.try_get(8)?,
        reason: row.try_get(9)?,
        state: ApprovalState::ALL
            .into_iter()
            .find(|known| known.as_str() == state)
            .ok_or_else(|| StoreError::Corrupt(format!("approval state `{state}`")))?,
        requested_at: row.try_get(11)?,
        expires_at: row.try_get(12)?,
        decided_by: row.try_get(13)?,
        note: row.try_get(14)?,
        edited_input: edited.map(json).transpose()?,
    })
}
