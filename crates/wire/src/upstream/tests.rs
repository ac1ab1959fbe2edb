use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{
    Decoder, IncompleteResponse, ModelEvent, ModelRequest, ModelResponse, Quirks, ToolChoice, read_whole, tool_names,
};
use crate::Wire;
use crate::conversation::{Arguments, Assistant, CallResult, Image, Item, ModelTool, Part, StopReason, Usage};

fn chat_chunk(choice: &Value) -> String {
    format!("data: {}\n\n", json!({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}))
}

fn chat_delta(delta: &Value) -> String {
    chat_chunk(&json!({"index": 0, "delta": delta, "finish_reason": null}))
}

fn chat_end(reason: &str) -> String {
    chat_chunk(&json!({"index": 0, "delta": {}, "finish_reason": reason}))
}

fn named(name: &str, data: &Value) -> String {
    let mut data = data.clone();
    data["type"] = json!(name);
    format!("event: {name}\ndata: {data}\n\n")
}

/// A response that says "Hello" and makes two calls.
fn stream(wire: Wire) -> String {
    match wire {
        Wire::Chat => {
            let usage =
                json!({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}});
            [
                ": comment\n\n".to_owned(),
                chat_delta(&json!({"role": "assistant", "content": ""})),
                chat_delta(&json!({"content": "Hel"})),
                chat_delta(&json!({"content": "lo"})),
                chat_delta(&json!({"tool_calls": [
                    {"index": 0, "id": "a", "type": "function", "function": {"name": "exec", "arguments": ""}}]})),
                chat_delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"code\":"}}]})),
                chat_delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "\"1\"}"}}]})),
                chat_delta(&json!({"tool_calls": [
                    {"index": 1, "id": "b", "type": "function", "function": {"name": "wait", "arguments": "{}"}}]})),
                chat_end("tool_calls"),
                format!("data: {}\n\n", json!({"choices": [], "usage": usage})),
                "data: [DONE]\n\n".to_owned(),
            ]
            .concat()
        }
        Wire::Messages => [
            named(
                "message_start",
                &json!({"message": {"id": "c1", "model": "m", "content": [],
                "usage": {"input_tokens": 4, "cache_read_input_tokens": 5, "output_tokens": 1}}}),
            ),
            named("content_block_start", &json!({"index": 0, "content_block": {"type": "text", "text": ""}})),
            named("ping", &json!({})),
            named("content_block_delta", &json!({"index": 0, "delta": {"type": "text_delta", "text": "Hel"}})),
            named("content_block_delta", &json!({"index": 0, "delta": {"type": "text_delta", "text": "lo"}})),
            named("content_block_stop", &json!({"index": 0})),
            named(
                "content_block_start",
                &json!({"index": 1, "content_block":
                {"type": "tool_use", "id": "a", "name": "exec", "input": {}}}),
            ),
            named(
                "content_block_delta",
                &json!({"index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}}),
            ),
            named(
                "content_block_delta",
                &json!({"index": 1, "delta":
                {"type": "input_json_delta", "partial_json": "{\"code\":\"1\"}"}}),
            ),
            named("content_block_stop", &json!({"index": 1})),
            named(
                "content_block_start",
                &json!({"index": 2, "content_block":
                {"type": "tool_use", "id": "b", "name": "wait", "input": {}}}),
            ),
            named("content_block_stop", &json!({"index": 2})),
            named("message_delta", &json!({"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}})),
            named("message_stop", &json!({})),
        ]
        .concat(),
        Wire::Responses => {
            let items = json!([
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zz"},
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "Hello", "annotations": []}]},
                {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "exec", "arguments": "{\"code\":\"1\"}"},
                {"type": "function_call", "id": "fc_2", "call_id": "b", "name": "wait", "arguments": "{}"},
            ]);
            let usage = json!({"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 5}});
            let response = json!({"id": "c1", "model": "m", "status": "completed", "output": items, "usage": usage});
            let mut text = named("response.created", &json!({"response": {"id": "c1", "output": []}}));
            for (index, item) in items.as_array().unwrap().iter().enumerate() {
                text += &named("response.output_item.added", &json!({"output_index": index, "item": item}));
                if index == 1 {
                    for part in ["Hel", "lo"] {
                        text += &named("response.output_text.delta", &json!({"item_id": "msg_1", "delta": part}));
                    }
                }
                text += &named("response.output_item.done", &json!({"output_index": index, "item": item}));
            }
            text + &named("response.completed", &json!({"response": response}))
        }
    }
}

fn decode(wire: Wire, text: &[u8]) -> (Vec<ModelEvent>, Result<ModelResponse, IncompleteResponse>) {
    let mut decoder = Decoder::new(wire);
    let said = text.chunks(7).flat_map(|chunk| decoder.push(chunk)).collect();
    let mut made = 0;
    let new_id = || {
        made += 1;
        format!("new_{made}")
    };
    (said, decoder.finish(new_id))
}

fn calls(response: &ModelResponse) -> Vec<(&str, &str, &str)> {
    let calls = response.message.calls.iter();
    calls.map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.text())).collect()
}

