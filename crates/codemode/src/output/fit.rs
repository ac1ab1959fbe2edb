//! Selects what of a result is stored, so that the rest fits into a result.

use contract::cell::{OutputItem, Preview};
use contract::json;
use contract::limits::{MAX_JSON_VALUES, MAX_STORED_RESULT_BYTES};
use serde_json::value::RawValue;
use store::NewOutput;
use telemetry::LogIgnored;

use super::preview::{StoredValue, smallest_preview};
use super::{Names, escaped_bytes};

/// Items of one answer that are stored one by one. If that is not enough, the last items are stored together.
const MAX_STORED_ITEMS: usize = 16;

/// The bytes that a preview should have for its pieces.
const WANTED_PIECE_BYTES: usize = 400;

/// A result that fits, and what is stored of it.
#[derive(Debug)]
pub(crate) struct FittedResult {
    pub(crate) value: Option<Box<RawValue>>,
    pub(crate) output: Vec<OutputItem>,
    pub(crate) stored: Vec<NewOutput>,
}

/// What happens to the items and the value of a result.
#[derive(Debug, Default)]
struct Plan {
    /// The positions of items that are stored one by one.
    items: Vec<usize>,
    stores_value: bool,
    /// The position of the first of the last items, which are stored together.
    together_from: Option<usize>,
}

/// Stores the largest parts of a result until the others and the previews take at most `limit` bytes as JSON.
pub(crate) fn fit(
    value: Option<Box<RawValue>>,
    output: Vec<OutputItem>,
    limit: usize,
    names: &mut Names,
) -> FittedResult {
    let costs: Vec<usize> = output.iter().map(cost).collect();
    let value_cost = value.as_ref().map_or(0, |value| value.get().len());
    // A result is parsed, and a value with this many values must not be.
    let is_countless = |value: &RawValue| json::measure(value.get().as_bytes()).values > MAX_JSON_VALUES;
    let must_store_value = value_cost > MAX_JSON_VALUES && value.as_deref().is_some_and(is_countless);
    if costs.iter().sum::<usize>() + value_cost <= limit && !must_store_value {
        return FittedResult { value, output, stored: Vec::new() };
    }
    // With the comma after it.
    let smallest = smallest_preview(names.longest()) + 1;
    let value_cost = if must_store_value { value_cost.max(limit + 1) } else { value_cost };
    let plan = plan(&output, &costs, value_cost, limit, smallest);

    let together_from = plan.together_from.unwrap_or(output.len());
    let is_kept = |at: &usize| *at < together_from && !plan.items.contains(at);
    let kept = (0..output.len()).filter(is_kept).filter_map(|at| costs.get(at)).sum::<usize>()
        + if plan.stores_value { 0 } else { value_cost };
    let previews = plan.items.len() + usize::from(plan.stores_value) + usize::from(plan.together_from.is_some());
    let room = limit.saturating_sub(kept + previews * smallest) / previews.max(1);

    let mut stored = Vec::new();
    let mut store = |what: StoredValue| {
        let (name, handle) = names.next();
        let preview = what.preview(handle, room);
        stored.push(NewOutput { name, kind: what.kind, mime_type: None, source: None, data: what.text.into_bytes() });
        preview
    };
    let mut shown = Vec::with_capacity(output.len().min(together_from));
    let mut together = Vec::new();
    for (at, item) in output.into_iter().enumerate() {
        if at >= together_from {
            together.push(item);
        } else if plan.items.contains(&at) {
            shown.push(match item {
                OutputItem::Text { text } => OutputItem::Stored(store(StoredValue::text(text))),
                OutputItem::Json { value } => OutputItem::Stored(store(StoredValue::json(value.get().to_owned()))),
                other => other,
            });
        } else {
            shown.push(item);
        }
    }
    if !together.is_empty() {
        shown.push(OutputItem::Stored(store(all_of(&together))));
    }
    let value = value.map(|value| {
        if plan.stores_value {
            as_value(store(StoredValue::json(value.get().to_owned()))).unwrap_or(value)
        } else {
            value
        }
    });
    FittedResult { value, output: shown, stored }
}

