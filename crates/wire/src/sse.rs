//! A reader of server-sent events that limits their size while it reads.
//!
//! The reader is our own, because a provider is not trusted to end its events: libraries such as `eventsource-stream` collect
//! an event of any size before they return it.

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The text after `event:`; empty if there is none.
    pub name: String,
    /// The text after `data:`; lines are joined with line feeds.
    pub data: String,
}

/// Why a stream of events cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    #[error("an event is longer than {0} bytes")]
    TooLong(usize),
    #[error("an event is not UTF-8")]
    NotUtf8,
}

/// Reads events from chunks of bytes. Comments, ids and retry times are skipped.
#[derive(Debug)]
pub struct SseReader {
    max_bytes: usize,
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// The last byte was a carriage return: a following line feed belongs to the same line end.
    after_return: bool,
    /// Whether the first line, which may start with a byte order mark, has been read.
    begun: bool,
}

impl SseReader {
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, line: Vec::new(), name: String::new(), data: None, after_return: false, begun: false }
    }

    /// Adds bytes and returns the events that they complete. An event without its blank line is never returned.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<Event>, SseError> {
        let mut events = Vec::new();
        for part in chunk.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            let is_feed_of_pair = self.after_return && text.is_empty() && end == Some(b'\n');
            self.after_return = end == Some(b'\r');
            if is_feed_of_pair {
                continue;
            }
            let held = self.line.len() + self.name.len() + self.data.as_ref().map_or(0, String::len);
            if held + text.len() > self.max_bytes {
                return Err(SseError::TooLong(self.max_bytes));
            }
            self.line.extend_from_slice(text);
            if end.is_some() {
                self.end_line(&mut events)?;
            }
        }
        Ok(events)
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), SseError> {
        let line = String::from_utf8(std::mem::take(&mut self.line)).map_err(|_| SseError::NotUtf8)?;
        let mark = if self.begun { "" } else { "\u{feff}" };
        self.begun = true;
        let line = line.strip_prefix(mark).unwrap_or(&line);
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            if let Some(data) = self.data.take() {
                events.push(Event { name, data });
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments (an empty field), ids and retry times.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, SseError, SseReader};

    const STREAM: &str =
        "\u{feff}: comment\r\nevent: a\r\ndata: {\"x\":\rdata:1}\n\nid: 7\ndata: [DONE]\n\nevent: b\n\ndata: half\n";

    fn read(chunks: &[&[u8]]) -> Vec<Event> {
        let mut reader = SseReader::new(100);
        chunks.iter().flat_map(|chunk| reader.push(chunk).unwrap()).collect()
    }

    #[test]
    fn events_are_the_same_wherever_the_stream_is_split() {
        let event = |name: &str, data: &str| Event { name: name.to_owned(), data: data.to_owned() };
        let expected = [event("a", "{\"x\":\n1}"), event("", "[DONE]")];
        let bytes = STREAM.as_bytes();
        assert_eq!(read(&[bytes]), expected);
        for at in 0..bytes.len() {
            assert_eq!(read(&[&bytes[..at], &bytes[at..]]), expected, "split at {at}");
        }
    }

    #[test]
    fn a_long_event_and_invalid_text_are_errors() {
        let long = format!("data: {}", "x".repeat(200));
        assert_eq!(SseReader::new(100).push(long.as_bytes()), Err(SseError::TooLong(100)));
        let many = "data: xxxxxxxxxxxxxxxxxxxx\n".repeat(10);
        assert_eq!(SseReader::new(100).push(many.as_bytes()), Err(SseError::TooLong(100)));
        assert_eq!(SseReader::new(100).push(b"data: \xff\n\n"), Err(SseError::NotUtf8));
    }
}
