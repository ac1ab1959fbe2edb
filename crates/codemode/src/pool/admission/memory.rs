//! Checks that all cells can finish with the available heap: the banker's algorithm.
//!
//! Three sums are bounded: the memory of all cells in one worker, the memory of one principal's cells in one worker,
//! and their memory in all workers. The last matters if one cell may take more than a principal's share of a worker.

use std::collections::BTreeMap;

use super::{Capacity, Principal, WorkerId};

/// The memory that a cell holds now, and the most that it may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldMemory<'a> {
    pub(super) principal: &'a Principal,
    pub(super) worker: WorkerId,
    pub(super) held: u64,
    pub(super) limit: u64,
}

/// How much is left under each bound. Signed, because cells may hold more than a bound that has become smaller.
#[derive(Debug, Default)]
struct FreeMemory<'a> {
    in_worker: BTreeMap<WorkerId, i128>,
    of_principal_in_worker: BTreeMap<(&'a str, WorkerId), i128>,
    of_principal: BTreeMap<&'a str, i128>,
}

/// Returns whether these cells fit, and can all reach their limits one after another, each freeing its memory when it
/// is done.
pub(super) fn is_safe<'a>(capacity: &Capacity, cells: impl Iterator<Item = HeldMemory<'a>>) -> bool {
    let cells: Vec<HeldMemory<'a>> = cells.collect();
    quick_verdict(capacity, &cells).unwrap_or_else(|| all_can_finish(capacity, cells))
}

fn all_can_finish<'a>(capacity: &Capacity, mut unfinished: Vec<HeldMemory<'a>>) -> bool {
    let mut free = FreeMemory::of(capacity, &unfinished);
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

/// The most cells for which [`quick_verdict`] compares each with all others.
const MAX_QUICK_CELLS: usize = 16;

/// Decides the usual cases without building maps, because this runs for every leg: the cells of one worker that do not
/// fit now, or that fit even if all of them reach their limits. `None` for all other cases.
fn quick_verdict(capacity: &Capacity, cells: &[HeldMemory<'_>]) -> Option<bool> {
    let worker = cells.first()?.worker;
    if cells.len() > MAX_QUICK_CELLS || cells.iter().any(|cell| cell.worker != worker) {
        return None;
    }
    let held = cells.iter().fold(0_u64, |sum, cell| sum.saturating_add(cell.held));
    if held > capacity.heap_bytes {
        return Some(false);
    }
    let max = |sum: u64, cell: &HeldMemory<'_>| sum.saturating_add(cell.limit.max(cell.held));
    let own_most = |one: &HeldMemory<'_>| cells.iter().filter(|cell| cell.principal == one.principal).fold(0, max);
    let fits = cells.iter().fold(0, max) <= capacity.heap_bytes
        && cells.iter().all(|cell| own_most(cell) <= capacity.heap_share());
    fits.then_some(true)
}

impl<'a> FreeMemory<'a> {
    fn of(capacity: &Capacity, cells: &[HeldMemory<'a>]) -> Self {
        let mut free = Self::default();
        let share = capacity.heap_share();
        let pool_share = share.saturating_mul(capacity.workers as u64);
        for cell in cells {
            // A cell whose limit is larger than the share can run, but no other cell of its principal beside it.
            let largest =
                |others: &mut dyn Iterator<Item = &HeldMemory<'a>>| others.map(|one| one.limit).max().unwrap_or(0);
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

    fn least_for(&self, cell: &HeldMemory<'a>) -> i128 {
        let principal: &str = cell.principal;
        let bounds = [
            self.in_worker.get(&cell.worker),
            self.of_principal_in_worker.get(&(principal, cell.worker)),
            self.of_principal.get(principal),
        ];
        bounds.into_iter().flatten().copied().min().unwrap_or(0)
    }

    fn add(&mut self, cell: &HeldMemory<'a>, bytes: i128) {
        let principal: &str = cell.principal;
        *self.in_worker.entry(cell.worker).or_default() += bytes;
        *self.of_principal_in_worker.entry((principal, cell.worker)).or_default() += bytes;
        *self.of_principal.entry(principal).or_default() += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::{HeldMemory, all_can_finish, quick_verdict};
    use crate::pool::admission::{Capacity, Principal, WorkerId};

    #[test]
    fn a_quick_verdict_is_the_verdict_of_the_full_check() {
        let capacity = Capacity { workers: 2, slots: 64, turns: 4, heap_bytes: 320 };
        let principals: [Principal; 2] = ["one".into(), "two".into()];
        let (mut state, mut verdicts) = (7_u64, [0, 0]);
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let cells: Vec<HeldMemory<'_>> = (0..=next(6))
                .map(|_| {
                    let limit = 1 + next(200);
                    let principal = &principals[usize::from(next(3) == 0)];
                    HeldMemory { principal, worker: WorkerId(1), held: next(limit + 1), limit }
                })
                .collect();
            if let Some(verdict) = quick_verdict(&capacity, &cells) {
                verdicts[usize::from(verdict)] += 1;
                assert_eq!(verdict, all_can_finish(&capacity, cells.clone()), "{cells:?}");
            }
        }
        assert!(verdicts.iter().all(|count| *count > 100), "{verdicts:?}");
    }
}
