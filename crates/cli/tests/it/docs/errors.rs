//! `docs/reference/errors`: one page for each error code, and none for others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use contract::error::ErrorCode;

use super::{pages, read, root};

/// The text in front of a code in the gateway's errors for programs.
const API_ERRORS: [&str; 3] = ["ApiError::new(", "Self::new(", "refused("];

/// The codes that a search of the source must find, so that it cannot find nothing unnoticed.
const KNOWN: [&str; 8] = [
    "value_too_deep",
    "version_conflict",
    "host_busy",
    "model_not_found",
    "overloaded_error",
    "not_pending",
    "tool_timeout",
    "mcp_resource_not_found",
];

/// Returns the Rust files below a folder, without those of tests.
fn sources(folder: &str) -> Vec<String> {
    fn add(folder: &Path, files: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true if !path.ends_with("tests") => add(&path, files),
                false if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") => {
                    files.push(path)
                }
                _ => {}
            }
        }
    }
    let mut files = Vec::new();
    add(&root().join(folder), &mut files);
    let without_tests = |text: String| text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
    files.into_iter().map(|file| without_tests(std::fs::read_to_string(file).unwrap())).collect()
}

fn is_code(word: &str) -> bool {
    word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Returns the texts in quotes that may be codes.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('"').skip(1).step_by(2).filter(|word| is_code(word)).map(str::to_owned)
}

/// Returns the first text in quotes after each place where `mark` is, within the same statement.
fn after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = String> + 'a {
    text.split(mark).skip(1).filter_map(|rest| quoted(rest.split([';', '\n']).next().unwrap_or_default()).next())
}

/// Returns the bodies of the functions with this name.
fn bodies<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let parts: Vec<&str> = text.split(&format!("fn {name}(")).skip(1).collect();
    parts.into_iter().map(|rest| rest.split("\n    }\n").next().unwrap_or_default()).collect()
}

/// The codes of errors that a cell can catch.
fn of_calls() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for text in ["crates/executor/src", "crates/codemode/src", "crates/sandbox/src"].into_iter().flat_map(sources) {
        if !text.contains("reject_with_code")
            && !text.contains("`code` of the error")
            && !text.contains("code of the error")
        {
            continue;
        }
        codes.extend(after(&text, "reject_with_code("));
        codes.extend(after(&text, "const TOO_LARGE: &str ="));
        for body in ["code", "reply", "answer"].into_iter().flat_map(|name| bodies(&text, name)) {
            codes.extend(body.lines().filter(|line| line.contains("=> \"")).flat_map(quoted));
        }
    }
    let prelude = read("guest/prelude/host.js");
    let refusals = prelude.split("const refusals = [").nth(1).unwrap().split("];").next().unwrap();
    codes.extend(quoted(refusals));
    codes
}

/// The codes of the gateway: of the wires of models, and of its interface for programs.
fn of_the_gateway() -> BTreeSet<String> {
    let writer = read("crates/wire/src/downstream/writer.rs");
    let of_wires = ["openai", "responses", "anthropic_type"].into_iter().flat_map(|name| bodies(&writer, name));
    // Fields of the body, such as `message`, have no underscore.
    let mut codes: BTreeSet<String> =
        of_wires.flat_map(quoted).filter(|word| word.contains('_') || word == "aborted").collect();
    for text in sources("crates/gateway/src") {
        codes.extend(after(&text, ".with_code("));
    }
    for text in sources("crates/gateway/src/api") {
        API_ERRORS.iter().for_each(|mark| codes.extend(after(&text, mark)));
    }
    codes
}

/// The errors of the MCP server, by the protocol library's names.
fn of_mcp() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for text in sources("crates/mcp/src/server") {
        for rest in text.split("ErrorData::").skip(1) {
            let end = rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_').unwrap_or(rest.len());
            let name = rest.split_at(end).0;
            codes.extend((name.len() > 3).then(|| format!("mcp_{name}")));
        }
    }
    codes
}

#[test]
fn every_error_code_has_a_page_and_every_page_a_code() {
    let of_cells = ErrorCode::ALL.into_iter().map(|code| code.as_str().to_owned());
    let codes: BTreeSet<String> = of_cells.chain(of_calls()).chain(of_the_gateway()).chain(of_mcp()).collect();
    let unfound: Vec<&str> = KNOWN.into_iter().filter(|code| !codes.contains(*code)).collect();
    assert!(unfound.is_empty(), "the search of the source does not find {unfound:?}");
    let documented: BTreeSet<String> = pages("docs/reference/errors")
        .iter()
        .map(|page| page.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "README")
        .collect();
    let missing: Vec<_> = codes.difference(&documented).collect();
    let superfluous: Vec<_> = documented.difference(&codes).collect();
    assert!(
        missing.is_empty() && superfluous.is_empty(),
        "without a page: {missing:?}; without a code: {superfluous:?}"
    );
}

#[test]
fn every_page_of_an_error_has_the_same_parts_and_is_in_the_index() {
    let index = read("docs/reference/errors/README.md");
    for page in pages("docs/reference/errors").into_iter().filter(|page| !page.ends_with("README.md")) {
        let (name, text) = (page.file_stem().unwrap().to_str().unwrap(), std::fs::read_to_string(&page).unwrap());
        assert!(index.contains(&format!("[`{name}`]({name}.md)")), "{name} is not in the index");
        assert!(text.starts_with(&format!("# {name}\n\n")), "{name}");
        for part in ["\nIt is ", "\n## When it happens\n", "\n## What to do\n", "\n## Example\n\n```text\n"] {
            assert!(text.contains(part), "{name} has no part {part:?}");
        }
    }
}
