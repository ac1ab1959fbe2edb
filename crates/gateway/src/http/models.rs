//! `GET /v1/models`: the agents, in the form of both vendors.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::request::{agent_of_model, model_name};
use crate::gateway::Gateway;

pub(super) async fn list(State(gateway): State<Gateway>) -> Json<Value> {
    let policy = gateway.policy();
    let mut models = vec![model("openclaw")];
    models.extend(policy.config.agent_ids().map(|agent| model(&model_name(agent))));
    let id = |model: &Value| model.get("id").cloned();
    let (first, last) = (models.first().and_then(id), models.last().and_then(id));
    Json(json!({"object": "list", "data": models, "has_more": false, "first_id": first, "last_id": last}))
}

pub(super) async fn get(State(gateway): State<Gateway>, Path(id): Path<String>) -> Response {
    match agent_of_model(&gateway.policy().config, &id) {
        Some(_) => Json(model(&id)).into_response(),
        None => {
            let error = json!({"error": {"message": "there is no such model", "type": "invalid_request_error"}});
            (StatusCode::NOT_FOUND, Json(error)).into_response()
        }
    }
}

fn model(id: &str) -> Value {
    json!({
        "id": id, "object": "model", "type": "model", "display_name": id, "created": 0,
        "created_at": "1970-01-01T00:00:00Z", "owned_by": "cellmate",
    })
}
