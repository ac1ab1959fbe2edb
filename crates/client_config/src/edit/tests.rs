//! Edits of JSON5 and TOML files that keep comments and layout, masking, and replacing a file.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{Change, json, mask, toml};
use crate::document::Format;
use crate::json5::parse;
use crate::key_path::KeyPath;

/// The entry of a server that the tests add.
fn entry() -> Value {
    json!({"command": "x", "args": ["mcp"]})
}

#[test]
fn a_server_is_inserted_in_the_style_of_the_file() {
    let cases = [
        ("", "{\n  \"m\": {\n    \"s\": {\n      \"command\": \"x\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n"),
        (
            "// only a note",
            "// only a note\n{\n  \"m\": {\n    \"s\": {\n      \"command\": \"x\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
        ),
        ("{\"m\": {\"a\": 1}}", "{\"m\": {\"a\": 1, \"s\": {\"command\":\"x\",\"args\":[\"mcp\"]}}}"),
        ("{\"m\": {}}", "{\"m\": {\n  \"s\": {\n    \"command\": \"x\",\n    \"args\": [\"mcp\"]\n  }\n}}"),
        (
            "{\n    // all of them\n    m: {\n        a: 1, // the first\n    },\n}\n",
            "{\n    // all of them\n    m: {\n        a: 1, // the first\n        \"s\": {\n            \"command\": \"x\",\n            \"args\": [\"mcp\"]\n        },\n    },\n}\n",
        ),
        (
            "{\r\n\t\"m\": {\r\n\t\t\"a\": 1 /* one */ // two\r\n\t}\r\n}",
            "{\r\n\t\"m\": {\r\n\t\t\"a\": 1, /* one */ // two\r\n\t\t\"s\": {\r\n\t\t\t\"command\": \"x\",\r\n\t\t\t\"args\": [\"mcp\"]\r\n\t\t}\r\n\t}\r\n}",
        ),
        (
            "{\n  \"m\": {\n    \"s\": 1, // was one\n    \"t\": 2\n  }\n}",
            "{\n  \"m\": {\n    \"s\": {\n      \"command\": \"x\",\n      \"args\": [\"mcp\"]\n    }, // was one\n    \"t\": 2\n  }\n}",
        ),
        ("{\"m\": null}", "{\"m\": {\"s\":{\"command\":\"x\",\"args\":[\"mcp\"]}}}"),
    ];
    for (before, after) in cases {
        assert_eq!(json::set(before, &["m", "s"], &entry()).unwrap(), after, "{before}");
        assert_eq!(json::set(after, &["m", "s"], &entry()).unwrap(), after, "a second edit changes nothing");
    }
    assert!(json::set("[]", &["m"], &entry()).is_err());
    assert!(json::set("{m: []}", &["m", "s"], &entry()).is_err());
}

#[test]
fn a_server_is_removed_with_its_comma() {
    let cases = [
        ("{\"m\": {\"s\": 1}}", "{\"m\": {}}"),
        ("{\"m\": {\"a\": 1, \"s\": 2}}", "{\"m\": {\"a\": 1}}"),
        ("{\"m\": {\"s\": 1, \"b\": 2}}", "{\"m\": { \"b\": 2}}"),
        (
            "{\"s\": 0, \"m\": {\n  \"a\": 1, // one\n  // two\n  \"s\": {\n    x: 1 },\n  b: 3,\n}}",
            "{\"s\": 0, \"m\": {\n  \"a\": 1, // one\n  // two\n  b: 3,\n}}",
        ),
        ("{m: {\n  a: 1, // one\n  s: 2 // two\n}}", "{m: {\n  a: 1 // one\n  // two\n}}"),
        ("{m: {s: 1, s: 2}}", "{m: {}}"),
        ("{m: {a: 1}}", "{m: {a: 1}}"),
    ];
    for (before, after) in cases {
        assert_eq!(json::remove(before, &["m", "s"]).unwrap(), after, "{before}");
    }
}

#[test]
fn a_value_is_appended_to_the_end_of_a_list() {
    let cases = [
        ("{}", "{\n  \"l\": [\"x\"]\n}"),
        ("{l: ['a']}", "{l: ['a', \"x\"]}"),
        ("{\n  l: [\n    'a', // first\n  ],\n}", "{\n  l: [\n    'a', // first\n    \"x\",\n  ],\n}"),
    ];
    for (before, after) in cases {
        assert_eq!(json::append(before, &["l"], &json!("x")).unwrap(), after);
    }
}

