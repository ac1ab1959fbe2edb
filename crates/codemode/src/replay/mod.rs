//! A run gone through again from its journal: the same source, seed, clock and replies, in a fresh cell. No tool is
//! called. Each leg must do what is recorded of it; where one does not, it is told which, and what it did instead.
//!
//! `compare` decides, `walk` runs. A run whose image changed with an upgrade is resumed this way, and people look at
//! runs this way.

mod compare;
mod divergence;
mod fork;
mod record;
mod walk;

pub use compare::Verdict;
pub use divergence::Divergence;
pub use fork::ForkRefused;
pub use record::{MAX_BY_HAND_MS, Record, Step, Unplayable, Unreadable};
pub use walk::{MAX_RESUMING_MS, Stumble};

pub(crate) use compare::{Comparison, ended_of, recorded_target};
pub(crate) use fork::forked;
pub(crate) use walk::{Start, Walk};
