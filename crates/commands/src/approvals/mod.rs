//! `cellmate approvals`: lists and decides pending approvals, in a store that a server may be using.

mod arguments;
mod deciding;
mod form;
mod non_interactive;
mod print;
mod rules;
mod selection;
pub(crate) mod terminal;
mod untrusted;

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

use executor::clock::now_ms;
use serde_json::Value;
use store::{Approval, ApprovalScope, CallState, Decision, Millis, Store, StoreError};

use crate::hint;
use crate::render::{self, OutputFormat};
use crate::state::StateError;

use arguments::Action;
pub(crate) use arguments::ApprovalsArguments;
use deciding::Decider;
use selection::Ambiguous;
pub(crate) use untrusted::UntrustedServers;

/// The exit code if an approval could not be decided, or a standing one not revoked.
const NOT_PENDING: u8 = 1;

#[derive(Debug, thiserror::Error)]
enum ApprovalsError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("configuration: {0}")]
    Configuration(String),
    #[error(transparent)]
    Ambiguous(#[from] Ambiguous),
    #[error("--input: {0}")]
    NoObject(String),
    #[error("--input applies to one approval; pass one id")]
    OneInput,
    #[error(
        "approving needs a terminal, which shows the call first: run `cellmate approvals` in one. To approve without \
         a terminal, set `approvals: {{ nonInteractive: true }}` in your own configuration; a project's file cannot \
         set it"
    )]
    NoTerminal,
}

pub(crate) async fn run(arguments: ApprovalsArguments) -> ExitCode {
    match act(arguments).await {
        Ok(code) => code,
        Err(error) => render::fatal(&error.to_string()),
    }
}

