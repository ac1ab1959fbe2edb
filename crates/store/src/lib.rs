//! What survives a crash: runs, their journal, approvals, transcripts.
//!
//! One SQL for SQLite and Postgres. A run's row carries sequence, fence and lease, and every change of a run
//! is one transaction that first moves the sequence: whoever has lost the run changes nothing.

mod approvals;
mod backend;
mod commit;
pub mod fault;
mod migrations;
mod rows;
mod runs;
mod seal;
mod settle;
mod sweep;
mod transcript;
mod watch;

pub use approvals::{Approval, ApprovalRequest, ApprovalState, Decision, DecisionRefused, Reach, StandingRule};
pub use backend::{Location, Store, StoreError};
pub use commit::{Change, CommitError, Durability};
pub use rows::{CallRow, CallState, LegEnded, LegHow, LegRow, RunGlance, RunListed, RunRow, RunState, StoredReply};
pub use runs::{Held, LeaseError, NewRun};
pub use seal::{Keys, Sealed, Unsealable};
pub use settle::{SettleRefused, Settled};
pub use transcript::{Entry, EntryKind};
pub use watch::{News, Watch};

/// Milliseconds since 1970, as the caller's clock has them. The store itself reads no clock.
pub type Millis = i64;
