//! Renders new values in the style of the file that they are added to.

use serde_json::Value;

/// The longest list that is written on one line.
const MAX_LINE: usize = 100;

pub(super) struct Style {
    pub(super) newline: &'static str,
    pub(super) unit: String,
}

impl Style {
    pub(super) fn of(text: &str) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
        let first =
            text.lines().find(|line| indent(line) > 0 && !line.trim().is_empty() && !line.trim().starts_with('*'));
        let unit = match first {
            Some(line) if line.starts_with('\t') => "\t".to_owned(),
            Some(line) => " ".repeat(indent(line).min(8)),
            None => "  ".to_owned(),
        };
        Self { newline, unit }
    }

    pub(super) fn render(&self, value: &Value, indent: &str) -> String {
        let inner = format!("{indent}{}", self.unit);
        match value {
            Value::Object(members) if !members.is_empty() => {
                let lines = members.iter().map(|(key, value)| {
                    format!("{inner}{}: {}", Value::from(key.as_str()), self.render(value, &inner))
                });
                self.block('{', lines.collect(), indent, '}')
            }
            Value::Array(items) if !items.is_empty() => {
                let line = format!("[{}]", items.iter().map(Value::to_string).collect::<Vec<_>>().join(", "));
                if line.len() <= MAX_LINE && items.iter().all(|item| !item.is_object() && !item.is_array()) {
                    return line;
                }
                let lines = items.iter().map(|item| format!("{inner}{}", self.render(item, &inner)));
                self.block('[', lines.collect(), indent, ']')
            }
            plain => plain.to_string(),
        }
    }

    fn block(&self, open: char, lines: Vec<String>, indent: &str, close: char) -> String {
        let newline = self.newline;
        format!("{open}{newline}{}{newline}{indent}{close}", lines.join(&format!(",{newline}")))
    }
}
