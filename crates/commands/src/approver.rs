//! Approval of tool calls by the user who typed the command that makes them: `tools call`, `exec` or `wait`.

use std::collections::HashSet;
use std::time::Duration;

use client_config::display;
use codemode::CodeMode;
use contract::ids::{ApprovalId, RunId};
use contract::limits::MAX_TERMINAL_ARGUMENT_CHARS;
use serde_json::Value;
use store::{Approval, ApprovalScope, Decision, DecisionError, Store, StoreError};

use crate::approvals::terminal::{Answer, OnEnter};
use crate::approvals::{UntrustedServers, decided_by, terminal};
use crate::{call_progress, hint, render};

/// How often the store is polled for new approvals. The store notifies of changes of a run's state, of outcomes and of
/// decisions, not of a request for approval; and a direct call has no registry that receives notifications.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How calls can be approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approver {
    /// The flag `--yes` approves calls.
    Flag,
    /// The user is asked about each call on the terminal.
    Terminal,
    /// No call can be approved, because there is no terminal to ask on.
    None,
}

impl Approver {
    /// Returns the terminal, if there is one.
    pub(crate) fn present() -> Self {
        if terminal::is_interactive() { Self::Terminal } else { Self::None }
    }
}

/// The calls whose approvals are decided.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// All calls of a session that this command alone uses.
    Session(String),
    /// All calls of a run.
    Run(RunId),
}

impl Subject {
    fn covers(&self, approval: &Approval) -> bool {
        match self {
            Self::Session(session) => approval.session_id == *session,
            Self::Run(run_id) => approval.run_id == *run_id,
        }
    }
}

/// Where decisions are recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recorder<'a> {
    /// Decisions are recorded in this store, for a direct call, which polls it.
    Store(&'a Store),
    /// Decisions are recorded in the store of these runs, and the run is notified.
    Runs(&'a CodeMode),
}

impl Recorder<'_> {
    fn store(&self) -> &Store {
        match self {
            Self::Store(store) => store,
            Self::Runs(code_mode) => code_mode.store(),
        }
    }

    async fn decide(&self, approval: &Approval, decision: &Decision, command: &str) -> Result<(), DecisionError> {
        let (id, by) = (&approval.approval_id, decided_by(command));
        match self {
            Self::Store(store) => codemode::decide(store, id, decision, &by).await.map(drop),
            Self::Runs(code_mode) => code_mode.decide(id, decision, &by).await.map(drop),
        }
    }
}

/// Decides approvals for the user of one command.
#[derive(Clone, Debug)]
pub(crate) struct Decider<'a> {
    pub(crate) recorder: Recorder<'a>,
    pub(crate) approver: Approver,
    /// The command, which is recorded with each decision.
    pub(crate) command: &'static str,
    /// Explains to the user why calls of these servers ask.
    pub(crate) untrusted: &'a UntrustedServers,
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    /// The approval is decided, here or elsewhere.
    Decided,
    /// The answer does not fit the question, so the user is asked again.
    Unfit,
}

/// A call that cannot be approved here. It waits until it is denied.
pub(crate) struct UnapprovableCall {
    approval: Approval,
    /// Why it cannot be decided, and what to do instead.
    pub(crate) why: String,
}

