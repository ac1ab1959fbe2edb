//! Globs: `*` matches any text, `?` one character, every other character itself.

use std::str::Chars;

/// Returns whether the pattern matches the whole text. Case-sensitive.
pub fn matches(pattern: &str, text: &str) -> bool {
    walk(pattern, text, |wanted, found| wanted == found).matched
}

/// Returns whether the pattern matches the whole text, without regard to the case of ASCII letters.
pub(super) fn matches_any_case(pattern: &str, text: &str) -> bool {
    walk(pattern, text, |wanted, found| wanted.eq_ignore_ascii_case(&found)).matched
}

struct GlobMatch {
    matched: bool,
    /// At most the product of both lengths, each plus one, for any pattern.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests check the bound above"))]
    steps: usize,
}

/// Retries only the last `*`, one character further each time: an earlier one could not match more than it did. So
/// there is no recursion, and no pattern takes more steps than the product of the lengths.
fn walk(pattern: &str, text: &str, is_same: impl Fn(char, char) -> bool) -> GlobMatch {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut last_star: Option<(Chars<'_>, Chars<'_>)> = None;
    let mut steps = 0;
    let matched = loop {
        steps += 1;
        let here = text.clone();
        match (pattern.next(), text.next()) {
            (None, None) => break true,
            (Some('*'), _) => {
                text = here;
                last_star = Some((pattern.clone(), text.clone()));
            }
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if is_same(wanted, found) => {}
            // The rest of the text is too short, and a later start would leave even less.
            (Some(_), None) => break false,
            (Some(_) | None, Some(_)) => {
                let Some((after_star, start)) = &mut last_star else { break false };
                // `start` is not at its end: this attempt has read a character past it.
                start.next();
                pattern = after_star.clone();
                text = start.clone();
            }
        }
    };
    GlobMatch { matched, steps }
}

#[cfg(test)]
mod tests {
    use super::{matches, matches_any_case, walk};

    #[test]
    fn globs_match_whole_texts() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("*", "", true),
            ("*", "mcp:github:x", true),
            ("**", "", true),
            ("?", "", false),
            ("?", "é", true),
            ("?", "ab", false),
            ("exec", "exec", true),
            ("exec", "Exec", false),
            ("exec", "exec2", false),
            ("exec*", "exec", true),
            ("*_file", "read_file", true),
            ("*_file", "read_files", false),
            ("mcp:github:*", "mcp:github:create_issue", true),
            ("mcp:github:*", "mcp:gitlab:create_issue", false),
            ("mcp:*:delete_*", "mcp:a:b:delete_it", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*aab", "aaaab", true),
            ("*?b", "b", false),
            ("[ab]", "a", false),
            ("a\\*", "a\\b", true),
            ("?*", "*", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
        for (pattern, text, expected) in [("Exec*", "eXEC2", true), ("é", "É", false), ("exec", "exe", false)] {
            assert_eq!(matches_any_case(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// Returns every word of these letters up to a length.
    fn words(letters: &str, longest: usize) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut start = 0;
        for _ in 0..longest {
            let end = words.len();
            for position in start..end {
                words.extend(letters.chars().map(|letter| format!("{}{letter}", words[position])).collect::<Vec<_>>());
            }
            start = end;
        }
        words
    }

    /// The textbook definition, one case per line.
    fn oracle(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=text.len()).any(|taken| oracle(rest, &text[taken..])),
            (['?', pattern @ ..], [_, text @ ..]) => oracle(pattern, text),
            ([wanted, pattern @ ..], [found, text @ ..]) => wanted == found && oracle(pattern, text),
            ([], _) | (_, []) => false,
        }
    }

    #[test]
    fn every_short_glob_agrees_with_the_definition_and_keeps_the_bound() {
        let texts = words("ab", 5);
        for pattern in words("ab*?", 5) {
            let letters: Vec<char> = pattern.chars().collect();
            for text in &texts {
                let walked = walk(&pattern, text, |one, other| one == other);
                let expected = oracle(&letters, &text.chars().collect::<Vec<_>>());
                assert_eq!(walked.matched, expected, "{pattern} {text}");
                assert!(walked.steps <= (pattern.len() + 1) * (text.len() + 1), "{pattern} {text} {}", walked.steps);
            }
        }
    }

    #[test]
    fn hostile_patterns_take_no_more_than_the_product_of_lengths() {
        let text = "a".repeat(4_000);
        let patterns = [
            format!("{}b", "*a".repeat(127)),
            format!("{}b", "*?a".repeat(85)),
            format!("*{}b", "a".repeat(254)),
            format!("*{}b", "?".repeat(254)),
            format!("{}b", "*".repeat(255)),
            format!("*{}*{}b", "a".repeat(126), "a".repeat(126)),
        ];
        for pattern in patterns {
            let walked = walk(&pattern, &text, |one, other| one == other);
            assert!(!walked.matched, "{pattern}");
            assert!(walked.steps <= (pattern.len() + 1) * (text.len() + 1), "{pattern} {}", walked.steps);
        }
    }
}
