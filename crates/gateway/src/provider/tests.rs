//! Providers against a scripted model, at the wire.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::config::ModelsConfig;
use serde_json::{Value, json};
use testkit::model::{Reply, ScriptedCall, ScriptedModel};
use wire::Wire;
use wire::conversation::{Arguments, Item, ModelTool, Part, StopReason};
use wire::limits::MAX_RESPONSE_BYTES;
use wire::upstream::{IncompleteResponse, ModelEvent, ModelRequest, ModelResponse, ToolChoice};

use super::{CallError, Lookup, LookupFuture, ModelTarget, Providers};
use crate::debug::DebugSettings;

fn api(wire: Wire) -> &'static str {
    match wire {
        Wire::Chat => "openai-completions",
        Wire::Responses => "openai-responses",
        Wire::Messages => "anthropic-messages",
    }
}

fn config(url: &str, wire: Wire, more: &Value) -> ModelsConfig {
    let mut provider = json!({"baseUrl": url, "api": api(wire), "apiKey": "test-key-123456"});
    provider.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    ModelsConfig::resolve(&json!({"providers": {"p": provider}})).unwrap()
}

fn target(url: &str, wire: Wire, more: &Value) -> ModelTarget {
    let providers = Providers::new(&config(url, wire, more), &|text| Ok(text.to_owned()), DebugSettings::default());
    providers.unwrap().target("p/some/model").unwrap()
}

/// Returns the bytes of a request as the gateway writes it.
fn body(target: &ModelTarget) -> Vec<u8> {
    let tool = |name: &str| ModelTool {
        name: name.to_owned(),
        description: "does it".to_owned(),
        parameters: serde_json::value::RawValue::from_string("{\"type\":\"object\"}".to_owned()).unwrap(),
    };
    ModelRequest {
        model: &target.model,
        instructions: "Be brief.",
        tools: &[tool("exec"), tool("wait")],
        tool_choice: ToolChoice::Auto,
        items: &[Item::User(vec![Part::Text("hello".to_owned())])],
        max_output_tokens: Some(100),
        stream: target.provider.streams(),
        cache_key: "",
        extra: target.provider.extra(),
        quirks: target.provider.quirks(),
    }
    .encode(target.provider.wire())
}

async fn respond(target: &ModelTarget) -> (Result<ModelResponse, CallError>, String) {
    let mut said = String::new();
    let result = target.provider.respond(body(target), |event| {
        if let ModelEvent::Text(text) = event {
            said.push_str(&text);
        }
    });
    let result = result.await;
    (result, said)
}

fn full_reply() -> Reply {
    let call = |name: &str, arguments: Value| ScriptedCall { name: name.to_owned(), arguments, id: None };
    Reply {
        text: "Let me see. ".to_owned(),
        reasoning: "I think so.".to_owned(),
        calls: vec![call("exec", json!({"code": "return 'ü'"})), call("wait", json!({}))],
        ..Reply::default()
    }
}

#[tokio::test]
async fn a_response_is_read_on_every_wire_streamed_and_not() {
    for wire in Wire::ALL {
        for streams in [true, false] {
            let model = ScriptedModel::start(vec![full_reply()].into()).unwrap();
            let target = target(&model.url(), wire, &json!({"stream": streams}));
            let (response, said) = respond(&target).await;
            let response = response.unwrap();
            assert_eq!(
                (response.message.text.as_str(), said.as_str()),
                ("Let me see. ", "Let me see. "),
                "{wire} {streams}"
            );
            assert_eq!(
                (&response.stop, response.model.as_str()),
                (&StopReason::ToolCalls, "some/model"),
                "{wire} {streams}"
            );
            let calls: Vec<(&str, &str)> =
                response.message.calls.iter().map(|call| (call.name.as_str(), call.arguments.text())).collect();
            assert_eq!(calls, [("exec", "{\"code\":\"return 'ü'\"}"), ("wait", "{}")], "{wire} {streams}");
            assert!(response.message.calls.iter().all(|call| !call.id.is_empty()), "{wire} {streams}");
            assert!(response.usage.output_tokens == 5, "{wire} {streams}: {:?}", response.usage);

            let requests = model.requests();
            let [request] = requests.as_slice() else { panic!("{requests:?}") };
            assert_eq!(request.body, body(&target), "the exact bytes");
            let path = match wire {
                Wire::Chat => "/v1/chat/completions",
                Wire::Responses => "/v1/responses",
                Wire::Messages => "/v1/messages",
            };
            assert_eq!(request.path, path);
            let key = match wire {
                Wire::Chat | Wire::Responses => ("authorization", "Bearer test-key-123456"),
                Wire::Messages => ("x-api-key", "test-key-123456"),
            };
            assert_eq!(request.header(key.0), Some(key.1));
            assert_eq!(request.header("anthropic-version"), (wire == Wire::Messages).then_some("2023-06-01"));
            assert_eq!(request.header("authorization").is_some(), wire != Wire::Messages);
            assert_eq!(request.header("content-type"), Some("application/json"));
        }
    }
}

