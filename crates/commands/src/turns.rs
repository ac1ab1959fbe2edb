//! Runs a cell turn after turn, as a model would with `exec` and `wait`, until it ends or waits for a person.

use std::collections::HashSet;
use std::time::Duration;

use codemode::{CodeMode, ExecInput, ExecRequest};
use contract::cell::{CellResult, OutputItem, PendingState};
use contract::config;
use contract::ids::{ApprovalId, RunId};
use executor::Executor;
use executor::clock::now_ms;
use serde_json::json;
use store::{Approval, StoreError};
use tokio::sync::watch;

use crate::approvals::{UntrustedServers, is_asked_during_call};
use crate::approver::{self, Approver, Decider, Recorder, Subject};

/// How often approvals are read without a notification of a decision: they may expire, and a notification may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// When a command stops running turns of a cell that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The command stops after the first turn.
    FirstTurn,
    /// The command stops when the cell waits only for a person or a client, unless the user can be asked, or a tool waits
    /// for an answer on a connection of this process.
    NeedsHelp,
}

/// What runs the turns of one cell.
pub(crate) struct Turns<'a> {
    pub(crate) code_mode: &'a CodeMode,
    pub(crate) executor: &'a Executor,
    pub(crate) config: &'a config::CodeMode,
    /// The command, for the record: the id of the outer call, which a model would otherwise supply, and who decided.
    pub(crate) command: &'static str,
    pub(crate) approver: Approver,
    pub(crate) untrusted: &'a UntrustedServers,
}

impl Turns<'_> {
    /// Runs a new cell, as a model's call of `exec` does: hooks of plugins see it first. `started` receives the run's
    /// id.
    pub(crate) async fn exec(
        &self,
        cell: ExecInput,
        patience: Patience,
        started: &watch::Sender<Option<RunId>>,
    ) -> Result<CellResult, StoreError> {
        let json = json!({"code": cell.source, "language": cell.language.as_str()});
        // There is nothing to check in an empty cell, and a model's input must not be empty.
        let request = if cell.source.trim().is_empty() { cell.into() } else { ExecRequest::from(&json) };
        let request = request.on_start(|run_id| {
            started.send_replace(Some(run_id.clone()));
        });
        let tool_call = self.tool_call();
        let turns = async {
            let first = self.code_mode.exec(self.executor, self.config, &tool_call, request).await;
            match patience {
                Patience::FirstTurn => Ok(first),
                Patience::NeedsHelp => self.continue_from(first).await,
            }
        };
        match patience {
            Patience::FirstTurn => turns.await,
            Patience::NeedsHelp => self.with_approvals(turns, started.subscribe()).await,
        }
    }

    /// Resumes a run, or returns the result of one that has ended.
    pub(crate) async fn wait(&self, run_id: &RunId) -> Result<CellResult, StoreError> {
        let started = watch::Sender::new(Some(run_id.clone()));
        let turns = async {
            let first = self.code_mode.wait(self.executor, self.config, &self.tool_call(), run_id).await;
            self.continue_from(first).await
        };
        self.with_approvals(turns, started.subscribe()).await
    }

    fn tool_call(&self) -> String {
        format!("cellmate-{}", self.command)
    }

    /// Runs further turns, and collects the output of all of them.
    async fn continue_from(&self, mut result: CellResult) -> Result<CellResult, StoreError> {
        let mut shown: Vec<OutputItem> = Vec::new();
        let mut announced = HashSet::new();
        loop {
            let need = Need::of(&result);
            let CellResult::Waiting { run_id, output, .. } = &mut result else { break };
            let run_id = run_id.clone();
            let can_wait = match (need, self.approver) {
                (Need::Turn, _) | (Need::Person, Approver::Flag | Approver::Terminal) => true,
                (Need::Person, Approver::None) => self.waits_for_answer(&run_id, &mut announced).await?,
                (Need::Client, _) => false,
            };
            if !can_wait {
                break;
            }
            shown.append(output);
            if need == Need::Person {
                self.wait_for_decision(&run_id).await?;
            }
            result = self.code_mode.wait(self.executor, self.config, &self.tool_call(), &run_id).await;
        }
        match &mut result {
            CellResult::Completed { output, .. }
            | CellResult::Waiting { output, .. }
            | CellResult::Failed { output, .. } => {
                shown.append(output);
                *output = shown;
            }
        }
        Ok(result)
    }

    /// Lets the user decide the run's approvals on the terminal while its turns run.
    async fn with_approvals(
        &self,
        turns: impl Future<Output = Result<CellResult, StoreError>>,
        mut started: watch::Receiver<Option<RunId>>,
    ) -> Result<CellResult, StoreError> {
        if self.approver == Approver::None {
            return turns.await;
        }
        let decider = Decider {
            recorder: Recorder::Runs(self.code_mode),
            approver: self.approver,
            command: self.command,
            untrusted: self.untrusted,
        };
        let deciding = async {
            let run_id = started.wait_for(Option::is_some).await.ok().and_then(|run_id| run_id.clone());
            match run_id {
                Some(run_id) => decider.decide_all(&Subject::Run(run_id)).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(turns, deciding);
        tokio::select! {
            biased;
            result = &mut turns => result,
            undecided = &mut deciding => {
                // What cannot be decided here is decided elsewhere.
                undecided?;
                turns.await
            }
        }
    }

    /// Whether tools wait for answers on connections of this process. If it ended, the outcome of their calls would be
    /// unknown, so it stays until a person answers in another terminal. Prints each question once.
    async fn waits_for_answer(&self, run_id: &RunId, announced: &mut HashSet<ApprovalId>) -> Result<bool, StoreError> {
        let mut is_waiting = false;
        for approval in open_approvals(self.code_mode, run_id).await? {
            if !is_asked_during_call(self.code_mode.store(), &approval).await? {
                continue;
            }
            is_waiting = true;
            if announced.insert(approval.approval_id.clone()) {
                approver::announce_question(&approval);
            }
        }
        Ok(is_waiting)
    }

    /// Waits until one of the run's open approvals is decided or expires.
    async fn wait_for_decision(&self, run_id: &RunId) -> Result<(), StoreError> {
        let mut changes = self.code_mode.run_changes();
        let before = open_approvals(self.code_mode, run_id).await?;
        loop {
            changes.wait(run_id, POLL_INTERVAL).await;
            let open = open_approvals(self.code_mode, run_id).await?;
            let is_open = |id: &ApprovalId| open.iter().any(|approval| approval.approval_id == *id);
            if before.is_empty() || !before.iter().all(|approval| is_open(&approval.approval_id)) {
                return Ok(());
            }
        }
    }
}

/// Returns the approvals of a run that can still be decided.
pub(crate) async fn open_approvals(code_mode: &CodeMode, run_id: &RunId) -> Result<Vec<Approval>, StoreError> {
    let now = now_ms();
    let mut approvals = code_mode.store().approvals_of_run(run_id).await?;
    approvals.retain(|approval| approval.is_open(now));
    Ok(approvals)
}

/// What a cell that has not ended needs to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// The cell needs another turn.
    Turn,
    /// The cell needs a person, who decides about all its pending calls or answers their questions.
    Person,
    /// The cell needs a client, which makes some of its calls itself. This command is not such a client.
    Client,
}