#[test]
fn a_streamed_response_has_its_text_calls_and_usage() {
    for wire in Wire::ALL {
        let (said, response) = decode(wire, stream(wire).as_bytes());
        let response = response.unwrap();
        let text = |text: &str| ModelEvent::Text(text.to_owned());
        assert_eq!(said, [text("Hel"), text("lo")], "{wire}");
        assert_eq!(response.message.text, "Hello", "{wire}");
        assert_eq!(calls(&response), [("a", "exec", "{\"code\":\"1\"}"), ("b", "wait", "{}")], "{wire}");
        assert_eq!(response.stop, StopReason::ToolCalls, "{wire}");
        let usage = Usage { input_tokens: 9, output_tokens: 4, cache_read_tokens: 5, cache_write_tokens: 0 };
        assert_eq!((response.usage, response.id.as_str(), response.model.as_str()), (usage, "c1", "m"), "{wire}");
    }
}

#[test]
fn a_stream_that_is_cut_anywhere_has_no_calls() {
    for wire in Wire::ALL {
        let text = stream(wire);
        // A Chat response is complete with its finish reason; usage and `[DONE]` may be missing.
        let complete = match wire {
            Wire::Chat => text.find("\"tool_calls\"}]}\n\n").unwrap() + "\"tool_calls\"}]}\n\n".len(),
            Wire::Responses | Wire::Messages => text.len(),
        };
        for at in 0..text.len() {
            let (_, response) = decode(wire, &text.as_bytes()[..at]);
            assert_eq!(response.is_ok(), at >= complete, "{wire} cut at {at}: {response:?}");
        }
    }
}

#[test]
fn streams_with_events_dropped_doubled_or_swapped_never_panic_and_never_invent_calls() {
    for wire in Wire::ALL {
        let text = stream(wire);
        let events: Vec<&str> = text.split_inclusive("\n\n").collect();
        let whole = [("a", "exec", "{\"code\":\"1\"}"), ("b", "wait", "{}")];
        for at in 0..events.len() {
            let mut dropped = events.clone();
            dropped.remove(at);
            let mut doubled = events.clone();
            doubled.insert(at, events[at]);
            let mut swapped = events.clone();
            swapped.swap(at, (at + 1) % events.len());
            for changed in [dropped, doubled, swapped] {
                if let Ok(response) = decode(wire, changed.concat().as_bytes()).1 {
                    let runnable = response.message.calls.iter();
                    let runnable = runnable.filter(|call| matches!(call.arguments, Arguments::Object(_)));
                    assert!(runnable.clone().count() <= whole.len() + 1, "{wire} at {at}: {response:?}");
                }
            }
        }
    }
}

#[test]
fn a_provider_error_inside_a_response_is_an_error() {
    let error = json!({"error": {"message": "overloaded", "type": "overloaded_error", "code": 529}});
    let streams = [
        (Wire::Chat, format!("data: {error}\n\n")),
        (Wire::Chat, format!("data: {}\n\n", json!([error]))),
        (Wire::Responses, named("error", &error)),
        (Wire::Responses, named("response.failed", &json!({"response": error}))),
        (Wire::Messages, named("error", &error)),
    ];
    for (wire, text) in streams {
        let Err(IncompleteResponse::Provider(error)) = decode(wire, text.as_bytes()).1 else {
            panic!("{wire}: {text}")
        };
        assert_eq!((error.message.as_str(), error.kind.as_str()), ("overloaded", "overloaded_error"), "{wire}");
    }
    let ended = [chat_delta(&json!({"content": "x"})), chat_end("error")].concat();
    assert!(matches!(decode(Wire::Chat, ended.as_bytes()).1, Err(IncompleteResponse::Provider(_))));
}

