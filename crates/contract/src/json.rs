//! What can be asked of a JSON text without parsing it.

/// How deep the brackets of a JSON text nest; strings are skipped.
///
/// Linear and without recursion, so that it can judge a hostile text before anything walks it.
pub fn depth(text: &[u8]) -> usize {
    let mut deepest = 0;
    let mut open = 0_usize;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let cases = [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[{"b":1}]}"#, 3),
            (r#"["[[[","\"[",{}]"#, 2),
            ("[[[[", 4),
            (r#""unterminated [["#, 0),
        ];
        for (text, expected) in cases {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
    }
}
