//! A request into its parts: each sentence, or each of several wishes in a short one, may ask for a tool of its own.

/// More parts than this are read only as part of the whole.
const MAX_PARTS: usize = 8;

/// A shorter sentence asks for nothing.
const MIN_SENTENCE_WORDS: usize = 3;

/// A shorter wish is a word of a list.
const MIN_WISH_WORDS: usize = 2;

/// In longer requests commas are only commas.
const MAX_WISHES_WORDS: usize = 24;

/// Words that begin another request without a full stop.
const TURNS: [&str; 6] = ["and then ", "then ", "also ", "additionally ", "after that ", "finally "];

/// The sentences; without them the wishes; none where there are not at least two.
pub(crate) fn parts(text: &str) -> Vec<&str> {
    let sentences = split(text, ends_sentence, MIN_SENTENCE_WORDS);
    if sentences.len() > 1 {
        return sentences;
    }
    if text.split_whitespace().take(MAX_WISHES_WORDS + 1).count() > MAX_WISHES_WORDS {
        return Vec::new();
    }
    let wishes = split(text, ends_wish, MIN_WISH_WORDS);
    if wishes.len() > 1 { wishes } else { Vec::new() }
}

fn ends_sentence(letter: char, rest: &str) -> bool {
    match letter {
        '\n' | '。' | '？' | '！' => true,
        '.' | '?' | '!' | ';' => rest.chars().next().is_none_or(char::is_whitespace),
        ' ' => TURNS.iter().any(|turn| begins(rest, turn)),
        _ => false,
    }
}

/// As agents write: `read a file, get its size + list the folder or find it`.
fn ends_wish(letter: char, rest: &str) -> bool {
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
    fn a_request_is_split_into_at_most_eight_parts() {
        assert_eq!(parts(&"do one more thing. ".repeat(100)).len(), 8);
    }
}
