//! The tools of a hostile cell: ordinary ones, misbehaving ones, and some that it must never reach.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolResult, ToolSource};
use serde_json::{Value, json};

pub(super) const APPROVE: &str = "openclaw:test:approve";
pub(super) const HOOK_BLOCKED: &str = "openclaw:test:hookblocked";
pub(super) const FORBIDDEN: &str = "openclaw:test:forbidden";

/// Part of the host-side error of the `fail` tool, which must not appear in any result, transcript or file.
pub(super) const CANARY: &str = "CANARY_SECRET_7f3a";
pub(super) const SECRET_PATH: &str = "/srv/gateway/secret/path.rs:42";

const MAX_SLEEP_MS: u64 = 5_000;
const MAX_BIG_BYTES: u64 = 32 << 20;
/// More levels than any JSON parser in this process accepts. Dropping a much deeper value would overflow the stack.
const MAX_DEPTH: u64 = 2_000;

/// Counts each tool's effects; every effect is written to a file and synced before the tool answers.
#[derive(Debug)]
pub(super) struct Effects {
    inner: Mutex<(File, BTreeMap<String, u64>)>,
}

impl Effects {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { inner: Mutex::new((file, BTreeMap::new())) })
    }

    pub(super) fn count(&self, id: &str) -> u64 {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.1.get(id).copied().unwrap_or(0)
    }

    fn add(&self, id: &str) -> std::io::Result<u64> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, counts) = &mut *inner;
        let count = counts.entry(id.to_owned()).or_default();
        *count += 1;
        writeln!(file, "{id}")?;
        file.sync_data()?;
        Ok(*count)
    }
}

/// The tools of one cell.
#[derive(Debug)]
pub(super) struct Fixture {
    pub effects: Arc<Effects>,
}

/// A tool's failure inside the host. Only the message is passed on to the cell.
struct HostError {
    message: String,
    #[expect(dead_code, reason = "exists to be dropped: nothing may print it")]
    stack: String,
}

impl HostError {
    fn new(message: &str) -> Self {
        Self { message: message.to_owned(), stack: format!("at {SECRET_PATH} with {CANARY}") }
    }
}

impl ToolSource for Fixture {
    fn tools(&self) -> Vec<ToolSpec> {
        let tool = |(id, about, parameters): (&str, &str, Value)| {
            Some(ToolSpec::new(ToolId::parse(id).ok()?, about, parameters))
        };
        table().into_iter().filter_map(tool).collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            let id = call.id().as_str();
            let Ok(count) = self.effects.add(id) else {
                return Dispatch::Settled(Outcome::Failed("cannot write the effects file".to_owned()));
            };
            Dispatch::Settled(match answer(id, call.input(), count).await {
                Ok(value) => Outcome::Returned(ToolResult::json(value)),
                Err(error) => Outcome::Failed(error.message),
            })
        })
    }
}

async fn answer(id: &str, input: &Value, count: u64) -> Result<Value, HostError> {
    let number = |name: &str| input.get(name).and_then(Value::as_u64).unwrap_or(0);
    Ok(match id {
        "openclaw:test:echo" => input.clone(),
        "openclaw:test:add" => sum(input),
        "openclaw:test:sleep" => {
            let ms = number("ms").min(MAX_SLEEP_MS);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            json!({"slept": ms})
        }
        "openclaw:test:never" => std::future::pending().await,
        "openclaw:test:fail" => {
            let message = input.get("message").and_then(Value::as_str).unwrap_or("fixture failure");
            return Err(HostError::new(message));
        }
        "openclaw:test:counter" => json!({"n": count}),
        "openclaw:test:big" => {
            let bytes = number("bytes").min(MAX_BIG_BYTES);
            Value::from("a".repeat(usize::try_from(bytes).unwrap_or(0)))
        }
        "openclaw:test:poison" => json!({
            "__proto__": {"polluted": true},
            "constructor": {"prototype": {"polluted": true}},
            "toString": "x",
            "valueOf": "y",
            "ok": 1,
        }),
        "openclaw:test:thenable" => json!({"then": "not-a-function", "ok": 1}),
        "openclaw:test:deep" if number("depth") > MAX_DEPTH => {
            return Err(HostError::new("depth exceeds the limit of the fixture"));
        }
        "openclaw:test:deep" => (0..number("depth"))
            .fold(json!([]), |inner, level| if level == 0 { inner } else { Value::Array(vec![inner]) }),
        // UTF-8 cannot contain a lone surrogate; decoders replace it with U+FFFD.
        "openclaw:test:utf" => json!("lone \u{fffd} surrogate \u{0} nul \u{2028}"),
        "plugin:alpha:dup_name" => json!("alpha"),
        "plugin:beta:dup_name" => json!("beta"),
        "plugin:issues:list_issues" => json!([{"number": 1, "title": "t"}]),
        "openclaw:core:exec" => json!({"ran": "shell"}),
        _ => json!({"ran": id}),
    })
}

fn sum(input: &Value) -> Value {
    let number = |name: &str| input.get(name).unwrap_or(&Value::Null);
    match (number("a").as_i64(), number("b").as_i64()) {
        (Some(a), Some(b)) => json!({"sum": a.saturating_add(b)}),
        _ => json!({"sum": number("a").as_f64().unwrap_or(0.0) + number("b").as_f64().unwrap_or(0.0)}),
    }
}

fn table() -> Vec<(&'static str, &'static str, Value)> {
    let object = || json!({"type": "object"});
    let with = |properties: Value| json!({"type": "object", "properties": properties});
    vec![
        // The schema explicitly accepts more than objects.
        (
            "openclaw:test:echo",
            "Returns its input unchanged.",
            json!({"type": ["object", "array", "string", "number", "boolean", "null"]}),
        ),
        (
            "openclaw:test:add",
            "Adds two numbers.",
            json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}),
        ),
        ("openclaw:test:sleep", "Settles after some milliseconds.", with(json!({"ms": {"type": "number"}}))),
        ("openclaw:test:never", "Never settles.", object()),
        ("openclaw:test:fail", "Fails.", with(json!({"message": {"type": "string"}}))),
        ("openclaw:test:counter", "Counts its calls.", object()),
        ("openclaw:test:big", "A long text.", with(json!({"bytes": {"type": "number"}}))),
        ("openclaw:test:poison", "Names of object internals.", object()),
        ("openclaw:test:thenable", "Looks like a promise.", object()),
        ("openclaw:test:deep", "Nested arrays.", with(json!({"depth": {"type": "number"}}))),
        ("openclaw:test:utf", "Text that is hard to carry.", object()),
        (APPROVE, "Needs a person to agree.", object()),
        (HOOK_BLOCKED, "Is blocked by a hook.", object()),
        ("plugin:alpha:dup_name", "Alpha's.", object()),
        ("plugin:beta:dup_name", "Beta's.", object()),
        ("plugin:evil:search", "A name that is taken.", object()),
        ("plugin:evil:call", "A name that is taken.", object()),
        ("plugin:evil:then", "A name that `await` would call.", object()),
        ("plugin:evil:__proto__", "A name of an object's inside.", object()),
        ("plugin:evil:constructor", "A name of an object's inside.", object()),
        ("plugin:issues:list_issues", "Issues.", object()),
        ("openclaw:core:exec", "Runs a shell command.", object()),
        (FORBIDDEN, "Is denied by policy.", object()),
    ]
}
