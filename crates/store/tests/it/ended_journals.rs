//! The legs and calls of a run that ends in its first commit are stored in the run's row, and read like others.

use contract::ids::CallId;
use sqlx::{AnyConnection, Connection, Row};
use store::{
    CallRow, CallState, Change, DispatchedCall, Durability, LegEndKind, LegRow, Location, RunState, StoredLegEnd,
    StoredReply,
};

use crate::world::{NOW, Place, call, everywhere};

fn leg(number: i64, replies: &[u32]) -> LegRow {
    let ended = StoredLegEnd { kind: LegEndKind::Suspended, output_digest: format!("digest {number}") };
    let replies = replies.iter().map(|call| CallId(*call)).collect();
    LegRow { ended: Some(ended), ..LegRow::begun(number, 17 + number as u64, replies) }
}

fn delivered(number: u32) -> CallRow {
    let reply = format!("\"é\u{1F600}{}\"", "x".repeat(1_000));
    CallRow {
        tool_id: Some("mcp:files:read".to_owned()),
        attempt: 1,
        settle_order: Some(i64::from(number)),
        reply: Some(StoredReply::Resolved(reply)),
        ..call(number, CallState::Delivered)
    }
}

fn whole_run(calls: Vec<CallRow>) -> Change {
    let legs = vec![leg(0, &[]), leg(1, &[1]), leg(2, &[2])];
    Change { state: Some(RunState::Completed), legs, calls, ..Change::default() }
}

/// Counts the legs and calls that have rows of their own, in a store in a file.
async fn rows_of(place: &Place, run: &str) -> Option<(i64, i64)> {
    let Location::File(path) = &place.location else { return None };
    let mut connection = AnyConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let sql = "SELECT (SELECT COUNT(*) FROM legs WHERE run_id = $1), (SELECT COUNT(*) FROM calls WHERE run_id = $1)";
    let row = sqlx::query(sql).bind(run.to_owned()).fetch_one(&mut connection).await.unwrap();
    Some((row.try_get(0).unwrap(), row.try_get(1).unwrap()))
}

#[tokio::test]
async fn the_journal_of_a_run_that_ends_in_its_first_commit_is_read_from_its_row() {
    for place in everywhere().await {
        let change = whole_run(vec![delivered(1), delivered(2), call(3, CallState::Cleared)]);
        let run = place.run(1, change.clone()).await.run_id;
        assert!(matches!(rows_of(&place, &run).await, None | Some((0, 0))));
        assert_eq!(place.store.legs(&run).await.unwrap(), change.legs);
        assert_eq!(place.store.calls(&run).await.unwrap(), change.calls);
        assert_eq!(place.store.call(&run, CallId(2)).await.unwrap().as_ref(), change.calls.get(1));
        assert_eq!(place.store.call(&run, CallId(4)).await.unwrap(), None);
        assert_eq!(place.store.legs(&"cm_nobody".into()).await.unwrap(), []);
    }
}

#[tokio::test]
async fn dispatched_calls_are_equal_in_both_forms() {
    for place in everywhere().await {
        let calls = vec![delivered(1), CallRow { tool_id: None, ..delivered(2) }, call(3, CallState::Cleared)];
        let ended = place.run(1, whole_run(calls.clone())).await.run_id;
        let mut live = place.run(2, Change { state: None, ..whole_run(calls) }).await;
        let end = Change { state: Some(RunState::Completed), ..Change::default() };
        place.store.commit(&mut live, &end, Durability::Relaxed, NOW).await.unwrap();
        assert!(matches!(rows_of(&place, &live.run_id).await, None | Some((3, 3))));
        let in_row: Vec<DispatchedCall> = place.store.dispatched_calls(&ended).await.unwrap();
        assert_eq!(in_row.len(), 2);
        assert_eq!(in_row, place.store.dispatched_calls(&live.run_id).await.unwrap());
    }
}

#[tokio::test]
async fn journals_that_may_change_or_are_large_have_rows_of_their_own() {
    for place in everywhere().await {
        let unsettled = whole_run(vec![call(1, CallState::Dispatched)]);
        let large = Change { journal_bytes: 1 << 20, ..whole_run(vec![delivered(1)]) };
        let without_legs = Change { legs: Vec::new(), ..whole_run(vec![delivered(1)]) };
        for (number, change) in (1..).zip([unsettled, large, without_legs]) {
            let run = place.run(number, change.clone()).await.run_id;
            let expected = (change.legs.len() as i64, 1);
            assert!(rows_of(&place, &run).await.is_none_or(|rows| rows == expected), "{change:?}");
            assert_eq!(place.store.calls(&run).await.unwrap(), change.calls);
        }
    }
}
