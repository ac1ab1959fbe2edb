//! Reads messages, one per line, with a length limit. It does not parse them.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::spool::{LargeMessage, LargeReader};

/// Whether a message may be longer than the usual limit, because of long texts in it.
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
    /// The process exited or closed its output.
    Ended,
    /// The line is longer than the limit.
    TooLong,
}

/// A line, or what has become of one that is longer than the limit.
#[derive(Debug)]
pub enum Line {
    Whole(Vec<u8>),
    Large(LargeMessage),
}

/// A reader of lines that may be dropped between two lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    /// The line so far. It is kept here, because the future of `next` may be dropped before the line is complete.
    line: Vec<u8>,
    /// The line, once it is longer than the limit, and whether it has been read whole.
    large: Option<(LargeReader, bool)>,
    max_bytes: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `max_bytes`.
    pub fn new(reader: R, max_bytes: usize) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, reader), line: Vec::new(), large: None, max_bytes }
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

    /// Returns the next line that is not empty, even if it is longer than the limit because of long texts in it.
    /// `large` says whether such a line may begin now.
    pub async fn next_or_large(&mut self, large: LargeMessages) -> Result<Line, LineError> {
        loop {
            match self.large.is_some() {
                true => self.fill_large().await?,
                false => match self.fill().await {
                    Ok(()) => {
                        let line = std::mem::take(&mut self.line);
                        if !line.trim_ascii().is_empty() {
                            return Ok(Line::Whole(line));
                        }
                        continue;
                    }
                    Err(LineError::TooLong) if large == LargeMessages::Accepted => {
                        let large = LargeReader::new(std::mem::take(&mut self.line)).ok_or(LineError::TooLong)?;
                        self.large = Some((large, false));
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            }
            if let Some((large, _)) = self.large.take() {
                return Ok(Line::Large(large.into_message()));
            }
        }
    }

    /// Reads until `large` holds a whole line.
    async fn fill_large(&mut self) -> Result<(), LineError> {
        let Self { reader, large: Some((large, ended)), .. } = self else { return Ok(()) };
        while !*ended {
            large.process().await.map_err(|_| LineError::TooLong)?;
            let chunk = large.reading(reader.fill_buf()).await.map_err(|_| LineError::Ended)?;
            if chunk.is_empty() {
                return Err(LineError::Ended);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = end.and_then(|end| chunk.get(..end)).unwrap_or(chunk);
            large.push(part);
            let used = part.len() + usize::from(end.is_some());
            *ended = end.is_some();
            reader.consume(used);
        }
        large.settle().await.map_err(|_| LineError::TooLong)
    }

    /// Reads until `line` holds a whole line.
    async fn fill(&mut self) -> Result<(), LineError> {
        loop {
            let chunk = self.reader.fill_buf().await.map_err(|_| LineError::Ended)?;
            if chunk.is_empty() {
                // A last line without a line feed is an incomplete message.
                return Err(LineError::Ended);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
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
    async fn a_line_over_the_limit_closes_the_connection() {
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
    async fn the_long_texts_of_a_line_over_the_limit_are_taken_out() {
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
        let mut lines = Lines::new(input.as_bytes(), MAX_BYTES);
        assert!(matches!(lines.next_or_large(LargeMessages::Refused).await, Ok(Line::Whole(_))));
        assert!(matches!(lines.next_or_large(LargeMessages::Refused).await, Err(LineError::TooLong)));
        let mut endless = Lines::new(tokio::io::repeat(b'x'), MAX_BYTES);
        assert!(matches!(endless.next_or_large(LargeMessages::Accepted).await, Err(LineError::TooLong)));
    }

    #[tokio::test]
    async fn a_large_line_survives_that_its_future_is_dropped_at_any_time() {
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
