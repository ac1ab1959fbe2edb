//! One size of catalog: building it, the first search and later ones, a first cell, and its memory.

use std::sync::Arc;
use std::time::Instant;

use catalog::{Catalog, View};
use executor::ToolSource;
use figures::machine::{mebibytes, resident_bytes};
use figures::{Facts, Samples};

use crate::Result;
use crate::codemode_runs::{Many, all_tools, executed, many_tools, open};
use crate::ours::Ours;
use crate::stats::us_since;

const BUILDS: usize = 3;
const SEARCHES: usize = 200;
const HITS: usize = 8;

pub(super) fn measure(size: usize) -> Result<Facts> {
    let mut facts = Facts::default();
    let tools = many_tools(size)?;
    // The first catalog loads what all catalogs share, which is not part of this one.
    Catalog::new(many_tools(1)?)?.search(View::CodeMode, "record", HITS);

    let before = resident_bytes("self")?;
    let copy = tools.clone();
    let from = Instant::now();
    let catalog = Catalog::new(copy)?;
    let mut builds = Samples::from_iter([us_since(from)]);
    let from = Instant::now();
    catalog.search(View::CodeMode, "the newest records by name", HITS);
    facts.add("first_search_ms", us_since(from) / 1e3);
    facts.add("memory_mib", mebibytes(resident_bytes("self")?.saturating_sub(before)));

    let mut searches = Samples::default();
    for number in 0..SEARCHES {
        let query = format!("list record {} by name", number * 7_919 % size);
        let from = Instant::now();
        std::hint::black_box(catalog.search(View::CodeMode, &query, HITS));
        searches.push(us_since(from));
    }
    facts.add("search_p50_ms", searches.p50() / 1e3);
    facts.add("search_p99_ms", searches.p99() / 1e3);
    for _ in 1..BUILDS {
        let copy = tools.clone();
        let from = Instant::now();
        std::hint::black_box(Catalog::new(copy)?);
        builds.push(us_since(from));
    }
    facts.add("build_ms", builds.p50() / 1e3);

    let ours = Ours::start()?;
    let file = std::env::temp_dir().join(format!("cellmate-bench-catalog-{}.db", std::process::id()));
    let many: Arc<dyn ToolSource> = Arc::new(Many(tools));
    let setup = open(&ours, &file, vec![many])?;
    let first = ours.wait_for(executed(setup, all_tools, size as u64, 1));
    for suffix in ["", "-wal", "-shm"] {
        // Some of them may not exist.
        drop(std::fs::remove_file(format!("{}{suffix}", file.display())));
    }
    facts.add("first_cell_ms", first?.p50() / 1e3);
    Ok(facts)
}
