//! What the journal keeps of calls about which two things are heard at once.

use contract::scope::Scope;
use executor::Journal;
use store::{CallRow, CallState, Held, Keys, Location, NewRun, Store, StoredReply};

async fn journal() -> Journal {
    let store = Store::open(&Location::Memory, Keys::new(1, [7; 32])).await.unwrap();
    let held = Held::new(NewRun {
        run_id: "cm_1".to_owned(),
        scope: Scope::default(),
        tool_call_id: "exec-1".to_owned(),
        holder: "here".to_owned(),
        lease_until: i64::MAX,
        expires_at: i64::MAX,
        catalog: String::new(),
        tables: std::sync::Arc::from(Vec::new()),
        definition: String::new(),
    });
    Journal::new(store, held)
}

#[tokio::test]
async fn a_call_that_was_settled_before_its_tool_parked_it_stays_settled() {
    let journal = journal().await;
    journal.opened(CallRow::requested(1, "call", "client:a:b", "{}".to_owned(), "exec-1", 0)).unwrap();
    let _intent = journal.intend(1, false, None, |_| {}).await.unwrap();
    journal.settled(1, Some("\"brought\"".to_owned()), StoredReply::Resolved("1".to_owned()));
    journal.park(1, CallState::Away, |_, _| {}).await.unwrap();
    let written = journal.store().calls("cm_1").await.unwrap();
    assert_eq!(written.iter().map(|row| row.state).collect::<Vec<_>>(), [CallState::Settled]);
    assert!(!journal.waits_for_others());
}
