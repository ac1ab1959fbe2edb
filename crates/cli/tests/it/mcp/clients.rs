//! Test clients written with plain JSON and no protocol library.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::place::Place;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    June2025,
    November2025,
    July2026,
}

impl Era {
    pub(crate) const ALL: [Self; 3] = [Self::June2025, Self::November2025, Self::July2026];

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::June2025 => "2025-06-18",
            Self::November2025 => "2025-11-25",
            Self::July2026 => "2026-07-28",
        }
    }

    pub(crate) fn is_modern(self) -> bool {
        self == Self::July2026
    }

    /// The `_meta` fields that every request of the newest revision carries; empty for older revisions.
    pub(crate) fn meta(self, capabilities: &Value) -> Value {
        if !self.is_modern() {
            return json!({});
        }
        json!({
            "io.modelcontextprotocol/protocolVersion": self.version(),
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        })
    }
}

/// The name that a client gives itself, and the folder that it works in.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    name: String,
    folder: Option<String>,
}

impl Identity {
    pub(crate) fn new(name: &str, folder: &str) -> Self {
        Self { name: name.to_owned(), folder: Some(folder.to_owned()) }
    }
}

/// Puts the client's name into the `_meta` of a request of the newest revision.
fn with_name(mut meta: Value, name: &str) -> Value {
    if let Some(client) = meta.get_mut("io.modelcontextprotocol/clientInfo") {
        client["name"] = json!(name);
    }
    meta
}

/// A client on standard streams.
pub(crate) struct Streams {
    era: Era,
    name: String,
    capabilities: Value,
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Messages received while `next` was waiting for a different one.
    unmatched: VecDeque<Value>,
    next_id: i64,
}

impl Drop for Streams {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Streams {
    pub(crate) fn start(place: &Place, era: Era, capabilities: Value, more: &[&str]) -> Self {
        Self::start_as(place, era, capabilities, more, Identity { name: "test".to_owned(), folder: None })
    }

    pub(crate) fn identified(place: &Place, era: Era, identity: &Identity) -> Self {
        Self::start_as(place, era, json!({}), &[], identity.clone())
    }

    fn start_as(place: &Place, era: Era, capabilities: Value, more: &[&str], identity: Identity) -> Self {
        let mut server = place.server(more);
        if let Some(folder) = &identity.folder {
            server.current_dir(folder);
        }
        let mut child = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a message: {line}"));
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let name = identity.name;
        let mut client = Self { era, name, capabilities, child, stdin, lines, unmatched: VecDeque::new(), next_id: 0 };
        if !era.is_modern() {
            let begun = client.ask(
                "initialize",
                json!({
                    "protocolVersion": era.version(),
                    "capabilities": client.capabilities,
                    "clientInfo": {"name": client.name, "version": "1"},
                }),
            );
            assert_eq!(begun["result"]["protocolVersion"], era.version(), "{begun}");
            client.notify("notifications/initialized", json!({}));
        }
        client
    }

    pub(crate) fn plain(place: &Place, era: Era) -> Self {
        Self::start(place, era, json!({}), &[])
    }

    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> i64 {
        self.next_id += 1;
        let mut meta = with_name(self.era.meta(&self.capabilities), &self.name);
        for (key, value) in params["_meta"].as_object().cloned().unwrap_or_default() {
            meta[key] = value;
        }
        params["_meta"] = meta;
        self.write(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}));
        self.next_id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub(crate) fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Returns the next message that matches; others are kept for later calls.
    pub(crate) fn next(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(position) = self.unmatched.iter().position(&wanted) {
            return self.unmatched.remove(position).unwrap();
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message =
                self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no {what}; received: {:?}", self.unmatched));
            if wanted(&message) {
                return message;
            }
            self.unmatched.push_back(message);
        }
    }

    pub(crate) fn answer(&mut self, id: i64) -> Value {
        self.next("answer", |message| message["id"] == id && message["method"].is_null())
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        structured(&answer)
    }

    pub(crate) fn exec(&mut self, code: &str) -> Value {
        self.call("exec", json!({"code": code}))
    }

    /// Returns the notifications of one method that arrived so far.
    pub(crate) fn notifications(&mut self, method: &str) -> Vec<Value> {
        let (these, others) = self.unmatched.drain(..).partition(|message: &Value| message["method"] == method);
        self.unmatched = others;
        Vec::from(these)
    }
}

/// Returns a result's structured content and checks that its text equals it.
pub(crate) fn structured(answer: &Value) -> Value {
    let result = &answer["result"];
    let content = result["structuredContent"].clone();
    assert_eq!(result["content"][0]["text"].as_str(), Some(content.to_string().as_str()), "{answer}");
    assert!(content.to_string().starts_with("{\"status\":"), "{content}");
    content
}

/// A `cellmate mcp` process that serves HTTP.
pub(crate) struct Served {
    child: Child,
    pub address: String,
    pub token: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Served {
    pub(crate) fn start(place: &Place, more: &[&str]) -> Self {
        let mut command = place.server(&["--http", "127.0.0.1:0"]);
        let mut child = command.args(more).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("serving MCP at") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the server ended");
        }
        let address = line.split("http://").nth(1).unwrap().split("/mcp").next().unwrap().to_owned();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
        let token = std::fs::read_to_string(place.path("state/token")).unwrap_or_default().trim().to_owned();
        Self { child, address, token }
    }

