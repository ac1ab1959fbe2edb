//! Usage of models, and messages between the processes that share turns.

use contract::limits::{MAX_TURN_MESSAGES, MODEL_USAGE_DAYS};
use store::{ModelUse, TurnChange, TurnMessage, TurnMessageKind, TurnState, UsageFilter, UsageGroup};

use super::{commit, create, in_state, principal, steps, turn_id};
use crate::world::{NOW, Place, everywhere};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

fn used(model: &str, is_first: bool) -> TurnChange {
    let model_use = ModelUse {
        model: model.to_owned(),
        is_first,
        input_tokens: 10,
        output_tokens: 3,
        cache_read_tokens: 2,
        cache_write_tokens: u64::MAX,
    };
    TurnChange { model_use: Some(model_use), ..steps(&["{}"]) }
}

#[tokio::test]
async fn usage_that_is_too_old_is_deleted_and_the_rest_is_summed_up() {
    for place in everywhere().await {
        let mut held = create(&place, 1, steps(&["{}"])).await;
        commit(&place, &mut held, used("p/one", true)).await;
        commit(&place, &mut held, used("p/two", false)).await;
        commit(&place, &mut held, used("p/two", false)).await;
        let filter = UsageFilter { principal: Some(principal(&place, "ada")), ..UsageFilter::default() };
        let totals = async |group| place.store.model_usage(&filter, group, 10).await.unwrap();
        let models = totals(UsageGroup::Model).await;
        let shown: Vec<(&str, u64, u64, u64)> =
            models.iter().map(|one| (one.key.as_str(), one.turns, one.calls, one.input_tokens)).collect();
        assert_eq!(shown, [("p/one", 1, 1, 10), ("p/two", 0, 2, 20)]);
        let days = totals(UsageGroup::Day).await;
        assert_eq!((days.len(), days[0].key.as_str(), days[0].calls), (1, (NOW / DAY_MS).to_string().as_str(), 3));
        let after = UsageFilter { after: Some("p/one".to_owned()), ..filter.clone() };
        assert_eq!(place.store.model_usage(&after, UsageGroup::Model, 10).await.unwrap(), models[1..]);
        let later = UsageFilter { since: NOW + DAY_MS, ..filter.clone() };
        assert!(place.store.model_usage(&later, UsageGroup::Day, 10).await.unwrap().is_empty());
        place.store.sweep(NOW + MODEL_USAGE_DAYS * DAY_MS).await.unwrap();
        assert_eq!(totals(UsageGroup::Day).await.len(), 1);
        place.store.sweep(NOW + (MODEL_USAGE_DAYS + 1) * DAY_MS).await.unwrap();
        assert!(totals(UsageGroup::Day).await.is_empty());
    }
}

fn message(place: &Place, number: usize) -> TurnMessage {
    let (message_id, body) = (format!("m{number:03}"), "[]".to_owned());
    TurnMessage { turn_id: turn_id(place, 1), message_id, kind: TurnMessageKind::Steer, body }
}

#[tokio::test]
async fn a_turn_with_too_many_messages_gets_no_more_until_it_has_taken_some() {
    for place in everywhere().await {
        let mut held = create(&place, 1, steps(&["{}"])).await;
        for number in 0..MAX_TURN_MESSAGES {
            assert!(place.store.add_turn_message(&message(&place, number), NOW).await.unwrap());
        }
        assert!(!place.store.add_turn_message(&message(&place, 999), NOW).await.unwrap());
        let found = place.store.turn_messages("one").await.unwrap();
        let own: Vec<&TurnMessage> = found.iter().filter(|one| one.turn_id == held.turn_id).collect();
        assert_eq!((own.len(), own[0]), (MAX_TURN_MESSAGES, &message(&place, 0)));
        assert!(place.store.turn_messages("another").await.unwrap().iter().all(|one| one.turn_id != held.turn_id));
        commit(&place, &mut held, TurnChange { messages: vec!["m000".to_owned()], ..steps(&["{}"]) }).await;
        assert!(place.store.add_turn_message(&message(&place, 999), NOW).await.unwrap());
        commit(&place, &mut held, in_state(TurnState::Completed)).await;
        let left = place.store.turn_messages("one").await.unwrap();
        assert!(left.iter().all(|one| one.turn_id != held.turn_id), "the end of a turn deletes its messages");
        assert!(!place.store.add_turn_message(&message(&place, 1), NOW).await.unwrap());
    }
}
