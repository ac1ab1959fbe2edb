//! Decides when an MCP server or plugin is started, when it is restarted after a failure, and when it is no longer
//! restarted. A pure state machine: the caller passes the time.

use std::time::{Duration, Instant};

/// How often and how soon a failed server is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The wait after the first failure; it doubles with each further failure in a row.
    pub first_wait: Duration,
    pub max_wait: Duration,
    /// The failures in a row after which the server is not restarted for a while, and calls fail at once.
    pub give_up_after: u32,
    /// How long a server that failed too often is not started again.
    pub retry_given_up_after: Duration,
    /// A server that has run this long was healthy: its end counts as a first failure, not as one more in a row.
    pub healthy_after: Duration,
}

impl Restart {
    pub const DEFAULT: Self = Self {
        first_wait: Duration::from_millis(500),
        max_wait: Duration::from_secs(30),
        give_up_after: 5,
        retry_given_up_after: Duration::from_secs(120),
        healthy_after: Duration::from_secs(60),
    };

    /// Returns a wait between half of the doubled wait and all of it, so that servers that failed together do not
    /// restart together.
    fn wait(&self, failures: u32, jitter: f64) -> Duration {
        let doubled = self.first_wait.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(20)));
        doubled.min(self.max_wait).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// The phase of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not running, because no caller needs it. The next call starts it.
    Stopped,
    Starting,
    Running {
        since: Instant,
    },
    /// Failed, and not started again for a moment.
    BackingOff {
        until: Instant,
    },
    /// Failed too often, and not restarted for a while.
    Failed {
        until: Instant,
    },
    /// Stopped permanently, because the configuration no longer has the server or the host shuts down.
    Retired,
}

/// What happened to a server, or what is requested of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A caller needs the server for a call or a listing.
    Needed,
    /// An operator requests a start now, even if the server has failed too often.
    ForceStart,
    Started,
    StartFailed,
    /// The connection ended unexpectedly.
    Ended,
    /// The server has not been used for the configured idle time.
    Idle,
    Stop,
    Retire,
}

/// What the caller of [`Lifecycle::on`] must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Start,
    /// Wait until this time, then send the event again.
    WaitUntil(Instant),
    /// Return an error for the call.
    Refuse,
    /// End the connection, or the start in progress.
    Disconnect,
}

/// The state of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    restart: Restart,
    phase: Phase,
    /// Failures in a row.
    failures: u32,
    /// Starts after the first one.
    restarts: u64,
    started_before: bool,
}

impl Lifecycle {
    pub fn new(restart: Restart) -> Self {
        Self { restart, phase: Phase::Stopped, failures: 0, restarts: 0, started_before: false }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Handles an event. `jitter`, from 0 to 1, decides where a wait is between half of its length and all of it. An
    /// event of a start or a connection that has already ended changes nothing.
    pub fn on(&mut self, event: Event, now: Instant, jitter: f64) -> Action {
        match (event, self.phase) {
            (Event::Retire, phase) => self.end(phase, Phase::Retired),
            (Event::Needed | Event::ForceStart, Phase::Retired) => Action::Refuse,
            (_, Phase::Retired) => Action::Nothing,

            (Event::Needed, Phase::BackingOff { until }) if now < until => Action::WaitUntil(until),
            (Event::Needed, Phase::Failed { until }) if now < until => Action::Refuse,
            (Event::Needed | Event::ForceStart, Phase::Starting | Phase::Running { .. }) => Action::Nothing,
            (Event::Needed | Event::ForceStart, Phase::Stopped | Phase::BackingOff { .. } | Phase::Failed { .. }) => {
                self.start()
            }

            (Event::Started, Phase::Starting) => {
                self.phase = Phase::Running { since: now };
                Action::Nothing
            }
            (Event::StartFailed, Phase::Starting) => self.failed(now, jitter),
            (Event::Ended, Phase::Running { since }) => {
                if now.saturating_duration_since(since) >= self.restart.healthy_after {
                    self.failures = 0;
                }
                self.failed(now, jitter)
            }
            (Event::Idle, Phase::Running { .. }) => self.end(self.phase, Phase::Stopped),
            (Event::Stop, phase) => {
                self.failures = 0;
                self.end(phase, Phase::Stopped)
            }
            (Event::Started | Event::StartFailed | Event::Ended | Event::Idle, _) => Action::Nothing,
        }
    }

    fn start(&mut self) -> Action {
        self.phase = Phase::Starting;
        self.restarts += u64::from(self.started_before);
        self.started_before = true;
        Action::Start
    }

    fn failed(&mut self, now: Instant, jitter: f64) -> Action {
        self.failures = self.failures.saturating_add(1);
        self.phase = if self.failures >= self.restart.give_up_after {
            Phase::Failed { until: now + self.restart.retry_given_up_after }
        } else {
            Phase::BackingOff { until: now + self.restart.wait(self.failures, jitter) }
        };
        Action::Nothing
    }

    fn end(&mut self, phase: Phase, next: Phase) -> Action {
        self.phase = next;
        match phase {
            Phase::Starting | Phase::Running { .. } => Action::Disconnect,
            Phase::Stopped | Phase::BackingOff { .. } | Phase::Failed { .. } | Phase::Retired => Action::Nothing,
        }
    }
}

/// Returns a random number between zero and one. If the system's randomness cannot be read, it returns one, so that waits
/// are longest.
pub fn jitter() -> f64 {
    getrandom::u32().map_or(1.0, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
