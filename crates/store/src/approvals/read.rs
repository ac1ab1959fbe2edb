//! Reads approvals.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::{Approval, ApprovalState};
use crate::backend::{Store, StoreError};

pub(super) const COLUMNS: &str = "approval_id, run_id, call, agent_id, session_id, tool_id, tool_hash, input, input_hash, reason, \
                       state, requested_at, expires_at, decided_by, note, edited_input, question, source_identity";

impl Store {
    /// Returns all approvals in state `pending`, oldest first, including those that have expired since the last sweep.
    pub async fn pending_approvals(&self) -> Result<Vec<Approval>, StoreError> {
        self.approvals_where("state = 'pending'", None).await
    }

    pub async fn approval(&self, approval_id: &str) -> Result<Option<Approval>, StoreError> {
        Ok(self.approvals_where("approval_id = $1", Some(approval_id)).await?.pop())
    }

    pub async fn approvals_of_run(&self, run_id: &str) -> Result<Vec<Approval>, StoreError> {
        self.approvals_where("run_id = $1", Some(run_id)).await
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

pub(super) fn read(row: &AnyRow) -> Result<Approval, StoreError> {
    let json = |text: String| {
        contract::json::read(&text).map_err(|_| StoreError::Corrupt("invalid JSON in an approval".to_owned()))
    };
    let state: String = row.try_get(10)?;
    let edited: Option<String> = row.try_get(15)?;
    let question: Option<String> = row.try_get(16)?;
    Ok(Approval {
        approval_id: row.try_get(0)?,
        run_id: row.try_get(1)?,
        call: u32::try_from(row.try_get::<i64, _>(2)?)
            .map_err(|_| StoreError::Corrupt("invalid call number".to_owned()))?,
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
        decided_by: row.try_get(13)?,
        note: row.try_get(14)?,
        edited_input: edited.map(json).transpose()?,
        question: question.map(json).transpose()?,
    })
}
