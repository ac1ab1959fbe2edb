//! What a result shows of a text or JSON value that it does not contain.

use contract::cell::{OutputItem, Preview};
use contract::ids::OutputHandle;
use contract::json::well_formed;
use store::OutputKind;

use super::escaped_bytes;
use super::shape::shape;

/// The bytes of the longest piece that a preview shows. More would fill the model's context with an excerpt; the model
/// reads what it needs from the store.
const MAX_PIECE_BYTES: usize = 4 << 10;

/// A text or JSON value that is stored, and what it is.
#[derive(Clone, Debug)]
pub(super) struct StoredValue {
    pub(super) kind: OutputKind,
    /// `text`, or a JSON type.
    pub(super) of: &'static str,
    pub(super) text: String,
}

impl StoredValue {
    pub(super) fn text(text: String) -> Self {
        Self { kind: OutputKind::Text, of: "text", text }
    }

    /// A JSON value. A string is stored as its text, so that its lines can be read.
    pub(super) fn json(json: String) -> Self {
        let of = match json.as_bytes().first() {
            Some(b'[') => "array",
            Some(b'{') => "object",
            Some(b'"') => "string",
            Some(b't' | b'f') => "boolean",
            Some(b'n') => "null",
            _ => "number",
        };
        if of == "string"
            && let Ok(text) = serde_json::from_str::<String>(&well_formed(&json))
        {
            return Self { kind: OutputKind::Text, of, text };
        }
        Self { kind: OutputKind::Json, of, text: json }
    }

    /// Builds a preview whose shape and pieces take at most `room` bytes in the result.
    pub(super) fn preview(&self, handle: OutputHandle, room: usize) -> Preview {
        let bytes = self.text.len() as u64;
        let shape = match self.kind {
            OutputKind::Json => shape(&self.text),
            _ => None,
        };
        let shape_bytes = |shape: &String| SHAPE_FIELD.len() + escaped_bytes(shape);
        let shape = shape.filter(|shape| shape_bytes(shape) <= room / 2);
        let room = room - shape.as_ref().map_or(0, shape_bytes);
        let piece = (room / 2).min(MAX_PIECE_BYTES);
        let first = start_of(&self.text, piece);
        let rest = self.text.get(first.len()..).unwrap_or_default();
        let last = end_of(rest, piece);
        Preview { handle, of: self.of.to_owned(), bytes, shape, first: first.to_owned(), last: last.to_owned() }
    }
}

/// What a shape adds to a preview, besides its own text.
const SHAPE_FIELD: &str = ",\"shape\":\"\"";

/// Returns the bytes of the preview of the largest output, without shape and pieces.
pub(super) fn smallest_preview(handle: OutputHandle) -> usize {
    let (of, bytes) = ("boolean".to_owned(), 9_999_999_999);
    let preview = Preview { handle, of, bytes, shape: None, first: String::new(), last: String::new() };
    serde_json::to_string(&OutputItem::Stored(preview)).map_or(0, |text| text.len())
}

/// Returns the longest start of a text that takes at most `room` bytes in a JSON string.
fn start_of(text: &str, room: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(at, letter)| {
        taken += escaped_bytes(text.get(*at..at + letter.len_utf8()).unwrap_or_default());
        taken > room
    });
    end.map_or(text, |(at, _)| text.get(..at).unwrap_or_default())
}

/// Returns the longest end of a text that takes at most `room` bytes in a JSON string.
fn end_of(text: &str, room: usize) -> &str {
    let mut taken = 0;
    let start = text.char_indices().rev().find(|(at, letter)| {
        taken += escaped_bytes(text.get(*at..at + letter.len_utf8()).unwrap_or_default());
        taken > room
    });
    start.map_or(text, |(at, letter)| text.get(at + letter.len_utf8()..).unwrap_or_default())
}

/// Returns the text that a result contains in place of a preview whose output could not be stored.
pub(crate) fn not_stored(preview: &Preview, why: &str) -> String {
    let Preview { of, bytes, first, last, .. } = preview;
    format!("[{bytes} bytes of {of} are lost, except the start and the end: {why}]\n{first}\n[…]\n{last}")
}

#[cfg(test)]
mod tests {
    use super::{end_of, start_of};

    #[test]
    fn pieces_end_at_characters_and_count_their_escapes() {
        let cases = [
            ("abcdef", 3, "abc", "def"),
            ("abc", 9, "abc", "abc"),
            ("ääää", 3, "ä", "ä"),
            ("\n\n\n\n", 5, "\n\n", "\n\n"),
            ("\u{1}b\u{1}", 7, "\u{1}b", "b\u{1}"),
            ("abc", 0, "", ""),
            ("", 5, "", ""),
        ];
        for (text, room, first, last) in cases {
            assert_eq!((start_of(text, room), end_of(text, room)), (first, last), "{text:?} in {room}");
        }
    }
}
