//! Turns expire, are deleted with everything that belongs to them, and survive a backup.

use contract::config::{Quotas, Retention};
use store::{
    CommitError, Durability, LeaseError, NewTurn, RestoreOptions, Store, SweepReport, TurnChange, TurnState,
    check_backup,
};

use super::{bodies, commit, create, everything, in_state, new_turn, principal, response, state, steps, turn_id};
use crate::world::{NOW, Place, everywhere};

const RETENTION: Retention = Retention { runs_seconds: 100, transcripts_seconds: 1_000 };

/// The first moment at which something of `NOW` is too old.
const TOO_OLD: i64 = NOW + 1_000_001;

fn bounded(place: &Place) -> Store {
    place.store.clone().bounded(RETENTION, Quotas::DEFAULT)
}

#[tokio::test]
async fn a_turn_past_its_time_fails_unless_a_process_holds_it() {
    for place in everywhere().await {
        let mut waiting = create(&place, 1, in_state(TurnState::Waiting)).await;
        create(&place, 2, TurnChange::default()).await;
        place.store.renew_turns("one", &[turn_id(&place, 2)], NOW + 20_000).await.unwrap();
        assert_eq!(place.store.expire_turns(NOW + 9_999).await.unwrap(), 0);
        assert_eq!(place.store.expire_turns(NOW + 10_000).await.unwrap(), 1);
        assert_eq!(state(&place, 1).await, Some(TurnState::Failed));
        assert_eq!(state(&place, 2).await, Some(TurnState::Running));
        let late = place.store.commit_turn(&mut waiting, &steps(&["late"]), Durability::Relaxed, NOW).await;
        assert!(matches!(late, Err(CommitError::Fenced)), "{late:?}");
        let taken = place.store.take_turn(&waiting.turn_id, "two", NOW, NOW).await;
        assert!(matches!(taken, Err(LeaseError::Unknown)), "{taken:?}");
        assert_eq!(bounded(&place).sweep(NOW + 20_000).await.unwrap().expired_turns, 1);
    }
}

#[tokio::test]
async fn an_ended_turn_is_deleted_with_everything_after_the_retention_of_transcripts() {
    for place in everywhere().await {
        let store = bounded(&place);
        let long = |change: TurnChange| {
            let response = change.response.map(|given| store::NewResponse { expires_at: i64::MAX, ..given });
            TurnChange { response, ..change }
        };
        let mut held = create(&place, 1, long(everything(&place, "call_a"))).await;
        commit(&place, &mut held, in_state(TurnState::Completed)).await;
        create(&place, 2, TurnChange { expires_at: Some(i64::MAX), ..in_state(TurnState::Waiting) }).await;
        assert_eq!(store.sweep(TOO_OLD - 1).await.unwrap().turns, 0);
        let swept = store.sweep(TOO_OLD).await.unwrap();
        assert_eq!((swept.turns, swept.entries), (1, 1));
        let (ada, agent) = (principal(&place, "ada"), &held.agent_id);
        assert_eq!(store.turn(&held.turn_id).await.unwrap(), None);
        assert_eq!(store.turn_steps(&held.turn_id).await.unwrap(), []);
        assert_eq!(store.deliveries(&ada, &["call_a".to_owned()]).await.unwrap(), []);
        assert_eq!(store.turn_by_conversation(&ada, agent, "talk-call_a").await.unwrap(), None);
        assert_eq!(store.response_of_item(&ada, "item-call_a").await.unwrap(), None);
        assert_eq!(state(&place, 2).await, Some(TurnState::Waiting), "a turn that has not ended is kept");
        assert_eq!(store.sweep(TOO_OLD).await.unwrap(), SweepReport::default());
    }
}

#[tokio::test]
async fn a_turn_is_kept_while_another_one_continues_its_conversation() {
    for place in everywhere().await {
        let store = bounded(&place);
        let ended = in_state(TurnState::Completed);
        create(&place, 1, ended.clone()).await;
        for number in 2..=5 {
            let child = NewTurn { parent: Some(turn_id(&place, number - 1)), ..new_turn(&place, number) };
            let now = if number == 5 { NOW + 10 } else { NOW };
            store.create_turn(&child, &ended, "one", now, now).await.unwrap();
        }
        assert_eq!(store.sweep(TOO_OLD).await.unwrap().turns, 0, "the last turn is not too old");
        assert_eq!(store.sweep(TOO_OLD + 10).await.unwrap().turns, 5);
        assert_eq!(state(&place, 1).await, None);
    }
}

