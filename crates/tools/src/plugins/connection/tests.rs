use std::sync::Arc;
use std::time::Duration;

use executor::ProgressSink;
use parking_lot::Mutex;
use process::{MAX_BAD_FRAMES, MAX_UNANSWERED_REQUESTS, MAX_UPDATES};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::time::{Instant, timeout};

use super::{CloseReason, Connection, MAX_TIMEOUTS, RequestError};

/// The plugin's end of a connection.
struct Peer {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Peer {
    async fn next(&mut self) -> Value {
        let line = timeout(Duration::from_secs(5), self.lines.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn write(&mut self, text: &str) {
        self.writer.write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }
}

type TestConnection = Connection<WriteHalf<DuplexStream>>;

fn connect() -> (Arc<TestConnection>, Peer) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (reader, writer) = tokio::io::split(ours);
    let connection = Arc::new(Connection::over(reader, writer));
    let (reader, writer) = tokio::io::split(theirs);
    (connection, Peer { lines: BufReader::new(reader).lines(), writer })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

fn ask(connection: &Arc<TestConnection>, method: &'static str) -> tokio::task::JoinHandle<Result<Value, RequestError>> {
    let connection = Arc::clone(connection);
    tokio::spawn(async move {
        let answer = connection.request(method, json!({}), soon(), ProgressSink::default()).await;
        answer.map(|answer| answer.result)
    })
}

#[tokio::test]
async fn answers_reach_their_requests_whatever_else_is_sent() {
    let (connection, mut peer) = connect();
    let (one, two) = (ask(&connection, "a"), ask(&connection, "b"));
    let mut ids: Vec<(String, i64)> = Vec::new();
    for _ in 0..2 {
        let message = peer.next().await;
        ids.push((message["method"].as_str().unwrap().to_owned(), message["id"].as_i64().unwrap()));
    }
    ids.sort();
    let (a, b) = (ids[0].1, ids[1].1);
    for lie in [
        json!({"jsonrpc": "2.0", "id": 999, "result": "for nobody"}),
        json!({"jsonrpc": "2.0", "id": [a], "result": "no id"}),
        json!({"jsonrpc": "2.0", "method": "nonsense", "params": {}}),
        json!({"jsonrpc": "2.0", "id": b, "result": "two"}),
        json!({"jsonrpc": "2.0", "id": b, "result": "two again"}),
        json!({"jsonrpc": "2.0", "id": a.to_string(), "result": "one"}),
    ] {
        peer.write(&lie.to_string()).await;
    }
    assert_eq!((one.await.unwrap(), two.await.unwrap()), (Ok(json!("one")), Ok(json!("two"))));
    assert_eq!(connection.why_closed(), None);
}

#[tokio::test]
async fn a_wrong_answer_fails_its_request_only() {
    let (connection, mut peer) = connect();
    let cases = [
        (r#"{"id":ID}"#.to_owned(), RequestError::Invalid),
        (r#"{"id":ID,"result":1,"error":{}}"#.to_owned(), RequestError::Invalid),
        (r#"{"id":ID,"result":1e999}"#.to_owned(), RequestError::Invalid),
        (
            r#"{"id":ID,"error":{"code":7,"message":"no\u001b[2J"}}"#.to_owned(),
            RequestError::Refused { code: 7, message: "no\\u{1b}[2J".to_owned() },
        ),
    ];
    for (answer, expected) in cases {
        let asked = ask(&connection, "a");
        let id = peer.next().await["id"].to_string();
        peer.write(&answer.replace("ID", &id)).await;
        assert_eq!(asked.await.unwrap(), Err(expected), "{answer}");
    }
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let asked = ask(&connection, "a");
    let id = peer.next().await["id"].to_string();
    peer.write(&format!(r#"{{"id":{id},"result":{deep}}}"#)).await;
    assert!(matches!(asked.await.unwrap(), Err(RequestError::TooLarge(_))));
    assert_eq!(connection.why_closed(), None);
}

#[tokio::test]
async fn an_answer_that_is_too_long_fails_its_request_only() {
    let (connection, mut peer) = connect();
    let (one, two) = (ask(&connection, "a"), ask(&connection, "b"));
    let mut ids = [0, 0];
    for _ in 0..2 {
        let message = peer.next().await;
        ids[usize::from(message["method"] == "b")] = message["id"].as_i64().unwrap();
    }
    let long = "x".repeat(9 << 20);
    peer.write(&json!({"method": "progress", "params": {"requestId": ids[0], "message": long}}).to_string()).await;
    peer.write(&json!({"id": 999, "result": {"text": long}}).to_string()).await;
    peer.write(&json!({"id": ids[0], "result": {"text": long}}).to_string()).await;
    let too_large = |error: RequestError| match error {
        RequestError::TooLarge(why) => assert!(why.contains("longer than 8388608 bytes; ask it for less"), "{why}"),
        other => panic!("{other:?}"),
    };
    too_large(one.await.unwrap().unwrap_err());
    peer.write(&json!({"id": ids[1], "result": 2}).to_string()).await;
    assert_eq!(two.await.unwrap(), Ok(json!(2)));

    // It may have been the answer to any request.
    let asked = ask(&connection, "a");
    peer.next().await;
    peer.write(&long).await;
    too_large(asked.await.unwrap().unwrap_err());
    assert_eq!(connection.why_closed(), None);
}

#[tokio::test]
async fn a_connection_ends_with_the_reason() {
    let line = |text: &str| format!("{text}\n");
    let asks: String =
        (0..=MAX_UNANSWERED_REQUESTS).map(|id| line(&json!({"id": id, "method": "x"}).to_string())).collect();
    let cases = [(line("garbage").repeat(MAX_BAD_FRAMES), CloseReason::Garbage), (asks, CloseReason::AsksTooMuch)];
    for (sent, expected) in cases {
        let (connection, mut peer) = connect();
        let asked = ask(&connection, "a");
        peer.next().await;
        tokio::spawn(async move { peer.writer.write_all(sent.as_bytes()).await.ok() });
        assert_eq!(asked.await.unwrap(), Err(RequestError::Lost(expected)));
        let again = connection.request("b", json!({}), soon(), ProgressSink::default()).await;
        assert_eq!(again.unwrap_err(), RequestError::NotSent(expected));
    }
    let (connection, mut peer) = connect();
    let asked = ask(&connection, "a");
    peer.next().await;
    drop(peer);
    assert_eq!(asked.await.unwrap(), Err(RequestError::Lost(CloseReason::Ended)));
}

#[tokio::test]
async fn a_plugin_that_does_not_read_loses_its_connection_and_no_memory_grows() {
    let (connection, _peer) = connect();
    let large = json!({"text": "x".repeat(3 << 20)});
    let mut asked = Vec::new();
    for _ in 0..20 {
        let (connection, large) = (Arc::clone(&connection), large.clone());
        asked.push(tokio::spawn(
            async move { connection.request("a", large, soon(), ProgressSink::default()).await.err() },
        ));
    }
    for one in asked {
        let error = one.await.unwrap().unwrap();
        let closed = matches!(
            error,
            RequestError::Lost(CloseReason::DoesNotRead) | RequestError::NotSent(CloseReason::DoesNotRead)
        );
        assert!(closed, "{error:?}");
    }
}

#[tokio::test]
async fn a_dropped_request_is_cancelled_and_hanging_ends_the_connection() {
    let (connection, mut peer) = connect();
    let asked = ask(&connection, "a");
    let id = peer.next().await["id"].clone();
    asked.abort();
    assert_eq!(peer.next().await, json!({"jsonrpc": "2.0", "method": "cancel", "params": {"requestId": id}}));
    for number in 1..=MAX_TIMEOUTS {
        let deadline = Instant::now() + Duration::from_millis(20);
        let error = connection.request("a", json!({}), deadline, ProgressSink::default()).await.unwrap_err();
        assert_eq!(error, RequestError::Deadline);
        assert_eq!(connection.why_closed().is_some(), number == MAX_TIMEOUTS);
    }
    assert_eq!(connection.why_closed(), Some(CloseReason::Hangs));
}

#[tokio::test]
async fn progress_is_bounded_and_belongs_to_its_request() {
    let (connection, mut peer) = connect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let seen = Arc::clone(&seen);
        ProgressSink::to(move |update| seen.lock().push(update))
    };
    let asked = {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { connection.request("a", json!({}), soon(), sink).await.map(|answer| answer.result) })
    };
    let id = peer.next().await["id"].as_i64().unwrap();
    let progress = |id: i64, text: &str| {
        json!({"method": "progress", "params": {"requestId": id, "progress": 1, "message": text, "other": [1]}})
            .to_string()
    };
    peer.write(&progress(id + 1, "not mine")).await;
    for _ in 0..MAX_UPDATES + 5 {
        peer.write(&progress(id, &"x".repeat(2_000))).await;
    }
    peer.write(&json!({"id": id, "result": 7}).to_string()).await;
    assert_eq!(asked.await.unwrap(), Ok(json!(7)));
    let seen = seen.lock();
    assert_eq!(seen.len(), usize::try_from(MAX_UPDATES).unwrap());
    assert_eq!(seen[0]["progress"], 1);
    assert!(seen[0].get("other").is_none() && seen[0]["message"].as_str().unwrap().chars().count() <= 1_001);
}

#[tokio::test]
async fn a_flood_of_ignored_messages_is_slowed_down_and_does_not_delay_others() {
    let (connection, mut peer) = connect();
    let (other, mut calm) = connect();
    let flood = json!({"method": "nonsense", "params": "x".repeat(10_000)}).to_string() + "\n";
    let flooding = tokio::spawn(async move {
        let mut bytes = 0_usize;
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            peer.writer.write_all(flood.as_bytes()).await.unwrap();
            bytes += flood.len();
        }
        bytes
    });
    let asked = ask(&other, "a");
    let id = calm.next().await["id"].clone();
    let began = std::time::Instant::now();
    calm.write(&json!({"id": id, "result": 1}).to_string()).await;
    assert_eq!(asked.await.unwrap(), Ok(json!(1)));
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    let bytes = flooding.await.unwrap();
    assert!(bytes < 64 << 20, "{bytes} bytes were read in 300 ms");
    assert_eq!(connection.why_closed(), None);
}
