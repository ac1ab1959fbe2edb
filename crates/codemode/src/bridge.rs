//! Answers a cell's calls to its host from the catalog, or turns them into tool calls. The guest is not trusted:
//! method, id, path, size and depth are checked again here.

use catalog::{ApiSchemas, Catalog, View};
use contract::config::SearchLimits;
use contract::frame::{HostCall, Method, ReplyValue};
use contract::json;
use contract::limits::{
    MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_JSON_VALUES, MAX_QUERY_BYTES, MAX_TARGET_BYTES,
};
use contract::tool::ToolSpec;
use executor::{Outcome, RESULT_DROPPED, UNKNOWN_OUTCOME};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::CallRow;

/// A cell's call after it was checked.
#[derive(Debug)]
pub(crate) enum BridgeRequest {
    /// A call that was answered from the catalog or rejected.
    Answered(ReplyValue),
    /// A tool call, to be executed.
    Tool { id: String, input: Value },
}

/// A reply up to this length is kept even if the journal is full: a rejection is not longer.
pub(crate) const MAX_SMALL_REPLY: usize = 4 << 10;

/// The `code` of the error for a target or payload that exceeds a limit.
const TOO_LARGE: &str = "value_too_large";

/// The code of an error about a call that may or may not have taken effect, so that a cell can tell it from a failure.
const OUTCOME_UNKNOWN: &str = "unknown_outcome";

impl BridgeRequest {
    /// Checks a call and answers it if it needs no tool. A tool call's arguments are parsed only if the tool exists.
    ///
    /// The driver handles yields, timers, stored outputs and session values itself and never passes them here.
    pub(crate) fn read(catalog: &Catalog, view: View, limits: &SearchLimits, call: &HostCall) -> Self {
        let target = call.target.as_str();
        if target.len() > MAX_TARGET_BYTES {
            let message = format!(
                "the name of the called tool has {} bytes, but at most {MAX_TARGET_BYTES} are allowed; use an id that \
                 tools.search(query) lists",
                target.len()
            );
            return Self::Answered(reject_with_code(TOO_LARGE, &message, target));
        }
        let read = match call.method {
            Method::Search => query(&call.payload).map(|arguments| {
                let find = |query: &str, limit| catalog.search(view, query, limit);
                Self::Answered(search(limits, &arguments, "tools.search", find))
            }),
            Method::Describe => Ok(Self::Answered(describe(catalog, view, target))),
            // A tool outside the view is treated like one that does not exist.
            Method::Call if catalog.get_in(view, target).is_none() => {
                Ok(Self::Answered(reject(&unknown(catalog, view, target), target)))
            }
            Method::Call => arguments(&call.payload).map(|input| Self::Tool { id: target.to_owned(), input }),
            Method::Namespace if view == View::ToolSearch => {
                Ok(Self::Answered(reject("there are no namespaces in Tool Search; use openclaw.tools", target)))
            }
            Method::Namespace => namespace(catalog, limits, target, &call.payload),
            Method::Yield | Method::Timer | Method::Output | Method::State => {
                Ok(Self::Answered(reject("internal error: the bridge does not answer this call", "")))
            }
        };
        read.unwrap_or_else(|error| Self::Answered(error.reply(target)))
    }
}

/// Why a call's payload is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum PayloadError {
    #[error("the call's arguments are not JSON")]
    Malformed,
    #[error(
        "the call's arguments have {0} values, but at most {MAX_JSON_VALUES} are allowed; split them into several calls"
    )]
    TooManyValues(usize),
    #[error("the query has {0} bytes, but at most {MAX_QUERY_BYTES} are allowed; use a shorter query")]
    LongQuery(usize),
}

impl PayloadError {
    fn reply(&self, target: &str) -> ReplyValue {
        match self {
            Self::Malformed => reject(&self.to_string(), target),
            Self::TooManyValues(_) | Self::LongQuery(_) => reject_with_code(TOO_LARGE, &self.to_string(), target),
        }
    }
}

