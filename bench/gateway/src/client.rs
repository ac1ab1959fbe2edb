//! A client of the gateway: HTTP/1.1 on one connection that is kept open.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Result;

/// A response that takes longer is lost.
const LIMIT: Duration = Duration::from_secs(120);

/// The gateway refused a request or connection because it has too many.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl std::error::Error for Refused {}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "refused: {}", self.0)
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    token: String,
}

impl Client {
    pub(crate) fn connect(address: &str, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream: BufReader::new(stream), token: token.to_owned() })
    }

    /// Sends a conversation over Chat Completions, and returns the assistant's message.
    pub(crate) fn send(&mut self, messages: &Value) -> Result<Value> {
        let schema = json!({"type": "object", "properties": {"q": {"type": "number"}}, "required": ["q"]});
        let tools = json!([{"type": "function", "function": {"name": "lookup", "parameters": schema}}]);
        let body = json!({"model": "openclaw", "messages": messages, "tools": tools}).to_string();
        self.write("POST", "/v1/chat/completions", &body)?;
        let (status, body) = self.read()?;
        let text = String::from_utf8_lossy(&body);
        if status == 503 {
            return Err(Refused(text.into_owned()).into());
        }
        if status != 200 {
            return Err(format!("status {status}: {text}").into());
        }
        let response: Value = serde_json::from_slice(&body)?;
        response.pointer("/choices/0/message").cloned().ok_or_else(|| format!("no message in {text}").into())
    }

    /// Returns the status of a GET.
    pub(crate) fn get(&mut self, path: &str) -> Result<u16> {
        self.write("GET", path, "")?;
        Ok(self.read()?.0)
    }

    fn write(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gateway closed the connection").into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn read(&mut self) -> Result<(u16, Vec<u8>)> {
        let status = self.line()?.split(' ').nth(1).unwrap_or_default().parse()?;
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse::<u64>()?);
            }
        }
        let mut body = Vec::new();
        if let Some(length) = length {
            self.take(length, &mut body)?;
            return Ok((status, body));
        }
        loop {
            let length = u64::from_str_radix(&self.line()?, 16)?;
            self.take(length, &mut body)?;
            self.line()?;
            if length == 0 {
                return Ok((status, body));
            }
        }
    }

    fn take(&mut self, length: u64, body: &mut Vec<u8>) -> Result<()> {
        let read = (&mut self.stream).take(length).read_to_end(body)?;
        if read as u64 == length { Ok(()) } else { Err("the gateway cut its response".into()) }
    }
}