#[test]
fn items_of_lists_are_set_added_and_removed_in_place() {
    let steps = |path: &str| KeyPath::parse(path).unwrap().steps().to_vec();
    let two = "{\n  l: [\n    { id: 'a' }, // first\n    { id: 'b', t: { deny: ['x', 'y'] } },\n  ],\n}";
    let set = [
        ("l[0].t.deny", json!(["z"]), two.replace("{ id: 'a' }", "{ id: 'a', \"t\": {\"deny\":[\"z\"]} }")),
        ("l[1].t.deny[0]", json!("z"), two.replace("'x'", "\"z\"")),
        ("l.1.t.deny.2", json!("z"), two.replace("'y'", "'y', \"z\"")),
        ("l[2].id", json!("c"), two.replace("},\n  ]", "},\n    {\n      \"id\": \"c\"\n    },\n  ]")),
        ("m[0]", json!(1), two.replace("  ],\n", "  ],\n  \"m\": [1],\n")),
    ];
    for (path, value, expected) in set {
        assert_eq!(json::set_at(two, &steps(path), &value).unwrap(), expected, "{path}");
        assert_eq!(json::set_at(&expected, &steps(path), &value).unwrap(), expected, "a second edit changes nothing");
    }
    let removed = [
        ("l[1].t.deny[0]", two.replace("'x', ", " ")),
        ("l[1].t.deny[1]", two.replace(", 'y'", "")),
        ("l[0]", two.replace("    { id: 'a' }, // first\n", "    // first\n")),
        ("l[7]", two.to_owned()),
        ("l.x", two.to_owned()),
    ];
    for (path, expected) in removed {
        assert_eq!(json::remove_at(two, &steps(path)).unwrap(), expected, "{path}");
    }
    for path in ["l[3]", "l.x", "l[0].id.x", "m[1]", "[0]"] {
        assert!(json::set_at(two, &steps(path), &json!(1)).is_err(), "{path}");
    }
}

/// White space and comments that may be between two tokens. The comments contain `c1`, `c2` or `c3`.
fn trivia() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", " ", "\n", "\n  ", " // c1 {,\"\n", "/* c2 ,} */", "\r\n\t", "/* c3\n */ "])
}

/// Random valid JSON5 objects with unusual layout and comments.
fn documents() -> impl Strategy<Value = String> {
    let leaf =
        select(vec!["1", "\"a\"", "'//b'", "null", "true", "[]", "{}", "[1, /* c4 */ 2,]"]).prop_map(str::to_owned);
    let object = |inner: BoxedStrategy<String>| {
        let key = select(vec!["a", "b", "\"c d\"", "'e'", "new"]);
        let member = (trivia(), key, trivia(), trivia(), inner, trivia());
        (prop::collection::vec(member, 0..4), any::<bool>(), trivia()).prop_map(|(members, comma, end)| {
            let count = members.len();
            let members = members.into_iter().enumerate().map(|(at, (t1, key, t2, t3, value, t4))| {
                let comma = if at + 1 < count || comma { "," } else { "" };
                format!("{t1}{key}{t2}:{t3}{value}{t4}{comma}")
            });
            format!("{{{}{end}}}", members.collect::<String>())
        })
    };
    let inner = leaf.prop_recursive(3, 12, 4, move |inner| object(inner.boxed()));
    (trivia(), object(inner.boxed()), trivia()).prop_map(|(before, object, after)| format!("{before}{object}{after}"))
}

/// Returns whether all characters of `part` are in `whole`, in this order but not necessarily adjacent.
fn is_subsequence(part: &str, whole: &str) -> bool {
    let mut whole = whole.chars();
    part.chars().all(|wanted| whole.any(|found| found == wanted))
}

/// Returns the number of comments from `documents` in a text.
fn count_comments(text: &str) -> usize {
    ["c1", "c2", "c3", "c4"].iter().map(|comment| text.matches(comment).count()).sum()
}

