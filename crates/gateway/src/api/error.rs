//! Errors of the programs' interface, in its form.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use store::StoreError;

use super::limits::RETRY_AFTER;
use crate::internal_error::internal_message;

/// An error as a client receives it: a status, a word for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// Returns the error for what does not exist or belongs to others, which are alike.
    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "not found")
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// Returns the value of `error` in a response.
    pub(crate) fn to_json(&self) -> Value {
        json!({"type": self.kind, "message": self.message})
    }

    /// Returns a response with this body and the error's status and headers.
    pub(crate) fn response(&self, body: &Value) -> Response {
        let mut response =
            (self.status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let operation = "serve a request to the programs' interface";
        Self::unavailable(internal_message(operation, &error, "the store cannot be used now", "try again"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(&json!({"error": self.to_json()}))
    }
}

#[cfg(test)]
mod tests {
    use store::StoreError;

    use super::ApiError;

    #[test]
    fn an_error_of_the_store_reaches_the_client_as_an_incident_id() {
        let error = ApiError::from(StoreError::Corrupt("no such column: SELECT secret FROM runs".to_owned()));
        let message = error.message;
        assert!(message.starts_with("the store cannot be used now (incident "), "{message}");
        assert!(message.ends_with("); try again") && !message.contains("SELECT"), "{message}");
    }
}
