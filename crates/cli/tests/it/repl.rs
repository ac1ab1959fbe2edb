//! `cellmate repl`: cells from standard input, and a prompt on a terminal.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::person::Person;

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";
const HISTORY: &str = "home/.local/state/cellmate/repl-history";

/// A user with one server, whose calls ask for approval.
fn person() -> Person {
    let person = Person::new();
    let config = json!({"mcpServers": {"s": {"command": "sh", "args": [person.server()]}}});
    person.write(USER_CONFIG, &config.to_string());
    person
}

#[test]
fn cells_are_read_from_standard_input_and_an_expression_shows_its_value() {
    let person = person();
    let input = "1 + 1\n{ a: [1] }\ntext('shown')\n[\n  3,\n].length\nconst lost = 1\nreturn `a\nb`\nx as number\n";
    let done = person.run_with(&[], input, &["repl"]);
    assert_eq!(done.out, "2\n{\n  \"a\": [\n    1\n  ]\n}\nshown\nnull\n1\n\"a\\nb\"\n", "{}", done.err);
    assert_eq!(done.code, 1);
    assert!(done.err.contains("failed") && done.err.contains("x is not defined"), "{}", done.err);
}

#[test]
fn a_failure_has_the_place_that_was_typed_and_a_lost_variable_is_explained_once() {
    let person = person();
    let input = "foo()\n  1 + foo()\nconst x = 5\nx\nx + 1\n";
    let done = person.run_with(&[], input, &["repl"]);
    let failures: Vec<&str> = done.err.lines().filter(|line| line.starts_with("failed")).collect();
    let expected = [("foo", "1:1"), ("foo", "1:7"), ("x", "1:1"), ("x", "1:1")]
        .map(|(name, place)| format!("failed: ReferenceError: {name} is not defined (at {place})"));
    assert_eq!(failures, expected, "{}", done.err);
    assert_eq!(done.err.matches("variables end with their cell").count(), 1, "{}", done.err);
    let json = person.run_with(&[], "foo()\n", &["repl", "--json"]);
    assert!(json.out.contains("foo is not defined (at 1:1)"), "{}", json.out);
}

#[test]
fn with_json_every_cell_and_command_prints_one_line() {
    let person = person();
    let input = "1\n\nthrow new Error('no')\n.tools greet\n.help\n.nothing\ntext('a'); return 2\n";
    let done = person.run_with(&[], input, &["repl", "--json"]);
    let lines: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5, "{}", done.out);
    assert_eq!((&lines[0]["status"], &lines[0]["value"]), (&json!("completed"), &json!(1)));
    assert_eq!(lines[1]["status"], "failed");
    assert_eq!(lines[2]["tools"][0]["call"], "MCP.s.greet");
    assert!(lines[3]["help"].as_str().unwrap().contains(".wait"));
    assert_eq!(lines[4]["output"], json!([{"type": "text", "text": "a"}]));
    assert!(done.code == 1 && done.err.contains("no command `.nothing`; `.help`"), "{}", done.err);
}

#[test]
fn without_a_terminal_a_cell_waits_for_approval_and_the_next_one_runs() {
    let person = person();
    let input = "await MCP.s.greet({name: 'Ada'})\n.wait\n40 + 2\n";
    let done = person.run_with(&[], input, &["repl", "--session", "work"]);
    assert_eq!((done.code, done.out.as_str()), (3, "42\n"), "{}", done.err);
    assert_eq!(done.err.matches("needs approval").count(), 2, "{}", done.err);
    let runs = person.run(&["runs", "list", "--json"]).json();
    let sessions: Vec<&Value> = runs.as_array().unwrap().iter().map(|run| &run["sessionId"]).collect();
    assert_eq!(sessions, ["repl:work", "repl:work"]);
    let nothing = person.run_with(&[], ".wait\n", &["repl"]);
    assert!(nothing.code == 1 && nothing.err.contains("no cell of this prompt waits"), "{}", nothing.err);
    let wrong = person.run(&["repl", "--session", "mcp:local"]);
    assert!(wrong.code == 2 && wrong.err.contains("letters, digits"), "{}", wrong.err);
}

#[test]
fn values_stay_in_their_session_and_another_prompt_continues_it() {
    let person = person();
    let first = person.run_with(&[], "await store('page', {n: 2})\n.state\n", &["repl", "--session", "work", "--json"]);
    let lines: Vec<Value> = first.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["status"], "completed", "{}", first.out);
    assert_eq!(lines[1]["values"][0]["key"], "page", "{}", first.out);
    let input = "(await load('page')).n + 1\n(await keys()).length\n";
    assert_eq!(person.run_with(&[], input, &["repl", "--session", "work"]).out, "3\n1\n");
    assert_eq!(person.run_with(&[], "(await keys()).length\n", &["repl"]).out, "0\n", "a new session begins");
    let listed = person.run(&["runs", "state", "repl:work", "--json"]).json();
    assert_eq!((&listed["sessionId"], &listed["agentId"]), (&json!("repl:work"), &json!("local")));
    assert_eq!(person.run(&["runs", "state", "repl", "--key", "page"]).out, "{\"n\":2}\n");
}

