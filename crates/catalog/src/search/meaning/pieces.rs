//! Splits words into the pieces that the table contains: the longest known prefix, then the longest known continuation.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::table::EmbeddingTable;

/// The maximum length of a word.
const MAX_WORD_CHARS: usize = 64;

impl EmbeddingTable {
    /// Calls `each` for every known piece of the text; words that cannot be composed of pieces are skipped.
    pub(super) fn pieces_of(&self, text: &str, mut each: impl FnMut(u32)) {
        let mut word = String::new();
        for letter in text.chars() {
            if letter.is_alphanumeric() && !stands_alone(letter) {
                // The table's words have no accents.
                word.extend(letter.to_lowercase().nfd().filter(|letter| !is_combining_mark(*letter)));
                continue;
            }
            self.pieces_of_word(&word, &mut each);
            word.clear();
            if !letter.is_whitespace() {
                let mut alone = [0; 4];
                if let Some(piece) = self.piece(letter.encode_utf8(&mut alone)) {
                    each(piece);
                }
            }
        }
        self.pieces_of_word(&word, &mut each);
    }

    fn pieces_of_word(&self, word: &str, each: &mut impl FnMut(u32)) {
        if word.is_empty() || word.chars().nth(MAX_WORD_CHARS).is_some() {
            return;
        }
        if let Some(piece) = self.piece(word) {
            return each(piece);
        }
        let mut found = Vec::new();
        let mut from = 0;
        let mut written = String::new();
        while from < word.len() {
            let Some((piece, to)) = self.longest(word, from, &mut written) else { return };
            found.push(piece);
            from = to;
        }
        found.into_iter().for_each(each);
    }

    fn longest(&self, word: &str, from: usize, written: &mut String) -> Option<(u32, usize)> {
        let ends = word.char_indices().map(|(at, _)| at).chain([word.len()]).filter(|end| *end > from);
        let mut ends: Vec<usize> = ends.collect();
        while let Some(to) = ends.pop() {
            written.clear();
            if from > 0 {
                written.push_str("##");
            }
            written.push_str(word.get(from..to)?);
            if let Some(piece) = self.piece(written) {
                return Some((piece, to));
            }
        }
        None
    }
}

/// Ideographs are words by themselves.
fn stands_alone(letter: char) -> bool {
    matches!(letter, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}