proptest! {
    #[test]
    fn adding_an_entry_leaves_every_other_byte(text in documents(), deep in any::<bool>()) {
        let before = parse(&text).unwrap().to_json();
        let path: &[&str] = if deep { &["a", "x y", "z"] } else { &["x y"] };
        match json::set(&text, path, &entry()) {
            Ok(after) => {
                let mut wanted = before;
                let below = path.iter().try_fold(&mut wanted, |value, key| {
                    if value.is_null() { *value = json!({}) }
                    value.as_object_mut().map(|map| map.entry(*key).or_insert(Value::Null))
                });
                *below.unwrap() = entry();
                prop_assert_eq!(parse(&after).unwrap().to_json(), wanted);
                // Every character stays, except those of a `null` that becomes an object.
                prop_assert!(is_subsequence(&text, &after) || text.contains("null"), "{}\n{}", text, after);
                prop_assert_eq!(count_comments(&text), count_comments(&after));
            }
            Err(_) => prop_assert!(deep && !before["a"].is_object() && !before["a"].is_null()),
        }
    }

    #[test]
    fn removing_an_entry_leaves_every_comment_outside_it(text in documents()) {
        let tree = parse(&text).unwrap();
        let within: usize = tree.members().iter().filter(|member| member.key == "a")
            .map(|one| count_comments(&text[one.key_span.start..one.value.span.end])).sum();
        let after = json::remove(&text, &["a"]).unwrap();
        let mut wanted = tree.to_json();
        wanted.as_object_mut().unwrap().shift_remove("a");
        prop_assert_eq!(parse(&after).unwrap().to_json(), wanted, "{}\n{}", text, after);
        prop_assert!(is_subsequence(&after, &text));
        prop_assert_eq!(count_comments(&text) - within, count_comments(&after), "{}\n{}", text, after);
    }

    #[test]
    fn an_added_entry_can_be_removed(text in documents()) {
        let after = json::remove(&json::set(&text, &["x y"], &entry()).unwrap(), &["x y"]).unwrap();
        prop_assert_eq!(parse(&after).unwrap().to_json(), parse(&text).unwrap().to_json());
        prop_assert_eq!(count_comments(&text), count_comments(&after));
    }
}

#[test]
fn a_file_is_replaced_through_its_link_with_its_mode_and_only_if_unchanged() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (real, link, kept) =
        (folder.path().join("real.json"), folder.path().join("link.json"), folder.path().join("kept"));
    std::fs::write(&real, "{\"a\": 1}").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&real, &link).unwrap();
    let mut change = Change::open(&link).unwrap();
    change.set(&["b"], &json!(2)).unwrap();
    let written = change.write(Some(&kept)).unwrap();
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "{\"a\": 1, \"b\": 2}");
    assert!(link.is_symlink());
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_to_string(written.backup.unwrap()).unwrap(), "{\"a\": 1}");
    let again = change.write(Some(&kept)).unwrap_err().to_string();
    assert!(again.ends_with("was changed by another program in the meantime; try again"), "{again}");
    assert!(Change::open(&link).unwrap().write(None).is_err(), "an existing file is not replaced without a backup");
}

/// A configuration file of Codex with a server and comments.
const CODEX: &str = "\
# mine
model = \"gpt-5\" # the good one

# docs, for searching
[mcp_servers.docs]
command = \"docs\"
# inside
args = [
  \"[mcp_servers.other]\",
]

[mcp_servers.docs.env]
KEY = \"hunter2\"

# after
[profiles.fast]
model = \"small\" # end
";

#[test]
fn toml_edits_keep_all_other_text() {
    let path = ["mcp_servers", "cellmate"];
    let added = toml::set(CODEX, &path, &entry()).unwrap();
    assert!(is_subsequence(CODEX, &added), "{added}");
    assert!(added.contains("[mcp_servers.cellmate]\ncommand = \"x\"\nargs = [\"mcp\"]\n"), "{added}");
    assert_eq!(toml::set(&added, &path, &entry()).unwrap(), added);
    let changed = toml::set(&added, &path, &json!({"command": "y"})).unwrap();
    assert!(
        changed.contains("[mcp_servers.cellmate]\ncommand = \"y\"\n") && !changed.contains("args = [\"mcp\"]"),
        "{changed}"
    );
    let back = toml::remove(&added, &path).unwrap();
    assert_eq!(back.split_whitespace().collect::<Vec<_>>(), CODEX.split_whitespace().collect::<Vec<_>>());
    let removed = toml::remove(CODEX, &["mcp_servers", "docs"]).unwrap();
    assert_eq!(
        removed,
        "# mine\nmodel = \"gpt-5\" # the good one\n\n# docs, for searching\n# after\n[profiles.fast]\nmodel = \"small\" # end\n"
    );
    assert_eq!(toml::remove(&removed, &["mcp_servers", "docs"]).unwrap(), removed);
    let inline = "mcp_servers = { a = { command = \"1\" } } # note\n";
    let added = toml::set(inline, &path, &entry()).unwrap();
    assert_eq!(
        added,
        "mcp_servers = { a = { command = \"1\" } , cellmate = { command = \"x\", args = [\"mcp\"] } } # note\n"
    );
    assert!(toml::remove(&added, &["mcp_servers", "a"]).unwrap().contains("# note"));
    assert_eq!(toml::set("", &path, &json!({"command": "y"})).unwrap(), "[mcp_servers.cellmate]\ncommand = \"y\"\n");
    assert!(toml::set("mcp_servers = 1", &path, &entry()).is_err());
}