impl Need {
    fn of(result: &CellResult) -> Self {
        let CellResult::Waiting { pending_tool_calls, .. } = result else { return Self::Turn };
        let has = |state: PendingState| pending_tool_calls.iter().any(|call| call.state == state);
        if [PendingState::Queued, PendingState::Running, PendingState::Interrupted].into_iter().any(has) {
            Self::Turn
        } else if has(PendingState::Approval) {
            Self::Person
        } else if has(PendingState::Client) {
            Self::Client
        } else {
            // The cell yielded.
            Self::Turn
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::cell::{CellResult, PendingState, PendingToolCall, Telemetry, WaitingReason};

    use super::Need;

    #[test]
    fn a_cell_needs_a_person_only_if_nothing_else_can_continue_it() {
        let waiting = |states: &[PendingState]| CellResult::Waiting {
            run_id: "cm_1".into(),
            reason: WaitingReason::PendingTools,
            pending_tool_calls: states
                .iter()
                .map(|state| PendingToolCall {
                    id: String::new(),
                    method: String::new(),
                    tool_id: None,
                    state: *state,
                    since_ms: 0,
                    reason: None,
                })
                .collect(),
            output: Vec::new(),
            telemetry: Telemetry::default(),
        };
        let cases: [(&[PendingState], Need); 5] = [
            (&[PendingState::Approval, PendingState::Client], Need::Person),
            (&[PendingState::Approval, PendingState::Running], Need::Turn),
            (&[PendingState::Client], Need::Client),
            (&[PendingState::Interrupted], Need::Turn),
            (&[], Need::Turn),
        ];
        for (states, need) in cases {
            assert_eq!(Need::of(&waiting(states)), need, "{states:?}");
        }
    }
}