/// Parses the arguments of a tool call. Their values are counted before they are parsed.
fn arguments(payload: &[u8]) -> Result<Value, PayloadError> {
    let values = json::measure(payload).values;
    if values > MAX_JSON_VALUES {
        return Err(PayloadError::TooManyValues(values));
    }
    let text = std::str::from_utf8(payload).map_err(|_| PayloadError::Malformed)?;
    json::read(text).map_err(|_| PayloadError::Malformed)
}

/// Parses the arguments of a catalog query.
fn query(payload: &[u8]) -> Result<Value, PayloadError> {
    if payload.len() > MAX_QUERY_BYTES {
        return Err(PayloadError::LongQuery(payload.len()));
    }
    arguments(payload)
}

/// Returns the reply that a cell receives for the outcome of its call.
pub(crate) fn reply(outcome: Outcome, tool: &str) -> ReplyValue {
    match outcome {
        Outcome::Returned(returned) => match encoded(&returned.into_cell_value()) {
            Ok(json) => ReplyValue::Resolved(json),
            Err(oversized) => {
                let message = format!("{RESULT_DROPPED}: {oversized}");
                reject_with_code(oversized.code(), &message, tool)
            }
        },
        Outcome::Failed(message) => reject(&message, tool),
        Outcome::Dropped(dropped) => reject_with_code(dropped.cause.code(), &dropped.message, tool),
        Outcome::Unknown => reject_with_code(OUTCOME_UNKNOWN, UNKNOWN_OUTCOME, tool),
    }
}

/// Answers `[query, { limit }]` with the results of `find`.
fn search(
    limits: &SearchLimits,
    arguments: &Value,
    name: &str,
    find: impl FnOnce(&str, usize) -> Vec<Value>,
) -> ReplyValue {
    let query = arguments.get(0).and_then(Value::as_str).unwrap_or_default();
    match search_limit(arguments.get(1).and_then(|options| options.get("limit")), limits) {
        Ok(limit) => resolve(&Value::from(find(query, limit)), name),
        Err(message) => reject(message, name),
    }
}

/// Returns how many tools a search may list: the requested number, but at most the configured maximum.
pub(crate) fn search_limit(asked: Option<&Value>, limits: &SearchLimits) -> Result<usize, &'static str> {
    let limit = match asked {
        None | Some(Value::Null) => limits.default,
        Some(asked) => match asked.as_u64().filter(|asked| *asked > 0) {
            Some(asked) => asked.min(limits.max),
            None => return Err("`limit` must be a whole number above 0"),
        },
    };
    Ok(usize::try_from(limit).unwrap_or(0))
}

fn describe(catalog: &Catalog, view: View, id: &str) -> ReplyValue {
    match catalog.describe(view, id) {
        Some(described) => resolve(&described, id),
        None => reject(&unknown(catalog, view, id), id),
    }
}

fn unknown(catalog: &Catalog, view: View, id: &str) -> String {
    let search = match view {
        View::CodeMode if catalog.len() == catalog.sources().mcp => "MCP.$search(query)",
        View::CodeMode => "tools.search(query)",
        View::ToolSearch => "openclaw.tools.search(query)",
    };
    catalog.unknown_tool_message(view, id, search)
}