#[test]
fn masked_text_has_no_secrets_and_no_comments() {
    let shown = mask::masked(CODEX, Format::Toml);
    assert_eq!(
        shown,
        CODEX
            .replace("hunter2", "…")
            .replace("gpt-5", "…")
            .replace("small", "…")
            .replace("# mine", "# …")
            .replace("# the good one", "# …")
            .replace("# docs, for searching", "# …")
            .replace("# inside", "# …")
            .replace("# after", "# …")
            .replace("# end", "# …")
    );
    let text = r#"{
  "history": ["hunter2", 2], // hunter2
  "oauth": {"token": "hunter2"}, /* hunter2 */
  "mcpServers": {
    "a": {"type": "stdio", "command": "npx", "args": ["-y", "--key", "hunter2"], "env": {"K": "hunter2", "L": "${L}"}},
    "b": {"url": "https://hunter2@x.y/mcp?k=hunter2", "headers": {"A": "hunter2"}, "timeout": 5, "oauth": {"clientSecret": "hunter2"}},
    "c": {"url": "https://x.y/mcp", "enabled_tools": ["t"], "unknown": ["hunter2"]}
  }
}"#;
    let expected = r#"{
  "history": ["…", "…"], /* … */
  "oauth": {"token": "…"}, /* … */
  "mcpServers": {
    "a": {"type": "stdio", "command": "npx", "args": ["-y", "--key", "…"], "env": {"K": "…", "L": "${L}"}},
    "b": {"url": "https://x.y/mcp?…", "headers": {"A": "…"}, "timeout": 5, "oauth": {"clientSecret": "…"}},
    "c": {"url": "https://x.y/mcp", "enabled_tools": ["t"], "unknown": ["…"]}
  }
}"#;
    assert_eq!(mask::masked(text, Format::of(Path::new("x.json"))), expected);
    let providers = r#"{"models": {"providers": {"p": {"baseUrl": "https://hunter2@x.y/v1", "api": "openai-responses",
        "apiKey": "hunter2", "headers": {"X-Team": "hunter2"}, "models": [{"id": "m"}]}}}}"#;
    let expected = providers.replace("hunter2@", "").replace("hunter2", "…");
    assert_eq!(mask::masked(providers, Format::of(Path::new("x.json"))), expected);
}

#[test]
fn a_server_is_switched_with_the_key_that_its_entry_has() {
    use super::Switch::{Off, On};
    let cases = [
        ("{mcpServers: {s: {command: 'x'}}}", Off, "{mcpServers: {s: {command: 'x', \"enabled\": false}}}"),
        ("{mcpServers: {s: {command: 'x'}}}", On, "{mcpServers: {s: {command: 'x'}}}"),
        ("{servers: {s: {enabled: false /* why */}}}", On, "{servers: {s: {enabled: true /* why */}}}"),
        ("{mcpServers: {s: {url: 'x', disabled: false}}}", Off, "{mcpServers: {s: {url: 'x', disabled: true}}}"),
        (
            "{mcpServers: {s: {command: 'x', enabled: true, disabled: true}}}",
            On,
            "{mcpServers: {s: {command: 'x', enabled: true, disabled: false}}}",
        ),
    ];
    for (before, switch, after) in cases {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json5");
        std::fs::write(&file, before).unwrap();
        let mut change = Change::open(&file).unwrap();
        assert!(change.switch_server("s", switch).unwrap());
        assert_eq!(change.after(), after, "{before}");
        assert!(!change.switch_server("other", switch).unwrap());
    }
}