fn plan(output: &[OutputItem], costs: &[usize], value_cost: usize, limit: usize, smallest: usize) -> Plan {
    let is_storable = |item: &OutputItem| matches!(item, OutputItem::Text { .. } | OutputItem::Json { .. });
    let items = output.iter().zip(costs).enumerate().filter(|(_, (item, _))| is_storable(item));
    let mut candidates: Vec<(usize, Option<usize>)> = items.map(|(at, (_, cost))| (*cost, Some(at))).collect();
    candidates.push((value_cost, None));
    candidates.sort_by_key(|(cost, at)| (std::cmp::Reverse(*cost), *at));

    let mut plan = Plan::default();
    let mut total = costs.iter().sum::<usize>() + value_cost;
    let mut wanted = total;
    for (cost, at) in candidates.into_iter().take(MAX_STORED_ITEMS) {
        if wanted <= limit || cost <= smallest {
            break;
        }
        total = total - cost + smallest;
        wanted = wanted - cost + smallest + WANTED_PIECE_BYTES;
        match at {
            Some(at) => plan.items.push(at),
            None => plan.stores_value = true,
        }
    }
    if total <= limit {
        return plan;
    }

    // There are too many small items. The first are shown; a quarter of the result is left for previews.
    let stores_value = value_cost > limit / 4;
    let mut taken = smallest + if stores_value { smallest } else { value_cost };
    let mut stored = Vec::new();
    let mut together_from = 0;
    for (at, (item, cost)) in output.iter().zip(costs).enumerate() {
        let is_stored = is_storable(item) && *cost > (limit / 8).max(smallest) && stored.len() < MAX_STORED_ITEMS;
        taken += if is_stored { smallest } else { *cost };
        if taken > limit - limit / 4 {
            break;
        }
        if is_stored {
            stored.push(at);
        }
        together_from = at + 1;
    }
    Plan { items: stored, stores_value, together_from: Some(together_from) }
}

/// Returns what is stored for items that are stored together: their texts, if they are nothing else, or an array of them.
/// Each item begins a line, so that lines can be read and searched. If its escapes make the array too large, the items
/// are stored as texts, too.
fn all_of(items: &[OutputItem]) -> StoredValue {
    let are_texts = items.iter().all(|item| matches!(item, OutputItem::Text { .. }));
    let bytes = "[\n\n]".len() + items.iter().map(|item| cost(item) + "\n".len()).sum::<usize>();
    if !are_texts && bytes < MAX_STORED_RESULT_BYTES {
        // There may be hundreds of thousands of items, so they are written to one buffer.
        let mut array = Vec::with_capacity(bytes);
        for (at, item) in items.iter().enumerate() {
            array.extend_from_slice(if at == 0 { b"[\n" } else { b",\n" });
            // Fails only if the buffer cannot be written.
            serde_json::to_writer(&mut array, item).log_ignored("write an output");
        }
        array.extend_from_slice(b"\n]");
        return StoredValue::json(String::from_utf8(array).unwrap_or_default());
    }
    let mut texts = String::new();
    for item in items {
        match item {
            OutputItem::Text { text } => texts += text,
            OutputItem::Json { value } => texts += value.get(),
            item => texts += &serde_json::to_string(item).unwrap_or_default(),
        }
        texts.push('\n');
    }
    StoredValue::text(texts)
}

/// Returns the bytes that an item takes in a result, with the comma after it.
fn cost(item: &OutputItem) -> usize {
    1 + match item {
        OutputItem::Text { text } => r#"{"type":"text","text":""}"#.len() + escaped_bytes(text),
        OutputItem::Json { value } => r#"{"type":"json","value":}"#.len() + value.get().len(),
        OutputItem::Image(_) | OutputItem::Audio(_) | OutputItem::Stored(_) => {
            serde_json::to_string(item).map_or(0, |text| text.len())
        }
    }
}

/// Returns the value that a result has in place of a stored one.
fn as_value(preview: Preview) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(&OutputItem::Stored(preview)).ok()
}

