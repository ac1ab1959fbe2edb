//! Calls that wait for a person.

use std::collections::HashSet;

use contract::ids::{ApprovalId, RunId};
use executor::clock::now_ms;
use serde::Serialize;
use serde_json::Value;
use store::{Store, Watch};

use crate::error::{self, Result};

/// A call that waits for a person's approval, or a tool's question to a person. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Approval {
    /// The id for [`Cellmate::approve`](crate::Cellmate::approve) and [`Cellmate::deny`](crate::Cellmate::deny).
    pub id: ApprovalId,
    /// The run that waits.
    pub run_id: RunId,
    /// The agent that the call is made for.
    pub agent_id: String,
    /// The session that the call is made for.
    pub session_id: String,
    /// The tool that is to be called.
    pub tool_id: String,
    /// The input of the call. A model wrote it; show it as it is, without control characters.
    pub input: Value,
    /// Why approval is required.
    pub reason: String,
    /// The tool's own question, if it has one: an object with `message`, and `form` (a JSON Schema) or `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Value>,
    /// When it was requested.
    pub requested_at: i64,
    /// When it expires.
    pub expires_at: i64,
}

impl From<store::Approval> for Approval {
    fn from(row: store::Approval) -> Self {
        Self {
            id: row.approval_id,
            run_id: row.run_id,
            agent_id: row.agent_id,
            session_id: row.session_id,
            tool_id: row.tool_id,
            input: row.input,
            reason: row.reason,
            question: row.question,
            requested_at: row.requested_at,
            expires_at: row.expires_at,
        }
    }
}

/// Returns the approvals that can still be decided, oldest first.
pub(crate) async fn pending(store: &Store) -> Result<Vec<Approval>> {
    let mut rows = store.pending_approvals().await.map_err(|error| error::store(&error))?;
    let now = now_ms();
    rows.retain(|row| row.is_open(now));
    Ok(rows.into_iter().map(Approval::from).collect())
}

/// Reports approvals as they are requested, by this process or another one that shares the store; see
/// [`Cellmate::approval_requests`](crate::Cellmate::approval_requests).
#[derive(Debug)]
pub struct ApprovalRequests {
    store: Store,
    watch: Watch,
    reported: HashSet<ApprovalId>,
}

impl ApprovalRequests {
    pub(crate) fn new(store: Store) -> Self {
        Self { watch: store.watch(), store, reported: HashSet::new() }
    }

    /// Waits for the next approval that was not reported before. The first calls report those that are already pending.
    ///
    /// An approval is reported within about a second. If the future is dropped, no approval is lost.
    pub async fn next(&mut self) -> Result<Approval> {
        loop {
            let pending = pending(&self.store).await?;
            self.reported.retain(|id| pending.iter().any(|approval| approval.id == *id));
            if let Some(new) = pending.into_iter().find(|approval| !self.reported.contains(&approval.id)) {
                self.reported.insert(new.id.clone());
                return Ok(new);
            }
            self.watch.next().await;
        }
    }
}
