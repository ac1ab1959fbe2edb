//! `cellmate runs output` and `cellmate runs state`: what runs stored, listed, written to files and deleted.

use std::process::{Command, Stdio};
use std::sync::Arc;

use contract::ids::CallId;
use contract::scope::Scope;
use serde_json::{Value, json};
use store::{
    Change, Durability, FencedRun, Keys, Location, NewOutput, NewRun, NewToken, OutputKind, RunState, Store, ValueWrite,
};

use crate::person::Person;

/// The run that has stored outputs.
pub(crate) const RUN: &str = "cm_0123456789abcdef";

/// What a run of a session stores.
pub(crate) struct Stored<'a> {
    pub(crate) run: &'a str,
    pub(crate) session: &'a str,
    pub(crate) client: &'a str,
    pub(crate) outputs: Vec<NewOutput>,
    /// Keys with their values as JSON.
    pub(crate) values: &'a [(&'a str, &'a str)],
}

/// Writes a run to the user's store, with what it stores.
pub(crate) fn keep(person: &Person, stored: Stored<'_>) {
    let scope = Scope {
        agent_id: "local".to_owned(),
        session_id: stored.session.to_owned(),
        client: stored.client.to_owned(),
        ..Scope::default()
    };
    let value = |(key, value): &(&str, &str)| ValueWrite {
        key: (*key).to_owned(),
        value: Some((*value).to_owned()),
        version: format!("{}:1", stored.run),
        expected: None,
    };
    let values = stored.values.iter().map(value).collect();
    let change = Change { state: Some(RunState::Completed), outputs: stored.outputs, values, ..Change::default() };
    // The first command creates the folder.
    person.run(&["runs", "list"]);
    let location = Location::File(person.path("home/.local/state/cellmate/runs.db"));
    let written = async {
        let store = Store::open(&location, Keys::new(0, [0; 32])).await.unwrap();
        let mut held = FencedRun::new(NewRun {
            run_id: stored.run.into(),
            scope,
            tool_call_id: String::new(),
            holder: "test".to_owned(),
            lease_until: i64::MAX,
            expires_at: i64::MAX,
            catalog: String::new(),
            tables: Arc::from([]),
            definition: "{}".to_owned(),
        });
        store.commit(&mut held, &change, Durability::Synced, executor::clock::now_ms()).await.unwrap();
    };
    tokio::runtime::Runtime::new().unwrap().block_on(written);
}

/// Writes a token with this text in every field to the user's store, as another program could.
pub(crate) fn keep_token(person: &Person, text: &str) {
    person.run(&["runs", "list"]);
    let location = Location::File(person.path("home/.local/state/cellmate/runs.db"));
    let token = NewToken {
        token_id: text.to_owned(),
        name: text.to_owned(),
        hash: text.to_owned(),
        scopes: text.to_owned(),
        created_at: 0,
        expires_at: None,
    };
    let written = async {
        Store::open(&location, Keys::new(0, [0; 32])).await.unwrap().create_token(&token).await.unwrap();
    };
    tokio::runtime::Runtime::new().unwrap().block_on(written);
}

pub(crate) fn text_output(name: &str, text: &str) -> NewOutput {
    let (name, data) = (name.to_owned(), text.as_bytes().to_vec());
    NewOutput { name, kind: OutputKind::Text, mime_type: None, source: None, data }
}

fn image(name: &str, data: &[u8]) -> NewOutput {
    NewOutput {
        name: name.to_owned(),
        kind: OutputKind::Image,
        mime_type: Some("image/png".to_owned()),
        source: Some((CallId(3), "mcp:s:draw".to_owned())),
        data: data.to_vec(),
    }
}

/// A text of several pieces, with characters of several bytes and control characters.
fn long_text() -> String {
    (0..60_000).map(|number| format!("{number} ü\u{1F980}\u{9b}\r\n")).collect()
}

fn person() -> Person {
    let person = Person::new();
    let outputs = vec![text_output("l0n0", &long_text()), image("c3n0", &[0, 159, 146, 150, 7])];
    let values = [("cursor", "{\"page\":2}"), ("seen", "[1,2]")];
    keep(&person, Stored { run: RUN, session: "mcp:local", client: "claude", outputs, values: &values });
    keep(&person, Stored { run: "cm_2", session: "mcp:local", client: "", outputs: vec![], values: &values[..1] });
    person
}