/// `cellmate repl` on a terminal.
struct Terminal {
    child: Child,
    stdin: ChildStdin,
    chunks: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn start(person: &Person, arguments: &str) -> Self {
        let line = format!("stty cols 100; exec '{}' repl {arguments}", env!("CARGO_BIN_EXE_cellmate"));
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .current_dir(person.path("project"))
            .env_clear()
            .envs([("PATH", std::env::var_os("PATH").unwrap()), ("HOME", person.path("home").into())])
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (send, chunks) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stdout.read(&mut buffer) {
                if send.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, chunks, seen: String::new() }
    }

    /// Waits until the terminal shows the text after what was seen before.
    fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(left) {
                Ok(chunk) => self.seen += &String::from_utf8_lossy(&chunk),
                Err(_) => panic!("the terminal does not show {text:?}: {:?}", self.seen),
            }
        }
    }

    fn type_text(&mut self, text: &str) {
        self.stdin.write_all(text.as_bytes()).unwrap();
        self.stdin.flush().unwrap();
    }

    /// Waits for the prompt, and types.
    fn at_prompt(&mut self, text: &str) {
        self.wait_for("> ");
        self.type_text(text);
    }

    fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        while let Ok(chunk) = self.chunks.recv_timeout(Duration::from_secs(10)) {
            self.seen += &String::from_utf8_lossy(&chunk);
        }
        (status, self.seen)
    }
}

#[test]
fn a_prompt_edits_lines_completes_names_and_keeps_a_private_history() {
    let person = person();
    let mut terminal = Terminal::start(&person, "--session work");
    terminal.wait_for("session work, 2 tools");
    // The second tab completes the method; backspace and a longer name follow.
    terminal.at_prompt("typeof MCP.s.gr\t\r");
    terminal.wait_for("typeof MCP.s.greet");
    terminal.wait_for("\"function\"");
    terminal.at_prompt("[1,\r2].leng\x7fgth\r");
    terminal.wait_for("\n2\r\n");
    terminal.at_prompt(".to\t greet\r");
    terminal.wait_for("MCP.s.greet");
    // Up recalls the input of two lines.
    terminal.at_prompt("\x1b[A\x1b[A\r");
    terminal.wait_for("\n2\r\n");
    terminal.at_prompt("throw new Error('no')\r");
    terminal.wait_for("failed: ");
    terminal.at_prompt("nothing\x03");
    terminal.wait_for("Ctrl-D or .exit leaves");
    terminal.at_prompt("\x04");
    let (status, shown) = terminal.end();
    assert!(status.success() && shown.contains("cellmate repl --session work"), "{shown}");
    let entries: Vec<Value> = person.read(HISTORY).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries[..2], ["typeof MCP.s.greet", "[1,\n2].length"]);
    let mode = std::fs::metadata(person.path(HISTORY)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut later = Terminal::start(&person, "");
    later.at_prompt("\x1b[A\r");
    later.wait_for("throw new Error('no')");
    later.wait_for("failed: ");
    later.at_prompt(".exit\r");
    assert!(later.end().0.success());
}

#[test]
fn ctrl_c_cancels_the_cell_that_runs_and_the_prompt_stays() {
    let person = person();
    let mut terminal = Terminal::start(&person, "");
    terminal.at_prompt("await new Promise((done) => setTimeout(done, 60000))\r");
    terminal.wait_for("\r\n");
    std::thread::sleep(Duration::from_secs(1));
    terminal.type_text("\x03");
    terminal.wait_for("is cancelled");
    // A cell that computes is cancelled, too, and the worker of the next one is there.
    terminal.at_prompt("while (true) {}\r");
    terminal.wait_for("\r\n");
    std::thread::sleep(Duration::from_secs(1));
    terminal.type_text("\x03");
    terminal.wait_for("is cancelled");
    terminal.at_prompt("6 * 7\r");
    terminal.wait_for("42");
    terminal.at_prompt("\x04");
    assert!(terminal.end().0.success());
    let runs = person.run(&["runs", "list", "--json"]).json();
    let states: Vec<&Value> = runs.as_array().unwrap().iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["completed", "aborted", "aborted"]);
}

#[test]
fn an_approval_is_asked_for_at_the_prompt_and_ctrl_c_withdraws_the_question() {
    let person = person();
    let mut terminal = Terminal::start(&person, "");
    terminal.at_prompt("(await MCP.s.greet({name: 'Ada'})).content[0].text\r");
    terminal.wait_for("[y]es, [a]lways, [N]o: ");
    terminal.type_text("y\r");
    terminal.wait_for("\"hello Ada\"");
    terminal.at_prompt("await MCP.s.greet({name: 'Eve'})\r");
    terminal.wait_for("[y]es, [a]lways, [N]o: ");
    terminal.type_text("\x03");
    terminal.wait_for("is cancelled");
    // What is typed now is not an answer to the question.
    terminal.at_prompt("'y'\r");
    terminal.wait_for("\"y\"");
    terminal.at_prompt("\x04");
    assert!(terminal.end().0.success());
    let runs = person.run(&["runs", "list", "--json"]).json();
    let states: Vec<&Value> = runs.as_array().unwrap().iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["completed", "aborted", "completed"]);
}
