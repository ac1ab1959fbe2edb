//! Reads a server's messages, one per line, with a length limit. It does not parse them.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::client::closed::Closed;
use crate::client::spec::MAX_FRAME_BYTES;

/// A reader of lines that may be dropped between two lines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    /// The line so far. It is kept here, because the future of `next` may be dropped before the line is complete.
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, reader), line: Vec::new() }
    }

    /// Returns the next line that is not empty.
    pub(crate) async fn next(&mut self) -> Result<Vec<u8>, Closed> {
        loop {
            self.fill().await?;
            let line = std::mem::take(&mut self.line);
            if !line.trim_ascii().is_empty() {
                return Ok(line);
            }
        }
    }

    /// Reads until `line` holds a whole line.
    async fn fill(&mut self) -> Result<(), Closed> {
        loop {
            let chunk = self.reader.fill_buf().await.map_err(|_| Closed::Ended)?;
            if chunk.is_empty() {
                // A last line without a line feed is an incomplete message.
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
    use super::{Closed, Lines, MAX_FRAME_BYTES};

    async fn read(input: &[u8]) -> (Vec<String>, Closed) {
        let mut lines = Lines::new(input);
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
        assert_eq!(read(text.as_bytes()).await, (vec!["hello".to_owned(), "{\"a\":1}\r".to_owned()], Closed::Ended));
    }

    #[tokio::test]
    async fn a_line_over_the_limit_closes_the_connection() {
        let fits = "x".repeat(MAX_FRAME_BYTES);
        assert_eq!(read(format!("{fits}\n").as_bytes()).await.0.len(), 1);
        assert_eq!(read(format!(" {fits}\n").as_bytes()).await, (vec![], Closed::FrameTooLong));
        let mut endless = Lines::new(tokio::io::repeat(b'x'));
        assert_eq!(endless.next().await, Err(Closed::FrameTooLong));
    }
}