/// Streams of servers that imitate Chat Completions, with the calls that they mean.
#[test]
fn the_calls_of_compatible_servers_are_read() {
    let call = |index: u64, id: &str, name: &str, arguments: &Value| {
        let mut call = json!({"index": index, "function": {"arguments": arguments}});
        if !id.is_empty() {
            call["id"] = json!(id);
        }
        call["function"]["name"] = json!(name);
        call
    };
    type Case = (&'static str, Vec<Value>, &'static str, Vec<(&'static str, &'static str, &'static str)>);
    let cases: [Case; 6] = [
        (
            "Ollama: whole calls, all with index 0, finished with `stop`",
            vec![json!([call(0, "x", "a", &json!("{}"))]), json!([call(0, "y", "b", &json!("{\"n\":1}"))])],
            "stop",
            vec![("x", "a", "{}"), ("y", "b", "{\"n\":1}")],
        ),
        (
            "Ollama: no ids, the same tool twice",
            vec![json!([call(0, "", "a", &json!("{\"n\":1}"))]), json!([call(0, "", "a", &json!("{\"n\":2}"))])],
            "stop",
            vec![("new_1", "a", "{\"n\":1}"), ("new_2", "a", "{\"n\":2}")],
        ),
        (
            "Arguments as an object",
            vec![json!([call(0, "x", "a", &json!({"n": 1}))])],
            "tool_calls",
            vec![("x", "a", "{\"n\":1}")],
        ),
        (
            "LM Studio: an empty name in later parts",
            vec![json!([call(0, "x", "a", &json!("{\"n\":"))]), json!([call(0, "", "", &json!("1}"))])],
            "tool_calls",
            vec![("x", "a", "{\"n\":1}")],
        ),
        (
            "id and name repeated in every part",
            vec![json!([call(0, "x", "a", &json!("{\"n\":"))]), json!([call(0, "x", "a", &json!("1}"))])],
            "tool_calls",
            vec![("x", "a", "{\"n\":1}")],
        ),
        ("LM Studio: an empty list of calls", vec![json!([])], "stop", vec![]),
    ];
    for (what, parts, reason, expected) in cases {
        let deltas = parts.iter().map(|part| chat_delta(&json!({"tool_calls": part})));
        let text = deltas.chain([chat_end(reason)]).collect::<String>();
        let response = decode(Wire::Chat, text.as_bytes()).1.unwrap();
        assert_eq!(calls(&response), expected, "{what}");
        let stop = if expected.is_empty() { StopReason::EndTurn } else { StopReason::ToolCalls };
        assert_eq!(response.stop, stop, "{what}");
    }
}

#[test]
fn a_call_that_was_cut_by_the_output_limit_is_not_made() {
    // vLLM reports a call that the limit cut as `tool_calls`.
    let half = json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "a", "arguments": "{\"n\":"}}]});
    for (reason, expected) in [("tool_calls", StopReason::ToolCalls), ("length", StopReason::Length)] {
        let text = [chat_delta(&half), chat_end(reason)].concat();
        let response = decode(Wire::Chat, text.as_bytes()).1.unwrap();
        assert_eq!(response.stop, expected);
        let runnable = response.message.calls.iter().filter(|call| matches!(call.arguments, Arguments::Object(_)));
        assert_eq!(runnable.count(), 0, "{reason}");
    }
}

