//! A run's own row: made, taken, moved on, read back.

mod lease;
mod read;
mod write;

use contract::scope::Scope;

use crate::Millis;
use crate::seal::Sealed;

pub use lease::LeaseError;

/// A run that is under way and not yet in the store. Its first commit writes it.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub run_id: String,
    pub scope: Scope,
    pub tool_call_id: String,
    pub holder: String,
    pub lease_until: Millis,
    pub expires_at: Millis,
    pub catalog: String,
    pub tables: std::sync::Arc<[u8]>,
    pub definition: String,
}

/// The right to change a run, for as long as nobody takes it over.
#[derive(Clone, Debug)]
pub struct FencedRun {
    pub run_id: String,
    pub scope: Scope,
    pub(crate) sequence: i64,
    pub(crate) fence: i64,
    definition: String,
    unwritten: Option<NewRun>,
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

    /// Whether anybody could find the run yet.
    pub fn is_written(&self) -> bool {
        self.unwritten.is_none()
    }

    pub(crate) fn binding(&self, leg: i64) -> Sealed<'_> {
        Sealed {
            run_id: &self.run_id,
            agent_id: &self.scope.agent_id,
            session_id: &self.scope.session_id,
            leg,
            definition: &self.definition,
        }
    }
}
