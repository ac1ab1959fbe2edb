//! The cached tool list of a server, shown without starting it.

use std::path::PathBuf;
use std::sync::Arc;

use executor::{Outcome, ToolSource};
use mcp::{ServerState, Upstream, UpstreamOptions};
use serde_json::{Value, json};

use crate::fake::{Folder, limits, tool};
use crate::test_upstream::{ScriptedUpstream, eventually, heard, options, scripted};

fn script(names: &[&str]) -> Value {
    let tools: Vec<Value> = names.iter().map(|name| tool(name, json!([{"result": {}}]))).collect();
    json!({"tools": tools, "resources": []})
}

fn names(upstream: &Upstream) -> Vec<String> {
    upstream.tools().iter().map(|tool| tool.id.name().to_owned()).collect()
}

/// Creates a server with a cache in the folder, as a newly started program does.
fn anew(folder: &Folder, script: Value) -> Arc<Upstream> {
    let options = UpstreamOptions { cache_dir: Some(folder.0.join("catalogs")), ..options() };
    Upstream::new(scripted(folder, "s", script, limits()), options)
}

fn files(folder: &Folder) -> usize {
    std::fs::read_dir(folder.0.join("catalogs")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_cached_list_is_shown_and_replaced_by_a_fresh_one() {
    let folder = Folder::new();
    let first = anew(&folder, script(&["a"]));
    assert!(first.tools().is_empty());
    first.listed().await.unwrap();
    assert_eq!(names(&first), ["a", "resources_list", "resources_read"]);
    eventually("it is remembered", || files(&folder) == 1).await;
    first.retire().await;

    let second = anew(&folder, script(&["a", "b"]));
    assert_eq!(second.tools(), first.tools());
    second.listed().await.unwrap();
    let status = second.status();
    assert_eq!(
        (status.state, status.remembered, status.tools),
        (ServerState::Stopped, true, 1),
        "resources are not tools"
    );
    assert_eq!(heard(&folder, "s", "initialize"), 1, "showing a list starts nothing");
    let mut changes = second.changes();
    second.refresh().await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(names(&second), ["a", "b", "resources_list", "resources_read"]);
    assert!(!second.status().remembered);
    let path = std::fs::read_dir(folder.0.join("catalogs")).unwrap().next().unwrap().unwrap().path();
    eventually("it is remembered too", || std::fs::read_to_string(&path).unwrap().contains("\"name\":\"b\"")).await;
    eventually("nothing is half written", || files(&folder) == 1).await;
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
    let first = anew(&folder, script.clone());
    first.listed().await.unwrap();
    eventually("it is remembered", || files(&folder) == 1).await;
    first.retire().await;
    let second = anew(&folder, script);
    assert_eq!(second.tools()[0].about_owner.as_deref(), Some("Keeps  notes."));
    let changes = second.changes();
    second.refresh().await.unwrap();
    assert!(!second.status().remembered);
    assert!(!changes.has_changed().unwrap());
}

/// Creates a cache file with the list of one tool, `a`, as an earlier program left it.
async fn remembered(folder: &Folder) -> PathBuf {
    let first = anew(folder, script(&["a"]));
    first.listed().await.unwrap();
    eventually("it is remembered", || files(folder) == 1).await;
    first.retire().await;
    std::fs::read_dir(folder.0.join("catalogs")).unwrap().next().unwrap().unwrap().path()
}

#[tokio::test]
async fn a_cached_list_of_another_version_is_ignored_without_an_error() {
    let folder = Folder::new();
    let path = remembered(&folder).await;
    let older = std::fs::read_to_string(&path).unwrap().replace("\"version\":3", "\"version\":1");
    std::fs::write(&path, &older).unwrap();
    let second = anew(&folder, script(&["a"]));
    assert_eq!((second.tools().len(), second.status().last_failure), (0, None));
    second.listed().await.unwrap();
    eventually("it is replaced", || std::fs::read_to_string(&path).unwrap() != older).await;
}

#[tokio::test]
async fn the_last_failure_is_cached_until_the_server_works() {
    let folder = Folder::new();
    let broken = json!({"start": [{"stderr": "secret words"}, {"exit": 3}]});
    let first = anew(&folder, broken);
    first.listed().await.unwrap_err();
    eventually("it is remembered", || files(&folder) == 1).await;
    let trouble = anew(&folder, script(&["a"])).status().last_failure.unwrap();
    assert!(trouble.message.ends_with("` exited with code 3 before it was ready; check its standard error"));
    assert_eq!((trouble.stderr.as_str(), trouble.at > 0), ("", true));
    let second = anew(&folder, script(&["a"]));
    second.refresh().await.unwrap();
    eventually("only its list is left", || {
        let files = std::fs::read_dir(folder.0.join("catalogs")).unwrap().flatten();
        let names: Vec<_> = files.map(|file| file.path().extension().unwrap().to_owned()).collect();
        names == ["json"]
    })
    .await;
    assert_eq!(anew(&folder, script(&["a"])).status().last_failure, None);
}

#[tokio::test]
async fn a_call_of_a_tool_that_no_longer_exists_fails() {
    let harness = ScriptedUpstream::with(script(&["a"]), options()).await;
    harness.upstream.listed().await.unwrap();
    let executor = harness.executor(&[]);
    harness.upstream.stop().await;
    harness.rewrite(script(&["b"]));
    match harness.call_by(&executor, "a").await.end {
        executor::CallEnd::Settled(Outcome::Failed(message)) => {
            assert_eq!(message, "`a` of MCP server `s` failed: the server does not offer it");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_unusable_cache_file_is_reported_and_replaced() {
    let folder = Folder::new();
    let path = remembered(&folder).await;
    std::fs::write(&path, "{}").unwrap();
    let second = anew(&folder, script(&["a"]));
    let trouble = second.status().last_failure.unwrap().message;
    assert_eq!(trouble, "the cached tool list is invalid or was written for another server");
    second.listed().await.unwrap();
    assert_eq!(names(&second), ["a", "resources_list", "resources_read"]);
    eventually("it is replaced", || std::fs::read_to_string(&path).unwrap() != "{}").await;
}