#[test]
fn unknown_fields_of_an_assistant_message_are_sent_back() {
    let signed = json!({"index": 0, "id": "x", "function": {"name": "a", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "s"}}});
    let text = [
        chat_delta(&json!({"reasoning_content": "I "})),
        chat_delta(&json!({"reasoning_content": "think", "reasoning_details": [1]})),
        chat_delta(&json!({"reasoning_details": [2], "tool_calls": [signed]})),
        chat_end("stop"),
    ]
    .concat();
    let (said, response) = decode(Wire::Chat, text.as_bytes());
    assert_eq!(said, [ModelEvent::Reasoning("I ".to_owned()), ModelEvent::Reasoning("think".to_owned())]);
    let items = [Item::Assistant(response.unwrap().message)];
    let sent: Value = serde_json::from_slice(&request(&items).encode(Wire::Chat)).unwrap();
    let message = &sent["messages"][1];
    assert_eq!(message["reasoning_content"], "I think");
    assert_eq!(message["reasoning_details"], json!([1, 2]));
    assert_eq!(message["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "s");

    // A signed block of thinking goes back unchanged, also with an empty text.
    let blocks = r#"[{"type":"thinking","thinking":"","signature":"a+b/="},{"type":"text", "text":"x"}]"#;
    let body = format!(r#"{{"id":"m","type":"message","content":{blocks},"stop_reason":"end_turn","usage":{{}}}}"#);
    let response = read_whole(Wire::Messages, body.as_bytes(), String::new).unwrap();
    let sent = request(&[Item::Assistant(response.message)]).encode(Wire::Messages);
    assert!(String::from_utf8(sent).unwrap().contains(blocks));
}

#[test]
fn an_unstreamed_response_is_read_on_every_wire() {
    let chat = json!({"id": "c1", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls", "message":
        {"role": "assistant", "content": "Hello", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "exec", "arguments": "{\"code\":\"1\"}"}}]}}]});
    let responses = json!({"id": "c1", "model": "m", "status": "completed", "error": null, "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
        {"type": "function_call", "call_id": "a", "name": "exec", "arguments": "{\"code\":\"1\"}"}]});
    let messages = json!({"id": "c1", "model": "m", "type": "message", "stop_reason": "tool_use", "content": [
        {"type": "text", "text": "Hello"}, {"type": "tool_use", "id": "a", "name": "exec", "input": {"code": "1"}}]});
    for (wire, body) in [(Wire::Chat, chat), (Wire::Responses, responses), (Wire::Messages, messages)] {
        let response = read_whole(wire, body.to_string().as_bytes(), String::new).unwrap();
        assert_eq!(response.message.text, "Hello", "{wire}");
        assert_eq!(calls(&response), [("a", "exec", "{\"code\":\"1\"}")], "{wire}");
        for broken in ["", "{}", "[]", "null", "{\"error\": {\"message\": \"no\"}}"] {
            assert!(read_whole(wire, broken.as_bytes(), String::new).is_err(), "{wire}: {broken}");
        }
    }
}

fn tool(name: &str) -> ModelTool {
    ModelTool {
        name: name.to_owned(),
        description: "does it".to_owned(),
        parameters: RawValue::from_string("{\"type\":\"object\"}".to_owned()).unwrap(),
    }
}

fn request(items: &[Item]) -> ModelRequest<'_> {
    static EXTRA: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(|| {
        [("temperature".to_owned(), json!(0)), ("model".to_owned(), json!("another"))].into_iter().collect()
    });
    static TOOLS: std::sync::LazyLock<[ModelTool; 2]> = std::sync::LazyLock::new(|| [tool("exec"), tool("wait")]);
    ModelRequest {
        model: "m",
        instructions: "Be brief.",
        tools: &*TOOLS,
        tool_choice: ToolChoice::Auto,
        items,
        max_output_tokens: Some(100),
        stream: true,
        cache_key: "session",
        extra: &EXTRA,
        quirks: Quirks::default(),
    }
}

/// A conversation with answers of a provider of the wire.
fn conversation(wire: Wire, turns: usize) -> Vec<Item> {
    let mut items = Vec::new();
    for turn in 0..turns {
        items.push(Item::User(vec![Part::Text(format!("question {turn}"))]));
        items.push(Item::Assistant(decode(wire, stream(wire).as_bytes()).1.unwrap().message));
        items.push(Item::Results(vec![CallResult::text("a", "1"), CallResult::text("b", "2")]));
    }
    items
}

#[test]
fn a_longer_conversation_begins_with_the_bytes_of_the_shorter_one() {
    for wire in Wire::ALL {
        let mut before: Vec<u8> = Vec::new();
        for turns in 1..=20 {
            let items = conversation(wire, turns);
            let body = request(&items).encode(wire);
            assert_eq!(body, request(&items).encode(wire), "{wire}");
            // All but the closing brackets of the array and the object.
            let shared = before.len().saturating_sub(2);
            assert!(body.len() > shared && body[..shared] == before[..shared], "{wire}, turn {turns}");
            before = body;
        }
    }
}

#[test]
fn the_tools_of_a_request_are_read_back_from_its_bytes() {
    for wire in Wire::ALL {
        let body = request(&[]).encode(wire);
        assert_eq!(tool_names(wire, &body).unwrap(), ["exec", "wait"], "{wire}");
        let parsed: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&parsed["model"], &parsed["temperature"]), (&json!("m"), &json!(0)), "{wire}");
        assert_eq!(tool_names(wire, b"{\"tools\":[{}]}"), None, "{wire}");
        assert_eq!(tool_names(wire, b"{"), None, "{wire}");
    }
}

