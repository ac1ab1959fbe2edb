//! Text from a server, a cell, a project's file or the store reaches a terminal without control characters.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use contract::ids::CallId;
use contract::text::is_unsafe;
use serde_json::{Value, json};
use store::NewOutput;

use crate::person::{Person, exec_over_streams};
use crate::stored::{RUN, Stored, keep, keep_token, text_output};

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

/// C0 and C1 controls, direction marks, zero-width characters, tags, separators, and a line that imitates Cellmate.
const HOSTILE: &str =
    "\u{1b}[31m\u{9b}2J\u{7f}\u{85}\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}\u{2028}\u{ad}\r\nFORGED: all is well\u{7}";

/// Hostile text without the characters that a server's name may not have.
const NAME: &str = "na\u{202e}\u{200b}\u{e0041}me";

/// A hostile folder name: anything but a slash and a zero byte is allowed in it.
const FOLDER: &str = "we\u{202e}ird\u{9b}2J\u{1b}[31m\nFORGED";

/// A cell that prints hostile text, receives it from a tool, and waits for an approval.
fn cell() -> String {
    let text = json!(HOSTILE);
    format!(
        "text({text}); json({{[{text}]: {text}}}); await MCP.s.look({{}}).catch(() => 0); return await MCP.s.greet({{name: {text}}})"
    )
}

/// An MCP server in shell that sends hostile text in every field.
fn script() -> String {
    let schema = json!({"type": "object", "title": HOSTILE, "properties": {(HOSTILE): {"description": HOSTILE}}});
    let tool = |name: &str| json!({"name": name, "title": HOSTILE, "description": HOSTILE, "inputSchema": schema});
    let mut reading = tool("look");
    reading["annotations"] = json!({"readOnlyHint": true});
    let tools =
        json!([tool("greet"), reading, tool("fails"), tool("errs"), tool("hid\u{202e}\u{200b}den"), tool(HOSTILE)]);
    let info = json!({"name": HOSTILE, "title": HOSTILE, "version": HOSTILE});
    let result = json!({"content": [{"type": "text", "text": HOSTILE}], "structuredContent": {(HOSTILE): HOSTILE}});
    let text = json!({"content": [{"type": "text", "text": HOSTILE}], "isError": true});
    format!(
        r#"#!/bin/sh
reply() {{ printf '{{"jsonrpc":"2.0","id":%s,%s}}\n' "$id" "$1"; }}
printf '%s\n' '{hostile}' >&2
[ "$1" = dies ] && exit 3
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) [ "$1" = refuses ] && reply '"error":{{"code":-1,"message":{message}}}' && continue
      reply '"result":{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{info},"instructions":{message}}}' ;;
    *'"method":"server/discover"'*) reply '"error":{{"code":-1,"message":{message}}}' ;;
    *'"method":"tools/list"'*) reply '"result":{{"tools":{tools}}}' ;;
    *'"name":"fails"'*) reply '"result":{text}' ;;
    *'"name":"errs"'*) reply '"error":{{"code":-1,"message":{message}}}' ;;
    *'"method":"tools/call"'*) reply '"result":{result}' ;;
  esac
done
"#,
        hostile = HOSTILE,
        message = json!(HOSTILE),
    )
}

/// A plugin that answers with hostile text from a file, and writes it to its standard error.
const PLUGIN: &str = r#"
import json, sys
answer = json.load(open("answer.json", encoding="utf-8"))
sys.stderr.buffer.write(answer["text"].encode())
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"protocolVersion": 1} if message["method"] == "initialize" else answer
        print(json.dumps({"id": message["id"], "result": result}), flush=True)
"#;

struct Hostile {
    person: Person,
    folder: PathBuf,
    run: String,
    approval: String,
}

