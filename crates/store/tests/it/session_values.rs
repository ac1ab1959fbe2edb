//! Session values are written with the changes of runs, and conditional writes never overwrite each other.

use std::time::Duration;

use contract::config::{Quotas, Retention};
use contract::scope::Scope;
use store::{
    Change, CommitError, Durability, ExpectedVersion, FencedRun, Quota, RestoreOptions, SessionKey, SessionTotals,
    Store, ValueWrite, VersionConflict, check_backup,
};

use crate::world::{NOW, Place, everywhere};

fn put(key: &str, value: &str, version: &str) -> ValueWrite {
    ValueWrite { key: key.to_owned(), value: Some(value.to_owned()), version: version.to_owned(), expected: None }
}

fn forget(key: &str, version: &str) -> ValueWrite {
    ValueWrite { value: None, ..put(key, "", version) }
}

fn if_version(expected: &str, write: ValueWrite) -> ValueWrite {
    ValueWrite { expected: Some(ExpectedVersion::Version(expected.to_owned())), ..write }
}

fn if_absent(write: ValueWrite) -> ValueWrite {
    ValueWrite { expected: Some(ExpectedVersion::Absent), ..write }
}

fn conflict(key: &str, version: &str, current: Option<&str>) -> VersionConflict {
    VersionConflict { key: key.to_owned(), version: version.to_owned(), current: current.map(str::to_owned) }
}

async fn write(store: &Store, held: &mut FencedRun, values: Vec<ValueWrite>) -> Vec<VersionConflict> {
    let change = Change { values, ..Change::default() };
    store.commit(held, &change, Durability::Relaxed, NOW).await.unwrap().conflicts
}

fn session(place: &Place) -> SessionKey {
    SessionKey::from(&place.scope())
}

/// Returns the keys, values and versions of a session.
async fn values(store: &Store, session: &SessionKey) -> Vec<(String, String, String)> {
    let values = store.session_values(session).await.unwrap();
    values.into_iter().map(|value| (value.key, value.value, value.version)).collect()
}

fn row(key: &str, value: &str, version: &str) -> (String, String, String) {
    (key.to_owned(), value.to_owned(), version.to_owned())
}

#[tokio::test]
async fn the_last_write_of_a_key_in_a_change_wins() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        let writes = vec![
            put("b", "1", "v1"),
            put("a", "\"\u{1F980}\"", "v2"),
            put("b", "[2]", "v3"),
            put("gone", "0", "v4"),
            forget("gone", "v5"),
            forget("back", "v6"),
            put("back", "{}", "v7"),
        ];
        assert_eq!(write(&place.store, &mut held, writes).await, []);
        let session = session(&place);
        let expected = [row("a", "\"\u{1F980}\"", "v2"), row("b", "[2]", "v3"), row("back", "{}", "v7")];
        assert_eq!(values(&place.store, &session).await, expected);
        let b = place.store.session_value(&session, "b").await.unwrap().unwrap();
        assert_eq!(
            (b.value.as_str(), b.version.as_str(), b.run_id, b.updated_at),
            ("[2]", "v3", held.run_id.clone(), NOW)
        );
        assert_eq!(place.store.session_value(&session, "gone").await.unwrap(), None);
        let totals = SessionTotals { keys: 3, bytes: 6 + 3 + 2 };
        assert_eq!(place.store.session_totals(&session).await.unwrap(), totals);
        // Another run of the session overwrites them.
        let mut other = place.new_run(2);
        write(&place.store, &mut other, vec![put("a", "null", "v8"), forget("b", "v9"), forget("back", "v10")]).await;
        assert_eq!(values(&place.store, &session).await, [row("a", "null", "v8")]);
    }
}

