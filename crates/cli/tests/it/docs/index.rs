//! Every page of the reference, the cookbook and the internals is in an index.

use std::path::PathBuf;

use super::{pages, root};

const FOLDERS: [&str; 4] = ["docs/reference", "docs/reference/errors", "docs/cookbook", "docs/internals"];

/// Returns the targets of the links of a page, without those in code.
fn targets(text: &str) -> Vec<String> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let prose: Vec<&str> = if is_code { Vec::new() } else { line.split("](").skip(1).collect() };
        found.extend(prose.into_iter().filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()));
    }
    found.retain(|target| !target.contains("://") && !target.is_empty());
    found
}

#[test]
fn every_page_is_in_the_index_of_its_folder() {
    for folder in FOLDERS {
        let index = targets(&std::fs::read_to_string(root().join(folder).join("README.md")).unwrap());
        let missing: Vec<PathBuf> = pages(folder)
            .into_iter()
            .filter(|page| !page.ends_with("README.md"))
            .filter(|page| !index.iter().any(|target| *target == *page.file_name().unwrap().to_string_lossy()))
            .collect();
        assert!(missing.is_empty(), "{folder}/README.md does not name {missing:?}");
    }
}
