//! The answers of a gateway, read by hand from the vendors' formats.

use serde_json::{Value, json};
use wire::Wire;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// Empty if the event has none.
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) wire: Wire,
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) raw: String,
    /// Empty if the answer is not a stream.
    pub(crate) events: Vec<Event>,
    /// The body as a whole: of a stream, what its events amount to.
    pub(crate) body: Value,
}

/// A call that the client is asked to make.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

impl Answer {
    pub(crate) async fn read(wire: Wire, response: reqwest::Response) -> Self {
        Self::try_read(wire, response).await.unwrap()
    }

    /// Reads an answer that may be cut off.
    pub(crate) async fn try_read(wire: Wire, response: reqwest::Response) -> reqwest::Result<Self> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let raw = response.text().await?;
        let is_stream =
            headers.get("content-type").is_some_and(|kind| kind.to_str().unwrap().starts_with("text/event-stream"));
        let events = if is_stream { events(&raw) } else { Vec::new() };
        let body = match is_stream {
            true => collect(wire, &events),
            false => serde_json::from_str(&raw).unwrap_or(Value::Null),
        };
        Ok(Self { wire, status, headers, raw, events, body })
    }

    /// Returns the answer with this stream of events.
    pub(crate) fn of_stream(wire: Wire, raw: String) -> Self {
        let events = events(&raw);
        let body = collect(wire, &events);
        Self { wire, status: 200, headers: reqwest::header::HeaderMap::new(), raw, events, body }
    }

    /// Returns the visible text.
    pub(crate) fn text(&self) -> String {
        let texts = |value: &Value, kind: &str| -> String {
            let list = value.as_array().cloned().unwrap_or_default();
            list.iter().filter(|one| one["type"] == kind).filter_map(|one| one["text"].as_str()).collect()
        };
        match self.wire {
            Wire::Chat => self.body["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned(),
            Wire::Responses => {
                let output = self.body["output"].as_array().cloned().unwrap_or_default();
                output.iter().map(|item| texts(&item["content"], "output_text")).collect()
            }
            Wire::Messages => texts(&self.body["content"], "text"),
        }
    }

    /// Returns the model's reasoning.
    pub(crate) fn reasoning(&self) -> String {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self.wire {
            Wire::Chat => text(&self.body["choices"][0]["message"]["reasoning_content"]),
            Wire::Responses => {
                let items = list(&self.body["output"]);
                let parts =
                    items.iter().filter(|item| item["type"] == "reasoning").flat_map(|item| list(&item["summary"]));
                parts.map(|part| text(&part["text"])).collect()
            }
            Wire::Messages => list(&self.body["content"]).iter().map(|block| text(&block["thinking"])).collect(),
        }
    }

    /// Returns the calls that the client is asked to make.
    pub(crate) fn calls(&self) -> Vec<Asked> {
        let parse = |text: &Value| serde_json::from_str(text.as_str().unwrap()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self.wire {
            Wire::Chat => list(&self.body["choices"][0]["message"]["tool_calls"])
                .iter()
                .map(|call| Asked {
                    id: text(&call["id"]),
                    name: text(&call["function"]["name"]),
                    arguments: parse(&call["function"]["arguments"]),
                })
                .collect(),
            Wire::Responses => list(&self.body["output"])
                .iter()
                .filter(|item| item["type"] == "function_call")
                .map(|item| Asked {
                    id: text(&item["call_id"]),
                    name: text(&item["name"]),
                    arguments: parse(&item["arguments"]),
                })
                .collect(),
            Wire::Messages => list(&self.body["content"])
                .iter()
                .filter(|block| block["type"] == "tool_use")
                .map(|block| Asked {
                    id: text(&block["id"]),
                    name: text(&block["name"]),
                    arguments: block["input"].clone(),
                })
                .collect(),
        }
    }

    /// Returns the tokens of the prompt and of the output.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let usage = &self.body["usage"];
        let number = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("{name} in {}", self.raw));
        match self.wire {
            Wire::Chat => (number("prompt_tokens"), number("completion_tokens")),
            Wire::Responses => (number("input_tokens"), number("output_tokens")),
            Wire::Messages => {
                let cached = number("cache_read_input_tokens") + number("cache_creation_input_tokens");
                (number("input_tokens") + cached, number("output_tokens"))
            }
        }
    }

    /// Returns the message of an error, in a response or at the end of a stream.
    pub(crate) fn error(&self) -> Option<String> {
        let failed = self.events.iter().find_map(|event| event.data.pointer("/response/error/message"));
        let sent = self.events.iter().find_map(|event| event.data.pointer("/error/message"));
        let found = self.body.pointer("/error/message").or(failed).or(sent)?;
        found.as_str().map(str::to_owned)
    }

    /// Returns the messages or items with which a client continues the conversation after this answer.
    pub(crate) fn as_history(&self) -> Vec<Value> {
        match self.wire {
            Wire::Chat => vec![self.body["choices"][0]["message"].clone()],
            Wire::Responses => self.body["output"].as_array().unwrap().clone(),
            Wire::Messages => vec![json!({"role": "assistant", "content": self.body["content"]})],
        }
    }
}

