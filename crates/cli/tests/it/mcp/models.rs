//! `spec/models/*.md`: cells as models write them, with the text that the model reads, over MCP.
//!
//! The format is that of `spec/cells`, and `servers.json` has the script of each server. A case runs with the
//! configuration of code mode in its block `json config`.

use std::path::Path;

use serde_json::{Map, Value, json};
use testkit::case::{self, Case};

use super::clients::{Era, Streams};
use super::place::{Place, fake};

/// The fields that the model reads; the others are numbers about the run.
const READ: [&str; 6] = ["status", "value", "error", "code", "output", "note"];

/// A `cellmate mcp` with the servers and one configuration.
struct Session {
    config: Value,
    client: Streams,
    _place: Place,
}

impl Session {
    fn start(folder: &Path, config: &Value) -> Self {
        let place = Place::new(json!([]));
        let scripts = std::fs::read_to_string(folder.join("servers.json")).unwrap();
        let scripts: Map<String, Value> = serde_json::from_str(&scripts).unwrap();
        let mut servers = Map::new();
        for (name, script) in &scripts {
            let path = place.path(&format!("{name}.json"));
            std::fs::write(&path, script.to_string()).unwrap();
            servers.insert(name.clone(), json!({"command": fake(), "args": [path], "trusted": true}));
        }
        let mut code_mode = config.clone();
        code_mode["enabled"] = json!(true);
        place.configure(&json!({"mcpServers": servers, "tools": {"codeMode": code_mode}}));
        let client = Streams::plain(&place, Era::July2026);
        Self { config: config.clone(), client, _place: place }
    }

    /// Runs a cell to its end and returns what the model reads.
    fn run(&mut self, case: &Case) -> Value {
        let mut result = self.client.exec(&case.source);
        let mut output = output_of(&result);
        while result["status"] == "waiting" {
            let run_id = result["runId"].clone();
            result = self.client.call("wait", json!({ "runId": run_id }));
            output.extend(output_of(&result));
        }
        result["output"] = Value::from(output);
        let fields = result.as_object().unwrap().iter();
        let read = fields.filter(|(name, value)| READ.contains(&name.as_str()) && **value != json!([]));
        Value::Object(read.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

fn output_of(result: &Value) -> Vec<Value> {
    result["output"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_model_reads_what_to_do_next() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/models");
    let cases = case::load(&folder).unwrap();
    assert!(cases.len() >= 60, "{} cells", cases.len());
    let mut session: Option<Session> = None;
    let mut wrong = Vec::new();
    for case in &cases {
        let fits = |session: &Session| session.config == case.config;
        let mut current = session.take().filter(fits).unwrap_or_else(|| Session::start(&folder, &case.config));
        let read = current.run(case);
        if read != case.expected {
            wrong.push(format!("{}\n  expected {}\n  read     {read}", case.name(), case.expected));
        }
        session = Some(current);
    }
    println!("{} cells, {} wrong", cases.len(), wrong.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
