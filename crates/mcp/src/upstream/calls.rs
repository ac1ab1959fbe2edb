//! Calls to a server that may not be running yet, and that may crash or restart during a call or a task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::tool::{Repeat, ToolId};
use executor::{AuthorizedCall, Dispatch, Outcome, ParkedCall, ParkedOn};

use super::start::{Unavailable, acquire};
use super::supervisor::Supervisor;
use crate::client::{Attempt, FollowOutcome, MAX_SHOWN_NAME_CHARS, TicketContent, shown};

/// How often a call is tried if the server crashes before it has received the call, or afterwards if the tool may be
/// called again.
const MAX_TRIES: u32 = 2;

/// How long a server may be unreachable before the outcome of its tasks is unknown: enough time to restart it by hand.
const OUT_OF_REACH: Duration = Duration::from_secs(5 * 60);

/// The pause between two attempts to reach the server.
const PAUSE: Duration = Duration::from_secs(2);

/// Makes a call, and starts the server for it if necessary.
pub(super) async fn call(supervisor: &Arc<Supervisor>, call: &AuthorizedCall) -> Dispatch {
    let mut tries = 0;
    let mut not_called: fn(&Supervisor, &ToolId, &str) -> Dispatch = not_called;
    loop {
        tries += 1;
        let running = match acquire(supervisor).await {
            Ok(running) => running,
            Err(why) => return not_called(supervisor, call.id(), &why.to_string()),
        };
        if has_changed_since_approval(supervisor, call) {
            let why = "its definition has changed since it was approved; a new run shows the new definition and \
                       asks again";
            return not_called(supervisor, call.id(), why);
        }
        match running.server().attempt(call).await {
            Attempt::Settled(dispatch) => return dispatch,
            Attempt::NotSent(_) if tries < MAX_TRIES => {}
            Attempt::NotSent(why) => return not_called(supervisor, call.id(), &why.to_string()),
            Attempt::Lost(_) if tries < MAX_TRIES && may_repeat(supervisor, call.id()) => not_called = not_called_again,
            Attempt::Lost(why) => return Dispatch::Settled(running.server().lost(call.id(), why)),
        }
    }
}

/// Follows a parked task to its end, over as many connections as it takes: the task continues while the server or this
/// process restarts.
pub(super) async fn follow(supervisor: &Arc<Supervisor>, parked: &ParkedCall) -> Dispatch {
    let Some(mut timed) = TicketContent::read(parked.ticket()).and_then(TicketContent::task) else {
        return Dispatch::Settled(Outcome::Unknown);
    };
    let mut unreached: Option<Instant> = None;
    loop {
        match acquire(supervisor).await {
            Ok(running) => {
                unreached = None;
                match running.server().follow_task(parked, &mut timed).await {
                    FollowOutcome::Over(dispatch) => return dispatch,
                    FollowOutcome::Lost(_) => {}
                }
            }
            // This process shuts down, or no longer has this server; the next holder of the run follows the task.
            Err(Unavailable::ShuttingDown | Unavailable::Removed) => {
                return Dispatch::Parked(ParkedOn::Followed(parked.ticket().clone()));
            }
            Err(_) => {
                let since = *unreached.get_or_insert_with(Instant::now);
                if since.elapsed() >= OUT_OF_REACH || timed.left().is_zero() {
                    return Dispatch::Settled(Outcome::Unknown);
                }
            }
        }
        tokio::time::sleep(PAUSE.min(timed.task.poll_interval)).await;
    }
}

/// Cancels a task at the server, and starts the server for it if necessary.
pub(super) async fn cancel(supervisor: &Arc<Supervisor>, parked: &ParkedCall) {
    let Some(timed) = TicketContent::read(parked.ticket()).and_then(TicketContent::task) else { return };
    match acquire(supervisor).await {
        Ok(running) => running.server().cancel_task(&timed.task).await,
        Err(why) => tracing::warn!(server = %supervisor.name(), reason = %why, "a task cannot be cancelled"),
    }
}

/// Returns true if the tool's definition is not the approved one. It must be checked while the server runs, because
/// a cached listing may be outdated.
fn has_changed_since_approval(supervisor: &Supervisor, call: &AuthorizedCall) -> bool {
    let Some(agreed) = call.approved_definition() else { return false };
    let listing = supervisor.listing();
    listing.and_then(|listing| listing.definition_hash(call.id())).is_some_and(|now| now != agreed)
}

fn may_repeat(supervisor: &Supervisor, id: &ToolId) -> bool {
    let repeats = |tool: &contract::tool::ToolSpec| tool.id == *id && tool.repeat != Repeat::Never;
    supervisor.listing().is_some_and(|listing| listing.tools.iter().any(repeats))
}

fn not_called(supervisor: &Supervisor, id: &ToolId, why: &str) -> Dispatch {
    let tool = shown(id.name(), MAX_SHOWN_NAME_CHARS);
    Dispatch::Settled(Outcome::not_called(format_args!("`{tool}` of MCP server `{}`", supervisor.name()), why))
}

/// Returns the failure of a call whose server ended during the first attempt, and could not be reached for a second one.
fn not_called_again(supervisor: &Supervisor, id: &ToolId, why: &str) -> Dispatch {
    let tool = shown(id.name(), MAX_SHOWN_NAME_CHARS);
    let message = format!(
        "`{tool}` of MCP server `{}` failed: the server ended during the call and could not be called again: {why}",
        supervisor.name()
    );
    Dispatch::Settled(Outcome::Failed(message))
}
