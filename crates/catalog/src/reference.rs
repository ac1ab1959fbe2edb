//! Resolves a `$ref`. Only references into the same schema are followed; nothing is fetched.

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// The maximum length of a reference; only an attack is longer.
pub(crate) const MAX_REFERENCE: usize = 512;

/// Returns the part of the schema that a reference names. A `%` that begins no valid escape stands for itself.
pub(crate) fn follow<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    let pointer = reference.as_str().filter(|text| text.len() <= MAX_REFERENCE)?.strip_prefix('#')?;
    // Borrows the text if it has no escapes.
    root.pointer(&percent_decode_str(pointer).decode_utf8().ok()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::follow;

    #[test]
    fn escapes_in_a_reference_are_decoded_and_invalid_ones_stand_for_themselves() {
        let schema = json!({"a b": 1, "100%": 2, "c/d": 3, "ü": 4});
        for (reference, expected) in [
            ("#/a%20b", Some(json!(1))),
            ("#/100%", Some(json!(2))),
            ("#/100%25", Some(json!(2))),
            ("#/c~1d", Some(json!(3))),
            ("#/%C3%BC", Some(json!(4))),
            ("#/%FF", None),
            ("other#/a", None),
        ] {
            assert_eq!(follow(&schema, &json!(reference)), expected.as_ref(), "{reference}");
        }
    }
}
