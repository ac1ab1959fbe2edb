//! Replays a run from its journal: the same source, seed, clock and replies, in a fresh cell. No tool is called. Each
//! leg must do what the journal recorded; the first leg that does not is reported, with what it did instead.
//!
//! `compare` compares, `walk` runs the legs. Replay resumes runs after an upgrade of the guest image, and lets people
//! inspect runs.

mod compare;
mod divergence;
mod fork;
mod record;
mod walk;

pub use compare::LegVerdict;
pub use divergence::Divergence;
pub use fork::ForkError;
pub use record::{MAX_MANUAL_REPLAY_MS, Record, RecordError, ReplayError, Step};
pub use walk::{MAX_RESUMING_MS, ReplayFailure};

pub(crate) use compare::{Comparison, recorded_target, to_journal_end};
pub(crate) use fork::forked;
pub(crate) use walk::{LegStart, Walk};
