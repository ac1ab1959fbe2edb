//! A parser for server-sent events that limits their size while it reads.

use crate::client::spec::MAX_FRAME_BYTES;

/// One event. Its type is not kept, because the protocol uses only messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) data: Vec<u8>,
    pub(crate) id: Option<String>,
    pub(crate) retry_ms: Option<u64>,
}

/// The event or one of its lines is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    event: Event,
    /// The last byte was a carriage return: a following line feed belongs to the same line end.
    after_return: bool,
    /// Whether the first line, which may start with a byte order mark, has been read.
    begun: bool,
}

impl Parser {
    /// Adds bytes and returns the events that they complete.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut ended = Vec::new();
        for part in chunk.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            let feed_of_pair = self.after_return && text.is_empty() && end == Some(b'\n');
            self.after_return = end == Some(b'\r');
            if feed_of_pair {
                continue;
            }
            if self.held() + text.len() > MAX_FRAME_BYTES {
                return Err(TooLong);
            }
            self.line.extend_from_slice(text);
            if end.is_some() {
                self.end_line(&mut ended);
            }
        }
        Ok(ended)
    }

    /// Returns the number of bytes kept for an unfinished event.
    pub(crate) fn held(&self) -> usize {
        self.line.len() + self.event.data.len()
    }

    fn end_line(&mut self, ended: &mut Vec<Event>) {
        let line = std::mem::take(&mut self.line);
        let mark: &[u8] = if self.begun { b"" } else { "\u{feff}".as_bytes() };
        self.begun = true;
        let line = line.strip_prefix(mark).unwrap_or(&line);
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.event);
            if event.data.pop().is_some() || event.id.is_some() || event.retry_ms.is_some() {
                ended.push(event);
            }
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        self.field(name, value.strip_prefix(b" ").unwrap_or(value));
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let text = || std::str::from_utf8(value).ok();
        match name {
            b"data" => {
                self.event.data.extend_from_slice(value);
                self.event.data.push(b'\n');
            }
            b"id" if value.len() <= MAX_EVENT_ID_BYTES => {
                self.event.id = text().filter(|id| !id.contains('\0')).map(str::to_owned);
            }
            b"retry" => self.event.retry_ms = text().and_then(|text| text.parse().ok()),
            _ => {}
        }
    }
}

/// A longer event id is ignored, because it could not be sent back in a header.
const MAX_EVENT_ID_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::{Event, MAX_FRAME_BYTES, Parser, TooLong};

    fn event(data: &str) -> Event {
        Event { data: data.as_bytes().to_vec(), ..Event::default() }
    }

    #[test]
    fn events_are_parsed_the_same_for_any_chunk_size() {
        let text = "\u{feff}: hello\r\ndata: {\"a\":1}\r\n\r\nevent: message\ndata:b\ndata: c\nid: 7\nretry: 20\n\n\
                    id: only\n\nnonsense\n\ndata\n\ndata: d\r\rdata: unfinished";
        let with_id = Event { data: b"b\nc".to_vec(), id: Some("7".to_owned()), retry_ms: Some(20) };
        let only_id = Event { id: Some("only".to_owned()), ..Event::default() };
        let expected = [event("{\"a\":1}"), with_id, only_id, event(""), event("d")];
        for size in [1, 2, 3, 7, text.len()] {
            let mut parser = Parser::default();
            let events: Vec<Event> =
                text.as_bytes().chunks(size).flat_map(|chunk| parser.push(chunk).unwrap()).collect();
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_is_limited_for_one_long_line_and_for_many_lines() {
        let line = [b'x'; 1 << 16];
        let mut parser = Parser::default();
        let endless = (0..).map(|_| parser.push(&line)).take_while(Result::is_ok).count();
        assert_eq!(endless, MAX_FRAME_BYTES / line.len());
        let mut parser = Parser::default();
        let many = [b"data: ".as_slice(), &line, b"\n"].concat();
        assert!((0..200).any(|_| parser.push(&many) == Err(TooLong)));
        assert!(parser.held() <= MAX_FRAME_BYTES);
    }
}
