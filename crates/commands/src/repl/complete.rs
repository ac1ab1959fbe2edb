//! Completion at the prompt: the names that a cell can use, and the dot commands.

use catalog::Catalog;
use contract::text::is_unsafe;
use contract::tool::Source;

use super::dot::COMMANDS;

/// The globals of every cell, besides those that depend on the tools.
const GLOBALS: [&str; 38] = [
    "ALL_TOOLS",
    "API.list",
    "API.read",
    "MCP.$api",
    "MCP.$search",
    "TextDecoder",
    "TextEncoder",
    "URL",
    "URLSearchParams",
    "atob",
    "audio",
    "await",
    "btoa",
    "bytes",
    "clearTimeout",
    "console.error",
    "console.info",
    "console.log",
    "console.warn",
    "const",
    "forget",
    "image",
    "json",
    "keys",
    "load",
    "namespaces",
    "output.grep",
    "output.json",
    "output.lines",
    "output.list",
    "output.read",
    "output.ref",
    "return",
    "setTimeout",
    "store",
    "structuredClone",
    "text",
    "yield_control",
];

const TOOLS: [&str; 3] = ["tools.call", "tools.describe", "tools.search"];

/// Everything that can be completed, as a cell writes it, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Vec<String>);

impl Names {
    pub(super) fn of(catalog: &Catalog) -> Self {
        let mut names: Vec<String> = GLOBALS.iter().chain(&TOOLS).map(|name| (*name).to_owned()).collect();
        for tool in catalog.tools() {
            match tool.id.source() {
                Source::Mcp => {
                    let Some(call) = catalog.called(tool) else { continue };
                    if let Some(server) = call.split('.').nth(1) {
                        names.push(format!("MCP.{server}.$api"));
                    }
                    names.push(call);
                }
                _ if is_identifier(tool.id.name()) => names.push(format!("tools.{}", tool.id.name())),
                _ => {}
            }
        }
        for namespace in catalog.namespaces().globals() {
            names.push(namespace.to_owned());
        }
        names.retain(|name| !name.contains(is_unsafe));
        names.sort_unstable();
        names.dedup();
        Self(names)
    }

    /// Returns where the word before the cursor begins, and what it can become. A name is completed part by part.
    pub(super) fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let before = line.get(..cursor).unwrap_or(line);
        if before.starts_with('.') && !before.contains(char::is_whitespace) {
            let commands = COMMANDS.iter().map(|(name, ..)| *name).filter(|name| name.starts_with(before));
            return (0, commands.map(str::to_owned).collect());
        }
        let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '_' | '$');
        let word = before.rsplit(|letter| !is_part(letter)).next().unwrap_or_default();
        if word.is_empty() {
            return (cursor, Vec::new());
        }
        let first = self.0.partition_point(|name| name.as_str() < word);
        let found = self.0.iter().skip(first).take_while(|name| name.starts_with(word));
        let mut completed: Vec<String> = found.map(|name| up_to_next_part(name, word.len()).to_owned()).collect();
        completed.dedup();
        (before.len() - word.len(), completed)
    }
}

/// Returns the name up to the end of the part that begins before `typed`, with the dot that follows.
fn up_to_next_part(name: &str, typed: usize) -> &str {
    let dot = name.get(typed..).and_then(|rest| rest.find('.'));
    dot.and_then(|dot| name.get(..=typed + dot)).unwrap_or(name)
}

fn is_identifier(name: &str) -> bool {
    let is_first = |letter: char| letter.is_alphabetic() || matches!(letter, '_' | '$');
    let mut letters = name.chars();
    letters.next().is_some_and(is_first) && letters.all(|letter| is_first(letter) || letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{GLOBALS, Names};

    fn names() -> Names {
        let more = ["MCP.files.read", "MCP.files.resources.list", "MCP.files.$api", "tools.shell", "tools.search"];
        let mut names: Vec<String> = GLOBALS.iter().chain(&more).map(|name| (*name).to_owned()).collect();
        names.sort_unstable();
        Names(names)
    }

    #[test]
    fn names_are_completed_part_by_part() {
        let cases: [(&str, usize, &[&str]); 12] = [
            ("MCP.f", 0, &["MCP.files."]),
            ("return await MCP.files.", 13, &["MCP.files.$api", "MCP.files.read", "MCP.files.resources."]),
            ("MCP.files.resources.", 0, &["MCP.files.resources.list"]),
            ("[tools.s", 1, &["tools.search", "tools.shell"]),
            ("out", 0, &["output."]),
            ("output.l", 0, &["output.lines", "output.list"]),
            ("f(sto", 2, &["store"]),
            ("x = ", 4, &[]),
            ("nothing", 0, &[]),
            (".t", 0, &[".tools"]),
            (".tools te", 7, &["text"]),
            ("a.tools", 0, &[]),
        ];
        for (line, start, expected) in cases {
            assert_eq!(names().complete(line, line.len()), (start, expected.iter().map(|s| (*s).to_owned()).collect()));
        }
        assert_eq!(names().complete("out + 1", 3).1, ["output."], "the cursor may be within the line");
        assert!(GLOBALS.is_sorted());
    }
}
