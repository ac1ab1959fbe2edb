//! Runs the cells of `docs/cookbook/*.md` in `cellmate mcp`, with servers that are scripted at the wire, core tools in
//! a temporary folder, and a local web server.
//!
//! A page has cells (```` ```js ```` or ```` ```ts ````), each followed by what it returns (```` ```json ````): its
//! value, or an object with its output and its value. The cells of a page run one after the other in one session. The
//! environment of a page is in `tests/cookbook/<page>.json`:
//!
//! - `servers`: by name, their tools with `name`, `description`, `input` (`{"city": "string", "days?": "integer"}`),
//!   `changes: true` if calls need approval, and `answers`: the first whose `if` is part of the arguments is given, as
//!   `value`, `error`, `content`, generated text (`lines`), or one of `inTurn` after the other.
//! - `files`: those in the folder of the file tools; `{folder}` in `config` is its path.
//! - `web`: pages by URL; the cells reach them in place of the real ones.
//! - `config`: the rest of the configuration.
//!
//! A block ```` ```json denied ```` is what the cell before it returns if a person denies the calls that `denied` of the
//! environment lists: each with a part of the input (`if`) and the person's `note`. The other calls are approved.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use super::{compare, pages, root};
use crate::mcp::clients::{Era, Streams};
use crate::mcp::place::{Place, fake};

/// A host that cells fetch from. Its port is not known before the test runs.
const HOST: &str = "https://docs.example";

#[derive(Clone, Debug)]
struct Cell {
    source: String,
    language: &'static str,
    /// Whether the person denies the calls that the environment lists.
    is_denied: bool,
    /// The lines of the block with its result.
    result: std::ops::Range<usize>,
}

/// Returns the cells of a page.
fn cells(page: &str) -> Vec<Cell> {
    let (mut cells, mut lines) = (Vec::new(), page.lines().enumerate());
    let mut waiting: Option<(String, &'static str)> = None;
    while let Some((number, line)) = lines.next() {
        let language = match line {
            "```js" => "javascript",
            "```ts" => "typescript",
            "```json" => "json",
            "```json denied" => "denied",
            _ => continue,
        };
        let block: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let text: String = block.iter().map(|line| format!("{line}\n")).collect();
        let result = number + 1..number + 1 + block.len();
        match (language, waiting.take(), cells.last().cloned()) {
            ("json", Some((source, language)), _) => cells.push(Cell { source, language, is_denied: false, result }),
            ("json", None, _) => {}
            ("denied", None, Some(before)) => cells.push(Cell { is_denied: true, result, ..before }),
            (_, None, _) => waiting = Some((text, language)),
            (_, waiting, _) => panic!("a cell without a result:\n{waiting:?}"),
        }
    }
    assert!(waiting.is_none(), "a cell without a result:\n{waiting:?}");
    cells
}

/// Returns a tool of a scripted server.
fn tool(tool: &Value) -> Value {
    let input = tool["input"].as_object().cloned().unwrap_or_default();
    let property = |kind: &Value| if kind.is_string() { json!({"type": kind}) } else { kind.clone() };
    let properties: serde_json::Map<String, Value> =
        input.iter().map(|(key, kind)| (key.trim_end_matches('?').to_owned(), property(kind))).collect();
    let required: Vec<&String> = input.keys().filter(|key| !key.ends_with('?')).collect();
    let answers = tool["answers"].as_array().cloned().unwrap_or_default();
    let condition = |answer: &Value| answer.get("if").cloned().unwrap_or_else(|| json!({}));
    let choices: Vec<Value> = answers.iter().map(|answer| json!([condition(answer), steps(answer)])).collect();
    json!({
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": {"type": "object", "properties": properties, "required": required},
        "annotations": {"readOnlyHint": tool["changes"] != true},
        "does": [{"when": choices}],
    })
}

/// Returns the steps with which a scripted server gives an answer.
fn steps(answer: &Value) -> Value {
    if let Some(turns) = answer["inTurn"].as_array() {
        return json!([{"inTurn": turns.iter().map(steps).collect::<Vec<_>>()}]);
    }
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let result = if let Some(message) = answer["error"].as_str() {
        json!({"content": text(message), "isError": true})
    } else if answer["content"].is_array() {
        json!({"content": answer["content"]})
    } else if let Some(count) = answer["lines"].as_u64() {
        json!({"content": text(&generated(answer, count))})
    } else {
        json!({"content": text(&answer["value"].to_string()), "structuredContent": answer["value"]})
    };
    json!([{"result": result}])
}

/// Returns that many lines; `{n}` is a line's number, and `{word}` one of the words in turn.
fn generated(answer: &Value, count: u64) -> String {
    let words = answer["words"].as_array().unwrap();
    let line = |number: u64| {
        let word = words[usize::try_from(number).unwrap() % words.len()].as_str().unwrap();
        answer["line"].as_str().unwrap().replace("{n}", &number.to_string()).replace("{word}", word)
    };
    (1..=count).map(line).collect::<Vec<_>>().join("\n")
}

/// Serves these pages, and returns the address.
fn serve(pages: Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let head = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let page = pages[format!("{HOST}{path}")].as_str();
            let (status, body) = page.map_or(("404 Not Found", "not found"), |page| ("200 OK", page));
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n");
            drop(stream.write_all(format!("{head}{body}").as_bytes()));
        }
    });
    address
}

