//! `/api/v1/catalog`: the tools that policy allows an agent.

use axum::Json;
use axum::extract::State;
use catalog::View;
use contract::scope::Scope;
use contract::tool::ToolSpec;
use serde_json::{Value, json};
use store::PageKey;

use super::Api;
use super::access::Viewer;
use super::agents;
use super::error::ApiError;
use super::request::{Ids, Query, page};
use super::schema::Presence::{Optional, Required};
use super::schema::{any, list as list_of, nullable_text, object, open_object, text};

fn entry_schema(more: &[(&'static str, super::schema::Presence, Value)]) -> Value {
    let mut fields = vec![
        ("id", Required, text()),
        ("name", Required, text()),
        ("description", Required, text()),
        ("source", Required, text()),
        ("sourceName", Required, text()),
        ("label", Optional, text()),
        ("signature", Optional, text()),
        ("call", Optional, text()),
    ];
    fields.extend_from_slice(more);
    object(&fields)
}

pub(super) fn page_schema() -> Value {
    open_object(&[
        ("agent", Required, text()),
        ("items", Required, list_of(entry_schema(&[]))),
        ("nextCursor", Required, nullable_text()),
    ])
}

pub(super) fn tool_schema() -> Value {
    entry_schema(&[("parameters", Required, any())])
}

/// Lists the tools by id or, with a query, the best matches first.
pub(super) async fn list(State(api): State<Api>, viewer: Viewer, query: Query) -> Result<Json<Value>, ApiError> {
    let agent = agents::resolve(&api.gateway.policy().config, query.text("agent"))?;
    let prepared = agents::prepare(&api, scope(&viewer, &agent))?;
    let (catalog, limit) = (prepared.executor.catalog(), query.number("limit"));
    let mut found = match query.text("query") {
        Some(words) => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            json!({"items": catalog.search(View::ToolSearch, words, limit), "nextCursor": null})
        }
        None => {
            let after = query.after()?;
            let is_after = |tool: &&ToolSpec| after.as_ref().is_none_or(|key| tool.id.as_str() > key.id.as_str());
            let take = usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(1);
            let tools: Vec<&ToolSpec> = catalog.tools().iter().filter(is_after).take(take).collect();
            let key = |tool: &&ToolSpec| PageKey { at: 0, id: tool.id.as_str().to_owned() };
            page(tools, limit, key, |tool| catalog.compact(View::ToolSearch, tool.id.as_str()).unwrap_or_default())
        }
    };
    if let Some(fields) = found.as_object_mut() {
        fields.insert("agent".to_owned(), Value::from(agent));
    }
    Ok(Json(found))
}

pub(super) async fn get(
    State(api): State<Api>,
    viewer: Viewer,
    ids: Ids,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let agent = agents::resolve(&api.gateway.policy().config, query.text("agent"))?;
    let prepared = agents::prepare(&api, scope(&viewer, &agent))?;
    let described = prepared.executor.catalog().describe(View::ToolSearch, ids.first());
    described.map(Json).ok_or_else(ApiError::not_found)
}

fn scope(viewer: &Viewer, agent: &str) -> Scope {
    Scope {
        agent_id: agent.to_owned(),
        session_id: crate::http::session_id(viewer.principal(), agent, "catalog"),
        channel: Some("api".to_owned()),
        ..Scope::default()
    }
}
