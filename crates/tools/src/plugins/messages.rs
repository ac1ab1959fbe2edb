//! Texts and JSON that several parts of the plugin host share.

use std::time::Duration;

use contract::scope::Scope;
use serde_json::{Value, json};

use super::connection::RequestError;
use super::manifest::Effects;

/// Returns what a plugin learns about the run that a call belongs to.
pub(super) fn scope_json(scope: &Scope) -> Value {
    json!({
        "agentId": scope.agent_id,
        "sessionId": scope.session_id,
        "sessionKey": scope.session_key,
        "agentRunId": Some(&scope.agent_run_id).filter(|id| !id.is_empty()),
        "sender": scope.sender,
        "channel": scope.channel,
    })
}

/// Explains why a request has no result, for people and cells.
pub(super) fn explain(error: &RequestError, limit: Duration, effects: Effects) -> String {
    let took_effect = match effects {
        Effects::Reads => "",
        Effects::Repeatable | Effects::Changes => "; it may have taken effect",
    };
    match error {
        RequestError::NotSent(why) | RequestError::Lost(why) => why.to_string(),
        RequestError::Refused { code, message } => format!("{message} (code {code})"),
        RequestError::Deadline => {
            format!("no answer within {} ms, so the call was cancelled{took_effect}", limit.as_millis())
        }
        RequestError::Crowded => "the plugin has too many calls to answer; try again".to_owned(),
        RequestError::TooLarge(why) => why.clone(),
        RequestError::Invalid => format!("its answer is not a JSON-RPC response{took_effect}"),
    }
}
