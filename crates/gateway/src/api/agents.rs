//! `/api/v1/agents`, and the tools of an agent outside of a turn.

use ::catalog::policy::Provider as PolicyProvider;
use axum::Json;
use axum::extract::State;
use contract::config::{AgentsConfig, LOCAL_AGENT};
use contract::scope::Scope;
use serde_json::{Value, json};
use wire::Wire;

use super::Api;
use super::error::ApiError;
use super::schema::Presence::Required;
use super::schema::{boolean, nullable_text, object, page, text};
use crate::internal_error::internal_message;
use crate::turn::prepared::PreparedTurn;
use crate::turn::record::TurnRequest;

pub(super) fn page_schema() -> Value {
    page(object(&[
        ("id", Required, text()),
        ("model", Required, nullable_text()),
        ("isDefault", Required, boolean()),
        ("isSandboxed", Required, boolean()),
    ]))
}

pub(super) async fn list(State(api): State<Api>) -> Json<Value> {
    let policy = api.gateway.policy();
    let config = &policy.config;
    let default = default_agent(config);
    let agent = |id: &str| {
        json!({
            "id": id,
            "model": config.model(id).map(|choice| choice.primary.as_str()),
            "isDefault": id == default,
            "isSandboxed": config.is_sandboxed(id),
        })
    };
    let mut items: Vec<Value> = config.agent_ids().map(agent).collect();
    if !config.has_agent(default) {
        items.insert(0, agent(default));
    }
    Json(json!({"items": items, "nextCursor": null}))
}

fn default_agent(config: &AgentsConfig) -> &str {
    config.default_agent().unwrap_or(LOCAL_AGENT)
}

/// Returns the id of the agent that a request names, or of the default agent.
pub(super) fn resolve(config: &AgentsConfig, named: Option<&str>) -> Result<String, ApiError> {
    let default = default_agent(config);
    match named {
        None => Ok(default.to_owned()),
        Some(named) if named.eq_ignore_ascii_case("default") || named.eq_ignore_ascii_case(default) => {
            Ok(default.to_owned())
        }
        Some(named) if config.has_agent(named) => Ok(named.to_lowercase()),
        Some(_) => Err(ApiError::not_found()),
    }
}

/// Prepares the tools that are offered now, as policy allows them to an agent.
pub(super) fn prepare(api: &Api, scope: Scope) -> Result<PreparedTurn, ApiError> {
    let policy = api.gateway.policy();
    let model = policy.config.model(&scope.agent_id);
    let provider = match model.and_then(|choice| api.gateway.providers().target(&choice.primary)) {
        Some(target) => {
            PolicyProvider::Known { name: target.provider.id().to_owned(), model: Some(target.model.clone()) }
        }
        None => PolicyProvider::Unknown,
    };
    let request = TurnRequest::new(&scope.agent_id, Wire::Chat, Vec::new());
    PreparedTurn::new(api.gateway.settings(), &api.gateway.offered(), scope, &request, provider).map_err(|error| {
        let (what_failed, next) = ("the tools of this agent cannot be prepared", "the server's log says why");
        ApiError::unavailable(internal_message("prepare the tools of an agent", &error, what_failed, next))
    })
}
