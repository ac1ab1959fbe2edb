//! Reads messages, one per line, with a length limit. Lines within the limit are not parsed; of a longer line, the
//! large texts are taken out.
//!
//! The reader is our own, because the process is not trusted to end its lines: tokio's `Lines` has no limit, and the codec
//! `LinesCodec`, which has one, discards a longer line, so neither its large texts nor the id of its request would be known.

use contract::limits::MAX_LARGE_MESSAGE_BYTES;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::bounds::{response_longer_than, skeleton_too_long};
use crate::outline::Outline;
use crate::spool::{LargeMessage, LargeMessageReader};

/// Whether a message may be longer than the usual limit, because of large texts in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeMessages {
    Accepted,
    #[default]
    Refused,
}

impl LargeMessages {
    pub fn accepted_if(is_accepted: bool) -> Self {
        if is_accepted { Self::Accepted } else { Self::Refused }
    }
}

/// Why no further line can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// The process exited or closed its output, or its output cannot be read.
    Ended,
    /// The line is longer than the limit, and is not read to its end.
    TooLong,
}

/// A line, or what is left of one that is longer than the limit.
#[derive(Debug)]
pub enum Line {
    Whole(Vec<u8>),
    Large(LargeMessage),
}

/// A line reader whose `next` and `next_or_large` futures are cancellation-safe: dropping one loses nothing.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    /// The line so far. It is kept here, because the future of `next` may be dropped before the line is complete.
    line: Vec<u8>,
    /// The line, once it is longer than the limit.
    large: Option<LargeLine>,
    max_bytes: usize,
    /// The bytes after which a line is not read to its end.
    max_large_bytes: usize,
}

/// A line that is longer than the limit.
#[derive(Debug)]
struct LargeLine {
    /// Takes the large texts out of the line; `None` if the line is only skipped.
    reader: Option<LargeMessageReader>,
    /// The outline of a line that is skipped, so that its JSON-RPC id is known.
    outline: Outline,
    /// The reason to report if the line is skipped.
    skip_reason: String,
    bytes: usize,
    has_ended: bool,
}

impl LargeLine {
    /// Continues to read a line longer than `max_bytes`, of which this has arrived.
    fn new(arrived: Vec<u8>, max_bytes: usize, large: LargeMessages) -> Self {
        let (bytes, mut outline) = (arrived.len(), Outline::default());
        outline.push(&arrived);
        let (reader, skip_reason) = match large {
            LargeMessages::Accepted => (LargeMessageReader::new(arrived), skeleton_too_long()),
            LargeMessages::Refused => (None, response_longer_than(max_bytes)),
        };
        Self { reader, outline, skip_reason, bytes, has_ended: false }
    }

    fn push(&mut self, part: &[u8]) {
        self.bytes = self.bytes.saturating_add(part.len());
        self.outline.push(part);
        if let Some(reader) = &mut self.reader {
            reader.push(part);
        }
    }

    /// Takes the texts out of what has arrived. If the rest is too long, the line is only skipped from now on.
    async fn process(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        let processed = if self.has_ended { reader.finish().await } else { reader.process().await };
        if processed.is_err() {
            self.reader = None;
        }
    }

    fn into_message(self) -> LargeMessage {
        match self.reader {
            Some(reader) => reader.into_message(),
            None => LargeMessage { skeleton: self.outline.finish(), texts: Err(self.skip_reason) },
        }
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `max_bytes`.
    pub fn new(reader: R, max_bytes: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            line: Vec::new(),
            large: None,
            max_bytes,
            max_large_bytes: MAX_LARGE_MESSAGE_BYTES,
        }
    }

    /// Returns the next line that is not empty.
    pub async fn next(&mut self) -> Result<Vec<u8>, LineError> {
        loop {
            self.fill().await?;
            let line = std::mem::take(&mut self.line);
            if !line.trim_ascii().is_empty() {
                return Ok(line);
            }
        }
    }

