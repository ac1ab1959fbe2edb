//! A long request into its sentences: each may ask for a tool of its own.

/// More sentences than this are read only as part of the whole.
const MAX_SENTENCES: usize = 8;

/// A shorter sentence asks for nothing.
const MIN_WORDS: usize = 3;

/// Words that begin another request without a full stop.
const TURNS: [&str; 6] = ["and then ", "then ", "also ", "additionally ", "after that ", "finally "];

/// The sentences, where there are at least two.
pub(crate) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let next = letters.peek().map(|(_, next)| *next);
        let ends = match letter {
            '\n' | '。' | '？' | '！' => true,
            '.' | '?' | '!' | ';' => next.is_none_or(char::is_whitespace),
            ' ' => turns(text.get(at + 1..).unwrap_or_default()),
            _ => false,
        };
        if ends {
            keep(text, start, at, &mut found);
            start = at + letter.len_utf8();
        }
    }
    keep(text, start, text.len(), &mut found);
    if found.len() > 1 { found } else { Vec::new() }
}

fn turns(rest: &str) -> bool {
    TURNS.iter().any(|turn| rest.get(..turn.len()).is_some_and(|head| head.eq_ignore_ascii_case(turn)))
}

fn keep<'a>(text: &'a str, from: usize, to: usize, found: &mut Vec<&'a str>) {
    let sentence = text.get(from..to).unwrap_or_default();
    let words = sentence.split_whitespace().count();
    // Nor do scripts without spaces have words to count.
    if found.len() < MAX_SENTENCES && (words >= MIN_WORDS || (!sentence.is_ascii() && sentence.chars().count() > 5)) {
        found.push(sentence.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::sentences;

    #[test]
    fn a_request_of_several_sentences_is_taken_apart() {
        assert_eq!(sentences("Find the weather. Send it to Bob!"), ["Find the weather", "Send it to Bob"]);
        assert_eq!(
            sentences("Fetch the page at example.com and then save it to disk"),
            ["Fetch the page at example.com and", "then save it to disk"]
        );
    }

    #[test]
    fn a_single_request_stays_whole() {
        assert!(sentences("What is version 2.5 of a.b.c for?").is_empty());
        assert!(sentences("Thanks! Find me a flight").is_empty());
        assert!(sentences("").is_empty());
    }

    #[test]
    fn there_are_never_more_than_eight() {
        assert_eq!(sentences(&"do one more thing. ".repeat(100)).len(), 8);
    }
}