impl Hostile {
    fn new() -> Self {
        let person = Person::new();
        person.write("hostile.sh", &script());
        let server = |more: &str| json!({"command": "sh", "args": [person.path("hostile.sh"), more]});
        let config = json!({
            "mcpServers": {
                "s": server(""), (NAME): server(""), "dies": server("dies"), "refuses": server("refuses"),
                (HOSTILE): {"command": "x"},
                "unset": {"command": HOSTILE, "args": [format!("${{{HOSTILE}}}")]},
                "remote": {"url": format!("http://127.0.0.1:1/{HOSTILE}"), "headers": {(HOSTILE): HOSTILE}},
            },
            "imports": ["claude", HOSTILE], "approvals": {"nonInteractive": true},
        });
        person.write(USER_CONFIG, &config.to_string());
        let folder = person.path("project").join(FOLDER);
        let project = json!({
            "mcpServers": {(format!("p{NAME}")): {"command": HOSTILE, "trusted": true}, (HOSTILE): {"url": HOSTILE}},
            (HOSTILE): 1, "approvals": HOSTILE, "tools": {"deny": [format!("group:{HOSTILE}")], (HOSTILE): 1},
        });
        person.write(&format!("project/{FOLDER}/.cellmate.json5"), &project.to_string());
        person.write(&format!("project/{FOLDER}/.mcp.json"), &format!("{{\"{NAME}\": nonsense"));
        let mine = json!({"mcpServers": {"mine": {"command": HOSTILE}, (HOSTILE): {"command": HOSTILE}}});
        person.write("home/.cursor/mcp.json", &mine.to_string());
        person.write("catalog.json", &json!({"tools": [{"id": HOSTILE}]}).to_string());
        let tool = json!({"name": "look", "title": HOSTILE, "description": HOSTILE, "effects": "reads"});
        let plugin = json!({
            "id": "hostile", "name": HOSTILE, "version": "1", "description": HOSTILE, "tools": [tool],
            "command": ["python3", "main.py", HOSTILE],
        });
        person.write("plugin/cellmate.plugin.json", &plugin.to_string());
        person.write("plugin/main.py", PLUGIN);
        person.write("plugin/answer.json", &json!({"text": HOSTILE, "details": {(HOSTILE): HOSTILE}}).to_string());
        person.write("broken/cellmate.plugin.json", &json!({(HOSTILE): HOSTILE, "id": HOSTILE}).to_string());
        let core = json!({"tools": {
            "exec": {"enabled": true, "readable": [format!("/{HOSTILE}")]}, "web": {"fetch": {"enabled": true}},
            "fs": {"roots": [format!("/{HOSTILE}"), HOSTILE]},
        }});
        person.write("core.json5", &core.to_string());
        let provider = json!({"baseUrl": HOSTILE, "api": "chat", "apiKey": format!("${{{HOSTILE}}}")});
        let gateway = json!({
            "models": {"providers": {(HOSTILE): provider}},
            "agents": {(HOSTILE): {"model": format!("{HOSTILE}/{HOSTILE}")}, "defaults": {"model": format!("x{HOSTILE}/y")}},
        });
        person.write("gateway.json5", &gateway.to_string());
        let ranked = json!({"id": HOSTILE, "name": HOSTILE, "description": HOSTILE});
        person.write("ranked.jsonl", &format!("{ranked}\n"));
        let mut hostile = Self { person, folder, run: String::new(), approval: String::new() };
        let waiting = hostile.waiting_run();
        // The text of the output and of the value is hostile, and so are the names around them.
        let from = NewOutput { source: Some((CallId(1), HOSTILE.to_owned())), ..text_output("l0n1", HOSTILE) };
        let outputs = vec![text_output("l0n0", HOSTILE), NewOutput { mime_type: Some(HOSTILE.to_owned()), ..from }];
        let value = json!({(HOSTILE): HOSTILE}).to_string();
        let values = [(HOSTILE, value.as_str())];
        keep(&hostile.person, Stored { run: RUN, session: HOSTILE, client: HOSTILE, outputs, values: &values });
        keep_token(&hostile.person, HOSTILE);
        hostile.run = waiting["runId"].as_str().unwrap_or_else(|| panic!("{waiting}")).to_owned();
        hostile.approval =
            waiting["approvals"][0]["approvalId"].as_str().unwrap_or_else(|| panic!("{waiting}")).to_owned();
        hostile
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(arguments).current_dir(&self.folder).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.person.path("home"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the cell in `cellmate mcp` until it waits for an approval.
    fn waiting_run(&self) -> Value {
        let mut child = self.command(&["mcp".to_owned()]).spawn().unwrap();
        let answer = exec_over_streams(&mut child, &cell());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            complaint(&String::from_utf8(output.stderr).unwrap(), true),
            None,
            "standard error of `cellmate mcp`"
        );
        answer["result"]["structuredContent"].clone()
    }

    fn run(&self, arguments: &[String], input: &str) -> Output {
        let mut child = self.command(arguments).spawn().unwrap();
        // A command that does not read its input may have exited already.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    }
}

/// Returns what is wrong with a printed text: an unsafe character, or untrusted text at the start of a line.
fn complaint(text: &str, one_line: bool) -> Option<String> {
    let found: Vec<char> = text.chars().filter(|letter| is_unsafe(*letter) && *letter != '\n').collect();
    if !found.is_empty() {
        return Some(format!("prints {found:?}: {text:?}"));
    }
    let forged = one_line && text.lines().any(|line| line.trim_start().starts_with("FORGED"));
    forged.then(|| format!("lets untrusted text begin a line: {text}"))
}

/// Every subcommand, as clap's help lists them.
pub(crate) fn commands(before: &[String]) -> Vec<Vec<String>> {
    let output = Command::new(env!("CARGO_BIN_EXE_cellmate")).args(before).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let Some((_, listed)) = help.split_once("Commands:\n") else { return vec![before.to_vec()] };
    let names = listed.lines().take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.flat_map(|name| commands(&[before, &[name.to_owned()]].concat())).collect()
}

/// A command, its arguments, its input, and whether untrusted text must not begin a line of its output.
type Case<'a> = (&'a str, Vec<&'a str>, String, bool);

fn cases<'a>(hostile: &'a Hostile, files: &'a [String; 6]) -> Vec<Case<'a>> {
    let [catalog, ranked, backup, core, cell, gateway] = files;
    let one = |command: &'a str, more: &[&'a str]| (command, more.to_vec(), String::new(), true);
    let asked = format!("{}\n", json!({"qid": HOSTILE, "query": "look"}));
    let typed =
        format!("{cell}\n{}\n.tools\n.tools look\n.state\n.outputs\n.wait \u{9b}\n.\u{9b}\n.x\u{9b}\n", json!(HOSTILE));
    vec![
        one("exec", &["-e", cell]),
        one("exec", &["-e", "throw new Error('\u{9b}\u{202e}\\nFORGED')"]),
        one("exec", &["-e", "return {'\u{9b}\u{e0041}': '\u{9b}\u{202e}\u{7f}'}"]),
        one("exec", &["-e", "1", "--catalog", catalog]),
        ("repl", vec!["--session", "hostile"], typed, false),
        one("repl", &["--session", "\u{9b}\u{202e}"]),
        one("wait", &[&hostile.run]),
        one("wait", &["cm_\u{9b}\u{202e}"]),
        one("servers list", &[]),
        one("servers add", &[NAME, "--dry-run", "--", "x"]),
        one("servers add", &["a", "--scope", "project", "--trusted", "--dry-run", "--", "\u{9b}x"]),
        one("servers add-json", &[NAME, "{command: '\u{9b}'}", "--dry-run"]),
        one("servers add-json", &["a", "{\u{9b}"]),
        one("servers import", &[]),
        one("servers import", &["cursor", "--dry-run"]),
        one("servers import", &["\u{202e}"]),
        one("servers get", &[NAME]),
        one("servers get", &["dies"]),
        one("servers get", &["unset"]),
        one("servers get", &["nobody\u{202e}"]),
        one("servers enable", &[NAME, "--dry-run"]),
        one("servers disable", &[NAME, "--dry-run"]),
        one("servers disable", &["nobody\u{202e}"]),
        one("servers remove", &[NAME, "--dry-run"]),
        one("servers remove", &[HOSTILE, "--dry-run"]),
        one("servers remove", &["nobody\u{202e}", "--dry-run"]),
        one("servers test", &[]),
        one("servers test", &["nobody\u{202e}"]),
        one("servers login", &["remote"]),
        one("servers login", &[NAME, "--out"]),
        one("servers trust-tools", &["s", "--yes"]),
        one("servers trust-tools", &["dies"]),
        one("servers trust-tools", &["nobody\u{202e}"]),
        one("config trust", &["\u{9b}"]),
        one("config trust", &["--dry-run"]),
        one("config trust", &["--remove"]),
        one("servers list", &[]),
        one("tools list", &[]),
        one("tools list", &["--refresh"]),
        ("tools show", vec!["s.greet"], String::new(), false),
        one("tools show", &["s.\u{202e}"]),
        ("tools call", vec!["s.greet", "name=\u{9b}", "--yes"], String::new(), false),
        ("tools call", vec!["s.fails", "--yes"], String::new(), false),
        one("tools call", &["s.errs", "--yes"]),
        one("tools call", &["s.greet"]),
        one("tools call", &["dies.greet"]),
        one("tools call", &["refuses.greet"]),
        one("tools call", &["s.\u{202e}", "\u{9b}:=\u{9b}"]),
        one("tools search", &["forged", "--explain"]),
        ("tools rank", vec!["--tools", ranked], asked, true),
        one("config path", &[]),
        one("config get", &[]),
        one("config get", &["mcpServers"]),
        one("config get", &["imports[1]"]),
        one("config get", &["\u{202e}"]),
        one("config set", &["tools.\u{202e}", "\u{9b}", "--dry-run"]),
        one("config set", &["approvals.nonInteractive", "false", "--dry-run"]),
        one("config unset", &["tools.\u{202e}", "--dry-run"]),
        one("config unset", &["mcpServers", "--dry-run"]),
        one("config check", &[]),
        one("config check", &[".mcp.json"]),
        one("config check", &[".cellmate.json5"]),
        one("config schema", &[]),
        one("completions", &["bash"]),
        one("completions", &["zsh"]),
        one("man", &[]),
        one("man", &["\u{202e}"]),
        one("connect", &["cursor", "--take-over", "--dry-run"]),
        one("connect", &["claude-code", "--scope", "project", "--dry-run"]),
        one("connect", &["codex", "--gateway", "--agent", "\u{9b}\u{202e}", "--dry-run"]),
        one("disconnect", &["cursor", "--dry-run"]),
        ("secrets set", vec!["hostile"], HOSTILE.to_owned(), true),
        one("secrets set", &["\u{9b}"]),
        one("secrets list", &[]),
        one("secrets rm", &["hostile"]),
        one("tokens list", &["--all"]),
        one("tokens create", &["\u{9b}"]),
        one("tokens create", &["ada", "--scope", "\u{202e}"]),
        one("tokens create", &["ada", "--expires", "\u{9b}"]),
        one("tokens revoke", &["\u{9b}\u{202e}"]),
        one("doctor", &[]),
        one("doctor", &["--servers"]),
        one("doctor", &["--config", core]),
        one("doctor", &["--config", gateway]),
        one("mcp", &[]),
        // Refused after the configuration is read: other machines could connect.
        one("gateway", &["--listen", "0.0.0.0:0", "--no-token"]),
        one("gateway", &["--listen", "0.0.0.0:0", "--no-token", "--config", gateway]),
        one("logs", &["-n", "0"]),
        one("runs list", &[]),
        one("runs show", &[&hostile.run]),
        one("runs export", &[&hostile.run]),
        one("runs output", &[RUN]),
        one("runs output", &[RUN, "\u{9b}\u{202e}"]),
        one("runs output", &[RUN, "l0n1", "-o", "\u{9b}"]),
        one("runs output", &[RUN, "l0n1", "-o", "/\u{202e}/\u{9b}"]),
        one("runs output", &["cm_\u{9b}\u{202e}"]),
        one("runs state", &[]),
        one("runs state", &["\u{9b}\u{202e}"]),
        one("runs state", &["\u{1b}"]),
        one("runs state", &["\u{1b}", "--key", HOSTILE]),
        one("runs state", &["\u{1b}", "--key", "\u{9b}"]),
        one("runs state", &["\u{1b}", "--rm", HOSTILE]),
        one("runs state", &["\u{1b}", "--rm", "--yes"]),
        one("runs show", &["cm_\u{9b}\u{202e}"]),
        one("runs show", &["c"]),
        one("runs cancel", &["cm_\u{9b}\u{202e}"]),
        one("runs rm", &[&hostile.run, "--yes"]),
        one("runs replay", &[&hostile.run]),
        one("runs fork", &[&hostile.run, "--at", "1", "--no-wait"]),
        ("runs fork", vec![&hostile.run, "--at", "1"], String::new(), false),
        one("approvals list", &[]),
        ("approvals show", vec![&hostile.approval], String::new(), false),
        one("approvals show", &["apr_\u{9b}"]),
        one("approvals approve", &[&hostile.approval, "--input", "{\u{9b}"]),
        one("approvals approve", &[&hostile.approval]),
        one("approvals deny", &["apr_\u{9b}", "--note", "\u{9b}"]),
        one("approvals rules list", &[]),
        one("approvals rules revoke", &["\u{9b}"]),
        one("plugins new", &["\u{202e}"]),
        one("plugins add", &["../../plugin", "--yes"]),
        one("plugins add", &["\u{9b}"]),
        one("plugins add", &["../../broken"]),
        one("plugins list", &[]),
        ("plugins show", vec!["hostile"], String::new(), true),
        one("plugins show", &["\u{202e}"]),
        ("plugins test", vec!["hostile", "--call", "look"], String::new(), true),
        one("plugins test", &["\u{202e}"]),
        one("plugins test", &["hostile", "--call", "\u{9b}", "--input", "{\u{9b}"]),
        one("doctor", &[]),
        one("plugins disable", &["hostile"]),
        one("plugins disable", &["\u{202e}"]),
        one("plugins enable", &["\u{9b}"]),
        one("plugins rollback", &["hostile", "--to", "\u{202e}"]),
        one("plugins rollback", &["\u{202e}"]),
        one("plugins remove", &["\u{202e}"]),
        one("plugins remove", &["hostile"]),
        one("plugins schema", &[]),
        one("keys list", &[]),
        one("keys rotate", &[]),
        one("keys prune", &[]),
        one("backup", &[backup]),
        one("restore", &[backup, "--replace"]),
    ]
}

#[test]
fn every_command_prints_hostile_text_without_unsafe_characters() {
    let hostile = Hostile::new();
    let path = |name: &str| hostile.person.path(name).display().to_string();
    let files =
        [path("catalog.json"), path("ranked.jsonl"), path("backup"), path("core.json5"), cell(), path("gateway.json5")];
    let cases = cases(&hostile, &files);
    let known: BTreeSet<String> = commands(&[]).into_iter().map(|command| command.join(" ")).collect();
    assert!(known.len() > 20, "{known:?}");
    for command in &known {
        assert!(cases.iter().any(|(case, ..)| case == command), "`cellmate {command}` has no case here");
    }
    let mut wrong = Vec::new();
    for (command, more, input, one_line) in cases.iter().filter(|(command, ..)| known.contains(*command)) {
        let words: Vec<&str> = command.split(' ').collect();
        let typed = |middle: &[&str], more: &[&str]| -> Vec<String> {
            [&words, middle, more].concat().into_iter().map(str::to_owned).collect()
        };
        let has_json = String::from_utf8(hostile.run(&typed(&[], &["--help"]), "").stdout).unwrap().contains("--json");
        // `approve` decides once, so it is run once; other commands are also run with `--json`.
        let both = has_json && !command.ends_with("approve");
        for middle in [&[][..], &["--json"]].iter().take(if both { 2 } else { 1 }) {
            let typed = typed(middle, more);
            let output = hostile.run(&typed, input);
            let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
            // Clap's own errors repeat only what the user typed.
            if err.contains("For more information, try") {
                continue;
            }
            wrong.extend(complaint(&out, *one_line).map(|why| format!("{typed:?} {why}")));
            wrong.extend(complaint(&err, true).map(|why| format!("{typed:?} (stderr) {why}")));
            // These print a value per line.
            let mut values = serde_json::Deserializer::from_str(&out).into_iter::<Value>();
            let is_json = if ["logs", "repl"].contains(command) {
                values.all(|value| value.is_ok())
            } else {
                serde_json::from_str::<Value>(&out).is_ok()
            };
            if !middle.is_empty() && !out.is_empty() && !is_json {
                wrong.push(format!("{typed:?} prints no JSON: {out}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn json_has_the_same_value_with_every_unsafe_character_escaped() {
    let hostile = Hostile::new();
    let json_of = |arguments: &[&str]| -> Value {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        serde_json::from_slice(&hostile.run(&arguments, "").stdout).unwrap()
    };
    let listed = json_of(&["tools", "list", "--server", "s", "--json"]);
    assert_eq!(listed["tools"][0]["parameters"]["title"], HOSTILE, "{listed}");
    let code = format!("return {}", json!({(HOSTILE): HOSTILE}));
    assert_eq!(json_of(&["exec", "-e", &code])["value"], json!({(HOSTILE): HOSTILE}));
    let called = json_of(&["tools", "call", "s.look", "--yes", "--json"]);
    assert_eq!(called["result"]["structuredContent"], json!({(HOSTILE): HOSTILE}), "{called}");
    assert_eq!(json_of(&["runs", "show", &hostile.run, "--json"])["source"], cell());
    assert_eq!(json_of(&["runs", "output", RUN, "l0n0", "--json"])["text"], HOSTILE);
    assert_eq!(json_of(&["runs", "output", RUN, "--json"])["outputs"][1]["tool"], HOSTILE);
    let value = json_of(&["runs", "state", "\u{1b}", "--key", HOSTILE, "--json"]);
    assert_eq!((&value["key"], &value["value"]), (&json!(HOSTILE), &json!({(HOSTILE): HOSTILE})));
}

#[test]
fn a_cells_output_is_escaped_on_a_terminal() {
    let hostile = Hostile::new();
    let text = json!(HOSTILE);
    let cells = [format!("text({text}); json({{a: {text}}}); return [{text}]"), format!("throw new Error({text})")];
    for cell in cells {
        hostile.person.write("cell.js", &cell);
        let line = format!("{} exec {}", env!("CARGO_BIN_EXE_cellmate"), hostile.person.path("cell.js").display());
        // `script` provides a terminal, which ends lines with a carriage return.
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).env("HOME", hostile.person.path("nowhere"));
        script.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
        let output = script.stdin(Stdio::null()).output().unwrap();
        let seen = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
        assert!(seen.contains("\\u{9b}2J"), "{seen:?}");
        assert_eq!(complaint(&seen, false), None);
    }
}
