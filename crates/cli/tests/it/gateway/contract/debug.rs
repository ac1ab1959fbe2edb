//! The debug variables of the contract, each value in a process of its own, with canaries in key, prompt and response.

use serde_json::{Value, json};
use testkit::model::Reply;

use super::super::running::{Setup, when_last};
use super::super::wires::Wire;
use super::{Provider, configure, request};

const KEY: &str = "sk-canary-key-7f3e9a51c0de";
const PROMPT: &str = "canary-prompt-5b1e";
const RESPONSE: &str = "canary-response-90ad";

/// Starts a gateway with a variable, runs a turn with each provider, and returns the messages of the log.
fn lines(setup: &mut Setup, variables: &[(&'static str, &'static str)]) -> Vec<String> {
    setup.variables = [("MODEL_KEY", KEY)].iter().chain(variables).copied().collect();
    let log = setup.place.path("state/logs/cellmate.log");
    let before = std::fs::read_to_string(&log).unwrap_or_default().len();
    let running = setup.start();
    for (wire, provider) in Wire::ALL.into_iter().zip(Provider::ALL) {
        // A user may paste the key, and the model may repeat it.
        let items = wire.user(&format!("{PROMPT} {KEY}"));
        let answer = running.send(wire, &request(wire, provider.agent(), &items, true));
        assert!(answer.text.contains(RESPONSE), "{variables:?} {}", answer.body);
    }
    drop(running);
    let text = std::fs::read_to_string(&log).unwrap().split_off(before);
    assert!(!text.contains(KEY) && !text.contains("canary-key"), "{variables:?} {text}");
    let message = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        event["message"].as_str().unwrap_or_default().to_owned()
    };
    text.lines().map(message).collect()
}

/// What the lines about requests to models are.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Lines about the start of a request, which name the tools.
    started: usize,
    /// Lines about the headers, the first event and the end of a response.
    transport: usize,
    /// Lines about the body of a request.
    payloads: usize,
    /// Lines that show an event.
    events: usize,
    has_prompt: bool,
    has_response: bool,
}

fn seen(lines: &[String]) -> Seen {
    let count = |words: &[&str]| lines.iter().filter(|line| words.iter().any(|word| line.contains(word))).count();
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    Seen {
        started: count(&["] start provider="]),
        transport: count(&["] headers status=200", "] first event elapsedMs=", "] done elapsedMs="]),
        payloads: count(&["] payload bytes="]),
        events: count(&["] event "]),
        has_prompt: has(PROMPT),
        has_response: has(RESPONSE),
    }
}

#[test]
fn each_debug_variable_writes_its_lines_and_no_key_is_in_any() {
    let reply = Reply::text(&format!("{RESPONSE} {KEY} is the key, is it not? Well, I will not say."));
    let mut setup = Setup::new(json!([]), vec![when_last(PROMPT, reply)]);
    configure(&setup, &json!({"codeMode": {"enabled": true}}), &json!({}));
    let nothing = Seen { started: 0, transport: 0, payloads: 0, events: 0, has_prompt: false, has_response: false };
    let transport = Seen { started: 3, transport: 9, ..nothing };
    let payload = Seen { started: 3, payloads: 3, ..nothing };
    let cases: [(&[(&'static str, &'static str)], Seen); 10] = [
        (&[], Seen { ..nothing }),
        (&[("OPENCLAW_DEBUG_CODE_MODE", "0"), ("OPENCLAW_DEBUG_MODEL_TRANSPORT", "off")], Seen { ..nothing }),
        (&[("OPENCLAW_DEBUG_MODEL_PAYLOAD", "everything"), ("OPENCLAW_DEBUG_SSE", "1")], Seen { ..nothing }),
        (&[("OPENCLAW_DEBUG_CODE_MODE", "1")], Seen { ..transport }),
        (&[("OPENCLAW_DEBUG_MODEL_TRANSPORT", "1")], Seen { ..transport }),
        (&[("OPENCLAW_DEBUG_MODEL_PAYLOAD", "summary")], Seen { ..payload }),
        (&[("OPENCLAW_DEBUG_MODEL_PAYLOAD", "tools")], Seen { ..payload }),
        (&[("OPENCLAW_DEBUG_MODEL_PAYLOAD", "full-redacted")], Seen { has_prompt: true, ..payload }),
        (&[("OPENCLAW_DEBUG_SSE", "events")], Seen { transport: 9, ..nothing }),
        (&[("OPENCLAW_DEBUG_SSE", "peek")], Seen { transport: 9, events: 15, has_response: true, ..nothing }),
    ];
    for (variables, expected) in cases {
        let lines = lines(&mut setup, variables);
        assert_eq!(seen(&lines), expected, "{variables:?} {lines:#?}");
        for line in lines.iter().filter(|line| line.contains("] start provider=")) {
            assert!(line.contains("apiKey=present") && line.ends_with("tools count=2 names=exec,wait"), "{line}");
        }
        let is_counted = variables.iter().any(|(name, _)| *name == "OPENCLAW_DEBUG_SSE");
        let done: Vec<&String> = lines.iter().filter(|line| line.contains("] done ")).collect();
        assert!(done.iter().all(|line| line.contains(" events=") == is_counted), "{done:?}");
    }
}

#[test]
fn the_variables_of_the_contract_name_the_tools_of_a_gateway_together() {
    let mut setup = Setup::new(json!([]), vec![when_last(PROMPT, Reply::text(RESPONSE))]);
    let together = [
        ("OPENCLAW_DEBUG_CODE_MODE", "1"),
        ("OPENCLAW_DEBUG_MODEL_TRANSPORT", "1"),
        ("OPENCLAW_DEBUG_MODEL_PAYLOAD", "tools"),
        ("OPENCLAW_DEBUG_SSE", "events"),
    ];
    configure(&setup, &json!({"codeMode": {"enabled": true}}), &json!({}));
    let all = lines(&mut setup, &together);
    let apis = ["api=openai-completions", "api=openai-responses", "api=anthropic-messages"];
    let started: Vec<&String> = all.iter().filter(|line| line.contains("] start provider=")).collect();
    assert!(started.len() == 3 && started.iter().all(|line| line.ends_with("names=exec,wait")), "{all:#?}");
    assert!(apis.iter().all(|api| started.iter().any(|line| line.contains(api))), "{started:?}");
    // With code mode off, all names are listed; a summary has the first twelve only.
    let many: Vec<Value> = (0..20).map(|n| crate::mcp::place::writes(&format!("tool{n}"))).collect();
    let mut setup = Setup::new(json!(many), vec![when_last(PROMPT, Reply::text(RESPONSE))]);
    configure(&setup, &json!({"codeMode": false, "toolSearch": false}), &json!({}));
    for (detail, shown) in [("tools", true), ("summary", false)] {
        let lines = lines(&mut setup, &[("OPENCLAW_DEBUG_MODEL_PAYLOAD", detail)]);
        let started = lines.iter().find(|line| line.contains("] start provider=")).unwrap();
        let names = started.split("names=").nth(1).unwrap();
        let has_all = (0..20).all(|n| names.split(',').any(|name| name == format!("s__tool{n}")));
        assert_eq!((has_all, names.ends_with(",…")), (shown, !shown), "{started}");
        assert_eq!(names.split(',').count() > 13, shown, "{started}");
    }
}
