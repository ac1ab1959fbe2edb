//! Prepares runs, and makes their tool calls on a single checked path.
//!
//! A [`ToolSource`] accepts only an [`AuthorizedCall`]. Only this crate can build one: after policy and hooks allowed
//! the call, approval was granted if it is required, and the intent was journaled.

mod approval;
mod approved;
mod ask;
mod asker;
mod canned;
pub mod clock;
mod control;
mod data_budget;
mod direct;
mod door;
mod follow;
mod go_on;
mod hooks;
mod journal;
mod lease;
mod listener;
mod meanwhile;
mod outcome;
mod parked;
mod question;
mod random;
mod record;
mod request;
mod routes;
pub mod run;
mod source;
mod told;
mod totals;

use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use contract::config::pattern::Pattern;
use contract::scope::Scope;

pub use approved::StandingApprovals;
pub use ask::{Answer, Question, QuestionKind};
pub use asker::QuestionSender;
pub use canned::{Canned, CannedError};
pub use data_budget::{DataBudget, DataRefused, Reserved, RunData};
pub use direct::DirectCall;
pub use door::Executor;
pub use hooks::{HOOK_DEADLINE, Hook, HookAnswer, HookFuture, ToolEvent, ToolKind};
pub use journal::{Journal, Receipt};
pub use lease::LeaseClock;
pub use listener::{ProgressSink, Sink, StateSink};
pub use outcome::UNKNOWN_OUTCOME;
pub use parked::{Answers, MAX_TICKET_BYTES, Parked, ParkedCall, QuestionBatch, Ticket};
pub use random::{fill as fill_random, random_name};
pub use record::for_transcript;
pub use request::{CallEnd, CallRequest};
pub use routes::Routes;
pub use source::{
    AuthorizedCall, CallFuture, CallToken, CancelFuture, Dispatch, Outcome, Returned, ToolSource, ToolUpdate,
};
pub use totals::{JournalFull, OpenError};

/// The default time a person has to answer an approval request or a question.
const APPROVAL_MS: i64 = 15 * 60 * 1000;

impl Executor {
    /// Creates an executor for a catalog whose tools are in these routes, without hooks or approvals.
    pub fn new(catalog: Arc<Catalog>, routes: Routes, scope: Scope) -> Self {
        Self {
            catalog,
            routes: Arc::new(routes),
            hooks: Arc::default(),
            ask: Arc::default(),
            listener: Sink::default(),
            scope: Arc::new(scope),
            approval_ms: APPROVAL_MS,
            hook_deadline: HOOK_DEADLINE,
        }
    }

    #[must_use]
    pub fn with_hooks(mut self, hooks: Vec<Arc<dyn Hook>>) -> Self {
        self.hooks = hooks.into();
        self
    }

    /// Sets the function that receives progress updates of tools. It is called on the task or thread of the tool, so it
    /// must return quickly.
    #[must_use]
    pub fn with_progress_sink(mut self, listener: impl Fn(ToolUpdate) + Send + Sync + 'static) -> Self {
        self.listener = Sink::to(listener);
        self
    }

    /// Sets the patterns of the tools that require a person's approval.
    #[must_use]
    pub fn with_approval_patterns(mut self, patterns: Vec<Pattern>) -> Self {
        self.ask = patterns.into();
        self
    }

    /// Sets how long a hook may take. A hook that takes longer denies the call.
    #[must_use]
    pub fn with_hook_deadline(mut self, deadline: Duration) -> Self {
        self.hook_deadline = deadline;
        self
    }

    #[must_use]
    pub fn with_approval_ms(mut self, approval_ms: i64) -> Self {
        self.approval_ms = approval_ms;
        self
    }
}