/// Reads the events of a stream. Comments are left out.
pub(crate) fn events(raw: &str) -> Vec<Event> {
    let mut events = Vec::new();
    for block in raw.split("\n\n") {
        let field = |prefix: &str| block.lines().find_map(|line| line.strip_prefix(prefix)).map(str::trim);
        let Some(data) = field("data:") else { continue };
        let data = if data == "[DONE]" { json!("[DONE]") } else { serde_json::from_str(data).unwrap() };
        events.push(Event { name: field("event:").unwrap_or_default().to_owned(), data });
    }
    events
}

fn collect(wire: Wire, events: &[Event]) -> Value {
    match wire {
        Wire::Chat => collect_chat(events),
        Wire::Responses => {
            let last = events.iter().rev().find(|event| event.data.get("response").is_some());
            last.map(|event| event.data["response"].clone()).unwrap_or_default()
        }
        Wire::Messages => collect_messages(events),
    }
}

fn collect_chat(events: &[Event]) -> Value {
    let (mut content, mut reasoning, mut reason, mut usage) = (String::new(), String::new(), Value::Null, Value::Null);
    let mut calls: Vec<Value> = Vec::new();
    for event in events {
        if let Some(given) = event.data.get("usage").filter(|usage| !usage.is_null()) {
            usage = given.clone();
        }
        let Some(choice) = event.data.pointer("/choices/0") else { continue };
        content += choice["delta"]["content"].as_str().unwrap_or_default();
        reasoning += choice["delta"]["reasoning_content"].as_str().unwrap_or_default();
        for delta in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(delta["index"].as_u64().unwrap()).unwrap();
            if index == calls.len() {
                calls.push(delta.clone());
            } else {
                let call = &mut calls[index]["function"]["arguments"];
                *call = json!(call.as_str().unwrap().to_owned() + delta["function"]["arguments"].as_str().unwrap());
            }
        }
        if !choice["finish_reason"].is_null() {
            reason = choice["finish_reason"].clone();
        }
    }
    let mut message = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    if !reasoning.is_empty() {
        message["reasoning_content"] = json!(reasoning);
    }
    json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage})
}

fn collect_messages(events: &[Event]) -> Value {
    let mut message = Value::Null;
    let mut inputs: Vec<String> = Vec::new();
    for Event { name, data } in events {
        match name.as_str() {
            "message_start" => message = data["message"].clone(),
            "content_block_start" => {
                message["content"].as_array_mut().unwrap().push(data["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let index = usize::try_from(data["index"].as_u64().unwrap()).unwrap();
                let (block, delta) = (&mut message["content"][index], &data["delta"]);
                let mut append = |name: &str| {
                    block[name] = json!(block[name].as_str().unwrap().to_owned() + delta[name].as_str().unwrap());
                };
                match delta["type"].as_str().unwrap() {
                    "text_delta" => append("text"),
                    "thinking_delta" => append("thinking"),
                    "signature_delta" => append("signature"),
                    "input_json_delta" => inputs[index] += delta["partial_json"].as_str().unwrap(),
                    other => panic!("{other}"),
                }
            }
            "content_block_stop" => {
                let index = usize::try_from(data["index"].as_u64().unwrap()).unwrap();
                if message["content"][index]["type"] == "tool_use" {
                    message["content"][index]["input"] = serde_json::from_str(&inputs[index]).unwrap();
                }
            }
            "message_delta" => {
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                for (name, value) in data["usage"].as_object().unwrap() {
                    message["usage"][name] = value.clone();
                }
            }
            "message_stop" | "ping" | "error" => {}
            other => panic!("{other}"),
        }
    }
    message
}
