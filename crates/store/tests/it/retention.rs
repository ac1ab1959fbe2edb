//! Ended runs and transcripts are kept for the configured time and then deleted in batches.

use contract::config::{Quotas, Retention};
use sqlx::{AnyConnection, Connection, Row};
use store::{Change, Durability, EntryKind, Location, NewEntry, RunFilter, RunState, Store};

use crate::world::{NOW, Place, entry, everywhere};

const RETENTION: Retention = Retention { runs_seconds: 100, transcripts_seconds: 1_000 };
const HOUR: i64 = 60 * 60 * 1000;

fn completed() -> Change {
    Change { state: Some(RunState::Completed), entries: vec![entry("said")], ..Change::default() }
}

fn bounded(place: &Place) -> Store {
    place.store.clone().bounded(RETENTION, Quotas::DEFAULT)
}

async fn is_stored(place: &Place, number: u32) -> bool {
    place.store.run(&place.new_run(number).run_id).await.unwrap().is_some()
}

#[tokio::test]
async fn runs_and_transcripts_are_deleted_only_after_their_retention() {
    for place in everywhere().await {
        let store = bounded(&place);
        place.run(1, completed()).await;
        let session = place.scope().session_id;
        store.sweep(NOW + 100_000).await.unwrap();
        assert!(is_stored(&place, 1).await, "a run of exactly the retention time is kept");
        let swept = store.sweep(NOW + 100_001).await.unwrap();
        assert_eq!((swept.runs, is_stored(&place, 1).await), (1, false));
        assert_eq!(place.store.transcript(&session).await.unwrap().len(), 1);
        store.sweep(NOW + 1_000_000).await.unwrap();
        assert_eq!(place.store.transcript(&session).await.unwrap().len(), 1);
        assert_eq!(store.sweep(NOW + 1_000_001).await.unwrap().entries, 1);
        assert_eq!(place.store.transcript(&session).await.unwrap(), []);
        assert_eq!(store.sweep(NOW + 1_000_001).await.unwrap(), store::SweepReport::default());
    }
}

/// A sweep looks at a hundred sessions at a time.
#[tokio::test]
async fn old_entries_of_many_sessions_are_deleted_and_new_ones_are_kept() {
    for place in everywhere().await {
        let store = bounded(&place);
        let session = |number: u32| format!("{}-{number}", place.name);
        let new = NewEntry::new(NOW + 500_000, EntryKind::Note, &serde_json::json!({}));
        for number in 0..250 {
            store.note(&session(number), &"old run".into(), &[entry("old")]).await.unwrap();
            store.note(&session(number), &"new run".into(), std::slice::from_ref(&new)).await.unwrap();
        }
        // Only the oldest entry of a session is looked at.
        store.note("a session with a new entry first", &"a run".into(), &[new]).await.unwrap();
        store.note("a session with a new entry first", &"a run".into(), &[entry("old")]).await.unwrap();
        assert_eq!(store.sweep(NOW + 1_000_000).await.unwrap().entries, 0);
        assert_eq!(store.sweep(NOW + 1_000_001).await.unwrap().entries, 250);
        for number in 0..250 {
            let left = store.transcript(&session(number)).await.unwrap();
            assert!(left.len() == 1 && left[0].at == NOW + 500_000, "{number}: {left:?}");
        }
        assert_eq!(store.sweep(NOW + 1_500_001).await.unwrap().entries, 252);
    }
}

#[tokio::test]
async fn one_sweep_deletes_many_runs_in_batches_and_keeps_waiting_ones() {
    for place in everywhere().await {
        let store = bounded(&place);
        for number in 0..250 {
            place.run(number, completed()).await;
        }
        place.run(900, Change { state: Some(RunState::Waiting), release: true, ..Change::default() }).await;
        place.store.prolong(&place.new_run(900).run_id, NOW + HOUR).await.unwrap();
        let swept = store.sweep(NOW + 200_000).await.unwrap();
        assert_eq!((swept.runs, swept.expired), (250, 0));
        assert!(is_stored(&place, 900).await);
        let swept = store.sweep(NOW + HOUR).await.unwrap();
        assert_eq!(swept.expired, 1);
    }
}

