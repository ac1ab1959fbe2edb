//! The arguments of `cellmate tools call`: `name=text`, `name:=json`, or one JSON object.

use std::io::Read;

use catalog::arguments::check;
use client_config::display;
use serde_json::{Map, Value};

/// The longest input that is read from standard input.
const MAX_INPUT_BYTES: u64 = 16 << 20;

/// The most characters of an argument that a message repeats.
const MAX_SHOWN_CHARS: usize = 60;

/// Returns the tool's input from one JSON object (`-`: from standard input), or else from the pairs. A JSON object in
/// place of the pairs is accepted, too, because the name of an argument cannot begin with a brace.
pub(super) fn input(pairs: &[String], json: Option<&str>) -> Result<Value, String> {
    let (given, named) = match (json, pairs) {
        (Some(given), _) => (given, "--args: "),
        (None, [given]) if given.trim_start().starts_with('{') => (given.as_str(), ""),
        (None, pairs) => return from_pairs(pairs),
    };
    let text = if given == "-" { standard_input()? } else { given.to_owned() };
    match contract::json::read(&text) {
        Ok(input @ Value::Object(_)) => Ok(input),
        Ok(_) => Err(format!("{named}write one JSON object")),
        Err(error) => Err(format!("{named}the arguments are not a JSON object: {error}")),
    }
}

fn standard_input() -> Result<String, String> {
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_INPUT_BYTES).read_to_string(&mut text);
    read.map(|_| text).map_err(|error| format!("cannot read standard input: {error}"))
}

/// An argument as it was typed.
enum Pair<'a> {
    Text(&'a str, &'a str),
    Json(&'a str, &'a str),
}

impl<'a> Pair<'a> {
    fn parse(typed: &'a str) -> Option<Self> {
        let (name, value) = typed.split_once('=')?;
        Some(match name.strip_suffix(':') {
            Some(name) => Self::Json(name, value),
            None => Self::Text(name, value),
        })
    }
}

fn from_pairs(pairs: &[String]) -> Result<Value, String> {
    let mut input = Map::new();
    for pair in pairs {
        let wrong = || "write arguments as name=text or name:=json, or as one JSON object".to_owned();
        let (name, value) = match Pair::parse(pair).ok_or_else(wrong)? {
            Pair::Text(name, text) => (name, Value::from(text)),
            Pair::Json(name, text) => (name, contract::json::read(text).map_err(|why| not_json(name, text, &why))?),
        };
        input.insert(name.to_owned(), value);
    }
    Ok(Value::Object(input))
}

/// Says that the value of `name:=text` is not JSON, and how to pass text.
fn not_json(name: &str, text: &str, why: &dyn std::fmt::Display) -> String {
    let (name, shown) = (display::plain(name), contract::text::line(text, MAX_SHOWN_CHARS));
    let as_text = display::for_shell(&format!("{name}={shown}"));
    let as_json = format!("{name}:={}", Value::from(shown.as_str()));
    format!(
        "`{name}:={shown}` is not JSON ({why}); to pass text, write `{as_text}`, or with JSON's quotes \
         `'{}'`",
        as_json.replace('\'', r"'\''")
    )
}

/// Returns how to pass values that are not text, if an argument was passed as text and its schema takes none.
pub(super) fn json_hint(pairs: &[String], parameters: &Value) -> Option<String> {
    let (name, text) = pairs.iter().find_map(|pair| match Pair::parse(pair)? {
        Pair::Text(name, text) => {
            let schema = parameters.get("properties")?.get(name)?;
            check(schema, &Value::from(text)).is_err().then_some((name, text))
        }
        Pair::Json(..) => None,
    })?;
    let (name, shown) = (display::plain(name), contract::text::line(text, MAX_SHOWN_CHARS));
    let example = match contract::json::read(text) {
        Ok(_) => format!("{name}:={shown}"),
        Err(_) => format!("{name}:=JSON"),
    };
    Some(format!("`{name}={shown}` passes text; write `{example}` to pass a number or other JSON"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{input, json_hint};

    fn typed(pairs: &[&str]) -> Vec<String> {
        pairs.iter().map(|pair| (*pair).to_owned()).collect()
    }

    #[test]
    fn pairs_pass_text_or_json() {
        let given = input(&typed(&["a=2", "b:=2", "c:=[\"x\"]", "d=e=f"]), None);
        assert_eq!(given, Ok(json!({"a": "2", "b": 2, "c": ["x"], "d": "e=f"})));
        assert_eq!(input(&[], Some("{\"a\": 1}")), Ok(json!({"a": 1})));
        assert_eq!(input(&typed(&["{\"a\": 1}"]), None), Ok(json!({"a": 1})));
        assert!(input(&typed(&["{a=1"]), None).unwrap_err().starts_with("the arguments are not a JSON object: "));
        let wrong = "write arguments as name=text or name:=json, or as one JSON object";
        for pairs in [&["a"][..], &["{}", "a"]] {
            assert_eq!(input(&typed(pairs), None).unwrap_err(), wrong);
        }
        assert_eq!(input(&[], Some("[]")).unwrap_err(), "--args: write one JSON object");
    }

    #[test]
    fn a_value_that_is_not_json_is_answered_with_both_ways_to_pass_text() {
        let message = input(&typed(&["head:=abc"]), None).unwrap_err();
        assert!(message.starts_with("`head:=abc` is not JSON ("), "{message}");
        assert!(
            message.ends_with(r#"; to pass text, write `head=abc`, or with JSON's quotes `'head:="abc"'`"#),
            "{message}"
        );
        assert!(!input(&typed(&["a:=\u{9b}"]), None).unwrap_err().contains('\u{9b}'));
    }

    #[test]
    fn text_for_a_parameter_that_takes_none_is_answered_with_the_way_to_pass_json() {
        let schema = json!({"properties": {"count": {"type": "integer"}, "name": {"type": "string"}}});
        let hint = |pairs: &[&str]| json_hint(&typed(pairs), &schema);
        assert_eq!(
            hint(&["name=x", "count=2"]).unwrap(),
            "`count=2` passes text; write `count:=2` to pass a number or other JSON"
        );
        assert_eq!(
            hint(&["count=two"]).unwrap(),
            "`count=two` passes text; write `count:=JSON` to pass a number or other JSON"
        );
        assert_eq!(hint(&["name=2", "count:=2", "other=2"]), None);
    }
}
