//! `cellmate runs`: lists, shows, replays and forks runs, in a store that a server may be using.

mod arguments;
mod fork;
mod print;
mod values;

use std::process::ExitCode;

use codemode::pool::{Pool, PoolError};
use codemode::replay::{ForkError, MAX_MANUAL_REPLAY_MS, Record, RecordError, ReplayError};
use contract::ids::RunId;
use executor::clock::now_ms;
use serde_json::json;
use store::{Keys, Store, StoreError};

use crate::render;
use crate::shared_arguments::JailArguments;
use crate::state::{StateError, StoreSettings};

use arguments::Action;
pub(crate) use arguments::RunsArguments;

#[derive(Debug, thiserror::Error)]
enum RunsError {
    #[error("run `{run}`: {why}")]
    Record { run: String, why: RecordError },
    #[error("run `{run}`: {why}")]
    Replay { run: String, why: ReplayError },
    #[error("run `{run}`: {why}")]
    Fork { run: String, why: ForkError },
    #[error(
        "the run belongs to agent `{0}`, which `cellmate mcp` does not serve; fork it in the program that embeds \
         cellmate"
    )]
    UnknownAgent(String),
    #[error("{0}")]
    Setup(String),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

pub(crate) async fn run(arguments: RunsArguments) -> ExitCode {
    match act(arguments).await {
        Ok(code) => code,
        Err(error) => render::fatal(&error.to_string()),
    }
}

async fn act(arguments: RunsArguments) -> Result<ExitCode, RunsError> {
    let kept = arguments.store.choose()?;
    let as_json = arguments.json;
    match arguments.action {
        Action::List { limit } => {
            print::list(&open_without_keys(&kept).await?.runs(limit).await?, now_ms(), as_json);
            Ok(ExitCode::SUCCESS)
        }
        Action::Show { run } => {
            print::whole(&record(&open_without_keys(&kept).await?, &run).await?, now_ms(), as_json);
            Ok(ExitCode::SUCCESS)
        }
        Action::Replay { run, jail } => {
            replay(&record(&open_without_keys(&kept).await?, &run).await?, &jail, as_json).await
        }
        Action::Fork(fork) => fork::run(&kept, &arguments.store.places(), &fork, as_json).await,
    }
}

/// Opens the store for commands that only read records: snapshots stay sealed, so the key file is not read.
async fn open_without_keys(kept: &StoreSettings) -> Result<Store, RunsError> {
    Ok(kept.open_with(Keys::new(0, [0; 32])).await?)
}

async fn record(store: &Store, run: &RunId) -> Result<Record, RunsError> {
    Record::read(store, run).await.map_err(|why| RunsError::Record { run: name(run), why })
}

/// Replays a run from its record alone: no server is started and no secret is read.
async fn replay(record: &Record, jail: &JailArguments, as_json: bool) -> Result<ExitCode, RunsError> {
    let pool = Pool::start(jail.pool(record.memory_limit_bytes())).await?;
    let mut steps = Vec::new();
    let played = record.replay(&pool, MAX_MANUAL_REPLAY_MS, |step| {
        if as_json { steps.push(values::step(step)) } else { print::step(record, step) }
    });
    let (same, error) = match played.await {
        Ok(same) => (same, None),
        Err(ReplayError::Failed(failure)) => (false, Some(failure.to_string())),
        Err(why) => return Err(RunsError::Replay { run: name(&record.run.run_id), why }),
    };
    if as_json {
        let all = json!({
            "runId": record.run.run_id, "image": pool.image().to_string(), "steps": steps, "same": same, "error": error,
        });
        render::print_json(&all);
    } else {
        print::summary(record, same, error.as_deref());
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) })
}

/// Makes a run id that the user typed safe to print.
fn name(run: &str) -> String {
    contract::text::line(run, 100)
}
