//! `find` and `grep`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::files::{BOTH, World, text};

fn tree(world: &World) {
    for (name, content) in [
        ("src/main.rs", "fn main() {\n    let needle = 1;\n}\n"),
        ("src/lib.rs", "// nothing\n"),
        ("src/deep/more.rs", "NEEDLE\r\n"),
        ("notes.md", "a needle in notes\n"),
        (".hidden/file.rs", "needle\n"),
        ("target/out.rs", "needle\n"),
        ("build/keep.rs", "needle\n"),
        ("build/drop.rs", "needle\n"),
        (".gitignore", "target/\nbuild/*\n!build/keep.rs\n"),
        (".git/config", "needle\n"),
        (".git/info/exclude", "excluded.rs\n"),
        ("excluded.rs", "needle\n"),
        ("program", "needle\n\0\0"),
    ] {
        world.put(name, content);
    }
}

fn paths(details: &Value) -> Vec<String> {
    details["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect()
}

fn places(details: &Value) -> Vec<String> {
    let matches = details["matches"].as_array().unwrap();
    matches.iter().map(|one| format!("{}:{}", one["path"].as_str().unwrap(), one["line"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn find_matches_names_or_paths_and_respects_ignore_files() {
    for resolver in BOTH {
        let world = World::with(resolver).await;
        tree(&world);
        for (input, expected) in [
            (
                json!({"pattern": "*.rs"}),
                vec![".hidden/file.rs", "build/keep.rs", "src/deep/more.rs", "src/lib.rs", "src/main.rs"],
            ),
            (json!({"pattern": "src/*.rs"}), vec!["src/lib.rs", "src/main.rs"]),
            (json!({"pattern": "**/deep/*"}), vec!["src/deep/more.rs"]),
            (json!({"pattern": "*.rs", "path": "src"}), vec!["src/deep/more.rs", "src/lib.rs", "src/main.rs"]),
            (json!({"pattern": "*.rs", "hidden": false, "path": "build"}), vec!["build/keep.rs"]),
            (json!({"pattern": "deep", "type": "directory"}), vec!["src/deep"]),
            (json!({"pattern": "out.rs", "includeIgnored": true}), vec!["target/out.rs"]),
            (json!({"pattern": "*.{md,txt}"}), vec!["notes.md"]),
            (json!({"pattern": "nothing"}), vec![]),
        ] {
            assert_eq!(paths(&world.ok("find", input.clone()).await), expected, "{resolver:?} {input}");
        }
        let some = world.call("find", json!({"pattern": "*.rs", "limit": 2})).await.unwrap();
        let details = some.details.clone().unwrap();
        assert_eq!(
            (paths(&details).len(), &details["truncated"], &details["reason"]),
            (2, &json!(true), &json!("limit"))
        );
        assert!(text(&some).contains("only 2 results are shown"), "{}", text(&some));
        for wrong in ["[", "", "a{"] {
            assert!(world.call("find", json!({"pattern": wrong})).await.is_err(), "{wrong}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grep_returns_matches_with_their_lines() {
    let world = World::new().await;
    tree(&world);
    let found = world.ok("grep", json!({"pattern": "needle"})).await;
    assert_eq!(places(&found), [".hidden/file.rs:1", "build/keep.rs:1", "notes.md:1", "src/main.rs:2"]);
    assert_eq!(found["matches"][3]["text"], "    let needle = 1;");
    for (input, expected) in [
        (json!({"pattern": "needle", "ignoreCase": true, "path": "src"}), vec!["src/deep/more.rs:1", "src/main.rs:2"]),
        (json!({"pattern": "needle", "glob": "*.md"}), vec!["notes.md:1"]),
        (json!({"pattern": "needle", "glob": "!*.rs"}), vec!["notes.md:1"]),
        (json!({"pattern": "needle", "glob": "src/**/*.rs"}), vec!["src/main.rs:2"]),
        (json!({"pattern": "needle", "path": "src/main.rs"}), vec!["src/main.rs:2"]),
        (json!({"pattern": "needle", "hidden": false, "glob": "*.rs"}), vec!["build/keep.rs:1", "src/main.rs:2"]),
        (json!({"pattern": "main()", "literal": true}), vec!["src/main.rs:1"]),
        (json!({"pattern": r"^\s+let \w+"}), vec!["src/main.rs:2"]),
        (json!({"pattern": "needle", "includeIgnored": true, "path": "target"}), vec!["target/out.rs:1"]),
        (json!({"pattern": "needle", "path": "target"}), vec![]),
    ] {
        assert_eq!(places(&world.ok("grep", input.clone()).await), expected, "{input}");
    }
    let around = world.call("grep", json!({"pattern": "needle", "path": "src", "context": 1})).await.unwrap();
    let one = around.details.clone().unwrap()["matches"][0].clone();
    assert_eq!((&one["before"], &one["after"]), (&json!(["fn main() {"]), &json!(["}"])));
    assert_eq!(text(&around), "src/main.rs-1- fn main() {\nsrc/main.rs:2:     let needle = 1;\nsrc/main.rs-3- }");
    let windows = world.ok("grep", json!({"pattern": "NEEDLE"})).await;
    assert_eq!(windows["matches"][0]["text"], "NEEDLE", "without the line break");
    for (wrong, reason) in [("(", "regular expression"), ("a\nb", "within one line"), ("", "pattern")] {
        let message = world.err("grep", json!({"pattern": wrong})).await;
        assert!(message.contains(reason), "{wrong}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_folders_around_the_start_apply() {
    let world = World::new().await;
    world.put(".gitignore", "*.log\n/app/tmp/\n");
    world.put("app/.ignore", "!keep.log\n");
    for name in ["app/a.log", "app/keep.log", "app/tmp/x", "app/sub/tmp/x"] {
        world.put(name, "needle");
    }
    let found = world.ok("find", json!({"pattern": "*", "path": "app"})).await;
    assert_eq!(paths(&found), ["app/.ignore", "app/keep.log", "app/sub/tmp/x"]);
    let below = world.ok("find", json!({"pattern": "*.log", "path": "app/sub"})).await;
    assert!(paths(&below).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_search_stops_soon() {
    let world = Arc::new(World::new().await);
    let line = format!("{}\n", "x".repeat(200));
    for number in 0..200 {
        world.put(&format!("d{}/f{number}", number % 10), line.repeat(20_000));
    }
    let busy = |pattern: &str| json!({"pattern": pattern, "limit": 10_000});
    // Slow on purpose: each line is looked at in many ways.
    let slow = r"(x?){40}(y|z){3}";
    let began = Instant::now();
    drop(tokio::time::timeout(Duration::from_millis(300), world.call("grep", busy(slow))).await);
    // All places are free again, so as many calls as there are places do not wait for the dropped ones.
    let again = (0..16).map(|_| world.call("ls", json!({})));
    for listed in futures_util::future::join_all(again).await {
        listed.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
