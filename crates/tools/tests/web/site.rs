//! A web server that answers as a test tells it, and a resolver with scripted answers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::config;
use executor::Outcome;
use serde_json::{Value, json};
use tools::core::{Lookup, LookupFuture, WebFetch};

/// Writes the answer to a request for a path.
type Answer = Arc<dyn Fn(&str, &mut TcpStream) + Send + Sync>;

/// A server on a port of this machine. It counts its connections and keeps the requests.
pub(crate) struct Site {
    pub(crate) port: u16,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    pub(crate) fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answer, seen): (Answer, _) = (Arc::new(answer), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &answer, &seen));
            }
        });
        Self { port, requests }
    }

    /// Starts a server that answers every request with these bytes.
    pub(crate) fn fixed(answer: Vec<u8>) -> Self {
        Self::start(move |_, stream| drop(stream.write_all(&answer)))
    }

    pub(crate) fn connections(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn serve(mut stream: TcpStream, answer: &Answer, seen: &Mutex<Vec<String>>) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
    let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
    seen.lock().unwrap().push(request);
    answer(&path, &mut stream);
}

/// Returns a response with these headers and body.
pub(crate) fn response(headers: &str, body: &[u8]) -> Vec<u8> {
    let start = format!("HTTP/1.1 200 OK\r\n{headers}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [start.as_bytes(), body].concat()
}

pub(crate) fn redirect(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Answers for names, in order; the last one is repeated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>, Arc<Mutex<Vec<String>>>);

impl Names {
    pub(crate) fn of(names: &[(&str, &[&[&str]])]) -> Self {
        let parse = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
        let names = names.iter().map(|(name, answers)| ((*name).to_owned(), answers.iter().map(parse).collect()));
        Self(Arc::new(Mutex::new(names.collect())), Arc::default())
    }

    /// Returns the names that were looked up.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

impl Lookup for Names {
    fn lookup(&self, name: &str) -> LookupFuture {
        self.1.lock().unwrap().push(name.to_owned());
        let mut names = self.0.lock().unwrap();
        let answer = match names.get_mut(name.trim_end_matches('.')) {
            Some(answers) if answers.len() > 1 => Some(answers.remove(0)),
            Some(answers) => answers.first().cloned(),
            None => None,
        };
        let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such name");
        Box::pin(async move { answer.ok_or_else(missing) })
    }
}

/// A `web_fetch` that may fetch from these hosts of this machine.
pub(crate) fn tool(private: &[&str], names: &Names) -> WebFetch {
    let allow_private = private.iter().map(|host| (*host).to_owned()).collect();
    tool_with(&config::WebFetch { allow_private, ..config::WebFetch::default() }, names)
}

/// A `web_fetch` with these settings.
pub(crate) fn tool_with(settings: &config::WebFetch, names: &Names) -> WebFetch {
    WebFetch::new(settings, names.clone()).unwrap()
}

/// Fetches from a server of this machine that the user allows.
pub(crate) async fn fetch(site: &Site, path: &str) -> Outcome {
    let url = format!("http://127.0.0.1:{}{path}", site.port);
    tool(&["127.0.0.1"], &Names::default()).fetch(&json!({ "url": url })).await
}

pub(crate) fn details(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Returned(returned) => returned.details.unwrap(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn failure(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}
