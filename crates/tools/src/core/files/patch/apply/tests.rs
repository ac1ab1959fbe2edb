use proptest::prelude::*;
use proptest::sample::select;

use super::super::parse::{Section, parse};
use super::{Problem, apply};

/// Applies the hunks of a patch to a file.
fn patched(content: &str, hunks: &str) -> Result<String, Problem> {
    let patch = format!("*** Begin Patch\n*** Update File: f\n{hunks}\n*** End Patch");
    let sections = parse(&patch).unwrap();
    let [Section::Update { hunks, .. }] = sections.as_slice() else { panic!("{sections:?}") };
    apply(content.as_bytes(), hunks).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn hunks_replace_insert_and_remove_lines() {
    let file = "one\ntwo\nthree\nfour\n";
    for (hunks, expected) in [
        ("@@\n one\n-two\n+2\n three", "one\n2\nthree\nfour\n"),
        (" one\n-two\n three", "one\nthree\nfour\n"),
        ("@@ two\n+2.5", "one\ntwo\n2.5\nthree\nfour\n"),
        ("@@\n+five", "one\ntwo\nthree\nfour\nfive\n"),
        ("@@\n-one\n+1\n@@\n-four\n+4", "1\ntwo\nthree\n4\n"),
        ("@@\n-four\n+4\n*** End of File", "one\ntwo\nthree\n4\n"),
        ("@@ three\n three\n-four", "one\ntwo\nthree\n"),
        ("@@ -1,2 +1,2 @@\n one\n-two\n+2", "one\n2\nthree\nfour\n"),
        ("@@\n-two\n+2\n\n", "one\n2\nthree\nfour\n"),
    ] {
        assert_eq!(patched(file, hunks).unwrap(), expected, "{hunks}");
    }
    assert_eq!(patched("", "@@\n+first").unwrap(), "first\n");
}

#[test]
fn lines_that_are_kept_stay_as_they_are_in_the_file() {
    // The patch has other space and quotes than the file.
    assert_eq!(
        patched("\tkeep  \n\u{201c}a\u{201d}\nx\n", "@@\n keep\n \"a\"\n-x\n+y").unwrap(),
        "\tkeep  \n\u{201c}a\u{201d}\ny\n"
    );
    // Added lines get the line breaks of the file, others keep theirs.
    assert_eq!(patched("a\r\nb\nc", "@@\n a\n-b\n+B").unwrap(), "a\r\nB\r\nc");
    // A last line without a line break gets one only if a line follows.
    assert_eq!(patched("a\nb", "@@\n b\n+c").unwrap(), "a\nb\nc\n");
    assert_eq!(patched("a\nb", "@@\n-a\n+A").unwrap(), "A\nb");
    assert_eq!(patched("a\nb", "@@\n-b\n+B").unwrap(), "a\nB\n");
}

#[test]
fn the_place_of_a_hunk_is_found_after_the_line_that_it_names() {
    let file = "class A:\n  def f():\n    pass\nclass B:\n  def f():\n    pass\n";
    let done = patched(file, "@@ class B:\n@@ def f():\n-    pass\n+    return 1").unwrap();
    assert_eq!(done, "class A:\n  def f():\n    pass\nclass B:\n  def f():\n    return 1\n");
}

#[test]
fn a_hunk_without_a_place_is_refused_with_its_line() {
    let file = "one\ntwo\nthree\n";
    assert_eq!(patched(file, "@@ zero\n-one"), Err(Problem::NoPlace { number: 3, line: "zero".to_owned() }));
    let absent = Problem::NoLines { number: 3, line: "2".to_owned(), is_before: false };
    assert_eq!(patched(file, "@@\n one\n-2"), Err(absent));
    let before = Problem::NoLines { number: 6, line: "one".to_owned(), is_before: true };
    assert_eq!(patched(file, "@@\n-two\n+2\n@@\n-one"), Err(before));
    let not_last = Problem::NoLines { number: 3, line: "two".to_owned(), is_before: false };
    assert_eq!(patched(file, "@@\n-two\n*** End of File"), Err(not_last));
    assert_eq!(patched(&"\n".repeat(500_001), "@@\n+x"), Err(Problem::TooManyLines));
}

/// What happens to one line of a file, and the lines that are inserted before it.
#[derive(Clone, Debug)]
struct Fate {
    before: Vec<String>,
    line: String,
    is_removed: bool,
}

fn line() -> impl Strategy<Value = String> {
    let parts = select(vec!["a", "b", " ", "+", "-", "@@", "*** ", "\t", "é", "x y"]);
    proptest::collection::vec(parts, 0..4).prop_map(|parts| parts.concat())
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = (proptest::collection::vec(line(), 0..3), line(), any::<bool>());
    let fate = fate.prop_map(|(before, line, is_removed)| Fate { before, line, is_removed });
    proptest::collection::vec(fate, 1..20)
}

fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the file after the changes.
fn expected(fates: &[Fate]) -> String {
    joined(fates.iter().flat_map(|fate| {
        let kept = (!fate.is_removed).then_some(fate.line.as_str());
        fate.before.iter().map(String::as_str).chain(kept)
    }))
}

fn signed(fate: &Fate, is_blank_line_bare: bool) -> String {
    let mut text: String = fate.before.iter().map(|line| format!("+{line}\n")).collect();
    let sign = if fate.is_removed { "-" } else { " " };
    let line = if fate.line.is_empty() && !fate.is_removed && is_blank_line_bare {
        String::new()
    } else {
        format!("{sign}{}", fate.line)
    };
    text.push_str(&line);
    text.push('\n');
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// One hunk with every line of the file, which may repeat and look like parts of a patch.
    #[test]
    fn a_hunk_with_all_lines_gives_exactly_its_lines(fates in fates(), bare in any::<bool>()) {
        let file = joined(fates.iter().map(|fate| fate.line.as_str()));
        // Blank lines without a sign at the end of a hunk separate sections.
        let bare = bare && fates.last().is_some_and(|fate| !fate.line.is_empty());
        let hunk: String = fates.iter().map(|fate| signed(fate, bare)).collect();
        prop_assert_eq!(patched(&file, &format!("@@\n{}", hunk.trim_end_matches('\n'))).unwrap(), expected(&fates));
    }

    /// One hunk for each change, with one line around it, in a file whose lines are all different.
    #[test]
    fn a_hunk_for_each_change_finds_its_place(fates in fates(), windows in any::<bool>()) {
        let mut fates = fates;
        for (number, fate) in fates.iter_mut().enumerate() {
            fate.line = format!("line {number} {}", fate.line.replace(['@', '*'], ""));
        }
        let file = joined(fates.iter().map(|fate| fate.line.as_str()));
        let mut hunks = String::new();
        let mut covered = 0;
        for (number, fate) in fates.iter().enumerate() {
            if number < covered || (fate.before.is_empty() && !fate.is_removed) {
                continue;
            }
            hunks.push_str("@@\n");
            if number > covered {
                hunks.push_str(&format!(" {}\n", fates[number - 1].line));
            }
            hunks.push_str(&signed(fate, false));
            covered = number + 1;
        }
        prop_assume!(!hunks.is_empty());
        let (file, wanted) = match windows {
            true => (file.replace('\n', "\r\n"), expected(&fates).replace('\n', "\r\n")),
            false => (file, expected(&fates)),
        };
        prop_assert_eq!(patched(&file, hunks.trim_end_matches('\n')).unwrap(), wanted);
    }

    /// Whatever a model writes, parsing and applying end without a panic.
    #[test]
    fn any_patch_is_parsed_and_applied_or_refused(lines in proptest::collection::vec(line(), 0..30), file in proptest::collection::vec(line(), 0..10)) {
        let patch = format!("*** Begin Patch\n*** Update File: f\n{}\n*** End Patch", lines.join("\n"));
        if let Ok(sections) = parse(&patch) {
            for section in &sections {
                if let Section::Update { hunks, .. } = section {
                    drop(apply(file.join("\n").as_bytes(), hunks));
                }
            }
        }
    }
}
