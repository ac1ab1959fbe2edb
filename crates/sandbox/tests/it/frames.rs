//! Frames out of order, and invalid frames.

use contract::frame::{Deliver, FromWorker, Leg, LegEnd, ToWorker};
use contract::ids::{CallId, CatalogHash, CellId};
use serde_json::json;

use crate::lab::{End, Lab, budget, end, resolve};

#[test]
fn frames_out_of_order_are_violations() {
    let lab = Lab::shared();
    let deliver = |cell| ToWorker::Deliver(cell, Deliver { budget: budget(), replies: vec![] });
    assert!(lab.sandbox.handle(deliver(CellId(u64::MAX))).is_err());
    assert!(lab.sandbox.handle(ToWorker::Freeze { cell: CellId(u64::MAX), max_bytes: 1 }).is_err());
    let cell = lab.new_cell();
    let leg = lab.start(cell, "await tools.call('openclaw:a:b')");
    assert!(matches!(leg.end, LegEnd::Suspended { .. }));
    let again = contract::frame::Start {
        budget: budget(),
        catalog: lab.catalog,
        seed: 0,
        language: contract::cell::Language::JavaScript,
        languages: contract::config::Languages::ALL,
        source: "return 1".to_owned(),
    };
    assert!(lab.sandbox.handle(ToWorker::Start(cell, again.clone())).is_err());
    let unknown = contract::frame::Start { catalog: CatalogHash([9; 32]), ..again };
    assert!(lab.sandbox.handle(ToWorker::Start(lab.new_cell(), unknown)).is_err());
    assert!(lab.sandbox.handle(ToWorker::Catalog { hash: CatalogHash([1; 32]), tables: vec![1, 2, 3] }).is_err());
    // Dropping an unknown cell is not an error.
    assert!(lab.sandbox.handle(ToWorker::Drop(CellId(u64::MAX))).is_ok());
}

#[test]
fn replies_to_unknown_calls_are_ignored() {
    let lab = Lab::shared();
    let cell = lab.new_cell();
    lab.start(cell, "return [await tools.call('openclaw:a:b'), await tools.call('openclaw:a:b')]");
    let leg = lab.deliver(
        cell,
        vec![resolve(CallId(77), &json!(0)), resolve(CallId(1), &json!(1)), resolve(CallId(1), &json!(2))],
    );
    assert!(matches!(leg.end, LegEnd::Suspended { .. }));
    assert_eq!(end(lab.deliver(cell, vec![resolve(CallId(2), &json!(3))])), End::Value(json!([1, 3])));
}

#[test]
fn a_snapshot_over_the_limit_fails_and_the_cell_is_dropped() {
    let lab = Lab::shared();
    let cell = lab.new_cell();
    lab.start(cell, "await tools.call('openclaw:a:b')");
    match lab.handle(ToWorker::Freeze { cell, max_bytes: 100 }) {
        Some(FromWorker::NotFrozen { failure, .. }) => {
            assert_eq!(failure.code.map(|code| code.as_str()), Some("snapshot_limit_exceeded"));
        }
        other => panic!("{other:?}"),
    }
    assert!(lab.sandbox.handle(ToWorker::Freeze { cell, max_bytes: 100 }).is_err());
}

#[test]
fn a_running_cell_can_be_dropped() {
    let lab = Lab::shared();
    let cell = lab.new_cell();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| lab.start(cell, "for (;;);"));
        std::thread::sleep(std::time::Duration::from_millis(50));
        let began = std::time::Instant::now();
        assert!(lab.handle(ToWorker::Drop(cell)).is_none());
        let leg: Leg = running.join().unwrap();
        assert_eq!(end(leg), End::Failed(Some("aborted"), "the cell was dropped while it ran".to_owned()));
        assert!(began.elapsed().as_millis() < 500);
    });
}
