//! `make bench-search`: quality and speed of tool search, compared with plain BM25 and the incumbent's ranking.

mod data;
mod folds;
mod measure;
mod misses;
mod peers;
mod quality;
mod speed;
mod tune;

use std::path::PathBuf;
use std::process::ExitCode;

use figures::Facts;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T> = std::result::Result<T, BoxError>;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-search: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let data = std::env::var_os("TOOLSEARCH_DATA").map(PathBuf::from);
    let data = data.ok_or("set TOOLSEARCH_DATA to the folder of labelled sets")?;
    match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => {
            let mut facts = Facts::default();
            // Speed comes first: it measures the growth of memory.
            speed::run(&data, &mut facts)?;
            quality::run(&data, &mut facts)?;
            folds::run(&data, &mut facts)?;
            facts.verdict(&[&speed::CLAIMS[..], &quality::CLAIMS, &[folds::CLAIM]].concat())
        }
        [what] if what == "speed" => {
            let mut facts = Facts::default();
            speed::run(&data, &mut facts)?;
            facts.verdict(&speed::CLAIMS)
        }
        [what, tries @ ..] if what == "try" => tune::try_weights(&data, tries),
        [what, set] if what == "misses" => misses::run(&data, set),
        other => {
            Err(format!("unknown arguments {other:?}; `speed`, `misses SET` and `try KNOB=VALUE...` are known").into())
        }
    }
}
