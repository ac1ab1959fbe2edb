//! Checks that all tests named in `docs/contract.md` exist.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects all Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether a crate has this test in a file whose path contains its modules.
fn has_test(name: &str, path: &str) -> bool {
    let folder = root().join("crates").join(name);
    let (modules, test) = path.rsplit_once("::").unwrap_or(("", path));
    let mut files = Vec::new();
    if folder.is_dir() {
        sources(&folder, &mut files);
    }
    files.iter().any(|file| {
        let place = file.strip_prefix(&folder).unwrap().with_extension("");
        let parts: Vec<_> = place.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        modules.split("::").all(|module| module == "tests" || parts.iter().any(|part| part == module))
            && is_test(file, test)
    })
}

/// Whether the file has this function directly below a test attribute.
fn is_test(file: &Path, test: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let function = |line: &str| line.trim_start_matches("async ").starts_with(&format!("fn {test}("));
    lines.array_windows().any(|[above, line]| function(line) && above.starts_with("#[") && above.contains("test"))
}

fn has_heading(file: &str, heading: &str) -> bool {
    let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
    text.lines().any(|line| line.strip_prefix("## ") == Some(heading))
}

/// Returns the test names between backticks, each with whether its row is marked as pending.
fn names(map: &str) -> Vec<(String, bool)> {
    let rows = map.lines().filter(|line| line.starts_with("| "));
    rows.flat_map(|row| {
        let shown_by = row.split(" | ").nth(1).unwrap_or_default();
        let named = shown_by.split('`').skip(1).step_by(2).filter(|name| name.contains("::") || name.contains(".md: "));
        named.map(|name| (name.to_owned(), shown_by.starts_with("pending"))).collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn every_test_named_in_the_contract_map_exists() {
    let names = names(&std::fs::read_to_string(root().join("docs/contract.md")).unwrap());
    assert!(names.len() > 90, "too few test names were found: {names:?}");
    let missing: Vec<&String> =
        names.iter().filter(|(name, pending)| !pending && !exists(name)).map(|(name, _)| name).collect();
    assert_eq!(missing, [""; 0]);
}

fn exists(name: &str) -> bool {
    if let Some((file, heading)) = name.split_once(": ") {
        return has_heading(file, heading);
    }
    name.split_once(' ').is_some_and(|(name, path)| has_test(name, path))
}

#[test]
fn a_missing_test_is_detected() {
    assert!(exists("testkit contract_map::a_missing_test_is_detected"));
    assert!(exists("spec/cells/limits.md: An endless loop times out"));
    for wrong in [
        "testkit contract_map::no_such_test",
        "testkit hooks::a_missing_test_is_detected",
        "testkit contract_map::exists",
        "store contract_map::a_missing_test_is_detected",
        "spec/cells/limits.md: No such heading",
    ] {
        assert!(!exists(wrong), "{wrong}");
    }
}