/// Writes the configuration, servers and files of a page.
fn prepare(environment: &Value) -> Place {
    let place = Place::new(json!([]));
    let folder = place.path("project");
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in environment["files"].as_object().into_iter().flatten() {
        let path = Path::new(&folder).join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.as_str().unwrap()).unwrap();
    }
    let config = environment.get("config").cloned().unwrap_or_else(|| json!({}));
    let mut config: Value = serde_json::from_str(&config.to_string().replace("{folder}", &folder)).unwrap();
    for (name, server) in environment["servers"].as_object().into_iter().flatten() {
        let tools: Vec<Value> = server["tools"].as_array().unwrap().iter().map(tool).collect();
        let script = place.path(&format!("{name}.json"));
        std::fs::write(&script, json!({"tools": tools}).to_string()).unwrap();
        config["mcpServers"][name] = json!({"command": fake(), "args": [script], "trusted": true});
    }
    place.configure(&config);
    place
}

/// Decides about the calls of a run that wait for a person, as a user does with `cellmate approvals`.
fn decide(place: &Place, run: &str, denied: &[Value]) {
    let listed: Value = serde_json::from_slice(&place.approvals(&["list", "--json"]).stdout).unwrap();
    for approval in listed.as_array().unwrap() {
        let is_part = |part: &Value| part.as_object().unwrap().iter().all(|(key, one)| approval["input"][key] == *one);
        if let Some(denial) = denied.iter().find(|denial| is_part(&denial["if"])) {
            let (id, note) = (approval["approvalId"].as_str().unwrap(), denial["note"].as_str().unwrap());
            let decided = place.approvals(&["deny", id, "--note", note]);
            assert!(decided.status.success(), "{decided:?}");
        }
    }
    let decided = place.approvals(&["approve", "--run", run]);
    assert!(decided.status.success(), "{decided:?}");
}

/// Runs a cell to its end, and decides about the calls that wait for a person.
fn run(client: &mut Streams, place: &Place, cell: &Cell, environment: &Value, address: &str) -> Value {
    let denied = environment["denied"].as_array().filter(|_| cell.is_denied).cloned().unwrap_or_default();
    assert!(!cell.is_denied || !denied.is_empty(), "the environment lists no call that is denied");
    let source = cell.source.replace(HOST, address);
    let request = json!({"name": "exec", "arguments": {"code": source, "language": cell.language}});
    let mut answer = client.ask("tools/call", request);
    let mut output = Vec::new();
    loop {
        let result = result_of(&answer);
        output.extend(result["output"].as_array().cloned().unwrap_or_default());
        if result["status"] != "waiting" {
            assert_eq!(result["status"], "completed", "{result}");
            let value = result["value"].clone();
            return if output.is_empty() { value } else { json!({"output": output, "value": value}) };
        }
        if result["approvals"].is_array() {
            decide(place, result["runId"].as_str().unwrap(), &denied);
        }
        answer = client.ask("tools/call", json!({"name": "wait", "arguments": {"runId": result["runId"]}}));
    }
}