#[tokio::test]
async fn chosen_runs_are_deleted_only_if_they_have_ended() {
    for place in everywhere().await {
        let runs: Vec<_> = (1..=3).map(|number| place.new_run(number).run_id).collect();
        place.run(1, completed()).await;
        place.run(2, Change { state: Some(RunState::Waiting), release: true, ..Change::default() }).await;
        place.run(3, completed()).await;
        assert_eq!(place.store.ended_before(NOW + 1).await.unwrap(), 2);
        assert_eq!(place.store.ended_before(NOW).await.unwrap(), 0);
        assert_eq!(place.store.delete_runs(&runs[..2]).await.unwrap(), 1);
        assert_eq!(
            (is_stored(&place, 1).await, is_stored(&place, 2).await, is_stored(&place, 3).await),
            (false, true, true)
        );
        assert_eq!(place.store.delete_runs(&["cm_nobody".into()]).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn the_transcript_of_one_run_is_deleted_and_that_of_others_in_its_session_is_kept() {
    for place in everywhere().await {
        let (gone, kept) = (place.new_run(1).run_id, place.new_run(2).run_id);
        let entries = [entry("said")];
        for run_id in [&gone, &kept, &gone] {
            place.store.note("s", run_id, &entries).await.unwrap();
        }
        place.store.note("t", &gone, &entries).await.unwrap();
        place.store.delete_run_transcript("s", &gone).await.unwrap();
        let left = async |session: &str, run_id| place.store.run_transcript(session, run_id).await.unwrap().len();
        assert_eq!((left("s", &gone).await, left("s", &kept).await, left("t", &gone).await), (0, 1, 1));
        place.store.note("s", &kept, &entries).await.unwrap();
        assert_eq!(left("s", &kept).await, 2, "positions that were deleted can be used again");
    }
}

#[tokio::test]
async fn runs_are_listed_by_state_age_and_start_of_the_id() {
    for place in everywhere().await {
        place.run(1, completed()).await;
        place.run(2, Change { state: Some(RunState::Waiting), release: true, ..Change::default() }).await;
        let listed = async |filter: RunFilter| -> Vec<String> {
            let runs = place.store.runs(&filter, 10).await.unwrap();
            runs.into_iter().map(|run| run.run_id.into_string()).collect()
        };
        let id = |number: u32| place.new_run(number).run_id.into_string();
        assert_eq!(listed(RunFilter::default()).await, [id(1), id(2)]);
        let waiting = RunFilter { states: vec![RunState::Running, RunState::Waiting], ..RunFilter::default() };
        assert_eq!(listed(waiting.clone()).await, [id(2)]);
        let prefixes = vec!["nothing".to_owned(), id(1)];
        assert_eq!(listed(RunFilter { prefixes: prefixes.clone(), ..RunFilter::default() }).await, [id(1)]);
        assert!(listed(RunFilter { prefixes, ..waiting }).await.is_empty());
        assert!(listed(RunFilter { since: Some(NOW + 1), ..RunFilter::default() }).await.is_empty());
        assert_eq!(listed(RunFilter { since: Some(NOW), ..RunFilter::default() }).await.len(), 2);
        let first = &place.store.runs(&RunFilter::default(), 1).await.unwrap()[0];
        assert!(!first.definition_head.is_empty() && first.first_target.is_none(), "{first:?}");
    }
}

#[tokio::test]
async fn a_catalog_is_deleted_after_its_last_use_and_the_retention_of_runs_unless_a_live_run_uses_it() {
    for place in everywhere().await {
        let store = bounded(&place);
        let catalog = format!("catalog-{}", place.name);
        let kept = async || place.store.tables(&catalog, 100).await.unwrap().is_some();
        let mut held = place.run(1, Change::default()).await;
        place.store.commit(&mut held, &completed(), Durability::Relaxed, NOW).await.unwrap();
        store.sweep(NOW + 200_000).await.unwrap();
        assert!(kept().await, "no run uses it, but one that is not stored yet may");
        // A run that starts much later marks the catalog as used.
        let used = NOW + 24 * HOUR;
        let mut later = place.new_run(2);
        place.store.commit(&mut later, &Change::default(), Durability::Relaxed, used).await.unwrap();
        place.store.prolong(&later.run_id, used + 100 * HOUR).await.unwrap();
        let deleted_after = used + 25 * HOUR + 100_000;
        assert_eq!(store.sweep(deleted_after + HOUR).await.unwrap().catalogs, 0, "a live run uses it");
        place.store.commit(&mut later, &completed(), Durability::Relaxed, used).await.unwrap();
        store.sweep(deleted_after).await.unwrap();
        assert!(kept().await && !is_stored(&place, 2).await);
        assert_eq!(store.sweep(deleted_after + 1).await.unwrap().catalogs, 1);
        assert!(!kept().await);
    }
}

#[tokio::test]
async fn a_sweep_does_not_block_writers_for_long() {
    for place in everywhere().await.into_iter().skip(1) {
        let store = bounded(&place);
        let other = place.reopen().await;
        for number in 0..1_500 {
            let mut held = place.new_run(number);
            place.store.commit(&mut held, &completed(), Durability::Relaxed, NOW).await.unwrap();
        }
        let sweeping = tokio::spawn(async move { store.sweep(NOW + 200_000).await.unwrap() });
        let (mut longest, mut writes) = (std::time::Duration::ZERO, 0);
        while !sweeping.is_finished() {
            let began = std::time::Instant::now();
            let mut held = place.new_run(10_000 + writes);
            // The sweep would otherwise expire the run, and might never catch up with this loop.
            let change = Change { expires_at: Some(NOW + HOUR), ..Change::default() };
            other.commit(&mut held, &change, Durability::Relaxed, NOW + 200_000).await.unwrap();
            longest = longest.max(began.elapsed());
            writes += 1;
        }
        assert_eq!(sweeping.await.unwrap().runs, 1_500);
        assert!(writes > 3, "{writes}");
        assert!(longest < std::time::Duration::from_secs(2), "{longest:?}");
    }
}

#[tokio::test]
async fn a_sweep_shrinks_the_file() {
    let places = everywhere().await;
    let place = places.iter().find(|place| matches!(place.location, Location::File(_))).unwrap();
    let Location::File(path) = &place.location else { return };
    let store = bounded(place);
    let long = |number: i64| entry(&format!("{number} {}", "x".repeat(20_000)));
    place.store.note("a session", &"a run".into(), &(0..400).map(long).collect::<Vec<_>>()).await.unwrap();
    let mut connection = AnyConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let mut pages = async || -> i64 {
        let row = sqlx::query("PRAGMA page_count").fetch_one(&mut connection).await.unwrap();
        row.try_get(0).unwrap()
    };
    let before = pages().await;
    assert_eq!(store.sweep(NOW + 2_000_000).await.unwrap().entries, 400);
    let after = pages().await;
    assert!(after * 4 < before, "{before} pages became {after}");
}
