//! `edit` and `apply_patch`: all or nothing, and no change of another program is lost.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::json;

use crate::files::{World, text};

fn patch(sections: &str) -> serde_json::Value {
    json!({"input": format!("*** Begin Patch\n{sections}\n*** End Patch")})
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_replaces_texts_and_returns_the_difference() {
    let world = World::new().await;
    world.put("a.txt", "one\r\ntwo\r\nthree\r\n");
    std::fs::set_permissions(world.path("a.txt"), PermissionsExt::from_mode(0o640)).unwrap();
    let edits = json!([{"oldText": "one", "newText": "1"}, {"oldText": "three\n", "newText": "3\n4\n"}]);
    let done = world.ok("edit", json!({"path": "a.txt", "edits": edits})).await;
    assert_eq!((&done["replacements"], &done["firstChangedLine"]), (&json!(2), &json!(1)));
    assert_eq!(done["diff"], "@@ -1,1 +1,1 @@\n-one\n+1\n@@ -3,1 +3,2 @@\n-three\n+3\n+4\n");
    assert_eq!(world.content("a.txt"), "1\r\ntwo\r\n3\r\n4\r\n");
    assert_eq!(std::fs::metadata(world.path("a.txt")).unwrap().mode() & 0o777, 0o640);
    let single = world.call("edit", json!({"path": "a.txt", "oldText": "two", "newText": "2"})).await.unwrap();
    assert_eq!(text(&single), "`a.txt` was changed: 1 replacement");
    for (input, reason) in [
        (json!({"path": "a.txt", "oldText": "zzz", "newText": ""}), "is not in `a.txt`"),
        (json!({"path": "a.txt", "edits": []}), "edits"),
        (json!({"path": "a.txt"}), "`oldText` is missing"),
        (json!({"path": "a.txt", "oldText": "", "newText": "x"}), "`oldText` is empty"),
        (json!({"path": "none", "oldText": "a", "newText": "x"}), "does not exist"),
    ] {
        let message = world.err("edit", input.clone()).await;
        assert!(message.contains(reason), "{input}: {message}");
    }
    world.put("program", b"\0\0one");
    assert!(world.err("edit", json!({"path": "program", "oldText": "one", "newText": "x"})).await.contains("binary"));
    assert_eq!(world.names(), ["a.txt", "program"], "no temporary file is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_adds_changes_moves_and_deletes_files() {
    let world = World::new().await;
    world.put("change.txt", "a\nb\nc\n");
    world.put("run.sh", "old\n");
    world.put("gone.txt", "x\n");
    std::fs::set_permissions(world.path("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    let done = world
        .call(
            "apply_patch",
            patch(
                "*** Add File: new/deep.txt\n+hello\n*** Update File: change.txt\n@@\n a\n-b\n+B\n*** Update File: run.sh\n\
                 *** Move to: bin/run.sh\n@@\n-old\n+new\n*** Delete File: gone.txt",
            ),
        )
        .await
        .unwrap();
    let details = done.details.clone().unwrap();
    let summary = json!({"added": ["new/deep.txt"], "modified": ["change.txt", "bin/run.sh"], "deleted": ["gone.txt"]});
    assert_eq!(details["summary"], summary);
    assert_eq!(details["moved"], json!([{"from": "run.sh", "to": "bin/run.sh"}]));
    assert_eq!(text(&done), "Done.\nA new/deep.txt\nM change.txt\nM bin/run.sh\nD gone.txt");
    assert_eq!(world.names(), ["bin", "bin/run.sh", "change.txt", "new", "new/deep.txt"]);
    assert_eq!(
        (world.content("change.txt"), world.content("bin/run.sh")),
        ("a\nB\nc\n".to_owned(), "new\n".to_owned())
    );
    assert_eq!(std::fs::metadata(world.path("bin/run.sh")).unwrap().mode() & 0o777, 0o755);
    // Sections see what earlier ones did.
    let again = "*** Delete File: change.txt\n*** Add File: change.txt\n+fresh\n*** Update File: change.txt\n@@\n-fresh\n+fresher";
    world.ok("apply_patch", patch(again)).await;
    assert_eq!(world.content("change.txt"), "fresher\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_patch_moves_more_than_once_is_reported_by_where_it_ends() {
    let step = |from: &str, to: &str| format!("*** Update File: {from}\n*** Move to: {to}\n@@\n-x\n+x\n");
    let summary = |modified: &[&str], deleted: &[&str]| json!({"added": [], "modified": modified, "deleted": deleted});
    for (name, sections, expected, moved, mode) in [
        (
            "twice",
            step("a", "b") + &step("b", "c"),
            summary(&["c"], &[]),
            json!([{"from": "a", "to": "c"}]),
            Some(("c", 0o750)),
        ),
        ("and deleted", step("a", "b") + "*** Delete File: b\n", summary(&[], &["a"]), json!([]), None),
        ("and back", step("a", "b") + &step("b", "a"), summary(&[], &[]), json!([]), Some(("a", 0o750))),
        (
            "over a deleted file",
            "*** Delete File: old\n".to_owned() + &step("a", "old"),
            summary(&["old"], &[]),
            json!([{"from": "a", "to": "old"}]),
            Some(("old", 0o750)),
        ),
    ] {
        let world = World::new().await;
        world.put("a", "x\n");
        world.put("old", "x\n");
        std::fs::set_permissions(world.path("a"), PermissionsExt::from_mode(0o750)).unwrap();
        let details = world.call("apply_patch", patch(sections.trim_end())).await.unwrap().details.unwrap();
        assert_eq!(details, json!({"summary": expected, "moved": moved}), "{name}");
        if let Some((path, mode)) = mode {
            assert_eq!(std::fs::metadata(world.path(path)).unwrap().mode() & 0o777, mode, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_of_which_any_part_fails_changes_nothing() {
    let world = World::new().await;
    world.put("one", "1\n");
    world.put("two", "2\n");
    world.put("folder/x", "");
    let before = world.names();
    let good = "*** Update File: one\n@@\n-1\n+changed\n*** Add File: made/new\n+x\n*** Delete File: folder/x\n";
    for (bad, reason) in [
        ("*** Update File: two\n@@\n-3\n+x", "are not together in `two`"),
        ("*** Update File: three\n@@\n-3\n+x", "does not exist"),
        ("*** Add File: two\n+x", "`two` exists"),
        ("*** Add File: folder\n+x", "folder"),
        ("*** Add File: one/x\n+x", "not a folder"),
        ("*** Update File: two\n*** Move to: one\n@@\n-2\n+x", "`one` exists"),
        ("*** Delete File: none", "does not exist"),
        ("*** Delete File: folder/x", "deleted or moved earlier"),
        ("*** Add File: ../outside/x\n+x", "outside the folders"),
        ("*** Add File: ../docs/x\n+x", "not changed"),
        ("nonsense", "a section begins"),
    ] {
        let message = world.err("apply_patch", patch(&format!("{good}{bad}"))).await;
        assert!(message.contains(reason), "{bad}: {message}");
        assert_eq!(world.names(), before, "{bad}");
        assert_eq!((world.content("one"), world.content("two")), ("1\n".to_owned(), "2\n".to_owned()), "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_the_system_refuses_at_the_last_file_is_undone() {
    let world = World::new().await;
    world.put("one", "1\n");
    world.put("two", "2\n");
    // The same file under two names: the second change finds that the file is not what was read.
    std::os::unix::fs::symlink(".", world.path("same")).unwrap();
    let sections = "*** Update File: two\n@@\n-2\n+two\n*** Add File: new/file\n+x\n*** Update File: one\n@@\n-1\n+first\n\
                    *** Update File: same/one\n@@\n-1\n+second";
    let message = world.err("apply_patch", patch(sections)).await;
    assert!(message.contains("was changed by another program"), "{message}");
    assert_eq!((world.content("one"), world.content("two")), ("1\n".to_owned(), "2\n".to_owned()));
    assert_eq!(world.names(), ["one", "same", "two"], "new folders and temporary files are removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_edits_of_one_file_lose_nothing() {
    let world = Arc::new(World::new().await);
    let slots: String = (0..24).map(|number| format!("slot {number:02}: empty\n")).collect();
    world.put("board", &slots);
    let edit = |number: usize| {
        let world = Arc::clone(&world);
        async move {
            let (old, new) = (format!("slot {number:02}: empty"), format!("slot {number:02}: taken"));
            let mut attempts = 0;
            while let Err(message) = world.call("edit", json!({"path": "board", "oldText": old, "newText": new})).await
            {
                assert!(message.contains("changed by another program"), "{message}");
                attempts += 1;
                assert!(attempts < 500);
            }
        }
    };
    join_all((0..24).map(edit)).await;
    assert_eq!(world.content("board"), slots.replace("empty", "taken"), "every edit that succeeded is in the file");
    assert_eq!(world.names(), ["board"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_the_former_or_the_new_content_and_never_a_part() {
    let world = Arc::new(World::new().await);
    let contents: Vec<String> = (0..4).map(|number| number.to_string().repeat(300_000)).collect();
    world.put("file", &contents[0]);
    let done = Arc::new(AtomicBool::new(false));
    let (path, ended, known) = (world.path("file"), Arc::clone(&done), contents.clone());
    let reader = std::thread::spawn(move || {
        let mut reads = 0;
        while !ended.load(Ordering::Relaxed) {
            let seen = std::fs::read_to_string(&path).unwrap();
            assert!(known.contains(&seen), "{} bytes", seen.len());
            reads += 1;
        }
        reads
    });
    for round in 0..60 {
        world.ok("write", json!({"path": "file", "content": contents[round % 4]})).await;
    }
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
}
