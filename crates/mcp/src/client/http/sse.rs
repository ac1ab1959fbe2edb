//! A parser for server-sent events that limits their size while it reads.

use process::{LargeMessageReader, LargeMessages};

use crate::client::spec::MAX_FRAME_BYTES;

/// A server-sent event. Its type is not kept, because the protocol uses only messages.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) data: Vec<u8>,
    /// The data, if it is longer than an event may be in memory. Then `data` is empty.
    pub(crate) large: Option<LargeMessageReader>,
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
    /// Whether an event may be longer than others because of long texts in it.
    large: LargeMessages,
    /// Whether the current line is data of a large event. Its value is passed on as it arrives.
    in_large_data: bool,
}

impl Parser {
    pub(crate) fn new(large: LargeMessages) -> Self {
        Self { large, ..Self::default() }
    }

    /// Returns the reader of the current event, if the event is large. Its bytes must be processed before the next ones
    /// are added.
    pub(crate) fn large(&mut self) -> Option<&mut LargeMessageReader> {
        self.event.large.as_mut()
    }

    /// Adds bytes and returns the events that they complete.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut ended = Vec::new();
        let mut rest = chunk;
        while !rest.is_empty() {
            let (text, after) = rest.split_at(memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len()));
            let end = after.first().copied();
            rest = after.get(1..).unwrap_or_default();
            let feed_of_pair = self.after_return && text.is_empty() && end == Some(b'\n');
            self.after_return = end == Some(b'\r');
            if feed_of_pair {
                continue;
            }
            self.add(text)?;
            if end.is_some() {
                self.end_line(&mut ended);
            }
        }
        Ok(ended)
    }

    /// Returns the number of bytes kept for an unfinished event.
    pub(crate) fn held(&self) -> usize {
        self.kept() + self.event.large.as_ref().map_or(0, LargeMessageReader::held)
    }

    fn kept(&self) -> usize {
        self.line.len() + self.event.data.len()
    }

    /// Adds to the current line.
    fn add(&mut self, mut text: &[u8]) -> Result<(), TooLong> {
        if self.kept() + text.len() > MAX_FRAME_BYTES {
            self.begin_large();
        }
        if self.event.large.is_some() && !self.in_large_data {
            // The beginning of a line says whether it is data.
            let beginning = DATA.len() + 1;
            let (head, rest) = text.split_at(text.len().min(beginning.saturating_sub(self.line.len())));
            self.line.extend_from_slice(head);
            self.pass_on_data();
            text = rest;
        }
        if let Some(large) = self.event.large.as_mut().filter(|_| self.in_large_data) {
            large.push(text);
            return Ok(());
        }
        if self.kept() + text.len() > MAX_FRAME_BYTES {
            return Err(TooLong);
        }
        self.line.extend_from_slice(text);
        Ok(())
    }

    /// Takes the long texts out of the current event from now on, if that is allowed.
    pub(crate) fn begin_large(&mut self) {
        if self.large == LargeMessages::Accepted && self.event.large.is_none() {
            self.event.large = LargeMessageReader::new(std::mem::take(&mut self.event.data));
            self.pass_on_data();
        }
    }

    /// Passes on what there is of the current line, if it is data of a large event.
    fn pass_on_data(&mut self) {
        let Some(large) = &mut self.event.large else { return };
        // A blank after the colon is not part of the value, so it must have arrived.
        if let Some(value) = self.line.strip_prefix(DATA).filter(|value| !value.is_empty()) {
            large.push(value.strip_prefix(b" ").unwrap_or(value));
            self.line = Vec::new();
            self.in_large_data = true;
        }
    }

    fn end_line(&mut self, ended: &mut Vec<Event>) {
        if let Some(large) = self.event.large.as_mut().filter(|_| self.in_large_data) {
            self.in_large_data = false;
            return large.push(b"\n");
        }
        let line = std::mem::take(&mut self.line);
        let mark: &[u8] = if self.begun { b"" } else { "\u{feff}".as_bytes() };
        self.begun = true;
        let line = line.strip_prefix(mark).unwrap_or(&line);
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.event);
            let has_data = event.data.pop().is_some() || event.large.is_some();
            if has_data || event.id.is_some() || event.retry_ms.is_some() {
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
            b"data" if self.event.large.is_some() => {}
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

/// What a line with data begins with.
const DATA: &[u8] = b"data:";

/// A longer event id is ignored, because it could not be sent back in a header.
const MAX_EVENT_ID_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use contract::limits::MAX_LARGE_MESSAGE_BYTES;
    use process::LargeMessages;

    use super::{Event, MAX_FRAME_BYTES, Parser, TooLong};

    fn event(data: &str) -> (Vec<u8>, Option<String>, Option<u64>) {
        (data.as_bytes().to_vec(), None, None)
    }

    fn parts(event: Event) -> (Vec<u8>, Option<String>, Option<u64>) {
        (event.data, event.id, event.retry_ms)
    }

    #[test]
    fn events_are_parsed_the_same_for_any_chunk_size() {
        let text = "\u{feff}: hello\r\ndata: {\"a\":1}\r\n\r\nevent: message\ndata:b\ndata: c\nid: 7\nretry: 20\n\n\
                    id: only\n\nnonsense\n\ndata\n\ndata: d\r\rdata: unfinished";
        let with_id = (b"b\nc".to_vec(), Some("7".to_owned()), Some(20));
        let only_id = (Vec::new(), Some("only".to_owned()), None);
        let expected = [event("{\"a\":1}"), with_id, only_id, event(""), event("d")];
        for size in [1, 2, 3, 7, text.len()] {
            let mut parser = Parser::default();
            let events: Vec<_> =
                text.as_bytes().chunks(size).flat_map(|chunk| parser.push(chunk).unwrap()).map(parts).collect();
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
        assert!((0..200).any(|_| matches!(parser.push(&many), Err(TooLong))));
        assert!(parser.held() <= MAX_FRAME_BYTES);
    }

    #[tokio::test]
    async fn the_long_texts_of_an_event_over_the_limit_are_taken_out() {
        let long = "x".repeat(MAX_FRAME_BYTES);
        let one_line = format!("data: [\"{long}\"]\n\n");
        assert!(matches!(
            Parser::new(LargeMessages::Accepted).push(one_line.as_bytes()).as_deref(),
            Ok([Event { large: Some(_), .. }])
        ));
        let text = format!("data: {{\"a\":1,\ndata: \"b\":\"{long}\"\r\ndata:}}\r\nid: 7\n\ndata: next\n\n");
        for size in [1_000, 65_536, text.len()] {
            let mut parser = Parser::new(LargeMessages::Accepted);
            let mut events = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                events.extend(parser.push(chunk).unwrap());
                if let Some(large) = parser.large() {
                    large.process().await.unwrap();
                }
            }
            let next = events.pop().unwrap();
            assert!(next.large.is_none() && next.data == b"next");
            let mut event = events.pop().unwrap();
            assert_eq!((events.len(), event.id.as_deref()), (0, Some("7")));
            let mut large = event.large.take().unwrap();
            large.finish().await.unwrap();
            let message = large.into_message();
            let texts = message.texts.unwrap();
            assert_eq!(texts[0].len(), long.len() as u64);
            let skeleton = format!("{{\"a\":1,\n\"b\":\"{}\"\n}}\n", texts[0].marker());
            assert_eq!(String::from_utf8(message.skeleton).unwrap(), skeleton);
        }
        let mut parser = Parser::new(LargeMessages::Refused);
        assert!(text.as_bytes().chunks(1_000).any(|chunk| matches!(parser.push(chunk), Err(TooLong))));
    }

    #[tokio::test]
    async fn a_large_event_is_limited_too() {
        let mut parser = Parser::new(LargeMessages::Accepted);
        let mut received = 0;
        let chunk = vec![b'x'; 1 << 20];
        parser.push(b"data: [\"").unwrap();
        loop {
            parser.push(&chunk).unwrap();
            received += chunk.len();
            if let Some(large) = parser.large()
                && large.process().await.is_err()
            {
                break;
            }
            assert!(received <= MAX_LARGE_MESSAGE_BYTES && parser.held() <= MAX_FRAME_BYTES + (4 << 20));
        }
        let mut parser = Parser::new(LargeMessages::Accepted);
        let comment = b": comment".repeat(MAX_FRAME_BYTES);
        assert!(comment.chunks(1 << 16).any(|chunk| matches!(parser.push(chunk), Err(TooLong))));
    }
}
