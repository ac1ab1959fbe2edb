//! The links of the reference, the cookbook and the internals: their targets exist, and every page is in an index.

use std::path::{Path, PathBuf};

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

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
}

fn broken(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let is_broken = |target: &String| {
        let (file, part) = target.split_once('#').map_or((target.as_str(), None), |(file, part)| (file, Some(part)));
        let path = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
        let Ok(linked) = std::fs::read_to_string(&path) else { return !path.exists() };
        part.is_some_and(|part| !linked.lines().any(|line| line.starts_with('#') && anchor(line) == part))
    };
    targets(&text).into_iter().filter(is_broken).map(|target| format!("{}: {target}", page.display())).collect()
}

#[test]
fn every_link_of_the_reference_the_cookbook_and_the_internals_leads_somewhere() {
    let broken: Vec<String> = FOLDERS.into_iter().flat_map(pages).flat_map(|page| broken(&page)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
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