    /// Returns a server process that listens already.
    pub(crate) fn of(child: Child, address: String, token: String) -> Self {
        Self { child, address, token }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory of the server.
    pub(crate) fn resident_mib(&self) -> u64 {
        testkit::processes::memory(self.pid(), "VmRSS").unwrap() >> 20
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Sends one request with exactly these headers and this body.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        // A server that refuses a request may answer and close before it has read the whole body.
        let sent = stream.write_all(format!("{head}\r\n{body}").as_bytes());
        assert!(sent.is_ok() || body.len() > 64 << 10, "{sent:?}");
        Response::read(stream)
    }

    /// Sends the head of a request that announces a body of this length, and no body.
    pub(crate) fn announce(&self, authorization: &str, bytes: usize) -> Response {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = &self.address;
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: {authorization}\r\nContent-Length: {bytes}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        Response::read(stream)
    }

    pub(crate) fn post(&self, era: Era, token: &str, session: Option<&str>, message: &Value) -> Response {
        let authorization = format!("Bearer {token}");
        let mut headers = vec![
            ("Authorization", authorization.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", era.version()),
        ];
        let method = message["method"].as_str().unwrap_or_default();
        // A resource is named by its address.
        let name = ["name", "uri"].iter().find_map(|field| message["params"][field].as_str());
        if era.is_modern() {
            headers.push(("Mcp-Method", method));
            headers.extend(name.map(|name| ("Mcp-Name", name)));
        }
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        self.request("POST", "/mcp", &headers, &message.to_string())
    }

    pub(crate) fn client(&self, era: Era, token: &str, capabilities: Value) -> HttpClient<'_> {
        self.client_as(era, token, capabilities, "test")
    }

    pub(crate) fn client_named(&self, era: Era, token: &str, name: &str) -> HttpClient<'_> {
        self.client_as(era, token, json!({}), name)
    }

    fn client_as(&self, era: Era, token: &str, capabilities: Value, name: &str) -> HttpClient<'_> {
        let (token, name) = (token.to_owned(), name.to_owned());
        let mut client = HttpClient { served: self, era, name, token, capabilities, session: None, next_id: 0 };
        if !era.is_modern() {
            let params = json!({
                "protocolVersion": era.version(),
                "capabilities": client.capabilities,
                "clientInfo": {"name": client.name, "version": "1"},
            });
            let mut begun = client.send("initialize", params);
            client.session = Some(begun.header("mcp-session-id").unwrap());
            assert_eq!(begun.answer()["result"]["protocolVersion"], era.version());
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            assert_eq!(client.post(&initialized).status, 202);
        }
        client
    }
}

pub(crate) struct HttpClient<'a> {
    served: &'a Served,
    era: Era,
    name: String,
    token: String,
    capabilities: Value,
    session: Option<String>,
    pub next_id: i64,
}

impl HttpClient<'_> {
    /// The session id, which clients of the newest revision do not have.
    pub(crate) fn session(&self) -> &str {
        self.session.as_deref().unwrap()
    }

    pub(crate) fn post(&self, message: &Value) -> Response {
        self.served.post(self.era, &self.token, self.session.as_deref(), message)
    }

    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> Response {
        self.next_id += 1;
        let mut meta = with_name(self.era.meta(&self.capabilities), &self.name);
        for (key, value) in params["_meta"].as_object().cloned().unwrap_or_default() {
            meta[key] = value;
        }
        params["_meta"] = meta;
        self.post(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}))
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        structured(&self.send("tools/call", json!({"name": tool, "arguments": arguments})).answer())
    }

    pub(crate) fn exec(&mut self, code: &str) -> Value {
        self.call("exec", json!({"code": code}))
    }
}

/// A response whose body is read as it arrives.
pub(crate) struct Response {
    pub status: u16,
    head: String,
    socket: TcpStream,
    body: Box<dyn BufRead>,
}

impl Response {
    pub(crate) fn read(stream: TcpStream) -> Self {
        let socket = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                break;
            }
            head += &line;
        }
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body: Box<dyn BufRead> =
            if chunked { Box::new(BufReader::with_capacity(1, Chunks { reader, left: 0 })) } else { Box::new(reader) };
        Self { status, head, socket, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }

    /// Returns whether the server may still send data. Reads and discards what it has sent so far.
    pub(crate) fn is_open(&mut self) -> bool {
        self.socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let ended = std::io::copy(&mut self.body, &mut std::io::sink()).is_ok();
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        !ended
    }

    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        drop(self.body.read_to_string(&mut text));
        text
    }

    /// Returns the next message of a stream, or `None` at its end.
    pub(crate) fn message(&mut self) -> Option<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.body.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            let data = line.strip_prefix("data:").map_or_else(|| line.trim(), str::trim);
            if let Ok(message @ Value::Object(_)) = serde_json::from_str(data) {
                return Some(message);
            }
        }
    }

    pub(crate) fn answer(&mut self) -> Value {
        loop {
            let message = self.message().unwrap_or_else(|| panic!("no answer: {}", self.head));
            if message["method"].is_null() {
                return message;
            }
        }
    }
}

struct Chunks<R> {
    reader: R,
    left: usize,
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut size = String::new();
            while size.trim().is_empty() {
                if self.reader.read_line(&mut size)? == 0 {
                    return Ok(0);
                }
            }
            self.left = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let most = self.left.min(buffer.len());
        let read = self.reader.read(&mut buffer[..most])?;
        self.left -= read;
        Ok(read)
    }
}
