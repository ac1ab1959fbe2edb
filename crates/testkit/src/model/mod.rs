//! A scripted model: a loopback HTTP server that speaks OpenAI Chat Completions, OpenAI Responses and Anthropic Messages,
//! streamed and not, and answers with the responses of a script.
//!
//! The formats are written by hand from the vendors' documentation, not with the project's own writers, so that a test
//! against this server does not compare the project with itself.

mod chat;
mod connection;
mod messages;
mod responses;
mod script;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use script::{Condition, RUN_ID, Reply, Script, ScriptedCall};

/// The format that a request was sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
}

impl Api {
    fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        match path {
            path if path.ends_with("/chat/completions") => Some(Self::Chat),
            path if path.ends_with("/responses") => Some(Self::Responses),
            path if path.ends_with("/messages") => Some(Self::Messages),
            _ => None,
        }
    }

    /// Writes the body of a response.
    fn write(self, reply: &Reply, model: &str, number: usize, form: ResponseForm) -> String {
        match (self, form) {
            (Self::Chat, ResponseForm::Streamed) => chat::stream(reply, model, number),
            (Self::Chat, ResponseForm::Whole) => chat::whole(reply, model, number),
            (Self::Responses, ResponseForm::Streamed) => responses::stream(reply, model, number),
            (Self::Responses, ResponseForm::Whole) => responses::whole(reply, model, number),
            (Self::Messages, ResponseForm::Streamed) => messages::stream(reply, model, number),
            (Self::Messages, ResponseForm::Whole) => messages::whole(reply, model, number),
        }
    }
}

/// How a response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseForm {
    /// As one JSON document.
    Whole,
    /// As server-sent events.
    Streamed,
}

/// A request that the model received.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The exact bytes.
    pub body: Vec<u8>,
}

impl RecordedRequest {
    /// Returns the body as JSON; `null` if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    state: Arc<State>,
}

/// What the connections share.
#[derive(Debug)]
struct State {
    script: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<RecordedRequest>>,
    arrived: Condvar,
    is_stopped: AtomicBool,
}

impl ScriptedModel {
    /// Starts a server on a free port.
    pub fn start(script: Script) -> io::Result<Self> {
        Self::start_on(0, script)
    }

    pub fn start_on(port: u16, script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            script: Mutex::new(script.0.into()),
            requests: Mutex::default(),
            arrived: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&shared);
                // A client that disconnects ends only its own connection.
                std::thread::spawn(move || drop(connection::serve(&state, stream)));
            }
        });
        Ok(Self { address, state })
    }

    /// Returns the base URL of the API, with `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a response to the end of the script.
    pub fn push(&self, reply: Reply) {
        lock(&self.state.script).push_back(reply);
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.state.requests).clone()
    }

    /// Waits until this many requests have arrived, and returns all; `None` if they do not arrive in time.
    pub fn wait_for_requests(&self, count: usize, limit: Duration) -> Option<Vec<RecordedRequest>> {
        let deadline = Instant::now() + limit;
        let mut requests = lock(&self.state.requests);
        while requests.len() < count {
            let rest = deadline.checked_duration_since(Instant::now())?;
            let waited = self.state.arrived.wait_timeout(requests, rest).unwrap_or_else(PoisonError::into_inner);
            requests = waited.0;
        }
        Some(requests.clone())
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections.
        drop(TcpStream::connect(self.address));
    }
}

impl State {
    /// Records a request and returns its number, from 1.
    fn record(&self, request: RecordedRequest) -> usize {
        let mut requests = lock(&self.requests);
        requests.push(request);
        self.arrived.notify_all();
        requests.len()
    }

    /// Takes the response to a request out of the script. Responses with a condition that fits come first.
    fn choose(&self, body: &Value) -> Option<Reply> {
        let mut script = lock(&self.script);
        let fits = |reply: &Reply| reply.when.as_ref().is_some_and(|when| when.fits(body));
        let is_next = |reply: &Reply| reply.when.is_none();
        let at = script.iter().position(fits).or_else(|| script.iter().position(is_next))?;
        let reply = script.get_mut(at)?;
        let taken = reply.clone();
        match (&mut reply.times, &reply.when) {
            (Some(times), _) if *times > 1 => *times -= 1,
            (None, Some(_)) => {}
            (Some(_) | None, _) => drop(script.remove(at)),
        }
        Some(taken)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets a member of a JSON object.
fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// Returns an event of a stream.
fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Splits a text into the pieces in which a model streams it: words, each with the blank after it.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// Splits the arguments of a call into the pieces in which a model streams them.
fn argument_pieces(arguments: &str) -> [&str; 2] {
    let middle = (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at)).unwrap_or(0);
    let (start, end) = arguments.split_at(middle);
    [start, end]
}

#[cfg(test)]
mod tests;