#[tokio::test]
async fn a_response_that_is_cut_at_any_byte_is_never_complete() {
    for wire in Wire::ALL {
        for streams in [true, false] {
            let model = ScriptedModel::start(vec![full_reply()].into()).unwrap();
            let target = target(&model.url(), wire, &json!({"stream": streams}));
            let length = stream_length(wire, streams);
            let mut complete = 0;
            respond(&target).await.0.unwrap();
            // Every byte near the end, where a response could seem complete. The decoders' own tests cut at every byte.
            let near_end = length.saturating_sub(200);
            for cut in (0..near_end).step_by(23).chain(near_end..length) {
                model.push(Reply { cut_after_bytes: Some(cut), ..full_reply() });
                match respond(&target).await.0 {
                    Err(CallError::Broken(IncompleteResponse::Truncated)) => {}
                    // The last event has arrived, and only its end or the rest of the stream is missing.
                    Ok(response) if cut + 20 > length => {
                        complete += 1;
                        assert_eq!(response.message.calls.len(), 2, "{wire} {streams} {cut}");
                    }
                    other => panic!("{wire} {streams} cut at {cut} of {length}: {other:?}"),
                }
            }
            assert!(complete <= 1, "{wire} {streams}: {complete}");
        }
    }
}

/// Returns the length of the body of the full reply.
fn stream_length(wire: Wire, streams: bool) -> usize {
    let model = ScriptedModel::start(vec![full_reply()].into()).unwrap();
    let target = target(&model.url(), wire, &json!({"stream": streams}));
    let mut stream = std::net::TcpStream::connect(model.address()).unwrap();
    let body = body(&target);
    let head = format!("POST /v1{} HTTP/1.1\r\ncontent-length: {}\r\n\r\n", path(wire), body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    if !streams {
        return body.len();
    }
    // The sizes of the chunks.
    let (mut rest, mut length) = (body, 0);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        length += size;
        rest = after.get(size + 2..).unwrap_or_default();
    }
    length
}

fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Chat => "/chat/completions",
        Wire::Responses => "/responses",
        Wire::Messages => "/messages",
    }
}