/// Checks a call of a namespace's function, with the payload `[path, arguments]`. The syntax of the whole payload is
/// checked, but the arguments are parsed into values only if the function exists.
fn namespace(
    catalog: &Catalog,
    limits: &SearchLimits,
    namespace: &str,
    payload: &[u8],
) -> Result<BridgeRequest, PayloadError> {
    let text = std::str::from_utf8(payload).map_err(|_| PayloadError::Malformed)?;
    // Splits the pair and checks its syntax, but builds no values.
    let (path, given) = serde_json::from_str::<(&RawValue, &RawValue)>(text).map_err(|_| PayloadError::Malformed)?;
    let (path, given) = (path.get(), given.get().as_bytes());
    if path.len() > MAX_TARGET_BYTES {
        return Ok(not_callable(namespace, ""));
    }
    let path = arguments(path.as_bytes())?;
    let path: Vec<&str> = path.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let name = format!("{namespace}.{}", path.join("."));
    Ok(match (namespace, path.as_slice()) {
        ("MCP", ["$api"]) => BridgeRequest::Answered(resolve(&catalog.mcp_api(), &name)),
        ("MCP", ["$search"]) => {
            let find = |query: &str, limit| catalog.search_mcp(query, limit);
            BridgeRequest::Answered(search(limits, &query(given)?, &name, find))
        }
        ("MCP", [server, "$api"]) => {
            let given = query(given)?;
            let selector = given.get(0).and_then(Value::as_str);
            let schemas = match given.get(1).and_then(|options| options.get("schema")) {
                Some(Value::Bool(true)) => ApiSchemas::Included,
                _ => ApiSchemas::Omitted,
            };
            match catalog.mcp_server_api(server, selector, schemas) {
                Some(api) => BridgeRequest::Answered(resolve(&api, &name)),
                None => not_on_mcp(catalog, server, &name),
            }
        }
        ("MCP", path) => match catalog.mcp_function(path) {
            None => not_on_mcp(catalog, path.first().copied().unwrap_or_default(), &name),
            Some(tool) => mcp_call(catalog, tool, arguments(given)?, &name),
        },
        // Looks up the function without arguments: whether it exists does not depend on them.
        (global, path) if catalog.namespace_call(global, path, &[]).is_err() => not_callable(namespace, &name),
        (global, path) => {
            let given = arguments(given)?;
            match catalog.namespace_call(global, path, given.as_array().map(Vec::as_slice).unwrap_or_default()) {
                Ok((id, input)) => BridgeRequest::Tool { id: id.as_str().to_owned(), input },
                Err(_) => not_callable(namespace, &name),
            }
        }
    })
}

/// Returns the tool that a stored call is for. `None` if it calls no tool, or one that the catalog does not have.
pub(crate) fn tool_of(catalog: &Catalog, call: &CallRow) -> Option<String> {
    if call.tool_id.is_some() {
        return call.tool_id.clone();
    }
    match Method::parse(&call.method)? {
        Method::Call | Method::Describe => Some(call.target.clone()),
        Method::Namespace => {
            let (path, _) = serde_json::from_str::<(&RawValue, &RawValue)>(&call.payload).ok()?;
            let path: Vec<String> =
                (path.get().len() <= MAX_TARGET_BYTES).then(|| serde_json::from_str(path.get()).ok())??;
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let tool = match call.target.as_str() {
                "MCP" => catalog.mcp_function(&path)?.id.clone(),
                global => catalog.namespace_call(global, &path, &[]).ok()?.0,
            };
            Some(tool.as_str().to_owned())
        }
        Method::Search | Method::Yield | Method::Timer | Method::Output | Method::State => None,
    }
}

/// Returns the call of an MCP tool, which takes one object or no argument.
fn mcp_call(catalog: &Catalog, tool: &ToolSpec, given: Value, name: &str) -> BridgeRequest {
    let mut given = match given {
        Value::Array(given) => given,
        _ => Vec::new(),
    };
    let input = match (given.pop(), given.is_empty()) {
        (None, _) => json!({}),
        (Some(input @ Value::Object(_)), true) => input,
        _ => {
            let message = format!("MCP tools take one object argument: {name}({})", catalog.signature(tool));
            return BridgeRequest::Answered(reject(&message, name));
        }
    };
    BridgeRequest::Tool { id: tool.id.as_str().to_owned(), input }
}

/// Rejects the call of a function that `MCP` does not have. If the server is unavailable, the error says why.
fn not_on_mcp(catalog: &Catalog, server: &str, name: &str) -> BridgeRequest {
    match catalog.why_unavailable(server) {
        Some(why) => BridgeRequest::Answered(reject(&why, name)),
        None => not_callable("MCP", name),
    }
}

