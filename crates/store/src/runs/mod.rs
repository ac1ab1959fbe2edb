//! Runs: how they are leased and read. Their changes are written by [`commit`](crate::commit).

pub(crate) mod lease;
pub(crate) mod read;

use contract::ids::RunId;
use contract::scope::Scope;

use crate::Millis;
use crate::seal::SnapshotBinding;

/// A run that has started but is not in the store yet. Its first commit inserts it.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub run_id: RunId,
    pub scope: Scope,
    pub tool_call_id: String,
    pub holder: String,
    pub lease_until: Millis,
    pub expires_at: Millis,
    pub catalog: String,
    pub tables: std::sync::Arc<[u8]>,
    pub definition: String,
}

/// The right to change a run, valid until another process takes over the run.
#[derive(Clone, Debug)]
pub struct FencedRun {
    pub run_id: RunId,
    pub scope: Scope,
    pub(crate) sequence: i64,
    pub(crate) fence: i64,
    pub(crate) definition: String,
    pub(crate) unwritten: Option<NewRun>,
}

impl FencedRun {
    pub fn new(run: NewRun) -> Self {
        Self {
            run_id: run.run_id.clone(),
            scope: run.scope.clone(),
            sequence: 0,
            fence: 1,
            definition: run.definition.clone(),
            unwritten: Some(run),
        }
    }

    /// Whether the run is in the store.
    pub fn is_written(&self) -> bool {
        self.unwritten.is_none()
    }

    /// Records a successful commit. Must be called after the commit, because a transaction can fail until then.
    pub(crate) fn mark_written(&mut self) {
        self.unwritten = None;
        self.sequence += 1;
    }

    pub(crate) fn binding(&self, leg: i64) -> SnapshotBinding<'_> {
        SnapshotBinding {
            run_id: &self.run_id,
            agent_id: &self.scope.agent_id,
            session_id: &self.scope.session_id,
            leg,
            definition: &self.definition,
        }
    }
}

/// Returns the SQL condition of a run that, at the time of the parameter `now`, is past its expiry and that no process
/// holds. A running run without a holder is not due: that is a direct tool call, which has no lease.
pub(crate) fn due(now: &str) -> String {
    format!(
        "state IN ('running', 'waiting') AND expires_at <= {now} AND lease_until <= {now} \
         AND (state = 'waiting' OR holder <> '')"
    )
}
