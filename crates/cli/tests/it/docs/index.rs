//! Every page of the reference, the cookbook and the internals is in an index.

use std::path::PathBuf;

use super::guide::links;
use super::{pages, root};

const FOLDERS: [&str; 4] = ["docs/reference", "docs/reference/errors", "docs/cookbook", "docs/internals"];

#[test]
fn every_page_is_in_the_index_of_its_folder() {
    for folder in FOLDERS {
        let index = links(&std::fs::read_to_string(root().join(folder).join("README.md")).unwrap());
        let missing: Vec<PathBuf> = pages(folder)
            .into_iter()
            .filter(|page| !page.ends_with("README.md"))
            .filter(|page| !index.iter().any(|(_, target)| *target == *page.file_name().unwrap().to_string_lossy()))
            .collect();
        assert!(missing.is_empty(), "{folder}/README.md does not name {missing:?}");
    }
}
