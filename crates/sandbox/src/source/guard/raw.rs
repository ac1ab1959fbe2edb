//! Bounds what a text may cost, without knowing what in it is code.

use crate::source::Language;

/// What could be in the text, if every byte of it were code.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Raw {
    /// Words, and bytes that are neither in words nor white space.
    pub(super) tokens: u32,
    /// Places from which oxc may read the rest once more.
    additions: u64,
    /// Places that may be inside one another, so that each doubles the cost of the rest.
    doublings: u32,
    bytes: u64,
    /// Whether there may be an `import`, which a text that is not understood must not have.
    pub(super) may_import: bool,
}

impl Raw {
    pub(super) fn count(bytes: &[u8], language: Language) -> Self {
        let mut raw = Self { bytes: bytes.len() as u64, ..Self::default() };
        let mut word_start = None;
        let mut punctuation = 0;
        let mut has_types = language == Language::TypeScript;
        let comments = bytes.windows(2).any(|pair| matches!(pair, b"//" | b"/*"));
        for (offset, byte) in bytes.iter().copied().chain([b' ']).enumerate() {
            if byte.is_ascii_alphanumeric() || byte >= 0x80 || matches!(byte, b'_' | b'$' | b'\\') {
                word_start.get_or_insert(offset);
                continue;
            }
            if let Some(start) = word_start.take() {
                let word = bytes.get(start..offset).unwrap_or_default();
                // An escape may spell any word.
                let escaped = word.contains(&b'\\');
                raw.may_import |= word == b"import" || word.windows(2).any(|pair| pair == b"\\u");
                has_types |= escaped || matches!(word, b"as" | b"satisfies");
                raw.tokens += 1;
                raw.additions += u64::from(escaped || word == b"static");
                raw.doublings += u32::from(escaped || matches!(word, b"new" | b"extends" | b"infer"));
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            raw.tokens += 1;
            raw.additions += u64::from(byte == b'(');
            raw.doublings += u32::from(match byte {
                b'<' => true,
                b'[' | b'{' => comments || punctuation == b'(',
                _ => false,
            });
            punctuation = byte;
        }
        if !has_types {
            raw.doublings = 0;
        }
        raw
    }

    /// An upper bound of how many tokens oxc reads.
    pub(super) fn work(&self) -> u64 {
        let once = u64::from(self.tokens) + self.bytes / 16;
        let doubled = 1_u64.checked_shl(self.doublings).unwrap_or(u64::MAX);
        once.saturating_mul(1 + self.additions).saturating_mul(doubled)
    }
}

#[cfg(test)]
mod tests {
    use super::{Language, Raw};

    #[test]
    fn counts_every_token_that_may_be_code() {
        let cases = [
            ("", 0, 0, 0),
            ("a b", 2, 0, 0),
            ("f((a))", 6, 2, 0),
            ("a<b<c", 5, 0, 2),
            ("({a}) ([b])", 10, 2, 2),
            ("(x) {}", 5, 1, 0),
            ("(/**/{", 6, 1, 1),
            ("new A extends B", 4, 0, 2),
            ("n\\x65w", 1, 1, 1),
        ];
        for (text, tokens, additions, doublings) in cases {
            let bytes = text.len() as u64;
            let expected = Raw { tokens, additions, doublings, bytes, may_import: false };
            assert_eq!(Raw::count(text.as_bytes(), Language::TypeScript), expected, "{text}");
        }
        assert_eq!(Raw::count(b"a<b", Language::JavaScript).doublings, 0);
        assert_eq!(Raw::count(b"a as b<c", Language::JavaScript).doublings, 1);
        assert!(Raw::count(b"x import(", Language::JavaScript).may_import);
        assert!(Raw::count(b"im\\u0070ort", Language::JavaScript).may_import);
    }
}
