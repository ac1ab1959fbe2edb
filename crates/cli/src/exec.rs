//! `cellmate exec`: runs one cell, with canned tools, and prints the result that a model would get.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use codemode::pool::Pool;
use codemode::{CodeMode, ExecInput};
use contract::cell::{CellResult, Language, OutputItem};
use contract::config;
use contract::limits::{MAX_BRIDGE_VALUE_BYTES, MAX_CATALOG_BYTES};
use contract::scope::Scope;
use executor::{Canned, Executor};
use store::{Keys, Location, Store, StoreError};

use crate::arguments::ExecArguments;
use crate::render;

#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("cannot read `{path}`: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("`{path}` has more than {most} bytes; shorten it")]
    TooLong { path: String, most: usize },
    #[error("`{path}`: {reason}")]
    Catalog { path: String, reason: String },
    #[error(transparent)]
    Pool(#[from] codemode::pool::PoolError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
}

/// The longest source that is read. The sandbox's own limit is far lower, and its error states it.
const MAX_READ_BYTES: usize = MAX_BRIDGE_VALUE_BYTES;

/// The id of the outer tool call, which a model would otherwise supply.
const TOOL_CALL: &str = "cellmate-exec";

pub(crate) async fn run(arguments: ExecArguments) -> ExitCode {
    let readable = !arguments.json && std::io::stdout().is_terminal();
    match result(&arguments).await {
        Ok(result) if readable => render::readable(&result),
        Ok(result) => render::json(&result),
        Err(error) => render::fatal(&error.to_string()),
    }
}

async fn result(arguments: &ExecArguments) -> Result<CellResult, ExecError> {
    let input = ExecInput { source: source(arguments)?, language: language(arguments) };
    let executor = canned_tools(arguments.catalog.as_deref())?;
    let config = arguments.limits.code_mode();
    let (pool, store) = tokio::join!(Pool::start(arguments.jail.pool(config.limits.memory_bytes)), memory_store());
    let code_mode = CodeMode::new(pool?, store?)?;
    let first = code_mode.exec(&executor, &config, TOOL_CALL, input).await;
    if arguments.no_wait { Ok(first) } else { Ok(wait_for_end(&code_mode, &executor, &config, first).await) }
}

/// Opens a store in memory: the run cannot be resumed after the command has ended.
async fn memory_store() -> Result<Store, ExecError> {
    Ok(Store::open(&Location::Memory, Keys::ephemeral()?).await?)
}

/// Waits until the cell ends, as a model would, and collects the output of every wait.
async fn wait_for_end(
    code_mode: &CodeMode,
    executor: &Executor,
    config: &config::CodeMode,
    mut result: CellResult,
) -> CellResult {
    let mut shown: Vec<OutputItem> = Vec::new();
    while let CellResult::Waiting { run_id, output, .. } = &mut result {
        shown.append(output);
        let run_id = run_id.clone();
        result = code_mode.wait(executor, config, TOOL_CALL, &run_id).await;
    }
    match &mut result {
        CellResult::Completed { output, .. }
        | CellResult::Waiting { output, .. }
        | CellResult::Failed { output, .. } => {
            shown.append(output);
            *output = shown;
        }
    }
    result
}

fn source(arguments: &ExecArguments) -> Result<String, ExecError> {
    if let Some(code) = &arguments.code {
        return Ok(code.clone());
    }
    match arguments.file.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => read(path, MAX_READ_BYTES),
        None => bounded(std::io::stdin().lock(), "standard input".to_owned(), MAX_READ_BYTES),
    }
}

fn language(arguments: &ExecArguments) -> Language {
    let by_name = arguments.file.as_deref().and_then(Path::extension).is_some_and(|extension| extension == "ts");
    match arguments.language {
        Some(given) => given.language(),
        None if by_name => Language::TypeScript,
        None => Language::JavaScript,
    }
}

fn canned_tools(path: Option<&Path>) -> Result<Executor, ExecError> {
    let (text, name) = match path {
        Some(path) => (read(path, MAX_CATALOG_BYTES)?, path.display().to_string()),
        None => (r#"{"tools": []}"#.to_owned(), String::new()),
    };
    let canned = Canned::parse(&text).and_then(|canned| canned.executor(Scope::default()));
    canned.map_err(|error| ExecError::Catalog { path: name, reason: error.to_string() })
}

fn read(path: &Path, most: usize) -> Result<String, ExecError> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => bounded(file, name, most),
        Err(source) => Err(ExecError::Read { path: name, source }),
    }
}

fn bounded(from: impl Read, name: String, most: usize) -> Result<String, ExecError> {
    let mut text = String::new();
    match from.take(most as u64 + 1).read_to_string(&mut text) {
        Ok(_) if text.len() > most => Err(ExecError::TooLong { path: name, most }),
        Ok(_) => Ok(text),
        Err(source) => Err(ExecError::Read { path: name, source }),
    }
}
