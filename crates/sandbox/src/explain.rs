//! Explains errors that the engine throws, with the names in the catalog: which tool a misspelt name may mean, what to use
//! instead of a global that cells do not have, and which failed result an error may follow from.
//!
//! The request comes from the guest and is not trusted. The answer depends only on it and on the catalog's tables, so a
//! replayed cell gets the same text.

mod absent;
mod excerpt;
mod names;
mod similar;

#[cfg(test)]
mod tests;

use contract::json;
use serde_json::Value;

use crate::tables::Tables;
use excerpt::{callee, first_name, iterated, undefined_base};
use names::{Names, cleaned, listed};

/// The longest request that is read; the prelude sends less.
const MAX_REQUEST_BYTES: usize = 64 << 10;

/// The maximum length of a failed result's text.
const MAX_FAILURE_CHARS: usize = 300;

/// The maximum number of names of a result's structured content.
const MAX_FIELDS: usize = 8;

/// An error as `explain` in `guest/prelude/explain.js` describes it.
#[derive(Debug)]
struct Request {
    message: String,
    /// The source before and after the place of the error; empty if it is not in the cell.
    before: String,
    after: String,
    /// The object of the catalog whose method was called, as a cell writes it: `MCP.files`.
    receiver: Option<String>,
    /// The names in the structured content of the MCP result that was used.
    result: Option<Vec<String>>,
    /// Names that the cell read from objects of the catalog in vain, with the object; the latest last.
    missed: Vec<(String, String)>,
    failed: Option<FailedResult>,
    /// Whether the value that was used is a promise.
    is_promise: bool,
    /// The last name that the cell read from a promise in vain.
    unawaited: Option<String>,
}

/// An MCP result with `isError`.
#[derive(Debug)]
struct FailedResult {
    /// The call, as a cell writes it.
    name: String,
    text: String,
}

impl Request {
    /// Reads a request; fields that are absent or of another type are left out.
    fn parse(request: &Value) -> Option<Self> {
        let text = |name: &str| request.get(name).and_then(Value::as_str).map(str::to_owned);
        let list = |name: &str| request.get(name).and_then(Value::as_array);
        let pair = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.as_str()?.to_owned()));
        Some(Self {
            message: text("message")?,
            before: text("before").unwrap_or_default(),
            after: text("after").unwrap_or_default(),
            receiver: text("receiver"),
            result: list("result").map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
            missed: list("missed").into_iter().flatten().filter_map(pair).collect(),
            failed: request.get("failed").and_then(|failed| {
                let field = |name: &str| Some(failed.get(name)?.as_str()?.to_owned());
                Some(FailedResult { name: field("name")?, text: field("text")? })
            }),
            is_promise: request.get("isPromise") == Some(&Value::Bool(true)),
            unawaited: text("unawaited"),
        })
    }
}

impl FailedResult {
    fn quote(&self) -> String {
        let (name, text) = (cleaned(&self.name, MAX_FAILURE_CHARS), cleaned(&self.text, MAX_FAILURE_CHARS));
        format!("the result of {name} had isError: {text}")
    }
}

/// A better message for an error.
enum Explanation {
    /// The cell used a name that does not exist.
    Name(String),
    /// The cell used a value of another kind than it expected, perhaps because a call had failed.
    Value(String),
}

/// Returns the message that replaces an error's own, if there is a better one.
pub(crate) fn answer(tables: &Tables, request: &[u8]) -> Option<String> {
    if request.len() > MAX_REQUEST_BYTES {
        return None;
    }
    let request = json::read(std::str::from_utf8(request).ok()?).ok()?;
    explain(&Names::new(tables), &Request::parse(&request)?)
}

fn explain(names: &Names<'_>, request: &Request) -> Option<String> {
    let message = request.message.as_str();
    if let Some(name) = message.strip_suffix(" is not defined") {
        return undefined_name(names, name).map(|advice| format!("{message}{advice}"));
    }
    if let Some(advice) = missing_await(request) {
        return Some(advice);
    }
    let explanation = if message == "not a function" {
        not_a_function(names, request)
    } else if message == "value is not iterable" {
        not_iterable(request)
    } else if message.starts_with("cannot read property '") && message.ends_with(" of undefined") {
        undefined_member(names, request).map(Explanation::Name)
    } else {
        None
    };
    let text = match explanation {
        Some(Explanation::Name(text)) => return Some(text),
        Some(Explanation::Value(text)) => Some(text),
        None => None,
    };
    match &request.failed {
        Some(failed) if !message.contains(" had isError: ") => {
            Some(format!("{}; {}", text.as_deref().unwrap_or(message), failed.quote()))
        }
        _ => text,
    }
}

