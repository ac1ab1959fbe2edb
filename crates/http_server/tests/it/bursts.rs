//! Many connections at once from one address, which may be the address of a proxy.

use std::time::{Duration, Instant};

use http_server::limits::{MAX_CONNECTIONS, MAX_UNAUTHENTICATED_PER_NETWORK, UNAUTHENTICATED_GRACE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::served::{AGENT, LOCAL, READER, Served, head};

/// What a loaded machine may add to a delay.
const BUSY_MACHINE: Duration = Duration::from_secs(10);

/// Sends a request with a token, and returns the response.
async fn ask(mut connection: TcpStream, secret: &str) -> String {
    let request = head("GET", "/token", &[("x-api-key", secret)], 0);
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    connection.read_to_end(&mut response).await.unwrap();
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn three_hundred_clients_that_connect_at_once_are_all_served() {
    let served = Served::start().await;
    let mut connections = Vec::new();
    for _ in 0..300 {
        connections.push(served.connect().await);
    }
    let mut clients = JoinSet::new();
    for (connection, secret) in connections.into_iter().zip([LOCAL, AGENT, READER].into_iter().cycle()) {
        clients.spawn(ask(connection, secret));
    }
    for response in clients.join_all().await {
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
}

/// Waits until the server has closed `count` of these connections.
async fn wait_for_closed(connections: &[TcpStream], count: usize) {
    let began = Instant::now();
    let is_open = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    let is_closed = |one: &&TcpStream| !one.try_read(&mut [0]).is_err_and(|error| is_open(&error));
    while connections.iter().filter(is_closed).count() < count {
        assert!(began.elapsed() < BUSY_MACHINE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn strangers_that_hold_all_connections_delay_a_client_by_at_most_the_grace_period() {
    let served = Served::start().await;
    let mut strangers = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        strangers.push(served.connect().await);
    }
    for _ in 0..3 {
        let began = Instant::now();
        assert!(ask(served.connect().await, LOCAL).await.starts_with("HTTP/1.1 200"));
        let took = began.elapsed();
        assert!(took < UNAUTHENTICATED_GRACE + BUSY_MACHINE, "{took:?}");
    }
    wait_for_closed(&strangers, MAX_CONNECTIONS - MAX_UNAUTHENTICATED_PER_NETWORK).await;
}

#[tokio::test]
async fn a_server_full_of_new_strangers_keeps_them_for_the_grace_period() {
    let served = Served::start().await;
    let began = Instant::now();
    let mut strangers = Vec::new();
    for _ in 0..=MAX_UNAUTHENTICATED_PER_NETWORK {
        strangers.push(served.connect().await);
    }
    wait_for_closed(&strangers, 1).await;
    let took = began.elapsed();
    assert!(took >= UNAUTHENTICATED_GRACE, "{took:?}");
}
