//! Takes large texts out of a JSON text while it is read, so that neither it nor they are in memory whole. Pure.
//!
//! What is left, the skeleton, has a short marker in the place of each large text, and is otherwise the same JSON. So
//! it is valid if the whole is valid, and its values can be counted and parsed like those of any other message.

/// Receives the large texts, one after the other.
pub(crate) trait TextSink {
    /// Begins the next text.
    fn begin(&mut self);

    /// Appends to the current text. Each part is valid UTF-8.
    fn text(&mut self, part: &[u8]);

    /// Ends the current text. `escaped` is how many bytes it grows by if it is written as JSON again.
    fn end(&mut self, escaped: u64);
}

/// The skeleton is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SkeletonTooLong;

/// Scans a JSON text chunk by chunk.
#[derive(Debug)]
pub(crate) struct LargeTexts {
    limits: ScanLimits,
    /// What all markers of this text begin with.
    marker: String,
    skeleton: Vec<u8>,
    /// The open arrays and objects; true for an object. Each has taken a byte of the skeleton, so they are bounded too.
    open: Vec<bool>,
    /// Whether a string that begins now is a key.
    at_key: bool,
    state: State,
    texts: usize,
    is_invalid: bool,
}

/// The limits of a scan, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanLimits {
    /// The shortest text that is taken out, as JSON without its quotation marks.
    pub(crate) text: usize,
    pub(crate) skeleton: usize,
}

#[derive(Debug)]
enum State {
    /// Outside of strings.
    Between,
    /// In a string that is part of the skeleton so far. `start` is the place after its quotation mark.
    Kept { start: usize, is_key: bool, after_backslash: bool },
    /// In a string that is taken out.
    TakenOut(Decoder),
}

impl LargeTexts {
    /// `marker` must be random and must not need escapes: the JSON text must not be able to contain it by design.
    pub(crate) fn new(marker: String, limits: ScanLimits) -> Self {
        let state = State::Between;
        Self {
            limits,
            marker,
            skeleton: Vec::new(),
            open: Vec::new(),
            at_key: false,
            state,
            texts: 0,
            is_invalid: false,
        }
    }

