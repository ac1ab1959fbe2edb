//! `spec/cells/*.md`, in process and through the binary.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use testkit::case::{self, Answers, Case};
use testkit::runner;

/// Processes that run cells at the same time.
const PARALLEL: usize = 3;

fn cases() -> Vec<Case> {
    case::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/cells")).unwrap()
}

fn judge(results: Vec<(Case, Answers)>) {
    let wrong: Vec<String> = results
        .iter()
        .map(|(case, answers)| (case.name(), case.differences(answers)))
        .filter(|(_, differences)| !differences.is_empty())
        .map(|(name, differences)| format!("{name}\n    {}", differences.join("\n    ")))
        .collect();
    println!("{} cells, {} wrong", results.len(), wrong.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cell_does_what_the_contract_says_in_process() {
    let code_mode = runner::in_process().await.unwrap();
    let mut results = Vec::new();
    for case in cases() {
        let result = runner::run_in_process(&code_mode, &case).await.unwrap();
        results.push((case, result));
    }
    judge(results);
}

#[test]
fn every_cell_does_what_the_contract_says_through_the_binary() {
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cells");
    let binary = Path::new(env!("CARGO_BIN_EXE_cellmate"));
    // Each process starts a worker and some cells wait, so several run at the same time, in folders of their own.
    let next = Mutex::new(cases().into_iter());
    let work = |number: usize| {
        let scratch = scratch.join(number.to_string());
        std::fs::create_dir_all(&scratch).unwrap();
        let mut results = Vec::new();
        loop {
            let Some(case) = next.lock().unwrap().next() else { return results };
            let result = runner::run_through_binary(binary, &case, &scratch).unwrap();
            results.push((case, result));
        }
    };
    let results = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..PARALLEL).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    judge(results);
}
