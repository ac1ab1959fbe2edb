//! The output of the fake server: its standard output, or the response to one HTTP request.

use std::io::{Write, stdout};
use std::net::TcpStream;
use std::process::exit;

use serde_json::Value;

pub(crate) enum Out {
    Stdout,
    Http(Answer),
}

pub(crate) struct Answer {
    pub stream: TcpStream,
    /// Respond with one JSON message instead of an event stream.
    pub json: bool,
    /// Further header lines, each with its line end.
    pub head: String,
    pub begun: bool,
}

impl Out {
    pub(crate) fn say(&mut self, message: &Value) {
        let unasked = message["method"].is_string();
        if !matches!(self, Self::Http(answer) if answer.json && unasked) {
            self.text(&message.to_string());
        }
    }

    /// Sends any text in place of a message.
    pub(crate) fn text(&mut self, message: &str) {
        match self {
            Self::Stdout => self.print(message.as_bytes(), b"\n"),
            Self::Http(answer) if answer.json => self.print(message.as_bytes(), b""),
            Self::Http(_) => self.print(format!("data: {message}\n").as_bytes(), b"\n"),
        };
    }

    /// Writes bytes. Returns false if an HTTP client has disconnected; on pipes the server then exits.
    pub(crate) fn print(&mut self, bytes: &[u8], end: &[u8]) -> bool {
        match self {
            Self::Stdout => {
                let mut out = stdout().lock();
                if out.write_all(bytes).and_then(|()| out.write_all(end)).and_then(|()| out.flush()).is_err() {
                    exit(0);
                }
                true
            }
            Self::Http(answer) => {
                if !answer.begun {
                    answer.begun = true;
                    let kind = if answer.json { "application/json" } else { "text/event-stream" };
                    let head =
                        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{}connection: close\r\n\r\n", answer.head);
                    if answer.stream.write_all(head.as_bytes()).is_err() {
                        return false;
                    }
                }
                answer.stream.write_all(bytes).and_then(|()| answer.stream.write_all(end)).is_ok()
            }
        }
    }

    /// Writes a whole HTTP response, including its headers.
    pub(crate) fn raw(&mut self, text: &str) {
        if let Self::Http(answer) = self {
            answer.begun = true;
            drop(answer.stream.write_all(text.as_bytes()));
        }
    }
}
