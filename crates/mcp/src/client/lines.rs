//! Messages from a server: one JSON object a line, counted while it is read.

use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::Closed;
use crate::client::spec::{MAX_BAD_FRAMES, MAX_FRAME_BYTES};

#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    /// The line so far. It is kept here and not in the future of `next`, which may be dropped half-way.
    line: Vec<u8>,
    bad: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, reader), line: Vec::new(), bad: 0 }
    }

    /// The next object. Empty lines and a few that are no JSON object are passed over.
    pub(crate) async fn next(&mut self) -> Result<Map<String, Value>, Closed> {
        loop {
            self.fill().await?;
            let line = std::mem::take(&mut self.line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            // The parser stops at 128 levels, so depth is bounded here too.
            if let Ok(object) = serde_json::from_slice(&line) {
                self.bad = 0;
                return Ok(object);
            }
            self.bad += 1;
            if self.bad >= MAX_BAD_FRAMES {
                return Err(Closed::Garbage);
            }
        }
    }

    /// Reads on until `line` holds a whole one.
    async fn fill(&mut self) -> Result<(), Closed> {
        loop {
            let chunk = self.reader.fill_buf().await.map_err(|_| Closed::Ended)?;
            if chunk.is_empty() {
                // A last line without its end is half a message: nobody finished it.
                return Err(Closed::Ended);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = end.and_then(|end| chunk.get(..end)).unwrap_or(chunk);
            if self.line.len() + part.len() > MAX_FRAME_BYTES {
                return Err(Closed::FrameTooLong);
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Closed, Lines, MAX_BAD_FRAMES, MAX_FRAME_BYTES};

    async fn read(input: &[u8]) -> (Vec<Value>, Closed) {
        let mut lines = Lines::new(input);
        let mut seen = Vec::new();
        loop {
            match lines.next().await {
                Ok(object) => seen.push(Value::Object(object)),
                Err(why) => return (seen, why),
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_object_is_passed_over_until_it_is_too_much() {
        let stray = "hello\n[1]\n\n{\"a\":1}\r\n7\n\u{1b}[0m\n{\"b\":2}\n{\"half\":";
        assert_eq!(read(stray.as_bytes()).await, (vec![json!({"a": 1}), json!({"b": 2})], Closed::Ended));
        let nine = format!("{}{{\"a\":1}}\n", "x\n".repeat(MAX_BAD_FRAMES - 1));
        assert_eq!(read(nine.repeat(3).as_bytes()).await, (vec![json!({"a": 1}); 3], Closed::Ended));
        assert_eq!(read("x\n".repeat(MAX_BAD_FRAMES).as_bytes()).await, (vec![], Closed::Garbage));
        assert_eq!(read(b"\xff\xfe\n".repeat(MAX_BAD_FRAMES).as_slice()).await, (vec![], Closed::Garbage));
    }

    #[tokio::test]
    async fn a_line_has_a_cap_and_depth_another() {
        let fits = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_FRAME_BYTES - 8));
        assert_eq!(fits.len(), MAX_FRAME_BYTES);
        assert_eq!(read(format!("{fits}\n").as_bytes()).await.0.len(), 1);
        assert_eq!(read(format!(" {fits}\n").as_bytes()).await, (vec![], Closed::FrameTooLong));
        let mut endless = Lines::new(tokio::io::repeat(b'x'));
        assert_eq!(endless.next().await, Err(Closed::FrameTooLong));
        let deep = format!("{{\"a\":{}{}}}\n", "[".repeat(200), "]".repeat(200));
        assert_eq!(read(deep.as_bytes()).await, (vec![], Closed::Ended));
    }
}
