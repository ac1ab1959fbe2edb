//! Rewrites the error of a cell for the person at the prompt: the position in the typed text, and a hint.

use std::collections::BTreeSet;

use contract::frame::SourcePosition;
use sandbox::InsertedReturn;

/// The maximum number of names of earlier cells that are remembered.
const MAX_NAMES: usize = 10_000;

/// Returns an error with its position in the typed text. The position in the cell differs from it, because the REPL
/// inserts a `return` before an expression.
pub(super) fn with_typed_position(error: &str, inserted: InsertedReturn) -> String {
    replace_position(error, inserted).unwrap_or_else(|| error.to_owned())
}

/// Replaces the position at the end of an error, such as ` (at 1:8)`; `None` if it has none.
fn replace_position(error: &str, inserted: InsertedReturn) -> Option<String> {
    let (message, place) = error.strip_suffix(')')?.rsplit_once(" (at ")?;
    let (line, column) = place.split_once(':')?;
    let SourcePosition { line, column } =
        inserted.typed_place(SourcePosition { line: line.parse().ok()?, column: column.parse().ok()? });
    Some(format!("{message} (at {line}:{column})"))
}

/// Gives a hint, once, that variables end with their cell, when a cell fails because it uses a name of an earlier cell.
#[derive(Debug, Default)]
pub(super) struct VariableHint {
    earlier: BTreeSet<String>,
    is_given: bool,
}

impl VariableHint {
    /// Remembers all words in a cell that could be names of variables. They may not be: the cell is not parsed.
    pub(super) fn remember(&mut self, statements: &str) {
        if self.is_given {
            return;
        }
        let names = statements.split(|letter| !is_name_letter(letter)).filter(|name| !name.is_empty());
        let free = MAX_NAMES.saturating_sub(self.earlier.len());
        self.earlier.extend(names.take(free).map(str::to_owned));
    }

    /// Returns the hint for a cell that failed with this error, unless it was given before or does not apply.
    pub(super) fn hint_for(&mut self, error: &str) -> Option<String> {
        let (name, _) = error.strip_prefix("ReferenceError: ")?.split_once(" is not defined")?;
        if self.is_given || !self.earlier.contains(name) {
            return None;
        }
        self.is_given = true;
        self.earlier.clear();
        Some(format!(
            "variables end with their cell, so `{name}` of an earlier cell is gone; `await store(\"{name}\", value)` keeps \
             a value, and `await load(\"{name}\")` reads it"
        ))
    }
}

fn is_name_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

#[cfg(test)]
mod tests {
    use sandbox::TypedCell;

    use super::{VariableHint, with_typed_position};

    #[test]
    fn only_the_position_at_the_end_of_an_error_is_changed() {
        let TypedCell::Expression { inserted, .. } = TypedCell::judge("foo()") else { panic!() };
        for (error, expected) in [
            ("ReferenceError: foo is not defined (at 1:8)", "ReferenceError: foo is not defined (at 1:1)"),
            ("Error: a (at 1:9) (at 1:27)", "Error: a (at 1:9) (at 1:20)"),
            ("Error: a (at 2:9)", "Error: a (at 2:9)"),
            ("Error: a (at 1:x)", "Error: a (at 1:x)"),
            ("timed out after 100 ms", "timed out after 100 ms"),
        ] {
            assert_eq!(with_typed_position(error, inserted), expected);
        }
    }

    #[test]
    fn the_hint_is_given_once_and_only_for_a_name_of_an_earlier_cell() {
        let mut hint = VariableHint::default();
        let undefined = |name: &str| format!("ReferenceError: {name} is not defined (at 1:1)");
        assert_eq!(hint.hint_for(&undefined("x")), None);
        hint.remember("const { x, y: $y } = f()");
        assert_eq!(hint.hint_for("TypeError: x is not a function"), None);
        assert_eq!(hint.hint_for(&undefined("other")), None);
        let given = hint.hint_for(&undefined("$y")).unwrap();
        assert!(
            given.starts_with("variables end with their cell") && given.contains("store(\"$y\", value)"),
            "{given}"
        );
        hint.remember("const x = 1");
        assert_eq!(hint.hint_for(&undefined("x")), None);
    }
}
