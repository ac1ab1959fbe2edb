use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::config::ModelsConfig;
use serde_json::{Value, json};
use telemetry::Redactor;
use testkit::model::{Reply, ScriptedModel};
use tracing_subscriber::fmt::MakeWriter;
use url::Url;
use wire::Wire;

use super::{CallFacts, DebugSettings, PayloadDetail, SseDetail, event_line, start_lines};
use crate::provider::Providers;

fn settings(variables: &[(&str, &str)]) -> DebugSettings {
    DebugSettings::from_env(|name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn variables_switch_on_what_they_name() {
    assert_eq!(settings(&[]), DebugSettings::default());
    for name in ["OPENCLAW_DEBUG_CODE_MODE", "OPENCLAW_DEBUG_MODEL_TRANSPORT"] {
        for (value, is_on) in [
            ("1", true),
            ("true", true),
            ("TRUE", true),
            ("0", false),
            ("false", false),
            ("off", false),
            ("No", false),
            ("", false),
        ] {
            assert_eq!(
                settings(&[(name, value)]),
                DebugSettings { transport: is_on, ..DebugSettings::default() },
                "{value}"
            );
        }
    }
    let payloads = [
        ("summary", Some(PayloadDetail::Summary)),
        ("tools", Some(PayloadDetail::Tools)),
        ("full-redacted", Some(PayloadDetail::FullRedacted)),
        ("full", None),
        ("1", None),
    ];
    for (word, payload) in payloads {
        assert_eq!(settings(&[("OPENCLAW_DEBUG_MODEL_PAYLOAD", word)]).payload, payload, "{word}");
    }
    for (word, sse) in [("events", Some(SseDetail::Events)), ("peek", Some(SseDetail::Peek)), ("1", None)] {
        assert_eq!(settings(&[("OPENCLAW_DEBUG_SSE", word)]).sse, sse, "{word}");
    }
}

fn lines(payload: Option<PayloadDetail>, body: &Value) -> Vec<String> {
    let url = Url::parse("https://api.example/v1/responses?key=hidden").unwrap();
    let (timeout, has_key) = (Duration::from_secs(300), true);
    let facts = CallFacts { provider: "p", wire: Wire::Responses, url: &url, timeout, has_key };
    let settings = DebugSettings { payload, ..DebugSettings::default() };
    start_lines(settings, &facts, body.to_string().as_bytes())
}

fn tools(count: usize) -> Value {
    (0..count).map(|at| json!({"type": "function", "name": format!("t{at}")})).collect()
}

#[test]
fn the_first_line_describes_the_request() {
    let body = json!({"model": "m", "tools": [{"name": "exec"}, {"name": "wait"}], "input": []});
    assert_eq!(
        lines(None, &body),
        ["[responses] start provider=p api=openai-responses model=m url=https://api.example/v1/responses \
          timeoutMs=300000 apiKey=present tools count=2 names=exec,wait"]
    );
}

#[test]
fn a_summary_names_twelve_tools_and_the_other_details_all() {
    let body = json!({"model": "m", "tools": tools(13)});
    let summary = lines(Some(PayloadDetail::Summary), &body);
    assert!(summary[0].ends_with("count=13 names=t0,t1,t2,t3,t4,t5,t6,t7,t8,t9,t10,t11,…"), "{summary:?}");
    for detail in [PayloadDetail::Tools, PayloadDetail::FullRedacted] {
        let all = lines(Some(detail), &body);
        assert!(all[0].ends_with("t11,t12"), "{all:?}");
    }
}

#[test]
fn requests_and_events_are_cut_and_signed_data_is_left_out() {
    let long = "ü".repeat(300);
    let item = json!({"type": "reasoning", "encrypted_content": "opaque", "signature": "signed", "text": long});
    let full = lines(Some(PayloadDetail::FullRedacted), &json!({"model": "m", "input": [item]}));
    assert!(full[1].contains(&format!("{}…", "ü".repeat(200))) && !full[1].contains(&long), "{}", full[1]);
    assert!(!full[1].contains("opaque") && !full[1].contains("\"signed\""), "{}", full[1]);
    let many: Vec<String> = (0..1_000).map(|at| format!("text number {at}")).collect();
    let full = lines(Some(PayloadDetail::FullRedacted), &json!({"model": "m", "input": many}));
    assert!((8_000..8_100).contains(&full[1].chars().count()), "{}", full[1].chars().count());
    let line = event_line(Wire::Chat, 1, "x\u{1b}[2J", &json!({ "delta": many }).to_string());
    assert!((2_000..2_100).contains(&line.chars().count()) && !line.contains('\u{1b}'), "{line}");
    assert!(event_line(Wire::Chat, 1, "", "[DONE]").ends_with("data=[DONE]"));
}

#[test]
fn a_secret_that_is_cut_is_still_redacted() {
    Redactor::global().register("canary-secret-at-the-cut");
    let text = format!("{}canary-secret-at-the-cut", "x".repeat(190));
    let full = lines(Some(PayloadDetail::FullRedacted), &json!({"model": "m", "input": [text]}));
    assert!(!full.concat().contains("canary"), "{full:?}");
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Sends a request with a canary as key, as prompt and in the response, and returns the log at the level `info`.
async fn log_of(wire: Wire, settings: DebugSettings) -> String {
    let model = ScriptedModel::start(vec![Reply::text("canary-answer")].into()).unwrap();
    let api = match wire {
        Wire::Chat => "chat",
        Wire::Responses => "responses",
        Wire::Messages => "messages",
    };
    let provider = json!({"baseUrl": model.url(), "api": api, "apiKey": "canary-key-424242"});
    let config = ModelsConfig::resolve(&json!({"providers": {"p": provider}})).unwrap();
    let target = Providers::new(&config, &|text| Ok(text.to_owned()), settings).unwrap().target("p/m").unwrap();
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_max_level(tracing::Level::INFO).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let prompt = json!([{"role": "user", "content": "canary-prompt canary-key-424242"}]);
    let body = json!({"model": "m", "stream": true, "messages": prompt, "input": prompt});
    target.provider.respond(body.to_string().into_bytes(), drop).await.unwrap();
    model.push(Reply::status(400, "canary-prompt is wrong"));
    target.provider.respond(body.to_string().into_bytes(), drop).await.unwrap_err();
    drop(guard);
    String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
}

#[tokio::test]
async fn keys_are_in_no_line_and_texts_only_in_those_that_are_asked_for() {
    let mut all = Vec::new();
    for transport in [false, true] {
        for payload in
            [None, Some(PayloadDetail::Summary), Some(PayloadDetail::Tools), Some(PayloadDetail::FullRedacted)]
        {
            for sse in [None, Some(SseDetail::Events), Some(SseDetail::Peek)] {
                all.push(DebugSettings { transport, payload, sse });
            }
        }
    }
    for settings in all {
        for wire in Wire::ALL {
            let log = log_of(wire, settings).await;
            assert!(!log.contains("canary-key"), "{settings:?} {log}");
            assert_eq!(log.contains("canary-prompt"), settings.payload == Some(PayloadDetail::FullRedacted), "{log}");
            assert_eq!(log.contains("canary-answer"), settings.sse == Some(SseDetail::Peek), "{settings:?} {log}");
            assert_eq!(log.is_empty(), settings == DebugSettings::default(), "{settings:?} {log}");
            assert_eq!(log.contains("start provider=p"), settings.transport || settings.payload.is_some(), "{log}");
            let has_end = log.contains("] done elapsedMs=") && log.contains("status=400 type=scripted_error");
            assert_eq!(has_end, settings.transport || settings.sse.is_some(), "{settings:?} {log}");
        }
    }
}
