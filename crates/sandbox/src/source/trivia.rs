//! Finds the punctuation between two nodes of a syntax tree, which the tree does not contain.

use oxc_ast::ast::Comment;

/// A parsed text with its comments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'t> {
    pub(super) text: &'t str,
    /// Sorted by position.
    pub(super) comments: &'t [Comment],
}

impl<'t> Text<'t> {
    pub(super) fn slice(&self, start: u32, end: u32) -> &'t str {
        self.text.get(start as usize..end as usize).unwrap_or_default()
    }

    pub(super) fn byte(&self, offset: u32) -> Option<u8> {
        self.text.as_bytes().get(offset as usize).copied()
    }

    /// Returns the offset of the first byte at or after `offset` that is not white space or a comment.
    pub(super) fn skip(&self, offset: u32) -> u32 {
        let mut offset = offset;
        loop {
            let rest = self.text.get(offset as usize..).unwrap_or_default();
            let spaces = rest.len() - rest.trim_start_matches(is_space).len();
            offset += super::lines::narrow(spaces);
            match self.comment_at(offset) {
                Some(end) if end > offset => offset = end,
                _ => return offset,
            }
        }
    }

    /// Returns the end of the comment that starts at `offset`.
    fn comment_at(&self, offset: u32) -> Option<u32> {
        let index = self.comments.binary_search_by_key(&offset, |comment| comment.span.start).ok()?;
        self.comments.get(index).map(|comment| comment.span.end)
    }

    /// Returns the offset of `byte`, if it is the next token at or after `offset`.
    pub(super) fn find(&self, offset: u32, byte: u8) -> Option<u32> {
        let next = self.skip(offset);
        (self.byte(next) == Some(byte)).then_some(next)
    }

    /// Returns the word at `offset`, and the offset after it.
    pub(super) fn word(&self, offset: u32) -> (&'t str, u32) {
        let rest = self.text.get(offset as usize..).unwrap_or_default();
        let length =
            rest.find(|found: char| !found.is_alphanumeric() && found != '_' && found != '$').unwrap_or(rest.len());
        let end = offset + super::lines::narrow(length);
        (self.slice(offset, end), end)
    }

    pub(super) fn has_newline(&self, start: u32, end: u32) -> bool {
        self.slice(start, end).contains(['\n', '\r', '\u{2028}', '\u{2029}'])
    }
}

fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{FEFF}' | '\u{200B}')
}
