//! Quotas of a principal hold, also with several processes.

use contract::config::{Quotas, Retention};
use contract::ids::{CallId, RunId};
use contract::scope::Scope;
use store::{
    CallRow, CallState, Change, CommitError, Durability, FencedRun, JournalTotals, Quota, QuotaExceeded, RunState,
    Store, StoredReply,
};

use crate::world::{NOW, Place, approval_request, call, everywhere};

const QUOTAS: Quotas = Quotas { waiting_runs: 3, stored_bytes: 10_000, open_approvals: 2 };

fn bounded(store: &Store) -> Store {
    store.clone().bounded(Retention::DEFAULT, QUOTAS)
}

fn suspended(bytes: usize) -> Change {
    Change { state: Some(RunState::Waiting), release: true, snapshot: Some((0, vec![1; bytes])), ..Change::default() }
}

async fn put(store: &Store, held: &mut FencedRun, change: &Change) -> Result<(), Box<QuotaExceeded>> {
    match store.commit(held, change, Durability::Relaxed, NOW).await {
        Ok(_) => Ok(()),
        Err(CommitError::Quota(exceeded)) => Err(exceeded),
        Err(other) => panic!("{other:?}"),
    }
}

fn run_of_another_principal(place: &Place, number: u32) -> FencedRun {
    let agent_id = format!("other-{}", place.name);
    place.new_run_of(number, Scope { agent_id, ..place.scope() })
}

#[tokio::test]
async fn too_many_suspended_runs_are_rejected_and_the_oldest_are_listed() {
    for place in everywhere().await {
        let store = bounded(&place.store);
        for number in 0..3 {
            put(&store, &mut place.new_run(number), &suspended(10)).await.unwrap();
        }
        let mut one_more = place.new_run(3);
        let exceeded = put(&store, &mut one_more, &suspended(10)).await.unwrap_err();
        assert_eq!((exceeded.quota, exceeded.limit), (Quota::WaitingRuns, 3));
        let oldest: Vec<RunId> = (0..3).map(|number| place.new_run(number).run_id).collect();
        assert_eq!(exceeded.oldest, oldest);
        assert!(exceeded.to_string().contains(oldest[0].as_str()), "{exceeded}");
        assert!(place.store.run(&one_more.run_id).await.unwrap().is_none(), "nothing was written");
        // The run itself is unchanged and can end instead.
        let end = Change { state: Some(RunState::Failed), ..Change::default() };
        put(&store, &mut one_more, &end).await.unwrap();
        // A waiting run can be resumed and suspended again.
        let mut first = store.take(&oldest[0], "two", NOW, NOW + 1000).await.unwrap();
        put(&store, &mut first, &suspended(20)).await.unwrap();
        // A run that ends frees its quota.
        put(&store, &mut first, &end).await.unwrap();
        put(&store, &mut place.new_run(4), &suspended(10)).await.unwrap();
        assert!(put(&store, &mut place.new_run(5), &suspended(10)).await.is_err());
    }
}

#[tokio::test]
async fn runs_of_one_principal_do_not_count_for_another() {
    for place in everywhere().await {
        let store = bounded(&place.store);
        for number in 0..3 {
            put(&store, &mut place.new_run(number), &suspended(10)).await.unwrap();
        }
        for number in 3..6 {
            put(&store, &mut run_of_another_principal(&place, number), &suspended(10)).await.unwrap();
        }
        let exceeded = put(&store, &mut run_of_another_principal(&place, 6), &suspended(10)).await.unwrap_err();
        assert_eq!(exceeded.oldest[0], place.new_run(3).run_id, "runs of other principals are not listed");
    }
}

#[tokio::test]
async fn snapshot_bytes_of_all_runs_are_counted_together() {
    for place in everywhere().await {
        let store = bounded(&place.store);
        put(&store, &mut place.new_run(1), &suspended(6_000)).await.unwrap();
        let exceeded = put(&store, &mut place.new_run(2), &suspended(6_000)).await.unwrap_err();
        assert_eq!((exceeded.quota, exceeded.limit), (Quota::StoredBytes, 10_000));
        put(&store, &mut place.new_run(3), &suspended(2_000)).await.unwrap();
        // A smaller snapshot frees quota.
        let mut first = store.take(&place.new_run(1).run_id, "two", NOW, NOW + 1000).await.unwrap();
        put(&store, &mut first, &suspended(100)).await.unwrap();
        put(&store, &mut place.new_run(4), &suspended(6_000)).await.unwrap();
    }
}