fn not_callable(namespace: &str, name: &str) -> BridgeRequest {
    let name = if name.is_empty() { namespace } else { name };
    BridgeRequest::Answered(reject(&format!("`{name}` is not a function of this run's namespaces"), name))
}

fn resolve(value: &Value, tool: &str) -> ReplyValue {
    match encoded(value) {
        Ok(json) => ReplyValue::Resolved(json),
        Err(oversized) => reject_with_code(oversized.code(), &oversized.to_string(), tool),
    }
}

/// Why a result does not fit in a reply.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum OversizedResult {
    #[error(
        "the result has {0} bytes of JSON, but at most {MAX_BRIDGE_VALUE_BYTES} fit in a reply; ask for less at once, such \
         as a page, a filter or fewer fields"
    )]
    Bytes(usize),
    #[error(
        "the result nests deeper than {MAX_BRIDGE_VALUE_DEPTH} levels; ask for less at once, such as fewer fields or a \
         part of it"
    )]
    Depth,
}

impl OversizedResult {
    /// The `code` of the error that the cell can catch.
    fn code(&self) -> &'static str {
        match self {
            Self::Bytes(_) => TOO_LARGE,
            Self::Depth => "value_too_deep",
        }
    }
}

fn encoded(value: &Value) -> Result<Vec<u8>, OversizedResult> {
    let text = value.to_string();
    if text.len() > MAX_BRIDGE_VALUE_BYTES {
        return Err(OversizedResult::Bytes(text.len()));
    }
    if json::depth(text.as_bytes()) > MAX_BRIDGE_VALUE_DEPTH {
        return Err(OversizedResult::Depth);
    }
    Ok(text.into_bytes())
}

fn reject(message: &str, tool: &str) -> ReplyValue {
    ReplyValue::Rejected(json!({"message": message, "tool": shortened(tool)}).to_string().into_bytes())
}

/// Builds a rejection with a `code` that the cell can check.
pub(crate) fn reject_with_code(code: &str, message: &str, tool: &str) -> ReplyValue {
    ReplyValue::Rejected(json!({"message": message, "code": code, "tool": shortened(tool)}).to_string().into_bytes())
}

