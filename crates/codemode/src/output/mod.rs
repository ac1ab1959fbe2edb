//! Stored outputs: what of a result is stored, what is shown of it, and how a cell reads it later. Pure: reads and
//! writes no store.

mod fit;
mod grep;
mod lines;
mod media;
mod page;
mod preview;
mod reference;
mod request;
mod shape;

pub(crate) use fit::fit;
pub(crate) use grep::Grep;
pub(crate) use lines::Lines;
pub(crate) use media::{media_of, not_shown, take_media};
pub(crate) use page::Page;
pub(crate) use preview::not_stored;
pub(crate) use reference::{Content, handles, resolve};
pub(crate) use request::{OutputRequest, Selection};

use contract::ids::{OutputHandle, RunId};

/// Names the outputs that one answer stores: by its leg and their order, so that an answer that is written again after
/// a crash has the same names.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    run: RunId,
    leg: i64,
    next: usize,
}

impl Names {
    pub(crate) fn new(run: RunId, leg: i64) -> Self {
        Self { run, leg, next: 0 }
    }

    /// Returns the next name and its handle.
    fn next(&mut self) -> (String, OutputHandle) {
        let name = format!("l{}n{}", self.leg, self.next);
        self.next += 1;
        let handle = OutputHandle::of(&self.run, &name);
        (name, handle)
    }

    /// Returns a handle that is as long as the longest that an answer has.
    fn longest(&self) -> OutputHandle {
        OutputHandle::of(&self.run, &format!("l{}n{}", self.leg, contract::limits::MAX_RUN_OUTPUTS))
    }
}

/// Returns the bytes of a text in a JSON string, without the quotes.
pub(crate) fn escaped_bytes(text: &str) -> usize {
    let more = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0C => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(more).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::escaped_bytes;

    #[test]
    fn escaped_bytes_are_those_that_the_serializer_writes() {
        for text in ["", "plain", "\"\\\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}", "ä日\u{1F600}/"] {
            assert_eq!(escaped_bytes(text), serde_json::to_string(text).unwrap().len() - 2, "{text:?}");
        }
    }
}
