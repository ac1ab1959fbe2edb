//! A server under load from peers without a token keeps serving clients with a token.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use super::clients::{Era, Response, Served};
use super::place::Place;

/// The connections without a token that one address may have.
const PER_ADDRESS: usize = 384;

fn connect(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Checks five times that a client with a token can list the tools on new connections, each within a second.
fn assert_served(served: &Served, what: &str) {
    for _ in 0..5 {
        let began = Instant::now();
        let list = served.client(Era::July2026, &served.token, json!({})).send("tools/list", json!({})).answer();
        assert!(list["result"]["tools"].is_array(), "{what}: {list}");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(1), "{what}: {took:?}");
    }
}

/// Returns whether the server has closed a connection. Reads and discards what it sent before.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                return false;
            }
            Err(_) => return true,
        }
    }
}

fn count_open(streams: &mut [TcpStream]) -> usize {
    streams.iter_mut().filter_map(|stream| (!is_closed(stream)).then_some(())).count()
}

#[test]
fn a_client_is_served_while_sockets_pipeline_health_checks_and_never_read() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let requests = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", served.address).repeat(200);
    let mut streams: Vec<TcpStream> = (0..520)
        .map(|_| {
            let mut stream = connect(&served);
            // The server may have closed it already.
            drop(stream.write_all(requests.as_bytes()));
            stream
        })
        .collect();
    assert_served(&served, "520 sockets that never read");
    assert!(count_open(&mut streams) <= PER_ADDRESS);
}

#[test]
fn a_client_is_served_while_silent_sockets_and_slow_heads_take_all_slots_they_can() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let head = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\n", served.address);
    let slow_body = format!("{head}Authorization: Bearer none\r\nContent-Length: 1000000\r\n\r\n{{");
    for (what, sent) in [("silent", ""), ("slow head", head.as_str()), ("slow body", &slow_body)] {
        let mut streams: Vec<TcpStream> = (0..512)
            .map(|_| {
                let mut stream = connect(&served);
                drop(stream.write_all(sent.as_bytes()));
                stream
            })
            .collect();
        assert_served(&served, what);
        let open = count_open(&mut streams);
        assert!(open <= PER_ADDRESS, "{what}: {open}");
    }
}

#[test]
fn a_client_is_served_while_others_keep_reconnecting() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = std::collections::VecDeque::new();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    held.push_back(TcpStream::connect(&served.address));
                    if held.len() > 64 {
                        held.pop_front();
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| assert_served(&served, "a flood")));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        attempt.unwrap();
    });
}

#[test]
fn a_connection_without_a_token_is_closed_after_ten_seconds_whatever_it_sends() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let head = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n", served.address);
    let mut silent = connect(&served);
    let mut slow = connect(&served);
    slow.write_all(head.as_bytes()).unwrap();
    let began = Instant::now();
    let (mut silent_closed, mut slow_closed) = (None, None);
    while silent_closed.is_none() || slow_closed.is_none() {
        // Send a header line from time to time.
        drop(slow.write_all(b"X-Slow: 1\r\n"));
        std::thread::sleep(Duration::from_millis(400));
        for (stream, closed) in [(&mut silent, &mut silent_closed), (&mut slow, &mut slow_closed)] {
            if closed.is_none() && is_closed(stream) {
                *closed = Some(began.elapsed());
            }
        }
        assert!(began.elapsed() < Duration::from_secs(16), "{silent_closed:?} {slow_closed:?}");
    }
    assert!(silent_closed.unwrap() > Duration::from_secs(8), "{silent_closed:?}");
}

