//! Answers what a cell asks of its host. The guest's word counts for nothing here: method, id, path,
//! size and depth are all looked at again.

use catalog::{Catalog, View};
use contract::config::SearchLimits;
use contract::frame::{HostCall, Method, ReplyValue};
use contract::json;
use contract::limits::{MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH};
use executor::{Outcome, UNKNOWN_OUTCOME};
use serde_json::{Value, json};

/// One question of a cell's, understood.
#[derive(Debug)]
pub(crate) enum Request {
    /// It could be answered from the catalog, or not at all.
    Answered(ReplyValue),
    /// It is a tool call, and this is the tool.
    Tool { id: String, input: Value },
}

impl Request {
    /// Yields and timers never come here: they are the driver's.
    pub(crate) fn read(catalog: &Catalog, view: View, limits: &SearchLimits, call: &HostCall) -> Self {
        let payload = match std::str::from_utf8(&call.payload).map(json::read) {
            Ok(Ok(payload)) => payload,
            Ok(Err(_)) | Err(_) => return Self::Answered(reject("the call's arguments are not JSON", &call.target)),
        };
        match call.method {
            Method::Search => Self::Answered(search(limits, &payload, "tools.search", |query, limit| {
                catalog.search(view, query, limit)
            })),
            Method::Describe => Self::Answered(describe(catalog, view, &call.target)),
            // A tool that is not in view answers as one that does not exist.
            Method::Call if catalog.get_in(view, &call.target).is_none() => {
                Self::Answered(reject(&unknown(catalog, view, &call.target), &call.target))
            }
            Method::Call => Self::Tool { id: call.target.clone(), input: payload },
            Method::Namespace if view == View::ToolSearch => {
                Self::Answered(reject("there are no namespaces here; openclaw.tools has all tools", &call.target))
            }
            Method::Namespace => namespace(catalog, limits, &call.target, &payload),
            Method::Yield | Method::Timer => Self::Answered(reject("nothing to answer", "")),
        }
    }
}

/// What a cell is told of how its call ended.
pub(crate) fn reply(outcome: &Outcome, tool: &str) -> ReplyValue {
    match outcome {
        Outcome::Returned(returned) => resolve(&returned.for_guest(), tool),
        Outcome::Failed(message) => reject(message, tool),
        Outcome::Unknown => reject(UNKNOWN_OUTCOME, tool),
    }
}

/// `[query, { limit }]`, answered by this search.
fn search(
    limits: &SearchLimits,
    arguments: &Value,
    name: &str,
    find: impl FnOnce(&str, usize) -> Vec<Value>,
) -> ReplyValue {
    let query = arguments.get(0).and_then(Value::as_str).unwrap_or_default();
    match limit(arguments.get(1).and_then(|options| options.get("limit")), limits) {
        Ok(limit) => resolve(&Value::from(find(query, limit)), name),
        Err(message) => reject(message, name),
    }
}

/// How many tools a search lists: what was asked for, within what is allowed.
pub(crate) fn limit(asked: Option<&Value>, limits: &SearchLimits) -> Result<usize, &'static str> {
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
        View::CodeMode => "tools.search(query)",
        View::ToolSearch => "openclaw.tools.search(query)",
    };
    catalog.unknown(view, id, search)
}

/// `[path, arguments]` of a namespace's function.
fn namespace(catalog: &Catalog, limits: &SearchLimits, namespace: &str, payload: &Value) -> Request {
    let path: Vec<&str> =
        payload.get(0).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let arguments = payload.get(1).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let name = format!("{namespace}.{}", path.join("."));
    let not_callable =
        || Request::Answered(reject(&format!("`{name}` is not a function of this run's namespaces"), &name));
    match (namespace, path.as_slice()) {
        ("MCP", ["$api"]) => Request::Answered(resolve(&catalog.mcp_api(), &name)),
        ("MCP", ["$search"]) => Request::Answered(search(limits, &Value::from(arguments), &name, |query, limit| {
            catalog.search_mcp(query, limit)
        })),
        ("MCP", [server, "$api"]) => {
            let selector = arguments.first().and_then(Value::as_str);
            let with_schema = arguments.get(1).and_then(|options| options.get("schema")) == Some(&Value::Bool(true));
            match catalog.mcp_server_api(server, selector, with_schema) {
                Some(api) => Request::Answered(resolve(&api, &name)),
                None => not_callable(),
            }
        }
        ("MCP", path) => match (catalog.mcp_function(path), arguments) {
            (None, _) => not_callable(),
            (Some(tool), []) => Request::Tool { id: tool.id.as_str().to_owned(), input: json!({}) },
            (Some(tool), [input @ Value::Object(_)]) => {
                Request::Tool { id: tool.id.as_str().to_owned(), input: input.clone() }
            }
            (Some(_), _) => Request::Answered(reject("MCP tools take one object argument", &name)),
        },
        (global, path) => match catalog.namespace_call(global, path, arguments) {
            Ok((id, input)) => Request::Tool { id: id.as_str().to_owned(), input },
            Err(_) => not_callable(),
        },
    }
}

fn resolve(value: &Value, tool: &str) -> ReplyValue {
    let text = value.to_string();
    if text.len() > MAX_BRIDGE_VALUE_BYTES {
        let message =
            format!("the result has {} bytes, at most {MAX_BRIDGE_VALUE_BYTES} reach a cell; ask for less", text.len());
        return reject(&message, tool);
    }
    if json::depth(text.as_bytes()) > MAX_BRIDGE_VALUE_DEPTH {
        let message = format!("the result nests deeper than {MAX_BRIDGE_VALUE_DEPTH} levels; ask for less");
        return reject(&message, tool);
    }
    ReplyValue::Resolved(text.into_bytes())
}

fn reject(message: &str, tool: &str) -> ReplyValue {
    let shown: String = tool.chars().take(200).collect();
    ReplyValue::Rejected(json!({"message": message, "tool": shown}).to_string().into_bytes())
}
