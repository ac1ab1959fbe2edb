//! `cellmate plugins new` and `test`: the template's hook, and its decisions on given calls.

use serde_json::{Value, json};

use crate::person::Person;

#[test]
fn the_hook_of_the_template_works_once_its_comment_signs_are_removed() {
    let person = Person::new();
    assert_eq!(person.run(&["plugins", "new", "hello"]).code, 0);
    let (main, manifest) = ("project/hello/main.py", "project/hello/cellmate.plugin.json");
    let template = person.read(main);
    let mut program = String::new();
    let mut is_hook = false;
    for line in template.lines() {
        is_hook = is_hook && line.trim_start().starts_with('#');
        is_hook |= line.contains("# def before_tool_call") || line.contains("# if method == \"hooks/");
        program += &if is_hook { line.replacen("# ", "", 1) } else { line.to_owned() };
        program += "\n";
    }
    assert_ne!(program, template);
    person.write(main, &program);
    // The template says what to add to the manifest.
    let hooks = template.lines().find_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix("\"hooks\": "));
    let mut described: Value = serde_json::from_str(&person.read(manifest)).unwrap();
    described["hooks"] = serde_json::from_str(hooks.unwrap()).unwrap();
    person.write(manifest, &described.to_string());

    let calls = [
        ("mcp:files:write_file", r#"{"path": "/etc/hosts"}"#),
        ("mcp:files:delete_file", r#"{"path": "notes"}"#),
        ("mcp:files:write_file", r#"{"path": "notes"}"#),
        ("mcp:other:write_file", r#"{"path": "/etc/hosts"}"#),
        ("greet", r#"{"name": "Ada"}"#),
    ];
    let mut arguments = vec!["plugins", "test", "./hello"];
    calls.iter().for_each(|(tool, input)| arguments.extend(["--call", tool, "--input", input]));
    let tested = person.run(&arguments);
    assert_eq!(tested.code, 0, "{}{}", tested.out, tested.err);
    let unseen = "does not see it: its `tools` do not match";
    for expected in [
        "before_tool_call  mcp:files:write_file: blocks: files in /etc stay as they are\n",
        "before_tool_call  mcp:files:delete_file: requires approval: it deletes a file\n",
        "before_tool_call  mcp:files:write_file: allows\n",
        "call        mcp:files:write_file: not called, because it is not the plugin's own\n",
        &format!("before_tool_call  mcp:other:write_file: {unseen}\n"),
        &format!("before_tool_call  greet: {unseen}\n"),
        "Hello, Ada!",
    ] {
        assert!(tested.out.contains(expected), "{expected}: {}", tested.out);
    }
    arguments.push("--json");
    let tested = person.run(&arguments).json();
    assert_eq!(
        tested["calls"][0],
        json!({
            "tool": "mcp:files:write_file",
            "ok": true,
            "hooks": [{
                "hook": "before_tool_call",
                "outcome": {"ok": true, "result": "blocks: files in /etc stay as they are"},
            }],
        })
    );
    assert_eq!(tested["calls"][4]["result"], json!({"greeting": "Hello, Ada!"}));
}