#[cfg(test)]
mod tests {
    use contract::cell::OutputItem;
    use contract::ids::RunId;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};
    use store::OutputKind;

    use super::super::Names;
    use super::{FittedResult, fit};

    fn names() -> Names {
        Names::new(RunId::new("cm_0123456789abcdef0123456789abcdef"), 3)
    }

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn text(text: impl Into<String>) -> OutputItem {
        OutputItem::Text { text: text.into() }
    }

    fn fitted(value: &Value, output: Vec<OutputItem>, limit: usize) -> (FittedResult, Value) {
        let fitted = fit(Some(raw(value)), output, limit, &mut names());
        let shown = json!({"value": fitted.value, "output": fitted.output});
        let bytes = fitted.value.as_ref().unwrap().get().len() + shown["output"].to_string().len();
        assert!(bytes <= limit + 2, "{bytes} bytes do not fit into {limit}: {shown}");
        (fitted, shown)
    }

    #[test]
    fn a_result_that_fits_is_not_changed() {
        let output = vec![text("a"), OutputItem::Json { value: raw(&json!([1])) }];
        let (fitted, shown) = fitted(&json!({"n": 1}), output, 1024);
        assert!(fitted.stored.is_empty());
        assert_eq!(
            shown,
            json!({"value": {"n": 1}, "output": [{"type": "text", "text": "a"}, {"type": "json", "value": [1]}]})
        );
    }

    #[test]
    fn the_largest_parts_are_stored_whole_and_previewed() {
        let rows: Vec<Value> = (0..500).map(|n| json!({"id": n, "name": format!("row {n}")})).collect();
        let long = "é\"\n".repeat(3000);
        let output = vec![text("small"), text(long.clone()), OutputItem::Json { value: raw(&json!("s".repeat(5000))) }];
        let (fitted, shown) = fitted(&json!(rows), output, 4096);
        let stored: Vec<(&str, OutputKind)> = fitted.stored.iter().map(|one| (one.name.as_str(), one.kind)).collect();
        assert_eq!(stored, [("l3n0", OutputKind::Text), ("l3n1", OutputKind::Text), ("l3n2", OutputKind::Json)]);
        assert_eq!(fitted.stored[0].data, long.as_bytes());
        assert_eq!(fitted.stored[1].data, vec![b's'; 5000], "a string is stored as its text");
        assert_eq!(fitted.stored[2].data, json!(rows).to_string().into_bytes());
        assert_eq!(shown["output"][0], json!({"type": "text", "text": "small"}));
        let value = &shown["value"];
        assert_eq!(value["type"], "stored");
        assert_eq!(value["handle"], "out_cm_0123456789abcdef0123456789abcdef_l3n2");
        assert_eq!(value["of"], "array");
        assert_eq!(value["bytes"], json!(rows).to_string().len());
        assert_eq!(value["shape"], "{ id: number, name: string }[] /* 500 items */");
        assert!(value["first"].as_str().unwrap().starts_with(r#"[{"id":0,"name":"row 0"}"#), "{value}");
        assert!(value["last"].as_str().unwrap().ends_with(r#""row 499"}]"#), "{value}");
        for item in [&shown["output"][1], &shown["output"][2], value] {
            for piece in ["first", "last"] {
                assert!(item[piece].as_str().unwrap().chars().count() >= 200, "{item}");
            }
        }
        assert_eq!((&shown["output"][1]["of"], &shown["output"][2]["of"]), (&json!("text"), &json!("string")));
    }

    #[test]
    fn many_small_items_are_stored_together_and_the_first_are_shown() {
        let output: Vec<OutputItem> = (0..1000).map(|n| text(format!("line {n}"))).collect();
        let (fitted, shown) = fitted(&json!({"n": 1}), output, 2048);
        let [together] = fitted.stored.as_slice() else { panic!("{:?}", fitted.stored) };
        let shown_items = shown["output"].as_array().unwrap();
        let kept = shown_items.len() - 1;
        assert!(kept > 20, "{shown}");
        assert_eq!(shown_items[0], json!({"type": "text", "text": "line 0"}));
        let lines: String = (kept..1000).map(|n| format!("line {n}\n")).collect();
        assert_eq!((together.kind, together.data.as_slice()), (OutputKind::Text, lines.as_bytes()));
        assert_eq!(shown["value"], json!({"n": 1}));
    }

    #[test]
    fn items_of_several_kinds_are_stored_as_an_array_with_a_line_for_each() {
        let item = |n: u64| match n % 2 {
            0 => text(format!("line {n}")),
            _ => OutputItem::Json { value: raw(&json!({"n": n})) },
        };
        let (fitted, shown) = fitted(&json!(null), (0..1000).map(item).collect(), 2048);
        let [together] = fitted.stored.as_slice() else { panic!("{:?}", fitted.stored) };
        let kept = shown["output"].as_array().unwrap().len() - 1;
        let items: Vec<Value> = serde_json::from_slice(&together.data).unwrap();
        assert_eq!((together.kind, items.len()), (OutputKind::Json, 1000 - kept));
        let lines: Vec<&str> = std::str::from_utf8(&together.data).unwrap().lines().collect();
        assert_eq!(lines.len(), items.len() + 2);
        assert!(lines.contains(&r#"{"type":"json","value":{"n":777}},"#));
    }

    #[test]
    fn a_value_with_too_many_values_to_parse_is_stored_even_if_it_fits() {
        let countless = format!("[{}0]", "0,".repeat(250_000));
        let value = RawValue::from_string(countless.clone()).unwrap();
        let fitted = fit(Some(value), vec![text("a")], 10 << 20, &mut names());
        assert_eq!(fitted.stored[0].data, countless.as_bytes());
        let shown: Value = serde_json::from_str(fitted.value.unwrap().get()).unwrap();
        assert_eq!((&shown["type"], &shown["shape"]), (&json!("stored"), &json!("number[] /* 250001 items */")));
    }

    #[test]
    fn every_result_fits_and_nothing_is_lost() {
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % below
        };
        for round in 0..300 {
            let limit = [1024, 1500, 8192][next(3)];
            let count = next(40);
            let pieces = ["a", "\"", "\n", "\u{1}", "日", "\u{1F600}"];
            let mut any = |most: usize| pieces[next(6)].repeat(next(most));
            let output: Vec<OutputItem> = (0..count)
                .map(|n| if n % 3 == 0 { OutputItem::Json { value: raw(&json!([any(900)])) } } else { text(any(2000)) })
                .collect();
            let value = json!({"v": any(4000)});
            let all: usize = output.iter().map(OutputItem::bytes).sum::<usize>() + value.to_string().len();
            let (fitted, shown) = fitted(&value, output, limit);
            let stored: usize = fitted.stored.iter().map(|one| one.data.len()).sum();
            assert!(stored + limit + 40 * 30 >= all, "round {round}: {stored} of {all} bytes stored");
            assert!(
                fitted.stored.len() <= 19 && shown["output"].as_array().unwrap().len() <= count + 1,
                "round {round}"
            );
        }
    }
}
