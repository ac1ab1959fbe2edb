//! What a server last listed, shown without starting it.

use std::path::PathBuf;
use std::sync::Arc;

use executor::{Outcome, ToolSource};
use mcp::{ServerState, Upstream, UpstreamOptions};
use serde_json::{Value, json};

use crate::fake::{Folder, limits, tool};
use crate::kept::{Kept, eventually, heard, options, scripted};

fn script(names: &[&str]) -> Value {
    let tools: Vec<Value> = names.iter().map(|name| tool(name, json!([{"result": {}}]))).collect();
    json!({"tools": tools, "resources": []})
}

fn names(upstream: &Upstream) -> Vec<String> {
    upstream.tools().iter().map(|tool| tool.id.name().to_owned()).collect()
}

/// A server whose list is remembered in its folder, as a program that starts anew has it.
fn anew(folder: &Folder, script: Value) -> Arc<Upstream> {
    let options = UpstreamOptions { cache_dir: Some(folder.0.join("catalogs")), ..options() };
    Upstream::new(scripted(folder, "s", script, limits()), options)
}

fn files(folder: &Folder) -> usize {
    std::fs::read_dir(folder.0.join("catalogs")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_list_is_shown_from_memory_and_replaced_by_a_fresh_one() {
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
    assert_eq!((status.state, status.remembered, status.tools), (ServerState::Stopped, true, 3));
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
async fn nothing_is_told_where_a_list_is_what_was_remembered() {
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

/// The file in which the list of one tool, `a`, was left by a program that is gone.
async fn remembered(folder: &Folder) -> PathBuf {
    let first = anew(folder, script(&["a"]));
    first.listed().await.unwrap();
    eventually("it is remembered", || files(folder) == 1).await;
    first.retire().await;
    std::fs::read_dir(folder.0.join("catalogs")).unwrap().next().unwrap().unwrap().path()
}

#[tokio::test]
async fn a_list_of_another_version_is_forgotten_and_no_trouble() {
    let folder = Folder::new();
    let path = remembered(&folder).await;
    let older = std::fs::read_to_string(&path).unwrap().replace("\"version\":2", "\"version\":1");
    std::fs::write(&path, &older).unwrap();
    let second = anew(&folder, script(&["a"]));
    assert_eq!((second.tools().len(), second.status().trouble), (0, None));
    second.listed().await.unwrap();
    eventually("it is replaced", || std::fs::read_to_string(&path).unwrap() != older).await;
}

#[tokio::test]
async fn why_a_server_failed_is_known_to_the_next_program_until_it_works() {
    let folder = Folder::new();
    let broken = json!({"start": [{"stderr": "secret words"}, {"exit": 3}]});
    let first = anew(&folder, broken);
    first.listed().await.unwrap_err();
    eventually("it is remembered", || files(&folder) == 1).await;
    let trouble = anew(&folder, script(&["a"])).status().trouble.unwrap();
    assert_eq!(trouble.message, "the server exited or closed its output; check its standard error");
    assert_eq!((trouble.stderr.as_str(), trouble.at > 0), ("", true));
    let second = anew(&folder, script(&["a"]));
    second.refresh().await.unwrap();
    eventually("only its list is left", || {
        let files = std::fs::read_dir(folder.0.join("catalogs")).unwrap().flatten();
        let names: Vec<_> = files.map(|file| file.path().extension().unwrap().to_owned()).collect();
        names == ["json"]
    })
    .await;
    assert_eq!(anew(&folder, script(&["a"])).status().trouble, None);
}

#[tokio::test]
async fn a_tool_that_is_gone_since_says_so() {
    let kept = Kept::with(script(&["a"]), options()).await;
    kept.upstream.listed().await.unwrap();
    let executor = kept.executor(&[]);
    kept.upstream.stop().await;
    kept.rewrite(script(&["b"]));
    match kept.call_by(&executor, "a").await.end {
        executor::CallEnd::Settled(Outcome::Failed(message)) => {
            assert_eq!(message, "`a` of MCP server `s` failed: the server does not offer it");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_told_of_and_replaced() {
    let folder = Folder::new();
    let path = remembered(&folder).await;
    std::fs::write(&path, "{}").unwrap();
    let second = anew(&folder, script(&["a"]));
    let trouble = second.status().trouble.unwrap().message;
    assert_eq!(trouble, "the cached tool list is invalid or was written for another server");
    second.listed().await.unwrap();
    assert_eq!(names(&second), ["a", "resources_list", "resources_read"]);
    eventually("it is replaced", || std::fs::read_to_string(&path).unwrap() != "{}").await;
}
