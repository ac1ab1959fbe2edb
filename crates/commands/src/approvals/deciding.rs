//! Records decisions about pending approvals: one by one on the terminal, or the same decision for several.

use std::collections::HashSet;
use std::process::ExitCode;

use contract::ids::{ApprovalId, RunId};
use contract::limits::MAX_TERMINAL_ARGUMENT_CHARS;
use executor::clock::now_ms;
use store::{Approval, ApprovalScope, Decision, DecisionError, Store};

use super::selection::{self, ApprovalSelection};
use super::terminal::{self, Answer, OnEnter};
use super::untrusted::UntrustedServers;
use crate::hint;
use crate::render::{self, OutputFormat};

use super::{ApprovalsError, NOT_PENDING, decided_by, print};

/// How many calls are shown and confirmed together.
const MAX_TOGETHER: usize = 10;

/// Records decisions, and remembers which approvals they decided.
pub(super) struct Decider<'a> {
    store: &'a Store,
    untrusted: UntrustedServers,
    format: OutputFormat,
    /// Includes the approvals that a standing approval covered.
    decided: HashSet<ApprovalId>,
    /// The runs of the decided approvals, each once.
    runs: Vec<RunId>,
}

/// What the user typed when asked to confirm a decision about several calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmation {
    Yes,
    No,
    OneByOne,
}

impl Confirmation {
    /// Parses a typed answer. Anything but the other two is a no.
    fn parse(line: &str) -> Self {
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Self::Yes,
            "o" | "one by one" => Self::OneByOne,
            _ => Self::No,
        }
    }
}

/// Asks for the note of a denial, if it has none.
async fn with_note(decision: Decision) -> Decision {
    match decision {
        Decision::Deny { note } if note.is_empty() => {
            let note = terminal::ask("why, for the model to read (Enter for no reason): ").await.unwrap_or_default();
            Decision::Deny { note: note.trim().to_owned() }
        }
        other => other,
    }
}

impl<'a> Decider<'a> {
    pub(super) fn new(store: &'a Store, untrusted: UntrustedServers, format: OutputFormat) -> Self {
        Self { store, untrusted, format, decided: HashSet::new(), runs: Vec::new() }
    }

