//! What a client names is found only for its principal.

use std::slice::from_ref;

use contract::ids::CallId;
use contract::scope::Scope;
use store::{
    Change, Durability, Entry, EntryKind, NewDelivery, NewTurn, RunState, SessionFilter, SessionSummary, TurnChange,
    TurnState,
};

use super::{commit, create, delivery, everything, in_state, new_turn, principal, response, turn_id};
use crate::world::{NOW, everywhere};

#[tokio::test]
async fn rows_of_another_principal_are_as_unknown_as_missing_ones() {
    for place in everywhere().await {
        let held = create(&place, 1, everything(&place, "call_a")).await;
        let (ada, bob) = (principal(&place, "ada"), principal(&place, "bob"));
        let calls = ["call_a".to_owned(), "call_unknown".to_owned()];
        let id = format!("resp-call_a-{}", place.name);
        let store = &place.store;
        for (who, found) in [(&ada, true), (&bob, false)] {
            assert_eq!(store.deliveries(who, &calls).await.unwrap().len(), usize::from(found), "{who}");
            assert_eq!(store.response(who, &id).await.unwrap().is_some(), found, "{who}");
            assert_eq!(store.response_of_item(who, "item-call_a").await.unwrap().is_some(), found, "{who}");
            assert_eq!(store.turn_by_request(who, "digest-1", 0).await.unwrap().is_some(), found, "{who}");
            let turn = store.turn_by_conversation(who, &held.agent_id, "talk-call_a").await.unwrap();
            assert_eq!(turn.is_some(), found, "{who}");
        }
        assert!(!store.delete_response(&bob, &id).await.unwrap());
        assert!(store.response(&ada, &id).await.unwrap().is_some());
        assert_eq!(store.turn_by_conversation(&ada, "another agent", "talk-call_a").await.unwrap(), None);
        // Both principals may use the same call id, digest and item id for turns of their own.
        let of_bob = NewTurn { principal: bob.clone(), ..new_turn(&place, 2) };
        let mut change = everything(&place, "call_a");
        change.response = Some(response("resp-of-bob", "\"bob\"", &["item-call_a"]));
        change.deliveries[0].call = CallId(8);
        store.create_turn(&of_bob, &change, "one", NOW + 1000, NOW).await.unwrap();
        for (who, number) in [(&ada, 1), (&bob, 2)] {
            let deliveries = store.deliveries(who, &calls).await.unwrap();
            assert_eq!(deliveries[0].turn_id, turn_id(&place, number));
            let found = store.response_of_item(who, "item-call_a").await.unwrap().unwrap();
            assert_eq!(found.turn_id, turn_id(&place, number));
        }
    }
}

#[tokio::test]
async fn a_call_keeps_the_time_of_its_first_answer_and_only_its_own_turn_answers_it() {
    for place in everywhere().await {
        let calls = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let delivers = TurnChange {
            deliveries: vec![delivery(&place, "a", 1), delivery(&place, "b", 2)],
            ..TurnChange::default()
        };
        let mut held = create(&place, 1, delivers).await;
        let mut other = create(&place, 2, TurnChange::default()).await;
        let answers = |names: &[&str]| TurnChange { answered: calls(names), ..TurnChange::default() };
        commit(&place, &mut other, answers(&["a", "b"])).await;
        place.store.commit_turn(&mut held, &answers(&["a", "x"]), Durability::Synced, NOW + 5).await.unwrap();
        place.store.commit_turn(&mut held, &answers(&["a"]), Durability::Synced, NOW + 9).await.unwrap();
        let rows = place.store.deliveries_of_turn(&held.turn_id).await.unwrap();
        let answered: Vec<_> = rows.iter().map(|row| (row.call_id.as_str(), row.round, row.answered_at)).collect();
        assert_eq!(answered, [("a", 1, Some(NOW + 5)), ("b", 2, None)]);
        let run_id = rows[0].run_id.clone();
        assert_eq!(place.store.turns_of_run(&run_id).await.unwrap(), [held.turn_id.clone()]);
        // An id that the principal already has is refused, and the change with it.
        let again = NewDelivery { call: CallId(8), ..delivery(&place, "a", 3) };
        let twice = TurnChange { deliveries: vec![again], ..super::steps(&["{}"]) };
        assert!(place.store.commit_turn(&mut other, &twice, Durability::Synced, NOW).await.is_err());
        assert_eq!(super::bodies(&place, 2).await, Vec::<String>::new());
        commit(&place, &mut other, super::steps(&["after"])).await;
    }
}

