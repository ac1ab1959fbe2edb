//! Reads the arguments of a call of the guest's `output` object.

use contract::ids::OutputHandle;
use contract::limits::{DEFAULT_PAGE_LINES, DEFAULT_PAGE_UNITS, MAX_PAGE_LINES, MAX_PAGE_UNITS, MAX_QUERY_BYTES};
use serde_json::Value;

use super::grep::LetterCase;

/// A call of the guest's `output` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputRequest {
    List,
    Of(OutputHandle, Selection),
}

/// What is read of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    Page { offset: u64, length: u64 },
    Lines { from: u64, count: usize },
    Json,
    Matches { pattern: String, case: LetterCase, limit: usize },
}

/// Why the arguments are refused. The message is for the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadArguments(pub(crate) String);

impl OutputRequest {
    pub(crate) fn read(function: &str, payload: &[u8]) -> Result<Self, BadArguments> {
        if payload.len() > MAX_QUERY_BYTES {
            let message =
                format!("the arguments have {} bytes, but at most {MAX_QUERY_BYTES} are allowed", payload.len());
            return Err(BadArguments(message));
        }
        let arguments: Vec<Value> = match serde_json::from_slice(payload) {
            Ok(Value::Array(arguments)) => arguments,
            _ => return Err(BadArguments("the call's arguments are not an array".to_owned())),
        };
        if function == "list" {
            return Ok(Self::List);
        }
        let options = |at: usize| ReadOptions { function, of: arguments.get(at).filter(|options| options.is_object()) };
        let selection = match function {
            "read" => Selection::Page {
                offset: options(1).number("offset", 0, u64::MAX)?,
                length: options(1).number("length", DEFAULT_PAGE_UNITS as u64, MAX_PAGE_UNITS as u64)?,
            },
            "lines" => {
                let count = options(1).number("count", DEFAULT_PAGE_LINES as u64, MAX_PAGE_LINES as u64)?;
                let count = usize::try_from(count).unwrap_or(MAX_PAGE_LINES);
                Selection::Lines { from: options(1).number("from", 0, u64::MAX)?, count }
            }
            "json" => Selection::Json,
            "grep" => {
                let (pattern, has_flag) = pattern(arguments.get(1))?;
                let limit = options(2).number("limit", DEFAULT_PAGE_LINES as u64, MAX_PAGE_LINES as u64)?;
                let ignores_case = options(2).flag("ignoreCase")? || has_flag;
                let case = if ignores_case { LetterCase::Ignored } else { LetterCase::Significant };
                let limit = usize::try_from(limit).unwrap_or(MAX_PAGE_LINES);
                Selection::Matches { pattern, case, limit }
            }
            _ => return Err(BadArguments(format!("`output.{function}` is not a function"))),
        };
        Ok(Self::Of(handle(function, arguments.first())?, selection))
    }
}

/// Reads a handle: its text, or an object that has it.
fn handle(function: &str, given: Option<&Value>) -> Result<OutputHandle, BadArguments> {
    let text = given.and_then(|given| given.as_str().or_else(|| given.get("handle").and_then(Value::as_str)));
    text.map(OutputHandle::new).ok_or_else(|| {
        BadArguments(format!(
            "`output.{function}` takes a handle first: its text, or an object with the property `handle`"
        ))
    })
}

/// Reads a pattern and whether it ignores case: a text, or an object like a `RegExp`.
fn pattern(given: Option<&Value>) -> Result<(String, bool), BadArguments> {
    let field = |name: &str| given.and_then(|given| given.get(name)).and_then(Value::as_str);
    match given.and_then(Value::as_str).or_else(|| field("source")) {
        Some(pattern) => Ok((pattern.to_owned(), field("flags").is_some_and(|flags| flags.contains('i')))),
        None => Err(BadArguments("`output.grep` takes a pattern after the handle: a text or a RegExp".to_owned())),
    }
}

