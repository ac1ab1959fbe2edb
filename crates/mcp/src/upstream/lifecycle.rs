//! When a server is started, started again, left alone and given up: decisions without a clock of their own.

use std::time::{Duration, Instant};

/// How often and how soon a server that fails is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The wait after the first failure; it doubles with each that follows at once.
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// After so many failures in a row nobody waits for it any more.
    pub give_up_after: u32,
    /// How long a server that was given up is left alone.
    pub given_up_for: Duration,
    /// A server that has run for so long was well: its end is the first failure, not one more.
    pub well_after: Duration,
}

impl Restart {
    pub const DEFAULT: Self = Self {
        first_wait: Duration::from_millis(500),
        longest_wait: Duration::from_secs(30),
        give_up_after: 5,
        given_up_for: Duration::from_secs(120),
        well_after: Duration::from_secs(60),
    };

    /// Between a half and the whole of the doubled wait, so that servers that fell together do not rise together.
    fn wait(&self, failures: u32, chance: f64) -> Duration {
        let doubled = self.first_wait.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(20)));
        doubled.min(self.longest_wait).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody needs it.
    Stopped,
    Starting,
    Running {
        since: Instant,
    },
    /// It failed and is left alone for a moment.
    BackingOff {
        until: Instant,
    },
    /// It failed too often.
    Failed {
        until: Instant,
    },
    /// It is not to be started any more.
    Retired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Somebody has a call for it, or wants its list.
    Wanted,
    /// Somebody wants it tried now, whatever became of it before.
    TriedNow,
    Started,
    StartFailed,
    /// The connection ended without our doing.
    Ended,
    /// Nobody has needed it for long.
    Idle,
    Stop,
    Retire,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    Start,
    /// Whoever wants it waits until then, and asks again.
    WaitUntil(Instant),
    /// Whoever wants it is told that it is not there.
    Refuse,
    /// The connection, or the start that is under way, is ended.
    Disconnect,
}

/// One server's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lifecycle {
    restart: Restart,
    phase: Phase,
    /// In a row.
    failures: u32,
    /// Starts after the first.
    restarts: u64,
    started_before: bool,
}

impl Lifecycle {
    pub(crate) fn new(restart: Restart) -> Self {
        Self { restart, phase: Phase::Stopped, failures: 0, restarts: 0, started_before: false }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// `chance` is between nought and one and decides how long a wait is. An event that comes too late, of a start
    /// or a connection that is no more, changes nothing.
    pub(crate) fn on(&mut self, event: Event, now: Instant, chance: f64) -> Action {
        match (event, self.phase) {
            (Event::Retire, phase) => self.leave(phase, Phase::Retired),
            (Event::Wanted | Event::TriedNow, Phase::Retired) => Action::Refuse,
            (_, Phase::Retired) => Action::Nothing,

            (Event::Wanted, Phase::BackingOff { until }) if now < until => Action::WaitUntil(until),
            (Event::Wanted, Phase::Failed { until }) if now < until => Action::Refuse,
            (Event::Wanted | Event::TriedNow, Phase::Starting | Phase::Running { .. }) => Action::Nothing,
            (Event::Wanted | Event::TriedNow, Phase::Stopped | Phase::BackingOff { .. } | Phase::Failed { .. }) => {
                self.start()
            }

            (Event::Started, Phase::Starting) => {
                self.phase = Phase::Running { since: now };
                Action::Nothing
            }
            (Event::StartFailed, Phase::Starting) => self.failed(now, chance),
            (Event::Ended, Phase::Running { since }) => {
                if now.saturating_duration_since(since) >= self.restart.well_after {
                    self.failures = 0;
                }
                self.failed(now, chance)
            }
            (Event::Idle, Phase::Running { .. }) => self.leave(self.phase, Phase::Stopped),
            (Event::Stop, phase) => {
                self.failures = 0;
                self.leave(phase, Phase::Stopped)
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

    fn failed(&mut self, now: Instant, chance: f64) -> Action {
        self.failures = self.failures.saturating_add(1);
        self.phase = if self.failures >= self.restart.give_up_after {
            Phase::Failed { until: now + self.restart.given_up_for }
        } else {
            Phase::BackingOff { until: now + self.restart.wait(self.failures, chance) }
        };
        Action::Nothing
    }

    fn leave(&mut self, phase: Phase, next: Phase) -> Action {
        self.phase = next;
        match phase {
            Phase::Starting | Phase::Running { .. } => Action::Disconnect,
            Phase::Stopped | Phase::BackingOff { .. } | Phase::Failed { .. } | Phase::Retired => Action::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
