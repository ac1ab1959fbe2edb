//! Parses client requests of the OpenAI Responses API.

use serde_json::{Value, json};

use super::{
    ClientRequest, Fields, RequestError, image_from_url, plain_text, read_parts, read_tool, read_tool_choice, text_of,
    to_raw,
};
use crate::Wire;
use crate::conversation::{Arguments, Assistant, CallResult, Item, ModelCall, Part, RawAssistant};

pub(super) fn read(body: Fields<'_>) -> Result<ClientRequest, RequestError> {
    refuse_unsupported(body)?;
    let mut reader = ItemReader::default();
    match body.get("input") {
        Some(Value::String(text)) => reader.items.push(Item::User(vec![Part::Text(text.clone())])),
        Some(Value::Array(items)) => items.iter().try_for_each(|item| reader.read(item))?,
        _ => return Err(RequestError::new("input", "`input` must be a string or an array of items")),
    }
    reader.flush_assistant();
    let (mut tools, mut other_tools) = (Vec::new(), Vec::new());
    for tool in body.list("tools")? {
        match text_of(tool, "type") {
            "function" => tools.push(read_tool(tool, "parameters")?),
            _ => other_tools.push(tool.clone()),
        }
    }
    Ok(ClientRequest {
        wire: Wire::Responses,
        model: body.model()?,
        stream: body.flag("stream")?.unwrap_or(false),
        include_usage: true,
        instructions: body.text("instructions")?.unwrap_or("").to_owned(),
        items: reader.items,
        tools,
        other_tools,
        tool_choice: read_tool_choice(body.get("tool_choice")),
        max_output_tokens: body.number("max_output_tokens")?,
        user: body.text("user")?.or(body.text("safety_identifier")?).map(str::to_owned),
        previous_response_id: body.text("previous_response_id")?.map(str::to_owned),
        store: body.flag("store")?.unwrap_or(true),
        thread: None,
        shows_reasoning: true,
    })
}

/// Refuses fields that would change what the response is, so that ignoring them would mislead the client.
fn refuse_unsupported(body: Fields<'_>) -> Result<(), RequestError> {
    if body.flag("background")? == Some(true) {
        let message = "`background` is not supported: the response would not be complete when it is returned; leave it \
                       out and use `stream`";
        return Err(RequestError::new("background", message));
    }
    for (field, instead) in [
        ("conversation", "use `previous_response_id`, or send the whole conversation"),
        ("prompt", "send the text in `instructions` and `input`"),
    ] {
        if body.get(field).is_some() {
            return Err(RequestError::new(field, format!("`{field}` is not supported; {instead}")));
        }
    }
    Ok(())
}

/// Converts the items of a request into items of a conversation. Consecutive items from the model form one assistant
/// message.
#[derive(Default)]
struct ItemReader {
    items: Vec<Item>,
    /// Items from the model that are not in `items` yet.
    assistant: Vec<Value>,
}

impl ItemReader {
    fn read(&mut self, item: &Value) -> Result<(), RequestError> {
        match (text_of(item, "type"), text_of(item, "role")) {
            // Dropped: reasoning without encrypted content came from this gateway, and no provider can use it.
            ("reasoning", _) if text_of(item, "encrypted_content").is_empty() => {}
            ("message" | "", "assistant") | ("function_call" | "custom_tool_call" | "reasoning", _) => {
                self.assistant.push(item.clone());
            }
            ("message" | "", "user") => {
                self.flush_assistant();
                self.items.push(Item::User(read_parts(item.get("content").unwrap_or(&Value::Null), part)));
            }
            ("message" | "", "system" | "developer") => {
                self.flush_assistant();
                self.items.push(Item::System(item.get("content").map(plain_text).unwrap_or_default()));
            }
            ("function_call_output" | "custom_tool_call_output", _) => {
                self.flush_assistant();
                let id = text_of(item, "call_id");
                if id.is_empty() {
                    return Err(RequestError::new("input", "an output item has no `call_id`"));
                }
                let output = item.get("output").unwrap_or(&Value::Null);
                let result = CallResult { call_id: id.to_owned(), parts: read_parts(output, part), is_error: false };
                match self.items.last_mut() {
                    Some(Item::Results(results)) => results.push(result),
                    _ => self.items.push(Item::Results(vec![result])),
                }
            }
            // Items of other kinds belong to the model's messages: they are kept for a provider of this wire.
            _ => self.assistant.push(item.clone()),
        }
        Ok(())
    }

    /// Adds the collected items of the model as one assistant message.
    fn flush_assistant(&mut self) {
        let given = std::mem::take(&mut self.assistant);
        if given.is_empty() {
            return;
        }
        let of_type = |kind: &'static str| given.iter().filter(move |item| text_of(item, "type") == kind);
        let said = given.iter().filter(|item| text_of(item, "role") == "assistant");
        let text = said.filter_map(|item| item.get("content").map(plain_text)).collect::<Vec<_>>().join("\n");
        let call = |item: &Value| ModelCall {
            id: text_of(item, "call_id").to_owned(),
            name: text_of(item, "name").to_owned(),
            arguments: Arguments::classify(text_of(item, "arguments").to_owned()),
        };
        let calls = of_type("function_call").map(call).collect();
        let json = to_raw(&json!(given));
        let raw = Some(RawAssistant { wire: Wire::Responses, json });
        self.items.push(Item::Assistant(Assistant { text, calls, raw }));
    }
}

fn part(part: &Value) -> Part {
    match text_of(part, "type") {
        "input_text" | "output_text" | "text" => Part::Text(text_of(part, "text").to_owned()),
        "input_image" if !text_of(part, "image_url").is_empty() => {
            Part::Image(image_from_url(text_of(part, "image_url")))
        }
        _ => Part::Other(Wire::Responses, to_raw(part)),
    }
}
