//! Which tokens reach which routes, and what the others are answered.

use http_server::limits::MAX_FAILED_LOGINS;

use crate::served::{AGENT, LOCAL, READER, Served};

#[tokio::test]
async fn either_header_authenticates_and_no_handler_sees_the_secret() {
    let served = Served::start().await;
    let bearer = format!("Bearer {AGENT}");
    for headers in [
        &[("Authorization", bearer.as_str())][..],
        &[("X-Api-Key", AGENT)],
        &[("Authorization", bearer.as_str()), ("x-api-key", AGENT)],
    ] {
        let (status, response) = served.request("/execute", headers, b"{}").await;
        assert_eq!(status, 200, "{response}");
        assert!(response.ends_with("agent execute,read 2 false"), "{response}");
    }
    let local = format!("Bearer {LOCAL}");
    for headers in [
        &[][..],
        &[("x-api-key", "nonsense-nonsense-nonsense")],
        &[("Authorization", local.as_str()), ("x-api-key", AGENT)],
        &[("Authorization", "Bearer nonsense-nonsense-nonsense"), ("x-api-key", AGENT)],
        &[("x-api-key", AGENT), ("x-api-key", LOCAL)],
    ] {
        let (status, response) = served.request("/execute", headers, b"{}").await;
        assert_eq!(status, 401, "{headers:?}");
        assert!(response.to_lowercase().contains("www-authenticate: bearer"), "{response}");
        assert!(!response.contains(AGENT) && !response.contains(LOCAL), "{response}");
    }
    assert_eq!(served.status(&format!("/execute?token={AGENT}&x-api-key={AGENT}"), &[], b"").await, 401);
    assert_eq!(served.status("/healthz", &[], b"").await, 405);
}

#[tokio::test]
async fn a_token_reaches_only_the_routes_of_its_permissions() {
    let served = Served::start().await;
    for (token, path, expected) in [
        (LOCAL, "/execute", 200),
        (LOCAL, "/own", 200),
        (LOCAL, "/hidden", 200),
        (LOCAL, "/finer", 200),
        (AGENT, "/token", 200),
        (AGENT, "/execute", 200),
        // A token that may execute may not approve.
        (AGENT, "/own", 403),
        (AGENT, "/hidden", 404),
        (AGENT, "/finer", 403),
        (READER, "/token", 200),
        (READER, "/execute", 403),
        (READER, "/v1/large", 403),
    ] {
        assert_eq!(served.status(path, &[("x-api-key", token)], b"{}").await, expected, "{token} {path}");
    }
}

#[tokio::test]
async fn a_route_words_its_refusals_and_a_hidden_one_looks_absent() {
    let served = Served::start().await;
    let (status, response) = served.request("/own", &[], b"{}").await;
    assert_eq!(status, 401);
    assert!(response.ends_with("{\"error\":\"401\"}"), "{response}");
    assert!(response.to_lowercase().contains("www-authenticate"), "{response}");
    let (_, response) = served.request("/own", &[("x-api-key", AGENT)], b"{}").await;
    assert!(response.ends_with("{\"error\":\"403\"}"), "{response}");
    let (_, response) = served.request("/execute", &[("x-api-key", READER)], b"{}").await;
    assert!(response.contains("use one with the permission `execute`"), "{response}");
    let (_, response) = served.request("/hidden", &[("x-api-key", AGENT)], b"{}").await;
    assert!(!response.contains("admin") && !response.contains("permission"), "{response}");
}

#[tokio::test]
async fn scopes_of_a_stored_token_come_from_the_store() {
    let served = Served::start().await;
    let both = served.create_token("both", "execute,approve", None).await;
    let odd = served.create_token("odd", "execute,everything", None).await;
    let ended = served.create_token("ended", "execute", Some(1)).await;
    let (status, response) = served.request("/own", &[("x-api-key", &both)], b"{}").await;
    assert_eq!(status, 200);
    assert!(response.ends_with("ada execute,approve 2 false"), "{response}");
    assert_eq!(served.status("/hidden", &[("x-api-key", &both), ("x-scopes", "admin")], b"{}").await, 404);
    // A row that this program did not write, and a token that has expired.
    for secret in [&odd, &ended] {
        assert_eq!(served.status("/execute", &[("x-api-key", secret)], b"{}").await, 401);
    }
}

#[tokio::test]
async fn a_network_that_sends_too_many_invalid_tokens_waits_and_valid_tokens_are_served() {
    let served = Served::start().await;
    for _ in 0..MAX_FAILED_LOGINS {
        assert_eq!(served.status("/token", &[("x-api-key", "wrong-wrong-wrong-wrong")], b"").await, 401);
    }
    for path in ["/token", "/own"] {
        let (status, response) = served.request(path, &[("x-api-key", "wrong-wrong-wrong-wrong")], b"").await;
        assert_eq!(status, 429, "{response}");
        let wait = response.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
        assert!((1..=61).contains(&wait.parse::<u64>().unwrap()), "{response}");
    }
    assert_eq!(served.status("/token", &[("x-api-key", AGENT)], b"").await, 200);
    let stored = served.create_token("tok_1", "execute", None).await;
    assert_eq!(served.status("/execute", &[("x-api-key", &stored)], b"").await, 200);
    assert_eq!(served.status("/token", &[], b"").await, 401, "a request without a token is no attempt");
}
