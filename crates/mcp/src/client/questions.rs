//! Questions that a server asks a person during a call, parsed and bounded; and the answers in the protocol's form.

use std::collections::BTreeMap;

use executor::{Answer, Question, QuestionKind};
use serde_json::{Map, Value, json};
use url::Url;

use crate::client::spec::{MAX_SHOWN_CHARS, shown};

/// The maximum number of questions that a server may ask at once.
const MAX_ASKS: usize = 8;

const MAX_KEY_BYTES: usize = 256;
const MAX_SCHEMA_BYTES: usize = 16 << 10;
const MAX_FIELDS: usize = 32;
const MAX_URL_BYTES: usize = 2_048;

/// Marks a result that the protocol reports as an error: it contains only pages to visit, and takes no answers.
pub(crate) const PAGES: &str = "cellmate/pages";

/// Converts an error that names pages to visit into a result that asks for them.
pub(crate) fn pages(elicitations: &Value) -> Value {
    let pages = elicitations.as_array().into_iter().flatten().enumerate();
    let request = |(number, params): (usize, &Value)| {
        (number.to_string(), json!({"method": "elicitation/create", "params": params}))
    };
    let requests: Map<String, Value> = pages.map(request).collect();
    json!({"resultType": "input_required", "inputRequests": requests, PAGES: true})
}

/// Returns the questions of a result; empty if the server only asks to be called again. Everything in it must be a
/// question to a person: a server gets all of its answers or none.
pub(crate) fn asks(result: &Value) -> Result<Vec<Question>, String> {
    let requests = match result.get("inputRequests") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(requests)) => requests,
        Some(_) => return Err("its question cannot be parsed".to_owned()),
    };
    if requests.len() > MAX_ASKS {
        return Err(format!("it asks {} questions at once; at most {MAX_ASKS} are allowed", requests.len()));
    }
    requests.iter().map(|(key, request)| one(key, request)).collect()
}

fn one(key: &str, request: &Value) -> Result<Question, String> {
    if key.len() > MAX_KEY_BYTES {
        return Err("its question cannot be parsed".to_owned());
    }
    match request.get("method").and_then(Value::as_str) {
        Some("elicitation/create") => ask(key, request.get("params").unwrap_or(&Value::Null)),
        Some("sampling/createMessage") => Err("it requests model sampling, which is not supported".to_owned()),
        _ => Err("it makes a client request that is not supported".to_owned()),
    }
}

/// Parses one question from the parameters of `elicitation/create`.
pub(crate) fn ask(key: &str, params: &Value) -> Result<Question, String> {
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    let message = shown(text("message").unwrap_or_default(), MAX_SHOWN_CHARS);
    let kind = match text("mode") {
        None | Some("form") => QuestionKind::Form(form(params.get("requestedSchema"))?),
        Some("url") => QuestionKind::Url(page(text("url").unwrap_or_default())?),
        Some(_) => return Err("its question has an unknown mode".to_owned()),
    };
    Ok(Question { key: key.to_owned(), message, kind })
}

/// Checks a form. Forms are flat: fields with plain values, and lists of choices.
fn form(schema: Option<&Value>) -> Result<Value, String> {
    let unreadable = || "it asks for a form that cannot be shown".to_owned();
    let schema = schema.filter(|schema| schema.to_string().len() <= MAX_SCHEMA_BYTES).ok_or_else(unreadable)?;
    let fields = schema.get("properties").and_then(Value::as_object).ok_or_else(unreadable)?;
    let plain = |field: &Value| {
        let kind = field.get("type").and_then(Value::as_str);
        matches!(kind, Some("string" | "number" | "integer" | "boolean" | "array"))
    };
    let is_form = schema.get("type") == Some(&json!("object")) && fields.len() <= MAX_FIELDS;
    if is_form && fields.values().all(plain) { Ok(schema.clone()) } else { Err(unreadable()) }
}

/// Checks the address of a page. It is only shown to the person, never opened.
fn page(url: &str) -> Result<String, String> {
    let web = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    let fits = web && url.len() <= MAX_URL_BYTES && !url.contains(|c: char| c.is_control() || c.is_whitespace());
    if fits { Ok(url.to_owned()) } else { Err("it asks to visit a page with an invalid address".to_owned()) }
}

/// Returns the answers in the protocol's form.
pub(crate) fn responses(by_key: &BTreeMap<String, Answer>) -> Value {
    let one = |(key, answer): (&String, &Answer)| (key.clone(), response(answer));
    Value::Object(by_key.iter().map(one).collect::<Map<_, _>>())
}

pub(crate) fn response(answer: &Answer) -> Value {
    match answer {
        Answer::Filled(content) => json!({"action": "accept", "content": content}),
        Answer::Visited => json!({"action": "accept"}),
        Answer::Declined => json!({"action": "decline"}),
    }
}

#[cfg(test)]
mod tests {
    use executor::{Question, QuestionKind};
    use serde_json::{Value, json};

    use super::asks;

    fn asked(params: Value) -> Result<Vec<Question>, String> {
        asks(&json!({"inputRequests": {"k": {"method": "elicitation/create", "params": params}}}))
    }

    #[test]
    fn only_valid_forms_and_pages_are_accepted() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let form = |mode: Value| asked(json!({"mode": mode, "message": "Where\u{1b}?", "requestedSchema": schema}));
        let expected =
            Question { key: "k".to_owned(), message: "Where ?".to_owned(), kind: QuestionKind::Form(schema.clone()) };
        assert_eq!(form(Value::Null), Ok(vec![expected.clone()]));
        assert_eq!(form(json!("form")), Ok(vec![expected]));
        let page = asked(json!({"mode": "url", "message": "m", "url": "https://example.com/a?b"})).unwrap();
        assert_eq!(page[0].kind, QuestionKind::Url("https://example.com/a?b".to_owned()));
        assert_eq!(asks(&json!({"requestState": "s"})), Ok(Vec::new()));

        let deep = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        let long = json!({"type": "object", "properties": {"a": {"type": "string", "title": "x".repeat(17 << 10)}}});
        for bad in [
            json!({"message": "m"}),
            json!({"message": "m", "requestedSchema": deep}),
            json!({"message": "m", "requestedSchema": long}),
            json!({"mode": "url", "message": "m", "url": "file:///etc/passwd"}),
            json!({"mode": "url", "message": "m", "url": "https://a b"}),
            json!({"mode": "voice", "message": "m"}),
        ] {
            assert!(asked(bad.clone()).is_err(), "{bad}");
        }
        assert!(asks(&json!({"inputRequests": {"k": {"method": "sampling/createMessage"}}})).is_err());
        assert!(asks(&json!({"inputRequests": 7})).is_err());
        let many: serde_json::Map<_, _> = (0..9).map(|n| (n.to_string(), json!({}))).collect();
        assert!(asks(&json!({"inputRequests": many})).is_err());
    }
}
