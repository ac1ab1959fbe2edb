//! Reads messages, one per line, with a length limit. It does not parse them.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Why no further line can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// The process exited or closed its output.
    Ended,
    /// The line is longer than the limit.
    TooLong,
}

/// A reader of lines that may be dropped between two lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    /// The line so far. It is kept here, because the future of `next` may be dropped before the line is complete.
    line: Vec<u8>,
    max_bytes: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `max_bytes`.
    pub fn new(reader: R, max_bytes: usize) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, reader), line: Vec::new(), max_bytes }
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
    use super::{LineError, Lines};

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
}
