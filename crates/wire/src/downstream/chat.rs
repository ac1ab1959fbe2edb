//! Parses client requests of the OpenAI Chat Completions API.

use serde_json::Value;

use super::{
    ClientRequest, Fields, RequestError, image_from_url, plain_text, read_parts, read_tool, read_tool_choice, text_of,
    to_raw,
};
use crate::Wire;
use crate::conversation::{Arguments, Assistant, CallResult, Item, ModelCall, Part, RawAssistant};

pub(super) fn read(body: Fields<'_>) -> Result<ClientRequest, RequestError> {
    let (mut instructions, mut items) = (Vec::new(), Vec::new());
    for message in body.list("messages")? {
        let content = message.get("content").unwrap_or(&Value::Null);
        match text_of(message, "role") {
            "system" | "developer" if items.is_empty() => instructions.push(plain_text(content)),
            "system" | "developer" => items.push(Item::System(plain_text(content))),
            "user" => items.push(Item::User(read_parts(content, part))),
            "assistant" => items.push(Item::Assistant(assistant(message))),
            "tool" => {
                let id = text_of(message, "tool_call_id");
                if id.is_empty() {
                    return Err(RequestError::new("messages", "a `tool` message has no `tool_call_id`"));
                }
                let result = CallResult { call_id: id.to_owned(), parts: read_parts(content, part), is_error: false };
                match items.last_mut() {
                    Some(Item::Results(results)) => results.push(result),
                    _ => items.push(Item::Results(vec![result])),
                }
            }
            role => return Err(RequestError::new("messages", format!("a message has the unknown role `{role}`"))),
        }
    }
    if items.is_empty() {
        return Err(RequestError::new("messages", "`messages` must have at least one message"));
    }
    let (mut tools, mut other_tools) = (Vec::new(), Vec::new());
    for tool in body.list("tools")? {
        match tool.get("function").filter(|_| text_of(tool, "type") == "function") {
            Some(declared) => tools.push(read_tool(declared, "parameters")?),
            None => other_tools.push(tool.clone()),
        }
    }
    let options = body.get("stream_options");
    Ok(ClientRequest {
        wire: Wire::Chat,
        model: body.model()?,
        stream: body.flag("stream")?.unwrap_or(false),
        include_usage: options.and_then(|options| options.get("include_usage")) == Some(&Value::Bool(true)),
        instructions: instructions.join("\n\n"),
        items,
        tools,
        other_tools,
        tool_choice: read_tool_choice(body.get("tool_choice")),
        max_output_tokens: body.number("max_completion_tokens")?.or(body.number("max_tokens")?),
        user: body.text("user")?.or(body.text("safety_identifier")?).map(str::to_owned),
        previous_response_id: None,
        store: false,
        thread: None,
        shows_reasoning: true,
    })
}

fn part(part: &Value) -> Part {
    match text_of(part, "type") {
        "text" => Part::Text(text_of(part, "text").to_owned()),
        "image_url" => Part::Image(image_from_url(part.get("image_url").map_or("", |image| text_of(image, "url")))),
        _ => Part::Other(Wire::Chat, to_raw(part)),
    }
}

/// Reads a message of the model. Its reasoning is left out: the client received it for all of the model's responses in a
/// turn together, so that no provider has sent this message.
fn assistant(message: &Value) -> Assistant {
    let mut message = message.clone();
    if let Some(fields) = message.as_object_mut() {
        fields.remove("reasoning_content");
    }
    let message = &message;
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let call = |call: &Value| {
        let function = call.get("function").unwrap_or(&Value::Null);
        ModelCall {
            id: text_of(call, "id").to_owned(),
            name: text_of(function, "name").to_owned(),
            arguments: Arguments::classify(text_of(function, "arguments").to_owned()),
        }
    };
    Assistant {
        text: message.get("content").map(plain_text).unwrap_or_default(),
        calls: calls.map(call).collect(),
        raw: Some(RawAssistant { wire: Wire::Chat, json: to_raw(message) }),
    }
}
