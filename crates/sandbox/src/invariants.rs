//! Tests of the invariant that snapshots and slots rely on: linear memory is the whole state.

use std::sync::Arc;

use contract::cell::Language;
use contract::frame::{Budget, LegEnd};

use crate::image::Image;
use crate::pages::PageFinder;
use crate::source;
use crate::spare_thread::SpareThread;
use crate::vm::Vm;

const BUDGET: Budget =
    Budget { run_ms: 5000, memory_bytes: 64 << 20, output_bytes: 64 << 10, clock_us: 1_700_000_000_000_000 };

/// Cells that leave memory in different states: small, scattered, large, grown and freed.
const CELLS: [&str; 5] = [
    "await tools.call('a:b:c')",
    "const m = new Map(); for (let i = 0; i < 5000; i++) m.set('k' + i, { i, r: Math.random() }); await tools.call('a:b:c')",
    "const b = new Uint8Array(9 << 20).fill(1); await tools.call('a:b:c')",
    "{ let s = []; for (let i = 0; i < 50; i++) s.push('x'.repeat(100000) + i); s = null } await tools.call('a:b:c')",
    "globalThis.secret = 'SECRET'.repeat(20000); await tools.call('a:b:c')",
];

fn image() -> Arc<Image> {
    Arc::new(Image::load(4).unwrap())
}

fn suspended(image: &Arc<Image>, source: &str) -> Vm {
    let mut vm = Vm::new(image, None, Arc::default(), BUDGET.memory_bytes).unwrap();
    let leg = vm.start(source::prepare(source, Language::JavaScript).unwrap(), 7, BUDGET);
    assert!(matches!(leg.end, LegEnd::Suspended { .. }), "{:?}", leg.end);
    vm
}

#[test]
fn the_kernel_and_a_comparison_find_the_same_pages() {
    let image = image();
    let kernel = PageFinder::open();
    if !kernel.asks_the_kernel() {
        println!("this kernel has no PAGEMAP_SCAN: nothing to compare");
        return;
    }
    // Run the list twice, so that later cells get slots that earlier ones have used.
    for source in CELLS.iter().chain(&CELLS) {
        let vm = suspended(&image, source);
        let found = kernel.changed(vm.memory(), &image.base);
        assert_eq!(found, PageFinder::comparing().changed(vm.memory(), &image.base), "{source}");
        assert!(!found.is_empty());
    }
}

#[test]
fn a_recycled_slot_equals_the_image() {
    let image = image();
    for source in CELLS {
        drop(suspended(&image, source));
        for _ in 0..4 {
            let vm = Vm::new(&image, None, Arc::default(), BUDGET.memory_bytes).unwrap();
            assert!(vm.memory() == image.base, "residue after: {source}");
        }
    }
}

#[test]
fn the_same_code_clock_and_seed_give_the_same_memory() {
    let image = image();
    for source in CELLS {
        let first = suspended(&image, source).memory().to_vec();
        drop(suspended(&image, CELLS[3]));
        assert!(suspended(&image, source).memory() == first, "{source}");
    }
}

#[test]
fn thawed_memory_equals_the_frozen_memory() {
    let image = image();
    for source in CELLS {
        let vm = suspended(&image, source);
        let bytes = vm.freeze(&PageFinder::open(), &SpareThread::default()).unwrap();
        let mut thawed = Vm::new(&image, None, Arc::default(), BUDGET.memory_bytes).unwrap();
        thawed.thaw(bytes, &SpareThread::default()).unwrap();
        assert!(thawed.memory() == vm.memory(), "{source}");
    }
}