    /// Scans the next part of the text.
    pub(crate) fn push(&mut self, mut bytes: &[u8], sink: &mut impl TextSink) -> Result<(), SkeletonTooLong> {
        while !bytes.is_empty() {
            let used = match &mut self.state {
                State::Between => self.between(bytes),
                State::Kept { .. } => self.kept(bytes, sink),
                State::TakenOut(decoder) => match decoder.push(bytes, sink) {
                    Progress::More => bytes.len(),
                    Progress::Ended { used } => {
                        self.is_invalid |= decoder.is_invalid;
                        sink.end(decoder.escaped);
                        self.state = State::Between;
                        used
                    }
                },
            };
            if self.skeleton.len() > self.limits.skeleton {
                return Err(SkeletonTooLong);
            }
            bytes = bytes.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns the bytes that the skeleton has so far.
    pub(crate) fn held(&self) -> usize {
        self.skeleton.len()
    }

    /// Returns the skeleton, and whether every text that was taken out has ended and is valid.
    pub(crate) fn finish(self) -> (Vec<u8>, bool) {
        let is_valid = !self.is_invalid && !matches!(self.state, State::TakenOut(_));
        (self.skeleton, is_valid)
    }

    /// Scans up to the next string. Returns the number of bytes that it has scanned.
    fn between(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        for byte in bytes {
            used += 1;
            match byte {
                b'"' => {
                    let start = self.skeleton.len() + used;
                    self.state = State::Kept { start, is_key: self.at_key, after_backslash: false };
                    break;
                }
                b'{' | b'[' => {
                    self.open.push(*byte == b'{');
                    self.at_key = *byte == b'{';
                }
                b'}' | b']' => {
                    self.open.pop();
                    self.at_key = false;
                }
                b',' => self.at_key = self.open.last() == Some(&true),
                b':' => self.at_key = false,
                _ => {}
            }
            // Bounds `open` as well.
            if self.skeleton.len() + used > self.limits.skeleton {
                break;
            }
        }
        self.skeleton.extend_from_slice(bytes.get(..used).unwrap_or_default());
        used
    }

    /// Scans a string that is part of the skeleton, until it ends or is long enough to be taken out.
    fn kept(&mut self, bytes: &[u8], sink: &mut impl TextSink) -> usize {
        let State::Kept { start, is_key, after_backslash } = &mut self.state else { return 0 };
        let (start, is_key) = (*start, *is_key);
        // A key stays, and the limit of the skeleton ends the scan if it is too long.
        let max = if is_key { self.limits.skeleton } else { self.limits.text } + 1;
        let room = max.saturating_sub(self.skeleton.len() - start).max(1);
        let part = bytes.get(..room).unwrap_or(bytes);
        let mut ended = false;
        let mut used = 0;
        for byte in part {
            used += 1;
            match byte {
                _ if *after_backslash => *after_backslash = false,
                b'\\' => *after_backslash = true,
                b'"' => {
                    ended = true;
                    break;
                }
                _ => {}
            }
        }
        self.skeleton.extend_from_slice(part.get(..used).unwrap_or_default());
        if ended {
            self.state = State::Between;
            self.at_key = false;
        } else if !is_key && self.skeleton.len() - start > self.limits.text {
            let raw = self.skeleton.split_off(start);
            let mut decoder = Decoder::default();
            sink.begin();
            // The string has not ended in the part that was scanned.
            decoder.push(&raw, sink);
            self.state = State::TakenOut(decoder);
            self.skeleton.extend_from_slice(marker(&self.marker, self.texts).as_bytes());
            self.skeleton.push(b'"');
            self.texts += 1;
        }
        used
    }
}

/// Returns the text that stands in the skeleton for a large text.
pub(crate) fn marker(prefix: &str, index: usize) -> String {
    format!("{prefix}:{index}")
}

/// Decodes the inside of a JSON string: escapes, and UTF-8 that is cut by the end of a chunk. A surrogate without its
/// partner becomes U+FFFD.
#[derive(Debug, Default)]
struct Decoder {
    /// The beginning of a character whose rest is in the next chunk.
    cut: Vec<u8>,
    escape: Escape,
    /// The first half of a surrogate pair.
    high: Option<u16>,
    escaped: u64,
    is_invalid: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Escape {
    #[default]
    None,
    AfterBackslash,
    Hex {
        value: u16,
        digits: u8,
    },
}

enum Progress {
    More,
    Ended { used: usize },
}

impl Decoder {
    fn push(&mut self, bytes: &[u8], sink: &mut impl TextSink) -> Progress {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            match self.escape {
                Escape::None => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    let plain = memchr::memchr2(b'"', b'\\', rest);
                    let run = rest.get(..plain.unwrap_or(rest.len())).unwrap_or_default();
                    if !run.is_empty() {
                        // JSON requires an escape for control characters. All bytes are compared, because a loop that
                        // could end early is not vectorised.
                        self.is_invalid |= run.iter().fold(false, |found, byte| found | (*byte < 0x20));
                        self.lone_surrogate(sink);
                        self.utf8(run, sink);
                        at += run.len();
                        continue;
                    }
                    // A character must not be cut by an escape or by the end.
                    self.is_invalid |= !self.cut.is_empty();
                    at += 1;
                    if byte == b'"' {
                        self.lone_surrogate(sink);
                        return Progress::Ended { used: at };
                    }
                    self.escape = Escape::AfterBackslash;
                }
                Escape::AfterBackslash => {
                    at += 1;
                    self.after_backslash(byte, sink);
                }
                Escape::Hex { value, digits } => {
                    at += 1;
                    match char::from(byte).to_digit(16) {
                        Some(digit) => {
                            let value = value << 4 | digit as u16;
                            self.escape = Escape::Hex { value, digits: digits + 1 };
                            if digits == 3 {
                                self.escape = Escape::None;
                                self.unit(value, sink);
                            }
                        }
                        None => {
                            self.is_invalid = true;
                            self.escape = Escape::None;
                            // The character may be the end of the string, so it is read again.
                            at -= 1;
                        }
                    }
                }
            }
        }
        Progress::More
    }

    fn after_backslash(&mut self, byte: u8, sink: &mut impl TextSink) {
        self.escape = Escape::None;
        let decoded = match byte {
            b'u' => {
                self.escape = Escape::Hex { value: 0, digits: 0 };
                return;
            }
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => {
                self.is_invalid = true;
                return;
            }
        };
        self.unit(u16::from(decoded), sink);
    }

    /// Adds a UTF-16 unit.
    fn unit(&mut self, unit: u16, sink: &mut impl TextSink) {
        let high = self.high.take();
        match (high, unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                let pair = char::decode_utf16([high, unit]).next().and_then(Result::ok);
                self.character(pair.unwrap_or(char::REPLACEMENT_CHARACTER), sink);
                return;
            }
            (Some(_), _) => self.character(char::REPLACEMENT_CHARACTER, sink),
            (None, _) => {}
        }
        match unit {
            0xd800..=0xdbff => self.high = Some(unit),
            _ => self.character(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER), sink),
        }
    }

    fn lone_surrogate(&mut self, sink: &mut impl TextSink) {
        if self.high.take().is_some() {
            self.character(char::REPLACEMENT_CHARACTER, sink);
        }
    }

    fn character(&mut self, character: char, sink: &mut impl TextSink) {
        self.escaped += match character {
            '"' | '\\' | '\u{8}' | '\u{c}' | '\n' | '\r' | '\t' => 1,
            '\0'..'\u{20}' => 5,
            _ => 0,
        };
        sink.text(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn utf8(&mut self, mut run: &[u8], sink: &mut impl TextSink) {
        while let (false, Some((first, rest))) = (self.cut.is_empty(), run.split_first()) {
            self.cut.push(*first);
            match std::str::from_utf8(&self.cut) {
                Ok(_) => {
                    sink.text(&self.cut);
                    self.cut.clear();
                }
                Err(error) if error.error_len().is_none() => {}
                Err(_) => {
                    self.is_invalid = true;
                    self.cut.clear();
                }
            }
            run = rest;
        }
        match std::str::from_utf8(run) {
            Ok(_) => sink.text(run),
            Err(error) => {
                let (valid, rest) = run.split_at(error.valid_up_to());
                sink.text(valid);
                match error.error_len() {
                    None => self.cut = rest.to_vec(),
                    Some(_) => self.is_invalid = true,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
