//! Freezing and thawing: a cell is restored exactly, or the snapshot is refused.

use contract::cell::Language;
use contract::frame::{LegEnd, Reply, ToWorker};
use contract::ids::CallId;
use proptest::prelude::*;
use serde_json::json;

use crate::lab::{End, Lab, budget, end, resolve};

/// A cell with state of many kinds, suspended on one call.
const RICH: &str = "
    const map = new Map(); for (let i = 0; i < 500; i++) map.set('k' + i, { i, r: Math.random(), t: Date.now() });
    const bytes = new Uint8Array(70000).map((_, i) => i * 7);
    const lazy = (function* () { let n = 0; for (;;) yield n++ })(); lazy.next(); lazy.next();
    const pattern = /b+/g; pattern.exec('abbb');
    const closure = ((hidden) => () => hidden++)(5); closure();
    class Point { #x = 3; get x() { return this.#x } }
    const point = new Point();
    const got = await tools.call('openclaw:a:b', { size: map.size });
    return [map.get('k499').i, map.get('k7').r, bytes[69999], lazy.next().value, pattern.lastIndex, closure(), point.x, got, Date.now()]";

fn reply(value: i32) -> Vec<Reply> {
    vec![resolve(CallId(1), &json!(value))]
}

fn suspended(lab: &Lab, source: &str) -> contract::ids::CellId {
    let cell = lab.new_cell();
    let leg = lab.start(cell, source);
    assert!(matches!(leg.end, LegEnd::Suspended { .. }), "{:?}", leg.end);
    cell
}

#[test]
fn resuming_in_place_and_from_a_snapshot_give_the_same_result() {
    let lab = Lab::shared();
    let in_place = suspended(lab, RICH);
    let frozen = suspended(lab, RICH);
    let snapshot = lab.freeze(frozen);
    let expected = end(lab.deliver(in_place, reply(9)));
    assert!(matches!(expected, End::Value(_)), "{expected:?}");
    for _ in 0..3 {
        assert_eq!(end(lab.thaw(lab.new_cell(), &snapshot, reply(9))), expected);
    }
}

#[test]
fn a_cell_can_be_frozen_at_every_call() {
    let lab = Lab::shared();
    let cell = suspended(
        lab,
        "let sum = 0; for (let i = 1; i <= 20; i++) sum += await tools.call('openclaw:a:b', i); return sum",
    );
    let mut snapshot = lab.freeze(cell);
    for call in 1..=20_u32 {
        let next = lab.new_cell();
        let leg = lab.thaw(next, &snapshot, vec![resolve(CallId(call), &json!(call))]);
        match leg.end {
            LegEnd::Suspended { .. } => snapshot = lab.freeze(next),
            _ => assert_eq!((call, end(leg)), (20, End::Value(json!(210)))),
        }
    }
}

/// The transformation of an enum records three moved columns for each member.
#[test]
fn a_cell_with_as_many_enum_members_as_the_eraser_accepts_is_restored() {
    let lab = Lab::shared();
    let start = |enums: usize| {
        let members: Vec<String> = ('a'..='z').map(String::from).collect();
        let declared = format!("enum E{{{}}}\n", members.join(",")).repeat(enums);
        let cell = lab.new_cell();
        let source = format!("{declared}await tools.call('openclaw:a:b', {{}}); return E.z");
        (cell, lab.start_with(cell, &source, Language::TypeScript, budget()).end)
    };
    let accepted = |enums: usize| matches!(start(enums).1, LegEnd::Suspended { .. });
    let (mut most, mut too_many) = (256, 2048);
    assert!(accepted(most) && !accepted(too_many));
    while most + 1 < too_many {
        let middle = usize::midpoint(most, too_many);
        if accepted(middle) { most = middle } else { too_many = middle }
    }
    let (cell, _) = start(most);
    assert_eq!(end(lab.thaw(lab.new_cell(), &lab.freeze(cell), reply(9))), End::Value(json!(25)), "{most} enums");
}

#[test]
fn a_trivial_suspended_cell_is_a_few_kilobytes() {
    let lab = Lab::shared();
    let snapshot = lab.freeze(suspended(lab, "return await tools.call('openclaw:a:b', {})"));
    assert!(snapshot.len() <= 8 << 10, "{} bytes", snapshot.len());
}

/// Equal input gives equal bytes, so that a journal can be replayed.
#[test]
fn the_same_code_clock_and_seed_give_the_same_snapshot() {
    let lab = Lab::shared();
    let first = lab.freeze(suspended(lab, RICH));
    // In between, other cells use the slot.
    for size in [10, 1_000_000, 5_000_000] {
        lab.run(&format!("return new Uint8Array({size}).fill(255).length"));
    }
    let second = lab.freeze(suspended(lab, RICH));
    assert_eq!(first, second);
}

#[test]
fn a_snapshot_cannot_be_restored_with_another_catalog() {
    let (one, other) = (Lab::shared(), Lab::with_tables(4, &[("all", "[]")]));
    let snapshot = one.freeze(suspended(one, "return await tools.call('openclaw:a:b', {})"));
    let refused = end(other.thaw(other.new_cell(), &snapshot, reply(1)));
    let expected = "the suspended cell cannot be resumed: the snapshot belongs to another catalog";
    assert_eq!(refused, End::Failed(Some("snapshot_restore_failed"), expected.to_owned()));
}

#[test]
fn memory_over_the_limit_is_refused_before_it_is_allocated() {
    let lab = Lab::shared();
    let cell = suspended(
        lab,
        "const big = new Uint8Array(8 << 20).fill(7); await tools.call('openclaw:a:b'); return big.length",
    );
    let snapshot = lab.freeze(cell);
    let mut budget = crate::lab::budget();
    budget.memory_bytes = 1 << 20;
    let refused = end(lab.thaw_with(lab.new_cell(), &snapshot, reply(1), budget));
    assert!(
        matches!(&refused, End::Failed(Some("snapshot_restore_failed"), text) if text.contains("bytes of memory")),
        "{refused:?}"
    );
    assert_eq!(end(lab.thaw(lab.new_cell(), &snapshot, reply(1))), End::Value(json!(8 << 20)));
}

#[test]
fn damaged_snapshots_are_refused() {
    let lab = Lab::shared();
    let snapshot = lab.freeze(suspended(lab, RICH));
    let refuse = |bytes: &[u8]| match end(lab.thaw(lab.new_cell(), bytes, reply(1))) {
        End::Failed(Some("snapshot_restore_failed"), _) => {}
        other => panic!("accepted: {other:?}"),
    };
    refuse(b"");
    refuse(b"CMSS");
    refuse(&[0; 200]);
    for length in (0..snapshot.len()).step_by(97) {
        refuse(&snapshot[..length]);
    }
    let mut longer = snapshot.clone();
    longer.push(0);
    refuse(&longer);
    for position in (0..snapshot.len()).step_by(13) {
        let mut flipped = snapshot.clone();
        flipped[position] ^= 0x10;
        refuse(&flipped);
    }
}

/// The engine keeps the variables of a cell's own function when it has returned, unless the cell may be suspended.
#[test]
fn a_cell_that_has_returned_is_suspended_without_its_variables() {
    let lab = Lab::shared();
    let variables = "const big = Array.from({ length: 50000 }, (_, i) => ({ id: i, name: `item ${i}` }));";
    let source = format!("tools.call('openclaw:a:b'); {variables} return big.length");
    let snapshot = lab.freeze(suspended(lab, &source));
    // Blocks that were freed are in the snapshot, too, as far as they differ from the image.
    let kept = lab.freeze(suspended(lab, &format!("{variables} await tools.call('openclaw:a:b'); return big.length")));
    assert!(snapshot.len() * 3 < kept.len() * 2, "{} bytes, with variables {}", snapshot.len(), kept.len());
    assert_eq!(end(lab.thaw(lab.new_cell(), &snapshot, reply(1))), End::Value(json!(50000)));
    assert_eq!(end(lab.thaw(lab.new_cell(), &kept, reply(1))), End::Value(json!(50000)));
}

/// A large snapshot consists of several compressed pieces.
#[test]
fn a_large_snapshot_is_restored_whole_or_refused() {
    let lab = Lab::shared();
    let source = "let next = 1; const numbers = new Uint32Array(1 << 20).map(() => next = (next * 48271) % 2147483647); \
                  await tools.call('openclaw:a:b'); let sum = 0; for (const one of numbers) sum += one; return sum";
    let expected = (0..1 << 20).scan(1_u64, |next, _| {
        *next = *next * 48271 % 2_147_483_647;
        Some(*next)
    });
    let expected = json!(expected.sum::<u64>());
    let snapshot = lab.freeze(suspended(lab, source));
    assert!(snapshot.len() > 3 << 20, "{} bytes", snapshot.len());
    for _ in 0..4 {
        assert_eq!(end(lab.thaw(lab.new_cell(), &snapshot, reply(1))), End::Value(expected.clone()));
    }
    // The beginnings of two pieces exchanged, a piece left out, a piece twice, each with a correct checksum.
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    let frames: Vec<usize> = (92..snapshot.len() - 4).filter(|&at| snapshot[at..at + 4] == magic).collect();
    assert!(frames.len() > 4, "{frames:?}");
    let (head, pieces) = snapshot.split_at(92);
    let ends = frames.iter().skip(1).copied().chain([snapshot.len()]);
    let pieces: Vec<&[u8]> = frames.iter().zip(ends).map(|(&from, to)| &pieces[from - 92..to - 92]).collect();
    let last = pieces.len() - 1;
    let orders: [Vec<usize>; 4] = [
        (1..=last).chain([0]).collect(),
        (0..last).collect(),
        (0..=last).chain([last]).collect(),
        (0..last).chain([last - 1]).collect(),
    ];
    for order in orders {
        let mut forged = head.to_vec();
        order.iter().for_each(|&piece| forged.extend_from_slice(pieces[piece]));
        let crc = checksum(&forged).to_le_bytes();
        forged[88..92].copy_from_slice(&crc);
        let refused = end(lab.thaw(lab.new_cell(), &forged, reply(1)));
        let damaged = "the suspended cell cannot be resumed: the snapshot is damaged";
        assert_eq!(refused, End::Failed(Some("snapshot_restore_failed"), damaged.to_owned()), "{order:?}");
    }
}

/// The checksum detects accidents. This tests snapshots whose checksum was recomputed.
#[test]
fn forged_snapshots_are_contained() {
    let lab = Lab::shared();
    let snapshot = lab.freeze(suspended(lab, RICH));
    let mut random = 0x9E37_79B9_u32;
    for _ in 0..300 {
        let mut forged = snapshot.clone();
        for _ in 0..4 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Sizes, counts and the compressed body; image and catalog are checked before them.
            let position = 72 + (random as usize >> 8) % (forged.len() - 72);
            forged[position] = (random >> 3) as u8;
        }
        let crc = checksum(&forged).to_le_bytes();
        forged[88..92].copy_from_slice(&crc);
        // A forged cell can only harm itself, and it ends.
        let mut budget = crate::lab::budget();
        budget.run_ms = 100;
        let cell = lab.new_cell();
        lab.thaw_with(cell, &forged, reply(1), budget);
        // The cell may be suspended now; drop it as a host would.
        lab.handle(ToWorker::Drop(cell));
    }
    assert_eq!(lab.run("return 1").0, End::Value(json!(1)));
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..88]);
    hasher.update(&bytes[92..]);
    hasher.finalize()
}