impl Decider<'_> {
    /// Decides every approval of the subject. Returns only if a call cannot be approved here, or with an error of the
    /// store. Questions that cannot be asked here are announced, and answered elsewhere.
    pub(crate) async fn decide_all(&self, subject: &Subject) -> Result<UnapprovableCall, StoreError> {
        let mut seen = HashSet::new();
        loop {
            let (approval, others) = self.next_approval(subject, &mut seen).await?;
            let tool = display::plain(&approval.tool_id);
            let decision = match (question(&approval), self.approver) {
                (None, Approver::Flag) => yes(ApprovalScope::Once),
                (None, Approver::Terminal) => ask_on_terminal(&approval, others, self.untrusted).await,
                (None, Approver::None) => {
                    let reason = display::plain(&approval.reason);
                    let hint = self.untrusted.hint(&approval).map(|hint| format!("; {hint}")).unwrap_or_default();
                    let why = format!(
                        "calling `{tool}` needs approval ({reason}); run this in a terminal, or pass --yes{hint}"
                    );
                    return Ok(UnapprovableCall { approval, why });
                }
                // `--yes` approves calls; it does not answer the questions that their tools ask.
                (Some(_), _) if Approver::present() == Approver::Terminal => {
                    ask_on_terminal(&approval, others, self.untrusted).await
                }
                (Some(_), _) => {
                    announce_question(&approval);
                    continue;
                }
            };
            if self.record(&approval, &decision).await? == Recorded::Unfit {
                seen.remove(&approval.approval_id);
            }
        }
    }

    pub(crate) async fn deny(&self, call: &UnapprovableCall) -> Result<(), StoreError> {
        self.record(&call.approval, &no("there was no terminal to ask on")).await.map(drop)
    }

    async fn record(&self, approval: &Approval, decision: &Decision) -> Result<Recorded, StoreError> {
        match self.recorder.decide(approval, decision, self.command).await {
            // Already decided elsewhere.
            Ok(()) | Err(DecisionError::NotPending) => Ok(Recorded::Decided),
            Err(unfit @ DecisionError::Unfit(_)) => {
                eprintln!("cellmate: {unfit}");
                Ok(Recorded::Unfit)
            }
            Err(refused @ DecisionError::TooManyRules) => {
                eprintln!("cellmate: {refused}; only this call is approved");
                match self.recorder.decide(approval, &yes(ApprovalScope::Once), self.command).await {
                    Err(DecisionError::Store(error)) => Err(error),
                    Ok(()) | Err(_) => Ok(Recorded::Decided),
                }
            }
            Err(DecisionError::Store(error)) => Err(error),
        }
    }

    /// Waits for the next approval of the subject that was not seen yet. Returns it, and how many others wait.
    async fn next_approval(
        &self,
        subject: &Subject,
        seen: &mut HashSet<ApprovalId>,
    ) -> Result<(Approval, usize), StoreError> {
        loop {
            let pending = self.recorder.store().pending_approvals().await?;
            let is_new = |approval: &Approval| subject.covers(approval) && !seen.contains(&approval.approval_id);
            let mut new = pending.into_iter().filter(is_new);
            if let Some(approval) = new.next() {
                let others = new.count();
                seen.insert(approval.approval_id.clone());
                return Ok((approval, others));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Prints a tool's question that cannot be answered here, and where to answer it. The command waits for the answer.
pub(crate) fn announce_question(approval: &Approval) {
    let (tool, approvals) = (display::plain(&approval.tool_id), hint::command("approvals"));
    let question = question(approval).unwrap_or_default();
    render::note(&format!("cellmate: `{tool}` asks: {question}"));
    render::note(&format!(
        "cellmate: run `{approvals}` in a terminal to answer; this command waits until then, because the call would be \
         lost if it ended"
    ));
}

/// Returns the message of a tool's question, or `None` if the approval is about making a call.
fn question(approval: &Approval) -> Option<String> {
    let message = approval.question.as_ref()?.get("message").and_then(Value::as_str);
    Some(display::plain(message.unwrap_or("(no message)")))
}

/// Shows a call, or a question of its tool, and reads the user's answer. `others` more wait for an answer.
async fn ask_on_terminal(approval: &Approval, others: usize, untrusted: &UntrustedServers) -> Decision {
    let _question = call_progress::question();
    eprintln!("{}", terminal::call(approval, MAX_TERMINAL_ARGUMENT_CHARS));
    terminal::question(approval).iter().for_each(|question| eprintln!("{question}"));
    untrusted.hint(approval).iter().for_each(|hint| eprintln!("({hint})"));
    match others {
        0 => {}
        1 => eprintln!("(1 more call waits for an answer)"),
        _ => eprintln!("({others} more calls wait for an answer)"),
    }
    match terminal::ask_for_decision(approval, OnEnter::Deny).await {
        Some(Answer::Decide(decision)) => decision,
        Some(Answer::Skip) | None => no(""),
    }
}

fn yes(reach: ApprovalScope) -> Decision {
    Decision::Approve { edited_input: None, reach }
}

fn no(note: &str) -> Decision {
    Decision::Deny { note: note.to_owned() }
}
