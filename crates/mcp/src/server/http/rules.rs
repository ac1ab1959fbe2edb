//! The request gate's rules for `/mcp`.

use axum::http::Method;
use axum::http::request::Parts;
use http_server::limits::MAX_BODY_BYTES;
use http_server::{Permission, Refusal, RouteRules};
use serde::Deserialize;

use super::limits::MAX_INITIALIZE_BYTES;
use crate::server::wire::{is_modern_version, session_of};

pub(super) fn rules() -> RouteRules {
    RouteRules { body_limit, check_body, ..RouteRules::requiring(Permission::Execute) }
}

/// Returns the size limit of a request's body. In revisions before 2026-07-28 a request without a session can only be
/// `initialize`.
fn body_limit(head: &Parts) -> usize {
    let headers = &head.headers;
    let is_legacy = headers.contains_key("mcp-protocol-version") && !is_modern_version(headers);
    if head.method != Method::POST || (is_legacy && session_of(headers).is_none()) {
        MAX_INITIALIZE_BYTES
    } else {
        MAX_BODY_BYTES
    }
}

fn check_body(head: &Parts, body: &[u8]) -> Result<(), Refusal> {
    if body.len() > MAX_INITIALIZE_BYTES && session_of(&head.headers).is_none() && may_be_initialize(body) {
        return Err(Refusal::TooLarge(MAX_INITIALIZE_BYTES));
    }
    Ok(())
}

/// Returns true if a body's method is `initialize` or cannot be determined.
fn may_be_initialize(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        method: Option<std::borrow::Cow<'a, str>>,
    }
    let envelope = serde_json::from_slice::<Envelope<'_>>(body);
    envelope.map_or(true, |envelope| envelope.method.is_none_or(|method| method == "initialize"))
}

#[cfg(test)]
mod tests {
    use axum::http::request::Parts;
    use axum::http::{Method, Request};

    use super::super::limits::MAX_INITIALIZE_BYTES;
    use super::{MAX_BODY_BYTES, body_limit, may_be_initialize};

    #[test]
    fn a_body_that_is_or_may_be_initialize_is_recognised() {
        for body in [
            r#"{"method":"initialize"}"#,
            r#"{"id":1,"params":{"method":"ping"},"method":"initi\u0061lize"}"#,
            r#"{"method":"ping","method":"initialize"}"#,
            r#"[{"method":"initialize"}]"#,
            r#"{"id":1}"#,
            "no JSON",
        ] {
            assert!(may_be_initialize(body.as_bytes()), "{body}");
        }
        assert!(!may_be_initialize(br#"{"method":"tools/call","params":{"method":"initialize"}}"#));
    }

    #[test]
    fn only_posts_in_a_session_or_of_the_newest_revision_may_be_large() {
        let head = |method: Method, headers: &[(&str, &str)]| -> Parts {
            let request = Request::builder().method(method);
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            request.body(()).unwrap().into_parts().0
        };
        let (version, session) = ("mcp-protocol-version", "mcp-session-id");
        for (method, given, limit) in [
            (Method::POST, &[(version, "2026-07-28")][..], MAX_BODY_BYTES),
            (Method::POST, &[(version, "2025-06-18"), (session, "a")], MAX_BODY_BYTES),
            (Method::POST, &[], MAX_BODY_BYTES),
            (Method::POST, &[(version, "2025-06-18")], MAX_INITIALIZE_BYTES),
            (Method::GET, &[(session, "a")], MAX_INITIALIZE_BYTES),
        ] {
            assert_eq!(body_limit(&head(method.clone(), given)), limit, "{method} {given:?}");
        }
    }
}
