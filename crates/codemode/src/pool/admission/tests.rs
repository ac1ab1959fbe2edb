use contract::ids::CellId;
use contract::limits::{MAX_QUEUED_CELLS, MAX_QUEUED_SOURCE_BYTES};

use super::{Admission, AdmissionRequest, Capacity, Grant, Principal, QueueFull, WorkerId};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 64 * MIB;
const FIRST: WorkerId = WorkerId(1);
const SECOND: WorkerId = WorkerId(2);

fn capacity(workers: usize) -> Capacity {
    Capacity { workers, slots: 64, turns: 4, heap_bytes: 256 * MIB }
}

/// An admission with its workers up, with shorthands for requests.
struct Pool {
    admission: Admission,
    next: u64,
}

impl Pool {
    fn new(capacity: Capacity) -> Self {
        let mut admission = Admission::new(capacity);
        for worker in 1..=capacity.workers as u64 {
            assert_eq!(admission.worker_up(WorkerId(worker)), []);
        }
        Self { admission, next: 1 }
    }

    fn request(&mut self, principal: &str, request: AdmissionRequest) -> (CellId, Vec<Grant>) {
        let cell = CellId(self.next);
        self.next += 1;
        (cell, self.admission.request(&Principal::from(principal), cell, request, 100).unwrap())
    }

    fn start(&mut self, principal: &str) -> (CellId, Vec<Grant>) {
        self.request(principal, AdmissionRequest::Start { limit: LIMIT })
    }

    fn started(&mut self, principal: &str) -> Grant {
        let (cell, grants) = self.start(principal);
        assert!(matches!(grants[..], [grant] if grant.cell == cell), "{grants:?}");
        grants[0]
    }

    /// Requests this many new cells and returns how many run at once.
    fn running_of(&mut self, principal: &str, cells: usize) -> usize {
        (0..cells).map(|_| self.start(principal).1.len()).sum()
    }

    fn resume(&mut self, principal: &str, Grant { cell, worker }: Grant) -> Vec<Grant> {
        self.admission.request(&Principal::from(principal), cell, AdmissionRequest::Resume { worker }, 0).unwrap()
    }

    fn ended(&mut self, Grant { cell, worker }: Grant, rests_with: Option<u64>) -> Vec<Grant> {
        self.admission.turn_ended(worker, cell, rests_with)
    }

    fn held(&self, worker: WorkerId) -> u64 {
        self.admission.workers[&worker].values().map(|resident| resident.held).sum()
    }
}

#[test]
fn cells_run_while_their_memory_limits_fit_the_heap() {
    for (heap, limit, running) in
        [(256, 64, 4), (256, 65, 3), (256, 128, 2), (256, 200, 1), (256, 256, 1), (256, 1024, 1), (1024, 64, 4)]
    {
        let mut pool = Pool::new(Capacity { heap_bytes: heap * MIB, ..capacity(1) });
        // Each cell has its own principal, so that no share is reached.
        let granted: usize = (0..10)
            .map(|number| pool.request(&format!("p{number}"), AdmissionRequest::Start { limit: limit * MIB }).1.len())
            .sum();
        assert_eq!(granted, running, "{limit} MiB in {heap} MiB");
        assert!(pool.held(FIRST) <= heap * MIB);
    }
}

#[test]
fn one_principal_never_gets_all_turns_memory_or_slots() {
    for (limit, slots, running) in [(64, 64, 2), (1, 64, 3), (128, 64, 1), (200, 64, 1), (1, 2, 1), (1, 1, 1)] {
        let mut pool = Pool::new(Capacity { slots, ..capacity(1) });
        let granted: usize =
            (0..60).map(|_| pool.request("ada", AdmissionRequest::Start { limit: limit * MIB }).1.len()).sum();
        assert_eq!(granted, running, "cells of {limit} MiB in {slots} slots");
    }
    // While all other cells of one principal wait, a cell of another principal still starts at once.
    let mut pool = Pool::new(capacity(2));
    assert_eq!(pool.running_of("ada", 64), 4);
    for _ in 0..100 {
        let bob = pool.started("bob");
        assert_eq!(pool.ended(bob, None), []);
    }
}

#[test]
fn a_principal_with_cells_larger_than_its_share_runs_one_and_leaves_the_other_worker_free() {
    let mut pool = Pool::new(Capacity { heap_bytes: 576 * MIB, ..capacity(2) });
    let large = AdmissionRequest::Start { limit: 512 * MIB };
    assert_eq!((0..8).map(|_| pool.request("ada", large).1.len()).sum::<usize>(), 1);
    assert_eq!(pool.request("bob", large).1.len(), 1);
}

