//! `cellmate tools`: which tools the commands find, and how those of plugins and of Cellmate itself are called.

use serde_json::{Value, json};

use crate::person::Person;
use crate::trust_tools::on_terminal;

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

/// A user with a server, a plugin with the tool `greet`, and file tools.
fn person() -> Person {
    let person = Person::new();
    configure(&person, &json!({}));
    for arguments in [&["plugins", "new", "myplug"][..], &["plugins", "add", "./myplug", "--yes"]] {
        let done = person.run(arguments);
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    }
    person.write("project/note.txt", "tea");
    person
}

fn configure(person: &Person, approvals: &Value) {
    let config = json!({
        "mcpServers": {"s": {"command": "sh", "args": [person.server()]}},
        "tools": {"fs": {"enabled": true, "roots": [person.path("project")]}},
        "approvals": approvals,
    });
    person.write(USER_CONFIG, &config.to_string());
}

#[test]
fn tools_of_plugins_and_core_tools_are_shown_with_their_source_and_called_with_policy() {
    let person = person();
    for (id, source, declared) in [
        ("plugin:myplug:greet", "source     plugin myplug\n", "as its plugin declares"),
        ("openclaw:core:read", "source     core\n", "as Cellmate declares"),
    ] {
        let shown = person.run(&["tools", "show", id]);
        assert_eq!(shown.code, 0, "{}", shown.err);
        assert!(shown.out.contains(source) && !shown.out.contains("server"), "{}", shown.out);
        assert!(shown.out.contains(&format!("call       cellmate tools call {id} ")), "{}", shown.out);
        assert!(shown.out.contains(declared), "{}", shown.out);
        let shown = person.run(&["tools", "show", id, "--json"]).json();
        assert_eq!((&shown["server"], &shown["source"]), (&Value::Null, &json!(id.split(':').next().unwrap())));
    }
    let note = person.path("project/note.txt").display().to_string();
    for arguments in [
        &["plugin:myplug:greet", "name=Ada"][..],
        &["myplug.greet", "name=Ada"],
        &["tools.greet", "name=Ada"],
        &["openclaw:core:read", &format!("path={note}")],
        &["read", &format!("path={note}")],
    ] {
        let called = person.run(&[&["tools", "call"], arguments].concat());
        assert_eq!(called.code, 0, "{arguments:?}: {}", called.err);
        assert!(called.out.contains("Hello, Ada!") || called.out.contains("tea"), "{}", called.out);
    }
    assert!(!person.has("started"));
    let target = person.path("project/new.txt").display().to_string();
    let write = ["tools", "call", "openclaw:core:write", &format!("path={target}"), "content=x"];
    let asked = person.run(&write);
    assert!(asked.code == 1 && asked.err.contains("needs approval"), "{}", asked.err);
    assert!(!person.has("project/new.txt"));
    assert_eq!(person.run(&[&write[..], &["--yes"]].concat()).code, 0);
    assert_eq!(person.read("project/new.txt"), "x");
    configure(&person, &json!({"ask": ["plugin:myplug:greet"]}));
    let asked = person.run(&["tools", "call", "plugin:myplug:greet", "name=Ada"]);
    assert!(asked.code == 1 && asked.err.contains("needs approval"), "{}", asked.err);
    let runs = person.run(&["runs", "list"]).out;
    assert!(runs.contains("tools call openclaw:core:write"), "{runs}");
    let shown = person.run(&["tools", "show", "myplug.greet"]);
    assert!(shown.code == 0 && shown.out.contains("plugin:myplug:greet"), "{}", shown.err);
    for command in ["show", "call"] {
        let unknown = person.run(&["tools", command, "myplugg.greet"]);
        assert!(unknown.code == 2 && unknown.err.contains("no server named `myplugg`"), "{command}: {}", unknown.err);
    }
    let unknown = person.run(&["tools", "call", "plugin:other:greet"]);
    assert!(unknown.code == 2 && unknown.err.contains("no tool `plugin:other:greet`"), "{}", unknown.err);
}

#[test]
fn the_tools_of_one_server_are_listed_without_those_of_plugins() {
    let person = person();
    let ids = |arguments: &[&str]| -> Vec<String> {
        let listed = person.run(&[&["tools", "list", "--json"], arguments].concat()).json();
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
    };
    assert!(ids(&[]).contains(&"plugin:myplug:greet".to_owned()));
    assert_eq!(ids(&["--server", "s"]), ["mcp:s:greet", "mcp:s:other"]);
    let table = person.run(&["tools", "list", "--server", "s"]).out;
    assert!(table.contains("s.greet") && !table.contains("myplug") && !table.contains("core"), "{table}");
}

