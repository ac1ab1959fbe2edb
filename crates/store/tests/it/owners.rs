//! Runs are found by the client that started them.

use contract::scope::Scope;
use store::{Change, Durability, RunState};

use crate::world::{NOW, everywhere};

#[tokio::test]
async fn recent_runs_of_a_scope_with_a_client_are_those_that_the_client_started() {
    for place in everywhere().await {
        let scope = |client: &str| Scope { client: client.to_owned(), ..place.scope() };
        for (number, client) in [(1, "one"), (2, "two"), (3, "one"), (4, "")] {
            let mut held = place.new_run_of(number, scope(client));
            let change = Change { state: Some(RunState::Waiting), release: true, ..Change::default() };
            place.store.commit(&mut held, &change, Durability::Synced, NOW).await.unwrap();
            let row = place.store.run(&held.run_id).await.unwrap().unwrap();
            assert_eq!(row.scope.client, client);
            let taken = place.store.take(&held.run_id, "two", NOW, NOW).await.unwrap();
            assert_eq!(taken.scope, scope(client), "another process knows the client, too");
        }
        let found = async |client: &str, limit| {
            let runs = place.store.recent_runs(&scope(client), NOW, limit).await.unwrap();
            let mut numbers: Vec<char> = runs.iter().filter_map(|run| run.run_id.chars().last()).collect();
            numbers.sort_unstable();
            numbers.into_iter().collect::<String>()
        };
        assert_eq!(found("one", 9).await, "13");
        assert_eq!(found("two", 9).await, "2");
        assert_eq!(found("three", 9).await, "");
        assert_eq!(found("", 9).await, "1234", "a scope without a client finds all of its runs");
        assert_eq!(found("one", 1).await.len(), 1);
    }
}
