//! Parses TOML with the position of every value.

use std::ops::Range;

use serde_json::Number;
use toml_edit::{Array, Document, Item, TableLike, Value};

use crate::tree::{Kind, Member, SyntaxError, Tree};

pub(crate) fn parse(text: &str) -> Result<Tree, SyntaxError> {
    let document = Document::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        // The library's own message would quote the line, which may contain a secret.
        SyntaxError::at(text, offset, "invalid TOML")
    })?;
    Ok(Tree { span: 0..text.len(), kind: map(document.as_table()) })
}

fn map(table: &dyn TableLike) -> Kind {
    let members = table.iter().filter_map(|(name, item)| {
        let key_span = table.key(name).and_then(toml_edit::Key::span).unwrap_or_default();
        Some(Member { key: name.to_owned(), value: tree(item, &key_span)?, key_span })
    });
    Kind::Map(members.collect())
}

fn tree(item: &Item, key_span: &Range<usize>) -> Option<Tree> {
    let span = item.span().unwrap_or_else(|| key_span.clone());
    let kind = match item {
        Item::None => return None,
        Item::Value(value) => kind(value),
        Item::Table(table) => map(table),
        Item::ArrayOfTables(tables) => {
            let tree = |table: &toml_edit::Table| Tree { span: table.span().unwrap_or_default(), kind: map(table) };
            Kind::List(tables.iter().map(tree).collect())
        }
    };
    Some(Tree { span, kind })
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::String(text) => Kind::Text(text.value().clone()),
        Value::Integer(number) => Kind::Number(Number::from(*number.value())),
        Value::Float(number) => Number::from_f64(*number.value()).map_or(Kind::Null, Kind::Number),
        Value::Boolean(truth) => Kind::Bool(*truth.value()),
        Value::Datetime(time) => Kind::Text(time.value().to_string()),
        Value::Array(items) => Kind::List(list(items)),
        Value::InlineTable(table) => map(table),
    }
}

fn list(items: &Array) -> Vec<Tree> {
    items.iter().map(|item| Tree { span: item.span().unwrap_or_default(), kind: kind(item) }).collect()
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_JSON_VALUES;

    use crate::document::Format;

    #[test]
    fn deep_and_wide_toml_is_rejected_or_read_within_the_time_limit() {
        let cases = [
            (format!("[{}]\nx = 1\n", vec!["a"; 100_000].join(".")), false),
            (format!("{} = 1\n", vec!["a"; 100_000].join(".")), false),
            (format!("x = {}{}", "[".repeat(100_000), "]".repeat(100_000)), false),
            (format!("x = {}1{}", "{a=".repeat(50_000), "}".repeat(50_000)), false),
            (format!("x = [{}]", "0,".repeat(MAX_JSON_VALUES)), false),
            (format!("x = [{}]", "0,".repeat(MAX_JSON_VALUES - 1_000)), true),
            ("[[a]]\n".repeat(60_000), true),
            ((0..40_000).map(|number| format!("[t{number}]\n")).collect(), true),
        ];
        for (text, is_read) in cases {
            let began = std::time::Instant::now();
            let shown = text.get(..20).unwrap_or_default();
            assert_eq!(Format::Toml.parse(&text).is_ok(), is_read, "{shown}");
            assert!(began.elapsed() < std::time::Duration::from_secs(10), "{shown}: {:?}", began.elapsed());
        }
    }
}
