//! Loading configuration: files of every client, trust in projects, limits, and errors.
//!
//! `tests/config/NAME` is a client's file and `NAME.expected` what it is loaded as. `CELLMATE_UPDATE_SNAPSHOTS=1`
//! records the current result; then read the difference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contract::limits::{MAX_CONFIG_ENTRIES, MAX_CONFIG_FILE_BYTES, MAX_JSON_VALUES, MAX_USER_FILE_BYTES};
use mcp::{Callback, Login, Transport};
use serde_json::{Value, json};

use crate::load::MAX_SERVERS;
use crate::{Places, ProjectReview, ServerEntry, TrustStore, load, project_files, users_section};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

fn places(named: &[PathBuf], home: &Path, folder: PathBuf) -> Places {
    let variables = [
        ("HOME", home.to_str().unwrap()),
        ("TOKEN", "hunter2"),
        ("OTHER", "other"),
        ("CELLMATE_INPUT_PERPLEXITY_KEY", "pplx"),
    ];
    Places::of(named, folder, variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
}

/// All fields of a server, including its secrets, which are made up.
fn server_fields(server: &ServerEntry) -> Value {
    let transport = match &server.transport {
        Transport::Stdio { command, args, env, cwd } => {
            json!({"command": command, "args": args, "env": env, "cwd": cwd})
        }
        Transport::Http { url, headers, login } => {
            let mut fields = json!({"url": url, "headers": headers});
            if *login != Some(Login::new("/home/me/.local/state/cellmate/tokens".into())) {
                fields["login"] = login.as_ref().map_or(json!(false), login_fields);
            }
            fields
        }
    };
    json!({
        "name": server.name, "transport": transport, "enabled": server.enabled, "trusted": server.trusted,
        "only": server.only_tools, "without": server.without_tools,
        "startupMs": server.startup.map(|time| time.as_secs_f64() * 1000.0),
        "callMs": server.call.map(|time| time.as_secs_f64() * 1000.0),
        "line": server.origin.line, "shown": server.shown,
    })
}

fn login_fields(login: &Login) -> Value {
    let callback = (login.callback != Callback::default()).then(|| format!("{:?}", login.callback));
    json!({
        "tokens": login.tokens, "id": login.client_id, "secret": login.client_secret, "scopes": login.scopes,
        "callback": callback,
    })
}

fn read(name: &str) -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let loaded = load(&places(&[folder().join(name)], Path::new("/home/me"), manifest.to_owned())).unwrap();
    let problems = loaded.problems.iter().map(|problem| {
        let text = problem.to_string();
        text.replace(&format!("{}/", folder().display()), "").replace(&format!("{}/", manifest.display()), "")
    });
    let fields = json!({
        "servers": loaded.servers.iter().map(server_fields).collect::<Vec<_>>(),
        "settings": loaded.settings,
        "problems": problems.collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&fields).unwrap() + "\n";
    text.replace(manifest.to_str().unwrap(), "MANIFEST")
}

#[test]
fn each_client_fixture_loads_as_its_snapshot() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let expected_file = folder().join(format!("{name}.expected"));
        let Ok(expected) = std::fs::read_to_string(&expected_file) else { continue };
        seen += 1;
        let found = read(&name);
        if std::env::var_os("CELLMATE_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(expected_file, &found).unwrap();
            continue;
        }
        if found != expected {
            wrong.push(format!("{name}\n{}", similar::TextDiff::from_lines(&expected, &found).unified_diff()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(seen, 14);
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn with(files: &[(&str, &str)]) -> Self {
        let scratch = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            let path = scratch.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        scratch
    }

    fn places(&self) -> Places {
        places(&[], &self.0.path().join("home"), self.0.path().join("project"))
    }

    /// Loads the configuration; returns the servers with their sources, and the problems without the scratch folder's path.
    fn loaded(&self) -> (Vec<String>, Vec<String>) {
        let loaded = load(&self.places()).unwrap();
        let servers = loaded.servers.iter().map(|server| format!("{} {}", server.name, server.origin.source.as_str()));
        let root = self.0.path().display().to_string();
        let problems = loaded.problems.iter().map(|problem| problem.to_string().replace(&root, ""));
        (servers.collect(), problems.collect())
    }
}

#[test]
fn client_files_listed_in_imports_are_read() {
    let server = |name: &str| format!(r#"{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}"#);
    let ours = r#"{imports: ["claude", "cursor", "codex", "vscode", "gemini", "opencode", "windsurf", "zed", "mcporter", "openclaw", "claude-desktop"]}"#;
    let claude = r#"{"mcpServers": {"a": {"command": "x"}, "cellmate": {"command": "cellmate", "args": ["mcp"]}}, "projects": {"PROJECT": {"mcpServers": {"local": {"command": "x"}}}}}"#;
    let scratch = Scratch::with(&[
        ("home/.config/cellmate/config.json5", ours),
        ("home/.cursor/mcp.json", "not json"),
        ("home/.codex/config.toml", "[mcp_servers.b]\ncommand = \"$HOME\"\n"),
        ("home/.config/Code/User/mcp.json", r#"{"servers": {"c": {"command": "x"}}}"#),
        (
            "home/.gemini/settings.json",
            r#"{"mcpServers": {"d": {"command": "x", "env": {"K": "$TOKEN"}, "trust": true}}}"#,
        ),
        ("home/.config/opencode/opencode.jsonc", r#"{"mcp": {"e": {"type": "local", "command": ["x"]}}}"#),
        ("home/.codeium/windsurf/mcp_config.json", &server("f")),
        ("home/.config/zed/settings.json", r#"{"context_servers": {"g": {"command": "x"}}}"#),
        ("home/.mcporter/mcporter.json", &server("h")),
        ("home/.openclaw/openclaw.json", "{mcp: {servers: {i: {command: 'x'}}}}"),
        ("home/.config/Claude/claude_desktop_config.json", &server("j")),
        ("project/.mcp.json", &server("unasked")),
    ]);
    let root = scratch.0.path().join("project").display().to_string();
    std::fs::write(scratch.0.path().join("home/.claude.json"), claude.replace("PROJECT", &root)).unwrap();
    let (servers, problems) = scratch.loaded();
    let expected = [
        "local claude-code",
        "a claude-code",
        "b codex",
        "c vscode",
        "d gemini",
        "e opencode",
        "f windsurf",
        "g zed",
        "h mcporter",
        "i openclaw",
        "j claude-desktop",
    ];
    assert_eq!(servers, expected);
    assert_eq!(
        problems,
        [
            "/home/.cursor/mcp.json:1: expected a value; a string needs quotes",
            "/project/.mcp.json: this project's file is not read until you trust it: review it, then run `cellmate config trust`",
        ]
    );
    let loaded = load(&scratch.places()).unwrap();
    let gemini = loaded.servers.iter().find(|server| server.name == "d").unwrap();
    assert!(!gemini.trusted, "another client's trust does not count");
    let Transport::Stdio { env, .. } = &gemini.transport else { panic!() };
    assert_eq!(env, &BTreeMap::from([("K".to_owned(), "hunter2".to_owned())]));
}

const USER: &str = "home/.config/cellmate/config.json5";
const PROJECT: &str = "project/.cellmate.json5";

impl Scratch {
    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        std::fs::write(self.path(below), text).unwrap();
    }

    /// Trusts every file of the project that would be read, as `cellmate config trust` does.
    fn trust(&self) {
        let places = self.places();
        for (file, client) in project_files(&places).unwrap() {
            if let Some(reviewed) = ProjectReview::open(&file, client, &places).unwrap() {
                TrustStore::of(&places).write(&reviewed.record).unwrap();
            }
        }
    }

    fn servers_with_sources(&self) -> Vec<String> {
        self.loaded().0
    }
}

#[test]
fn a_projects_file_is_read_only_while_its_content_is_the_trusted_one() {
    let project = r"{mcpServers: {b: {command: 'x'}}}";
    let scratch = Scratch::with(&[(USER, "{mcpServers: {a: {command: 'mine'}}}"), (PROJECT, project)]);
    let untrusted = "/project/.cellmate.json5: this project's file is not read until you trust it: review it, then run `cellmate config trust`";
    assert_eq!(scratch.loaded(), (vec!["a user".to_owned()], vec![untrusted.to_owned()]));
    scratch.trust();
    assert_eq!(scratch.loaded(), (vec!["a user".to_owned(), "b project".to_owned()], vec![]));
    scratch.write(PROJECT, &project.replace('x', "y"));
    let (servers, problems) = scratch.loaded();
    assert_eq!(servers, ["a user"]);
    assert!(problems[0].contains("it has changed since you trusted it"), "{problems:?}");
    // A change of one byte revokes the trust.
    scratch.write(PROJECT, &format!("{project} "));
    assert_eq!(scratch.servers_with_sources(), ["a user"]);
    scratch.write(PROJECT, project);
    assert_eq!(scratch.servers_with_sources(), ["a user", "b project"]);
    // A file with the same content in another project is not trusted.
    let elsewhere = Scratch::with(&[(PROJECT, project)]);
    assert_eq!(elsewhere.servers_with_sources(), [""; 0]);
}

#[test]
fn a_folder_that_an_earlier_version_trusted_is_not_trusted_and_the_problem_explains_it() {
    let scratch = Scratch::with(&[(USER, ""), (PROJECT, "{mcpServers: {b: {command: 'x'}}}")]);
    scratch.write(USER, &format!("{{trustedProjects: [{:?}]}}", scratch.path("")));
    let (servers, problems) = scratch.loaded();
    assert_eq!((servers.len(), problems.len()), (0, 1), "{problems:?}");
    assert!(problems[0].contains("an earlier version") && problems[0].contains("`cellmate config trust`"));
    scratch.trust();
    assert_eq!(scratch.loaded(), (vec!["b project".to_owned()], vec![]));
}

#[test]
fn a_trusted_project_adds_servers_and_restrictions_and_changes_no_user_settings() {
    let user = "{mcpServers: {a: {command: 'mine'}}, tools: {deny: ['x']}, imports: ['cursor'], store: {url: 'u.db'}}";
    let project = "{
      mcpServers: {
        a: {command: 'theirs'}, imported: {command: 'theirs'},
        b: {command: 'x', trusted: true},
      },
      approvals: {ask: 'never', pass: ['*'], nonInteractive: true},
      store: {url: 'postgres://evil/db'},
      imports: ['claude'],
      trustedProjects: ['/'],
      agents: {main: {tools: {allow: ['*']}}},
      tools: {allow: ['*'], deny: ['y']},
    }";
    let imported = r#"{"mcpServers": {"imported": {"command": "mine"}}}"#;
    let scratch = Scratch::with(&[(USER, user), (PROJECT, project), ("home/.cursor/mcp.json", imported)]);
    scratch.trust();
    let loaded = load(&scratch.places()).unwrap();
    let names: Vec<(&str, &str, bool)> = loaded
        .servers
        .iter()
        .map(|server| (server.name.as_str(), server.origin.source.as_str(), server.trusted))
        .collect();
    assert_eq!(names, [("a", "user", false), ("imported", "cursor", false), ("b", "project", false)]);
    assert_eq!(loaded.settings, json!({"tools": {"deny": ["x", "y"]}, "store": {"url": "u.db"}}));
    let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    for key in ["approvals", "store", "imports", "trustedProjects", "agents", "tools.allow", "trusted"] {
        let named = format!("`{key}` is not applied");
        assert_eq!(problems.iter().filter(|problem| problem.contains(&named)).count(), 1, "{key}: {problems:#?}");
    }
    for name in ["a", "imported"] {
        let shadowed = format!("server `{name}`: your own configuration has a different server with that name");
        assert!(problems.iter().any(|problem| problem.contains(&shadowed)), "{name}: {problems:#?}");
    }
}

#[test]
fn imported_client_files_in_a_project_need_trust() {
    let files = [
        ("claude", ".mcp.json", "mcpServers"),
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("vscode", ".vscode/mcp.json", "servers"),
        ("gemini", ".gemini/settings.json", "mcpServers"),
        ("opencode", "opencode.json", "mcp"),
        ("zed", ".zed/settings.json", "context_servers"),
        ("mcporter", "config/mcporter.json", "mcpServers"),
    ];
    for (client, file, key) in files {
        let file = format!("project/{file}");
        let text =
            format!(r#"{{"{key}": {{"t": {{"command": "x", "trusted": true}}}}, "approvals": {{"ask": "never"}}}}"#);
        let scratch = Scratch::with(&[(USER, &format!("{{imports: ['{client}']}}")), (&file, &text)]);
        assert_eq!(scratch.servers_with_sources().len(), 0, "{client}");
        scratch.trust();
        let loaded = load(&scratch.places()).unwrap();
        assert_eq!((loaded.servers.len(), loaded.settings), (1, json!({})), "{client}");
        assert!(!loaded.servers[0].trusted);
        scratch.write(&file, &format!("{text} "));
        assert_eq!(scratch.servers_with_sources().len(), 0, "{client}");
    }
}

#[test]
fn a_changed_env_file_of_a_trusted_project_is_not_used() {
    let project = r"{mcpServers: {b: {command: 'x', envFile: '.env'}, c: {command: 'x'}}}";
    let scratch = Scratch::with(&[(PROJECT, project), ("project/.env", "A=1\n")]);
    scratch.trust();
    assert_eq!(scratch.servers_with_sources(), ["b project", "c project"]);
    scratch.write("project/.env", "A=1\nLD_PRELOAD=/project/evil.so\n");
    let (servers, problems) = scratch.loaded();
    assert_eq!(servers, ["c project"]);
    assert!(problems[0].contains("has changed since you trusted the file that names it"), "{problems:?}");
}

#[test]
fn a_file_that_is_too_long_too_deep_or_has_too_many_values_is_refused_from_any_source() {
    let long = format!("{{mcpServers: {{}}}}{}", " ".repeat(MAX_CONFIG_FILE_BYTES));
    let many = format!("{{a: [{}]}}", "0,".repeat(MAX_JSON_VALUES));
    let deep = "[".repeat(200_000);
    // The problems are the endless `envFile`, the project's file and the client's file. The last one is not a problem
    // if it is only long, because a client's file in the home folder may be longer than the others.
    for (hostile, expected) in [(&long, 2), (&many, 3), (&deep, 3)] {
        let scratch = Scratch::with(&[(USER, hostile)]);
        assert!(load(&scratch.places()).is_err());
        let user = "{imports: ['cursor'], mcpServers: {a: {command: 'x', envFile: '/dev/zero'}}}";
        let scratch = Scratch::with(&[(USER, user), (PROJECT, hostile), ("home/.cursor/mcp.json", hostile)]);
        let (servers, problems) = scratch.loaded();
        assert_eq!((servers.len(), problems.len()), (0, expected), "{problems:?}");
    }
}

#[test]
fn a_clients_file_in_the_home_folder_is_refused_above_its_own_limit() {
    let longest = format!("{{}}{}", " ".repeat(MAX_USER_FILE_BYTES - 2));
    let problems =
        |text: &str| Scratch::with(&[(USER, "{imports: ['cursor']}"), ("home/.cursor/mcp.json", text)]).loaded().1;
    assert!(problems(&longest).is_empty());
    assert!(problems(&format!("{longest} "))[0].contains("more than 16777216 bytes"));
}

#[test]
fn servers_above_the_limit_are_reported_and_the_entries_of_a_file_are_limited() {
    let servers: String = (0..2_000).map(|number| format!("s{number}: {{command: 'x'}},\n")).collect();
    let scratch = Scratch::with(&[(USER, &format!("{{mcpServers: {{{servers}}}}}"))]);
    let (servers, problems) = scratch.loaded();
    // One problem for each entry above the limit, and one for the entries that are not read.
    assert_eq!((servers.len(), problems.len()), (MAX_SERVERS, MAX_CONFIG_ENTRIES - MAX_SERVERS + 1));
    assert!(problems.last().unwrap().contains("more than 512 servers"), "{:?}", problems.last());
}

#[test]
fn a_clients_file_that_is_passed_explicitly_is_read_as_that_client_reads_it() {
    let gemini = r#"{"mcpServers": {"d": {"command": "$TOKEN"}}, "tools": {"core": ["ls"]}}"#;
    let scratch = Scratch::with(&[("home/.gemini/settings.json", gemini)]);
    let named = Places { named: vec![scratch.0.path().join("home/.gemini/settings.json")], ..scratch.places() };
    let loaded = load(&named).unwrap();
    assert_eq!(loaded.settings, json!({}), "`tools` of another client's file is not applied");
    let Transport::Stdio { command, .. } = &loaded.servers[0].transport else { panic!() };
    assert_eq!(command, "hunter2");
}

#[test]
fn a_syntax_error_in_a_cellmate_file_is_an_error_with_its_position() {
    let scratch = Scratch::with(&[("home/.config/cellmate/config.json5", "{\n  mcpServers: hunter2 }")]);
    let error = load(&scratch.places()).unwrap_err().to_string();
    assert!(error.ends_with("config.json5`: line 2, column 15: expected a value; a string needs quotes"), "{error}");
}

#[test]
fn a_missing_file_that_is_passed_explicitly_is_an_error() {
    let named = places(&[PathBuf::from("/not/there.json5")], Path::new("/home/me"), folder());
    let error = load(&named).unwrap_err().to_string();
    assert_eq!(error, "`/not/there.json5` does not exist; create it with `cellmate servers add`");
}

#[test]
fn a_key_that_one_of_our_files_has_twice_is_an_error_that_names_both_places() {
    let lost = "{\n  tools: {deny: ['exec']},\n  mcpServers: {a: {command: 'x'}},\n  'tools': {},\n}";
    let expected = "line 4, column 3: the key `tools` is already at line 2, column 3, and only one of them could be used; \
        merge them, or remove one";
    let scratch = Scratch::with(&[(USER, lost)]);
    let error = load(&scratch.places()).unwrap_err().to_string();
    assert!(error.ends_with(&format!("config.json5`: {expected}")), "{error}");
    let error = users_section(&scratch.places(), "tools").unwrap_err().to_string();
    assert!(error.ends_with(expected), "{error}");
    for nested in ["{mcpServers: {a: {}, b: {}, a: {}}}", "{x: [1, {a: 1, a: 1}]}"] {
        let error = load(&Scratch::with(&[(USER, nested)]).places()).unwrap_err().to_string();
        assert!(error.contains("the key `a` is already at line 1, column "), "{nested}: {error}");
    }
    // The same key in two objects is in neither twice.
    assert!(load(&Scratch::with(&[(USER, "{tools: {deny: []}, agents: {deny: {}}}")]).places()).is_ok());

    let scratch = Scratch::with(&[(PROJECT, lost)]);
    let error = ProjectReview::open(&scratch.path(PROJECT), None, &scratch.places()).unwrap_err();
    assert_eq!(error, format!("{expected}; fix it first"));

    let theirs = r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#;
    let scratch = Scratch::with(&[(USER, "{imports: ['cursor']}"), ("home/.cursor/mcp.json", theirs)]);
    assert_eq!(scratch.loaded(), (vec!["a cursor".to_owned()], vec![]), "another client's file is read as it reads it");
}

#[test]
fn an_entry_without_a_transport_names_the_key_that_was_meant() {
    let cases = [
        ("cmd: 'x'", "`cmd`: did you mean `command`?"),
        ("comand: 'x'", "`comand`: did you mean `command`?"),
        ("env: {}, uri: 'x'", "`uri`: did you mean `url`?"),
        ("args: [], env: {}, cwd: '/'", "write one of them"),
    ];
    for (entry, expected) in cases {
        let (_, problems) = Scratch::with(&[(USER, &format!("{{mcpServers: {{s: {{{entry}}}}}}}"))]).loaded();
        let expected = format!("it has neither `command` nor `url`; {expected}");
        assert!(problems[0].ends_with(&expected), "{entry}: {problems:?}");
    }
}

#[test]
fn items_of_env_vars_are_names_or_objects_with_a_name() {
    for (list, expected) in [
        ("['A', {name: 'B'}, {name: 'C', source: 'remote'}]", None),
        ("[{}]", Some("`env_vars`: an item has no `name`")),
        ("[{name: 7}]", Some("`name`: expected a string, found a number")),
        ("['A', 7]", Some("`env_vars`: expected names, found a number")),
        ("'A'", Some("`env_vars`: expected a list of names, found a string")),
    ] {
        let entry = format!("{{mcpServers: {{s: {{command: 'x', env_vars: {list}}}}}}}");
        let (_, problems) = Scratch::with(&[(USER, &entry)]).loaded();
        assert_eq!(
            problems.first().map(|problem| problem.contains(expected.unwrap_or("nothing"))),
            expected.map(|_| true)
        );
    }
}

#[test]
fn debug_output_has_no_secrets() {
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "expected" || end == "env") {
            continue;
        }
        let loaded = load(&places(std::slice::from_ref(&path), Path::new("/home/me"), folder())).unwrap();
        let printed = format!("{loaded:?} {:?}", loaded.problems);
        assert!(!printed.contains("hunter2") && !printed.contains("pplx"), "{}", path.display());
    }
}
