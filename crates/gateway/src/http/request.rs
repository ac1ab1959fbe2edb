//! What the headers and the model name of a request say: the agent, the session, the channel.

use axum::http::HeaderMap;
use contract::config::AgentsConfig;
use sha2::{Digest, Sha256};
use wire::Wire;
use wire::downstream::ClientRequest;

use crate::turn::Owner;

/// The most bytes of a session key and of similar headers.
const MAX_HEADER_BYTES: usize = 256;

/// Returns the wire that a path belongs to.
pub(super) fn wire_of(path: &str) -> Wire {
    match path {
        path if path.starts_with("/v1/messages") => Wire::Messages,
        path if path.starts_with("/v1/responses") => Wire::Responses,
        _ => Wire::Chat,
    }
}

/// Returns the model name of an agent.
pub(super) fn model_name(agent: &str) -> String {
    format!("openclaw/{agent}")
}

/// Returns the agent that a model name stands for: `openclaw`, `openclaw/<agent>`, `openclaw:<agent>` or `agent:<agent>`.
pub(super) fn agent_of_model(config: &AgentsConfig, model: &str) -> Option<String> {
    let default = || config.default_agent().unwrap_or(contract::config::LOCAL_AGENT).to_owned();
    if matches!(model, "openclaw" | "openclaw/default" | "openclaw:default" | "agent:default") {
        return Some(default());
    }
    let named = ["openclaw/", "openclaw:", "agent:"].into_iter().find_map(|prefix| model.strip_prefix(prefix));
    named.filter(|agent| config.agent_ids().any(|known| known.eq_ignore_ascii_case(agent))).map(str::to_lowercase)
}

/// Returns the value of a header that is not too long.
pub(super) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (!value.is_empty() && value.len() <= MAX_HEADER_BYTES).then_some(value)
}

/// Returns the agent that a request is for: that of the header, else that of the model name.
pub(super) fn agent(config: &AgentsConfig, headers: &HeaderMap, request: &ClientRequest) -> Option<String> {
    match header(headers, "x-openclaw-agent-id") {
        Some(agent) => agent_of_model(config, &model_name(agent)),
        None => agent_of_model(config, &request.model),
    }
}

/// Returns the session that a request names, if it names one. Sessions of principals and agents are apart.
pub(super) fn named_session(
    principal: &str,
    agent: &str,
    headers: &HeaderMap,
    request: &ClientRequest,
) -> Option<(String, String)> {
    let key = header(headers, "x-openclaw-session-key").map(str::to_owned).or_else(|| request.user.clone())?;
    Some((session_id(principal, agent, &key), key))
}

/// Returns the id of a session by its key.
pub(crate) fn session_id(principal: &str, agent: &str, key: &str) -> String {
    let mut hash = Sha256::new();
    for part in [principal, agent, key] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let hash = hex::encode(hash.finalize());
    format!("gw:{agent}:{}", hash.get(..32).unwrap_or_default())
}

/// Returns whose turn a request is.
pub(super) fn owner(
    principal: &str,
    agent: &str,
    (session_id, session_key): (String, Option<String>),
    headers: &HeaderMap,
) -> Owner {
    Owner {
        principal: principal.to_owned(),
        agent: agent.to_owned(),
        session_id,
        session_key,
        sender: header(headers, "x-openclaw-account-id").map(str::to_owned),
        channel: Some(header(headers, "x-openclaw-message-channel").unwrap_or("api").to_owned()),
    }
}
