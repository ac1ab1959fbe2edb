//! A connection of the scripted model: HTTP/1.1, written by hand so that responses can be cut at any byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::script::Reply;
use super::{Api, RecordedRequest, ResponseForm, State, lock};

/// Bytes of a request's head, and of its body.
const MAX_HEAD_BYTES: u64 = 64 << 10;
const MAX_BODY_BYTES: u64 = 64 << 20;

/// Serves requests until the client closes the connection or a response is cut.
pub(super) fn serve(state: &State, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some((method, request)) = read_request(&mut reader)? {
        if method == "GET" {
            // For tests in other languages.
            let bodies: Vec<Value> = lock(&state.requests).iter().map(RecordedRequest::json).collect();
            respond(&mut writer, 200, &[], Value::from(bodies).to_string().as_bytes())?;
            continue;
        }
        let (path, body) = (request.path.clone(), request.json());
        let number = state.record(request);
        let Some(api) = Api::of(&path) else {
            respond(&mut writer, 404, &[], error("not_found_error", "there is no such path").as_bytes())?;
            continue;
        };
        match state.choose(&body) {
            Some(reply) => match answer(&mut writer, api, &reply.filled(&body), &body, number)? {
                Connection::Kept => {}
                Connection::Closed => return Ok(()),
            },
            None => {
                let text = error("script_error", "the script has no response for this request");
                respond(&mut writer, 501, &[], text.as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Whether a connection can be used again.
enum Connection {
    Kept,
    Closed,
}

fn answer(writer: &mut TcpStream, api: Api, reply: &Reply, body: &Value, number: usize) -> io::Result<Connection> {
    std::thread::sleep(Duration::from_millis(reply.delay_ms));
    if let Some(status) = reply.status {
        let kind = reply.error_type.as_deref().unwrap_or("scripted_error");
        let text = reply.raw.as_ref().map_or_else(|| error(kind, &reply.text), |lines| lines.join("\n"));
        respond(writer, status, &reply.headers, text.as_bytes())?;
        return Ok(Connection::Kept);
    }
    let is_streamed = body.get("stream").and_then(Value::as_bool) == Some(true);
    let form = if is_streamed { ResponseForm::Streamed } else { ResponseForm::Whole };
    let model = body.get("model").and_then(Value::as_str).unwrap_or_default();
    let text = match &reply.raw {
        Some(lines) => lines.join("\n"),
        None => api.write(reply, model, number, form),
    };
    let kind = if is_streamed { "text/event-stream; charset=utf-8" } else { "application/json" };
    write_head(writer, 200, kind, &reply.headers, if is_streamed { None } else { Some(text.len()) })?;
    let end = reply.cut_after_bytes.unwrap_or(text.len()).min(text.len());
    let (sent, rest) = text.as_bytes().split_at(end);
    let mut body = Body { writer, is_chunked: is_streamed };
    body.write(sent)?;
    if reply.stall_ms > 0 {
        std::thread::sleep(Duration::from_millis(reply.stall_ms));
        body.write(rest)?;
    } else if reply.cut_after_bytes.is_some() {
        body.writer.shutdown(std::net::Shutdown::Both)?;
        return Ok(Connection::Closed);
    }
    body.end()?;
    Ok(Connection::Kept)
}

/// Writes a body, in chunks if its length was not sent.
struct Body<'w> {
    writer: &'w mut TcpStream,
    is_chunked: bool,
}

impl Body<'_> {
    /// Writes some bytes; events one by one.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_chunked {
            return self.writer.write_all(bytes);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = rest.windows(2).position(|pair| pair == b"\n\n").map_or(rest.len(), |at| at + 2);
            let (event, after) = rest.split_at(end);
            let mut chunk = format!("{:x}\r\n", event.len()).into_bytes();
            chunk.extend_from_slice(event);
            chunk.extend_from_slice(b"\r\n");
            self.writer.write_all(&chunk)?;
            rest = after;
        }
        Ok(())
    }

    fn end(self) -> io::Result<()> {
        if self.is_chunked { self.writer.write_all(b"0\r\n\r\n") } else { Ok(()) }
    }
}

fn respond(writer: &mut TcpStream, status: u16, headers: &[(String, String)], body: &[u8]) -> io::Result<()> {
    write_head(writer, status, "application/json", headers, Some(body.len()))?;
    writer.write_all(body)
}

fn write_head(
    writer: &mut TcpStream,
    status: u16,
    kind: &str,
    headers: &[(String, String)],
    length: Option<usize>,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        head.push_str(&format!("content-type: {kind}\r\n"));
    }
    head.push_str(&match length {
        Some(length) => format!("content-length: {length}\r\n"),
        None => "transfer-encoding: chunked\r\n".to_owned(),
    });
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    head.push_str("\r\n");
    writer.write_all(head.as_bytes())
}

/// Returns an error that both vendors' clients understand.
fn error(kind: &str, message: &str) -> String {
    json!({"type": "error", "error": {"type": kind, "message": message, "code": null, "param": null}}).to_string()
}

/// Reads a request; `None` if the client has closed the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<(String, RecordedRequest)>> {
    let mut head = reader.take(MAX_HEAD_BYTES);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a request"));
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let length: u64 = length.unwrap_or(0).min(MAX_BODY_BYTES);
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    Ok(Some((method, RecordedRequest { path, headers, body })))
}