/// Returns a result from its text: one with images has no structured content.
fn result_of(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(text).unwrap()
}

/// Writes a value as JSON with short parts on one line.
fn shown(value: &Value, indent: usize) -> String {
    const WIDTH: usize = 100;
    let line = one_line(value);
    if line.chars().count() + indent <= WIDTH {
        return line;
    }
    let (space, end) = (" ".repeat(indent + 2), " ".repeat(indent));
    let joined = |parts: Vec<String>| parts.join(&format!(",\n{space}"));
    match value {
        Value::Array(items) => {
            let parts = items.iter().map(|item| shown(item, indent + 2)).collect();
            format!("[\n{space}{}\n{end}]", joined(parts))
        }
        Value::Object(fields) => {
            let part = |(key, value): (&String, &Value)| format!("{}: {}", json!(key), shown(value, indent + 2));
            format!("{{\n{space}{}\n{end}}}", joined(fields.iter().map(part).collect()))
        }
        _ => line,
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(one_line).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let parts: Vec<String> =
                fields.iter().map(|(key, value)| format!("{}: {}", json!(key), one_line(value))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
        _ => value.to_string(),
    }
}

/// Replaces what differs from run to run, the ids of runs in handles and the web server's address, and cuts long texts.
fn normalised(value: &Value, address: &str) -> Value {
    const MOST: usize = 100;
    match value {
        Value::Array(items) => items.iter().map(|item| normalised(item, address)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, one)| (key.clone(), normalised(one, address))).collect(),
        Value::String(text) if text.starts_with("out_cm_") => {
            json!(format!("out_cm_1f…_{}", text.rsplit('_').next().unwrap()))
        }
        Value::String(text) if text.chars().count() > MOST => {
            json!(format!("{}…", text.chars().take(MOST / 2).collect::<String>()))
        }
        Value::String(text) => json!(text.replace(address, HOST)),
        _ => value.clone(),
    }
}

fn check(page: &Path) {
    let text = std::fs::read_to_string(page).unwrap();
    let name = page.file_stem().unwrap().to_str().unwrap();
    let fixture = root().join(format!("crates/cli/tests/cookbook/{name}.json"));
    let environment = std::fs::read_to_string(&fixture).unwrap_or_else(|error| panic!("{name}: {error}"));
    let environment: Value = serde_json::from_str(&environment).unwrap_or_else(|error| panic!("{name}: {error}"));
    let address = serve(environment["web"].clone());
    let place = prepare(&environment);
    let mut client = Streams::plain(&place, Era::November2025);
    let cells = cells(&text);
    assert!(!cells.is_empty(), "{name} has no cell");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut result = |cell| normalised(&run(&mut client, &place, cell, &environment, &address), &address);
    let results: Vec<String> = cells.iter().map(|cell| shown(&result(cell), 0)).collect();
    for (cell, result) in cells.iter().zip(results).rev() {
        lines.splice(cell.result.clone(), result.lines().map(str::to_owned));
    }
    compare(page, &format!("{}\n", lines.join("\n")));
}

#[test]
fn every_cell_of_the_cookbook_returns_what_its_page_says() {
    let pages: Vec<_> = pages("docs/cookbook").into_iter().filter(|page| !page.ends_with("README.md")).collect();
    assert!(pages.len() >= 12, "{pages:?}");
    let failures: Vec<String> = pages
        .iter()
        .filter_map(|page| {
            let panic = std::panic::catch_unwind(|| check(page)).err()?;
            let text = panic.downcast_ref::<String>().cloned();
            Some(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_environment_belongs_to_a_page() {
    let folder = root().join("crates/cli/tests/cookbook");
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let page = root().join("docs/cookbook").join(file.with_extension("md").file_name().unwrap());
        assert!(page.exists(), "{} has no page", file.display());
    }
}
