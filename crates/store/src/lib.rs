//! The durable store: runs, their journals, approvals, transcripts, and turns of the gateway.
//!
//! SQLite and Postgres share the same SQL. A run's row has a sequence number, a fence and a lease. Every change of a
//! run is one transaction that first increments the sequence, so a process that has lost the run cannot change it.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod approvals;
mod backend;
mod backup;
mod commit;
mod durability;
mod ended_journal;
mod error;
mod key_check;
mod key_file;
mod keys;
mod lease;
mod listing;
mod location;
mod locking;
mod migrations;
mod outputs;
mod private_file;
mod probe;
mod quota;
mod rows;
mod runs;
mod seal;
mod secrets;
mod session_values;
mod settle;
mod sql;
mod sqlite_writer;
mod statement;
mod store;
mod sweep;
mod tls;
mod tokens;
mod transcript;
mod turns;
mod watch;

pub use approvals::{
    Approval, ApprovalRequest, ApprovalScope, ApprovalState, Decision, DecisionError, RecordedDecision, RuleSubject,
    StandingRule,
};
pub use backend::Durability;
pub use backup::{BackupError, BackupSummary, RestoreOptions, TABLES as BACKED_UP, check as check_backup};
pub use commit::{Change, CommitError, CommitReport, TurnLimit};
pub use error::StoreError;
pub use key_file::{Key, KeyFile, KeyFileError};
pub use keys::Keys;
pub use lease::LeaseError;
pub use listing::{ChangedKind, ChangedRow, INVOKE_RUN, ListedRun, MCP_SESSION, PageKey, RunPageFilter};
pub use location::{BadLocation, Location};
pub use outputs::{NewOutput, OutputKind, OutputPiece, OutputPosition, OutputRow, OutputWriter};
pub use private_file::{create_private_file, replace_private_file};
pub use probe::StoreProbe;
pub use quota::{Quota, QuotaExceeded};
pub use rows::{
    CallRow, CallState, DispatchedCall, JournalTotals, LegEndKind, LegRow, MAX_TRANSCRIPT_BYTES, RunFilter,
    RunListEntry, RunRow, RunState, RunSummary, StoredLegEnd, StoredReply,
};
pub use runs::{FencedRun, NewRun};
pub use seal::{SealError, SnapshotBinding};
pub use secrets::{MAX_SEALED_BYTES, MAX_SECRET_BYTES, MAX_SECRETS, MAX_SECRETS_BYTES, Secret, Secrets, SecretsError};
pub use session_values::{
    ExpectedVersion, SessionKey, SessionTotals, SessionValue, SessionValueSize, ValueWrite, VersionConflict,
};
pub use settle::{SettleError, SettleResult};
pub use store::Store;
pub use sweep::SweepReport;
pub use tls::WeakTls;
pub use tokens::{MAX_TOKENS, NewToken, StoredToken};
pub use transcript::{Entry, EntryKind, NewEntry};
pub use turns::{
    COMPACTION, DeliveryRow, HeldTurn, ModelUse, NewDelivery, NewResponse, NewStep, NewTurn, ReleaseLease, ResponseRow,
    SessionFilter, SessionSummary, TurnChange, TurnMessage, TurnMessageKind, TurnRow, TurnState, TurnStep, UsageFilter,
    UsageGroup, UsageTotals,
};
pub use watch::{RunChange, Watch};

/// Milliseconds since 1970, by the caller's clock. The store itself never reads a clock.
pub type Millis = i64;

/// Converts the error of a fault point into an error that contains a [`StoreError`].
macro_rules! from_injected_fault {
    ($($error:ty),+) => {
        $(impl From<fault::InjectedFault> for $error {
            fn from(fault: fault::InjectedFault) -> Self {
                StoreError::from(fault).into()
            }
        })+
    };
}

from_injected_fault!(CommitError, DecisionError, LeaseError, SettleError);
