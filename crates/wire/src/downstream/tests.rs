use serde_json::{Value, json};

use super::{ClientCall, ClientRequest, REASONING_SIGNATURE, ResponseWriter, Thread, WireError};
use crate::Wire;
use crate::conversation::{Item, Part, StopReason, Usage};
use crate::limits::MAX_EVENT_BYTES;
use crate::sse::SseReader;
use crate::upstream::{Decoder, ModelEvent, ModelRequest, Quirks, ToolChoice, message_events, read_whole};

/// A conversation with a system text, a question, a call, its result and a second question.
fn request(wire: Wire, stream: bool) -> ClientRequest {
    let body = match wire {
        Wire::Chat => {
            json!({"model": "openclaw/main", "stream": stream, "stream_options": {"include_usage": true}, "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{\"n\":1}"}}]},
            {"role": "tool", "tool_call_id": "call_a", "content": "one"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
                {"type": "custom", "custom": {"name": "g"}}], "max_tokens": 5, "unknown": {"x": 1}})
        }
        Wire::Responses => json!({"model": "openclaw/main", "stream": stream, "instructions": "Be brief.", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": "call_a", "name": "f", "arguments": "{\"n\":1}"},
            {"type": "function_call_output", "call_id": "call_a", "output": "one"}],
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "web_search"}],
            "max_output_tokens": 5}),
        Wire::Messages => {
            json!({"model": "openclaw/main", "stream": stream, "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "call_a", "name": "f", "input": {"n": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "one"}]}],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web"}],
            "max_tokens": 5, "thread": {"type": "create"}})
        }
    };
    ClientRequest::read(wire, body.to_string().as_bytes()).unwrap()
}

#[test]
fn a_request_means_the_same_on_every_wire() {
    for wire in Wire::ALL {
        let request = request(wire, false);
        assert_eq!((request.model.as_str(), request.instructions.as_str()), ("openclaw/main", "Be brief."), "{wire}");
        let [Item::User(said), Item::Assistant(message), Item::Results(results)] = request.items.as_slice() else {
            panic!("{wire}: {:?}", request.items)
        };
        assert!(matches!(said.as_slice(), [Part::Text(text), Part::Image(_)] if text == "look"), "{wire}");
        assert_eq!(
            (message.calls[0].id.as_str(), message.calls[0].arguments.text()),
            ("call_a", "{\"n\":1}"),
            "{wire}"
        );
        assert_eq!((results[0].call_id.as_str(), request.trailing_results().count()), ("call_a", 1), "{wire}");
        assert_eq!((request.tools.len(), request.other_tools.len()), (1, 1), "{wire}");
        assert_eq!(request.max_output_tokens, Some(5), "{wire}");
        assert_eq!(request.thread, (wire == Wire::Messages).then_some(Thread::Create));
    }
}