/// The options of a call, which may be omitted.
struct ReadOptions<'a> {
    function: &'a str,
    of: Option<&'a Value>,
}

impl ReadOptions<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.of.and_then(|options| options.get(name)).filter(|value| !value.is_null())
    }

    fn number(&self, name: &str, default: u64, most: u64) -> Result<u64, BadArguments> {
        let Some(given) = self.get(name) else { return Ok(default) };
        // JavaScript may write a whole number with an exponent.
        let whole = given.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=9e15).contains(number));
        let number = given.as_u64().or_else(|| whole.map(|number| number as u64));
        number.filter(|number| *number <= most).ok_or_else(|| {
            let range = if most == u64::MAX { "from 0".to_owned() } else { format!("from 0 to {most}") };
            BadArguments(format!("`{name}` of `output.{}` must be a whole number {range}", self.function))
        })
    }

    fn flag(&self, name: &str) -> Result<bool, BadArguments> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(BadArguments(format!("`{name}` of `output.{}` must be true or false", self.function))),
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::ids::OutputHandle;

    use super::{LetterCase, OutputRequest, Selection};

    #[test]
    fn arguments_are_read_with_their_defaults() {
        let page = |offset, length| Selection::Page { offset, length };
        let lines = |from, count| Selection::Lines { from, count };
        let matches = |pattern: &str, case, limit| Selection::Matches { pattern: pattern.to_owned(), case, limit };
        let cases = [
            ("read", r#"["out_a_b"]"#, page(0, 65_536)),
            ("read", r#"[{"handle":"out_a_b"},{"offset":5,"length":1e3}]"#, page(5, 1_000)),
            ("read", r#"["out_a_b",{"offset":null}]"#, page(0, 65_536)),
            ("lines", r#"["out_a_b",{"from":7,"count":10000}]"#, lines(7, 10_000)),
            ("lines", r#"["out_a_b"]"#, lines(0, 100)),
            ("json", r#"["out_a_b"]"#, Selection::Json),
            ("grep", r#"["out_a_b","a+"]"#, matches("a+", LetterCase::Significant, 100)),
            ("grep", r#"["out_a_b","a+",{"limit":1,"ignoreCase":true}]"#, matches("a+", LetterCase::Ignored, 1)),
            ("grep", r#"["out_a_b",{"source":"a","flags":"gi"}]"#, matches("a", LetterCase::Ignored, 100)),
        ];
        for (function, payload, expected) in cases {
            let expected = OutputRequest::Of(OutputHandle::new("out_a_b"), expected);
            assert_eq!(OutputRequest::read(function, payload.as_bytes()), Ok(expected), "{payload}");
        }
        assert_eq!(OutputRequest::read("list", b"[]"), Ok(OutputRequest::List));
    }

    #[test]
    fn other_arguments_are_refused_with_what_is_expected() {
        let long = format!("[\"{}\"]", "a".repeat(70_000));
        let cases = [
            ("read", "[]", "takes a handle first"),
            ("read", "[7]", "takes a handle first"),
            ("read", "{}", "not an array"),
            ("read", r#"["h",{"offset":-1}]"#, "`offset` of `output.read` must be a whole number from 0"),
            ("read", r#"["h",{"length":4194305}]"#, "a whole number from 0 to 4194304"),
            ("lines", r#"["h",{"count":1.5}]"#, "`count` of `output.lines`"),
            ("grep", r#"["h"]"#, "takes a pattern"),
            ("grep", r#"["h","a",{"ignoreCase":"yes"}]"#, "must be true or false"),
            ("write", r#"["h"]"#, "`output.write` is not a function"),
            ("json", &long, "at most 65536"),
        ];
        for (function, payload, expected) in cases {
            let refused = OutputRequest::read(function, payload.as_bytes()).unwrap_err();
            assert!(refused.0.contains(expected), "{refused:?}");
        }
    }
}
