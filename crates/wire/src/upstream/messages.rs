//! Decodes responses of the Anthropic Messages API.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{IncompleteResponse, ModelEvent, ModelResponse, ProviderError, count, parse, response, string};
use crate::Wire;
use crate::conversation::{Arguments, ModelCall, RawAssistant, StopReason, Usage};
use crate::limits::MAX_BLOCKS;
use crate::sse::Event;

/// Reads a streamed response.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    id: String,
    model: String,
    blocks: Vec<Block>,
    reason: Option<String>,
    usage: Usage,
    stopped: bool,
}

#[derive(Debug)]
struct Block {
    value: Value,
    /// The input of a tool call so far, as text.
    input: String,
    closed: bool,
}

impl Decoder {
    pub(super) fn on_event(&mut self, event: &Event, output: &mut Vec<ModelEvent>) -> Result<(), IncompleteResponse> {
        if self.stopped {
            return Ok(());
        }
        let data = parse(&event.data)?;
        match data.get("type").and_then(Value::as_str).unwrap_or(&event.name) {
            "message_start" => {
                let message = data.get("message").unwrap_or(&Value::Null);
                self.id = string(message, "id").unwrap_or_default();
                self.model = string(message, "model").unwrap_or_default();
                self.update_usage(message.get("usage"));
            }
            "content_block_start" => self.start_block(&data)?,
            "content_block_delta" => {
                let delta = data.get("delta").unwrap_or(&Value::Null);
                self.block(&data)?.add(delta, output);
            }
            "content_block_stop" => self.block(&data)?.closed = true,
            "message_delta" => {
                self.reason = data.get("delta").and_then(|delta| string(delta, "stop_reason")).or(self.reason.take());
                self.update_usage(data.get("usage"));
            }
            "message_stop" => self.stopped = true,
            "error" => {
                return Err(IncompleteResponse::Provider(ProviderError::read(data.get("error").unwrap_or(&data))));
            }
            // `ping`, and events of later versions.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.stopped
    }

    fn start_block(&mut self, data: &Value) -> Result<(), IncompleteResponse> {
        let index = data.get("index").and_then(Value::as_u64);
        if index.is_some_and(|index| index != self.blocks.len() as u64) {
            return Err(IncompleteResponse::Unreadable("content blocks are out of order".to_owned()));
        }
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(IncompleteResponse::TooLarge(format!("it has more than {MAX_BLOCKS} content blocks")));
        }
        let value = data.get("content_block").cloned().unwrap_or(Value::Null);
        self.blocks.push(Block { value, input: String::new(), closed: false });
        Ok(())
    }

    fn block(&mut self, data: &Value) -> Result<&mut Block, IncompleteResponse> {
        let index = data.get("index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        let block = index.and_then(|index| self.blocks.get_mut(index));
        block
            .filter(|block| !block.closed)
            .ok_or_else(|| IncompleteResponse::Unreadable("an event of a content block that is not open".to_owned()))
    }

    /// Updates the usage: numbers of later events are totals and replace earlier ones. An event with `input_tokens`
    /// replaces all input and cache counts, one with `output_tokens` that count.
    fn update_usage(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        let given = read_usage(usage);
        if usage.get("input_tokens").is_some_and(Value::is_u64) {
            self.usage = Usage { output_tokens: self.usage.output_tokens, ..given };
        }
        if usage.get("output_tokens").is_some_and(Value::is_u64) {
            self.usage.output_tokens = given.output_tokens;
        }
    }

    pub(super) fn finish(self) -> Result<ModelResponse, IncompleteResponse> {
        let Some(reason) = self.reason.filter(|_| self.stopped) else { return Err(IncompleteResponse::Truncated) };
        if self.blocks.iter().any(|block| !block.closed) {
            return Err(IncompleteResponse::Truncated);
        }
        let calls: Vec<ModelCall> = self.blocks.iter().filter_map(Block::call).collect();
        let text = self.blocks.iter().filter_map(Block::text).collect::<String>();
        let blocks: Vec<Value> = self.blocks.into_iter().map(Block::into_json).collect();
        let json = RawValue::from_string(Value::from(blocks).to_string());
        let json = json.map_err(|error| IncompleteResponse::Unreadable(error.to_string()))?;
        let raw = RawAssistant { wire: Wire::Messages, json };
        Ok(response((self.id, self.model), text, calls, raw, stop_reason(&reason), self.usage))
    }
}

impl Block {
    fn add(&mut self, delta: &Value, output: &mut Vec<ModelEvent>) {
        let part = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or("");
        match part("type") {
            "text_delta" => {
                self.extend("text", part("text"));
                output.extend((!part("text").is_empty()).then(|| ModelEvent::Text(part("text").to_owned())));
            }
            "thinking_delta" => {
                self.extend("thinking", part("thinking"));
                output
                    .extend((!part("thinking").is_empty()).then(|| ModelEvent::Reasoning(part("thinking").to_owned())));
            }
            "signature_delta" => self.extend("signature", part("signature")),
            "input_json_delta" => self.input.push_str(part("partial_json")),
            "citations_delta" => {
                if let (Some(citation), Some(block)) = (delta.get("citation"), self.value.as_object_mut()) {
                    let citations = block.entry("citations").or_insert_with(|| json!([]));
                    match citations.as_array_mut() {
                        Some(list) => list.push(citation.clone()),
                        None => *citations = json!([citation]),
                    }
                }
            }
            // Deltas of later versions extend the texts that they name.
            _ => {
                for (name, value) in delta.as_object().into_iter().flatten().filter(|(name, _)| *name != "type") {
                    if let Some(text) = value.as_str() {
                        self.extend(name, text);
                    }
                }
            }
        }
    }

