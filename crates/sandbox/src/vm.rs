//! One cell in one Wasmtime instance: started or thawed, run leg by leg, frozen or dropped.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use contract::error::ErrorCode;
use contract::frame::{Budget, Failure, Leg, LegEnd, Reader, Reply, ReplyValue};
use contract::ids::CatalogHash;
use contract::json;
use contract::limits::{MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH};
use serde_json::value::RawValue;
use wasmtime::{Instance, Memory, Store, Trap, TypedFunc};

use crate::failure;
use crate::host_calls::{CellHost, OutstandingCalls, Stop};
use crate::image::{IMAGE_ID, Image};
use crate::pages::PageFinder;
use crate::raw::StopFlag;
use crate::snapshot::{self, BadSnapshot, SnapshotInput, SnapshotRequirements};
use crate::source::{Places, PreparedSource};
use crate::spare_thread::SpareThread;
use crate::tables::Tables;

pub(crate) struct Vm {
    image: Arc<Image>,
    store: Store<CellHost>,
    memory: Memory,
    exports: Exports,
    places: Places,
    /// Set by another thread to stop the cell.
    dropped: Arc<AtomicBool>,
    /// Declared after `store`, so that it is dropped later.
    slot: Slot,
}

/// Shrinks the slot that a grown cell leaves behind.
///
/// A slot of Wasmtime's pool keeps the size of its last memory until it is used again. Its pages are freed, but its
/// size counts towards the worker's `RLIMIT_DATA`. The pool reuses the slot that was freed last, and shrinks it then.
struct Slot {
    image: Arc<Image>,
    grown: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.grown {
            let mut store = Store::new(&self.image.engine, CellHost::idle());
            // If no slot is free, another cell has already reused and shrunk this one.
            drop(self.image.instance.instantiate(&mut store));
        }
    }
}

struct Exports {
    allocate: TypedFunc<u32, u32>,
    start: TypedFunc<(u32, u32, f64, u64), i32>,
    deliver: TypedFunc<(u32, u32, f64), i32>,
    result_pointer: TypedFunc<(), u32>,
    result_length: TypedFunc<(), u32>,
}

/// The status codes with which `guest/shim.c` ends a leg.
mod end {
    pub(super) const COMPLETED: i32 = 0;
    pub(super) const SUSPENDED: i32 = 1;
    pub(super) const FAILED: i32 = 2;
    pub(super) const BAD_SYNTAX: i32 = 3;
    pub(super) const STUCK: i32 = 4;
}

