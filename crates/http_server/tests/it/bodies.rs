//! Limits on bodies: per route, after the token, and before anything is parsed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use http_server::limits::{
    FREE_BODY_BYTES, LARGE_BODY_BYTES, LARGE_BODY_VALUES, LARGE_PRINCIPAL_BODY_BYTES, MAX_BODY_BYTES, MAX_BODY_DEPTH,
    MAX_BODY_VALUES,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::served::{AGENT, LOCAL, READER, Served, head};

const KEY: (&str, &str) = ("x-api-key", AGENT);

/// Sends a head that announces a body, but no byte of the body.
async fn announced(served: &Served, path: &str, headers: &[(&str, &str)], length: usize) -> String {
    let mut connection = served.connect().await;
    connection.write_all(head("POST", path, headers, length).as_bytes()).await.unwrap();
    let mut response = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(8), connection.read_exact(&mut response));
    read.await.expect("the response does not wait for the body").unwrap();
    String::from_utf8(response.to_vec()).unwrap()
}

#[tokio::test]
async fn a_request_is_refused_before_any_of_its_body_arrives() {
    let served = Served::start().await;
    assert_eq!(announced(&served, "/v1/large", &[], 1000).await, "HTTP/1.1 401");
    assert_eq!(announced(&served, "/v1/large", &[("x-api-key", READER)], 1000).await, "HTTP/1.1 403");
    assert_eq!(announced(&served, "/v1/large", &[KEY], LARGE_BODY_BYTES + 1).await, "HTTP/1.1 413");
    assert_eq!(announced(&served, "/execute", &[KEY], MAX_BODY_BYTES + 1).await, "HTTP/1.1 413");
    assert_eq!(announced(&served, "/execute", &[KEY, ("Content-Encoding", "zstd")], 1000).await, "HTTP/1.1 415");
    assert_eq!(served.handled.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn each_route_has_its_own_size_limit() {
    let served = Served::start().await;
    let text = |length: usize| format!("\"{}\"", "a".repeat(length - 2)).into_bytes();
    assert_eq!(served.status("/execute", &[KEY], &text(MAX_BODY_BYTES)).await, 200);
    assert_eq!(served.status("/execute", &[KEY], &text(MAX_BODY_BYTES + 1)).await, 413);
    assert_eq!(served.status("/v1/large", &[KEY], &text(MAX_BODY_BYTES + 1)).await, 200);
    let (status, response) = served.request("/v1/large", &[KEY], &text(LARGE_BODY_BYTES)).await;
    assert_eq!(status, 200);
    assert!(response.contains(&LARGE_BODY_BYTES.to_string()), "{response}");
}

#[tokio::test]
async fn a_body_without_a_length_is_cut_at_the_limit() {
    let served = Served::start().await;
    let mut connection = served.connect().await;
    let head = format!(
        "POST /execute HTTP/1.1\r\nHost: localhost\r\nx-api-key: {AGENT}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "a".repeat(1 << 20));
    for _ in 0..5 {
        // The server may have responded and closed already.
        drop(connection.write_all(chunk.as_bytes()).await);
    }
    let mut response = [0; 12];
    connection.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 413");
}

#[tokio::test]
async fn deep_or_crowded_json_is_refused_before_it_is_parsed() {
    let served = Served::start().await;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    let many = |values: usize| format!("[{}1]", "1,".repeat(values - 2)).into_bytes();
    for path in ["/execute", "/v1/large"] {
        assert_eq!(served.status(path, &[KEY], &nested(MAX_BODY_DEPTH)).await, 200);
        assert_eq!(served.status(path, &[KEY], &nested(MAX_BODY_DEPTH + 1)).await, 400);
        assert_eq!(served.status(path, &[KEY], &"[".repeat(1 << 20).into_bytes()).await, 400);
    }
    assert_eq!(served.status("/execute", &[KEY], &many(MAX_BODY_VALUES)).await, 200);
    assert_eq!(served.status("/execute", &[KEY], &many(MAX_BODY_VALUES + 1)).await, 413);
    assert_eq!(served.status("/v1/large", &[KEY], &many(MAX_BODY_VALUES + 1)).await, 200);
    assert_eq!(served.status("/v1/large", &[KEY], &many(LARGE_BODY_VALUES + 1)).await, 413);
}

#[tokio::test]
async fn only_uncompressed_bodies_are_read() {
    let served = Served::start().await;
    for (encoding, expected) in
        [("identity", 200), ("Identity", 200), ("gzip", 415), ("zstd", 415), ("identity, gzip", 415), ("", 415)]
    {
        let headers = [KEY, ("Content-Encoding", encoding)];
        assert_eq!(served.status("/execute", &headers, b"{}").await, expected, "{encoding}");
    }
    let twice = [KEY, ("Content-Encoding", "identity"), ("Content-Encoding", "br")];
    assert_eq!(served.status("/execute", &twice, b"{}").await, 415);
}

#[tokio::test]
async fn bodies_of_one_principal_that_take_too_much_memory_together_are_refused() {
    let served = Served::start().await;
    // Each reserves its whole size once more than the free part has arrived.
    let count = LARGE_PRINCIPAL_BODY_BYTES / LARGE_BODY_BYTES + 1;
    let mut waiting = futures_util::stream::FuturesUnordered::new();
    for _ in 0..count {
        let mut connection = served.connect().await;
        connection.write_all(head("POST", "/v1/large", &[KEY], LARGE_BODY_BYTES).as_bytes()).await.unwrap();
        connection.write_all(&vec![b' '; FREE_BODY_BYTES + 1]).await.unwrap();
        waiting.push(async move {
            let mut response = [0; 12];
            connection.read_exact(&mut response).await.unwrap();
            (response, connection)
        });
    }
    let (response, refused) = waiting.next().await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 503");
    // The others still have their room, and another principal has its own.
    let other = served.status("/v1/large", &[("x-api-key", LOCAL)], &vec![b' '; LARGE_BODY_BYTES]).await;
    assert_eq!(other, 200);
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting.next()).await.is_err());
    drop(refused);
}

#[tokio::test]
async fn the_values_of_a_large_body_count_beside_its_bytes() {
    let served = Served::start().await;
    let mut held = Vec::new();
    // They leave room for the bytes of one more, but not for its values.
    for length in [LARGE_BODY_BYTES, LARGE_BODY_BYTES, LARGE_BODY_BYTES, LARGE_BODY_BYTES / 2] {
        let mut connection = served.connect().await;
        connection.write_all(head("POST", "/v1/large", &[KEY], length).as_bytes()).await.unwrap();
        connection.write_all(&vec![b' '; FREE_BODY_BYTES + 1]).await.unwrap();
        held.push(connection);
    }
    let crowded = format!("[{}1]", "1,".repeat(LARGE_BODY_VALUES - 2)).into_bytes();
    let blank = vec![b' '; crowded.len()];
    assert_eq!(served.status("/v1/large", &[KEY], &blank).await, 200);
    assert_eq!(served.status("/v1/large", &[KEY], &crowded).await, 503);
    drop(held);
    assert_eq!(served.status("/v1/large", &[KEY], &crowded).await, 200);
}