/// A change of the layout must change the version and this test.
#[test]
fn the_format_has_this_fingerprint() {
    let lab = Lab::shared();
    let snapshot = lab.freeze(suspended(lab, "await tools.call('openclaw:a:b', {})"));
    assert_eq!(&snapshot[..8], b"CMSS\x03\0\0\0");
    assert_eq!(snapshot[8..40], sandbox::IMAGE_ID.0);
    assert_eq!(snapshot[40..72], lab.catalog.0);
    let field = |at: usize| u32::from_le_bytes(snapshot[at..at + 4].try_into().unwrap());
    assert_eq!(field(72), 32, "pages of 64 KiB");
    assert!((10..60).contains(&field(76)), "{} changed pages", field(76));
    assert_eq!(field(80), 26, "one outstanding call, one line, no shifts");
    assert!((1000..30_000).contains(&field(84)), "{} bytes before packing", field(84));
    assert_eq!(field(88), checksum(&snapshot));
    assert_eq!(&snapshot[92..96], &[0x28, 0xb5, 0x2f, 0xfd], "zstd");
    assert_eq!(sandbox::SNAPSHOT_VERSION, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any collection of values survives freezing and thawing.
    #[test]
    fn values_survive(numbers in prop::collection::vec(any::<i32>(), 0..200), text in "\\PC{0,200}") {
        let lab = Lab::shared();
        let literal = json!({ "numbers": numbers, "text": text });
        let cell = suspended(lab, &format!("const kept = {literal}; await tools.call('openclaw:a:b'); return kept"));
        let snapshot = lab.freeze(cell);
        prop_assert_eq!(end(lab.thaw(lab.new_cell(), &snapshot, reply(1))), End::Value(literal));
    }
}