#[test]
fn a_wrong_request_is_refused_with_its_field() {
    let cases = [
        (Wire::Chat, "[]", ""),
        (Wire::Chat, r#"{"messages":[{"role":"user","content":"x"}]}"#, "model"),
        (Wire::Chat, r#"{"model":"m","messages":[]}"#, "messages"),
        (Wire::Chat, r#"{"model":"m","messages":"x"}"#, "messages"),
        (Wire::Chat, r#"{"model":"m","messages":[{"role":"x"}]}"#, "messages"),
        (Wire::Chat, r#"{"model":"m","stream":"yes","messages":[{"role":"user","content":"x"}]}"#, "stream"),
        (
            Wire::Chat,
            r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{}}]}"#,
            "tools",
        ),
        (Wire::Responses, r#"{"model":"m"}"#, "input"),
        (Wire::Responses, r#"{"model":"m","input":[{"type":"function_call_output","output":"x"}]}"#, "input"),
        (
            Wire::Messages,
            r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}"#,
            "messages",
        ),
        (
            Wire::Messages,
            r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"thread":{"type":"?"}}"#,
            "thread",
        ),
    ];
    for (wire, body, field) in cases {
        let error = ClientRequest::read(wire, body.as_bytes()).unwrap_err();
        assert_eq!(error.field, field, "{wire} {body}: {error}");
    }
}

const USAGE: Usage = Usage { input_tokens: 9, output_tokens: 4, cache_read_tokens: 5, cache_write_tokens: 0 };

fn calls() -> [ClientCall; 2] {
    let call =
        |id: &str, n: u8| ClientCall { id: id.to_owned(), name: "f".to_owned(), arguments: format!("{{\"n\":{n}}}") };
    [call("call_a1", 1), call("call_b2", 2)]
}

fn written(wire: Wire, stream: bool, texts: &[&str], calls: &[ClientCall], stop: &StopReason) -> Vec<u8> {
    let mut writer = ResponseWriter::new(&request(wire, stream), "0123456789abcdefghijklmn", 1_700_000_000);
    let mut out = writer.start();
    for text in texts {
        out.extend(writer.text(text));
        out.extend(writer.keep_alive());
    }
    out.extend(writer.end(calls, stop, USAGE));
    assert!(writer.end(calls, stop, USAGE).is_empty() && writer.text("late").is_empty(), "nothing follows the end");
    out
}

/// What is written to a client is read back by the decoder of the same wire.
#[test]
fn a_decoder_reads_what_a_writer_wrote() {
    let none: [ClientCall; 0] = [];
    let cases: [(&[&str], &[ClientCall], StopReason); 5] = [
        (&["Hel", "lo"], &calls(), StopReason::ToolCalls),
        (&[], &calls(), StopReason::ToolCalls),
        (&["Hello"], &none, StopReason::EndTurn),
        (&[], &none, StopReason::EndTurn),
        (&["Hel"], &none, StopReason::Length),
    ];
    for wire in Wire::ALL {
        for (texts, asked, stop) in &cases {
            for stream in [true, false] {
                let bytes = written(wire, stream, texts, asked, stop);
                let response = if stream {
                    let mut decoder = Decoder::new(wire);
                    decoder.push(&bytes);
                    decoder.finish(String::new)
                } else {
                    read_whole(wire, &bytes, String::new)
                };
                let response = response.unwrap_or_else(|error| panic!("{wire} {stream} {texts:?}: {error}"));
                assert_eq!(response.message.text, texts.concat(), "{wire} {stream}");
                let read: Vec<_> =
                    response.message.calls.iter().map(|call| (call.id.as_str(), call.arguments.text())).collect();
                let asked: Vec<_> = asked.iter().map(|call| (call.id.as_str(), call.arguments.as_str())).collect();
                assert_eq!(read, asked, "{wire} {stream}");
                assert_eq!((&response.stop, response.usage), (stop, USAGE), "{wire} {stream} {texts:?}");
            }
        }
    }
}

/// The fields and events that some tested client requires, in the order in which they come.
#[test]
fn a_stream_has_what_clients_require() {
    let events = |wire: Wire| {
        let bytes = written(wire, true, &["Hi"], &calls(), &StopReason::ToolCalls);
        let events = SseReader::new(MAX_EVENT_BYTES).push(&bytes).unwrap();
        events
            .into_iter()
            .filter(|event| event.data != "[DONE]")
            .map(|event| {
                let data: Value = serde_json::from_str(&event.data).unwrap();
                assert!(wire == Wire::Chat || data["type"] == json!(event.name), "{event:?}");
                data
            })
            .collect::<Vec<_>>()
    };
    let chat = events(Wire::Chat);
    assert!(chat.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["choices"].is_array()));
    assert_eq!(chat[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let heads = chat.iter().filter(|chunk| chunk.pointer("/choices/0/delta/tool_calls/0/id").is_some());
    assert_eq!(heads.count(), 2, "the id of a call is sent once");
    let end = chat.iter().rfind(|chunk| chunk.pointer("/choices/0").is_some()).unwrap();
    assert_eq!(end["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(chat.last().unwrap()["usage"]["prompt_tokens"], 9);

    let responses = events(Wire::Responses);
    let names: Vec<&str> = responses.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ];
    let mut expected = vec![
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "keepalive",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ];
    expected.extend(call);
    expected.extend(call);
    expected.push("response.completed");
    assert_eq!(names, expected);
    let numbers: Vec<u64> = responses.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    let last = &responses.last().unwrap()["response"];
    assert_eq!(last["id"], responses[0]["response"]["id"]);
    for item in last["output"].as_array().unwrap() {
        let same =
            responses.iter().filter(|event| event["type"] != "response.completed" && event["item"]["id"] == item["id"]);
        assert_eq!(same.clone().count(), 2, "{item}");
        assert!(same.clone().all(|event| event["item"]["call_id"] == item["call_id"]), "{item}");
    }

    let messages = events(Wire::Messages);
    let names: Vec<&str> = messages.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let mut expected =
        vec!["message_start", "content_block_start", "content_block_delta", "ping", "content_block_stop"];
    expected.extend(block);
    expected.extend(block);
    expected.extend(["message_delta", "message_stop"]);
    assert_eq!(names, expected);
    assert_eq!(messages[5]["content_block"], json!({"type": "tool_use", "id": "call_a1", "name": "f", "input": {}}));
}

#[test]
fn a_failure_after_the_start_is_an_error_of_the_wire() {
    let error = WireError::new(500, "it broke");
    for wire in Wire::ALL {
        let mut writer = ResponseWriter::new(&request(wire, true), "x", 0);
        let mut bytes = writer.start();
        bytes.extend(writer.text("Hi"));
        bytes.extend(writer.fail(&error, "req_1"));
        let mut decoder = Decoder::new(wire);
        decoder.push(&bytes);
        let broken = decoder.finish(String::new).unwrap_err();
        assert!(broken.to_string().contains("it broke"), "{wire}: {broken}");
    }
    let body = WireError::new(401, "no").body(Wire::Messages, "req_1");
    assert_eq!(
        body,
        json!({"type": "error", "error": {"type": "authentication_error", "message": "no"}, "request_id": "req_1"})
    );
    assert_eq!(WireError::new(429, "no").body(Wire::Chat, "")["error"]["type"], "rate_limit_exceeded");
}

/// A client of one wire is served by a provider of another: nothing of the conversation is lost.
#[test]
fn a_conversation_passes_between_wires() {
    let extra = serde_json::Map::new();
    for client in Wire::ALL {
        let given = request(client, false);
        for provider in Wire::ALL {
            let sent = ModelRequest {
                model: "m",
                instructions: &given.instructions,
                tools: &[],
                tool_choice: ToolChoice::Auto,
                items: &given.items,
                max_output_tokens: Some(5),
                stream: false,
                cache_key: "",
                extra: &extra,
                quirks: Quirks::default(),
            };
            let read = ClientRequest::read(provider, &sent.encode(provider)).unwrap();
            let [Item::User(said), Item::Assistant(message), Item::Results(results)] = read.items.as_slice() else {
                panic!("{client} to {provider}: {:?}", read.items)
            };
            assert!(matches!(said.as_slice(), [Part::Text(_), Part::Image(_)]), "{client} to {provider}");
            assert_eq!((message.calls[0].id.as_str(), results[0].call_id.as_str()), ("call_a", "call_a"));
            assert_eq!(read.instructions, "Be brief.", "{client} to {provider}");
        }
    }
}

#[test]
fn no_client_receives_a_status_that_it_would_misread() {
    use super::{Repetition, WireError};
    for wire in [Wire::Chat, Wire::Responses, Wire::Messages] {
        let of = |status: u16| WireError::new(status, "x").http_status(wire);
        assert_eq!((of(499), of(409), of(400), of(503)), (503, 400, 400, 503), "{wire:?}");
        assert_eq!(of(529), if wire == Wire::Messages { 529 } else { 503 });
    }
    let repeats = |status: u16| WireError::new(status, "x").may_repeat();
    assert!([408, 429, 500, 502, 503, 529].into_iter().all(repeats));
    assert!(![400, 401, 403, 404, 409, 413, 499].into_iter().any(repeats));
    let done = WireError { repetition: Repetition::Never, ..WireError::new(502, "x") };
    assert!(!done.may_repeat());
    let gone = WireError::new(404, "x").with_code("thread_not_found").body(Wire::Messages, "req_1");
    assert_eq!(gone["error"]["details"]["error_code"], "thread_not_found");
}

#[test]
fn reasoning_is_read_back_in_order_and_every_item_keeps_its_id() {
    let (text, reasoning) =
        (|text: &str| ModelEvent::Text(text.into()), |text: &str| ModelEvent::Reasoning(text.into()));
    for wire in Wire::ALL {
        for stream in [true, false] {
            let request = ClientRequest { shows_reasoning: true, ..request(wire, stream) };
            let mut writer = ResponseWriter::new(&request, "0123456789abcdefghijklmn", 1_700_000_000);
            let mut bytes = writer.reasoning("I ");
            bytes.extend(writer.reasoning("think."));
            bytes.extend(writer.text("Hi"));
            bytes.extend(writer.reasoning("More."));
            bytes.extend(writer.text(" you"));
            let ids = writer.item_ids(&calls());
            bytes.extend(writer.end(&calls(), &StopReason::ToolCalls, USAGE));
            assert!(writer.reasoning("late").is_empty());
            let (response, streamed) = if stream {
                let mut decoder = Decoder::new(wire);
                let events = decoder.push(&bytes);
                (decoder.finish(String::new).unwrap(), events)
            } else {
                (read_whole(wire, &bytes, String::new).unwrap(), Vec::new())
            };
            let in_order = [reasoning("I think."), text("Hi"), reasoning("More."), text(" you")];
            let together = [reasoning("I think.More."), text("Hi you")];
            let expected: &[ModelEvent] = if wire == Wire::Chat { &together } else { &in_order };
            assert_eq!(message_events(&response.message), expected, "{wire} {stream}");
            if stream {
                let pieces = ["I ", "think."].map(reasoning).into_iter().chain(in_order.into_iter().skip(1));
                assert_eq!(streamed, pieces.collect::<Vec<_>>(), "{wire}");
            }
            assert_eq!(response.message.calls.len(), 2, "{wire} {stream}");
            if wire == Wire::Responses {
                let written = String::from_utf8(bytes).unwrap();
                assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 6, "{ids:?}");
                assert!(ids.iter().all(|id| written.contains(&format!("\"id\":\"{id}\""))), "{ids:?}: {written}");
            }
        }
    }
}

#[test]
fn a_client_of_messages_receives_reasoning_only_if_it_asks_for_its_text() {
    let shows = |thinking: Value| {
        let messages = json!([{"role": "user", "content": "x"}]);
        let body = json!({"model": "m", "max_tokens": 1, "messages": messages, "thinking": thinking});
        ClientRequest::read(Wire::Messages, body.to_string().as_bytes()).unwrap().shows_reasoning
    };
    for thinking in
        [json!(null), json!({}), json!({"type": "disabled"}), json!({"type": "enabled", "display": "omitted"})]
    {
        assert!(!shows(thinking.clone()), "{thinking}");
    }
    for thinking in
        [json!({"type": "enabled", "budget_tokens": 1024}), json!({"type": "adaptive", "display": "summarized"})]
    {
        assert!(shows(thinking.clone()), "{thinking}");
    }
    let mut writer = ResponseWriter::new(&request(Wire::Messages, true), "x", 0);
    assert!(writer.reasoning("hidden").is_empty());
    assert!(request(Wire::Chat, true).shows_reasoning && request(Wire::Responses, true).shows_reasoning);
}

#[test]
fn reasoning_of_this_gateway_is_not_sent_to_providers_and_that_of_others_is() {
    let said = json!({"role": "user", "content": "x"});
    let cases = [
        (
            Wire::Chat,
            json!({"model": "m", "messages": [said, {"role": "assistant", "content": "Hi", "reasoning_content": "ours"}]}),
        ),
        (
            Wire::Responses,
            json!({"model": "m", "input": [said,
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "ours"}]},
                {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "theirs"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}]}),
        ),
        (
            Wire::Messages,
            json!({"model": "m", "max_tokens": 1, "messages": [said, {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "ours", "signature": REASONING_SIGNATURE},
                {"type": "thinking", "thinking": "other", "signature": "theirs"}, {"type": "text", "text": "Hi"}]}]}),
        ),
    ];
    for (wire, body) in cases {
        let request = ClientRequest::read(wire, body.to_string().as_bytes()).unwrap();
        let [Item::User(_), Item::Assistant(message)] = request.items.as_slice() else { panic!("{:?}", request.items) };
        assert_eq!(message.text, "Hi", "{wire}");
        let raw = message.raw.as_ref().unwrap().json.get();
        assert!(!raw.contains("ours") && raw.contains("theirs") == (wire != Wire::Chat), "{wire}: {raw}");
    }
}