#[tokio::test]
async fn error_statuses_are_reported_with_type_message_and_delay() {
    for wire in Wire::ALL {
        let model = ScriptedModel::start(Vec::new().into()).unwrap();
        let target = target(&model.url(), wire, &json!({}));
        let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let cases = [
            (400, "invalid_request_error", Vec::new(), None),
            (429, "rate_limit_error", header("retry-after", "7"), Some(7_000)),
            (429, "rate_limit_error", header("retry-after-ms", "150.5"), Some(150)),
            (503, "overloaded", header("retry-after", "soon"), None),
            (503, "overloaded", header("retry-after", "-1"), None),
            (529, "overloaded_error", header("retry-after", "1e300"), None),
            (503, "overloaded", header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), Some(0)),
        ];
        for (status, kind, headers, delay) in cases {
            let error_type = Some(kind.to_owned());
            model.push(Reply { headers, error_type, ..Reply::status(status, "no, test-key-123456 is wrong") });
            let Err(CallError::Status { status: found, kind: word, message, retry_after }) = respond(&target).await.0
            else {
                panic!("{wire} {status}")
            };
            assert_eq!((found, word.as_str()), (status, kind));
            assert_eq!(message, "no, [redacted] is wrong");
            assert_eq!(retry_after.map(|delay| delay.as_millis()), delay);
        }
        let later = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(1_000));
        model.push(Reply { headers: header("retry-after", &later), ..Reply::status(429, "slow down") });
        let (Err(CallError::Status { retry_after: Some(wait), .. }), ..) = respond(&target).await else { panic!() };
        assert!((900..=1_000).contains(&wait.as_secs()), "{wait:?}");
        // A page of a proxy, and a body that is longer than what is read of it.
        let page = "<html>Bad gateway</html>".to_owned();
        for raw in [page, format!("{{\"error\": {{\"message\": \"{}\"}}}}", "x".repeat(100_000))] {
            model.push(Reply { raw: Some(vec![raw]), ..Reply::status(502, "") });
            let error = respond(&target).await.0.unwrap_err();
            let CallError::Status { status: 502, message, .. } = error else { panic!("{error:?}") };
            assert_eq!(message, "no message");
        }
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = ScriptedModel::start(vec![Reply::text("stolen")].into()).unwrap();
    for status in [301, 302, 303, 307, 308] {
        let headers = vec![("location".to_owned(), format!("{}/chat/completions", other.url()))];
        let model = ScriptedModel::start(vec![Reply { headers, ..Reply::status(status, "") }].into()).unwrap();
        let error = respond(&target(&model.url(), Wire::Chat, &json!({}))).await.0.unwrap_err();
        assert!(matches!(error, CallError::Status { status: found, .. } if found == status), "{error:?}");
    }
    assert_eq!(other.requests().len(), 0);
}

#[tokio::test]
async fn a_provider_that_sends_nothing_times_out() {
    let idle = Duration::from_secs(1);
    let model = ScriptedModel::start(Vec::new().into()).unwrap();
    let target = target(&model.url(), Wire::Chat, &json!({"timeoutSeconds": 1}));
    // Before the head, and after a part of the stream.
    model.push(Reply { delay_ms: 30_000, ..full_reply() });
    model.push(Reply { cut_after_bytes: Some(500), stall_ms: 30_000, ..full_reply() });
    for _ in 0..2 {
        let started = Instant::now();
        assert_eq!(respond(&target).await.0.unwrap_err(), CallError::TimedOut(idle));
        assert!(started.elapsed() >= idle && started.elapsed() < Duration::from_secs(25));
    }
}

#[tokio::test]
async fn a_response_past_its_limits_is_refused() {
    let model = ScriptedModel::start(Vec::new().into()).unwrap();
    for streams in [true, false] {
        let target = target(&model.url(), Wire::Chat, &json!({"stream": streams}));
        // Comments are no events, so only the limit of the whole response applies.
        let line = if streams { format!(": {}", "x".repeat(1_000)) } else { " ".repeat(1_002) };
        model.push(Reply { raw: Some(vec![line; MAX_RESPONSE_BYTES / 1_000]), ..Reply::default() });
        let error = respond(&target).await.0.unwrap_err();
        assert!(matches!(error, CallError::Broken(IncompleteResponse::TooLarge(_))), "{streams} {error:?}");
    }
    let target = target(&model.url(), Wire::Messages, &json!({}));
    model.push(Reply { raw: Some(vec![format!("data: {}", "x".repeat(2 << 20))]), ..Reply::default() });
    assert!(matches!(respond(&target).await.0.unwrap_err(), CallError::Broken(IncompleteResponse::TooLarge(_))));
}

#[tokio::test]
async fn a_server_that_ignores_what_was_asked_for_is_read_by_its_content_type() {
    let whole = r#"{"id":"c","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}]}"#;
    let stream = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    for (streams, kind, raw) in [
        (true, "application/json; charset=utf-8", whole),
        (false, "text/event-stream", stream),
        (true, "text/plain", stream),
    ] {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        let reply = Reply { headers, raw: Some(vec![raw.to_owned()]), ..Reply::default() };
        let model = ScriptedModel::start(vec![reply].into()).unwrap();
        let (response, said) = respond(&target(&model.url(), Wire::Chat, &json!({"stream": streams}))).await;
        assert_eq!((response.unwrap().message.text.as_str(), said.as_str()), ("hi", "hi"), "{kind}");
    }
}