#[test]
fn a_conversation_of_one_provider_continues_with_a_provider_of_another_wire() {
    for from in Wire::ALL {
        let mut items = conversation(from, 1);
        items.push(Item::System("Remember.".to_owned()));
        let image = Image::Base64 { mime_type: "image/png".to_owned(), data: "AA==".to_owned() };
        let failed = CallResult { call_id: "c".to_owned(), parts: vec![Part::Text("no".to_owned())], is_error: true };
        items.push(Item::User(vec![Part::Text("look".to_owned()), Part::Image(image)]));
        items.push(Item::Results(vec![failed]));
        let sent = |wire: Wire| serde_json::from_slice::<Value>(&request(&items).encode(wire)).unwrap();

        let chat = sent(Wire::Chat);
        assert_eq!(chat["messages"][0], json!({"role": "system", "content": "Be brief."}));
        assert_eq!(chat["messages"][2]["tool_calls"][0]["function"]["arguments"], "{\"code\":\"1\"}", "{from}");
        assert_eq!(chat["messages"][3], json!({"role": "tool", "tool_call_id": "a", "content": "1"}));
        assert_eq!(chat["messages"][6]["content"][1]["image_url"]["url"], "data:image/png;base64,AA==");
        assert_eq!(chat["messages"][7]["content"], "Error: no");

        let responses = sent(Wire::Responses);
        let input = responses["input"].as_array().unwrap();
        let call = input.iter().find(|item| item["type"] == "function_call").unwrap();
        assert_eq!((&call["call_id"], &call["arguments"]), (&json!("a"), &json!("{\"code\":\"1\"}")), "{from}");
        assert!(input.contains(&json!({"type": "function_call_output", "call_id": "a", "output": "1"})));
        assert_eq!(input.iter().any(|item| item["type"] == "reasoning"), from == Wire::Responses);

        let messages = sent(Wire::Messages);
        assert_eq!(messages["system"], "Be brief.");
        let assistant = &messages["messages"][1];
        assert_eq!(assistant["content"][1]["input"], json!({"code": "1"}), "{from}");
        let results = &messages["messages"][2]["content"];
        assert_eq!((&results[0]["tool_use_id"], &results[1]["tool_use_id"]), (&json!("a"), &json!("b")));
        assert_eq!(messages["messages"][4]["content"][1]["source"]["data"], "AA==");
        assert_eq!(messages["messages"][5]["content"][0]["is_error"], true);
    }
}

#[test]
fn quirks_change_only_what_they_name() {
    let items = [Item::Assistant(Assistant { text: "hi".to_owned(), ..Assistant::default() })];
    let with = |wire: Wire, quirks: Quirks| {
        serde_json::from_slice::<Value>(&ModelRequest { quirks, ..request(&items) }.encode(wire)).unwrap()
    };
    let plain = with(Wire::Chat, Quirks::default());
    assert_eq!((&plain["max_completion_tokens"], plain.get("max_tokens")), (&json!(100), None));
    let quirks = Quirks {
        uses_max_tokens: true,
        developer_role: true,
        reasoning_content: true,
        no_stream_options: true,
        ..Quirks::default()
    };
    let odd = with(Wire::Chat, quirks);
    assert_eq!(
        (&odd["max_tokens"], odd.get("max_completion_tokens"), odd.get("stream_options")),
        (&json!(100), None, None)
    );
    assert_eq!(odd["messages"][0]["role"], "developer");
    assert_eq!(odd["messages"][1]["reasoning_content"], " ");
    let cached = with(Wire::Messages, Quirks::default());
    assert_eq!(cached["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(with(Wire::Messages, Quirks { no_cache_control: true, ..Quirks::default() }).get("cache_control"), None);
}

#[test]
fn limits_of_a_response_are_enforced() {
    let many: String = (0..=crate::limits::MAX_CALLS)
        .map(|n| chat_delta(&json!({"tool_calls": [{"index": n, "id": format!("{n}"), "function": {"name": "a", "arguments": "{}"}}]})))
        .collect();
    let text = many + &chat_end("tool_calls");
    assert!(matches!(decode(Wire::Chat, text.as_bytes()).1, Err(IncompleteResponse::TooLarge(_))));
    let long = "x".repeat(crate::limits::MAX_EVENT_BYTES);
    assert!(matches!(
        decode(Wire::Chat, chat_delta(&json!({"content": long})).as_bytes()).1,
        Err(IncompleteResponse::TooLarge(_))
    ));
    let name = "n".repeat(crate::limits::MAX_CALL_NAME_BYTES + 1);
    let call = json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": name, "arguments": "{}"}}]});
    let text = [chat_delta(&call), chat_end("tool_calls")].concat();
    assert!(matches!(decode(Wire::Chat, text.as_bytes()).1, Err(IncompleteResponse::TooLarge(_))));
}
