//! The limits of the file tools.

use contract::limits::{
    GREP_LIMIT, MAX_EDITED_FILE_BYTES, MAX_EDITS, MAX_FILE_TEXT_BYTES, MAX_FILE_TEXT_LINES, MAX_GREP_LINE_CHARS,
    MAX_GREP_PATTERN_BYTES, MAX_IMAGE_BYTES, MAX_PATCH_FILES, MAX_READ_BYTES, MAX_WALK_RESULT_BYTES,
};
use serde_json::{Value, json};

use crate::files::{World, text};

#[tokio::test(flavor = "multi_thread")]
async fn read_returns_whole_lines_up_to_its_limit() {
    let world = World::new().await;
    let line = format!("{}\n", "x".repeat(999));
    let count = MAX_READ_BYTES / 1_000 + 500;
    world.put("long", line.repeat(count));
    let read = world.call("read", json!({"path": "long"})).await.unwrap();
    let details = read.details.clone().unwrap();
    let got = details["text"].as_str().unwrap();
    assert!(got.len() <= MAX_READ_BYTES && got.ends_with('\n') && got.len() > MAX_READ_BYTES - 1_000, "{}", got.len());
    assert_eq!((&details["truncated"], &details["totalLines"]), (&json!(true), &json!(count)));
    let next = details["nextOffset"].as_u64().unwrap();
    let rest = world.ok("read", json!({"path": "long", "offset": next})).await;
    assert_eq!((&rest["truncated"], &rest["endLine"]), (&json!(false), &json!(count)));
    assert_eq!(got.len() + rest["text"].as_str().unwrap().len(), 1_000 * count, "nothing is missing between them");
    assert!(text(&read).len() < MAX_FILE_TEXT_BYTES + 500, "{}", text(&read).len());
    assert!(text(&read).contains("continue with offset"), "the model sees how to continue");
    // Many short lines.
    world.put("lines", "\n".repeat(MAX_FILE_TEXT_LINES + 10));
    let many = world.call("read", json!({"path": "lines"})).await.unwrap();
    assert!(
        text(&many).contains(&format!("continue with offset {}", MAX_FILE_TEXT_LINES + 1)),
        "{}",
        text(&many).trim()
    );
    // One line that does not fit.
    world.put("line", "é".repeat(MAX_READ_BYTES));
    let one = world.call("read", json!({"path": "line"})).await.unwrap();
    let details = one.details.clone().unwrap();
    assert_eq!((details["text"].as_str().unwrap().len(), &details["truncated"]), (MAX_READ_BYTES, &json!(true)));
    assert!(details.get("lossy").is_none() && text(&one).contains("too long"));
}

#[tokio::test(flavor = "multi_thread")]
async fn images_and_edited_files_have_a_size_limit() {
    let world = World::new().await;
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(MAX_IMAGE_BYTES, 7);
    world.put("fits.png", &image);
    assert_eq!(world.call("read", json!({"path": "fits.png"})).await.unwrap().content.len(), 2);
    image.push(7);
    world.put("large.png", &image);
    let large = world.call("read", json!({"path": "large.png"})).await.unwrap();
    assert!(large.content.len() == 1 && text(&large).contains("not shown"));
    world.put("fits", format!("needle{}", "x".repeat(MAX_EDITED_FILE_BYTES - 6)));
    let edit = |new: &str| json!({"path": "fits", "oldText": "needle", "newText": new});
    assert!(world.err("edit", edit("longer than before")).await.contains("would have more than"));
    world.ok("edit", edit("short")).await;
    world.put("large", format!("needle{}", "x".repeat(MAX_EDITED_FILE_BYTES)));
    let message = world.err("edit", json!({"path": "large", "oldText": "needle", "newText": ""})).await;
    assert!(message.contains("has more than"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_patches_and_patterns_have_a_limit() {
    let world = World::new().await;
    world.put("file", "x");
    let edits: Vec<Value> =
        (0..=MAX_EDITS).map(|number| json!({"oldText": format!("{number}"), "newText": ""})).collect();
    assert!(world.call("edit", json!({"path": "file", "edits": edits})).await.is_err());
    let sections: String = (0..=MAX_PATCH_FILES).map(|number| format!("*** Add File: new{number}\n+x\n")).collect();
    let message = world.err("apply_patch", json!({"input": format!("*** Begin Patch\n{sections}*** End Patch")})).await;
    assert!(message.contains("more than 100 files"), "{message}");
    let pattern = "x".repeat(MAX_GREP_PATTERN_BYTES + 1);
    assert!(world.call("grep", json!({"pattern": pattern})).await.is_err());
    // A small pattern may become a large automaton.
    assert!(world.err("grep", json!({"pattern": "(((\\w{100}){100}){100})"})).await.contains("regular expression"));
    assert_eq!(world.names(), ["file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_searches_have_a_limit() {
    let world = World::new().await;
    world.put("wide", format!("needle {}\n", "é".repeat(2_000)));
    let found = world.ok("grep", json!({"pattern": "needle"})).await;
    let line = found["matches"][0]["text"].as_str().unwrap();
    assert_eq!(line.chars().count(), MAX_GREP_LINE_CHARS + 1, "and an ellipsis");
    let long = format!("needle {}\n", "y".repeat(480));
    world.put("many", long.repeat(5_000));
    let found = world.ok("grep", json!({"pattern": "needle", "limit": 10_000, "path": "many"})).await;
    let bytes: usize = found["matches"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap().len()).sum();
    assert!(bytes <= MAX_WALK_RESULT_BYTES + 1_000 && bytes > MAX_WALK_RESULT_BYTES / 2, "{bytes}");
    assert_eq!((&found["truncated"], &found["reason"]), (&json!(true), &json!("limit")));
    let default = world.ok("grep", json!({"pattern": "needle", "path": "many"})).await;
    assert_eq!(default["matches"].as_array().unwrap().len() as u64, GREP_LIMIT.default);
    // A line that is too long to hold is skipped with its file.
    world.put("endless", "z".repeat(3 << 20));
    let skipped = world.ok("grep", json!({"pattern": "needle", "path": "endless"})).await;
    assert_eq!((&skipped["filesSkipped"], &skipped["matches"]), (&json!(1), &json!([])));
}