#[test]
fn a_typo_at_the_approval_prompt_asks_again_and_only_enter_and_no_deny() {
    let person = Person::new();
    configure(&person, &json!({}));
    for (typed, code, prompts) in [("yse\nx\ny\n", 0, 3), ("s\n\n", 1, 2), ("ja\nno\n", 1, 2), ("y\n", 0, 1)] {
        let (found, shown) = on_terminal(&person, &["tools", "call", "s.greet", "name=Ada"], typed);
        assert_eq!(found, code, "{typed:?}: {shown}");
        assert_eq!(shown.matches("call it? [y]es, [a]lways, [N]o: ").count(), prompts, "{typed:?}: {shown}");
        assert_eq!(shown.matches("type one of the listed answers").count(), prompts - 1, "{typed:?}: {shown}");
    }
    let cell = "return (await MCP.s.greet({name: \"Ada\"})).content";
    let (code, shown) = on_terminal(&person, &["exec", "-e", cell], "yeah\ny\n");
    assert!(code == 0 && shown.contains("type one of the listed answers"), "{shown}");
}

#[test]
fn arguments_of_the_wrong_type_are_answered_with_the_way_to_pass_them() {
    let person = person();
    let note = format!("path={}", person.path("project/note.txt").display());
    let read = |more: &str| person.run(&["tools", "call", "openclaw:core:read", &note, more]);
    let text = read("limit=2");
    assert!(text.code == 1 && text.err.contains("`limit=2` passes text; write `limit:=2`"), "{}", text.err);
    assert_eq!(read("limit:=2").code, 0);
    let not_json = read("limit:=abc");
    assert!(not_json.code == 2 && not_json.err.contains("`limit:=abc` is not JSON"), "{}", not_json.err);
    assert!(not_json.err.contains("to pass text, write `limit=abc`"), "{}", not_json.err);
}

#[test]
fn suggested_commands_repeat_the_config_files() {
    let person = Person::new();
    person.write("project/bad.json5", "{mcpServers: {missing: {command: '/no/such/program'}}}");
    let run = person.run(&["exec", "--config", "bad.json5", "-e", "return 1"]);
    let next = "`cellmate servers test missing --config bad.json5`";
    assert!(run.err.contains(next), "{}", run.err);
    let tested = person.run(&["servers", "test", "missing", "--config", "bad.json5"]);
    assert!(tested.code == 1 && tested.out.contains("FAIL  missing"), "{}{}", tested.out, tested.err);
    for arguments in [&["tools", "list"][..], &["servers", "list"]] {
        let listed = person.run(&[arguments, &["--config", "bad.json5"]].concat());
        assert!(listed.err.contains(next), "{arguments:?}: {}", listed.err);
    }
    for (arguments, code) in
        [(&["list"][..], 1), (&["search", "x"], 1), (&["show", "missing.x"], 1), (&["show", "y.x"], 2)]
    {
        let found = person.run(&[&["tools"], arguments, &["--config", "bad.json5"]].concat());
        assert_eq!(found.code, code, "{arguments:?}: {}", found.err);
    }
    let unknown = person.run(&["servers", "get", "x", "--config", "bad.json5"]);
    assert!(unknown.err.contains("`cellmate servers list --config bad.json5` lists them"), "{}", unknown.err);
}

#[test]
fn a_slow_call_is_named_on_a_terminal_until_it_ends_unless_the_result_is_json() {
    let person = Person::new();
    configure(&person, &json!({"ask": "never"}));
    // The line is refreshed every second once a call has taken two.
    let slow = person.read("server.sh").replace("      name=$(", "      sleep 3\n      name=$(");
    person.write("server.sh", &slow);
    let cell = "return (await MCP.s.greet({name: \"Ada\"})).content[0].text";
    let (code, shown) = on_terminal(&person, &["exec", "-e", cell], "");
    assert_eq!(code, 0, "{shown}");
    let line = shown.find("\r\u{1b}[Kwaiting for MCP.s.greet (").unwrap_or_else(|| panic!("{shown:?}"));
    let end = shown.find("\r\u{1b}[K\"hello Ada\"").unwrap_or_else(|| panic!("{shown:?}"));
    assert!(line < end, "{shown:?}");
    let (code, shown) = on_terminal(&person, &["tools", "call", "s.greet", "name=Ada", "--json"], "");
    assert!(code == 0 && shown.contains("hello Ada") && !shown.contains("waiting for"), "{shown:?}");
    let (code, shown) = on_terminal(&person, &["tools", "call", "s.greet", "name=Ada"], "");
    assert!(code == 0 && shown.contains("waiting for MCP.s.greet ("), "{shown:?}");
}
