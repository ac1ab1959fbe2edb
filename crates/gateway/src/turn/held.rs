//! Waiting for people: while a turn is held open, and after it has ended because they did not decide in time.

use std::sync::Arc;
use std::time::Duration;

use contract::ids::RunId;
use executor::clock::now_ms;
use futures_util::future::join_all;
use store::{Approval, Millis, Store};
use tokio_util::sync::CancellationToken;
use wire::conversation::ModelCall;

use super::control::{Attempt, ControlCalls, ControlEnd};
use super::prepared::PreparedTurn;
use crate::services::Services;

/// How often approvals are read after a turn has ended, when no client waits for its response. Notifications of changes are
/// not used: those of an SQLite file name no run, so each write would make all followed turns read the store.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs that wait for people, each with the approvals that it needs.
pub(super) type AwaitedPeople = Vec<(RunId, Vec<Approval>)>;

/// Returns whether a decision may let one of the runs continue.
pub(super) async fn has_decision(store: &Store, people: &[(RunId, Vec<Approval>)]) -> bool {
    for (run_id, asked) in people {
        let current = match store.approvals_of_run(run_id).await {
            Ok(current) => current,
            Err(error) => {
                // They are read again after the interval.
                let error = telemetry::error_chain(&error);
                tracing::warn!(run = run_id.as_str(), error, "the approvals of a run cannot be read");
                continue;
            }
        };
        let now = now_ms();
        let is_open = |one: &Approval| current.iter().any(|row| row.approval_id == one.approval_id && row.is_open(now));
        if asked.is_empty() || asked.iter().any(|one| !is_open(one)) {
            return true;
        }
    }
    false
}

/// The calls of an ended turn that wait for people. They continue when people have decided, and a later turn of the
/// conversation finds their results.
pub(super) struct HeldCalls {
    pub(super) services: Arc<Services>,
    pub(super) prepared: Arc<PreparedTurn>,
    pub(super) calls: Vec<ModelCall>,
    pub(super) people: AwaitedPeople,
}

impl HeldCalls {
    /// Continues the calls until they have ended, wait for the client, or have expired. If this process ends or has too
    /// many of them, they continue with the next message of their conversation.
    pub(super) async fn follow(mut self) {
        let services = Arc::clone(&self.services);
        let Ok(_permit) = services.followed.try_acquire() else { return };
        tokio::select! {
            () = services.shutdown.cancelled() => {}
            () = self.continue_calls() => {}
        }
    }

    async fn continue_calls(&mut self) {
        let over = CancellationToken::new();
        while !self.people.is_empty() && self.wait_for_decision().await {
            let controls =
                ControlCalls { code_mode: &self.services.code_mode, prepared: &self.prepared, cancelled: &over };
            let ends = join_all(self.calls.iter().map(|call| controls.run(call, Attempt::Repeated))).await;
            self.people.clear();
            for end in ends {
                match end {
                    Ok(ControlEnd::People { run_id, approvals }) => self.people.push((run_id, approvals)),
                    Ok(ControlEnd::Done(_) | ControlEnd::Client(_)) => {}
                    Err(error) => {
                        let error = telemetry::error_chain(&error);
                        tracing::warn!(error, "a call that a person decided about cannot be continued now");
                        return;
                    }
                }
            }
        }
    }

    /// Waits until a person has decided. Returns `false` if the approvals have expired long ago.
    async fn wait_for_decision(&self) -> bool {
        let expires_at =
            self.people.iter().flat_map(|(_, approvals)| approvals).map(|approval| approval.expires_at).max();
        let until: Millis = expires_at.unwrap_or_else(now_ms) + GRACE_MS;
        while now_ms() < until {
            tokio::time::sleep(POLL_INTERVAL).await;
            if has_decision(self.services.code_mode.store(), &self.people).await {
                return true;
            }
        }
        false
    }
}

/// How long after their end approvals are still read, so that a call whose approval has expired ends.
const GRACE_MS: Millis = 5_000;
