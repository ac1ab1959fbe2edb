//! Snapshots that were changed in the database file do not open.

use contract::ids::RunId;
use sqlx::{AnyConnection, Connection, Executor};
use store::{Change, Durability, Location, RunRow, SealError, Store};

use crate::world::{NOW, Place, everywhere, keys};

const CASES: u64 = 10_000;
const RUNS: usize = 16;

/// A deterministic pseudorandom number generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// The stored rows of a run, now and one leg before.
struct Stored {
    now: RunRow,
    before: RunRow,
}

async fn stored(place: &Place, number: u32) -> Stored {
    let memory = |leg: u8| (0..400).map(|byte| (byte as u8).wrapping_mul(leg + number as u8)).collect::<Vec<u8>>();
    let frozen = |leg: u8| Change { snapshot: Some((i64::from(leg), memory(leg))), ..Change::default() };
    let mut held = place.run(number, frozen(1)).await;
    let before = place.store.run(&held.run_id).await.unwrap().unwrap();
    let mut last = frozen(2);
    last.release = true;
    place.store.commit(&mut held, &last, Durability::Relaxed, NOW).await.unwrap();
    Stored { now: place.store.run(&held.run_id).await.unwrap().unwrap(), before }
}

/// Returns a tampered row. Every kind of change differs from the stored row.
fn tampered(kind: u64, own: &Stored, other: &Stored, chance: &mut Chance) -> RunRow {
    let mut row = own.now.clone();
    let mut bytes = row.snapshot.clone().unwrap();
    match kind {
        0..=3 => {
            let place = chance.below(bytes.len());
            bytes[place] ^= 1 << chance.below(8);
        }
        4 => bytes.truncate(chance.below(bytes.len())),
        5 => bytes.push(chance.below(256) as u8),
        // Another run's snapshot, of the same leg and of an earlier one.
        6 => bytes = other.now.snapshot.clone().unwrap(),
        7 => bytes = other.before.snapshot.clone().unwrap(),
        // The run's own earlier snapshot.
        8 => bytes = own.before.snapshot.clone().unwrap(),
        // The right bytes with another leg, session, agent or definition.
        9 => row.snapshot_leg = Some(1),
        10 => row.scope.session_id += "x",
        11 => row.scope.agent_id = "other".to_owned(),
        12 => row.definition = "{ }".to_owned(),
        // The start of one snapshot and the end of another.
        _ => {
            let place = 30 + chance.below(bytes.len() - 30);
            let theirs = other.now.snapshot.clone().unwrap();
            bytes.truncate(place);
            bytes.extend_from_slice(&theirs[place..]);
        }
    }
    row.snapshot = Some(bytes);
    row
}

async fn put(connection: &mut AnyConnection, row: &RunRow) {
    sqlx::query(
        "UPDATE runs SET snapshot = $1, snapshot_leg = $2, session_id = $3, agent_id = $4, definition = $5, \
         lease_until = 0 WHERE run_id = $6",
    )
    .bind(row.snapshot.clone())
    .bind(row.snapshot_leg)
    .bind(row.scope.session_id.clone())
    .bind(row.scope.agent_id.clone())
    .bind(row.definition.clone())
    .bind(row.run_id.to_string())
    .execute(connection)
    .await
    .unwrap();
}

/// Opens the snapshot as a process that resumes the run does.
async fn opened(store: &Store, run_id: &RunId) -> Result<Option<Vec<u8>>, SealError> {
    let held = store.take(run_id, "taker", NOW, NOW).await.unwrap();
    let row = store.run(run_id).await.unwrap().unwrap();
    store.open_snapshot(&held, &row)
}

#[tokio::test]
async fn of_ten_thousand_tampered_snapshots_none_opens() {
    let places = everywhere().await;
    let place = places.iter().find(|place| matches!(place.location, Location::File(_))).unwrap();
    let Location::File(path) = &place.location else { return };
    let mut connection = AnyConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    connection.execute("PRAGMA synchronous = OFF; PRAGMA busy_timeout = 10000").await.unwrap();
    let store = Store::open(&place.location, keys()).await.unwrap();
    let mut runs = Vec::new();
    for number in 0..RUNS as u32 {
        runs.push(stored(place, number).await);
    }
    let mut chance = Chance(0x9E37_79B9_7F4A_7C15);
    for case in 0..CASES {
        let one = chance.below(RUNS);
        let another = (one + 1 + chance.below(RUNS - 1)) % RUNS;
        let row = tampered(case % 14, &runs[one], &runs[another], &mut chance);
        put(&mut connection, &row).await;
        let opened = opened(&store, &row.run_id).await;
        let closed = matches!(opened, Err(SealError::Damaged | SealError::UnknownKey { .. }));
        assert!(closed, "{opened:?}, case {case}, kind {}", case % 14);
        put(&mut connection, &runs[one].now).await;
    }
    // The original rows still open, so it was the tampering that was detected.
    for run in &runs {
        assert!(matches!(opened(&store, &run.now.run_id).await, Ok(Some(_))));
    }
}
