//! Texts of a tool's result that are too large for memory.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use contract::cell::Preview;
use contract::ids::OutputHandle;
use serde_json::{Map, Value, json};

/// Where a large text is until it is stored, such as a temporary file.
pub trait LargeSource: fmt::Debug + Send + Sync {
    /// Reads a part of the text. Returns the number of bytes, which is 0 at the end. It may block.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// A text that is part of a result but not in memory. The result has its marker in its place.
#[derive(Clone, Debug)]
pub struct LargeText {
    /// A random text that is nowhere else in the result.
    pub marker: String,
    /// The length of the text in UTF-8.
    pub bytes: u64,
    pub source: Arc<dyn LargeSource>,
}

/// Texts are equal if they are the same one: their markers are random.
impl PartialEq for LargeText {
    fn eq(&self, other: &Self) -> bool {
        self.marker == other.marker
    }
}

/// A large text that is in the store.
#[derive(Clone, Debug)]
pub(crate) struct StoredText {
    pub(crate) handle: OutputHandle,
    pub(crate) bytes: u64,
    pub(crate) first: String,
    pub(crate) last: String,
}

impl StoredText {
    /// Returns what a value has in the place of the text.
    pub(crate) fn preview(&self) -> Value {
        let preview = Preview {
            handle: self.handle.clone(),
            of: "text".to_owned(),
            bytes: self.bytes,
            shape: None,
            first: self.first.clone(),
            last: self.last.clone(),
        };
        json!(preview)
    }

    /// Changes a text block, so that it refers to the text.
    fn put_into(&self, block: &mut Map<String, Value>) {
        block.shift_remove("text");
        block.insert("handle".to_owned(), json!(self.handle));
        block.insert("bytes".to_owned(), json!(self.bytes));
        block.insert("first".to_owned(), json!(self.first));
    }
}

/// Puts references to stored texts in the places of their markers. The recursion is bounded by the depth that a parser of
/// results allows.
pub(crate) fn refer_to_stored(value: &mut Value, stored: &HashMap<String, StoredText>) {
    match value {
        Value::String(text) => {
            if let Some(stored) = stored.get(text) {
                *value = stored.preview();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer_to_stored(item, stored)),
        Value::Object(fields) => {
            if let Some(stored) = text_of_block(fields).and_then(|text| stored.get(text)) {
                stored.put_into(fields);
            }
            fields.values_mut().for_each(|field| refer_to_stored(field, stored));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Puts texts in the places of their markers.
pub fn insert_texts(value: &mut Value, texts: &mut HashMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(whole) = texts.remove(text) {
                *text = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| insert_texts(item, texts)),
        Value::Object(fields) => fields.values_mut().for_each(|field| insert_texts(field, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn text_of_block(block: &Map<String, Value>) -> Option<&str> {
    let is_text = block.get("type").and_then(Value::as_str) == Some("text");
    block.get("text").filter(|_| is_text)?.as_str()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use contract::ids::OutputHandle;
    use serde_json::json;

    use super::{StoredText, insert_texts, refer_to_stored};

    #[test]
    fn a_block_refers_to_its_text_and_any_other_place_has_a_preview() {
        let stored = StoredText {
            handle: OutputHandle::new("out_r_c1n0"),
            bytes: 9,
            first: "ab".to_owned(),
            last: "yz".to_owned(),
        };
        let stored = HashMap::from([("marker:0".to_owned(), stored)]);
        let mut value = json!({
            "content": [
                {"type": "text", "text": "marker:0", "annotations": {"priority": 1}},
                {"type": "text", "text": "marker:01"},
                {"type": "image", "data": "marker:0", "mimeType": "image/png"},
            ],
            "structuredContent": {"marker:0": [1, "marker:0"]},
        });
        refer_to_stored(&mut value, &stored);
        let preview = json!({"handle": "out_r_c1n0", "of": "text", "bytes": 9, "first": "ab", "last": "yz"});
        let expected = json!({
            "content": [
                {"type": "text", "annotations": {"priority": 1}, "handle": "out_r_c1n0", "bytes": 9, "first": "ab"},
                {"type": "text", "text": "marker:01"},
                {"type": "image", "data": preview, "mimeType": "image/png"},
            ],
            "structuredContent": {"marker:0": [1, preview]},
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn texts_are_put_in_the_places_of_their_markers() {
        let mut texts = HashMap::from([("m:0".to_owned(), "a".to_owned()), ("m:1".to_owned(), "b".to_owned())]);
        let mut value = json!({"content": [{"type": "text", "text": "m:1"}], "x": ["m:0", "m:2", 7]});
        insert_texts(&mut value, &mut texts);
        assert_eq!(value, json!({"content": [{"type": "text", "text": "b"}], "x": ["a", "m:2", 7]}));
    }
}
