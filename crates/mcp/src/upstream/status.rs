//! The status of a server for its operator: `servers`, `doctor`, telemetry.

use std::time::Instant;

use contract::tool::Operation;
use executor::StandingApprovals;
use executor::clock::now_ms;
use process::Phase;
use serde_json::{Value, json};

use super::cache::{LastFailure, Millis};
use super::supervisor::Supervisor;

/// The phase of a server's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    Stopped,
    Starting,
    Running,
    BackingOff,
    Failed,
    Retired,
}

impl ServerState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::BackingOff => "backing_off",
            Self::Failed => "failed",
            Self::Retired => "retired",
        }
    }
}

/// The state of one server at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    pub state: ServerState,
    /// When the state was entered, in milliseconds of Unix time.
    pub since: Millis,
    /// Starts after the first one, in this process.
    pub restarts: u64,
    /// Failures in a row.
    pub failures: u32,
    /// The earliest time of the next start, if the server backs off or is not restarted after many failures.
    pub next_try: Option<Millis>,
    pub in_flight: usize,
    /// Tools of the server itself, without the operations on its resources and prompts.
    pub tools: usize,
    /// Tools that were listed but break a limit.
    pub left_out: usize,
    /// When its tools were last listed.
    pub listed_at: Option<Millis>,
    /// The listing comes from the cache; the server has not been listed by this process yet.
    pub remembered: bool,
    /// Tools with a permanent approval whose definition has changed since: their next call asks again.
    pub changed_since_approved: Vec<String>,
    pub last_failure: Option<LastFailure>,
}

fn named(phase: Phase) -> ServerState {
    match phase {
        Phase::Stopped => ServerState::Stopped,
        Phase::Starting => ServerState::Starting,
        Phase::Running { .. } => ServerState::Running,
        Phase::BackingOff { .. } => ServerState::BackingOff,
        Phase::Failed { .. } => ServerState::Failed,
        Phase::Retired => ServerState::Retired,
    }
}

fn next_try(phase: Phase) -> Option<Millis> {
    match phase {
        Phase::BackingOff { until } | Phase::Failed { until } => {
            let left = until.saturating_duration_since(Instant::now()).as_millis();
            Some(now_ms().saturating_add(Millis::try_from(left).unwrap_or(Millis::MAX)))
        }
        Phase::Stopped | Phase::Starting | Phase::Running { .. } | Phase::Retired => None,
    }
}

impl Status {
    /// Returns the status of a server, including the tools whose definition differs from the approved one.
    pub(super) fn of(supervisor: &Supervisor, approved: &StandingApprovals) -> Self {
        let state = supervisor.state();
        let (phase, listing) = (state.lifecycle.phase(), state.listing.as_ref());
        let tools = listing.map(|listing| listing.tools.as_slice()).unwrap_or_default();
        let identity = supervisor.spec.identity();
        let changed =
            tools.iter().filter(|tool| approved.changed(tool, &identity)).map(|tool| tool.id.as_str().to_owned());
        Self {
            name: supervisor.name().to_owned(),
            state: named(phase),
            since: state.since,
            restarts: state.lifecycle.restarts(),
            failures: state.lifecycle.failures(),
            next_try: next_try(phase),
            in_flight: state.in_flight,
            // Resources and prompts are operations of the server, not tools of its own.
            tools: tools.iter().filter(|tool| tool.operation == Operation::Tool).count(),
            left_out: listing.map_or(0, |listing| listing.left_out.len()),
            listed_at: listing.map(|listing| listing.listed_at),
            remembered: listing.is_some_and(|listing| listing.remembered),
            changed_since_approved: changed.collect(),
            last_failure: state.last_failure.clone(),
        }
    }

    /// Returns the status as `servers list --json` prints it.
    pub fn to_json(&self) -> Value {
        let failure = self
            .last_failure
            .as_ref()
            .map(|failure| json!({"at": failure.at, "message": failure.message, "stderr": failure.last_lines()}));
        json!({
            "name": self.name,
            "state": self.state.as_str(),
            "since": self.since,
            "restarts": self.restarts,
            "failures": self.failures,
            "nextTry": self.next_try,
            "inFlight": self.in_flight,
            "tools": self.tools,
            "leftOut": self.left_out,
            "listedAt": self.listed_at,
            "remembered": self.remembered,
            "changedSinceApproved": self.changed_since_approved,
            "lastError": failure,
        })
    }
}
