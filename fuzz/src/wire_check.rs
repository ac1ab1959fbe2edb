//! What holds for any bytes on the three wires.

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use wire::Wire;
use wire::conversation::{ModelTool, StopReason, Usage};
use wire::downstream::{ClientCall, ClientRequest, ResponseWriter};
use wire::upstream::{
    Decoder, IncompleteResponse, ModelEvent, ModelRequest, ModelResponse, Quirks, read_whole, tool_names,
};

/// Checks a request of a client: it is refused, or every provider's wire can express it, with the tools that were
/// offered and no others, and a response to it can be written.
pub fn check_request(wire: Wire, bytes: &[u8]) {
    let Ok(request) = ClientRequest::read(wire, bytes) else { return };
    let offered = ModelTool {
        name: "exec".to_owned(),
        description: String::new(),
        parameters: RawValue::from_string("{}".to_owned()).unwrap(),
    };
    for upstream in Wire::ALL {
        let body = ModelRequest {
            model: &request.model,
            instructions: &request.instructions,
            tools: std::slice::from_ref(&offered),
            tool_choice: request.tool_choice,
            items: &request.items,
            max_output_tokens: request.max_output_tokens,
            stream: request.stream,
            cache_key: "",
            extra: &Map::new(),
            quirks: Quirks::default(),
        }
        .encode(upstream);
        let parsed: Value = serde_json::from_slice(&body).expect("a request to a provider is JSON");
        assert!(parsed.is_object());
        assert_eq!(tool_names(upstream, &body), Some(vec!["exec".to_owned()]));
    }
    let mut writer = ResponseWriter::new(&request, "id", 0);
    let calls: Vec<ClientCall> = Vec::new();
    let mut response = writer.start();
    response.extend(writer.text("text"));
    response.extend(writer.keep_alive());
    response.extend(writer.end(&calls, &StopReason::EndTurn, Usage::default()));
    assert!(std::str::from_utf8(&response).is_ok());
    if !request.stream {
        let parsed: Value = serde_json::from_slice(&response).expect("an unstreamed response is JSON");
        assert!(parsed.is_object());
    }
}

/// Checks a response of a provider, streamed and as a whole: reading it in pieces of any size has one result.
pub fn check_response(wire: Wire, bytes: &[u8]) {
    drop(read_whole(wire, bytes, || "new".to_owned()));
    let (all, whole) = decode(wire, bytes, bytes.len().max(1));
    for size in [1, 7, 64] {
        let (events, response) = decode(wire, bytes, size);
        match (&whole, &response) {
            (Ok(whole), Ok(response)) => {
                assert_eq!(format!("{whole:?}"), format!("{response:?}"));
                assert_eq!(all, events);
            }
            // Events before the broken one may be read or not, depending on the pieces.
            (Err(_), Err(_)) => assert!(events.starts_with(&all), "{all:?} is not the beginning of {events:?}"),
            _ => panic!("in one piece {whole:?}, in pieces of {size} bytes {response:?}"),
        }
    }
}

/// Reads a stream in pieces, and returns what was said, joined by kind, and the result.
fn decode(wire: Wire, bytes: &[u8], size: usize) -> (Vec<ModelEvent>, Result<ModelResponse, IncompleteResponse>) {
    let mut decoder = Decoder::new(wire);
    let mut events = Vec::new();
    for piece in bytes.chunks(size) {
        events.extend(decoder.push(piece));
    }
    (events, decoder.finish(|| "new".to_owned()))
}