impl Vm {
    /// Creates an instance of the image without a cell.
    pub(crate) fn new(
        image: &Arc<Image>,
        tables: Option<Arc<Tables>>,
        dropped: Arc<AtomicBool>,
        memory_bytes: u64,
    ) -> wasmtime::Result<Self> {
        let mut host = CellHost::idle();
        host.tables = tables;
        host.memory_limit = memory_limit(image, memory_bytes);
        let mut store = Store::new(&image.engine, host);
        store.limiter(|host| host);
        let instance = image.instance.instantiate(&mut store)?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| wasmtime::Error::msg("the image exports no memory"))?;
        let exports = Exports::of(&instance, &mut store)?;
        let slot = Slot { image: Arc::clone(image), grown: false };
        Ok(Self { image: Arc::clone(image), store, memory, exports, places: Places::default(), dropped, slot })
    }

    /// Runs the cell's first leg.
    pub(crate) fn start(&mut self, prepared: PreparedSource, seed: u64, budget: Budget) -> Leg {
        self.places = Places::of(&prepared.script, prepared.shifts);
        // An empty line before the wrapper; `start` in the shim explains why.
        let script = ["\n", &prepared.script].concat().into_bytes();
        self.leg(budget, |vm| {
            let (pointer, length) = vm.put(&script)?;
            let call = vm.exports.start.clone();
            call.call(&mut vm.store, (pointer, length, budget.clock_us as f64, seed))
        })
    }

    /// Runs a later leg: settles host calls and resumes the code that waited for them.
    pub(crate) fn deliver(&mut self, replies: &[Reply], budget: Budget) -> Leg {
        let records = self.records(replies);
        self.leg(budget, |vm| {
            let (pointer, length) = vm.put(&records)?;
            let call = vm.exports.deliver.clone();
            call.call(&mut vm.store, (pointer, length, budget.clock_us as f64))
        })
    }

    pub(crate) fn freeze(&self, finder: &PageFinder, spare: &SpareThread) -> std::io::Result<Vec<u8>> {
        let memory = self.memory.data(&self.store);
        let changed = finder.changed(memory, &self.image.base);
        let input = SnapshotInput {
            image: IMAGE_ID,
            catalog: self.catalog(),
            memory,
            base: &self.image.base,
            changed: &changed,
            state: &self.notes(),
        };
        snapshot::encode(&input, spare)
    }

    /// Restores a snapshot into this fresh instance.
    pub(crate) fn thaw(&mut self, bytes: Vec<u8>, spare: &SpareThread) -> Result<(), BadSnapshot> {
        let required = SnapshotRequirements {
            image: IMAGE_ID,
            catalog: self.catalog(),
            base: &self.image.base,
            memory_limit: self.store.data().memory_limit,
        };
        let mut thawed = snapshot::decode(bytes, &required, spare)?;
        let have = self.memory.size(&self.store);
        let grow = (thawed.wasm_pages as u64).saturating_sub(have);
        if grow > 0 {
            self.slot.grown = true;
            // The cell's own limit was checked above, so this failure means that the system has no more memory.
            self.memory.grow(&mut self.store, grow).map_err(|_| BadSnapshot::NoMemory)?;
        }
        let state = std::mem::take(&mut thawed.state);
        thawed.apply(self.memory.data_mut(&mut self.store))?;
        self.read_notes(&state).map_err(|_| BadSnapshot::Damaged)
    }

    /// Whether the cell has more memory than the image.
    pub(crate) fn has_grown(&self) -> bool {
        self.memory.data_size(&self.store) > self.image.base.len()
    }

    /// Returns the flag that stops the cell from another thread.
    pub(crate) fn dropped(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.dropped)
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    fn catalog(&self) -> CatalogHash {
        self.store.data().tables.as_ref().map_or(CatalogHash([0; 32]), |tables| tables.hash)
    }

    fn leg(&mut self, budget: Budget, run: impl FnOnce(&mut Self) -> wasmtime::Result<i32>) -> Leg {
        let started = Instant::now();
        let limit = memory_limit(&self.image, budget.memory_bytes);
        let host = self.store.data_mut();
        host.memory_limit = limit;
        host.output.begin(budget.output_bytes);
        let image = Arc::clone(&self.image);
        let deadline = started + Duration::from_millis(budget.run_ms);
        let watch = StopFlag::at(&self.memory, &self.store, image.stop_flag)
            .map(|flag| image.watchdog.watch(deadline, self.dropped(), flag));
        let (ended, stop) = match watch {
            Some(watch) => {
                let ended = run(self);
                (ended, watch.end())
            }
            None => (Err(wasmtime::Error::msg("the image has no stop flag")), None),
        };
        self.slot.grown |= self.memory.data_size(&self.store) > self.image.base.len();
        let end = match ended {
            Ok(number) => {
                if stop.is_some() {
                    // Too late: the leg had already ended.
                    self.clear_stop_flag();
                }
                self.end_of_leg(number, budget)
            }
            Err(error) => LegEnd::Failed(self.stopped(&error, stop, budget)),
        };
        Leg {
            end,
            output: std::mem::take(&mut self.store.data_mut().output.items),
            run_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            memory_bytes: self.memory.data_size(&self.store) as u64,
        }
    }

    fn clear_stop_flag(&mut self) {
        let flag = self.image.stop_flag as usize;
        let word = self.memory.data_mut(&mut self.store).get_mut(flag..flag + size_of::<u32>());
        word.into_iter().for_each(|word| word.fill(0));
    }

    fn end_of_leg(&mut self, number: i32, budget: Budget) -> LegEnd {
        let total = self.store.data().output.total;
        if self.store.data().output.exceeded() {
            return LegEnd::Failed(failure::output_limit(total, budget.output_bytes));
        }
        match number {
            end::COMPLETED => self.completed(budget),
            end::SUSPENDED => {
                let host = self.store.data_mut();
                LegEnd::Suspended { calls: std::mem::take(&mut host.calls), cleared: std::mem::take(&mut host.cleared) }
            }
            end::FAILED | end::BAD_SYNTAX => {
                let described = self.result(MAX_DESCRIBED_BYTES).ok().unwrap_or_default();
                LegEnd::Failed(if number == end::FAILED {
                    failure::thrown(&described, &self.places)
                } else {
                    failure::bad_syntax(&described, &self.places)
                })
            }
            end::STUCK => LegEnd::Failed(failure::stuck()),
            _ => LegEnd::Failed(failure::internal("the guest ended a leg with an unknown status")),
        }
    }

    fn completed(&mut self, budget: Budget) -> LegEnd {
        let shown = self.store.data().output.total;
        let room = budget.output_bytes.saturating_sub(shown);
        let text = match self.result(usize::try_from(room).unwrap_or(usize::MAX)) {
            Ok(bytes) => String::from_utf8(bytes).ok(),
            Err(ResultError::TooLong(length)) => {
                return LegEnd::Failed(failure::output_limit(shown.saturating_add(length), budget.output_bytes));
            }
            Err(ResultError::Missing) => None,
        };
        let Some(text) = text else {
            return LegEnd::Failed(failure::internal("the cell's value could not be read"));
        };
        if json::measure(text.as_bytes()).depth > MAX_BRIDGE_VALUE_DEPTH {
            return LegEnd::Failed(failure::too_deep());
        }
        if !json::numbers_are_readable(text.as_bytes()) {
            return LegEnd::Failed(failure::internal("the cell's value has a number that is too large to read"));
        }
        match RawValue::from_string(text) {
            Ok(value) => LegEnd::Completed { value },
            Err(_) => LegEnd::Failed(failure::internal("the cell's value is not JSON")),
        }
    }

    /// After a trap, the instance must not be used any more; the caller drops it.
    fn stopped(&self, error: &wasmtime::Error, stop: Option<Stop>, budget: Budget) -> Failure {
        let trap = error.downcast_ref::<Trap>();
        let stop = stop.filter(|_| trap == Some(&Trap::UnreachableCodeReached));
        match (error.downcast_ref::<Stop>().copied().or(stop), trap) {
            (Some(Stop::Deadline), _) => failure::timeout(budget.run_ms),
            (Some(Stop::Memory), _) => failure::memory_limit(budget.memory_bytes),
            (Some(Stop::Output), _) => failure::output_limit(self.store.data().output.total, budget.output_bytes),
            (Some(Stop::Dropped), _) => Failure {
                code: Some(ErrorCode::Aborted),
                message: "the cell was dropped while it ran".to_owned(),
                position: None,
            },
            (Some(Stop::ProtocolViolation(_)), _) => failure::internal(&error.to_string()),
            (None, Some(Trap::StackOverflow)) => failure::stack_overflow(),
            (None, _) => failure::internal("the guest's engine trapped"),
        }
    }

    /// Copies bytes into guest memory, with the terminating NUL that QuickJS needs; the guest frees them.
    fn put(&mut self, bytes: &[u8]) -> wasmtime::Result<(u32, u32)> {
        let out_of_memory = || wasmtime::Error::new(Stop::Memory);
        let length = u32::try_from(bytes.len()).map_err(|_| out_of_memory())?;
        let room = length.checked_add(1).ok_or_else(out_of_memory)?;
        let pointer = self.exports.allocate.clone().call(&mut self.store, room)?;
        let place = self
            .memory
            .data_mut(&mut self.store)
            .get_mut(pointer as usize..)
            .and_then(|rest| rest.split_at_mut_checked(bytes.len()))
            .filter(|_| pointer != 0)
            .ok_or_else(out_of_memory)?;
        place.0.copy_from_slice(bytes);
        if let Some(terminator) = place.1.first_mut() {
            *terminator = 0;
        }
        Ok((pointer, length))
    }

    /// Returns the guest's result of the leg, unless it is longer than `most`.
    fn result(&mut self, most: usize) -> Result<Vec<u8>, ResultError> {
        let mut ask = |export: &TypedFunc<(), u32>| export.call(&mut self.store, ()).map_err(|_| ResultError::Missing);
        let pointer = ask(&self.exports.result_pointer)? as usize;
        let length = ask(&self.exports.result_length)? as usize;
        let memory = self.memory.data(&self.store).get(pointer..).ok_or(ResultError::Missing)?;
        let result = memory.get(..length).ok_or(ResultError::Missing)?;
        if length > most {
            return Err(ResultError::TooLong(length as u64));
        }
        Ok(result.to_vec())
    }

    /// Encodes replies as `deliver` in the shim reads them; replies to unknown calls are left out.
    fn records(&mut self, replies: &[Reply]) -> Vec<u8> {
        let mut records = Vec::new();
        for reply in replies {
            if !self.store.data_mut().outstanding.remove(reply.call.0) {
                continue;
            }
            let (rejected, json) = match &reply.value {
                ReplyValue::Resolved(json) => (0_u32, json),
                ReplyValue::Rejected(json) => (1, json),
            };
            let length = u32::try_from(json.len().min(MAX_BRIDGE_VALUE_BYTES)).unwrap_or(0);
            for field in [reply.call.0, rejected, length] {
                records.extend_from_slice(&field.to_le_bytes());
            }
            records.extend_from_slice(json.get(..length as usize).unwrap_or_default());
            records.push(0);
        }
        records
    }

    /// Returns the host's state of the cell that is not in guest memory.
    fn notes(&self) -> Vec<u8> {
        let mut notes = Vec::with_capacity(256);
        self.store.data().outstanding.write(&mut notes);
        self.places.write(&mut notes);
        notes
    }

    fn read_notes(&mut self, notes: &[u8]) -> Result<(), contract::frame::BadFrame> {
        let mut from = Reader::new(notes);
        self.store.data_mut().outstanding = OutstandingCalls::read(&mut from)?;
        self.places = Places::read(&mut from)?;
        from.finish()
    }
}