#[test]
fn a_peer_without_a_token_gets_one_response_per_connection() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let host = &served.address;
    for (request, status) in [
        (format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n"), 200),
        // Any status: the server may still be starting, and an unknown path may be refused in any way.
        (format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n"), 0),
        (format!("GET /nowhere HTTP/1.1\r\nHost: {host}\r\n\r\n"), 0),
        ("GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 403),
        (format!("POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4000000\r\n\r\n"), 401),
        (format!("DELETE /mcp HTTP/1.1\r\nHost: {host}\r\nMcp-Session-Id: a\r\n\r\n"), 401),
    ] {
        let mut stream = connect(&served);
        stream.write_all(request.repeat(3).as_bytes()).unwrap();
        let mut text = String::new();
        drop(stream.read_to_string(&mut text));
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{request}: {text}");
        assert!(text.to_ascii_lowercase().contains("connection: close"), "{request}: {text}");
        let found: u16 = text.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(status == 0 || found == status, "{request}: {text}");
    }
}

#[test]
fn a_large_request_without_a_token_is_answered_before_it_has_arrived() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    for authorization in ["none", "wrong"] {
        let began = Instant::now();
        let refused = served.announce(&format!("Bearer {authorization}"), 3 << 20);
        assert_eq!(refused.status, 401);
        assert!(began.elapsed() < Duration::from_secs(2));
    }
    let body = "x".repeat(3 << 20);
    assert_eq!(served.request("POST", "/mcp", &[], &body).status, 401);
}

#[test]
fn a_request_that_names_another_host_anywhere_is_refused_before_its_token_is_checked() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let (host, token) = (served.address.as_str(), served.token.as_str());
    for (target, named) in [
        ("/mcp".to_owned(), format!("evil@{host}")),
        ("/mcp".to_owned(), format!("evil:pass@{host}")),
        ("/healthz".to_owned(), "evil@127.0.0.1".to_owned()),
        ("/mcp".to_owned(), format!("{host}:1")),
        ("http://evil.example/mcp".to_owned(), host.to_owned()),
        ("http://evil.example/healthz".to_owned(), host.to_owned()),
        (format!("http://evil@{host}/mcp"), host.to_owned()),
        (format!("ftp://{host}/mcp"), host.to_owned()),
        (format!("http://{host}/mcp"), "evil.example".to_owned()),
    ] {
        for authorization in ["", &format!("Authorization: Bearer {token}\r\n")] {
            let mut stream = connect(&served);
            let request = format!("GET {target} HTTP/1.1\r\nHost: {named}\r\n{authorization}\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let status = Response::read(stream).status;
            assert!(matches!(status, 400 | 403), "{target} {named}: {status}");
        }
    }
    let mut stream = connect(&served);
    let request = format!("GET http://{host}/healthz HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(Response::read(stream).status, 200);
}

/// One client with a token sends many requests and reads no response; the stream of another is only idle.
#[test]
fn a_peer_that_never_reads_is_disconnected_and_an_idle_stream_is_not() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let client = served.client(Era::November2025, &served.token, json!({}));
    let bearer = format!("Bearer {}", served.token);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Accept", "text/event-stream"),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Mcp-Session-Id", client.session()),
    ];
    let mut idle = served.request("GET", "/mcp", &headers, "");
    assert_eq!(idle.status, 200);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": Era::July2026.meta(&json!({}))}})
    .to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: {bearer}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n\
         Content-Length: {}\r\n\r\n{body}",
        served.address,
        body.len()
    );
    let mut deaf = connect(&served);
    deaf.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let began = Instant::now();
    let requests = request.repeat(64);
    let cut = loop {
        match deaf.write_all(requests.as_bytes()) {
            Ok(()) => assert!(began.elapsed() < Duration::from_secs(40), "the server keeps reading"),
            Err(error) => break error,
        }
    };
    let reset = matches!(cut.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe);
    assert!(reset, "{cut} after {:?}", began.elapsed());
    drop(deaf.shutdown(Shutdown::Both));
    std::thread::sleep(Duration::from_secs(6));
    assert!(idle.is_open());
    assert_served(&served, "after the disconnect");
}

/// Connections are limited by peer address, so peers at one address cannot close the connections of another.
#[test]
fn silent_sockets_from_many_addresses_do_not_block_a_client() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let port: u16 = served.address.rsplit(':').next().unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut streams = Vec::new();
    for number in 0..600_u32 {
        // Every address 127.x.y.z is this machine.
        let from = format!("127.0.{}.{}:0", 1 + number / 200, 1 + number % 200);
        streams.push(from_address(&runtime, &from, port));
    }
    assert_served(&served, "600 addresses");
    assert!(count_open(&mut streams) <= 512);
}

fn from_address(runtime: &tokio::runtime::Runtime, from: &str, port: u16) -> TcpStream {
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(from.parse().unwrap()).unwrap();
        let stream = socket.connect(std::net::SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap();
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    })
}
