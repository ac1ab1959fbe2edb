//! References to stored outputs in a tool's arguments: objects `{"$handle": "out_…"}`, which the host replaces by the
//! content, so that it need not enter the cell.

use std::collections::{BTreeMap, BTreeSet};

use contract::ids::OutputHandle;
use serde_json::Value;

const KEY: &str = "$handle";

/// The content of an output, as a tool receives it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Text(String),
    Json(Value),
}

/// Returns the handles that the arguments refer to, each with the number of its references.
pub(crate) fn handles(input: &Value) -> BTreeMap<OutputHandle, usize> {
    fn collect(value: &Value, found: &mut BTreeMap<OutputHandle, usize>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            Value::Object(fields) => match reference(fields) {
                Some(handle) => *found.entry(OutputHandle::new(handle)).or_default() += 1,
                None => fields.values().for_each(|field| collect(field, found)),
            },
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    collect(input, &mut found);
    found
}

/// Replaces the references by their contents. Returns the handles that have no content.
pub(crate) fn resolve(input: &mut Value, contents: &BTreeMap<OutputHandle, Content>) -> BTreeSet<OutputHandle> {
    let mut missing = BTreeSet::new();
    replace(input, contents, &mut missing);
    missing
}

fn replace(value: &mut Value, contents: &BTreeMap<OutputHandle, Content>, missing: &mut BTreeSet<OutputHandle>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, contents, missing)),
        Value::Object(fields) => {
            let Some(handle) = reference(fields).map(OutputHandle::new) else {
                return fields.values_mut().for_each(|field| replace(field, contents, missing));
            };
            match contents.get(&handle) {
                Some(Content::Text(text)) => *value = Value::String(text.clone()),
                Some(Content::Json(content)) => *value = content.clone(),
                None => {
                    missing.insert(handle);
                }
            }
        }
        _ => {}
    }
}

/// Returns the handle of an object that is a reference: it has no other field.
fn reference(fields: &serde_json::Map<String, Value>) -> Option<&str> {
    fields.get(KEY).and_then(Value::as_str).filter(|_| fields.len() == 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use contract::ids::OutputHandle;
    use serde_json::json;

    use super::{Content, handles, resolve};

    #[test]
    fn references_are_replaced_wherever_they_are() {
        let mut input = json!({
            "path": "a.txt",
            "content": {"$handle": "out_a_1"},
            "more": [{"rows": {"$handle": "out_a_2"}}, {"$handle": "out_a_1"}],
            "other": [{"$handle": 7}, {"$handle": "out_a_1", "and": 1}],
        });
        let (one, two) = (OutputHandle::new("out_a_1"), OutputHandle::new("out_a_2"));
        assert_eq!(handles(&input), BTreeMap::from([(one.clone(), 2), (two.clone(), 1)]));
        let contents = BTreeMap::from([
            (one, Content::Text("text {\"$handle\":\"out_a_2\"}".to_owned())),
            (two.clone(), Content::Json(json!([{"$handle": "out_a_1"}]))),
        ]);
        assert!(resolve(&mut input, &contents).is_empty());
        assert_eq!(
            input,
            json!({
                "path": "a.txt",
                "content": "text {\"$handle\":\"out_a_2\"}",
                "more": [{"rows": [{"$handle": "out_a_1"}]}, "text {\"$handle\":\"out_a_2\"}"],
                "other": [{"$handle": 7}, {"$handle": "out_a_1", "and": 1}],
            }),
            "content is data: it is not searched for references"
        );
        let mut unknown = json!([{"$handle": "out_a_2"}]);
        assert_eq!(resolve(&mut unknown, &BTreeMap::new()), [two].into());
    }
}
