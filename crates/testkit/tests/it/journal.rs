//! The journal of a run: conflicting outcomes, reused ids, and size limits.

use contract::config::{Quotas, Retention};
use contract::ids::CallId;
use contract::limits::{JOURNAL_ROW_BYTES, MAX_JOURNAL_BYTES};
use contract::scope::Scope;
use contract::tool::Repeat;
use executor::{Journal, JournalFull, OpenError};
use store::{
    CallRow, CallState, Change, CommitError, Durability, FencedRun, Keys, LegRow, Location, NewRun, Quota, RunState,
    Store, StoredReply,
};

async fn journal() -> Journal {
    in_store(Store::open(&Location::Memory, Keys::new(1, [7; 32])).await.unwrap())
}

fn in_store(store: Store) -> Journal {
    Journal::new(store, fenced_run())
}

/// A run that this process holds, without a catalog.
pub(crate) fn fenced_run() -> FencedRun {
    FencedRun::new(NewRun {
        run_id: "cm_1".into(),
        scope: Scope::default(),
        tool_call_id: "exec-1".to_owned(),
        holder: "here".to_owned(),
        lease_until: i64::MAX,
        expires_at: i64::MAX,
        catalog: String::new(),
        tables: std::sync::Arc::from(Vec::new()),
        definition: String::new(),
    })
}

#[tokio::test]
async fn a_call_that_was_settled_before_its_tool_parked_it_stays_settled() {
    let journal = journal().await;
    journal.opened(CallRow::requested(CallId(1), "call", "client:a:b", "{}".to_owned(), "exec-1", 0)).unwrap();
    let _intent = journal.intend(CallId(1), Repeat::Never, None, |_| {}).await.unwrap();
    journal.settled(CallId(1), Some("\"brought\"".to_owned()), StoredReply::Resolved("1".to_owned()));
    journal.park(CallId(1), CallState::Away, |_, _| {}).await.unwrap();
    let written = journal.store().calls(&"cm_1".into()).await.unwrap();
    assert_eq!(written.iter().map(|row| row.state).collect::<Vec<_>>(), [CallState::Settled]);
    assert!(!journal.waits_for_others());
}

fn call(id: u32, payload: usize) -> CallRow {
    CallRow::requested(CallId(id), "call", "client:a:b", "x".repeat(payload), "exec-1", 0)
}

#[tokio::test]
async fn a_reused_call_id_is_refused_and_the_first_row_stays() {
    let journal = journal().await;
    journal.opened(call(1, 10)).unwrap();
    journal.opened(call(3, 10)).unwrap();
    for id in [1, 2, 3] {
        assert!(
            matches!(journal.opened(call(id, 99)), Err(OpenError::IdNotIncreasing { last: CallId(3), .. })),
            "{id}"
        );
    }
    journal.flush().await.unwrap();
    let written = journal.store().calls(&"cm_1".into()).await.unwrap();
    assert_eq!(written.iter().map(|row| (row.call.0, row.payload.len())).collect::<Vec<_>>(), [(1, 10), (3, 10)]);
}

#[tokio::test]
async fn calls_beyond_the_journal_limit_are_refused_and_stored_by_hash_only() {
    let journal = journal().await;
    let mut id = 0;
    let full = loop {
        id += 1;
        match journal.opened(call(id, 1 << 20)) {
            Ok(()) => journal.settled(CallId(id), None, StoredReply::Resolved("null".to_owned())),
            Err(full) => break full,
        }
    };
    assert!((55..64).contains(&id), "each call has 1 MiB of payload and its transcript entry: {id}");
    assert!(matches!(full, OpenError::Refused(JournalFull::Bytes { .. })), "{full}");
    assert!(full.to_string().contains("67108864"), "{full}");
    assert!(journal.check_room_for(2 << 20).is_err());
    assert!(journal.check_room_for(100).is_ok(), "smaller entries still fit");
    journal.flush().await.unwrap();
    let totals = journal.store().journal_totals(&"cm_1".into()).await.unwrap();
    assert!(totals.bytes <= MAX_JOURNAL_BYTES && totals.calls == id as usize, "{totals:?}");
    let refused = journal.store().call(&"cm_1".into(), CallId(id)).await.unwrap().unwrap();
    assert_eq!(refused.payload, "");
    assert_eq!(refused.input_hash, call(id, 1 << 20).input_hash, "the refused call is stored with its hash");
}