#[tokio::test]
async fn a_request_finds_its_newest_turn_while_it_runs_and_for_a_while_after() {
    for place in everywhere().await {
        let ada = principal(&place, "ada");
        let repeated = |number: u32| NewTurn { request_digest: "same".to_owned(), ..new_turn(&place, number) };
        let mut first =
            place.store.create_turn(&repeated(1), &TurnChange::default(), "one", NOW + 1000, NOW).await.unwrap();
        let found =
            async |since| place.store.turn_by_request(&ada, "same", since).await.unwrap().map(|row| row.turn_id);
        assert_eq!(found(NOW + 9_999).await, Some(turn_id(&place, 1)), "a running turn is found at any time");
        commit(&place, &mut first, in_state(TurnState::Completed)).await;
        assert_eq!(found(NOW).await, Some(turn_id(&place, 1)));
        assert_eq!(found(NOW + 1).await, None);
        place.store.create_turn(&repeated(2), &TurnChange::default(), "one", NOW + 1000, NOW + 1).await.unwrap();
        assert_eq!(found(NOW).await, Some(turn_id(&place, 2)));
    }
}

#[tokio::test]
async fn a_newer_turn_replaces_the_conversation_and_the_response_of_its_own() {
    for place in everywhere().await {
        let ada = principal(&place, "ada");
        let talks = || TurnChange { conversations: vec!["d".to_owned(), "d".to_owned()], ..TurnChange::default() };
        let mut first = create(&place, 1, talks()).await;
        create(&place, 2, talks()).await;
        let turn = place.store.turn_by_conversation(&ada, &first.agent_id, "d").await.unwrap();
        assert_eq!(turn, Some(turn_id(&place, 2)));
        let id = format!("resp-{}", place.name);
        let responds = |body: &str| TurnChange {
            response: Some(response(&id, body, &["i1", "i2", "i1"])),
            ..TurnChange::default()
        };
        commit(&place, &mut first, responds("1")).await;
        commit(&place, &mut first, responds("2")).await;
        assert_eq!(place.store.response(&ada, &id).await.unwrap().unwrap().body, "2");
        // Another turn cannot overwrite it, and writes nothing.
        let other = place.store.create_turn(&new_turn(&place, 3), &responds("3"), "one", NOW, NOW).await;
        assert!(other.is_err(), "{other:?}");
        assert_eq!(place.store.turn(&turn_id(&place, 3)).await.unwrap(), None);
        assert_eq!(place.store.response_of_item(&ada, "i2").await.unwrap().unwrap().body, "2");
        assert!(place.store.delete_response(&ada, &id).await.unwrap());
        assert!(!place.store.delete_response(&ada, &id).await.unwrap());
        assert_eq!(place.store.response_of_item(&ada, "i2").await.unwrap(), None);
    }
}