    fn extend(&mut self, name: &str, more: &str) {
        let Some(block) = self.value.as_object_mut() else { return };
        match block.get_mut(name) {
            Some(Value::String(text)) => text.push_str(more),
            _ => {
                block.insert(name.to_owned(), json!(more));
            }
        }
    }

    fn call(&self) -> Option<ModelCall> {
        let input = if self.input.is_empty() { self.value.get("input").map(Value::to_string) } else { None };
        call(&self.value, input.unwrap_or_else(|| self.input.clone()))
    }

    fn text(&self) -> Option<&str> {
        text(&self.value)
    }

    /// Returns the block with its input. A text that is not JSON is kept as `{"malformed": text}`, so that nothing is
    /// lost.
    fn into_json(mut self) -> Value {
        if !self.input.is_empty()
            && let Some(block) = self.value.as_object_mut()
        {
            let input = serde_json::from_str(&self.input).unwrap_or_else(|_| json!({"malformed": self.input}));
            block.insert("input".to_owned(), input);
        }
        self.value
    }
}

/// Reads a response that was not streamed. Its content is kept byte for byte.
pub(super) fn read_whole(body: &str) -> Result<ModelResponse, IncompleteResponse> {
    #[derive(Deserialize)]
    struct Body {
        content: Option<Box<RawValue>>,
    }
    let value = parse(body)?;
    if value.get("type").and_then(Value::as_str) == Some("error") || value.get("error").is_some_and(Value::is_object) {
        return Err(IncompleteResponse::Provider(ProviderError::read(value.get("error").unwrap_or(&value))));
    }
    let reason = string(&value, "stop_reason").ok_or(IncompleteResponse::Truncated)?;
    let raw: Body = serde_json::from_str(body).map_err(|error| IncompleteResponse::Unreadable(error.to_string()))?;
    let json = raw.content.ok_or(IncompleteResponse::Truncated)?;
    let blocks = value.get("content").and_then(Value::as_array).ok_or(IncompleteResponse::Truncated)?;
    if blocks.len() > MAX_BLOCKS {
        return Err(IncompleteResponse::TooLarge(format!("it has more than {MAX_BLOCKS} content blocks")));
    }
    let input = |block: &Value| block.get("input").map(Value::to_string).unwrap_or_default();
    let calls = blocks.iter().filter_map(|block| call(block, input(block))).collect();
    let full_text = blocks.iter().filter_map(text).collect::<String>();
    let usage = value.get("usage").map(read_usage).unwrap_or_default();
    let names = (string(&value, "id").unwrap_or_default(), string(&value, "model").unwrap_or_default());
    Ok(response(names, full_text, calls, RawAssistant { wire: Wire::Messages, json }, stop_reason(&reason), usage))
}

fn call(block: &Value, input: String) -> Option<ModelCall> {
    (block.get("type").and_then(Value::as_str) == Some("tool_use")).then(|| ModelCall {
        id: string(block, "id").unwrap_or_default(),
        name: string(block, "name").unwrap_or_default(),
        arguments: Arguments::classify(input),
    })
}

fn text(block: &Value) -> Option<&str> {
    block.get("text").and_then(Value::as_str).filter(|_| block.get("type").and_then(Value::as_str) == Some("text"))
}

fn stop_reason(text: &str) -> StopReason {
    match text {
        "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        "model_context_window_exceeded" => StopReason::ContextExceeded,
        "pause_turn" => StopReason::Pause,
        other => StopReason::Other(other.to_owned()),
    }
}

/// Reads the token counts. This API counts cached tokens separately from `input_tokens`; [`Usage::input_tokens`]
/// includes them.
fn read_usage(usage: &Value) -> Usage {
    let cache_read_tokens = count(usage, &["cache_read_input_tokens"]);
    let cache_write_tokens = count(usage, &["cache_creation_input_tokens"]);
    Usage {
        input_tokens: count(usage, &["input_tokens"])
            .saturating_add(cache_read_tokens)
            .saturating_add(cache_write_tokens),
        output_tokens: count(usage, &["output_tokens"]),
        cache_read_tokens,
        cache_write_tokens,
    }
}
