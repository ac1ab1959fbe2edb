//! `cellmate runs`: runs looked at, gone through again, gone on from; on the store of a server that may run meanwhile.

mod arguments;
mod fork;
mod print;
mod values;

use std::process::ExitCode;

use codemode::pool::{Pool, PoolError};
use codemode::replay::{ForkRefused, MAX_BY_HAND_MS, Record, Unplayable, Unreadable};
use executor::clock::now_ms;
use serde_json::json;
use store::{Keys, Store, StoreError};

use crate::jail::JailArguments;
use crate::render;
use crate::state::{StateError, StoreSettings};

use arguments::Action;
pub(crate) use arguments::RunsArguments;

#[derive(Debug, thiserror::Error)]
enum RunsError {
    #[error("run `{run}`: {why}")]
    Unreadable { run: String, why: Unreadable },
    #[error("run `{run}`: {why}")]
    Unplayable { run: String, why: Unplayable },
    #[error("run `{run}`: {why}")]
    Fork { run: String, why: ForkRefused },
    #[error("the run is `{0}`'s, whom `cellmate mcp` does not serve; whoever embeds cellmate there can fork it")]
    Stranger(String),
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
        Err(error) => render::trouble(&error.to_string()),
    }
}

async fn act(arguments: RunsArguments) -> Result<ExitCode, RunsError> {
    let kept = arguments.store.choose()?;
    let as_json = arguments.json;
    match arguments.action {
        Action::List { limit } => {
            print::list(&unopened(&kept).await?.runs(limit).await?, now_ms(), as_json);
            Ok(ExitCode::SUCCESS)
        }
        Action::Show { run } => {
            print::whole(&record(&unopened(&kept).await?, &run).await?, now_ms(), as_json);
            Ok(ExitCode::SUCCESS)
        }
        Action::Replay { run, jail } => replay(&record(&unopened(&kept).await?, &run).await?, &jail, as_json).await,
        Action::Fork(fork) => fork::run(&kept, &arguments.store.places(), &fork, as_json).await,
    }
}

/// The store for whoever only looks: snapshots stay sealed, so no key is read.
async fn unopened(kept: &StoreSettings) -> Result<Store, RunsError> {
    Ok(kept.open_with(Keys::new(0, [0; 32])).await?)
}

async fn record(store: &Store, run: &str) -> Result<Record, RunsError> {
    Record::read(store, run).await.map_err(|why| RunsError::Unreadable { run: name(run), why })
}

/// Everything that is needed is in the record: no server is started, no secret is read.
async fn replay(record: &Record, jail: &JailArguments, as_json: bool) -> Result<ExitCode, RunsError> {
    let pool = Pool::start(jail.pool(record.memory_limit_bytes())).await?;
    let mut steps = Vec::new();
    let played = record.replay(&pool, MAX_BY_HAND_MS, |step| {
        if as_json { steps.push(values::step(step)) } else { print::step(record, step) }
    });
    let (same, why) = match played.await {
        Ok(same) => (same, None),
        Err(Unplayable::Stumble(stumble)) => (false, Some(stumble.to_string())),
        Err(why) => return Err(RunsError::Unplayable { run: name(&record.run.run_id), why }),
    };
    if as_json {
        let all = json!({
            "runId": record.run.run_id, "image": pool.image().to_string(), "steps": steps, "same": same, "error": why,
        });
        render::say_json(&all);
    } else {
        print::sum(record, same, why.as_deref());
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) })
}

/// A run's id as somebody typed it.
fn name(run: &str) -> String {
    contract::text::line(run, 100)
}
