use contract::ids::CatalogHash;
use serde_json::{Value, json};

use super::answer;
use crate::tables::Tables;

fn tables(entries: &[(&str, Value)]) -> Tables {
    let mut bytes = Vec::new();
    for (key, value) in entries {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        for field in [(*key).to_owned(), value] {
            bytes.extend_from_slice(&u32::try_from(field.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(field.as_bytes());
        }
    }
    Tables::parse(CatalogHash([0; 32]), bytes).unwrap()
}

fn functions(names: &[&str]) -> Value {
    let entries: Vec<Value> = names.iter().map(|name| json!([name, {"kind": "function"}])).collect();
    json!({"kind": "object", "entries": entries})
}

fn catalog() -> Tables {
    let mut files = functions(&["$api", "readTextFile", "listDirectory"]);
    files["entries"].as_array_mut().unwrap().push(json!(["resources", functions(&["list", "read"])]));
    tables(&[
        ("mcp", json!(["files", "git"])),
        ("mcp/files", files),
        ("mcp/git", functions(&["$api", "status"])),
        ("fold//files", json!("files")),
        ("fold//git", json!("git")),
        ("fold/files/readtextfile", json!("readTextFile")),
        ("fold/files/listdirectory", json!("listDirectory")),
        ("fold/git/status", json!("status")),
        ("tools", json!(["web_search"])),
        ("namespaces", json!(["Issues"])),
        ("namespace/Issues", functions(&["list", "create"])),
    ])
}

fn ask(tables: &Tables, request: &Value) -> Option<String> {
    answer(tables, request.to_string().as_bytes())
}

#[test]
fn a_call_of_an_unknown_name_names_the_nearest_ones() {
    let cases = [
        ("MCP.files", "readFileText", "MCP.files has no tool `readFileText`; did you mean `readTextFile`?"),
        ("MCP.files", "status", "MCP.files has no tool `status`; did you mean `MCP.git.status`?"),
        (
            "MCP.files",
            "zap",
            "MCP.files has no tool `zap`; its tools are readTextFile, listDirectory. `await MCP.files.$api()` describes \
             them",
        ),
        ("MCP.files.resources", "lst", "MCP.files.resources has no `lst`; did you mean `list`?"),
        ("MCP.files.resources", "zap", "MCP.files.resources has no `zap`; it has list, read"),
        ("MCP", "fils", "there is no MCP server `fils`; did you mean `files`? Servers: files, git"),
        ("MCP", "call", "there is no MCP server `call`; write MCP.<server>.<tool>({ … }). Servers: files, git"),
        ("MCP", "read_text_file", "there is no MCP server `read_text_file`; did you mean `MCP.files.readTextFile`?"),
        ("tools", "readTextFile", "`tools` has no `readTextFile`; did you mean `MCP.files.readTextFile`?"),
        ("tools", "webSerch", "`tools` has no `webSerch`; did you mean `web_search`?"),
        ("tools", "zap", "`tools` has no `zap`; `await tools.search(query)` finds tools"),
        ("Issues", "creat", "Issues has no `creat`; did you mean `create`?"),
        ("namespaces", "Isues", "namespaces has no `Isues`; did you mean `Issues`?"),
    ];
    for (receiver, name, expected) in cases {
        let request = json!({
            "message": "not a function", "before": format!("await {receiver}."), "after": format!("{name}()"),
            "receiver": receiver, "missed": [[receiver, name]],
        });
        assert_eq!(ask(&catalog(), &request).as_deref(), Some(expected), "{receiver}.{name}");
        let request = json!({
            "message": "cannot read property 'x' of undefined", "before": format!("{receiver}.{name}."),
            "after": "x", "missed": [["MCP", "other"], [receiver, name]],
        });
        assert_eq!(ask(&catalog(), &request).as_deref(), Some(expected), "{receiver}.{name}.x");
    }
}

#[test]
fn a_name_that_was_read_elsewhere_is_found() {
    let missed = json!([["MCP.files", "readFileText"]]);
    let expected = "MCP.files has no tool `readFileText`; did you mean `readTextFile`?";
    let taken = json!({"message": "not a function", "before": "await ", "after": "readFileText()", "missed": missed});
    assert_eq!(ask(&catalog(), &taken).as_deref(), Some(expected));
    let computed = json!({
        "message": "not a function", "before": "MCP.", "after": "files[name]()", "receiver": "MCP.files",
        "missed": missed,
    });
    assert_eq!(ask(&catalog(), &computed).as_deref(), Some(expected));
    let kept =
        json!({"message": "cannot read property 'x' of undefined", "before": "it.", "after": "x", "missed": missed});
    let message = format!("cannot read property 'x' of undefined: {expected}");
    assert_eq!(ask(&catalog(), &kept), Some(message));
    let callback = json!({"message": "not a function", "missed": missed});
    assert_eq!(ask(&catalog(), &callback), Some(format!("not a function: {expected}")));
    let unsure = json!({
        "message": "cannot read property 'x' of undefined", "before": "it.", "after": "x",
        "missed": [["MCP", "a"], ["MCP", "b"]],
    });
    assert_eq!(ask(&catalog(), &unsure), None);
}

#[test]
fn a_value_that_is_not_a_function_is_named() {
    let cases = [
        (json!({"before": "x = list.", "after": "nap(f)"}), "list.nap is not a function"),
        (json!({"before": "", "after": "nap(f)"}), "nap is not a function"),
        (json!({"before": "f()", "after": "(1)"}), "not a function"),
        (
            json!({"before": "MCP.", "after": "files()", "receiver": "MCP"}),
            "MCP.files is a server, not a function; call one of its tools: readTextFile, listDirectory",
        ),
        (
            json!({"before": "MCP.files.", "after": "resources()", "receiver": "MCP.files"}),
            "MCP.files.resources is not a function; it has list, read",
        ),
        (
            json!({"before": "r.", "after": "map(f)", "result": ["entries", "total"]}),
            "r.map is not a function: `r` is the result of an MCP tool, { content, structuredContent?, isError? }; its \
             data is in `r.structuredContent`: entries, total",
        ),
        (
            json!({"before": "r.", "after": "split(f)", "result": []}),
            "r.split is not a function: `r` is the result of an MCP tool, { content, structuredContent?, isError? }; its \
             text is in `r.content[0].text`",
        ),
        (
            json!({"before": "globalThis.", "after": "fetch(u)"}),
            "globalThis.fetch is not a function: a cell has no network; use a tool, which \
             `await MCP.$search(\"fetch a URL\")` finds",
        ),
    ];
    for (mut request, expected) in cases {
        request["message"] = json!("not a function");
        let explained = ask(&catalog(), &request).unwrap_or_else(|| "not a function".to_owned());
        assert_eq!(explained, expected, "{request}");
    }
}

#[test]
fn a_loop_over_a_result_says_where_the_data_is() {
    let cases = [
        ("issues) {", "issues is not iterable: it is the result of an MCP tool", "`issues.structuredContent`: items"),
        ("list())", "value is not iterable: it is the result of an MCP tool", "`result.structuredContent`: items"),
    ];
    for (after, start, end) in cases {
        let request = json!({"message": "value is not iterable", "after": after, "result": ["items"]});
        let explained = ask(&catalog(), &request).unwrap();
        assert!(explained.starts_with(start) && explained.ends_with(end), "{explained}");
    }
    assert_eq!(ask(&catalog(), &json!({"message": "value is not iterable", "after": "x)"})), None);
}

#[test]
fn an_undefined_name_gets_the_right_one_or_advice() {
    let cases = [
        ("mcp", "mcp is not defined; did you mean `MCP`?"),
        ("yieldControl", "yieldControl is not defined; did you mean `yield_control`?"),
        ("files", "files is not defined; did you mean `MCP.files`?"),
        ("read_text_file", "read_text_file is not defined; did you mean `MCP.files.readTextFile`?"),
        ("web_search", "web_search is not defined; did you mean `tools.web_search`?"),
        ("Buffer", "Buffer is not defined: use Uint8Array, TextEncoder and TextDecoder; atob and btoa convert base64"),
        ("total", "total is not defined"),
    ];
    for (name, expected) in cases {
        let message = format!("{name} is not defined");
        let explained = ask(&catalog(), &json!({"message": message}));
        assert_eq!(explained.unwrap_or(message), expected);
    }
    let tool_search = tables(&[("namespace/openclaw", json!({"kind": "object", "entries": []}))]);
    let advised = ask(&tool_search, &json!({"message": "fetch is not defined"})).unwrap();
    assert!(advised.ends_with("`await openclaw.tools.search(\"fetch a URL\")` finds"), "{advised}");
    let without = ask(&tables(&[]), &json!({"message": "fetch is not defined"}));
    let expected = "fetch is not defined: a cell has no network, and this run has no tools for it";
    assert_eq!(without.as_deref(), Some(expected));
}

#[test]
fn an_error_after_a_failed_result_quotes_it() {
    let failed = json!({"name": "MCP.files.readTextFile", "text": "ENOENT:\nno such file"});
    let quote = "the result of MCP.files.readTextFile had isError: ENOENT: no such file";
    for message in ["cannot read property 'content' of undefined", "unexpected token: 'ENOENT'"] {
        let explained = ask(&catalog(), &json!({"message": message, "failed": failed}));
        assert_eq!(explained, Some(format!("{message}; {quote}")));
        // It is not quoted twice.
        assert_eq!(ask(&catalog(), &json!({"message": explained, "failed": failed})), None);
    }
    let unknown = json!({
        "message": "not a function", "before": "MCP.git.", "after": "stats()", "receiver": "MCP.git",
        "missed": [["MCP.git", "stats"]], "failed": failed,
    });
    assert_eq!(ask(&catalog(), &unknown).as_deref(), Some("MCP.git has no tool `stats`; did you mean `status`?"));
}

#[test]
fn a_promise_that_is_used_like_its_result_gets_the_advice_to_await_it() {
    let of_undefined = "cannot read property '0' of undefined";
    let cases = [
        (
            json!({"message": of_undefined, "before": "return r.", "after": "content[0].text", "unawaited": "content"}),
            Some("cannot read property '0' of undefined: `content` was read from a promise; `await` the call first"),
        ),
        (
            json!({"message": of_undefined, "before": "r.content.", "after": "x", "unawaited": "content"}),
            Some("cannot read property '0' of undefined: `content` was read from a promise; `await` the call first"),
        ),
        (json!({"message": of_undefined, "before": "r.", "after": "items[0]", "unawaited": "content"}), None),
        (
            json!({"message": "not a function", "before": "r.", "after": "map(f)", "isPromise": true}),
            Some("r.map is not a function: `r` is a promise; `await` the call first"),
        ),
        (
            json!({"message": "not a function", "before": "f().", "after": "map(f)", "isPromise": true}),
            Some("map is not a function: the value is a promise; `await` the call first"),
        ),
        (
            json!({"message": "value is not iterable", "after": "issues) {", "isPromise": true}),
            Some("issues is not iterable: `issues` is a promise; `await` the call first"),
        ),
        (
            json!({"message": "value is not iterable", "after": "list())", "isPromise": true}),
            Some("value is not iterable: the value is a promise; `await` the call first"),
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(ask(&catalog(), &request).as_deref(), expected, "{request}");
    }
}

#[test]
fn requests_that_are_not_the_preludes_get_no_answer() {
    for request in ["", "{", "[]", "{\"message\": 1}", "{\"message\": \"not a function\", \"missed\": [[1], 2]}"] {
        assert_eq!(answer(&catalog(), request.as_bytes()), None, "{request}");
    }
    let long = json!({"message": "x is not defined", "before": "x".repeat(70_000)}).to_string();
    assert_eq!(answer(&catalog(), long.as_bytes()), None);
}