#[tokio::test]
async fn an_expired_response_is_deleted_without_its_turn() {
    for place in everywhere().await {
        let store = bounded(&place);
        let ada = principal(&place, "ada");
        let mut held = create(&place, 1, TurnChange { expires_at: Some(i64::MAX), ..steps(&["a"]) }).await;
        for number in 0..25 {
            let id = format!("r{number}-{}", place.name);
            let given = response(&id, "{}", &[&format!("i{number}")]);
            commit(&place, &mut held, TurnChange { response: Some(given), ..TurnChange::default() }).await;
        }
        assert_eq!(store.sweep(NOW + 4_999).await.unwrap().responses, 0);
        assert_eq!(store.sweep(NOW + 5_000).await.unwrap().responses, 25);
        assert_eq!(store.response_of_item(&ada, "i24").await.unwrap(), None);
        assert_eq!(bodies(&place, 1).await, ["a"]);
    }
}

#[tokio::test]
async fn a_restored_backup_has_the_turns_and_fences_their_former_holders() {
    let (from, mut into) = (everywhere().await, everywhere().await);
    into.rotate_left(1);
    for (from, into) in from.into_iter().zip(into) {
        let mut held = create(&from, 1, everything(&from, "call_a")).await;
        create(&from, 2, TurnChange { state: Some(TurnState::Completed), ..steps(&["ä"]) }).await;
        let mut backup = Vec::new();
        from.store.backup(&mut backup, None).await.unwrap();
        let checked = check_backup(&mut &backup[..]).unwrap();
        let restore = async |place: &Place, replace, end_runs| {
            let how = RestoreOptions { replace, end_runs };
            place.store.restore(&mut &backup[..], &checked, how, NOW).await
        };
        restore(&into, false, false).await.unwrap();
        assert!(restore(&into, false, false).await.is_err(), "the store has turns, so it is not empty");
        let ada = principal(&from, "ada");
        for number in [1, 2] {
            let id = turn_id(&from, number);
            assert_eq!(into.store.turn_steps(&id).await.unwrap(), from.store.turn_steps(&id).await.unwrap());
            let deliveries = into.store.deliveries_of_turn(&id).await.unwrap();
            assert_eq!(deliveries, from.store.deliveries_of_turn(&id).await.unwrap());
        }
        let given = into.store.response_of_item(&ada, "item-call_a").await.unwrap();
        assert!(given.is_some());
        assert_eq!(given, from.store.response_of_item(&ada, "item-call_a").await.unwrap());
        let found = into.store.turn_by_conversation(&ada, &held.agent_id, "talk-call_a").await.unwrap();
        assert_eq!(found, Some(turn_id(&from, 1)));
        // A process that held the turn before a restore can no longer write it; another one can take it at once.
        restore(&from, true, false).await.unwrap();
        let late = from.store.commit_turn(&mut held, &steps(&["late"]), Durability::Relaxed, NOW).await;
        assert!(matches!(late, Err(CommitError::Fenced)), "{late:?}");
        let mut taken = from.store.take_turn(&held.turn_id, "two", NOW, NOW + 1000).await.unwrap();
        commit(&from, &mut taken, steps(&["next"])).await;
        restore(&from, true, true).await.unwrap();
        assert_eq!(state(&from, 1).await, Some(TurnState::Aborted));
        assert_eq!(state(&from, 2).await, Some(TurnState::Completed));
    }
}

#[tokio::test]
async fn a_compaction_is_kept_while_another_turn_continues_the_conversation_that_it_summarizes() {
    for place in everywhere().await {
        let store = bounded(&place);
        let begin = async |number: u32, wire: &str, parent: Option<u32>, state: TurnState| {
            let parent = parent.map(|parent| turn_id(&place, parent));
            let turn = NewTurn { wire: wire.to_owned(), parent, ..new_turn(&place, number) };
            let change = TurnChange { expires_at: Some(i64::MAX), ..in_state(state) };
            store.create_turn(&turn, &change, "one", NOW + 1_000, NOW).await.unwrap()
        };
        begin(1, "chat", None, TurnState::Completed).await;
        let mut child = begin(2, "chat", Some(1), TurnState::Waiting).await;
        begin(3, store::COMPACTION, Some(1), TurnState::Completed).await;
        begin(4, store::COMPACTION, Some(1), TurnState::Failed).await;
        let made = store.compactions(&principal(&place, "ada"), &child.session_id).await.unwrap();
        assert_eq!(made, [(turn_id(&place, 1), turn_id(&place, 3))], "the failed one does not count");
        assert_eq!(store.sweep(TOO_OLD).await.unwrap().turns, 0);
        commit(&place, &mut child, in_state(TurnState::Completed)).await;
        assert_eq!(store.sweep(TOO_OLD).await.unwrap().turns, 4);
    }
}
