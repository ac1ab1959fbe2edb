//! How soon other processes notice a change.

use std::time::{Duration, Instant};

use store::{Change, Durability, RunChange, RunState};

use crate::world::{NOW, everywhere};

const TRIES: usize = 9;

/// The limit for the median, also on a busy machine.
const MAX_MEDIAN: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn another_process_notices_a_change_within_a_second() {
    for place in everywhere().await.into_iter().skip(1) {
        let other = place.reopen().await;
        let mut watch = other.watch();
        // The first call connects and reports a possible change; later calls wait.
        assert_eq!(watch.next().await, RunChange::Unknown);
        let mut delays = Vec::new();
        for number in 0..TRIES as u32 {
            let mut held = place.new_run(number);
            let change = Change { state: Some(RunState::Waiting), release: true, ..Change::default() };
            place.store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
            let began = Instant::now();
            loop {
                // A change of another run is from an earlier round.
                let change = watch.next().await;
                let may_be_ours = change == RunChange::Unknown || change == RunChange::Run(held.run_id.clone());
                if may_be_ours && other.run(&held.run_id).await.unwrap().is_some() {
                    break;
                }
            }
            delays.push(began.elapsed());
        }
        delays.sort();
        assert!(delays[TRIES / 2] < MAX_MEDIAN, "{delays:?} at {}", place.location);
    }
}
