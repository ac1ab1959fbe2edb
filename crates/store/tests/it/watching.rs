//! How soon others hear of what was written.

use std::time::{Duration, Instant};

use store::{Change, Durability, RunChange, RunState};

use crate::world::{NOW, everywhere};

const TRIES: usize = 9;

/// Half of all times are at most this, also on a busy machine.
const NOTICED: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn another_process_hears_of_a_change_within_a_second() {
    for place in everywhere().await.into_iter().skip(1) {
        let other = place.again().await;
        let mut watch = other.watch();
        // The first word is that there may be something; from then on it listens.
        assert_eq!(watch.next().await, RunChange::Perhaps);
        let mut took = Vec::new();
        for number in 0..TRIES as u32 {
            let mut held = place.new_run(number);
            let change = Change { state: Some(RunState::Waiting), release: true, ..Change::default() };
            place.store.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
            let began = Instant::now();
            loop {
                // What names another run is old; what names none is a reason to look.
                let news = watch.next().await;
                let is_of_it = news == RunChange::Perhaps || news == RunChange::Of(held.run_id.clone());
                if is_of_it && other.run(&held.run_id).await.unwrap().is_some() {
                    break;
                }
            }
            took.push(began.elapsed());
        }
        took.sort();
        assert!(took[TRIES / 2] < NOTICED, "{took:?} at {}", place.location);
    }
}
