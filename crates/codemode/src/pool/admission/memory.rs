//! Checks that all cells can finish with the available heap: the banker's algorithm.
//!
//! Three sums are bounded: the memory of all cells in one worker, the memory of one principal's cells in one worker,
//! and their memory in all workers. The last matters if one cell may take more than a principal's share of a worker.

use std::collections::BTreeMap;

use super::{Capacity, Principal, WorkerId};

/// The memory that a cell holds now, and the most that it may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding<'a> {
    pub(super) principal: &'a Principal,
    pub(super) worker: WorkerId,
    pub(super) held: u64,
    pub(super) limit: u64,
}

/// How much is left under each bound. Signed, because cells may hold more than a bound that has become smaller.
#[derive(Debug, Default)]
struct Free<'a> {
    in_worker: BTreeMap<WorkerId, i128>,
    of_principal_in_worker: BTreeMap<(&'a str, WorkerId), i128>,
    of_principal: BTreeMap<&'a str, i128>,
}

/// Returns whether these cells fit, and can all reach their limits one after another, each freeing its memory when it
/// is done.
pub(super) fn is_safe<'a>(capacity: &Capacity, cells: impl Iterator<Item = Holding<'a>>) -> bool {
    let mut unfinished: Vec<Holding<'a>> = cells.collect();
    let mut free = Free::of(capacity, &unfinished);
    if !free.is_within_bounds() {
        return false;
    }
    // Sorted like this, one pass is usually enough.
    unfinished.sort_by_key(|cell| cell.limit.saturating_sub(cell.held));
    while !unfinished.is_empty() {
        let before = unfinished.len();
        unfinished.retain(|cell| {
            let can_finish = i128::from(cell.limit.saturating_sub(cell.held)) <= free.least_for(cell);
            if can_finish {
                free.add(cell, i128::from(cell.held));
            }
            !can_finish
        });
        if unfinished.len() == before {
            return false;
        }
    }
    true
}

impl<'a> Free<'a> {
    fn of(capacity: &Capacity, cells: &[Holding<'a>]) -> Self {
        let mut free = Self::default();
        let share = capacity.heap_share();
        let pool_share = share.saturating_mul(capacity.workers as u64);
        for cell in cells {
            // A cell whose limit is larger than the share can run, but no other cell of its principal beside it.
            let largest =
                |others: &mut dyn Iterator<Item = &Holding<'a>>| others.map(|one| one.limit).max().unwrap_or(0);
            let own = || cells.iter().filter(|one| one.principal == cell.principal);
            let principal: &str = cell.principal;
            free.in_worker.entry(cell.worker).or_insert(i128::from(capacity.heap_bytes));
            free.of_principal_in_worker
                .entry((principal, cell.worker))
                .or_insert_with(|| share.max(largest(&mut own().filter(|one| one.worker == cell.worker))).into());
            free.of_principal.entry(principal).or_insert_with(|| pool_share.max(largest(&mut own())).into());
        }
        for cell in cells {
            free.add(cell, -i128::from(cell.held));
        }
        free
    }

    fn is_within_bounds(&self) -> bool {
        let all = self.in_worker.values().chain(self.of_principal_in_worker.values()).chain(self.of_principal.values());
        all.into_iter().all(|free| *free >= 0)
    }

    fn least_for(&self, cell: &Holding<'a>) -> i128 {
        let principal: &str = cell.principal;
        let bounds = [
            self.in_worker.get(&cell.worker),
            self.of_principal_in_worker.get(&(principal, cell.worker)),
            self.of_principal.get(principal),
        ];
        bounds.into_iter().flatten().copied().min().unwrap_or(0)
    }

    fn add(&mut self, cell: &Holding<'a>, bytes: i128) {
        let principal: &str = cell.principal;
        *self.in_worker.entry(cell.worker).or_default() += bytes;
        *self.of_principal_in_worker.entry((principal, cell.worker)).or_default() += bytes;
        *self.of_principal.entry(principal).or_default() += bytes;
    }
}
