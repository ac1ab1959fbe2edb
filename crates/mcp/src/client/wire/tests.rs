//! Tests of the session with a scripted peer over an in-memory pipe.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use executor::ProgressSink;
use process::ResponseSlot;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use super::{DisconnectReason, Handshake, Request, RequestError, Session, Stdio};
use crate::client::spec::MAX_UPDATES;

type Ours = Stdio<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

/// The server's end.
struct Peer {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Peer {
    async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn shake_hands(&mut self) {
        let initialize = self.receive().await;
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "peer", "version": "1"}});
        self.send(json!({"jsonrpc": "2.0", "id": initialize["id"], "result": result})).await;
        assert_eq!(self.receive().await["method"], "notifications/initialized");
    }
}

fn pair() -> (Ours, Peer) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(ours);
    let (their_reader, their_writer) = tokio::io::split(theirs);
    let peer = Peer { lines: BufReader::new(their_reader).lines(), writer: their_writer };
    (Stdio::new(reader, writer, None), peer)
}

async fn connected() -> (Arc<Session>, Peer) {
    let (stdio, mut peer) = pair();
    let (session, ()) = tokio::join!(Session::open(stdio, Handshake::Initialize), peer.shake_hands());
    (Arc::new(session.unwrap()), peer)
}

fn ask(updates: ProgressSink) -> Request<'static> {
    Request {
        method: "tools/call",
        params: Map::new(),
        headers: Vec::new(),
        key: "k1",
        updates,
        asker: None,
        deadline: Duration::from_secs(5),
        slot: ResponseSlot::default(),
    }
}

#[tokio::test]
async fn a_request_carries_its_key_and_its_result_comes_back_whole() {
    let (session, mut peer) = connected().await;
    let result = json!({"content": [], "isError": true, "unheardOf": {"deep": [1]}, "_meta": {"a": 1}});
    let serve = async {
        let request = peer.receive().await;
        assert_eq!(request["params"]["_meta"]["cellmate/idempotencyKey"], "k1");
        // A response without a request, one whose id is returned as a string, and a duplicate.
        peer.send(json!({"jsonrpc": "2.0", "id": 999, "result": {"content": ["wrong"]}})).await;
        let id = request["id"].to_string();
        peer.send(json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
        peer.send(json!({"jsonrpc": "2.0", "id": id, "result": {"content": ["late"]}})).await;
    };
    let (got, ()) = tokio::join!(session.request(ask(ProgressSink::default())), serve);
    assert_eq!(got, Ok(result.clone()));
}

#[tokio::test]
async fn progress_reaches_its_own_call_bounded_in_number_and_length() {
    let (session, mut peer) = connected().await;
    let received = Arc::new(Mutex::new(Vec::new()));
    let updates = ProgressSink::to({
        let received = Arc::clone(&received);
        move |update| received.lock().unwrap().push(update)
    });
    let serve = async {
        let request = peer.receive().await;
        let token = &request["params"]["_meta"]["progressToken"];
        let progress = |token: &Value, n: u32, message: &str| json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": n, "total": 9, "message": message, "more": 1}});
        peer.send(progress(&json!("another"), 7, "of another call")).await;
        for n in 0..MAX_UPDATES + 5 {
            peer.send(progress(token, n, &"x".repeat(2000))).await;
        }
        peer.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": {}})).await;
    };
    let (got, ()) = tokio::join!(session.request(ask(updates)), serve);
    assert_eq!(got, Ok(json!({})));
    let received = received.lock().unwrap();
    assert_eq!(received.len(), MAX_UPDATES as usize);
    assert_eq!(received[1], json!({"progress": 1, "total": 9, "message": format!("{}…", "x".repeat(1000))}));
}

#[tokio::test]
async fn a_dropped_or_late_request_is_cancelled_at_the_server() {
    let (session, mut peer) = connected().await;
    let call = tokio::spawn({
        let session = Arc::clone(&session);
        async move { session.request(ask(ProgressSink::default())).await }
    });
    let dropped = peer.receive().await;
    call.abort();
    let cancelled = peer.receive().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &dropped["id"])
    );
    let late = Request { deadline: Duration::from_millis(20), ..ask(ProgressSink::default()) };
    let (got, request) = tokio::join!(session.request(late), peer.receive());
    assert_eq!(got, Err(RequestError::Deadline(Duration::from_millis(20))));
    assert_eq!(peer.receive().await["params"]["requestId"], request["id"]);
}

#[tokio::test]
async fn server_requests_are_rejected_and_too_many_of_them_end_the_connection() {
    let (session, mut peer) = connected().await;
    for (n, method) in ["sampling/createMessage", "elicitation/create", "no/such"].into_iter().enumerate() {
        let params = json!({"messages": [], "maxTokens": 1, "message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        peer.send(json!({"jsonrpc": "2.0", "id": n, "method": method, "params": params})).await;
        let answer = peer.receive().await;
        assert!(answer["error"].is_object() || answer["result"]["action"] == "cancel", "{answer}");
    }
    // The peer stops reading the responses, so they accumulate.
    for n in 0..4096 {
        let ping = json!({"jsonrpc": "2.0", "id": "p".repeat(900) + &n.to_string(), "method": "ping"});
        if peer.writer.write_all(format!("{ping}\n").as_bytes()).await.is_err() {
            break;
        }
    }
    let why = session.request(ask(ProgressSink::default())).await;
    let (Err(RequestError::NotSent(why)) | Err(RequestError::Closed(why))) = why else { panic!("{why:?}") };
    assert!(matches!(why, DisconnectReason::AsksTooMuch | DisconnectReason::DoesNotRead), "{why:?}");
}

#[tokio::test]
async fn an_error_and_the_end_of_the_connection_are_reported() {
    let (session, mut peer) = connected().await;
    let errors = [
        (json!({"code": -32602, "message": "no such tool"}), -32602, "no such tool"),
        (json!({"message": 7}), 0, "an error without a readable message"),
        (json!("boom"), 0, "an error without a readable message"),
    ];
    for (error, code, message) in errors {
        let serve = async {
            let id = peer.receive().await["id"].clone();
            peer.send(json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
        };
        let (got, ()) = tokio::join!(session.request(ask(ProgressSink::default())), serve);
        assert_eq!(got, Err(RequestError::Refused { code, message: message.to_owned() }));
    }
    let end = async {
        peer.receive().await;
        drop(peer);
    };
    let (got, ()) = tokio::join!(session.request(ask(ProgressSink::default())), end);
    assert_eq!(got, Err(RequestError::Closed(DisconnectReason::Ended)));
    assert_eq!(
        session.request(ask(ProgressSink::default())).await,
        Err(RequestError::NotSent(DisconnectReason::Ended))
    );
}

#[tokio::test]
async fn a_rejected_or_invalid_handshake_is_reported() {
    let answers = [
        (
            json!({"error": {"code": -32601, "message": "what?"}}),
            RequestError::Refused { code: -32601, message: "what?".to_owned() },
        ),
        (json!({"result": {"tools": []}}), RequestError::InvalidResponse),
        (json!({"result": 7}), RequestError::InvalidResponse),
    ];
    for (answer, expected) in answers {
        let (stdio, mut peer) = pair();
        let serve = async {
            let mut message = answer.clone();
            message["id"] = peer.receive().await["id"].clone();
            peer.send(message).await;
        };
        let (session, ()) = tokio::join!(Session::open(stdio, Handshake::Initialize), serve);
        assert_eq!(session.map(|_| ()), Err(expected), "{answer}");
    }
}
