//! Runs random operations on the real store and on the model's row, and checks that both give the same answers and
//! rows.

use contract::ids::{CallId, RunId};
use store::{CallState, CommitError, Durability, FencedRun, LeaseError, NewRun, RunState, SettleError};

use super::row::{self, ALL_RULES, Call, End, Outcome, Row};
use crate::world::{NOW, Place, call, everywhere};

const WALKS: u64 = 15;
const STEPS: u64 = 40;
const LEASE: i64 = 1000;

/// A random walk with two holders; each has the model's and the store's handle to the run.
struct Walk<'a> {
    place: &'a Place,
    row: Row,
    now: i64,
    holders: [Option<(row::Held, FencedRun)>; 2],
    taken: u32,
    seed: u64,
}

impl Walk<'_> {
    fn chance(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    async fn step(&mut self) {
        let (holder, number) = (self.chance(2) as usize, self.chance(2) as usize);
        match self.chance(8) {
            0 | 1 => self.commit(holder, row::Change::Intend(number)).await,
            2 => self.commit(holder, row::Change::Park(number)).await,
            3 if self.chance(6) == 0 => self.commit(holder, row::Change::End(End::Aborted)).await,
            3 => self.now += LEASE + 1,
            4 => self.take(holder).await,
            5 => self.extend_lease(holder).await,
            6 if self.chance(8) == 0 => self.expire().await,
            6 => self.take_forcibly(holder).await,
            _ => self.settle(number).await,
        }
        self.check_rows().await;
    }

    async fn commit(&mut self, holder: usize, change: row::Change) {
        self.row.leased &= self.lease_lasts().await;
        let Some((rules, held)) = &mut self.holders[holder] else { return };
        let written = match change {
            row::Change::Intend(number) => {
                let calls = vec![call(number as u32, CallState::Dispatched)];
                store::Change { calls, ..store::Change::default() }
            }
            row::Change::Park(number) => {
                let calls = vec![call(number as u32, CallState::Parked)];
                store::Change { calls, ..store::Change::default() }
            }
            row::Change::End(_) => store::Change { state: Some(RunState::Aborted), ..store::Change::default() },
        };
        let expected = self.row.commit(&ALL_RULES, *rules, change);
        let answer = self.place.store.commit(held, &written, Durability::Relaxed, self.now).await;
        assert_eq!(answer.is_ok(), expected, "{change:?}: {answer:?}");
        assert!(expected || matches!(answer, Err(CommitError::Fenced)), "{answer:?}");
        rules.sequence += u8::from(expected);
    }

    async fn take(&mut self, holder: usize) {
        self.row.leased &= self.lease_lasts().await;
        let expected = self.row.take();
        let until = self.now + LEASE;
        let name = self.name();
        let taken = self.place.store.take(&self.run_id(), &name, self.now, until).await;
        self.check_taken(holder, expected, taken);
    }

    async fn take_forcibly(&mut self, holder: usize) {
        let expected = self.row.take_forcibly();
        let until = self.now + LEASE;
        let name = self.name();
        let taken = self.place.store.take_forcibly(&self.run_id(), &name, until).await;
        self.check_taken(holder, expected, taken);
    }

    fn check_taken(&mut self, holder: usize, expected: Option<row::Held>, taken: Result<FencedRun, LeaseError>) {
        assert_eq!(taken.is_ok(), expected.is_some(), "{taken:?}");
        if let (Some(rules), Ok(held)) = (expected, taken) {
            self.holders[holder] = Some((rules, held));
        }
    }

    async fn extend_lease(&mut self, holder: usize) {
        self.row.leased &= self.lease_lasts().await;
        let Some((rules, held)) = &self.holders[holder] else { return };
        // No other process can have taken over a run that is not stored yet.
        let expected = self.row.prolong(&ALL_RULES, *rules) || !held.is_written();
        assert_eq!(self.place.store.extend_lease(held, self.now + LEASE).await.unwrap(), expected);
    }

    async fn expire(&mut self) {
        self.row.leased &= self.lease_lasts().await;
        self.row.expire(&ALL_RULES);
        // This may also expire runs of earlier walks.
        self.place.store.expire(self.now).await.unwrap();
    }

    async fn settle(&mut self, number: usize) {
        let expected = self.row.settle(number, Outcome::Given);
        let settled = self.place.store.settle(&self.run_id(), CallId(number as u32), "given").await;
        assert_eq!(settled.is_ok(), expected, "{settled:?}");
        assert!(expected || matches!(settled, Err(SettleError::NotWaiting)), "{settled:?}");
    }

    /// Whether the lease is still valid, read from the stored row by an attempt to take the run that always fails.
    async fn lease_lasts(&self) -> bool {
        let taken = self.place.store.take(&self.run_id(), "", i64::MIN, 0).await;
        match taken {
            Err(LeaseError::HeldElsewhere { until }) => until >= self.now,
            Err(LeaseError::Unknown) => true,
            other => panic!("{other:?}"),
        }
    }

    async fn check_rows(&self) {
        let stored = self.place.store.run(&self.run_id()).await.unwrap();
        assert_eq!(stored.is_some(), self.row.written);
        let state = stored.map(|run| run.state);
        let expected = self.row.written.then_some(match self.row.over {
            None => RunState::Running,
            Some(End::Aborted) => RunState::Aborted,
            Some(End::Expired) => RunState::Expired,
            Some(End::Completed(_)) => RunState::Completed,
        });
        assert_eq!(state, expected);
        let calls = self.place.store.calls(&self.run_id()).await.unwrap();
        for (number, expected) in self.row.calls.iter().enumerate() {
            let stored = calls.iter().find(|call| call.call.0 as usize == number).map(|call| call.state);
            let expected = match expected {
                Call::NotRequested => None,
                Call::Dispatched => Some(CallState::Dispatched),
                Call::Parked => Some(CallState::Parked),
                Call::Settled(_) => Some(CallState::Settled),
            };
            assert_eq!(stored, expected, "call {number}");
        }
    }

    fn run_id(&self) -> RunId {
        format!("cm_{}_{}", self.place.name, self.run_number()).into()
    }

    fn run_number(&self) -> u32 {
        self.taken >> 16
    }

    /// Returns a new holder name each time, because a holder may always take its own run again.
    fn name(&mut self) -> String {
        self.taken += 1;
        format!("taker-{}", self.taken & 0xffff)
    }
}

#[tokio::test]
async fn the_store_follows_the_rules_that_the_model_checks() {
    for place in everywhere().await {
        for number in 0..WALKS as u32 {
            let held = FencedRun::new(NewRun {
                run_id: format!("cm_{}_{number}", place.name).into(),
                scope: place.scope(),
                tool_call_id: "exec-1".to_owned(),
                holder: "first".to_owned(),
                lease_until: NOW + LEASE,
                // Already past its expiry: whether it expires depends only on its lease.
                expires_at: NOW,
                catalog: format!("catalog-{}", place.name),
                tables: std::sync::Arc::from(*b"tables"),
                definition: "{}".to_owned(),
            });
            let first = (row::Held { sequence: 0, fence: 1 }, held);
            let mut walk = Walk {
                place: &place,
                row: Row::NEW,
                now: NOW,
                holders: [Some(first), None],
                taken: number << 16,
                seed: u64::from(number),
            };
            for _ in 0..STEPS {
                walk.step().await;
            }
        }
    }
}