#[test]
fn resting_cells_do_not_take_all_slots() {
    let mut pool = Pool::new(capacity(1));
    let mut resting = 0;
    while let (_, grants) = pool.start("ada")
        && let [grant] = grants[..]
    {
        pool.ended(grant, Some(MIB));
        resting += 1;
    }
    assert_eq!(resting, 48);
    assert!(pool.admission.lacks_room(&"ada".into(), LIMIT));
    assert!(!pool.admission.lacks_room(&"bob".into(), LIMIT));
    pool.started("bob");
}

#[test]
fn principals_that_wait_are_served_in_turn() {
    let mut pool = Pool::new(Capacity { turns: 1, ..capacity(1) });
    let first = pool.started("ada");
    let names = ["ada", "ada", "ada", "bob", "bob", "eve"];
    let cells: Vec<_> = names.map(|name| (pool.start(name).0, name)).into();
    let mut served = Vec::new();
    let mut running = first;
    for _ in names {
        running = pool.ended(running, None)[0];
        served.push(cells.iter().find(|(cell, _)| *cell == running.cell).unwrap().1);
    }
    assert_eq!(served, ["ada", "bob", "eve", "ada", "bob", "ada"]);
}

#[test]
fn started_cells_come_before_new_ones() {
    let mut pool = Pool::new(Capacity { turns: 1, ..capacity(1) });
    let resting = pool.started("ada");
    pool.ended(resting, Some(MIB));
    let running = pool.started("ada");
    let (new, _) = pool.start("ada");
    let (thawed, _) = pool.request("ada", AdmissionRequest::Thaw { limit: LIMIT });
    assert_eq!(pool.resume("ada", resting), []);
    let mut order = Vec::new();
    let mut last = running;
    for _ in 0..3 {
        last = pool.ended(last, None)[0];
        order.push(last.cell);
    }
    assert_eq!(order, [thawed, resting.cell, new]);
}

#[test]
fn a_new_cell_goes_to_the_least_busy_worker() {
    let mut pool = Pool::new(capacity(2));
    assert_eq!(pool.started("ada").worker, FIRST);
    let second = pool.started("ada");
    assert_eq!(second.worker, SECOND);
    pool.ended(second, Some(MIB));
    assert_eq!(pool.started("ada").worker, SECOND);
}

#[test]
fn a_cancelled_request_is_never_granted() {
    let mut pool = Pool::new(Capacity { turns: 1, ..capacity(1) });
    let running = pool.started("ada");
    let (cancelled, _) = pool.start("ada");
    let (other, _) = pool.start("ada");
    pool.admission.cancel(cancelled);
    assert!(!pool.admission.is_waiting(cancelled) && pool.admission.is_waiting(other));
    assert_eq!(pool.ended(running, None), [Grant { cell: other, worker: FIRST }]);
}

#[test]
fn an_unused_turn_leaves_the_cell_as_it_was() {
    let mut pool = Pool::new(capacity(1));
    let cell = pool.started("ada");
    pool.admission.turn_unused(cell.worker, cell.cell);
    assert_eq!(pool.held(FIRST), 0);
    let cell = pool.started("ada");
    pool.ended(cell, Some(5 * MIB));
    assert_eq!(pool.resume("ada", cell), [cell]);
    assert_eq!(pool.held(FIRST), LIMIT);
    pool.admission.turn_unused(cell.worker, cell.cell);
    assert_eq!(pool.held(FIRST), 5 * MIB);
    assert_eq!(pool.resume("ada", cell), [cell]);
}

#[test]
fn a_cell_dropped_while_it_runs_holds_its_turn_and_memory_until_its_leg_has_ended() {
    let mut pool = Pool::new(Capacity { turns: 1, ..capacity(1) });
    let dropped = pool.started("ada");
    let (next, _) = pool.start("bob");
    assert_eq!(pool.admission.drop_cell(dropped.worker, dropped.cell), []);
    assert_eq!(pool.held(FIRST), LIMIT);
    // Its leg suspended before the drop reached the worker; the cell is removed all the same.
    assert_eq!(pool.ended(dropped, Some(MIB)), [Grant { cell: next, worker: FIRST }]);
    assert_eq!(pool.held(FIRST), LIMIT);
}