#[tokio::test]
async fn pending_approvals_are_counted_until_they_are_decided_or_expire() {
    for place in everywhere().await {
        let store = bounded(&place.store);
        let asks = |number: u32| Change {
            calls: vec![call(number, CallState::Approval)],
            approvals: vec![approval_request(&place, number)],
            ..Change::default()
        };
        let mut held = place.new_run(1);
        put(&store, &mut held, &asks(1)).await.unwrap();
        put(&store, &mut held, &asks(2)).await.unwrap();
        let exceeded = put(&store, &mut held, &asks(3)).await.unwrap_err();
        assert_eq!((exceeded.quota, exceeded.limit), (Quota::OpenApprovals, 2));
        assert!(exceeded.to_string().contains("cellmate approvals list"), "{exceeded}");
        let no = store::Decision::Deny { note: String::new() };
        store.decide(&approval_request(&place, 1).approval_id, &no, "ada", NOW).await.unwrap();
        put(&store, &mut held, &asks(3)).await.unwrap();
        assert!(put(&store, &mut held, &asks(4)).await.is_err());
        let later = store.commit(&mut held, &asks(4), Durability::Relaxed, NOW + 6_000).await;
        assert!(later.is_ok(), "{later:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commits_do_not_exceed_the_quota() {
    for place in everywhere().await.into_iter().skip(1) {
        let nodes = [bounded(&place.reopen().await), bounded(&place.reopen().await)];
        let racing: Vec<_> = (0..24_u32)
            .map(|number| {
                let (store, mut held) = (nodes[number as usize % 2].clone(), place.new_run(number));
                tokio::spawn(async move { put(&store, &mut held, &suspended(10)).await.is_ok() })
            })
            .collect();
        let mut got = 0;
        for one in racing {
            got += usize::from(one.await.unwrap());
        }
        assert_eq!((got, place.store.live_runs().await.unwrap()), (3, 3));
    }
}

/// Returns a change that grows the journal by this many bytes.
fn journal(number: u32, bytes: i64) -> Change {
    Change { calls: vec![call(number, CallState::Delivered)], journal_bytes: bytes, ..Change::default() }
}

#[tokio::test]
async fn journals_and_snapshots_count_together_until_they_are_deleted() {
    for place in everywhere().await {
        let store = bounded(&place.store);
        let mut first = place.new_run(1);
        put(&store, &mut first, &journal(1, 4_000)).await.unwrap();
        put(&store, &mut first, &journal(2, 4_000)).await.unwrap();
        let exceeded = put(&store, &mut first, &journal(3, 4_000)).await.unwrap_err();
        assert_eq!((exceeded.quota, exceeded.limit), (Quota::StoredBytes, 10_000));
        assert!(exceeded.to_string().contains("store.perPrincipal.maxStoredBytes"), "{exceeded}");
        assert_eq!(place.store.calls(&first.run_id).await.unwrap().len(), 2, "nothing was written");
        // The journal of an ended run still counts.
        let end = Change { state: Some(RunState::Completed), ..Change::default() };
        put(&store, &mut first, &end).await.unwrap();
        assert!(put(&store, &mut place.new_run(2), &suspended(3_000)).await.is_err());
        put(&store, &mut place.new_run(3), &suspended(1_000)).await.unwrap();
        // Another principal is not affected.
        put(&store, &mut run_of_another_principal(&place, 4), &journal(1, 9_000)).await.unwrap();
        // Deleted runs free their quota.
        store.delete_runs_before(NOW + 1).await.unwrap();
        put(&store, &mut place.new_run(5), &journal(1, 4_000)).await.unwrap();
    }
}

#[tokio::test]
async fn a_final_commit_is_rejected_if_its_journal_exceeds_the_quota() {
    for place in everywhere().await {
        let store = bounded(&place.store);
        let mut held = place.new_run(1);
        let ends = |bytes| Change { state: Some(RunState::Completed), ..journal(1, bytes) };
        assert!(put(&store, &mut held, &ends(10_001)).await.is_err());
        put(&store, &mut held, &ends(0)).await.unwrap();
    }
}

#[tokio::test]
async fn journal_totals_and_open_calls_match_the_stored_calls() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        let made = CallRow { attempt: 1, settle_order: Some(4), ..call(7, CallState::Settled) };
        let change =
            Change { calls: vec![call(3, CallState::Delivered), made], journal_bytes: 900, ..Change::default() };
        place.store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
        let parked = Change { calls: vec![call(9, CallState::Parked)], journal_bytes: 100, ..Change::default() };
        place.store.commit(&mut held, &parked, Durability::Relaxed, NOW).await.unwrap();
        place.store.settle(&held.run_id, CallId(9), "outcome").await.unwrap();
        let totals = place.store.journal_totals(&held.run_id).await.unwrap();
        let bytes = 1_000 + "outcome".len();
        let expected = JournalTotals { calls: 3, bytes, last_call: CallId(9), settle_order: 5, had_effects: true };
        assert_eq!(totals, expected);
        let open: Vec<u32> = place.store.open_calls(&held.run_id).await.unwrap().iter().map(|row| row.call.0).collect();
        assert_eq!(open, [7, 9]);
        assert_eq!(
            place.store.call(&held.run_id, CallId(9)).await.unwrap().unwrap().outcome.as_deref(),
            Some("outcome")
        );
        assert!(place.store.call(&held.run_id, CallId(4)).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_call_written_again_without_its_reply_keeps_the_stored_reply() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        let reply = Some(StoredReply::Resolved("1".to_owned()));
        let settled = CallRow { reply: reply.clone(), outcome: Some("o".to_owned()), ..call(1, CallState::Settled) };
        for row in [settled, CallRow { payload: String::new(), ..call(1, CallState::Delivered) }] {
            let change = Change { calls: vec![row], ..Change::default() };
            place.store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
        }
        let row = place.store.call(&held.run_id, CallId(1)).await.unwrap().unwrap();
        assert_eq!((row.state, row.reply, row.outcome.as_deref()), (CallState::Delivered, reply, Some("o")));
        assert_eq!(row.payload, "{}");
    }
}
