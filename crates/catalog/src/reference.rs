//! Resolves a `$ref`. Only references into the same schema are followed; nothing is fetched.

use serde_json::Value;

/// The maximum length of a reference; only an attack is longer.
pub(crate) const MAX_REFERENCE: usize = 512;

pub(crate) fn follow<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    let pointer = reference.as_str().filter(|text| text.len() <= MAX_REFERENCE)?.strip_prefix('#')?;
    if !pointer.contains('%') {
        return root.pointer(pointer);
    }
    root.pointer(&percent_decoded(pointer)?)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