#[test]
fn when_a_worker_ends_its_cells_are_gone_and_the_next_worker_takes_waiting_cells() {
    let mut pool = Pool::new(Capacity { turns: 1, ..capacity(1) });
    let resting = pool.started("ada");
    pool.ended(resting, Some(MIB));
    pool.started("ada");
    assert_eq!(pool.resume("ada", resting), []);
    let (new, _) = pool.start("ada");
    assert_eq!(pool.admission.worker_down(FIRST), []);
    assert!(!pool.admission.is_waiting(resting.cell));
    assert_eq!(pool.admission.worker_up(SECOND), [Grant { cell: new, worker: SECOND }]);
}

#[test]
fn the_queue_of_one_principal_is_bounded_in_cells_and_bytes() {
    let mut pool = Pool::new(Capacity { turns: 1, ..capacity(1) });
    pool.started("ada");
    for _ in 0..MAX_QUEUED_CELLS {
        pool.start("ada");
    }
    let mut request = |principal: &str, request, bytes| {
        pool.next += 1;
        pool.admission.request(&principal.into(), CellId(pool.next), request, bytes).err()
    };
    let start = AdmissionRequest::Start { limit: LIMIT };
    assert_eq!(request("ada", start, 1), Some(QueueFull));
    // A started cell is not refused, and neither is another principal.
    assert_eq!(request("ada", AdmissionRequest::Thaw { limit: LIMIT }, 0), None);
    assert_eq!(request("bob", start, MAX_QUEUED_SOURCE_BYTES), None);
    assert_eq!(request("bob", start, 1), Some(QueueFull));
}

#[test]
fn resting_cells_that_need_more_memory_than_there_is_resume_one_after_another() {
    // Five cells that rest with 30 MiB hold 150 MiB of the 160 that one principal may hold; none could get 64.
    let mut pool = Pool::new(capacity(1));
    let mut cells = Vec::new();
    while let (cell, grants) = pool.start("ada")
        && let [grant] = grants[..]
    {
        pool.ended(grant, Some(30 * MIB));
        cells.push(grant);
        assert!(cells.len() < 10, "{cell:?}");
    }
    // A new cell would have to wait for memory of resting cells.
    assert!(pool.admission.lacks_room(&"ada".into(), LIMIT));
    let waiting = CellId(pool.next - 1);
    pool.admission.cancel(waiting);
    let mut granted: Vec<Grant> = cells.clone().into_iter().flat_map(|cell| pool.resume("ada", cell)).collect();
    let mut finished = 0;
    while let Some(grant) = granted.pop() {
        assert!(pool.held(FIRST) <= 160 * MIB);
        granted.extend(pool.ended(grant, None));
        finished += 1;
    }
    assert_eq!(finished, cells.len());
}

/// A small deterministic generator, so that each failure can be reproduced.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn with_random_requests_memory_stays_bounded_and_all_cells_finish() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let workers = 1 + random.below(3) as usize;
        let capacity = Capacity { workers, slots: 8, turns: 4, heap_bytes: 256 * MIB };
        let mut pool = Pool::new(capacity);
        let limits = [1, 16, 64, 64, 150, 256, 400];
        // A cell, and how many legs it still has.
        let mut legs = std::collections::BTreeMap::new();
        let mut principals = std::collections::BTreeMap::new();
        let mut running: Vec<Grant> = Vec::new();
        let mut resting: Vec<Grant> = Vec::new();
        for _ in 0..60 {
            let principal = ["ada", "bob", "eve"][random.below(3) as usize];
            let limit = limits[random.below(7) as usize] * MIB;
            let (cell, grants) = pool.request(principal, AdmissionRequest::Start { limit });
            legs.insert(cell, 1 + random.below(4));
            principals.insert(cell, principal);
            running.extend(grants);
        }
        while !running.is_empty() || !resting.is_empty() {
            for worker in 1..=workers as u64 {
                assert!(pool.held(WorkerId(worker)) <= capacity.heap_bytes, "seed {seed}");
            }
            let resumes = !resting.is_empty() && (running.is_empty() || random.below(2) == 0);
            let grants = if resumes {
                let cell = resting.swap_remove(random.below(resting.len() as u64) as usize);
                pool.resume(principals[&cell.cell], cell)
            } else {
                let cell = running.swap_remove(random.below(running.len() as u64) as usize);
                let left = legs.get_mut(&cell.cell).unwrap();
                *left -= 1;
                if *left == 0 {
                    legs.remove(&cell.cell);
                    pool.ended(cell, None)
                } else {
                    resting.push(cell);
                    pool.ended(cell, Some(random.below(500) * MIB))
                }
            };
            running.extend(grants);
        }
        assert!(legs.is_empty(), "seed {seed}: {} cells wait for ever", legs.len());
    }
}