/// Shortens a tool's name for an error message.
fn shortened(tool: &str) -> String {
    tool.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use catalog::{Catalog, View};
    use contract::config::SearchLimits;
    use contract::frame::{HostCall, Method, ReplyValue};
    use contract::ids::CallId;
    use contract::limits::{
        MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_JSON_VALUES, MAX_QUERY_BYTES, MAX_TARGET_BYTES,
    };
    use contract::tool::{ToolId, ToolSpec};
    use executor::{DropCause, Outcome, RESULT_DROPPED, ToolResult};
    use serde_json::{Value, json};

    use super::{BridgeRequest, reply};

    fn read(method: Method, target: &str, payload: &str) -> BridgeRequest {
        let tool = |id: &str| ToolSpec::new(ToolId::parse(id).unwrap(), String::new(), json!({"type": "object"}));
        let catalog = Catalog::new(vec![tool("openclaw:a:b"), tool("mcp:s:t")]).unwrap();
        let limits = SearchLimits { default: 8, max: 50 };
        let call = HostCall { id: CallId(1), method, target: target.to_owned(), payload: payload.into() };
        BridgeRequest::read(&catalog, View::CodeMode, &limits, &call)
    }

    fn rejection(request: BridgeRequest) -> Value {
        match request {
            BridgeRequest::Answered(ReplyValue::Rejected(text)) => serde_json::from_slice(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_of_a_call_to_an_unknown_name_are_not_parsed() {
        // Where the payload is not JSON, an error about the name proves that it was not parsed. The payload of a
        // namespace call contains the name, so its syntax is checked first.
        let cases = [
            (Method::Call, "openclaw:a:c", "[[[", "unknown tool `openclaw:a:c`"),
            (Method::Describe, "openclaw:a:c", "[[[", "unknown tool `openclaw:a:c`"),
            (Method::Namespace, "MCP", r#"[["s","no"],[1e,]]"#, "not JSON"),
            (Method::Namespace, "MCP", r#"[["s","no"],[{"a":1}]]"#, "`MCP.s.no` is not a function"),
            (Method::Namespace, "Nothing", r#"[["a"],[]]"#, "`Nothing.a` is not a function"),
        ];
        for (method, target, payload, expected) in cases {
            let rejected = rejection(read(method, target, payload));
            assert!(rejected["message"].as_str().unwrap().contains(expected), "{target} {payload}: {rejected}");
        }
    }

    #[test]
    fn long_names_long_queries_and_many_values_are_refused_with_a_code() {
        let many = format!("[{}0]", "0,".repeat(MAX_JSON_VALUES));
        let long_path = format!(r#"[["{}"],[]]"#, "a".repeat(MAX_TARGET_BYTES));
        let long_query = format!(r#"["{}"]"#, "a".repeat(MAX_QUERY_BYTES));
        let cases = [
            (Method::Call, "a".repeat(MAX_TARGET_BYTES + 1), "{}".to_owned(), "at most 1024"),
            (Method::Describe, "a".repeat(MAX_TARGET_BYTES + 1), "{}".to_owned(), "at most 1024"),
            (Method::Call, "openclaw:a:b".to_owned(), many.clone(), "at most 200000"),
            (Method::Namespace, "MCP".to_owned(), format!(r#"[["s","t"],{many}]"#), "at most 200000"),
            (Method::Search, String::new(), long_query.clone(), "at most 65536"),
            (Method::Namespace, "MCP".to_owned(), format!(r#"[["$search"],{long_query}]"#), "at most 65536"),
        ];
        for (method, target, payload, expected) in cases {
            let rejected = rejection(read(method, &target, &payload));
            assert!(rejected["message"].as_str().unwrap().contains(expected), "{rejected}");
            assert_eq!(rejected["code"], "value_too_large", "{rejected}");
        }
        assert!(rejection(read(Method::Namespace, "MCP", &long_path))["message"].is_string());
    }

    #[test]
    fn a_result_that_is_dropped_has_a_code_and_says_that_the_tool_was_called() {
        let long = Outcome::Returned(ToolResult::text("a".repeat(MAX_BRIDGE_VALUE_BYTES)));
        let deep = (0..=MAX_BRIDGE_VALUE_DEPTH).fold(json!(1), |inner, _| json!([inner]));
        let deep = Outcome::Returned(ToolResult::json(deep));
        let cases = [
            (long, "value_too_large", "at most 16777216 fit in a reply; ask for less at once"),
            (deep, "value_too_deep", "nests deeper than 1000 levels; ask for less at once"),
            (Outcome::dropped(DropCause::TooLarge, "ask for a page"), "value_too_large", "dropped: ask for a page"),
            (Outcome::dropped(DropCause::Unavailable, "no disk"), "internal_error", "dropped: no disk"),
        ];
        for (outcome, code, expected) in cases {
            let rejected = rejection(BridgeRequest::Answered(reply(outcome, "mcp:s:t")));
            let message = rejected["message"].as_str().unwrap();
            assert!(message.starts_with(RESULT_DROPPED) && message.contains(expected), "{message}");
            assert_eq!((&rejected["code"], &rejected["tool"]), (&json!(code), &json!("mcp:s:t")));
        }
    }

    #[test]
    fn the_largest_allowed_number_of_values_reaches_the_tool() {
        let zeros = "0,".repeat(MAX_JSON_VALUES - 3 - 1);
        let request = read(Method::Call, "openclaw:a:b", &format!(r#"{{"a":[{zeros}0]}}"#));
        assert!(matches!(request, BridgeRequest::Tool { ref id, .. } if id == "openclaw:a:b"), "{request:?}");
    }
}
