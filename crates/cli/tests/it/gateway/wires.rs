//! Requests and responses of the three wires, written by hand from the vendors' documentation.

use serde_json::{Value, json};

use crate::mcp::clients::Response;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Chat,
    Responses,
    Messages,
}

/// What a client reads of a response.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    /// The assistant's message or output items, as the client sends them back.
    pub(super) items: Vec<Value>,
    pub(super) body: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
}

impl Wire {
    pub(super) const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// Returns the items of a conversation that begins with this message.
    pub(super) fn user(self, text: &str) -> Vec<Value> {
        vec![json!({"role": "user", "content": text})]
    }

    /// Returns a request with this conversation and a tool `look`, if it has one.
    pub(super) fn request(self, items: &[Value], has_tool: bool, stream: bool) -> Value {
        let schema = json!({"type": "object", "properties": {"n": {"type": "number"}}});
        let (key, tool) = match self {
            Self::Chat => ("messages", json!({"type": "function", "function": {"name": "look", "parameters": schema}})),
            Self::Responses => ("input", json!({"type": "function", "name": "look", "parameters": schema})),
            Self::Messages => ("messages", json!({"name": "look", "description": "Looks.", "input_schema": schema})),
        };
        let mut body = json!({"model": "openclaw/ada", key: items, "stream": stream});
        if self == Self::Messages {
            body["max_tokens"] = json!(1000);
        }
        if has_tool {
            body["tools"] = json!([tool]);
        }
        body
    }

    /// Returns the items that answer these calls with these texts.
    pub(super) fn results(self, results: &[(&str, &str)]) -> Vec<Value> {
        let result = |(id, text): &(&str, &str)| match self {
            Self::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
            Self::Responses => json!({"type": "function_call_output", "call_id": id, "output": text}),
            Self::Messages => json!({"type": "tool_result", "tool_use_id": id, "content": text}),
        };
        let results: Vec<Value> = results.iter().map(result).collect();
        match self {
            Self::Messages => vec![json!({"role": "user", "content": results})],
            Self::Chat | Self::Responses => results,
        }
    }

    pub(super) fn read(self, response: Response, stream: bool) -> Answer {
        let status = response.status;
        let body = response.text();
        if status != 200 {
            return Answer { status, body, ..Answer::default() };
        }
        let events: Vec<Value> =
            body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
        let mut answer = match (self, stream) {
            (Self::Chat, true) => chat_stream(&events),
            (Self::Chat, false) => chat(&parsed(&body)["choices"][0]["message"]),
            (Self::Responses, true) => {
                let last = events.last().unwrap_or_else(|| panic!("{body}"));
                assert_eq!(last["type"], "response.completed", "{body}");
                output(&last["response"])
            }
            (Self::Responses, false) => output(&parsed(&body)),
            (Self::Messages, true) => message_stream(&events),
            (Self::Messages, false) => message(parsed(&body)["content"].as_array().unwrap()),
        };
        answer.status = status;
        answer.body = body;
        answer
    }
}

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{body}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn call(id: &Value, name: &Value, arguments: &str) -> Call {
    let arguments = serde_json::from_str(arguments).unwrap_or_default();
    Call { id: text(id), name: text(name), arguments }
}

fn chat(message: &Value) -> Answer {
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    let of = |one: &Value| call(&one["id"], &one["function"]["name"], one["function"]["arguments"].as_str().unwrap());
    Answer {
        text: text(&message["content"]),
        calls: calls.iter().map(of).collect(),
        items: vec![message.clone()],
        ..Answer::default()
    }
}

fn chat_stream(events: &[Value]) -> Answer {
    let mut message = json!({"role": "assistant", "content": ""});
    let mut calls: Vec<Value> = Vec::new();
    for delta in events.iter().map(|event| &event["choices"][0]["delta"]) {
        if let Some(piece) = delta["content"].as_str() {
            message["content"] = json!(text(&message["content"]) + piece);
        }
        for one in delta["tool_calls"].as_array().into_iter().flatten() {
            let at = usize::try_from(one["index"].as_u64().unwrap()).unwrap();
            if at == calls.len() {
                let name = &one["function"]["name"];
                calls.push(json!({"id": one["id"], "type": "function", "function": {"name": name, "arguments": ""}}));
            }
            let all = text(&calls[at]["function"]["arguments"]) + &text(&one["function"]["arguments"]);
            calls[at]["function"]["arguments"] = json!(all);
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    chat(&message)
}

fn output(response: &Value) -> Answer {
    let items = response["output"].as_array().unwrap_or_else(|| panic!("{response}")).clone();
    let mut answer = Answer::default();
    for item in &items {
        match item["type"].as_str() {
            Some("message") => answer.text += item["content"][0]["text"].as_str().unwrap(),
            Some("function_call") => {
                answer.calls.push(call(&item["call_id"], &item["name"], item["arguments"].as_str().unwrap()));
            }
            _ => {}
        }
    }
    Answer { items, ..answer }
}

fn message(blocks: &[Value]) -> Answer {
    let mut answer = Answer::default();
    for block in blocks {
        match block["type"].as_str() {
            Some("text") => answer.text += block["text"].as_str().unwrap(),
            Some("tool_use") => {
                let (id, name, arguments) = (text(&block["id"]), text(&block["name"]), block["input"].clone());
                answer.calls.push(Call { id, name, arguments });
            }
            _ => {}
        }
    }
    Answer { items: vec![json!({"role": "assistant", "content": blocks})], ..answer }
}

fn message_stream(events: &[Value]) -> Answer {
    let (mut blocks, mut inputs): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for event in events {
        let at = usize::try_from(event["index"].as_u64().unwrap_or_default()).unwrap();
        match event["type"].as_str() {
            Some("content_block_start") => {
                blocks.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            Some("content_block_delta") => {
                if let Some(piece) = event["delta"]["text"].as_str() {
                    blocks[at]["text"] = json!(text(&blocks[at]["text"]) + piece);
                }
                inputs[at] += event["delta"]["partial_json"].as_str().unwrap_or_default();
            }
            _ => {}
        }
    }
    for (block, input) in blocks.iter_mut().zip(inputs) {
        if block["type"] == "tool_use" {
            block["input"] = serde_json::from_str(&input).unwrap_or(json!({}));
        }
    }
    assert_eq!(events.last().map(|event| event["type"].clone()), Some(json!("message_stop")));
    message(&blocks)
}