#[tokio::test]
async fn only_the_reply_of_a_tool_counts_for_its_transcript_too() {
    let length = 60_000;
    let text = "1".repeat(length);
    for (method, counted) in [("output", length), ("state", length), ("search", length), ("call", 3 * length)] {
        let journal = journal().await;
        journal.opened(CallRow::requested(CallId(1), method, "", String::new(), "exec-1", 5)).unwrap();
        journal.flush().await.unwrap();
        let run_id = journal.run_id().clone();
        let before = journal.store().journal_totals(&run_id).await.unwrap().bytes;
        journal.settled(CallId(1), None, StoredReply::Resolved(text.clone()));
        journal.flush().await.unwrap();
        let after = journal.store().journal_totals(&run_id).await.unwrap().bytes;
        assert_eq!(after - before, counted, "{method}");
    }
}

#[tokio::test]
async fn as_many_pages_of_a_stored_output_fit_as_the_journal_has_bytes() {
    let journal = journal().await;
    let length = 1 << 16;
    let mut pages = 0;
    loop {
        let id = CallId(pages + 1);
        let opened = journal.opened(CallRow::requested(id, "output", "read", String::new(), "exec-1", 5));
        if opened.is_err() || journal.check_room_for_reply(id, length).is_err() {
            break;
        }
        journal.settled(id, None, StoredReply::Resolved("1".repeat(length)));
        pages += 1;
    }
    assert_eq!(pages as usize, MAX_JOURNAL_BYTES / (length + JOURNAL_ROW_BYTES + "read".len()));
}

#[tokio::test]
async fn delivered_replies_are_stored_and_dropped_from_memory() {
    let journal = journal().await;
    for id in 1..=3 {
        journal.opened(call(id, 10)).unwrap();
        journal.settled(CallId(id), None, StoredReply::Resolved("1".to_owned()));
    }
    journal.leg(LegRow::begun(1, 0, vec![CallId(1), CallId(2)]));
    journal.flush().await.unwrap();
    let kept = journal.calls();
    assert_eq!(kept.iter().map(|row| (row.call.0, row.payload.len(), &row.reply)).collect::<Vec<_>>(), [(3, 0, &None)]);
    // A second outcome arrives before the delivery; the stored one stays.
    journal.settled(CallId(3), None, StoredReply::Resolved("2".to_owned()));
    journal.leg(LegRow::begun(2, 0, vec![CallId(3)]));
    journal.flush().await.unwrap();
    assert!(journal.calls().is_empty());
    for row in journal.store().calls(&"cm_1".into()).await.unwrap() {
        let reply = row.reply.unwrap();
        assert_eq!((row.state, reply.text(), row.payload.len()), (CallState::Delivered, "1", 10), "{}", row.call);
    }
}

#[tokio::test]
async fn a_run_over_its_principals_quota_stores_only_its_end() {
    let quotas = Quotas { stored_bytes: 100_000, ..Quotas::DEFAULT };
    let journal = in_store(
        Store::open(&Location::Memory, Keys::new(1, [7; 32])).await.unwrap().bounded(Retention::DEFAULT, quotas),
    );
    journal.opened(call(1, 10_000)).unwrap();
    let _intent = journal.intend(CallId(1), Repeat::Never, None, |_| {}).await.unwrap();
    journal.opened(call(2, 90_000)).unwrap();
    let refused = journal.intend(CallId(2), Repeat::Never, None, |_| {}).await.unwrap_err();
    assert!(matches!(&refused, CommitError::Quota(exceeded) if exceeded.quota == Quota::StoredBytes), "{refused}");
    // From now on, only the end of the run is stored.
    journal.opened(call(3, 10)).unwrap();
    assert!(journal.flush().await.is_err());
    let end = |change: &mut Change| change.state = Some(RunState::Failed);
    journal.commit(Durability::Relaxed, end).await.unwrap();
    let calls = journal.store().calls(&"cm_1".into()).await.unwrap();
    assert_eq!(calls.iter().map(|row| (row.call.0, row.state)).collect::<Vec<_>>(), [(1, CallState::Dispatched)]);
    assert_eq!(journal.store().run(&"cm_1".into()).await.unwrap().unwrap().state, RunState::Failed);
}
