//! Splits a request into parts: each sentence, or each item of a short list, may ask for a different tool.

/// The maximum number of parts; further ones only count as part of the whole request.
const MAX_PARTS: usize = 8;

/// The minimum length of a sentence that can ask for a tool.
const MIN_SENTENCE_WORDS: usize = 3;

/// The minimum length of a list item that can ask for a tool; a single word is not a request.
const MIN_ITEM_WORDS: usize = 2;

/// The maximum length of a request that can be a list; in longer ones, commas are punctuation.
const MAX_LIST_WORDS: usize = 24;

/// Words that start another request without a full stop.
const TURNS: [&str; 6] = ["and then ", "then ", "also ", "additionally ", "after that ", "finally "];

/// Returns the sentences or, if there is only one, the list items; nothing if there are fewer than two parts.
pub(crate) fn parts(text: &str) -> Vec<&str> {
    let sentences = split(text, ends_sentence, MIN_SENTENCE_WORDS);
    if sentences.len() > 1 {
        return sentences;
    }
    if text.split_whitespace().take(MAX_LIST_WORDS + 1).count() > MAX_LIST_WORDS {
        return Vec::new();
    }
    let items = split(text, ends_item, MIN_ITEM_WORDS);
    if items.len() > 1 { items } else { Vec::new() }
}

fn ends_sentence(letter: char, rest: &str) -> bool {
    match letter {
        '\n' | '。' | '？' | '！' => true,
        '.' | '?' | '!' | ';' => rest.chars().next().is_none_or(char::is_whitespace),
        ' ' => TURNS.iter().any(|turn| begins(rest, turn)),
        _ => false,
    }
}

/// Recognises the list separators that agents use: `read a file, get its size + list the folder or find it`.
fn ends_item(letter: char, rest: &str) -> bool {
    match letter {
        '+' | '/' | '|' | '，' | '、' => true,
        ',' => rest.chars().next().is_none_or(char::is_whitespace),
        ' ' => begins(rest, "or "),
        _ => false,
    }
}

fn begins(text: &str, with: &str) -> bool {
    text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with))
}

fn split(text: &str, ends: fn(char, &str) -> bool, min_words: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        let after = at + letter.len_utf8();
        if ends(letter, text.get(after..).unwrap_or_default()) {
            found.push(text.get(start..at).unwrap_or_default());
            start = after;
        }
    }
    found.push(text.get(start..).unwrap_or_default());
    // Scripts without spaces have no words to count.
    let asks =
        |part: &&str| part.split_whitespace().count() >= min_words || (!part.is_ascii() && part.chars().count() > 5);
    let joined = |part: &'_ str| -> bool { ["and ", "or "].iter().any(|word| begins(part, word)) };
    let bare = |part| {
        let part: &str = str::trim(part);
        if joined(part) { part.split_once(' ').map_or(part, |(_, rest)| rest) } else { part }
    };
    found.into_iter().map(bare).filter(asks).take(MAX_PARTS).collect()
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn a_request_of_several_sentences_is_split() {
        assert_eq!(parts("Find the weather. Send it to Bob!"), ["Find the weather", "Send it to Bob"]);
        assert_eq!(
            parts("Fetch the page at example.com and then save it to disk"),
            ["Fetch the page at example.com", "then save it to disk"]
        );
    }

    #[test]
    fn a_list_of_requests_is_split() {
        assert_eq!(parts("read a file, list folder or find it"), ["read a file", "list folder", "find it"]);
        assert_eq!(parts("train schedule + fare information"), ["train schedule", "fare information"]);
    }

    #[test]
    fn a_single_request_stays_whole() {
        assert!(parts("What is version 2.5 of a.b.c for?").is_empty());
        assert!(parts("Thanks! Find me a flight").is_empty());
        assert!(parts("book a table for Ada, Bob, and Carl").is_empty());
        assert!(parts("").is_empty());
    }

    #[test]
    fn there_are_at_most_eight_parts() {
        assert_eq!(parts(&"do one more thing. ".repeat(100)).len(), 8);
    }
}
