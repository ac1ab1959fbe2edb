//! Approval of a `cellmate tools call` by the user who typed it.

use std::collections::HashSet;
use std::time::Duration;

use client_config::display;
use contract::ids::ApprovalId;
use contract::limits::MAX_TERMINAL_ARGUMENT_CHARS;
use serde_json::Value;
use store::{Approval, ApprovalScope, Decision, DecisionError, Store, StoreError};

use crate::approvals::{UntrustedServers, decided_by, terminal};

/// How often the store is polled for new approvals of the call.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How the call can be approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approver {
    /// `--yes` approves it.
    Flag,
    /// The user is asked on the terminal.
    Terminal,
    /// There is no terminal to ask on.
    None,
}

impl Approver {
    pub(super) fn new(yes: bool) -> Self {
        match yes {
            true => Self::Flag,
            false if terminal::is_interactive() => Self::Terminal,
            false => Self::None,
        }
    }
}

/// An approval that cannot be decided here. The call waits until it is denied.
pub(super) struct Undecided {
    approval: Approval,
    /// Why it cannot be decided, and what to do instead.
    pub(super) why: String,
}

impl Undecided {
    pub(super) async fn deny(&self, store: &Store) -> Result<(), StoreError> {
        record(store, &self.approval, &no("there was no terminal to ask on")).await
    }
}

/// Decides every approval that the call of this session needs. Returns only if one cannot be decided here, or with an
/// error of the store.
pub(super) async fn decide(
    store: &Store,
    session: &str,
    approver: Approver,
    untrusted: &UntrustedServers,
) -> Result<Undecided, StoreError> {
    let mut seen = HashSet::new();
    loop {
        let approval = next_approval(store, session, &mut seen).await?;
        let tool = display::plain(&approval.tool_id);
        let decision = match (question(&approval), approver) {
            (None, Approver::Flag) => yes(ApprovalScope::Once),
            (None, Approver::Terminal) => ask_on_terminal(&approval, untrusted).await,
            (None, Approver::None) => {
                let reason = display::plain(&approval.reason);
                let hint = untrusted.hint(&approval).map(|hint| format!("; {hint}")).unwrap_or_default();
                let why =
                    format!("calling `{tool}` needs approval ({reason}); run this in a terminal, or pass --yes{hint}");
                return Ok(Undecided { approval, why });
            }
            // Approving a call does not answer the questions that its tool asks.
            (Some(question), _) if Approver::new(false) == Approver::Terminal => {
                let id = &approval.approval_id;
                eprintln!("`{tool}` asks: {question}");
                eprintln!("waiting for an answer; `cellmate approvals show {id}` shows how to give it");
                continue;
            }
            (Some(question), _) => {
                let why = format!("`{tool}` asks: {question}; run this in a terminal to answer");
                return Ok(Undecided { approval, why });
            }
        };
        record(store, &approval, &decision).await?;
    }
}

/// Returns the message of a tool's question, or `None` if the approval is about making a call.
fn question(approval: &Approval) -> Option<String> {
    let message = approval.question.as_ref()?.get("message").and_then(Value::as_str);
    Some(display::plain(message.unwrap_or("(no message)")))
}

async fn record(store: &Store, approval: &Approval, decision: &Decision) -> Result<(), StoreError> {
    match codemode::decide(store, &approval.approval_id, decision, &decided_by("tools call")).await {
        // Already decided elsewhere, or this decision does not fit the question: another one will settle it.
        Ok(_) | Err(DecisionError::NotPending | DecisionError::Unfit(_)) => Ok(()),
        Err(refused @ DecisionError::TooManyRules) => {
            eprintln!("cellmate: {refused}; only this call is approved");
            let once = yes(ApprovalScope::Once);
            match codemode::decide(store, &approval.approval_id, &once, &decided_by("tools call")).await {
                Err(DecisionError::Store(error)) => Err(error),
                Ok(_) | Err(_) => Ok(()),
            }
        }
        Err(DecisionError::Store(error)) => Err(error),
    }
}

/// Waits for the next approval of this session that was not seen yet.
async fn next_approval(store: &Store, session: &str, seen: &mut HashSet<ApprovalId>) -> Result<Approval, StoreError> {
    loop {
        let pending = store.pending_approvals().await?;
        let mut ours = pending.into_iter().filter(|approval| approval.session_id == session);
        match ours.find(|approval| seen.insert(approval.approval_id.clone())) {
            Some(approval) => return Ok(approval),
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

async fn ask_on_terminal(approval: &Approval, untrusted: &UntrustedServers) -> Decision {
    let hint = untrusted.hint(approval).map(|hint| format!("\n({hint})")).unwrap_or_default();
    let call = terminal::call(approval, MAX_TERMINAL_ARGUMENT_CHARS);
    let prompt = format!("{call}{hint}\ncall it? [y]es, [a]lways, [N]o: ");
    terminal::ask(&prompt).await.map_or_else(|| no(""), |line| parse_answer(&line))
}

/// Parses a typed answer. Anything but a yes or "always" is a no.
fn parse_answer(line: &str) -> Decision {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => yes(ApprovalScope::Once),
        "a" | "always" => yes(ApprovalScope::Agent),
        _ => no(""),
    }
}

fn yes(reach: ApprovalScope) -> Decision {
    Decision::Approve { edited_input: None, reach }
}

fn no(note: &str) -> Decision {
    Decision::Deny { note: note.to_owned() }
}

#[cfg(test)]
mod tests {
    use store::ApprovalScope;

    use super::{no, parse_answer, yes};

    #[test]
    fn only_a_plain_yes_counts_as_yes() {
        for line in ["y\n", "YES\n", " yes "] {
            assert_eq!(parse_answer(line), yes(ApprovalScope::Once), "{line:?}");
        }
        assert_eq!(parse_answer("a\n"), yes(ApprovalScope::Agent));
        for line in ["", "\n", "n", "yep", "yes please", "ja"] {
            assert_eq!(parse_answer(line), no(""), "{line:?}");
        }
    }
}