#[tokio::test]
async fn sessions_are_listed_with_their_turns_last_changed_first() {
    for place in everywhere().await {
        let at = |number: u32, session: &str, who: &str| NewTurn {
            session_id: format!("{session}-{}", place.name),
            principal: principal(&place, who),
            ..new_turn(&place, number)
        };
        let turns = [at(1, "s1", "ada"), at(2, "s2", "bob"), at(3, "s1", "ada")];
        for (turn, now) in turns.iter().zip(NOW..) {
            place.store.create_turn(turn, &TurnChange::default(), "one", now, now).await.unwrap();
        }
        let summary = |turn: &NewTurn, turns, first_at, last_at| SessionSummary {
            session_id: turn.session_id.clone(),
            agent_id: turn.agent_id.clone(),
            principal: turn.principal.clone(),
            turns,
            first_at,
            last_at,
        };
        let (of_ada, of_bob) = (summary(&turns[0], 2, NOW, NOW + 2), summary(&turns[1], 1, NOW + 1, NOW + 1));
        let listed =
            async |filter: SessionFilter, limit, before| place.store.sessions(&filter, limit, before).await.unwrap();
        let all = SessionFilter::default;
        assert_eq!(listed(all(), 9, None).await, [of_ada.clone(), of_bob.clone()]);
        assert_eq!(listed(all(), 1, None).await, from_ref(&of_ada));
        assert_eq!(listed(all(), 9, Some(NOW + 2)).await, from_ref(&of_bob));
        let of = |who: &str| SessionFilter { principal: Some(principal(&place, who)), ..all() };
        assert_eq!(listed(of("bob"), 9, None).await, [of_bob]);
        let agent = SessionFilter { agent: Some(turns[0].agent_id.clone()), ..of("ada") };
        assert_eq!(listed(agent, 9, None).await, [of_ada]);
        assert_eq!(listed(SessionFilter { agent: Some("none".to_owned()), ..all() }, 9, None).await, []);
        let ids: Vec<_> = place.store.turns_of_session(&turns[0].session_id).await.unwrap();
        let ids: Vec<_> = ids.into_iter().map(|row| row.turn_id).collect();
        assert_eq!(ids, [turn_id(&place, 1), turn_id(&place, 3)]);
    }
}

#[tokio::test]
async fn transcript_entries_of_a_turn_have_its_id_and_their_own_kinds() {
    for place in everywhere().await {
        let kinds = [EntryKind::UserMessage, EntryKind::ModelMessage, EntryKind::TurnNote];
        let entry = |kind| Entry { at: NOW, kind, entry: serde_json::json!({"usage": {"outputTokens": 3}}) };
        let held =
            create(&place, 1, TurnChange { transcript: kinds.map(entry).to_vec(), ..TurnChange::default() }).await;
        let read = place.store.transcript(&held.session_id).await.unwrap();
        assert_eq!(read.iter().map(|entry| entry.kind).collect::<Vec<_>>(), kinds);
        for entry in &read {
            assert_eq!(entry.entry["turnId"], held.turn_id.as_str());
            assert_eq!(entry.entry["usage"]["outputTokens"], 3);
        }
        let exported = place.store.export(&held.session_id).await.unwrap();
        for kind in ["user_message", "model_message", "turn_note"] {
            assert!(exported.contains(&format!("\"kind\":\"{kind}\"")), "{exported}");
        }
    }
}

#[tokio::test]
async fn a_control_call_finds_the_newest_run_that_it_started_in_its_scope() {
    for place in everywhere().await {
        for (number, now) in [(2, NOW), (1, NOW + 5)] {
            let mut held = place.new_run(number);
            let change = Change { state: Some(RunState::Completed), ..Change::default() };
            place.store.commit(&mut held, &change, Durability::Relaxed, now).await.unwrap();
        }
        let found = async |scope: &Scope, id: &str| place.store.run_of_tool_call(scope, id).await.unwrap();
        let scope = place.scope();
        assert_eq!(found(&scope, "exec-1").await, Some(place.new_run(1).run_id));
        assert_eq!(found(&scope, "exec-2").await, None);
        for other in [
            Scope { agent_id: "other".to_owned(), ..scope.clone() },
            Scope { session_id: "other".to_owned(), ..scope.clone() },
            Scope { agent_run_id: "other".to_owned(), ..scope.clone() },
        ] {
            assert_eq!(found(&other, "exec-1").await, None);
        }
    }
}
