//! `cellmate runs`: lists, shows, exports, cancels, deletes, replays and forks runs, and shows their output and session
//! values. A server may be using the store at the same time.

mod arguments;
mod find;
mod fork;
mod output;
mod print;
mod remove;
mod state;
mod values;

use std::process::ExitCode;

use codemode::pool::{Pool, PoolError};
use codemode::replay::{ForkError, MAX_MANUAL_REPLAY_MS, Record, RecordError, ReplayError};
use executor::clock::now_ms;
use serde_json::json;
use store::{Keys, Millis, RunFilter, Store, StoreError};

use crate::render;
use crate::shared_arguments::JailArguments;
use crate::state::{StateError, StoreSettings};

use arguments::{Action, ListArguments};
use output::OutputError;
use state::SessionError;

pub(crate) use arguments::RunsArguments;
pub(crate) use find::{FindError, find_run, only_live_run};
pub(crate) use output::{Naming, table as output_table, to_json as output_json};
pub(crate) use state::print_values;

#[derive(Debug, thiserror::Error)]
enum RunsError {
    #[error("cannot read run `{run}`: {why}")]
    Record { run: String, why: RecordError },
    #[error("cannot replay run `{run}`: {why}")]
    Replay { run: String, why: ReplayError },
    #[error("cannot fork run `{run}`: {why}")]
    Fork { run: String, why: ForkError },
    #[error(
        "the run belongs to agent `{0}`, which `cellmate mcp` does not serve; fork it in the program that embeds \
         cellmate"
    )]
    UnknownAgent(String),
    #[error(
        "run `{run}` is {state}; cancel it first with `cellmate runs cancel {run}`, or pass --force to cancel and \
         delete it"
    )]
    Live { run: String, state: &'static str },
    #[error("deleting needs confirmation; run this in a terminal, or pass --yes")]
    Unconfirmed,
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Find(#[from] FindError),
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
    let store_settings = arguments.store.choose()?;
    let as_json = arguments.json;
    match arguments.action {
        Action::List(list) => {
            let (now, store) = (now_ms(), open_without_keys(&store_settings).await?);
            let filter = filter(&list, now);
            print::list(&store.runs(&filter, list.limit).await?, &list, now, as_json);
            Ok(ExitCode::SUCCESS)
        }
        Action::Show { run } => {
            let store = open_without_keys(&store_settings).await?;
            let record = record(&store, &run).await?;
            let approvals = store.approvals_of_run(&record.run.run_id).await?;
            print::details(&record, &approvals, now_ms(), as_json);
            Ok(ExitCode::SUCCESS)
        }
        Action::Export { run } => {
            let store = open_without_keys(&store_settings).await?;
            let run = find_run(&store, &run).await?;
            let row = store.run(&run).await?.ok_or_else(|| FindError::NotFound(name(&run)))?;
            let entries = store.run_transcript(&row.scope.session_id, &run).await?;
            if as_json {
                render::print_json(&json!(entries));
            } else {
                entries.iter().for_each(|entry| render::print_json(&json!(entry)));
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Output(output) => output::run(&open_without_keys(&store_settings).await?, &output, as_json).await,
        Action::State(state) => state::run(&open_without_keys(&store_settings).await?, &state, as_json).await,
        Action::Cancel { runs } => {
            let store = open_without_keys(&store_settings).await?;
            remove::cancel(&store_settings, &arguments.store.places(), store, &runs, as_json).await
        }
        Action::Rm(remove) => {
            let store = open_without_keys(&store_settings).await?;
            remove::remove(&store_settings, &arguments.store.places(), store, &remove, as_json).await
        }
        Action::Replay { run, jail } => {
            replay(&record(&open_without_keys(&store_settings).await?, &run).await?, &jail, as_json).await
        }
        Action::Fork(fork) => fork::run(&store_settings, &arguments.store.places(), &fork, as_json).await,
    }
}

/// Opens the store for commands that read no snapshots. Only snapshots need the key file, which is not read.
async fn open_without_keys(store_settings: &StoreSettings) -> Result<Store, RunsError> {
    Ok(store_settings.open_with(Keys::new(0, [0; 32])).await?)
}

fn filter(list: &ListArguments, now: Millis) -> RunFilter {
    RunFilter {
        states: list.states.iter().flat_map(|state| state.states()).copied().collect(),
        since: list.since.map(|age| age.before(now)),
        ..RunFilter::default()
    }
}

/// Reads the record of a run, from its id or the beginning of it that the user typed.
async fn record(store: &Store, typed: &str) -> Result<Record, RunsError> {
    let run = find_run(store, typed).await?;
    Record::read(store, &run).await.map_err(|why| RunsError::Record { run: name(&run), why })
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

/// Makes a run id safe to print.
fn name(run: &str) -> String {
    contract::text::line(run, 100)
}