    /// Shows the pending approvals one after another, and records the decisions that the user types.
    pub(super) async fn review(&mut self, pending: &[Approval]) -> Result<ExitCode, ApprovalsError> {
        print::list(pending, now_ms(), OutputFormat::Text);
        for (number, approval) in pending.iter().enumerate() {
            if !self.is_open(approval).await? {
                continue;
            }
            eprintln!("\n{} of {}: {}", number + 1, pending.len(), print::heading(approval, now_ms()));
            self.show(approval, MAX_TERMINAL_ARGUMENT_CHARS);
            match terminal::ask_for_decision(approval, OnEnter::Skip).await {
                Some(Answer::Decide(decision)) => {
                    self.decide(approval, &with_note(decision).await).await?;
                }
                Some(Answer::Skip) => {}
                None => return Ok(ExitCode::SUCCESS),
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the command that continues a run, for each run whose calls were decided and that no process works on. An MCP
    /// client or the gateway may still wait for such a run.
    pub(super) async fn note_idle_runs(&self) -> Result<(), ApprovalsError> {
        for run in &self.runs {
            if self.store.is_abandoned(run, now_ms()).await? {
                let wait = hint::command(&format!("wait {run}"));
                render::note(&format!("cellmate: `{wait}` continues the run, unless a client waits for it"));
            }
        }
        Ok(())
    }

    /// Records the same decision for all of them. One that cannot be decided does not stop the rest.
    pub(super) async fn decide_all(
        &mut self,
        selected: &ApprovalSelection,
        decision: &Decision,
    ) -> Result<ExitCode, ApprovalsError> {
        let mut is_complete = report_missing(selected);
        for approval in &selected.approvals {
            is_complete &= self.decide(approval, decision).await?;
        }
        Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(NOT_PENDING) })
    }

    /// Shows the calls on the terminal, several at a time, and records the decision for those that the user confirms.
    pub(super) async fn confirm_and_decide(
        &mut self,
        selected: &ApprovalSelection,
        decision: &Decision,
    ) -> Result<ExitCode, ApprovalsError> {
        let mut is_complete = report_missing(selected);
        for shown in selected.approvals.chunks(MAX_TOGETHER) {
            let mut open = Vec::new();
            for approval in shown {
                if self.is_open(approval).await? {
                    open.push(approval);
                } else if !self.decided.contains(&approval.approval_id) {
                    is_complete = false;
                    super::not_pending(&selection::not_pending(&approval.approval_id));
                }
            }
            is_complete &= match open.as_slice() {
                [] => true,
                [only] => self.confirm_one(only, decision).await?,
                several => self.confirm_several(several, decision).await?,
            };
        }
        Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(NOT_PENDING) })
    }

    async fn confirm_several(&mut self, shown: &[&Approval], decision: &Decision) -> Result<bool, ApprovalsError> {
        for approval in shown {
            eprintln!("{}", print::heading(approval, now_ms()));
            self.show(approval, MAX_TERMINAL_ARGUMENT_CHARS / MAX_TOGETHER);
        }
        let always = match decision {
            Decision::Approve { reach: ApprovalScope::Agent, .. } => {
                ", and all other calls of these tools without asking"
            }
            Decision::Approve { .. } | Decision::Deny { .. } => "",
        };
        let prompt = format!("approve these {} calls{always}? [y]es, [o]ne by one, [N]o: ", shown.len());
        let line = terminal::ask(&prompt).await.unwrap_or_default();
        let mut is_complete = true;
        match Confirmation::parse(&line) {
            Confirmation::Yes => {
                for approval in shown {
                    is_complete &= self.decide(approval, decision).await?;
                }
            }
            Confirmation::OneByOne => {
                for approval in shown {
                    let is_covered = self.decided.contains(&approval.approval_id);
                    is_complete &= is_covered || self.confirm_one(approval, decision).await?;
                }
            }
            Confirmation::No => {
                is_complete = false;
                eprintln!("cellmate: {} calls are still pending", shown.len());
            }
        }
        Ok(is_complete)
    }

    /// Shows an approval and asks for confirmation. Any answer but "y" or "yes" leaves it undecided.
    async fn confirm_one(&mut self, approval: &Approval, decision: &Decision) -> Result<bool, ApprovalsError> {
        eprintln!("{}", print::heading(approval, now_ms()));
        self.show(approval, MAX_TERMINAL_ARGUMENT_CHARS);
        let id = &approval.approval_id;
        let prompt = match decision {
            Decision::Approve { edited_input: Some(input), .. } => {
                let input = terminal::arguments(input, id, MAX_TERMINAL_ARGUMENT_CHARS);
                let what =
                    if approval.question.is_some() { "answer with" } else { "call it with these arguments instead" };
                format!("{what}: {input}\n[y]es, [N]o: ")
            }
            Decision::Approve { reach: ApprovalScope::Agent, .. } => {
                "approve it, and all other calls of this tool without asking? [y]es, [N]o: ".to_owned()
            }
            Decision::Approve { .. } | Decision::Deny { .. } => "approve it? [y]es, [N]o: ".to_owned(),
        };
        let line = terminal::ask(&prompt).await.unwrap_or_default();
        if Confirmation::parse(&line) == Confirmation::Yes {
            return self.decide(approval, decision).await;
        }
        eprintln!("cellmate: `{}` is still pending", mcp::server::plain(id, 100));
        Ok(false)
    }

    /// Prints a call with its arguments cut to `chars`, and what its tool asks.
    fn show(&self, approval: &Approval, chars: usize) {
        eprintln!("{}", terminal::call(approval, chars));
        if let Some(question) = terminal::question(approval) {
            eprintln!("{question}");
        }
        if let Some(hint) = self.untrusted.hint(approval) {
            eprintln!("({hint})");
        }
    }

    /// Whether an approval can still be decided: it was not decided since it was read, here or elsewhere.
    async fn is_open(&self, approval: &Approval) -> Result<bool, ApprovalsError> {
        if self.decided.contains(&approval.approval_id) {
            return Ok(false);
        }
        let current = self.store.approval(&approval.approval_id).await?;
        Ok(current.is_some_and(|approval| approval.is_open(now_ms())))
    }

    /// Records a decision and prints it, with the other approvals that it decides. Returns false if this approval could
    /// not be decided.
    async fn decide(&mut self, approval: &Approval, decision: &Decision) -> Result<bool, ApprovalsError> {
        let id = &approval.approval_id;
        if self.decided.contains(id) {
            return Ok(true);
        }
        match codemode::decide(self.store, id, decision, &decided_by("approvals")).await {
            Ok(recorded) => {
                print::decided(&recorded, self.format);
                for approval in recorded.approvals() {
                    self.decided.insert(approval.approval_id.clone());
                    if !self.runs.contains(&approval.run_id) {
                        self.runs.push(approval.run_id.clone());
                    }
                }
                return Ok(true);
            }
            Err(DecisionError::NotPending) => {
                super::not_pending(&selection::not_pending(id));
            }
            Err(refused @ DecisionError::Unfit(_)) => {
                eprintln!("cellmate: {refused}; see `cellmate approvals show {}`", mcp::server::plain(id, 100));
            }
            Err(refused @ DecisionError::TooManyRules) => eprintln!("cellmate: {refused}"),
            Err(DecisionError::Store(error)) => return Err(error.into()),
        }
        Ok(false)
    }
}

/// Reports the ids and runs that have nothing pending. Returns whether there are none.
fn report_missing(selected: &ApprovalSelection) -> bool {
    for message in &selected.missing {
        super::not_pending(message);
    }
    if selected.approvals.is_empty() && selected.missing.is_empty() {
        eprintln!("no pending approvals");
    }
    selected.missing.is_empty()
}

#[cfg(test)]
mod tests {
    use super::Confirmation;

    #[test]
    fn only_a_plain_yes_confirms_several_calls() {
        for (line, expected) in [
            ("y\n", Confirmation::Yes),
            (" YES ", Confirmation::Yes),
            ("o\n", Confirmation::OneByOne),
            ("", Confirmation::No),
            ("yes please", Confirmation::No),
            ("all", Confirmation::No),
        ] {
            assert_eq!(Confirmation::parse(line), expected, "{line:?}");
        }
    }
}
