//! Which name resolves to which tool.

use std::time::{Duration, Instant};

use contract::limits::MAX_IDENTIFIER_BYTES;
use contract::tool::{Operation, ToolId, ToolSpec};
use serde_json::Value;

use super::{server_spellings, servers, tool_spellings};

fn tool(id: &str) -> ToolSpec {
    ToolSpec::new(ToolId::parse(id).unwrap(), "", Value::Null)
}

/// Returns every path of every server, and the tool it resolves to.
fn shown(mut tools: Vec<ToolSpec>) -> Vec<(String, String)> {
    tools.sort_by(|a, b| a.id.cmp(&b.id));
    let mut shown = Vec::new();
    for (identifier, server) in servers(&tools) {
        for path in server.paths() {
            let parts: Vec<&str> = path.split('.').collect();
            let position = server.find(&parts).unwrap();
            shown.push((format!("{identifier}.{path}"), tools[position].id.as_str().to_owned()));
        }
    }
    shown
}

#[test]
fn names_that_collide_are_numbered_in_the_order_of_ids() {
    let ids = ["mcp:a:x_2", "mcp:a:x-y", "mcp:a:x_y", "mcp:a:xY2", "mcp:a:xY", "mcp:A:then", "mcp:a:delete"];
    let expected = [
        ("a.delete2", "mcp:a:delete"),
        ("a.x2", "mcp:a:x_2"),
        ("a.xY", "mcp:a:xY"),
        ("a.xY2", "mcp:a:xY2"),
        ("a.xY3", "mcp:a:x-y"),
        ("a.xY4", "mcp:a:x_y"),
        ("a2.then2", "mcp:A:then"),
    ];
    let expected = expected.map(|(path, id)| (path.to_owned(), id.to_owned()));
    for turn in 0..ids.len() {
        let mut turned = ids;
        turned.rotate_left(turn);
        assert_eq!(shown(turned.iter().map(|id| tool(id)).collect()), expected, "{turned:?}");
    }
}

#[test]
fn a_server_called_index_does_not_take_the_place_of_the_list_of_servers() {
    let tools = vec![tool("mcp:Index:build"), tool("mcp:index:build")];
    assert_eq!(
        shown(tools.clone()).into_iter().map(|(path, _)| path).collect::<Vec<_>>(),
        ["index2.build", "index3.build"]
    );
    let servers = servers(&tools);
    let names =
        server_spellings(servers.iter().map(|(identifier, server)| (server.name.as_str(), identifier.as_str())));
    assert_eq!(names.own.get("index").map(String::as_str), Some("index3"), "{names:?}");
    let files = crate::declare::files(&tools, &servers, &Default::default());
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["mcp/index.d.ts", "mcp/index2.d.ts", "mcp/index3.d.ts", "cell.d.ts"]);
    assert!(files[0].text.contains("namespace index2 {}") && files[0].text.contains("namespace index3 {}"));
}

#[test]
fn a_name_can_be_spelt_as_its_server_spells_it() {
    let ids =
        ["mcp:my-files:read_text", "mcp:my-files:delete", "mcp:my-files:then", "mcp:my-files:a-b", "mcp:my-files:aB"];
    let mut tools: Vec<ToolSpec> = ids.iter().map(|id| tool(id)).collect();
    tools.sort_by(|a, b| a.id.cmp(&b.id));
    let servers = servers(&tools);
    let names = server_spellings([("my-files", "myFiles")].into_iter());
    assert_eq!(names.own.get("my-files").map(String::as_str), Some("myFiles"));
    assert_eq!(names.folded.get("myfiles").map(String::as_str), Some("myFiles"));

    let names = tool_spellings(&tools, &servers["myFiles"]);
    let own: Vec<(&str, &str)> = names.own.iter().map(|(name, method)| (name.as_str(), method.as_str())).collect();
    // The tool `aB` keeps its name; `then` would make the server a promise.
    assert_eq!(own, [("a-b", "aB2"), ("delete", "delete2"), ("read_text", "readText")]);
    assert_eq!(names.folded.get("readtext").map(String::as_str), Some("readText"));
    assert_eq!(names.folded.get("ab"), None, "two tools are spelt like it");
}

#[test]
fn long_names_are_cut_and_stay_unique() {
    let long = "x".repeat(MAX_IDENTIFIER_BYTES);
    let ids = ["", "a", "b", "c_d"].map(|end| format!("mcp:{long}{end}:{long}{end}"));
    let servers: Vec<String> =
        shown(ids.iter().map(|id| tool(id)).collect()).into_iter().map(|(path, _)| path).collect();
    let stem = "x".repeat(MAX_IDENTIFIER_BYTES - 8);
    let expected = [format!("{stem}2"), format!("{stem}3"), format!("{stem}4"), long.clone()];
    assert_eq!(servers, expected.map(|server| format!("{server}.{long}")));
}

#[test]
fn many_colliding_names_take_linear_time() {
    // None of these letters is valid in an identifier.
    let letters = || '\u{4e00}'..'\u{9c20}';
    let alike = letters().map(|letter| format!("mcp:s:a{letter}"));
    // Pairs that collide when shortened, all with the same stem.
    let long = "x".repeat(MAX_IDENTIFIER_BYTES - 5);
    let pairs = (0..20_000).map(|number| format!("mcp:s:{long}{:05}y{number}", number / 2));
    let cases = [
        ("alike", alike.collect::<Vec<_>>(), "s.a20000".to_owned()),
        ("pairs", pairs.collect(), format!("s.{}10001", &long[..56])),
    ];
    for (name, ids, last) in cases {
        let started = Instant::now();
        let methods = shown(ids.iter().map(|id| tool(id)).collect());
        assert!(methods.iter().any(|(path, _)| *path == last), "{name}");
        assert!(methods.iter().all(|(path, _)| path.len() <= "s.".len() + MAX_IDENTIFIER_BYTES), "{name}");
        assert_eq!(methods.len(), 20_000, "{name}");
        assert!(started.elapsed() < Duration::from_secs(5), "{name}: {:?}", started.elapsed());
    }
}

#[test]
fn resources_and_prompts_coexist_with_tools_of_the_same_names() {
    let operation = |operation: Operation| {
        let mut spec = tool(&format!("mcp:docs:{}", operation.as_str()));
        spec.operation = operation;
        spec
    };
    let mut tools: Vec<ToolSpec> =
        Operation::ALL.into_iter().filter(|kind| *kind != Operation::Tool).map(operation).collect();
    tools.extend([tool("mcp:docs:resources"), tool("mcp:docs:prompts"), tool("mcp:docs:list")]);
    let expected = [
        ("docs.list", "mcp:docs:list"),
        ("docs.prompts2", "mcp:docs:prompts"),
        ("docs.resources2", "mcp:docs:resources"),
        ("docs.prompts.get", "mcp:docs:prompts_get"),
        ("docs.prompts.list", "mcp:docs:prompts_list"),
        ("docs.resources.list", "mcp:docs:resources_list"),
        ("docs.resources.read", "mcp:docs:resources_read"),
    ];
    assert_eq!(shown(tools), expected.map(|(path, id)| (path.to_owned(), id.to_owned())));
}