/// Runs `cellmate` on a terminal. Returns the exit code and what the terminal shows.
fn on_terminal(person: &Person, arguments: &str, input: &str) -> (i32, String) {
    use std::io::Write;
    let line = format!("stty cols 40; {} {arguments}", env!("CARGO_BIN_EXE_cellmate"));
    let mut terminal = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env_clear()
        .envs([("PATH", std::env::var_os("PATH").unwrap()), ("HOME", person.path("home").into())])
        .current_dir(person.path("project"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    terminal.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
    let output = terminal.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n"))
}

#[test]
fn outputs_are_listed_and_written_whole_to_pipes_files_and_json() {
    let person = person();
    let listed = person.run(&["runs", "output", "0123", "--json"]).json();
    assert_eq!((&listed["runId"], listed["outputs"].as_array().unwrap().len()), (&json!(RUN), 2));
    let text = long_text();
    let units = text.encode_utf16().count();
    // Outputs of one change have the same time.
    let find = |name: &str| {
        let outputs = listed["outputs"].as_array().unwrap().iter();
        outputs.clone().find(|one| one["handle"] == format!("out_{RUN}_{name}")).unwrap()
    };
    let first = find("l0n0");
    assert_eq!(first["type"], "text");
    assert_eq!((&first["bytes"], &first["length"], &first["tool"]), (&json!(text.len()), &json!(units), &Value::Null));
    let second = find("c3n0");
    assert_eq!(
        (&second["mimeType"], &second["tool"], &second["call"]),
        (&json!("image/png"), &json!("mcp:s:draw"), &json!(3))
    );

    for arguments in [vec![RUN, "l0n0"], vec![RUN, "l"], vec![&format!("out_{RUN}_l0n0")], vec![RUN, "l0n0", "-o", "-"]]
    {
        let piped = person.command(&[&["runs", "output"], &arguments[..]].concat()).output().unwrap();
        assert!(piped.status.success() && piped.stdout == text.as_bytes(), "{arguments:?}");
    }
    let json = person.run(&["runs", "output", RUN, "l0n0", "--json"]);
    assert!(!json.out.contains('\u{9b}') && json.json()["text"] == text);
    assert_eq!(person.run(&["runs", "output", RUN, "c3n0", "--json"]).json()["base64"], "AJ+Slgc=");

    let written = person.run(&["runs", "output", RUN, "c3n0", "-o", "image.png"]);
    assert_eq!((written.code, written.err.as_str()), (0, "wrote 5 bytes to image.png\n"));
    assert_eq!(std::fs::read(person.path("project/image.png")).unwrap(), [0, 159, 146, 150, 7]);
    let refused = person.run(&["runs", "output", RUN, "l0n0", "-o", "image.png"]);
    assert!(refused.code == 2 && refused.err.contains("--force"), "{}", refused.err);
    assert_eq!(std::fs::read(person.path("project/image.png")).unwrap().len(), 5, "the file is as it was");
    let forced = person.run(&["runs", "output", RUN, "l0n0", "-o", "image.png", "--force", "--json"]).json();
    assert_eq!((&forced["file"], person.read("project/image.png") == text), (&json!("image.png"), true));
    // A link is written through, not replaced.
    std::os::unix::fs::symlink("image.png", person.path("project/link")).unwrap();
    assert_eq!(person.run(&["runs", "output", RUN, "c3n0", "-o", "link", "--force"]).code, 0);
    assert_eq!(std::fs::read(person.path("project/image.png")).unwrap().len(), 5);
    assert_eq!(person.run(&["runs", "output", RUN, "c3n0", "-o", "/nowhere/file"]).code, 2);
    let left: Vec<_> = std::fs::read_dir(person.path("project")).unwrap().collect();
    assert_eq!(left.len(), 2, "no draft is left: {left:?}");

    let none = person.run(&["runs", "output", RUN, "x"]);
    assert!(none.code == 2 && none.err.contains("has no output `x`"), "{}", none.err);
    let empty = person.run(&["runs", "output", "cm_2"]);
    assert!(empty.code == 0 && empty.out.is_empty() && empty.err.contains("no stored outputs"), "{}", empty.err);
    assert_eq!(person.run(&["runs", "rm", RUN, "--force", "--yes"]).code, 0);
    assert_eq!(person.run(&["runs", "output", RUN]).code, 2);
}

#[test]
fn a_terminal_gets_a_table_that_fits_text_without_control_characters_and_no_binary_data() {
    let person = person();
    let (code, table) = on_terminal(&person, &format!("runs output {RUN} --color never"), "");
    assert!(code == 0 && table.contains("l0n0 ") && !table.contains("out_"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 40), "{table}");
    let (code, shown) = on_terminal(&person, &format!("runs output {RUN} l0n0 --color never"), "");
    let expected = long_text().replace('\u{9b}', "\\u{9b}").replace('\r', "");
    assert!(code == 0 && shown == expected, "{}", shown.chars().take(200).collect::<String>());
    let (code, raw) = on_terminal(&person, &format!("runs output {RUN} l0n0 --raw"), "");
    assert!(code == 0 && raw.contains('\u{9b}'));
    let (code, refused) = on_terminal(&person, &format!("runs output {RUN} c3n0"), "");
    assert!(code == 2 && refused.contains("image/png, 5 bytes") && refused.contains("-o FILE"), "{refused}");
}

#[test]
fn values_of_sessions_are_listed_printed_and_deleted() {
    let person = person();
    let sessions = person.run(&["runs", "state", "--json"]).json();
    let listed: Vec<(&Value, &Value)> =
        sessions.as_array().unwrap().iter().map(|one| (&one["client"], &one["keys"])).collect();
    assert_eq!(listed, [(&json!(""), &json!(1)), (&json!("claude"), &json!(2))], "the newest is first");
    let table = person.run(&["runs", "state"]).out;
    assert!(table.starts_with("SESSION    KEYS  SIZE      AGENT  CLIENT\nmcp:local  1"), "{table}");

    let several = person.run(&["runs", "state", "mcp"]);
    assert!(
        several.code == 2
            && several.err.contains("client claude")
            && several.err.contains("; choose one with --client KEY: "),
        "{}",
        several.err
    );
    let without_client = person.run(&["runs", "state", "mcp:local", "--client", "", "--json"]).json();
    assert_eq!((&without_client["client"], without_client["values"].as_array().map(Vec::len)), (&json!(""), Some(1)));
    let of = |more: &[&str]| person.run(&[&["runs", "state", "mcp:local", "--client", "cl"], more].concat());
    let values = of(&["--json"]).json();
    assert_eq!(values["values"][0]["key"], "cursor");
    assert_eq!(
        (&values["values"][1]["version"], &values["values"][1]["bytes"]),
        (&json!(format!("{RUN}:1")), &json!(5))
    );
    assert!(of(&[]).out.contains("cursor  10 bytes"), "{}", of(&[]).out);
    assert_eq!(of(&["--key", "cursor"]).out, "{\"page\":2}\n");
    assert_eq!(of(&["--key", "seen", "--json"]).json()["value"], json!([1, 2]));
    let none = of(&["--key", "nothing"]);
    assert!(none.code == 2 && none.err.contains("no value `nothing`"), "{}", none.err);

    let unconfirmed = of(&["--rm"]);
    assert!(unconfirmed.code == 2 && unconfirmed.err.contains("--yes"), "{}", unconfirmed.err);
    let kept = on_terminal(&person, "runs state mcp --client cl --rm", "n\n");
    assert!(kept.0 == 1 && kept.1.contains("delete all 2 values of session `mcp:local`?"), "{}", kept.1);
    assert_eq!(of(&["--rm", "nothing", "--yes"]).code, 2);
    assert_eq!(of(&["--rm", "seen", "--yes", "--json"]).json(), json!({"deleted": 1}));
    assert_eq!(of(&["--json"]).json()["values"].as_array().unwrap().len(), 1);
    let deleted = on_terminal(&person, "runs state mcp --client cl --rm", "y\n");
    assert!(deleted.0 == 0 && deleted.1.contains("deleted 1 value"), "{}", deleted.1);
    assert_eq!(of(&[]).code, 2, "the session has no values any more");
    assert_eq!(person.run(&["runs", "state", "mcp", "--key", "cursor"]).code, 0, "the other session is as it was");
}

#[test]
fn without_a_terminal_the_table_of_runs_is_as_wide_as_columns_says() {
    let person = Person::new();
    let code = format!("return '{}'.length", "x".repeat(200));
    assert_eq!(person.run(&["exec", "-e", &code]).code, 0);
    let width = |table: &str| table.lines().map(|line| line.chars().count()).max().unwrap();
    let narrow = person.run_with(&[("COLUMNS", "60")], "", &["runs", "list"]).out;
    assert!(width(&narrow) <= 60 && narrow.contains('…'), "{narrow}");
    let whole = person.run(&["runs", "list"]).out;
    assert!(width(&whole) > 100, "{whole}");
}
