use proptest::prelude::*;
use proptest::sample::select;

use super::{Problem, Replacement, Span, diff, plan, splice};

fn apply(content: &str, edits: &[(&str, &str)]) -> Result<String, Problem> {
    let edits: Vec<Replacement<'_>> = edits.iter().map(|(old, new)| Replacement { old, new }).collect();
    let spans = plan(content.as_bytes(), &edits)?;
    let changed = splice(content.as_bytes(), 0..content.len(), &spans);
    Ok(String::from_utf8(changed).unwrap())
}

#[test]
fn all_texts_are_looked_for_in_the_file_as_it_is_before() {
    assert_eq!(apply("a b c", &[("c", "a"), ("a", "x")]).unwrap(), "x b a");
    assert_eq!(apply("one two", &[("two", ""), ("one", "two")]).unwrap(), "two ");
}

#[test]
fn a_text_that_is_not_there_once_is_refused() {
    assert_eq!(apply("a\na\n", &[("a", "b")]), Err(Problem::Ambiguous(0, vec![0, 1])));
    assert_eq!(apply("aaa", &[("aa", "b")]), Err(Problem::Ambiguous(0, vec![0, 0])), "overlapping places count");
    assert_eq!(apply("abc", &[("b", "x"), ("d", "b")]), Err(Problem::NotFound(1)));
    assert_eq!(apply("abc", &[("b", "b")]), Err(Problem::NoChange(0)));
    assert_eq!(apply("abcd", &[("bc", "x"), ("ab", "y")]), Err(Problem::Overlap(0, 1)));
}

#[test]
fn line_breaks_and_byte_order_mark_stay() {
    let windows = "\u{feff}one\r\ntwo\r\nthree\r\n";
    assert_eq!(apply(windows, &[("one\ntwo", "1\n2\n2b")]).unwrap(), "\u{feff}1\r\n2\r\n2b\r\nthree\r\n");
    assert_eq!(apply(windows, &[("one\r\ntwo", "1")]).unwrap(), "\u{feff}1\r\nthree\r\n");
    // Lines that are not replaced keep their line breaks, even if a file has both kinds.
    assert_eq!(apply("a\nb\r\nc\n", &[("b\nc", "x\ny")]).unwrap(), "a\nx\ny\n");
    assert_eq!(apply("a\r\nb\nc\n", &[("c", "d")]).unwrap(), "a\r\nb\nd\n");
}

#[test]
fn whole_lines_are_found_without_their_trailing_space_and_typography() {
    assert_eq!(apply("x = 1  \ny = 2\n", &[("x = 1\ny = 2", "z")]).unwrap(), "z\n");
    assert_eq!(apply("say \u{201c}hi\u{201d}\n", &[("say \"hi\"\n", "bye\n")]).unwrap(), "bye\n");
    // Another indentation is another text, and so are two such places.
    assert_eq!(apply("  \u{201c}x\u{201d}\n", &[("\"x\" ", "y")]), Err(Problem::NotFound(0)));
    assert_eq!(apply("x  \ny\nx \n", &[("x\t\n", "z")]), Err(Problem::NotFound(0)));
}

#[test]
fn bytes_that_are_not_text_stay() {
    let content = b"\xff\xfe one\n\xc3\x28 two\n";
    let spans = plan(content, &[Replacement { old: "two", new: "2" }]).unwrap();
    assert_eq!(splice(content, 0..content.len(), &spans), b"\xff\xfe one\n\xc3\x28 2\n");
}

#[test]
fn the_difference_names_the_changed_lines() {
    let content = b"a\nb\nc\nd\n";
    let spans = plan(content, &[Replacement { old: "b\n", new: "" }, Replacement { old: "d", new: "x\ny" }]).unwrap();
    assert_eq!(diff(content, &spans), "@@ -2,1 +2,0 @@\n-b\n@@ -4,1 +3,2 @@\n-d\n+x\n+y\n");
    let long = format!("{}\n", "q".repeat(100_000));
    let spans = [Span { range: 0..10, new: Vec::new() }];
    assert!(diff(long.as_bytes(), &spans).len() < 25_000);
}

#[test]
fn an_error_names_the_most_similar_line() {
    let edits = [Replacement { old: "let valeu = 1;", new: "" }];
    let message = Problem::NotFound(0).explain("a.rs", b"fn f() {\n    let value = 1;\n}\n", &edits);
    assert!(message.contains("line is 2: `let value = 1;`"), "{message}");
}

/// Texts over few letters, so that the same text often occurs several times.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(select(vec!["a", "b", "\n", "é", " ", "ab"]), 1..40).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The reference is the standard library's replacement, on a text in which the old text occurs once.
    #[test]
    fn a_replacement_equals_that_of_the_standard_library(content in text(), new in text(), from in 0_usize..40, length in 1_usize..8) {
        let letters: Vec<char> = content.chars().collect();
        let old: String = letters.iter().skip(from % letters.len()).take(length).collect();
        let places = content.char_indices().filter(|(at, _)| content[*at..].starts_with(&old)).count();
        let done = apply(&content, &[(&old, &new)]);
        if places > 1 {
            prop_assert!(matches!(done, Err(Problem::Ambiguous(0, _))));
        } else if old == new {
            prop_assert_eq!(done, Err(Problem::NoChange(0)));
        } else {
            prop_assert_eq!(done.unwrap(), content.replacen(&old, &new, 1));
            // With other line breaks, the result is the same with these line breaks.
            if content.contains('\n') {
                let windows = content.replace('\n', "\r\n");
                let expected = content.replacen(&old, &new, 1).replace('\n', "\r\n");
                prop_assert_eq!(apply(&windows, &[(&old, &new)]).unwrap(), expected);
            }
        }
    }

    /// Several replacements equal single ones from the last to the first.
    #[test]
    fn several_replacements_equal_single_ones(count in 1_usize..12, chosen in proptest::collection::vec((0_usize..12, text()), 1..6)) {
        let content: String = (0..count).map(|number| format!("line {number};\n")).collect();
        let mut edits: Vec<(String, String)> = Vec::new();
        for (number, new) in chosen {
            let old = format!("line {};", number % count);
            if edits.iter().all(|(known, _)| *known != old) && new != old {
                edits.push((old, new));
            }
        }
        let given: Vec<(&str, &str)> = edits.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
        let mut expected = content.clone();
        let mut sorted = given.clone();
        sorted.sort_by_key(|(old, _)| std::cmp::Reverse(content.find(old)));
        for (old, new) in sorted {
            let at = content.find(old).unwrap();
            expected.replace_range(at..at + old.len(), new);
        }
        prop_assert_eq!(apply(&content, &given).unwrap(), expected);
    }
}
