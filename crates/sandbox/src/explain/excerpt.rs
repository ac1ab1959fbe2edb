//! Reads the expression at the place of an error from the source around it.

/// The maximum number of names in an expression that is shown.
const MAX_NAMES: usize = 4;

/// The function expression of a call, as far as it consists of names: `MCP.files.read`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Callee {
    /// The expression before the last name.
    base: Option<String>,
    name: Option<String>,
}

impl Callee {
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) fn base(&self) -> Option<&str> {
        self.base.as_deref()
    }

    pub(super) fn text(&self) -> String {
        match (&self.base, &self.name) {
            (Some(base), Some(name)) => format!("{base}.{name}"),
            (None, Some(name)) => name.clone(),
            (_, None) => "the value".to_owned(),
        }
    }
}

/// Reads the function of a call. `after` starts with its last name.
pub(super) fn callee(before: &str, after: &str) -> Callee {
    let (name, rest) = after.split_at_checked(identifier_end(after)).unwrap_or_default();
    // The place of a computed name is the name before its brackets.
    let is_called = ["(", "?.(", "`"].iter().any(|call| rest.trim_start().starts_with(call));
    let name = (is_called && !name.is_empty()).then(|| name.to_owned());
    Callee { base: without_dot(before).and_then(expression), name }
}

/// Reads the variable that is iterated. `after` starts with the last name before the loop's body.
pub(super) fn iterated(after: &str) -> Option<&str> {
    let (name, rest) = after.split_at_checked(identifier_end(after))?;
    (!name.is_empty() && !rest.trim_start().starts_with(['(', '.', '[', '?', '`'])).then_some(name)
}

/// Returns the name that a text starts with; empty if there is none.
pub(super) fn first_name(text: &str) -> &str {
    text.get(..identifier_end(text)).unwrap_or_default()
}

/// Returns the last name of the expression before `.x`, where `x` is the property that could not be read.
pub(super) fn undefined_base(before: &str) -> Option<String> {
    last_name(without_dot(before)?).map(|(name, _)| name)
}

fn without_dot(before: &str) -> Option<&str> {
    let before = before.trim_end().strip_suffix('.')?;
    Some(before.strip_suffix('?').unwrap_or(before))
}

/// Returns the names at the end of a text, as they are written: `a.b`. `None` if there are too many, or something else.
fn expression(text: &str) -> Option<String> {
    let mut names = Vec::new();
    let mut rest = text;
    loop {
        let (name, before) = last_name(rest)?;
        names.push(name);
        match without_dot(before) {
            Some(_) if names.len() == MAX_NAMES => return None,
            Some(before) => rest = before,
            // An element access has no dot before it, and is not shown.
            None if before.trim_end().ends_with([')', ']', '?']) || !rest.trim_end().ends_with(is_part) => return None,
            None => break,
        }
    }
    names.reverse();
    Some(names.join("."))
}

/// Splits the last name from a text: an identifier, or a quoted name in brackets.
fn last_name(text: &str) -> Option<(String, &str)> {
    let text = text.trim_end();
    if let Some(inside) = text.strip_suffix(']') {
        let inside = inside.trim_end();
        let quote = inside.chars().next_back().filter(|quote| matches!(quote, '"' | '\'' | '`'))?;
        let inside = inside.strip_suffix(quote)?;
        let start = inside.rfind(quote)?;
        let before = inside.get(..start)?.trim_end().strip_suffix('[')?;
        return Some((inside.get(start + 1..)?.to_owned(), before));
    }
    let start = text.char_indices().rev().take_while(|(_, letter)| is_part(*letter)).last().map(|(at, _)| at)?;
    let name = text.get(start..)?;
    (!name.starts_with(|first: char| first.is_ascii_digit()))
        .then(|| (name.to_owned(), text.get(..start).unwrap_or("")))
}

fn identifier_end(text: &str) -> usize {
    text.find(|letter| !is_part(letter)).unwrap_or(text.len())
}

fn is_part(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

#[cfg(test)]
mod tests {
    use super::{callee, iterated, undefined_base};

    #[test]
    fn the_function_of_a_call_is_read_from_the_source_around_it() {
        let cases = [
            ("return await MCP.files.", "readFile({ path })", Some("MCP.files"), Some("readFile")),
            ("x = tools\n  .", "web_search()", Some("tools"), Some("web_search")),
            ("(await ", "fetch(url)", None, Some("fetch")),
            ("MCP[\"my-files\"]?.", "read()", None, Some("read")),
            ("rows.filter(f).", "nap()", None, Some("nap")),
            ("MCP.", "files[name]()", Some("MCP"), None),
            ("MCP.files", "[name]()", None, None),
            ("", "Foo", None, None),
            ("a.b.c.d.e.", "f()", None, Some("f")),
            ("größe.", "längen()", Some("größe"), Some("längen")),
            ("", "", None, None),
        ];
        for (before, after, base, name) in cases {
            let callee = callee(before, after);
            assert_eq!((callee.base(), callee.name()), (base, name), "{before}{after}");
        }
    }

    #[test]
    fn only_a_variable_is_shown_as_iterated() {
        let cases =
            [("issues) {", Some("issues")), ("list({ path })", None), ("a.b)", None), ("[1]", None), ("", None)];
        for (after, expected) in cases {
            assert_eq!(iterated(after), expected, "{after}");
        }
    }

    #[test]
    fn the_undefined_part_of_an_expression_is_its_last_name() {
        let cases = [
            ("await MCP.fils.", Some("fils")),
            ("MCP[\"my-fils\"].", Some("my-fils")),
            ("MCP['a' ] . ", Some("a")),
            ("MCP.fils\n  ?.", Some("fils")),
            ("f().", None),
            ("list[0].", None),
            ("fils", None),
        ];
        for (before, expected) in cases {
            assert_eq!(undefined_base(before).as_deref(), expected, "{before}");
        }
    }
}
