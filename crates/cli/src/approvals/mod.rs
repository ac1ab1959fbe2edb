//! `cellmate approvals`: what cells ask a person about, seen and decided while a server runs, on the same store.

mod arguments;
mod print;

use std::process::ExitCode;

use executor::clock::now_ms;
use serde_json::Value;
use store::{Approval, Decision, DecisionRefused, Reach, Store, StoreError};

use crate::render;
use crate::state::StateError;

pub(crate) use arguments::ApprovalsArguments;
use arguments::{Action, Decided};

/// What was to be decided is not pending.
const NOT_PENDING: u8 = 1;

#[derive(Debug, thiserror::Error)]
enum ApprovalsError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("--input: {0}")]
    NoObject(String),
    #[error("--input answers one question; name one id")]
    OneInput,
}

pub(crate) async fn run(arguments: ApprovalsArguments) -> ExitCode {
    match act(arguments).await {
        Ok(code) => code,
        Err(error) => render::trouble(&error.to_string()),
    }
}

async fn act(arguments: ApprovalsArguments) -> Result<ExitCode, ApprovalsError> {
    let store = arguments.store.choose()?.open().await?;
    let as_json = arguments.json;
    match arguments.action {
        Action::List => {
            let now = now_ms();
            let mut open = store.pending_approvals().await?;
            open.retain(|approval| approval.is_open(now));
            print::list(&open, now, as_json);
            Ok(ExitCode::SUCCESS)
        }
        Action::Show { id } => {
            let found = store.pending_approvals().await?.into_iter().find(|approval| approval.approval_id == id);
            match found.filter(|approval| approval.is_open(now_ms())) {
                Some(approval) => {
                    print::whole(&approval, now_ms(), as_json);
                    Ok(ExitCode::SUCCESS)
                }
                None => Ok(not_pending(&id)),
            }
        }
        Action::Approve { decided, always, input } => {
            let reach = if always { Reach::Agent } else { Reach::Once };
            let edited_input = input.as_deref().map(read).transpose()?;
            if edited_input.is_some() && decided.ids.len() > 1 {
                return Err(ApprovalsError::OneInput);
            }
            decide(&store, &decided, &Decision::Approve { edited_input, reach }, as_json).await
        }
        Action::Deny { decided, note } => decide(&store, &decided, &Decision::Deny { note }, as_json).await,
    }
}

/// Each by itself: one that is not pending any more does not keep the others from being decided.
async fn decide(
    store: &Store,
    decided: &Decided,
    decision: &Decision,
    as_json: bool,
) -> Result<ExitCode, ApprovalsError> {
    let by = who("approvals");
    let mut code = ExitCode::SUCCESS;
    for id in &decided.ids {
        match codemode::decide(store, id, decision, &by).await {
            Ok(approval) => print::decided(&approval, as_json),
            Err(DecisionRefused::NotPending) => code = not_pending(id),
            Err(refused @ DecisionRefused::Unfit(_)) => {
                eprintln!("cellmate: {refused}; see `cellmate approvals show {}`", mcp::server::plain(id, 100));
                code = ExitCode::from(NOT_PENDING);
            }
            Err(DecisionRefused::Store(error)) => return Err(error.into()),
        }
    }
    Ok(code)
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
    eprintln!("cellmate: nothing of the name `{id}` is asked; it was decided before, its time is over, or its run is");
    ExitCode::from(NOT_PENDING)
}

/// For the transcript: whose terminal it was, and what was typed there.
pub(crate) fn who(command: &str) -> String {
    let name =
        ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "somebody".to_owned());
    format!("{} (cellmate {command})", mcp::server::plain(&name, 64))
}

/// `mcp:github:create_issue` as the commands show it.
fn tool(approval: &Approval) -> String {
    mcp::server::plain(&approval.tool_id, 200)
}
