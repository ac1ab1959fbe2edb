//! The scripted model itself: which response it chooses, and what it records.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Reply, Script, ScriptedModel};

fn post(model: &ScriptedModel, path: &str, body: &Value) -> String {
    let mut stream = TcpStream::connect(model.address()).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn conditions_come_first_and_the_rest_is_used_in_order() {
    let script = r#"[
        {"text": "first"},
        {"text": "found", "when": {"contains": "needle"}},
        {"text": "last", "when": {"lastContains": "end"}, "times": 1},
        {"text": "second", "times": 2}
    ]"#;
    let model = ScriptedModel::start(Script::parse(script).unwrap()).unwrap();
    let ask = |texts: &[&str]| {
        let messages: Vec<Value> = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
        post(&model, "/v1/chat/completions", &json!({"model": "m", "messages": messages}))
    };
    for (texts, expected) in [
        (&["a needle"] as &[&str], "found"),
        (&["x"], "first"),
        (&["needle", "x"], "found"),
        (&["x", "the end"], "last"),
        (&["x", "the end"], "second"),
        (&["the end", "x"], "second"),
        (&["x"], "the script has no response"),
    ] {
        assert!(ask(texts).contains(expected), "{texts:?} {expected}");
    }
    assert_eq!(model.requests().len(), 7);
    let first = &model.requests()[0];
    assert_eq!((first.path.as_str(), first.json()["model"].as_str()), ("/v1/chat/completions", Some("m")));
    assert!(Script::parse(r#"[{"txt": "typo"}]"#).is_err());
}

#[test]
fn a_response_is_cut_after_exactly_the_given_bytes() {
    let whole = {
        let model = ScriptedModel::start(vec![Reply::text("hello")].into()).unwrap();
        post(&model, "/v1/messages", &json!({"model": "m"}))
    };
    let body = whole.split_once("\r\n\r\n").unwrap().1;
    for cut in [0, 1, 10, body.len() - 1] {
        let reply = Reply { cut_after_bytes: Some(cut), ..Reply::text("hello") };
        let model = ScriptedModel::start(vec![reply].into()).unwrap();
        let answer = post(&model, "/v1/messages", &json!({"model": "m"}));
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, &body[..cut], "{cut}");
    }
}