async fn act(arguments: ApprovalsArguments) -> Result<ExitCode, ApprovalsError> {
    let format = OutputFormat::from_flag(arguments.json);
    let interactive = terminal::is_interactive();
    let places = arguments.store.places();
    if matches!(arguments.action, Some(Action::Approve { .. })) && !interactive {
        let allowed = non_interactive::is_allowed(&places).map_err(ApprovalsError::Configuration)?;
        if !allowed {
            return Err(ApprovalsError::NoTerminal);
        }
    }
    let store = arguments.store.choose()?.open().await?;
    let untrusted = || UntrustedServers::load(&places);
    match arguments.action {
        None if interactive && stdout().is_terminal() && format == OutputFormat::Text => {
            let mut decider = Decider::new(&store, untrusted(), OutputFormat::Text);
            let code = decider.review(&open(&store).await?).await?;
            decider.note_idle_runs().await?;
            Ok(code)
        }
        None | Some(Action::List) => {
            let open = open(&store).await?;
            print::list(&open, now_ms(), format);
            if format == OutputFormat::Text {
                untrusted().hints(&open).iter().for_each(|hint| render::note(&format!("note: {hint}")));
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Action::Show { id }) => match selection::find(&open(&store).await?, &id)? {
            Some(approval) => {
                print::details(approval, untrusted().hint(approval).as_deref(), now_ms(), format);
                Ok(ExitCode::SUCCESS)
            }
            None => Ok(not_pending(&selection::not_pending(&id))),
        },
        Some(Action::Approve { selection, always, input }) => {
            let reach = if always { ApprovalScope::Agent } else { ApprovalScope::Once };
            let edited_input = input.as_deref().map(read).transpose()?;
            if edited_input.is_some() && (selection.ids.len() != 1) {
                return Err(ApprovalsError::OneInput);
            }
            let mut selected = selection::select(&open(&store).await?, &selection)?;
            if selection.ids.is_empty() {
                leave_questions(&mut selected.approvals);
            }
            let decision = Decision::Approve { edited_input, reach };
            let mut decider = Decider::new(&store, untrusted(), format);
            let code = if interactive {
                decider.confirm_and_decide(&selected, &decision).await?
            } else {
                decider.decide_all(&selected, &decision).await?
            };
            decider.note_idle_runs().await?;
            Ok(code)
        }
        Some(Action::Deny { selection, note }) => {
            let mut selected = selection::select(&open(&store).await?, &selection)?;
            if selection.ids.is_empty() {
                leave_questions(&mut selected.approvals);
            }
            let mut decider = Decider::new(&store, UntrustedServers::default(), format);
            let code = decider.decide_all(&selected, &Decision::Deny { note }).await?;
            decider.note_idle_runs().await?;
            Ok(code)
        }
        Some(Action::Rules { action }) => {
            let state = arguments.store.arguments().folder(&places);
            rules::act(&store, &places, state.as_deref(), action, format).await
        }
    }
}

/// Returns the approvals that can still be decided.
async fn open(store: &Store) -> Result<Vec<Approval>, StoreError> {
    let now = now_ms();
    let mut open = Vec::new();
    for approval in store.pending_approvals().await? {
        if approval.is_open(now) && !is_lost_question(store, &approval, now).await? {
            open.push(approval);
        }
    }
    Ok(open)
}

/// Whether a tool asked during its call, and the process that made the call has ended, so that no answer can reach the
/// tool. The outcome of the call is unknown, which the run records when it is resumed.
async fn is_lost_question(store: &Store, approval: &Approval, now: Millis) -> Result<bool, StoreError> {
    if approval.question.is_none() || !store.is_abandoned(&approval.run_id, now).await? {
        return Ok(false);
    }
    is_asked_during_call(store, approval).await
}

/// Whether a tool asked while its call is in progress, so that it waits for the answer on a connection of the process
/// that makes the call. Otherwise the call is made again with the answer.
pub(crate) async fn is_asked_during_call(store: &Store, approval: &Approval) -> Result<bool, StoreError> {
    let call = store.call(&approval.run_id, approval.call).await?;
    Ok(approval.question.is_some() && call.is_some_and(|call| call.state == CallState::Dispatched))
}

/// Removes the questions of tools: a decision about several calls at once answers none of them.
fn leave_questions(selected: &mut Vec<Approval>) {
    let before = selected.len();
    selected.retain(|approval| approval.question.is_none());
    let approvals = hint::command("approvals");
    match before - selected.len() {
        0 => {}
        1 => render::note(&format!("note: the question of a tool stays pending; answer it with `{approvals}`")),
        number => {
            render::note(&format!("note: {number} questions of tools stay pending; answer each with `{approvals}`"))
        }
    }
}

fn read(input: &str) -> Result<Value, ApprovalsError> {
    match contract::json::read(input) {
        Ok(input @ Value::Object(_)) => Ok(input),
        Ok(_) => Err(ApprovalsError::NoObject("write one JSON object".to_owned())),
        Err(error) => Err(ApprovalsError::NoObject(error.to_string())),
    }
}

/// Reports that an approval is not pending.
fn not_pending(message: &str) -> ExitCode {
    eprintln!("cellmate: {message}");
    ExitCode::from(NOT_PENDING)
}

/// Returns the user and command that the transcript records for a decision.
pub(crate) fn decided_by(command: &str) -> String {
    let named = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    let name = named.unwrap_or_else(|| {
        let id = rustix::process::getuid().as_raw();
        // In containers and services neither variable is set.
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        user_name(&users, id).unwrap_or_else(|| format!("user id {id}"))
    });
    format!("{} (cellmate {command})", mcp::server::plain(&name, 64))
}

/// Returns the name of a user in the text of `/etc/passwd`.
fn user_name(users: &str, id: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(id) && !name.is_empty()).then(|| name.to_owned())
    })
}

/// Returns the tool's id, such as `mcp:github:create_issue`, safe to print.
fn tool(approval: &Approval) -> String {
    mcp::server::plain(&approval.tool_id, 200)
}

#[cfg(test)]
mod tests {
    use super::user_name;

    #[test]
    fn a_user_is_found_by_id() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(user_name(users, 1000).as_deref(), Some("ada"));
        assert_eq!(user_name(users, 0).as_deref(), Some("root"));
        assert_eq!(user_name(users, 7), None);
    }
}
