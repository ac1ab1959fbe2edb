//! Tokens of the store that are created, are revoked or expire while a server runs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::served::{LOCAL, Served};

/// How long a revoked token may still work.
const REVOCATION_DELAY: Duration = Duration::from_secs(1);
/// How long the tests wait for the server. It is longer than the server needs, because the machine may be busy.
const SERVER_DEADLINE: Duration = Duration::from_secs(5);

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Opens an endless response and reads its beginning.
async fn open_stream(served: &Served, secret: &str) -> TcpStream {
    let mut stream = served.connect().await;
    let request = format!("GET /stream HTTP/1.1\r\nHost: localhost\r\nx-api-key: {secret}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"open\n\r\n") {
        assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0, "{}", String::from_utf8_lossy(&response));
    }
    stream
}

/// Waits until the server closes the connection. Returns whether it did so in time and sent nothing more.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let end = tokio::time::timeout(SERVER_DEADLINE, stream.read_to_end(&mut rest)).await;
    end.is_ok() && rest.is_empty()
}

#[tokio::test]
async fn a_new_token_works_at_once_and_its_use_is_recorded() {
    let served = Served::start().await;
    assert_eq!(served.status("/execute", &[("x-api-key", &format!("cm_{}", "a".repeat(43)))], b"{}").await, 401);
    let secret = served.create_token("tok_1", "execute", None).await;
    assert_eq!(served.status("/execute", &[("x-api-key", &secret)], b"{}").await, 200);
    let began = Instant::now();
    while served.store.tokens().await.unwrap()[0].last_used_at.is_none() {
        assert!(began.elapsed() < SERVER_DEADLINE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_revoked_tokens_connections_are_closed_and_its_requests_are_refused_after_a_second() {
    let served = Served::start().await;
    let secret = served.create_token("tok_1", "execute", None).await;
    let other = served.create_token("tok_2", "execute", None).await;
    let (mut revoked, mut kept) = (open_stream(&served, &secret).await, open_stream(&served, &other).await);
    // A connection that was used and waits for its next request.
    let mut idle = served.connect().await;
    let request = format!("GET /token HTTP/1.1\r\nHost: localhost\r\nx-api-key: {secret}\r\n\r\n");
    idle.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"ada execute 0 false") {
        assert_ne!(idle.read_buf(&mut response).await.unwrap(), 0);
    }
    assert!(served.store.revoke_token("tok_1", now()).await.unwrap());
    let began = Instant::now();
    assert!(is_closed(&mut revoked).await && is_closed(&mut idle).await);
    let took = began.elapsed();
    assert!(took < SERVER_DEADLINE, "{took:?}");
    tokio::time::sleep(REVOCATION_DELAY.saturating_sub(took)).await;
    assert_eq!(served.status("/execute", &[("x-api-key", &secret)], b"{}").await, 401);
    assert_eq!(served.status("/execute", &[("x-api-key", &other)], b"{}").await, 200);
    assert_eq!(served.status("/execute", &[("x-api-key", LOCAL)], b"{}").await, 200);
    let still_open = tokio::time::timeout(Duration::from_millis(100), kept.read_u8()).await;
    assert!(still_open.is_err(), "another token's stream stays open");
}

#[tokio::test]
async fn a_tokens_streams_end_when_it_expires() {
    let served = Served::start().await;
    // On a busy machine the token may have expired before the stream is open; the next one lives longer.
    for seconds in [2, 8, 32] {
        let secret = served.create_token(&format!("tok_{seconds}"), "execute", Some(now() + seconds * 1000)).await;
        let mut stream = served.connect().await;
        let request = format!("GET /stream HTTP/1.1\r\nHost: localhost\r\nx-api-key: {secret}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        let life = Duration::from_secs(seconds.unsigned_abs()) + SERVER_DEADLINE;
        tokio::time::timeout(life, stream.read_to_end(&mut response)).await.expect("the stream ends").unwrap();
        assert_eq!(served.status("/execute", &[("x-api-key", &secret)], b"{}").await, 401);
        if response.ends_with(b"open\n\r\n") {
            return;
        }
    }
    panic!("no stream was opened");
}

#[tokio::test]
async fn a_shared_connection_is_closed_only_for_the_token_of_its_last_request() {
    let served = Served::start().await;
    let secret = served.create_token("tok_1", "execute", None).await;
    let mut shared = served.connect().await;
    for (secret, name) in [(secret.as_str(), "ada execute"), (LOCAL, "local execute,approve,read,admin")] {
        let request = format!("GET /token HTTP/1.1\r\nHost: localhost\r\nx-api-key: {secret}\r\n\r\n");
        shared.write_all(request.as_bytes()).await.unwrap();
        let (mut response, expected) = (Vec::new(), format!("{name} 0 false"));
        while !response.ends_with(expected.as_bytes()) {
            assert_ne!(shared.read_buf(&mut response).await.unwrap(), 0);
        }
    }
    let mut own = open_stream(&served, &secret).await;
    assert!(served.store.revoke_token("tok_1", now()).await.unwrap());
    assert!(is_closed(&mut own).await);
    let still_open = tokio::time::timeout(Duration::from_millis(100), shared.read_u8()).await;
    assert!(still_open.is_err(), "the last request on it was made with another token");
}
