//! One size of catalog: building it, the first search and later ones, a first cell, and its memory.

use std::sync::Arc;
use std::time::Instant;

use catalog::{Catalog, View};
use contract::tool::ToolSpec;
use executor::ToolSource;
use figures::machine::{mebibytes, resident_bytes};
use figures::{Facts, Samples};

use crate::Result;
use crate::codemode_runs::{Many, all_tools, executed, many_tools, open};
use crate::ours::Ours;
use crate::stats::us_since;

/// Catalogs that are built. The shortest times count, because other programs can only lengthen them.
const BUILDS: usize = 4;
const SEARCHES: usize = 200;
const HITS: usize = 8;

pub(super) fn measure(size: usize) -> Result<Facts> {
    let mut facts = Facts::default();
    let tools = many_tools(size)?;
    // The first catalog loads what all catalogs share, which is not part of this one.
    Catalog::new(many_tools(1)?)?.search(View::CodeMode, "record", HITS);

    let catalog = built(&tools, &mut facts)?;
    let mut searches = Samples::default();
    for number in 0..SEARCHES {
        let query = format!("list record {} by name", number * 7_919 % size);
        let from = Instant::now();
        std::hint::black_box(catalog.search(View::CodeMode, &query, HITS));
        searches.push(us_since(from) / 1e3);
    }
    facts.add("search_p50_ms", searches.p50());
    facts.add("search_p99_ms", searches.p99());

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

/// Builds catalogs and searches in each once, adds the shortest times and the memory of the first, and returns it.
fn built(tools: &[ToolSpec], facts: &mut Facts) -> Result<Catalog> {
    let (mut builds, mut searches, mut first) = (Samples::default(), Samples::default(), None);
    let before = resident_bytes("self")?;
    for _ in 0..BUILDS {
        let tools = tools.to_vec();
        let from = Instant::now();
        let catalog = Catalog::new(tools)?;
        builds.push(us_since(from) / 1e3);
        let from = Instant::now();
        catalog.search(View::CodeMode, "the newest records by name", HITS);
        searches.push(us_since(from) / 1e3);
        if first.is_none() {
            facts.add("memory_mib", mebibytes(resident_bytes("self")?.saturating_sub(before)));
            first = Some(catalog);
        }
    }
    facts.add("build_ms", builds.min());
    facts.add("first_search_ms", searches.min());
    first.ok_or_else(|| "no catalog was built".into())
}
