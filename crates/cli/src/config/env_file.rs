//! Parses `envFile`s: files of `NAME=value` lines.

use std::collections::BTreeMap;

use super::variables::is_name;

/// Returns the assigned variables. Other lines are ignored: such files are often shell scripts.
pub(crate) fn parse(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(assignment).collect()
}

fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=').filter(|(name, _)| is_name(name.trim()))?;
    let value = value.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.split_once(quote).map(|(inner, _)| inner);
    let value = match quoted('"') {
        Some(inner) => inner.replace("\\n", "\n"),
        None => quoted('\'').unwrap_or_else(|| value.split(" #").next().unwrap_or(value).trim_end()).to_owned(),
    };
    Some((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn assignments_are_read_and_other_lines_are_ignored() {
        let text =
            "# keys\nA=1\nexport B = \"two words\" # why\nC='#3'\nD=x # note\nnot a line\n1=2\nE=\nF=\"a\\nb\"\n";
        let found: Vec<(String, String)> = parse(text).into_iter().collect();
        let expected = [("A", "1"), ("B", "two words"), ("C", "#3"), ("D", "x"), ("E", ""), ("F", "a\nb")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