#[tokio::test]
async fn sessions_do_not_see_the_values_of_others() {
    for place in everywhere().await {
        let scopes = [
            place.scope(),
            Scope { client: "another".to_owned(), ..place.scope() },
            Scope { session_id: format!("another {}", place.name), ..place.scope() },
            Scope { agent_id: format!("another {}", place.name), ..place.scope() },
        ];
        for (number, scope) in (0..).zip(scopes.clone()) {
            let mut held = place.new_run_of(number, scope);
            let change = Change { values: vec![put("k", &number.to_string(), "v")], ..Change::default() };
            let now = NOW + i64::from(number);
            place.store.commit(&mut held, &change, Durability::Relaxed, now).await.unwrap();
        }
        for (number, scope) in scopes.iter().enumerate() {
            let value = place.store.session_value(&SessionKey::from(scope), "k").await.unwrap().unwrap();
            assert_eq!(value.value, number.to_string());
        }
        let listed = place.store.sessions_with_values(3).await.unwrap();
        let newest: Vec<SessionKey> = scopes.iter().rev().take(3).map(SessionKey::from).collect();
        assert_eq!(listed.iter().map(|(session, _)| session.clone()).collect::<Vec<_>>(), newest);
        assert!(listed.iter().all(|(_, totals)| *totals == SessionTotals { keys: 1, bytes: 1 }), "{listed:?}");
        assert_eq!(place.store.delete_session_values(&newest[1], Some("other")).await.unwrap(), 0);
        assert_eq!(place.store.delete_session_values(&newest[1], Some("k")).await.unwrap(), 1);
        assert_eq!(place.store.session_values(&newest[1]).await.unwrap(), []);
        assert_eq!(place.store.delete_session_values(&newest[0], None).await.unwrap(), 1);
        assert_eq!(place.store.delete_session_values(&newest[0], None).await.unwrap(), 0);
        assert_eq!(place.store.sessions_with_values(9).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_conflict_is_reported_and_the_rest_of_the_change_is_written() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        write(&place.store, &mut held, vec![put("a", "1", "v1")]).await;
        let change = Change {
            progress: Some("new".to_owned()),
            values: vec![
                if_version("v0", put("a", "2", "v2")),
                if_absent(put("a", "3", "v3")),
                if_version("v0", forget("missing", "v4")),
                if_version("v1", put("a", "4", "v5")),
                if_version("v5", put("a", "5", "v6")),
                if_absent(put("b", "6", "v7")),
            ],
            ..Change::default()
        };
        let committed = place.store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
        let expected =
            [conflict("a", "v2", Some("v1")), conflict("a", "v3", Some("v1")), conflict("missing", "v4", None)];
        assert_eq!(committed.conflicts, expected);
        assert_eq!(values(&place.store, &session(&place)).await, [row("a", "5", "v6"), row("b", "6", "v7")]);
        assert_eq!(place.store.run(&held.run_id).await.unwrap().unwrap().progress, "new");
    }
}

#[tokio::test]
async fn a_repeated_conditional_write_has_one_effect_and_the_same_result() {
    for place in everywhere().await {
        let session = session(&place);
        let (mut held, mut other) = (place.new_run(1), place.new_run(2));
        write(&place.store, &mut other, vec![put("a", "0", "o1"), put("b", "0", "o2"), put("c", "0", "o3")]).await;
        let writes = || {
            vec![
                if_version("o1", put("a", "1", "v1")),
                if_version("o2", forget("b", "v2")),
                if_version("old", put("c", "3", "v3")),
                if_absent(put("d", "4", "v4")),
            ]
        };
        let conflicts = [conflict("c", "v3", Some("o3"))];
        for _ in 0..2 {
            assert_eq!(write(&place.store, &mut held, writes()).await, conflicts);
            let expected = [row("a", "1", "v1"), row("c", "0", "o3"), row("d", "4", "v4")];
            assert_eq!(values(&place.store, &session).await, expected);
        }
        // Another run has changed the values before the write is repeated after a crash.
        let later = vec![if_version("v1", put("a", "2", "o4")), if_absent(put("b", "2", "o5")), forget("d", "o6")];
        assert_eq!(write(&place.store, &mut other, later).await, []);
        assert_eq!(write(&place.store, &mut held, writes()).await, conflicts);
        assert_eq!(
            values(&place.store, &session).await,
            [row("a", "2", "o4"), row("b", "2", "o5"), row("c", "0", "o3")]
        );
        // The write of another run with the same text as version is another write.
        assert_eq!(write(&place.store, &mut other, vec![if_version("o4", put("a", "9", "v1"))]).await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_conditional_writers_never_both_win() {
    const PAIRS: u32 = 150;
    for place in everywhere().await.into_iter().skip(1) {
        let nodes = [place.reopen().await, place.reopen().await, place.reopen().await];
        let session = session(&place);
        let mut runs: Vec<FencedRun> = (0..3).map(|number| place.new_run(number)).collect();
        for (node, held) in nodes.iter().zip(&mut runs) {
            node.commit(held, &Change::default(), Durability::Relaxed, NOW).await.unwrap();
        }
        let mut version: Option<String> = None;
        for round in 0..PAIRS {
            // Every third round the key does not exist, which no row lock protects.
            if round % 3 == 0 {
                place.store.delete_session_values(&session, None).await.unwrap();
                version = None;
            }
            let absent = (round % 3) as usize;
            let racing: Vec<_> = (0..3)
                .filter(|node| *node != absent)
                .map(|node| {
                    let own = format!("run{node}:{round}");
                    let write = put("counter", &round.to_string(), &own);
                    let write = match &version {
                        Some(version) => if_version(version, write),
                        None => if_absent(write),
                    };
                    let change = Change { values: vec![write], ..Change::default() };
                    let (store, mut held) = (nodes[node].clone(), runs[node].clone());
                    tokio::spawn(async move {
                        let committed = store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
                        (node, own, held, committed.conflicts)
                    })
                })
                .collect();
            let mut won = Vec::new();
            let mut lost = Vec::new();
            for one in racing {
                let (node, own, held, conflicts) = one.await.unwrap();
                runs[node] = held;
                if conflicts.is_empty() { won.push(own) } else { lost.push(conflicts[0].current.clone()) }
            }
            assert_eq!(won.len(), 1, "round {round}");
            assert_eq!(lost, [Some(won[0].clone())], "round {round}");
            let stored = place.store.session_value(&session, "counter").await.unwrap().unwrap();
            assert_eq!(stored.version, won[0], "an acknowledged write is lost in round {round}");
            version = won.pop();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_that_are_retried_after_a_conflict_are_all_counted() {
    for place in everywhere().await.into_iter().skip(1) {
        let session = session(&place);
        let mut writers = Vec::new();
        for node in 0..4_u32 {
            let (store, mut held, session) = (place.reopen().await, place.new_run(node), session.clone());
            writers.push(tokio::spawn(async move {
                let mut attempt = 0;
                for _ in 0..15 {
                    loop {
                        attempt += 1;
                        let found = store.session_value(&session, "n").await.unwrap();
                        let next = found.as_ref().map_or(0, |found| found.value.parse::<u32>().unwrap()) + 1;
                        let write = put("n", &next.to_string(), &format!("{node}:{attempt}"));
                        let write = match found {
                            Some(found) => if_version(&found.version, write),
                            None => if_absent(write),
                        };
                        // An unconditional write of another key is part of the same change.
                        let writes = vec![put(&format!("own{node}"), "1", &format!("{node}:{attempt}o")), write];
                        let change = Change { values: writes, ..Change::default() };
                        let committed = store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
                        if committed.conflicts.is_empty() {
                            break;
                        }
                    }
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(place.store.session_value(&session, "n").await.unwrap().unwrap().value, "60");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_several_keys_in_any_order_do_not_deadlock() {
    for place in everywhere().await.into_iter().skip(1) {
        let mut writers = Vec::new();
        for node in 0..6_u32 {
            let (store, mut held) = (place.reopen().await, place.new_run(node));
            writers.push(tokio::spawn(async move {
                for round in 0..20 {
                    let mut writes: Vec<ValueWrite> = (0..8)
                        .map(|key| put(&format!("k{key}"), &node.to_string(), &format!("{node}:{round}:{key}")))
                        .collect();
                    if node % 2 == 0 {
                        writes.reverse();
                    }
                    writes.push(if_version("none", put(&format!("k{}", node % 8), "0", &format!("{node}:{round}"))));
                    let change = Change { values: writes, ..Change::default() };
                    let committed = store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
                    assert_eq!(committed.conflicts.len(), 1);
                }
            }));
        }
        let all = async {
            for writer in writers {
                writer.await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
        // The writers of a change wrote all its keys before the next one.
        let stored = values(&place.store, &session(&place)).await;
        assert!(stored.len() == 8 && stored.iter().all(|(_, value, _)| *value == stored[0].1), "{stored:?}");
    }
}

#[tokio::test]
async fn session_values_count_towards_the_quota_of_their_principal() {
    let quotas = Quotas { stored_bytes: 100_000, ..Quotas::DEFAULT };
    for place in everywhere().await {
        let store = place.store.clone().bounded(Retention::DEFAULT, quotas);
        let large = format!("\"{}\"", "x".repeat(60_000));
        let mut held = place.new_run(1);
        // Overwriting a value frees its bytes.
        for round in 0..4 {
            assert_eq!(write(&store, &mut held, vec![put("a", &large, &format!("v{round}"))]).await, []);
        }
        let change = Change { values: vec![put("b", &large, "v9")], ..Change::default() };
        let refused = store.commit(&mut held, &change, Durability::Relaxed, NOW).await;
        let Err(CommitError::Quota(exceeded)) = refused else { panic!("{refused:?}") };
        assert_eq!((exceeded.quota, exceeded.limit), (Quota::StoredBytes, 100_000));
        assert_eq!(store.session_totals(&session(&place)).await.unwrap().keys, 1, "nothing was written");
        let fork = SessionKey { session_id: format!("fork {}", place.name), ..session(&place) };
        let refused = store.copy_session_values(&session(&place), &fork, NOW).await;
        assert!(matches!(refused, Err(CommitError::Quota(_))), "{refused:?}");
        assert_eq!(store.session_totals(&fork).await.unwrap(), SessionTotals::default());
        // Many small values count, too: 200 rows of 512 bytes.
        let small = (0..200).map(|key| put(&format!("k{key}"), "1", "v")).collect();
        let change = Change { values: [vec![forget("a", "v8")], small].concat(), ..Change::default() };
        let refused = store.commit(&mut held, &change, Durability::Relaxed, NOW).await;
        assert!(matches!(refused, Err(CommitError::Quota(_))), "{refused:?}");
        assert_eq!(write(&store, &mut held, vec![forget("a", "v8"), put("b", &large, "v9")]).await, []);
    }
}

#[tokio::test]
async fn a_fork_gets_the_values_that_it_does_not_have() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        write(&place.store, &mut held, vec![put("a", "1", "v1"), put("b", "2", "v2")]).await;
        let scope = Scope { session_id: format!("fork {}", place.name), ..place.scope() };
        let fork = SessionKey::from(&scope);
        write(&place.store, &mut place.new_run_of(2, scope), vec![put("b", "3", "v3")]).await;
        assert_eq!(place.store.copy_session_values(&session(&place), &fork, NOW + 5).await.unwrap(), 1);
        assert_eq!(values(&place.store, &fork).await, [row("a", "1", "v1"), row("b", "3", "v3")]);
        assert_eq!(place.store.session_value(&fork, "a").await.unwrap().unwrap().updated_at, NOW + 5);
        assert_eq!(place.store.copy_session_values(&session(&place), &fork, NOW + 9).await.unwrap(), 0);
        assert_eq!(place.store.copy_session_values(&fork, &fork, NOW + 9).await.unwrap(), 0);
        // The copies are independent.
        write(&place.store, &mut held, vec![put("a", "4", "v4")]).await;
        assert_eq!(values(&place.store, &fork).await[0], row("a", "1", "v1"));
    }
}

#[tokio::test]
async fn values_that_are_not_written_for_the_retention_of_transcripts_are_deleted() {
    let retention = Retention { runs_seconds: 100, transcripts_seconds: 1_000 };
    for place in everywhere().await {
        let store = place.store.clone().bounded(retention, Quotas::DEFAULT);
        let mut held = place.new_run(1);
        // More than one batch.
        let old = (0..120).map(|key| put(&format!("k{key}"), "1", "v1")).collect();
        write(&store, &mut held, old).await;
        let change = Change { values: vec![put("k7", "2", "v2")], ..Change::default() };
        store.commit(&mut held, &change, Durability::Relaxed, NOW + 500_000).await.unwrap();
        assert_eq!(store.sweep(NOW + 1_000_000).await.unwrap().values, 0);
        assert_eq!(store.sweep(NOW + 1_000_001).await.unwrap().values, 119);
        assert_eq!(values(&store, &session(&place)).await, [row("k7", "2", "v2")]);
    }
}

#[tokio::test]
async fn session_values_and_the_results_of_conditional_writes_are_in_a_backup() {
    let into = everywhere().await;
    for (from, into) in everywhere().await.into_iter().zip(into.into_iter().rev()) {
        let mut held = from.new_run(1);
        let writes = || vec![put("a", "1", "v1"), if_version("v0", put("a", "2", "v2"))];
        let conflicts = write(&from.store, &mut held, writes()).await;
        let mut bytes = Vec::new();
        from.store.backup(&mut bytes, None).await.unwrap();
        let checked = check_backup(&mut &bytes[..]).unwrap();
        assert_eq!((checked.row_counts["session_values"], checked.row_counts["value_writes"]), (1, 1));
        let how = RestoreOptions { replace: false, end_runs: false };
        into.store.restore(&mut &bytes[..], &checked, how, NOW).await.unwrap();
        assert_eq!(values(&into.store, &session(&from)).await, [row("a", "1", "v1")]);
        let mut held = into.store.take(&held.run_id, "two", NOW, NOW + 1000).await.unwrap();
        assert_eq!(write(&into.store, &mut held, writes()).await, conflicts);
    }
}
