//! The journal of a run that ends in its first commit: its legs and calls are one text in the run's row.
//!
//! Most cells only read, so nothing of them is stored before they end, and nothing changes their legs and calls
//! afterwards. A row for each leg and call would cost several times as much as its text.

use std::borrow::Cow;

use contract::ids::RunId;
use serde::{Deserialize, Serialize};
use sqlx::Row;

use crate::backend::Backend;
use crate::error::StoreError;
use crate::rows::{CallRow, LegRow};

/// The legs and calls of a run that ended in its first commit, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct EndedJournal<'a> {
    pub(crate) legs: Cow<'a, [LegRow]>,
    pub(crate) calls: Cow<'a, [CallRow]>,
}

impl EndedJournal<'_> {
    /// Returns the journal as it is stored.
    pub(crate) fn to_text(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(|error| StoreError::Corrupt(error.to_string()))
    }
}

/// Reads the journal in a run's row; it is empty if there is no such run, or if its legs and calls have rows of their own.
pub(crate) async fn read(backend: &Backend, run_id: &RunId) -> Result<EndedJournal<'static>, StoreError> {
    let row = sqlx::query("SELECT journal FROM runs WHERE run_id = $1")
        .bind(run_id.to_string())
        .fetch_optional(backend.reader())
        .await?;
    let text: Option<String> = row.map(|row| row.try_get(0)).transpose()?.flatten();
    let Some(text) = text else { return Ok(EndedJournal::default()) };
    serde_json::from_str(&text).map_err(|error| StoreError::Corrupt(format!("the journal of {run_id}: {error}")))
}
