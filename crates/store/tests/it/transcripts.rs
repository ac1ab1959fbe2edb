//! Transcripts keep the order of their entries, also with several writers.

use serde_json::Value;
use store::{Change, Durability, NewEntry};

use crate::world::{NOW, entry, everywhere};

#[tokio::test]
async fn entries_are_returned_in_the_order_they_were_written() {
    for place in everywhere().await {
        let mut held = place.run(1, Change { entries: vec![entry("1"), entry("2")], ..Change::default() }).await;
        let session = held.scope.session_id.clone();
        place.store.note(&session, &held.run_id, &[entry("3")]).await.unwrap();
        let change = Change { entries: vec![entry("4")], ..Change::default() };
        place.store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
        let exported = place.store.export(&session).await.unwrap();
        let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let texts: Vec<&str> = lines.iter().map(|line| line["text"].as_str().unwrap()).collect();
        assert_eq!(texts, ["1", "2", "3", "4"]);
        assert!(lines.iter().all(|line| line["kind"] == "note" && line["at"] == NOW), "{exported}");
        assert_eq!(place.store.export("unknown session").await.unwrap(), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_two_concurrent_writers_are_all_kept_each_in_order() {
    for place in everywhere().await {
        let held = place.run(1, Change::default()).await;
        let (session, run) = (held.scope.session_id.clone(), held.run_id.clone());
        let writers = ["a", "b"].map(|name| {
            let (place, session, run) = (place.store.clone(), session.clone(), run.clone());
            tokio::spawn(async move {
                for number in 0..40 {
                    place
                        .note(&session, &run, &[entry(&format!("{name}{number}")), entry(&format!("{name}{number}+"))])
                        .await
                        .unwrap();
                }
            })
        });
        for writer in writers {
            writer.await.unwrap();
        }
        let entries = place.store.transcript(&session).await.unwrap();
        assert_eq!(entries.len(), 160);
        for name in ["a", "b"] {
            let mine: Vec<&str> = entries
                .iter()
                .map(|entry| entry.entry["text"].as_str().unwrap())
                .filter(|text| text.starts_with(name))
                .collect();
            let expected: Vec<String> =
                (0..40).flat_map(|number| [format!("{name}{number}"), format!("{name}{number}+")]).collect();
            assert_eq!(mine, expected);
        }
    }
}

/// One row of the table contains several entries, and pages may begin and end within a row.
#[tokio::test]
async fn pages_of_a_transcript_have_the_entries_after_a_position_wherever_rows_begin() {
    for place in everywhere().await {
        let mut held = place.run(1, Change::default()).await;
        let session = held.scope.session_id.clone();
        let long = "x".repeat(5_000);
        for texts in [vec!["1", "2", "3"], vec!["4"], vec!["5", long.as_str(), "7", "8"], vec![], vec!["9", "10"]] {
            let entries: Vec<NewEntry> = texts.into_iter().map(entry).collect();
            let change = Change { entries, ..Change::default() };
            place.store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
        }
        let all = place.store.transcript(&session).await.unwrap();
        let texts: Vec<&str> = all.iter().map(|entry| entry.entry["text"].as_str().unwrap()).collect();
        assert_eq!(texts, ["1", "2", "3", "4", "5", long.as_str(), "7", "8", "9", "10"]);
        assert_eq!(place.store.run_transcript(&session, &held.run_id).await.unwrap(), all);
        let numbered: Vec<_> = (1..).zip(all).collect();
        for after in 0..=11 {
            for limit in 0..=11 {
                let page = place.store.transcript_page(&session, after, limit).await.unwrap();
                let rest = numbered.iter().skip(after as usize).take(limit as usize);
                assert!(page.iter().eq(rest), "after {after}, at most {limit}: {page:?}");
            }
        }
        place.store.delete_run_transcript(&session, &held.run_id).await.unwrap();
        assert!(place.store.transcript(&session).await.unwrap().is_empty());
    }
}
