//! Parses client requests of the Anthropic Messages API.

use serde_json::Value;

use super::{
    ClientRequest, Fields, REASONING_SIGNATURE, RequestError, Thread, plain_text, read_parts, read_tool,
    read_tool_choice, text_of, to_raw,
};
use crate::Wire;
use crate::conversation::{Arguments, Assistant, CallResult, Image, Item, ModelCall, Part, RawAssistant};

pub(super) fn read(body: Fields<'_>) -> Result<ClientRequest, RequestError> {
    let mut items = Vec::new();
    for message in body.list("messages")? {
        let content = message.get("content").unwrap_or(&Value::Null);
        match text_of(message, "role") {
            "user" => user(content, &mut items)?,
            "assistant" => items.push(Item::Assistant(assistant(content))),
            "system" => items.push(Item::System(plain_text(content))),
            role => return Err(RequestError::new("messages", format!("a message has the unknown role `{role}`"))),
        }
    }
    if items.is_empty() {
        return Err(RequestError::new("messages", "`messages` must have at least one message"));
    }
    let (mut tools, mut other_tools) = (Vec::new(), Vec::new());
    for tool in body.list("tools")? {
        match text_of(tool, "type") {
            "" | "custom" => tools.push(read_tool(tool, "input_schema")?),
            _ => other_tools.push(tool.clone()),
        }
    }
    let user = body.get("metadata").map(|metadata| text_of(metadata, "user_id")).filter(|user| !user.is_empty());
    Ok(ClientRequest {
        wire: Wire::Messages,
        model: body.model()?,
        stream: body.flag("stream")?.unwrap_or(false),
        include_usage: true,
        instructions: body.get("system").map(plain_text).unwrap_or_default(),
        items,
        tools,
        other_tools,
        tool_choice: read_tool_choice(body.get("tool_choice")),
        max_output_tokens: body.number("max_tokens")?,
        user: user.map(str::to_owned),
        previous_response_id: None,
        store: false,
        thread: thread(body)?,
        shows_reasoning: asks_for_reasoning(body),
    })
}

/// Whether the client asks for the text of the model's reasoning.
fn asks_for_reasoning(body: Fields<'_>) -> bool {
    let Some(thinking) = body.get("thinking") else { return false };
    !matches!(text_of(thinking, "type"), "" | "disabled") && text_of(thinking, "display") != "omitted"
}

fn thread(body: Fields<'_>) -> Result<Option<Thread>, RequestError> {
    let Some(thread) = body.get("thread") else { return Ok(None) };
    match text_of(thread, "type") {
        "create" => Ok(Some(Thread::Create)),
        "continue" => {
            Ok(Some(Thread::Continue { previous_message_id: text_of(thread, "previous_message_id").to_owned() }))
        }
        _ => Err(RequestError::new("thread", "`thread.type` must be `create` or `continue`")),
    }
}

/// Reads a message of the user: results of calls, and what the user says after them.
fn user(content: &Value, items: &mut Vec<Item>) -> Result<(), RequestError> {
    let is_result = |block: &&Value| text_of(block, "type") == "tool_result";
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let result = |block: &Value| match text_of(block, "tool_use_id") {
        "" => Err(RequestError::new("messages", "a `tool_result` block has no `tool_use_id`")),
        id => Ok(CallResult {
            call_id: id.to_owned(),
            parts: read_parts(block.get("content").unwrap_or(&Value::Null), part),
            is_error: block.get("is_error") == Some(&Value::Bool(true)),
        }),
    };
    let results = blocks.iter().filter(is_result).map(result).collect::<Result<Vec<_>, _>>()?;
    let said: Vec<Part> = match content {
        Value::String(text) => vec![Part::Text(text.clone())],
        _ => blocks.iter().filter(|block| !is_result(block)).map(part).collect(),
    };
    let has_results = !results.is_empty();
    if has_results {
        items.push(Item::Results(results));
    }
    if !said.is_empty() || !has_results {
        items.push(Item::User(said));
    }
    Ok(())
}

/// Reads a message of the model. Reasoning that this gateway has sent is left out: it is without the provider's signature,
/// so that no provider accepts it.
fn assistant(content: &Value) -> Assistant {
    let is_ours =
        |block: &&Value| text_of(block, "type") == "thinking" && text_of(block, "signature") == REASONING_SIGNATURE;
    let kept: Value;
    let content = match content.as_array() {
        Some(blocks) if blocks.iter().any(|block| is_ours(&block)) => {
            kept = blocks.iter().filter(|block| !is_ours(block)).cloned().collect();
            &kept
        }
        _ => content,
    };
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let call = |block: &Value| ModelCall {
        id: text_of(block, "id").to_owned(),
        name: text_of(block, "name").to_owned(),
        arguments: Arguments::classify(block.get("input").map(Value::to_string).unwrap_or_default()),
    };
    let is = |block: &&Value, kind: &str| text_of(block, "type") == kind;
    let text = match content {
        Value::String(text) => text.clone(),
        _ => blocks.iter().filter(|block| is(block, "text")).map(|block| text_of(block, "text")).collect(),
    };
    let own = content.is_array().then(|| RawAssistant { wire: Wire::Messages, json: to_raw(content) });
    Assistant { text, calls: blocks.iter().filter(|block| is(block, "tool_use")).map(call).collect(), raw: own }
}

fn part(block: &Value) -> Part {
    let source = block.get("source").unwrap_or(&Value::Null);
    match (text_of(block, "type"), text_of(source, "type")) {
        ("text", _) => Part::Text(text_of(block, "text").to_owned()),
        ("image", "base64") => Part::Image(Image::Base64 {
            mime_type: text_of(source, "media_type").to_owned(),
            data: text_of(source, "data").to_owned(),
        }),
        ("image", "url") => Part::Image(Image::Url(text_of(source, "url").to_owned())),
        _ => Part::Other(Wire::Messages, to_raw(block)),
    }
}
