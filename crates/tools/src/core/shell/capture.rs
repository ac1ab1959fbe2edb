//! Captures the output of a command: its start and its end, as text.

use std::collections::VecDeque;

use contract::limits::MAX_SHELL_OUTPUT_BYTES;

/// The number of bytes that are kept of the start, and of the end.
const PART_BYTES: usize = MAX_SHELL_OUTPUT_BYTES / 2;

/// The start and the end of one output stream. Its size is bounded, however much the command writes.
#[derive(Debug, Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

/// The output of one stream as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CapturedText {
    pub(super) text: String,
    /// Bytes that were written.
    pub(super) total: u64,
    /// Bytes between start and end that are missing in the text.
    pub(super) omitted: u64,
    /// Whether some bytes are not UTF-8, and are written as `\xNN` in the text.
    pub(super) has_escapes: bool,
}

impl Capture {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = PART_BYTES.saturating_sub(self.head.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        // Of a piece that is longer than the tail, only the end is kept.
        let rest = rest.get(rest.len().saturating_sub(PART_BYTES)..).unwrap_or_default();
        let over = (self.tail.len() + rest.len()).saturating_sub(PART_BYTES);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the last line that is not blank, or its last `max_bytes`.
    pub(super) fn last_line(&self, max_bytes: usize) -> Option<String> {
        if self.tail.is_empty() {
            last_line(self.head.iter().rev().copied(), max_bytes)
        } else {
            last_line(self.tail.iter().rev().copied(), max_bytes)
        }
    }

    pub(super) fn text(&self) -> CapturedText {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let kept = self.head.len() + tail.len();
        let mut omitted = self.total.saturating_sub(kept as u64);
        if omitted == 0 {
            let whole = [self.head.as_slice(), tail.as_slice()].concat();
            let (text, has_escapes) = escape(&whole);
            return CapturedText { text, total: self.total, omitted, has_escapes };
        }
        // Characters that were cut in the middle are omitted too.
        let (head, tail) = (without_partial_end(&self.head), without_partial_start(&tail));
        omitted += (kept - head.len() - tail.len()) as u64;
        let [(head, head_escapes), (tail, tail_escapes)] = [escape(head), escape(tail)];
        let text = format!("{head}\n[… {omitted} bytes are omitted …]\n{tail}");
        CapturedText { text, total: self.total, omitted, has_escapes: head_escapes || tail_escapes }
    }
}

fn last_line(reversed: impl Iterator<Item = u8>, max_bytes: usize) -> Option<String> {
    let mut line: Vec<u8> = reversed
        .skip_while(u8::is_ascii_whitespace)
        .take(max_bytes)
        .take_while(|byte| !matches!(byte, b'\n' | b'\r'))
        .collect();
    line.reverse();
    let text = String::from_utf8_lossy(&line).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns the bytes as text. Bytes that are not UTF-8 become `\xNN`.
fn escape(bytes: &[u8]) -> (String, bool) {
    let mut text = String::with_capacity(bytes.len());
    let mut has_escapes = false;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            has_escapes = true;
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    (text, has_escapes)
}

fn without_partial_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.get(..error.valid_up_to()).unwrap_or(bytes),
        // Bytes before the end may be invalid; only a cut character is removed.
        Ok(_) | Err(_) => {
            let partial = (1..=3).find(|length| {
                let end = bytes.len().checked_sub(*length).and_then(|start| bytes.get(start..)).unwrap_or_default();
                matches!(std::str::from_utf8(end), Err(error) if error.error_len().is_none() && error.valid_up_to() == 0)
            });
            bytes.get(..bytes.len() - partial.unwrap_or(0)).unwrap_or(bytes)
        }
    }
}

fn without_partial_start(bytes: &[u8]) -> &[u8] {
    let continued = bytes.iter().take(3).take_while(|byte| (0x80..0xc0).contains(*byte)).count();
    bytes.get(continued..).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Capture, MAX_SHELL_OUTPUT_BYTES, PART_BYTES};

    fn captured(pieces: &[&[u8]]) -> Capture {
        let mut capture = Capture::default();
        pieces.iter().for_each(|piece| capture.push(piece));
        capture
    }

    #[test]
    fn output_within_the_limit_is_kept_whole() {
        let whole = vec![b'x'; MAX_SHELL_OUTPUT_BYTES];
        let text = captured(&[&whole[..10], &whole[10..]]).text();
        assert_eq!((text.text.len(), text.omitted, text.has_escapes), (MAX_SHELL_OUTPUT_BYTES, 0, false));
        assert_eq!(captured(&["é\0\u{1b}".as_bytes()]).text().text, "é\0\u{1b}");
    }

    #[test]
    fn of_longer_output_start_and_end_are_kept_and_the_rest_is_counted() {
        for step in [1, 7, 4096, PART_BYTES + 1, 10 * MAX_SHELL_OUTPUT_BYTES] {
            let all: Vec<u8> = (0..3 * MAX_SHELL_OUTPUT_BYTES).map(|place| b'a' + (place % 26) as u8).collect();
            let mut capture = Capture::default();
            all.chunks(step).for_each(|chunk| capture.push(chunk));
            assert!(capture.head.len() + capture.tail.len() <= MAX_SHELL_OUTPUT_BYTES);
            let text = capture.text();
            assert_eq!((text.total, text.omitted), (all.len() as u64, (all.len() - MAX_SHELL_OUTPUT_BYTES) as u64));
            let all = String::from_utf8(all).unwrap();
            assert!(text.text.starts_with(&all[..PART_BYTES]) && text.text.ends_with(&all[all.len() - PART_BYTES..]));
        }
    }

    #[test]
    fn a_character_at_a_cut_is_omitted_and_not_broken() {
        for shift in 0..4 {
            let mut all = "x".repeat(shift);
            all.push_str(&"😀".repeat(MAX_SHELL_OUTPUT_BYTES));
            let text = captured(&[all.as_bytes()]).text();
            assert!(!text.has_escapes, "{shift}");
            let shown = text.text.replace(&format!("\n[… {} bytes are omitted …]\n", text.omitted), "");
            assert_eq!(shown.len() as u64 + text.omitted, text.total, "{shift}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_escaped() {
        let text = captured(&[b"a\xff\xfeb\xc3"]).text();
        assert_eq!((text.text.as_str(), text.has_escapes), ("a\\xff\\xfeb\\xc3", true));
        let binary: Vec<u8> = (0..=255).cycle().take(2 * MAX_SHELL_OUTPUT_BYTES).collect();
        assert!(captured(&[&binary]).text().has_escapes);
    }

    #[test]
    fn the_last_line_with_text_is_bounded() {
        assert_eq!(captured(&[b"one\ntwo \n\n"]).last_line(100).as_deref(), Some("two"));
        assert_eq!(captured(&[b"10%\r50%\r"]).last_line(100).as_deref(), Some("50%"));
        assert_eq!(captured(&[b" \n"]).last_line(100), None);
        assert_eq!(
            captured(&[&vec![b'x'; 2 * MAX_SHELL_OUTPUT_BYTES]]).last_line(100).map(|line| line.len()),
            Some(100)
        );
    }
}
