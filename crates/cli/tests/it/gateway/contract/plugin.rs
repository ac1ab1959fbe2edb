//! A plugin of the tests, with as many tools as its manifest has.

use serde_json::{Value, json};

use crate::mcp::place::Place;

/// `late` returns when a file exists in the plugin's folder of data; every other tool returns its input.
const PROGRAM: &str = r#"
import json, os, sys, threading, time
DATA = os.environ["CELLMATE_PLUGIN_DATA"]
LOCK = threading.Lock()

def answer(request, result):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()

def record(line):
    with LOCK:
        with open(os.path.join(DATA, "record"), "a") as file:
            file.write(line + "\n")

def call(request):
    name, given = request["params"]["name"], request["params"]["input"]
    record(name)
    while name == "late" and not os.path.exists(os.path.join(DATA, given["file"])):
        time.sleep(0.02)
    answer(request, {"details": {"tool": name, "input": given}})

for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        answer(request, {"protocolVersion": 1})
    elif method == "tools/call":
        threading.Thread(target=call, args=(request,), daemon=True).start()
    elif method == "shutdown":
        os._exit(0)
"#;

/// Writes a plugin to a folder, and installs it.
pub(super) fn install(place: &Place, id: &str, tools: &[Value]) {
    let folder = place.path(&format!("source-{id}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(format!("{folder}/main.py"), PROGRAM).unwrap();
    let manifest = json!({
        "id": id, "name": id, "version": "1.0.0", "description": "A plugin of the tests.",
        "command": ["python3", "main.py"], "tools": tools,
    });
    std::fs::write(format!("{folder}/cellmate.plugin.json"), manifest.to_string()).unwrap();
    let added = place.command(&["plugins", "add", &folder, "--yes"]);
    assert!(added.status.success(), "{added:?}");
}

pub(super) fn tool(name: &str, description: &str, parameters: Value) -> Value {
    json!({"name": name, "description": description, "inputSchema": parameters, "effects": "reads"})
}

pub(super) fn demo_tools() -> Vec<Value> {
    let text = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    vec![
        tool("echo", "Repeats a word.", text("word")),
        tool("late", "Answers when a file exists.", text("file")),
        tool("other", "Is denied.", json!({"type": "object"})),
    ]
}

/// Lets `late` return for this file.
pub(super) fn release(place: &Place, file: &str) {
    std::fs::write(place.path(&format!("state/plugins/demo/data/{file}")), "").unwrap();
}

/// Returns how often a tool of a plugin was called.
pub(super) fn called(place: &Place, id: &str, tool: &str) -> usize {
    let record = std::fs::read_to_string(place.path(&format!("state/plugins/{id}/data/record")));
    record.unwrap_or_default().lines().filter(|line| *line == tool).count()
}