/// The reason why the guest's result was not read.
enum ResultError {
    Missing,
    TooLong(u64),
}

/// More than the description of any error by `describe` in `guest/prelude/output.js`, even if all of it is escaped.
const MAX_DESCRIBED_BYTES: usize = 1 << 20;

impl Exports {
    fn of(instance: &Instance, store: &mut Store<CellHost>) -> wasmtime::Result<Self> {
        Ok(Self {
            allocate: instance.get_typed_func(&mut *store, "allocate")?,
            start: instance.get_typed_func(&mut *store, "start")?,
            deliver: instance.get_typed_func(&mut *store, "deliver")?,
            result_pointer: instance.get_typed_func(&mut *store, "result_pointer")?,
            result_length: instance.get_typed_func(&mut *store, "result_length")?,
        })
    }
}

/// Adds the image to the limit, so that `return 1` completes under the smallest limit.
fn memory_limit(image: &Image, memory_bytes: u64) -> usize {
    image.base.len().saturating_add(usize::try_from(memory_bytes).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { run_ms: 60_000, memory_bytes: 64 << 20, output_bytes: 64 << 10, clock_us: 0 };
    const NO_TIME: Budget = Budget { run_ms: 0, ..BUDGET };

    fn suspended() -> Vm {
        let image = Arc::new(Image::load(2).unwrap());
        let mut vm = Vm::new(&image, None, Arc::default(), BUDGET.memory_bytes).unwrap();
        let source = "let n = 0; await tools.call('a:b:c'); while (n < 1000) n++; return n";
        let prepared = crate::source::prepare(source, contract::cell::Language::JavaScript).unwrap();
        let leg = vm.start(prepared, 7, BUDGET);
        assert!(matches!(leg.end, LegEnd::Suspended { .. }), "{:?}", leg.end);
        vm
    }

    fn replies() -> Vec<Reply> {
        vec![Reply { call: contract::ids::CallId(1), value: ReplyValue::Resolved(b"1".to_vec()) }]
    }

    #[test]
    fn a_leg_that_is_stopped_after_its_end_does_not_stop_the_next() {
        let mut vm = suspended();
        let leg = vm.leg(NO_TIME, |vm| {
            vm.image.watchdog.tick();
            Ok(end::SUSPENDED)
        });
        assert!(matches!(leg.end, LegEnd::Suspended { .. }), "{:?}", leg.end);
        let leg = vm.deliver(&replies(), BUDGET);
        assert!(matches!(&leg.end, LegEnd::Completed { value } if value.get() == "1000"), "{:?}", leg.end);
    }

    #[test]
    fn a_leg_stops_with_the_reason_for_which_its_flag_was_set() {
        for (is_dropped, code) in [(false, ErrorCode::Timeout), (true, ErrorCode::Aborted)] {
            let mut vm = suspended();
            vm.dropped.store(is_dropped, std::sync::atomic::Ordering::Relaxed);
            let records = vm.records(&replies());
            let leg = vm.leg(NO_TIME, |vm| {
                let (pointer, length) = vm.put(&records)?;
                vm.image.watchdog.tick();
                vm.exports.deliver.clone().call(&mut vm.store, (pointer, length, 0.0))
            });
            assert!(matches!(&leg.end, LegEnd::Failed(failure) if failure.code == Some(code)), "{:?}", leg.end);
        }
    }

    #[test]
    fn a_leg_that_has_ended_is_not_watched() {
        let vm = suspended();
        vm.dropped.store(true, std::sync::atomic::Ordering::Relaxed);
        vm.image.watchdog.tick();
        assert_eq!(vm.memory().get(vm.image.stop_flag as usize), Some(&0));
    }
}
