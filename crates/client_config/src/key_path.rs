//! The path of a value in a configuration, as people and error messages write it: `tools.byProvider["a/b"].deny[0]`.

use std::fmt;

use contract::config::Path;

use crate::json5;
use crate::tree::Tree;

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    fn key(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key),
            Self::Index(_) => None,
        }
    }

    /// Returns the position that the step stands for in a list. As in OpenClaw, `list.0` is the same as `list[0]`.
    pub(crate) fn position(&self) -> Option<usize> {
        match self {
            Self::Key(key) => key.parse().ok(),
            Self::Index(position) => Some(*position),
        }
    }
}

/// Returns the value at a path that may go through lists.
pub(crate) fn value_at<'t>(tree: &'t Tree, steps: &[Step]) -> Option<&'t Tree> {
    steps.iter().try_fold(tree, |tree, step| match (tree.items(), step) {
        (Some(items), step) => items.get(step.position()?),
        (None, Step::Key(key)) => tree.get(key),
        (None, Step::Index(_)) => None,
    })
}

/// A path. One that was parsed has at least one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPath {
    steps: Vec<Step>,
}

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a key; separate keys with dots, as in `tools.codeMode.timeoutMs`, and write a key that contains a dot in brackets, as in `mcpServers[\"my.server\"].command`"
)]
pub struct BadKeyPath(String);

/// The maximum length of a wrong path in an error message.
const MAX_SHOWN_CHARS: usize = 100;

impl KeyPath {
    pub fn parse(text: &str) -> Result<Self, BadKeyPath> {
        let bad = || BadKeyPath(contract::text::line(text, MAX_SHOWN_CHARS));
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let (step, after) = bracket(inside).ok_or_else(bad)?;
                steps.push(step);
                rest = after;
            } else {
                let plain = if steps.is_empty() { rest } else { rest.strip_prefix('.').ok_or_else(bad)? };
                let end = plain.find(['.', '[']).unwrap_or(plain.len());
                let (key, after) = plain.split_at(end);
                if key.trim().is_empty() {
                    return Err(bad());
                }
                steps.push(Step::Key(key.to_owned()));
                rest = after;
            }
        }
        if steps.is_empty() { Err(bad()) } else { Ok(Self { steps }) }
    }

    /// Returns the path of the whole file, from which others are made.
    pub fn root() -> Self {
        Self { steps: Vec::new() }
    }

    /// Returns the path of a key in the object at this path.
    pub fn child(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    /// Returns the path of an item in the list at this path.
    pub fn item(&self, position: usize) -> Self {
        self.with(Step::Index(position))
    }

    fn with(&self, step: Step) -> Self {
        Self { steps: self.steps.iter().cloned().chain([step]).collect() }
    }

    /// Returns the paths of the objects and lists around the value, the outermost first and without the whole file.
    pub fn around(&self) -> impl Iterator<Item = Self> {
        (1..self.steps.len()).filter_map(|count| Some(Self { steps: self.steps.get(..count)?.to_vec() }))
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the first key, which is the section of the configuration.
    pub fn section(&self) -> Option<&str> {
        self.steps.first()?.key()
    }

    /// Returns the key of each step; `None` for a step that is a position in a list.
    pub fn keys_or_positions(&self) -> impl Iterator<Item = Option<&str>> {
        self.steps.iter().map(Step::key)
    }

    /// Formats some of the steps of a path.
    pub(crate) fn format_steps(steps: &[Step]) -> String {
        Self { steps: steps.to_vec() }.to_string()
    }

    /// Returns the keys of all steps; `None` if a step is a position in a list.
    pub fn keys(&self) -> Option<Vec<&str>> {
        self.steps.iter().map(Step::key).collect()
    }
}

/// Reads what follows a `[`: an index or a quoted key, and the `]`. Returns it and the rest.
fn bracket(inside: &str) -> Option<(Step, &str)> {
    let mut ends = inside.match_indices(']').map(|(at, _)| at);
    if inside.starts_with(['"', '\'']) {
        // A quoted key may contain `]`, so the first end at which the text is a string counts.
        return ends.find_map(|end| {
            let key = json5::parse(inside.get(..end)?).ok()?.text()?.to_owned();
            Some((Step::Key(key), inside.get(end + 1..)?))
        });
    }
    let end = ends.next()?;
    Some((Step::Index(inside.get(..end)?.trim().parse().ok()?), inside.get(end + 1..)?))
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps = self.steps.iter();
        let root = match steps.next() {
            Some(Step::Key(key)) => Path::root(&contract::text::line(key, MAX_SHOWN_CHARS)),
            Some(Step::Index(position)) => Path::root("").item(*position),
            None => Path::root(""),
        };
        let path = steps.fold(root, |path, step| match step {
            Step::Key(key) => path.child(key),
            Step::Index(position) => path.item(*position),
        });
        write!(f, "{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyPath, Step};

    #[test]
    fn paths_are_parsed_and_printed_alike() {
        let key = |key: &str| Step::Key(key.to_owned());
        let cases = [
            ("tools", vec![key("tools")]),
            ("tools.codeMode.timeoutMs", vec![key("tools"), key("codeMode"), key("timeoutMs")]),
            (
                r#"tools.byProvider["a/b"].deny[0]"#,
                vec![key("tools"), key("byProvider"), key("a/b"), key("deny"), Step::Index(0)],
            ),
            (r#"mcpServers["a]\"b"].env"#, vec![key("mcpServers"), key("a]\"b"), key("env")]),
        ];
        for (text, steps) in cases {
            let path = KeyPath::parse(text).unwrap();
            assert_eq!(path.steps(), steps, "{text}");
            assert_eq!(path.to_string(), text);
        }
        let single = KeyPath::parse("mcpServers['my.server'].command").unwrap();
        assert_eq!(single.keys().unwrap(), ["mcpServers", "my.server", "command"]);
        assert_eq!(KeyPath::parse("tools.deny[0]").unwrap().keys(), None);
    }

    #[test]
    fn what_is_not_a_path_is_refused() {
        for text in ["", ".", "tools.", ".tools", "tools..deny", "tools[", "tools[x]", "tools[\"a\"", "tools[0]deny"] {
            assert!(KeyPath::parse(text).is_err(), "{text}");
        }
    }
}
