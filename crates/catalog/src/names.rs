//! The JavaScript names of tools in a cell.

use std::collections::BTreeMap;

use contract::tool::{Source, ToolSpec};

/// Names that a convenience function must not have: helpers of `tools` and properties of every object.
const RESERVED_CONVENIENCE_NAMES: [&str; 12] = [
    "search",
    "describe",
    "call",
    "then",
    "__proto__",
    "constructor",
    "prototype",
    "toString",
    "valueOf",
    "hasOwnProperty",
    "toJSON",
    "",
];

/// Words of JavaScript that cannot be identifiers.
pub(crate) const JS_RESERVED_WORDS: [&str; 46] = [
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// Returns the name of a tool's function on `tools`; `None` if the name is reserved. Other tools may claim the same name.
pub fn convenience_name(name: &str) -> Option<String> {
    let mut safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '$' { c } else { '_' }).collect();
    if safe.starts_with(|c: char| c.is_ascii_digit()) {
        safe.insert(0, '_');
    }
    (!RESERVED_CONVENIENCE_NAMES.contains(&safe.as_str())).then_some(safe)
}

/// Returns the convenience names that only one tool claims, with that tool's position. Tools of MCP servers have none:
/// they are called as `MCP.<server>.<tool>`.
pub(crate) fn unique_convenience_names(tools: &[ToolSpec]) -> BTreeMap<String, usize> {
    let mut claims: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (position, tool) in tools.iter().enumerate().filter(|(_, tool)| tool.id.source() != Source::Mcp) {
        if let Some(name) = convenience_name(tool.id.name()) {
            claims.entry(name).or_default().push(position);
        }
    }
    claims
        .into_iter()
        .filter_map(|(name, claimants)| match claimants.as_slice() {
            [only] => Some((name, *only)),
            _ => None,
        })
        .collect()
}

/// Converts the name of an MCP server or of its tool into an identifier: `create_issue` → `createIssue`, `GitHub` →
/// `gitHub`. Returns `fallback` if no letter remains. The result may be a reserved word.
pub fn mcp_identifier(name: &str, fallback: &str) -> String {
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut identifier =
        words.next().map(|word| change_first_letter(word, char::to_ascii_lowercase)).unwrap_or_default();
    words.for_each(|word| identifier.push_str(&change_first_letter(word, char::to_ascii_uppercase)));
    let identifier = identifier.trim_start_matches(|c: char| c.is_ascii_digit());
    if identifier.is_empty() { fallback.to_owned() } else { change_first_letter(identifier, char::to_ascii_lowercase) }
}

fn change_first_letter(word: &str, change: fn(&char) -> char) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| change(&first)).into_iter().chain(letters).collect()
}