    /// Returns the next line that is not empty. Of a line that is longer than the limit, the large texts are taken out,
    /// if `large` accepts it. If that is not enough, the line is skipped, and only its outline is returned, with the
    /// reason. `large` is consulted only when a line exceeds the limit, not while the rest of that line is read.
    pub async fn next_or_large(&mut self, large: LargeMessages) -> Result<Line, LineError> {
        loop {
            if self.large.is_some() {
                self.fill_large().await?;
                if let Some(line) = self.large.take() {
                    return Ok(Line::Large(line.into_message()));
                }
            }
            match self.fill().await {
                Ok(()) => {
                    let line = std::mem::take(&mut self.line);
                    if !line.trim_ascii().is_empty() {
                        return Ok(Line::Whole(line));
                    }
                }
                Err(LineError::TooLong) => {
                    self.large = Some(LargeLine::new(std::mem::take(&mut self.line), self.max_bytes, large));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until `large` holds a whole line.
    async fn fill_large(&mut self) -> Result<(), LineError> {
        let Self { reader, large: Some(line), max_large_bytes, .. } = self else { return Ok(()) };
        while !line.has_ended {
            line.process().await;
            let chunk = match &mut line.reader {
                Some(large) => large.wait_for_more(reader.fill_buf()).await,
                None => reader.fill_buf().await,
            };
            let chunk = chunk.map_err(|_| LineError::Ended)?;
            if chunk.is_empty() {
                return Err(LineError::Ended);
            }
            let end = memchr::memchr(b'\n', chunk);
            let part = end.and_then(|end| chunk.get(..end)).unwrap_or(chunk);
            line.push(part);
            let used = part.len() + usize::from(end.is_some());
            line.has_ended = end.is_some();
            reader.consume(used);
            if line.bytes > *max_large_bytes {
                return Err(LineError::TooLong);
            }
        }
        line.process().await;
        Ok(())
    }

    /// Reads until `line` holds a whole line.
    async fn fill(&mut self) -> Result<(), LineError> {
        loop {
            let chunk = self.reader.fill_buf().await.map_err(|_| LineError::Ended)?;
            if chunk.is_empty() {
                // A last line without a line feed is an incomplete message.
                return Err(LineError::Ended);
            }
            let end = memchr::memchr(b'\n', chunk);
            let part = end.and_then(|end| chunk.get(..end)).unwrap_or(chunk);
            if self.line.len() + part.len() > self.max_bytes {
                return Err(LineError::TooLong);
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
    use std::time::Duration;

    use super::{LargeMessages, Line, LineError, Lines};
    use crate::spool::BUDGET_LOCK;

    const MAX_BYTES: usize = 100_000;

    async fn read(input: &[u8]) -> (Vec<String>, LineError) {
        let mut lines = Lines::new(input, MAX_BYTES);
        let mut seen = Vec::new();
        loop {
            match lines.next().await {
                Ok(line) => seen.push(String::from_utf8_lossy(&line).into_owned()),
                Err(why) => return (seen, why),
            }
        }
    }

    #[tokio::test]
    async fn empty_lines_and_an_incomplete_last_line_are_skipped() {
        let text = "hello\n\n \r\n{\"a\":1}\r\n{\"half\":";
        assert_eq!(read(text.as_bytes()).await, (vec!["hello".to_owned(), "{\"a\":1}\r".to_owned()], LineError::Ended));
    }

    #[tokio::test]
    async fn next_returns_too_long_for_a_line_over_the_limit() {
        let fits = "x".repeat(MAX_BYTES);
        assert_eq!(read(format!("{fits}\n").as_bytes()).await.0.len(), 1);
        assert_eq!(read(format!(" {fits}\n").as_bytes()).await, (vec![], LineError::TooLong));
        let mut endless = Lines::new(tokio::io::repeat(b'x'), MAX_BYTES);
        assert_eq!(endless.next().await, Err(LineError::TooLong));
    }

    /// A line over the limit because of a text in it.
    fn large_line() -> String {
        format!("{{\"id\":1,\"x\":\"{}\"}}\n", "long text ".repeat(60_000))
    }

    #[tokio::test]
    async fn the_large_texts_of_a_line_over_the_limit_are_taken_out() {
        let _alone = BUDGET_LOCK.lock().await;
        let input = format!("first\n{}last\n", large_line());
        let mut lines = Lines::new(input.as_bytes(), MAX_BYTES);
        assert!(
            matches!(lines.next_or_large(LargeMessages::Accepted).await, Ok(Line::Whole(line)) if line == b"first")
        );
        let Ok(Line::Large(message)) = lines.next_or_large(LargeMessages::Accepted).await else { panic!() };
        let texts = message.texts.unwrap();
        assert_eq!(texts.iter().map(|text| text.len()).collect::<Vec<_>>(), [600_000]);
        assert_eq!(message.skeleton, format!(r#"{{"id":1,"x":"{}"}}"#, texts[0].marker()).into_bytes());
        assert!(matches!(lines.next_or_large(LargeMessages::Accepted).await, Ok(Line::Whole(line)) if line == b"last"));
        assert!(matches!(lines.next_or_large(LargeMessages::Accepted).await, Err(LineError::Ended)));
    }

    #[tokio::test]
    async fn a_line_that_cannot_be_kept_is_skipped_and_its_outline_and_the_next_line_are_returned() {
        let _alone = BUDGET_LOCK.lock().await;
        let many_texts = format!("{{\"result\":[{}1],\"id\":1}}\nlast\n", r#""text","#.repeat(2 << 20));
        let one_text = large_line() + "last\n";
        for (input, large, expected, why) in [
            (&many_texts, LargeMessages::Accepted, r#"{"result":[],"id":1}"#, "without its texts of more than 262144"),
            (
                &many_texts,
                LargeMessages::Refused,
                r#"{"result":[],"id":1}"#,
                "longer than 100000 bytes; ask it for less",
            ),
            (&one_text, LargeMessages::Refused, r#"{"id":1,"x":"long"#, "longer than 100000 bytes; ask it for less"),
        ] {
            let mut lines = Lines::new(input.as_bytes(), MAX_BYTES);
            let Ok(Line::Large(message)) = lines.next_or_large(large).await else { panic!("{large:?}") };
            let skeleton = String::from_utf8(message.skeleton).unwrap();
            assert!(skeleton.starts_with(expected) && skeleton.len() < 3_000, "{large:?}: {skeleton}");
            assert!(message.texts.unwrap_err().contains(why), "{large:?}");
            assert!(matches!(lines.next_or_large(large).await, Ok(Line::Whole(line)) if line == b"last"));
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_to_be_skipped_is_not_read_to_its_end() {
        let _alone = BUDGET_LOCK.lock().await;
        for large in [LargeMessages::Accepted, LargeMessages::Refused] {
            let mut endless = Lines::new(tokio::io::repeat(b'x'), MAX_BYTES);
            endless.max_large_bytes = 10 * MAX_BYTES;
            assert!(matches!(endless.next_or_large(large).await, Err(LineError::TooLong)), "{large:?}");
        }
    }

    #[tokio::test]
    async fn dropping_the_future_of_next_or_large_does_not_lose_a_large_line() {
        let _alone = BUDGET_LOCK.lock().await;
        let (mut writer, reader) = tokio::io::duplex(1_000);
        tokio::spawn(async move {
            let input = format!("{}last\n", large_line());
            tokio::io::AsyncWriteExt::write_all(&mut writer, input.as_bytes()).await.unwrap();
        });
        let mut lines = Lines::new(reader, MAX_BYTES);
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let next =
                tokio::time::timeout(Duration::from_micros(100), lines.next_or_large(LargeMessages::Accepted)).await;
            seen.extend(next.ok().map(Result::unwrap));
        }
        assert!(matches!(&seen[0], Line::Large(message) if message.texts.as_ref().unwrap()[0].len() == 600_000));
        assert!(matches!(&seen[1], Line::Whole(line) if line == b"last"));
    }
}