/// Explains the use of a promise as if it were its result, or of what the cell read from it.
fn missing_await(request: &Request) -> Option<String> {
    let message = request.message.as_str();
    if request.is_promise && request.receiver.is_none() {
        let callee = callee(&request.before, &request.after);
        let (what, value) = match (message, callee.name(), iterated(&request.after)) {
            ("not a function", Some(_), _) => {
                (format!("{} is not a function", callee.text()), callee.base().map(str::to_owned))
            }
            (_, _, Some(name)) => (format!("{name} is not iterable"), Some(name.to_owned())),
            _ => (message.to_owned(), None),
        };
        let value = value.map_or_else(|| "the value".to_owned(), |value| format!("`{value}`"));
        return Some(format!("{what}: {value} is a promise; {AWAIT}"));
    }
    let name = request.unawaited.as_deref()?;
    // The undefined value is named before or after the place of the error: `r.content.map`, `r.content[0]`.
    let is_used = undefined_base(&request.before).as_deref() == Some(name) || first_name(&request.after) == name;
    (message.starts_with("cannot read property '") && is_used)
        .then(|| format!("{message}: `{}` was read from a promise; {AWAIT}", cleaned(name, MAX_FAILURE_CHARS)))
}

/// What to do about a promise that is used as if it were its result.
const AWAIT: &str = "`await` the call first";

/// Explains a call of a value that is not a function.
fn not_a_function(names: &Names<'_>, request: &Request) -> Option<Explanation> {
    let callee = callee(&request.before, &request.after);
    let missed = |label: &str, name: &str| request.missed.iter().any(|(at, of)| at == label && of == name);
    if let Some(label) = &request.receiver {
        // A computed name is not in the source; it was read just before.
        let computed = || request.missed.iter().rev().find(|(at, _)| at == label).map(|(_, name)| name.as_str());
        let name = callee.name().or_else(computed)?;
        return Some(Explanation::Name(if missed(label, name) {
            names.unknown_member(label, name)
        } else {
            names.not_callable(label, name)
        }));
    }
    let Some(name) = callee.name() else {
        // A callback of a built-in function has no place in the cell.
        let (label, name) = only_missed(request)?;
        return Some(Explanation::Name(format!("{}: {}", request.message, names.unknown_member(label, name))));
    };
    // A function that was taken out of its object: `const { read } = MCP.files`.
    if let (true, Some((label, name))) =
        (callee.base().is_none(), request.missed.iter().rev().find(|(_, missed)| missed == name))
    {
        return Some(Explanation::Name(names.unknown_member(label, name)));
    }
    let text = callee.text();
    if let (Some("globalThis" | "window" | "self" | "global"), Some(advice)) =
        (callee.base(), undefined_name(names, name))
    {
        return Some(Explanation::Name(format!("{text} is not a function{advice}")));
    }
    if callee.base().is_none() && name == "output" {
        return Some(Explanation::Name(format!("output is not a function: {}", absent::PRINT)));
    }
    Some(Explanation::Value(match (&request.result, callee.base()) {
        (Some(fields), Some(base)) => format!("{text} is not a function: `{base}` is {}", shape(base, fields)),
        _ => format!("{text} is not a function"),
    }))
}

/// Explains a loop over the result of an MCP tool.
fn not_iterable(request: &Request) -> Option<Explanation> {
    let fields = request.result.as_ref()?;
    let (what, base) = match iterated(&request.after) {
        Some(name) => (name, name),
        None => ("value", "result"),
    };
    Some(Explanation::Value(format!("{what} is not iterable: it is {}", shape(base, fields))))
}

/// Explains the read of a property of `undefined` that came from an object of the catalog.
fn undefined_member(names: &Names<'_>, request: &Request) -> Option<String> {
    if let Some(name) = undefined_base(&request.before)
        && let Some((label, name)) = request.missed.iter().rev().find(|(_, missed)| *missed == name)
    {
        return Some(names.unknown_member(label, name));
    }
    // The value may have been read elsewhere and kept in a variable.
    let (label, name) = only_missed(request)?;
    request.failed.is_none().then(|| format!("{}: {}", request.message, names.unknown_member(label, name)))
}

/// Returns the name that the cell read in vain. With several such names, any guess may be wrong.
fn only_missed(request: &Request) -> Option<&(String, String)> {
    let (last, others) = request.missed.split_last()?;
    others.iter().all(|other| other == last).then_some(last)
}

/// Returns what follows `x is not defined`: where the name exists, or what to use instead.
fn undefined_name(names: &Names<'_>, name: &str) -> Option<String> {
    if let Some(meant) = names.meant_anywhere(name) {
        return Some(format!("; did you mean `{meant}`?"));
    }
    absent::advice(names, name).map(|advice| format!(": {advice}"))
}

/// Describes the result of an MCP tool, and where its data is. `base` is the expression that has it.
fn shape(base: &str, fields: &[String]) -> String {
    let what = "the result of an MCP tool, { content, structuredContent?, isError? }";
    if fields.is_empty() {
        return format!("{what}; its text is in `{base}.content[0].text`");
    }
    let fields: Vec<String> = fields.iter().map(|field| cleaned(field, 40)).collect();
    format!("{what}; its data is in `{base}.structuredContent`: {}", listed(&fields, MAX_FIELDS))
}
