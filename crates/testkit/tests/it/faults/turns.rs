//! Turns of the gateway on a Postgres server that loses the answers to commits.

use store::{CommitError, Durability, Keys, Location, NewDelivery, NewStep, NewTurn, Store, TurnChange, TurnState};
use testkit::postgres::Server;
use testkit::proxy::Proxy;

const NOW: i64 = 1_000_000;
const TURNS: usize = 4;
const STEPS: usize = 30;

fn new_turn(number: usize) -> NewTurn {
    NewTurn {
        turn_id: format!("turn_{number}").into(),
        principal: "ada".to_owned(),
        agent_id: "agent".to_owned(),
        session_id: format!("session_{number}"),
        parent: None,
        wire: "chat".to_owned(),
        request_digest: number.to_string(),
        expires_at: i64::MAX,
    }
}

/// Returns a change with one step and one delivery.
fn asks(turn: usize, step: usize) -> TurnChange {
    let delivery = NewDelivery {
        call_id: format!("call_{turn}_{step}"),
        run_id: format!("cm_{turn}").into(),
        call: contract::ids::CallId(1),
        round: u32::try_from(step).unwrap(),
    };
    let written = NewStep { kind: "delivered".to_owned(), body: step.to_string() };
    TurnChange { steps: vec![written], deliveries: vec![delivery], ..TurnChange::default() }
}

async fn open(url: String) -> Store {
    Store::open(&Location::Postgres(url), Keys::new(1, [7; 32])).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_turn_with_a_lost_answer_is_found_and_not_repeated() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(&server.socket()).unwrap();
    let (direct, through) = (open(server.url()).await, open(proxy.url()).await);
    // The first changes create the turns, so some of those answers are lost, too.
    proxy.cut_every(2);
    for turn in 0..TURNS {
        let mut held = through.create_turn(&new_turn(turn), &asks(turn, 0), "one", i64::MAX, NOW).await.unwrap();
        for step in 1..STEPS {
            through.commit_turn(&mut held, &asks(turn, step), Durability::Synced, NOW).await.unwrap();
            assert_eq!(held.next_step() as usize, step + 1);
        }
        let bodies = direct.turn_steps(&held.turn_id).await.unwrap().into_iter().map(|step| step.body);
        assert_eq!(bodies.collect::<Vec<_>>(), (0..STEPS).map(|step| step.to_string()).collect::<Vec<_>>());
        assert_eq!(direct.deliveries_of_turn(&held.turn_id).await.unwrap().len(), STEPS);
        // A change without rows of its own is found, too.
        let end = TurnChange { state: Some(TurnState::Completed), ..TurnChange::default() };
        through.commit_turn(&mut held, &end, Durability::Synced, NOW).await.unwrap();
        assert_eq!(direct.turn(&held.turn_id).await.unwrap().unwrap().state, TurnState::Completed);
    }
    assert!(proxy.cuts() > 10, "only {} answers were lost", proxy.cuts());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_answers_are_lost_does_not_overwrite_a_taker() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(&server.socket()).unwrap();
    let (direct, through) = (open(server.url()).await, open(proxy.url()).await);
    let mut held = through.create_turn(&new_turn(0), &asks(0, 0), "one", NOW, NOW).await.unwrap();
    let mut taken = direct.take_turn(&held.turn_id, "two", NOW + 1, i64::MAX).await.unwrap();
    direct.commit_turn(&mut taken, &asks(0, 1), Durability::Synced, NOW).await.unwrap();
    proxy.cut_every(1);
    let late = through.commit_turn(&mut held, &asks(0, 2), Durability::Synced, NOW).await;
    assert!(matches!(late, Err(CommitError::Fenced)), "{late:?}");
    assert_eq!(direct.turn_steps(&held.turn_id).await.unwrap().len(), 2);
}
