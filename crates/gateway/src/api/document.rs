//! `/openapi.json`: the document that describes all routes.

use axum::Json;
use axum::extract::State;
use serde_json::Value;

use super::Api;
use super::schema::Presence::Required;
use super::schema::{any, open_object, text};

pub(super) fn document_schema() -> Value {
    open_object(&[("openapi", Required, text()), ("info", Required, any()), ("paths", Required, any())])
}

pub(super) async fn get(State(api): State<Api>) -> Json<Value> {
    Json(Value::clone(&api.document))
}
