//! The cached tool list of a server, shown without starting the server.

use std::path::PathBuf;
use std::sync::Arc;

use executor::{Outcome, ToolSource};
use mcp::{ServerState, Upstream, UpstreamOptions};
use serde_json::{Value, json};

use crate::fake::{Folder, limits, tool};
use crate::kept::{TestUpstream, eventually, options, received, scripted};

fn script(names: &[&str]) -> Value {
    let tools: Vec<Value> = names.iter().map(|name| tool(name, json!([{"result": {}}]))).collect();
    json!({"tools": tools, "resources": []})
}

fn names(upstream: &Upstream) -> Vec<String> {
    upstream.tools().iter().map(|tool| tool.id.name().to_owned()).collect()
}

/// Creates an upstream that caches its list in the folder, as a newly started process does.
fn new_process(folder: &Folder, script: Value) -> Arc<Upstream> {
    let options = UpstreamOptions { cache_dir: Some(folder.0.join("catalogs")), ..options() };
    Upstream::new(scripted(folder, "s", script, limits()), options)
}

fn files(folder: &Folder) -> usize {
    std::fs::read_dir(folder.0.join("catalogs")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_cached_list_is_shown_and_replaced_by_a_fresh_one() {
    let folder = Folder::new();
    let first = new_process(&folder, script(&["a"]));
    assert!(first.tools().is_empty());
    first.listed().await.unwrap();
    assert_eq!(names(&first), ["a", "resources_list", "resources_read"]);
    eventually("the list is cached", || files(&folder) == 1).await;
    first.retire().await;

    let second = new_process(&folder, script(&["a", "b"]));
    assert_eq!(second.tools(), first.tools());
    second.listed().await.unwrap();
    let status = second.status();
    assert_eq!((status.state, status.remembered, status.tools), (ServerState::Stopped, true, 3));
    assert_eq!(received(&folder, "s", "initialize"), 1, "showing a cached list must not start the server");
    let mut changes = second.changes();
    second.refresh().await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(names(&second), ["a", "b", "resources_list", "resources_read"]);
    assert!(!second.status().remembered);
    let path = std::fs::read_dir(folder.0.join("catalogs")).unwrap().next().unwrap().unwrap().path();
    eventually("the new list is cached", || std::fs::read_to_string(&path).unwrap().contains("\"name\":\"b\"")).await;
    eventually("no temporary file is left", || files(&folder) == 1).await;
}

#[tokio::test]
async fn no_change_is_announced_if_the_list_equals_the_cached_one() {
    let folder = Folder::new();
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}},
        "serverInfo": {"name": "fake", "version": "1"}, "instructions": "Keeps \u{1b}notes.",
    });
    let mut script = script(&["a", "b"]);
    script["on"] = json!({"initialize": [{"result": hello}]});
    script["tools"][0]["title"] = json!("The first");
    script["tools"][0]["annotations"] = json!({"readOnlyHint": true});
    script["tools"][1]["outputSchema"] = json!({"type": "object"});
    let first = new_process(&folder, script.clone());
    first.listed().await.unwrap();
    eventually("the list is cached", || files(&folder) == 1).await;
    first.retire().await;
    let second = new_process(&folder, script);
    assert_eq!(second.tools()[0].about_owner.as_deref(), Some("Keeps  notes."));
    let changes = second.changes();
    second.refresh().await.unwrap();
    assert!(!second.status().remembered);
    assert!(!changes.has_changed().unwrap());
}

/// Leaves a cached list with one tool, `a`, as a previous process would; returns the path of its file.
async fn cached_list(folder: &Folder) -> PathBuf {
    let first = new_process(folder, script(&["a"]));
    first.listed().await.unwrap();
    eventually("the list is cached", || files(folder) == 1).await;
    first.retire().await;
    std::fs::read_dir(folder.0.join("catalogs")).unwrap().next().unwrap().unwrap().path()
}

#[tokio::test]
async fn a_cached_list_of_another_version_is_discarded_without_an_error() {
    let folder = Folder::new();
    let path = cached_list(&folder).await;
    let older = std::fs::read_to_string(&path).unwrap().replace("\"version\":2", "\"version\":1");
    std::fs::write(&path, &older).unwrap();
    let second = new_process(&folder, script(&["a"]));
    assert_eq!((second.tools().len(), second.status().trouble), (0, None));
    second.listed().await.unwrap();
    eventually("the file is replaced", || std::fs::read_to_string(&path).unwrap() != older).await;
}

#[tokio::test]
async fn the_last_failure_is_known_to_the_next_process_until_the_server_works() {
    let folder = Folder::new();
    let broken = json!({"start": [{"stderr": "secret words"}, {"exit": 3}]});
    let first = new_process(&folder, broken);
    first.listed().await.unwrap_err();
    eventually("the failure is stored", || files(&folder) == 1).await;
    let trouble = new_process(&folder, script(&["a"])).status().trouble.unwrap();
    assert_eq!(trouble.message, "it ended or closed its output; see what it wrote to its standard error");
    assert_eq!((trouble.stderr.as_str(), trouble.at > 0), ("", true));
    let second = new_process(&folder, script(&["a"]));
    second.refresh().await.unwrap();
    eventually("only the cached list is left", || {
        let files = std::fs::read_dir(folder.0.join("catalogs")).unwrap().flatten();
        let names: Vec<_> = files.map(|file| file.path().extension().unwrap().to_owned()).collect();
        names == ["json"]
    })
    .await;
    assert_eq!(new_process(&folder, script(&["a"])).status().trouble, None);
}

#[tokio::test]
async fn calling_a_removed_tool_fails_with_a_reason() {
    let test = TestUpstream::with(script(&["a"]), options()).await;
    test.upstream.listed().await.unwrap();
    let executor = test.executor(&[]);
    test.upstream.stop().await;
    test.rewrite(script(&["b"]));
    match test.call_by(&executor, "a").await.end {
        executor::CallEnd::Settled(Outcome::Failed(message)) => {
            assert_eq!(message, "`a` of MCP server `s` failed: the server does not offer it");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_unusable_cache_file_is_reported_and_replaced() {
    let folder = Folder::new();
    let path = cached_list(&folder).await;
    std::fs::write(&path, "{}").unwrap();
    let second = new_process(&folder, script(&["a"]));
    let trouble = second.status().trouble.unwrap().message;
    assert_eq!(trouble, "the remembered list of its tools is not one that we wrote for it");
    second.listed().await.unwrap();
    assert_eq!(names(&second), ["a", "resources_list", "resources_read"]);
    eventually("the file is replaced", || std::fs::read_to_string(&path).unwrap() != "{}").await;
}
