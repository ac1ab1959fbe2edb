//! Asking whoever typed a call whether it may be made.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use store::{Approval, ApprovalScope, Decision, DecisionRefused, Store, StoreError};

use crate::approvals::{terminal, who};
use crate::config::shown;

/// How often it is looked whether the call asks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Who there is to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Person {
    /// Has said yes already, on the command line.
    Agreed,
    AtTerminal,
    Nobody,
}

impl Person {
    pub(super) fn here(agreed: bool) -> Self {
        match agreed {
            true => Self::Agreed,
            false if terminal::is_here() => Self::AtTerminal,
            false => Self::Nobody,
        }
    }
}

/// What nobody here can decide, and what to do about it. The call waits until it is refused.
pub(super) struct Undecided {
    approval: Approval,
    pub(super) why: String,
}

impl Undecided {
    pub(super) async fn refuse(&self, store: &Store) -> Result<(), StoreError> {
        record(store, &self.approval, &no("nobody was there to answer")).await
    }
}

/// Decides whatever the call of this session asks. Comes back only where nobody is there who could; the error is the
/// store's.
pub(super) async fn decide(store: &Store, session: &str, person: Person) -> Result<Undecided, StoreError> {
    let mut seen = HashSet::new();
    loop {
        let approval = asked(store, session, &mut seen).await?;
        let tool = shown::plain(&approval.tool_id);
        let decision = match (question(&approval), person) {
            (None, Person::Agreed) => yes(ApprovalScope::Once),
            (None, Person::AtTerminal) => at_terminal(&approval).await,
            (None, Person::Nobody) => {
                let reason = shown::plain(&approval.reason);
                let why = format!(
                    "a person must agree to a call of `{tool}` ({reason}); type it on a terminal, or give --yes"
                );
                return Ok(Undecided { approval, why });
            }
            // Agreeing to a call is no answer to what its tool asks then.
            (Some(question), _) if Person::here(false) == Person::AtTerminal => {
                let id = &approval.approval_id;
                eprintln!(
                    "`{tool}` asks: {question}\n`cellmate approvals show {id}` says how to answer; waiting for that"
                );
                continue;
            }
            (Some(question), _) => {
                let why = format!("`{tool}` asks: {question}; type the call on a terminal to answer");
                return Ok(Undecided { approval, why });
            }
        };
        record(store, &approval, &decision).await?;
    }
}

fn question(approval: &Approval) -> Option<String> {
    let message = approval.question.as_ref()?.get("message").and_then(Value::as_str);
    Some(shown::plain(message.unwrap_or("something")))
}

async fn record(store: &Store, approval: &Approval, decision: &Decision) -> Result<(), StoreError> {
    match codemode::decide(store, &approval.approval_id, decision, &who("tools call")).await {
        // Somebody else was faster, or is needed: then their word counts.
        Ok(_) | Err(DecisionRefused::NotPending | DecisionRefused::Unfit(_)) => Ok(()),
        Err(refused @ DecisionRefused::TooManyRules) => {
            eprintln!("cellmate: {refused}; it is called this once");
            match codemode::decide(store, &approval.approval_id, &yes(ApprovalScope::Once), &who("tools call")).await {
                Err(DecisionRefused::Store(error)) => Err(error),
                Ok(_) | Err(_) => Ok(()),
            }
        }
        Err(DecisionRefused::Store(error)) => Err(error),
    }
}

/// The next thing that is asked.
async fn asked(store: &Store, session: &str, seen: &mut HashSet<String>) -> Result<Approval, StoreError> {
    loop {
        let pending = store.pending_approvals().await?;
        let mut ours = pending.into_iter().filter(|approval| approval.session_id == session);
        match ours.find(|approval| seen.insert(approval.approval_id.clone())) {
            Some(approval) => return Ok(approval),
            None => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

async fn at_terminal(approval: &Approval) -> Decision {
    let prompt = format!("{}\ncall it? [y]es, [a]lways, [N]o: ", terminal::call(approval));
    terminal::ask(&prompt).await.map_or_else(|| no(""), |line| understood(&line))
}

/// Whatever is not plainly a yes is none.
fn understood(line: &str) -> Decision {
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

    use super::{no, understood, yes};

    #[test]
    fn only_a_plain_yes_counts_as_yes() {
        for line in ["y\n", "YES\n", " yes "] {
            assert_eq!(understood(line), yes(ApprovalScope::Once), "{line:?}");
        }
        assert_eq!(understood("a\n"), yes(ApprovalScope::Agent));
        for line in ["", "\n", "n", "yep", "yes please", "ja"] {
            assert_eq!(understood(line), no(""), "{line:?}");
        }
    }
}
