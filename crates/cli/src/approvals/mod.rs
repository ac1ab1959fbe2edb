//! `cellmate approvals`: lists and decides pending approvals, in a store that a server may be using.

mod arguments;
mod non_interactive;
mod print;
mod rules;
pub(crate) mod terminal;

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

use contract::ids::ApprovalId;
use executor::clock::now_ms;
use serde_json::Value;
use store::{Approval, ApprovalScope, Decision, DecisionError, Store, StoreError};

use crate::render;
use crate::state::StateError;

use arguments::Action;
pub(crate) use arguments::ApprovalsArguments;
use terminal::Answer;

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
    let as_json = arguments.json;
    let interactive = terminal::is_interactive();
    if matches!(arguments.action, Some(Action::Approve { .. })) && !interactive {
        let places = arguments.store.places();
        let allowed = non_interactive::is_allowed(&places).map_err(ApprovalsError::Configuration)?;
        if !allowed {
            return Err(ApprovalsError::NoTerminal);
        }
    }
    let store = arguments.store.choose()?.open().await?;
    match arguments.action {
        None if interactive && stdout().is_terminal() && !as_json => review_all(&store).await,
        None | Some(Action::List) => {
            print::list(&open(&store).await?, now_ms(), as_json);
            Ok(ExitCode::SUCCESS)
        }
        Some(Action::Show { id }) => match find(&store, &id).await? {
            Some(approval) => {
                print::whole(&approval, now_ms(), as_json);
                Ok(ExitCode::SUCCESS)
            }
            None => Ok(not_pending(&id)),
        },
        Some(Action::Approve { approvals, always, input }) => {
            let reach = if always { ApprovalScope::Agent } else { ApprovalScope::Once };
            let edited_input = input.as_deref().map(read).transpose()?;
            if edited_input.is_some() && approvals.ids.len() > 1 {
                return Err(ApprovalsError::OneInput);
            }
            let decision = Decision::Approve { edited_input, reach };
            decide_each(&store, &approvals.ids, &decision, interactive, as_json).await
        }
        Some(Action::Deny { approvals, note }) => {
            decide_each(&store, &approvals.ids, &Decision::Deny { note }, false, as_json).await
        }
        Some(Action::Rules { action }) => rules::act(&store, &arguments.store.places(), action, as_json).await,
    }
}

/// Returns the approvals that can still be decided.
async fn open(store: &Store) -> Result<Vec<Approval>, StoreError> {
    let now = now_ms();
    let mut open = store.pending_approvals().await?;
    open.retain(|approval| approval.is_open(now));
    Ok(open)
}

async fn find(store: &Store, id: &ApprovalId) -> Result<Option<Approval>, StoreError> {
    Ok(store.approval(id).await?.filter(|approval| approval.is_open(now_ms())))
}

/// Shows the pending approvals one after another, and records the decisions that the user types.
async fn review_all(store: &Store) -> Result<ExitCode, ApprovalsError> {
    let pending = open(store).await?;
    print::list(&pending, now_ms(), false);
    for (number, approval) in pending.iter().enumerate() {
        eprintln!("\n{} of {}: {}", number + 1, pending.len(), print::heading(approval, now_ms()));
        eprintln!("{}", terminal::call(approval));
        if let Some(question) = terminal::question(approval) {
            eprintln!("{question}");
        }
        loop {
            let Some(line) = terminal::ask(terminal::choices(approval)).await else { return Ok(ExitCode::SUCCESS) };
            match terminal::parse_answer(approval, &line) {
                Answer::Decide(decision) => {
                    decide(store, &approval.approval_id, &decision, false).await?;
                    break;
                }
                Answer::Skip => break,
                Answer::Unclear(why) => eprintln!("{why}"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows an approval on the terminal and asks for confirmation. Any answer but "y" or "yes" leaves it undecided.
async fn is_confirmed(store: &Store, id: &ApprovalId, decision: &Decision) -> Result<bool, ApprovalsError> {
    let Some(approval) = find(store, id).await? else {
        not_pending(id);
        return Ok(false);
    };
    eprintln!("{}\n{}", print::heading(&approval, now_ms()), terminal::call(&approval));
    if let Some(question) = terminal::question(&approval) {
        eprintln!("{question}");
    }
    let prompt = match decision {
        Decision::Approve { edited_input: Some(input), .. } => {
            let input = terminal::arguments(input, id);
            let what = if approval.question.is_some() { "answer with" } else { "call it with these arguments instead" };
            format!("{what}: {input}\n[y]es, [N]o: ")
        }
        Decision::Approve { reach: ApprovalScope::Agent, .. } => {
            "approve it, and all later calls of this tool without asking? [y]es, [N]o: ".to_owned()
        }
        Decision::Approve { .. } | Decision::Deny { .. } => "approve it? [y]es, [N]o: ".to_owned(),
    };
    let line = terminal::ask(&prompt).await.unwrap_or_default();
    let confirmed = matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !confirmed {
        eprintln!("cellmate: `{}` is still pending", mcp::server::plain(id, 100));
    }
    Ok(confirmed)
}

/// Records the same decision for each approval, after confirmation on the terminal if `confirm` is set.
///
/// An approval that cannot be decided does not stop the rest.
async fn decide_each(
    store: &Store,
    ids: &[ApprovalId],
    decision: &Decision,
    confirm: bool,
    as_json: bool,
) -> Result<ExitCode, ApprovalsError> {
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        let decided =
            (!confirm || is_confirmed(store, id, decision).await?) && decide(store, id, decision, as_json).await?;
        if !decided {
            code = ExitCode::from(NOT_PENDING);
        }
    }
    Ok(code)
}

/// Records a decision and prints it. Returns false if the approval could not be decided.
async fn decide(store: &Store, id: &ApprovalId, decision: &Decision, as_json: bool) -> Result<bool, ApprovalsError> {
    match codemode::decide(store, id, decision, &decided_by("approvals")).await {
        Ok(approval) => {
            print::decided(&approval, as_json);
            return Ok(true);
        }
        Err(DecisionError::NotPending) => {
            not_pending(id);
        }
        Err(refused @ DecisionError::Unfit(_)) => {
            eprintln!("cellmate: {refused}; see `cellmate approvals show {}`", mcp::server::plain(id, 100));
        }
        Err(refused @ DecisionError::TooManyRules) => eprintln!("cellmate: {refused}"),
        Err(DecisionError::Store(error)) => return Err(error.into()),
    }
    Ok(false)
}

fn read(input: &str) -> Result<Value, ApprovalsError> {
    match contract::json::read(input) {
        Ok(input @ Value::Object(_)) => Ok(input),
        Ok(_) => Err(ApprovalsError::NoObject("write one JSON object".to_owned())),
        Err(error) => Err(ApprovalsError::NoObject(error.to_string())),
    }
}

fn not_pending(id: &str) -> ExitCode {
    let id = mcp::server::plain(id, 100);
    eprintln!("cellmate: no pending approval `{id}`; it was decided or expired, its run ended, or the id is wrong");
    ExitCode::from(NOT_PENDING)
}

/// Returns the user and command that the transcript records for a decision.
pub(crate) fn decided_by(command: &str) -> String {
    let name = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .unwrap_or_else(|| "unknown user".to_owned());
    format!("{} (cellmate {command})", mcp::server::plain(&name, 64))
}

/// Returns the tool's id, such as `mcp:github:create_issue`, safe to print.
fn tool(approval: &Approval) -> String {
    mcp::server::plain(&approval.tool_id, 200)
}
