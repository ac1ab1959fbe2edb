//! Distinguishes Python that a model wrote instead of a cell from a cell with a mistake.

/// Returns whether a source that does not parse is clearly Python: one line that only Python has is enough.
pub(super) fn looks_like(source: &str) -> bool {
    source.lines().map(str::trim).any(is_python)
}

fn is_python(line: &str) -> bool {
    const BLOCKS: [&str; 9] = ["def ", "class ", "if ", "elif ", "for ", "while ", "with ", "except ", "async def "];
    let opens_block = line.ends_with(':') && BLOCKS.iter().any(|start| line.starts_with(start));
    let is_word = |word: &str| word.chars().all(|letter| letter.is_alphanumeric() || "_., ".contains(letter));
    let imports = line.strip_prefix("import ").is_some_and(|name| is_word(name) && !name.contains(" from "));
    let from = line.strip_prefix("from ").and_then(|rest| rest.split_once(" import "));
    opens_block || imports || from.is_some_and(|(module, _)| is_word(module)) || ["try:", "else:"].contains(&line)
}

#[cfg(test)]
mod tests {
    use super::looks_like;

    #[test]
    fn only_lines_that_javascript_does_not_have_are_python() {
        for source in ["import os", "x = 1\nfor a in b:\n  pass", "from a.b import c", "def f(x):", "try:\n  f()"] {
            assert!(looks_like(source), "{source}");
        }
        let javascript = [
            "import os from 'os'",
            "import { a } from 'b'",
            "const x = = 1",
            "switch (x) { case 1: f(",
            "label:\nfor (;;) {",
            "if (a) { b(",
        ];
        for source in javascript {
            assert!(!looks_like(source), "{source}");
        }
    }
}