#[tokio::test]
async fn calls_without_an_id_get_one_that_every_provider_accepts() {
    let call = json!({"index": 0, "function": {"name": "exec", "arguments": "{}"}});
    let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "stop"}]});
    let raw = vec![format!("data: {chunk}"), String::new(), "data: [DONE]".to_owned(), String::new(), String::new()];
    let reply = Reply { raw: Some(raw), times: Some(2), ..Reply::default() };
    let model = ScriptedModel::start(vec![reply].into()).unwrap();
    let target = target(&model.url(), Wire::Chat, &json!({}));
    let mut ids = Vec::new();
    for _ in 0..2 {
        let response = respond(&target).await.0.unwrap();
        let [call] = response.message.calls.as_slice() else { panic!("{response:?}") };
        assert!(matches!(call.arguments, Arguments::Object(_)));
        assert!(call.id.len() == 9 && call.id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{}", call.id);
        ids.push(call.id.clone());
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn settings_of_a_provider_are_in_its_requests() {
    let model = ScriptedModel::start(vec![Reply::text("ok")].into()).unwrap();
    let quirks = json!({"maxTokens": true, "developerRole": true, "noStreamOptions": true});
    let more = json!({
        "quirks": quirks, "extra": {"temperature": 0, "model": "other"}, "headers": {"X-Team": "t", "Authorization": "Basic abc"},
        "models": [{"id": "some/model", "contextWindow": 1000, "maxTokens": 50}],
    });
    let target = target(&model.url(), Wire::Chat, &more);
    assert_eq!((target.context_window, target.max_tokens), (Some(1_000), Some(50)));
    respond(&target).await.0.unwrap();
    let request = &model.requests()[0];
    let sent = request.json();
    assert_eq!(
        (&sent["model"], &sent["temperature"], &sent["max_tokens"]),
        (&json!("some/model"), &json!(0), &json!(100))
    );
    assert_eq!((sent.get("stream_options"), &sent["messages"][0]["role"]), (None, &json!("developer")));
    assert_eq!((request.header("x-team"), request.header("authorization")), (Some("t"), Some("Basic abc")));
}

#[tokio::test]
async fn an_unreachable_provider_is_reported_without_its_url() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/v1?token=secret-token-99");
    let error = respond(&target(&url, Wire::Chat, &json!({}))).await.0.unwrap_err();
    let CallError::Unreachable(reason) = &error else { panic!("{error:?}") };
    assert!(!reason.contains("secret-token") && !reason.is_empty(), "{reason}");
}

#[derive(Debug)]
struct Rebound;

impl Lookup for Rebound {
    fn lookup(&self, _name: &str) -> LookupFuture {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}

#[tokio::test]
async fn a_public_name_with_a_private_address_is_not_connected_to() {
    let model = ScriptedModel::start(vec![Reply::text("ok")].into()).unwrap();
    let port = model.address().port();
    let lookup: Arc<dyn Lookup> = Arc::new(Rebound);
    let create = |url: &str, more: &Value| {
        let config = config(url, Wire::Chat, more);
        let created = Providers::with_lookup(&config, &|text| Ok(text.to_owned()), DebugSettings::default(), &lookup);
        created.unwrap().target("p/m").unwrap()
    };
    let refused = create(&format!("https://api.example:{port}/v1"), &json!({}));
    let error = respond(&refused).await.0.unwrap_err();
    assert!(matches!(&error, CallError::Unreachable(reason) if reason.contains("allowPrivate")), "{error:?}");
    assert_eq!(model.requests().len(), 0);
    let allowed = create(&format!("http://api.example:{port}/v1"), &json!({"allowPrivate": true}));
    assert_eq!(respond(&allowed).await.0.unwrap().message.text, "ok");
}

#[tokio::test]
async fn a_dropped_request_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let target = target(&url, Wire::Chat, &json!({}));
    let (arrived, has_arrived) = tokio::sync::oneshot::channel();
    let closed = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
        arrived.send(()).unwrap();
        // Ends when the client closes the connection, in whatever way.
        while stream.read(&mut [0; 1_000]).is_ok_and(|bytes| bytes > 0) {}
    });
    let request = tokio::spawn(async move { respond(&target).await.0.map(drop) });
    has_arrived.await.unwrap();
    request.abort();
    closed.await.unwrap();
}
