//! Values that the cells of a session keep for each other.

use contract::ids::RunId;
use contract::scope::Scope;

use crate::Millis;
use crate::backend::Backend;
use crate::error::StoreError;

/// Identifies a session: its principal, its id, and the client and project that its runs are started from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub agent_id: String,
    pub session_id: String,
    pub client: String,
}

impl From<&Scope> for SessionKey {
    fn from(scope: &Scope) -> Self {
        Self { agent_id: scope.agent_id.clone(), session_id: scope.session_id.clone(), client: scope.client.clone() }
    }
}

/// A write of a session's value. It is part of a change of the run that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueWrite {
    pub key: String,
    /// The new value as JSON; `None` deletes the key.
    pub value: Option<String>,
    /// The new version: unique, and the same if the write is repeated after a crash.
    pub version: String,
    /// What the key must have, or the write has no effect.
    pub expected: Option<ExpectedVersion>,
}

/// The condition of a [`ValueWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    Absent,
    Version(String),
}

/// A conditional write that had no effect, because the key has another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionConflict {
    pub key: String,
    /// The version of the write that had no effect.
    pub version: String,
    /// The version that the key has; `None` if the key does not exist.
    pub current: Option<String>,
}

/// A session's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionValue {
    pub key: String,
    /// JSON.
    pub value: String,
    pub version: String,
    /// The run that wrote it.
    pub run_id: RunId,
    pub updated_at: Millis,
}

/// The number of a session's values, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    pub keys: u64,
    pub bytes: u64,
}

pub(crate) async fn value(
    _backend: &Backend,
    _session: &SessionKey,
    _key: &str,
) -> Result<Option<SessionValue>, StoreError> {
    Err(not_built())
}

pub(crate) async fn values(_backend: &Backend, _session: &SessionKey) -> Result<Vec<SessionValue>, StoreError> {
    Err(not_built())
}

pub(crate) async fn totals(_backend: &Backend, _session: &SessionKey) -> Result<SessionTotals, StoreError> {
    Err(not_built())
}

pub(crate) async fn sessions(_backend: &Backend, _limit: u32) -> Result<Vec<(SessionKey, SessionTotals)>, StoreError> {
    Err(not_built())
}

fn not_built() -> StoreError {
    StoreError::Corrupt("session values are not stored yet".to_owned())
}
