//! The words of a cell's source, to find out which servers it names.

use std::collections::BTreeSet;

/// The words of a source, in one spelling: without case and without the characters that spellings of a name differ in.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedWords(BTreeSet<String>);

impl NamedWords {
    pub(crate) fn of(source: &str) -> Self {
        let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == '$';
        let words = source.split(|c: char| !is_part(c));
        // `mcp__files__read` names `files`, and `my_files` names `my-files`.
        let parts = words.flat_map(|word| word.split("__").chain(word.split(['_', '-', '$'])).chain([word]));
        Self(parts.map(plain).filter(|word| !word.is_empty()).collect())
    }

    /// Whether one of the words is this name, in any spelling.
    pub(crate) fn contain(&self, name: &str) -> bool {
        self.0.contains(&plain(name))
    }
}

fn plain(word: &str) -> String {
    word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::NamedWords;

    #[test]
    fn a_server_is_named_in_any_spelling_and_not_by_a_part_of_a_word() {
        let names = |source: &str, name: &str| NamedWords::of(source).contain(name);
        for source in
            ["MCP.myFiles.read()", "tools.call('mcp:my-files:read')", "tools.mcp__my_files__read()", "my_files"]
        {
            assert!(names(source, "my-files"), "{source}");
        }
        assert!(names("MCP.exampleCom.read()", "example.com") && names("MCP.Time.now()", "time"));
        for source in ["setTimeout(f)", "return 1", "times", ""] {
            assert!(!names(source, "time"), "{source}");
        }
    }
}
