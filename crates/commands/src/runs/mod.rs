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

use crate::render::{self, OutputFormat};
use crate::shared_arguments::JailArguments;
use crate::state::{StateError, StoreSettings};

use arguments::{Action, ListArguments};
use output::OutputError;
use state::SessionError;

pub(crate) use arguments::RunsArguments;
pub(crate) use find::{FindError, find_run, only_live_run};
pub(crate) use output::{HandleDisplay, table as output_table, to_json as output_json};
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
    let format = OutputFormat::from_flag(arguments.json);
    match arguments.action {
        Action::List(list) => {
            let (now, store) = (now_ms(), open_without_keys(&store_settings).await?);
            let filter = filter(&list, now);
            print::list(&store.runs(&filter, list.limit).await?, &list, now, format);
            Ok(ExitCode::SUCCESS)
        }
        Action::Show { run } => {
            let store = open_without_keys(&store_settings).await?;
            let record = record(&store, &run).await?;
            let approvals = store.approvals_of_run(&record.run.run_id).await?;
            print::details(&record, &approvals, now_ms(), format);
            Ok(ExitCode::SUCCESS)
        }
        Action::Export { run } => {
            let store = open_without_keys(&store_settings).await?;
            let run = find_run(&store, &run).await?;
            let row = store.run(&run).await?.ok_or_else(|| FindError::NotFound(name(&run)))?;
            let entries = store.run_transcript(&row.scope.session_id, &run).await?;
            if format == OutputFormat::Json {
                render::print_json(&json!(entries));
            } else {
                entries.iter().for_each(|entry| render::print_json(&json!(entry)));
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Output(output) => output::run(&open_without_keys(&store_settings).await?, &output, format).await,
        Action::State(state) => state::run(&open_without_keys(&store_settings).await?, &state, format).await,
        Action::Cancel { runs } => {
            let store = open_without_keys(&store_settings).await?;
            remove::cancel(&store_settings, &arguments.store.places(), store, &runs, format).await
        }
        Action::Rm(remove) => {
            let store = open_without_keys(&store_settings).await?;
            remove::remove(&store_settings, &arguments.store.places(), store, &remove, format).await
        }
        Action::Replay { run, jail } => {
            replay(&record(&open_without_keys(&store_settings).await?, &run).await?, &jail, format).await
        }
        Action::Fork(fork) => fork::run(&store_settings, &arguments.store.places(), &fork, format).await,
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

/// How a replayed run compares with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplayOutcome {
    Same,
    Different,
    /// The replay ended early, with this message.
    Failed(String),
}

/// Replays a run from its record alone: no server is started and no secret is read.
async fn replay(record: &Record, jail: &JailArguments, format: OutputFormat) -> Result<ExitCode, RunsError> {
    let pool = Pool::start(jail.pool(record.memory_limit_bytes())).await?;
    let mut steps = Vec::new();
    let played = record.replay(&pool, MAX_MANUAL_REPLAY_MS, |step| {
        if format == OutputFormat::Json { steps.push(values::step(step)) } else { print::step(record, step) }
    });
    let outcome = match played.await {
        Ok(true) => ReplayOutcome::Same,
        Ok(false) => ReplayOutcome::Different,
        Err(ReplayError::Failed(failure)) => ReplayOutcome::Failed(failure.to_string()),
        Err(why) => return Err(RunsError::Replay { run: name(&record.run.run_id), why }),
    };
    let is_same = outcome == ReplayOutcome::Same;
    if format == OutputFormat::Json {
        let error = match &outcome {
            ReplayOutcome::Failed(error) => Some(error),
            ReplayOutcome::Same | ReplayOutcome::Different => None,
        };
        let all = json!({
            "runId": record.run.run_id, "image": pool.image().to_string(), "steps": steps, "same": is_same,
            "error": error,
        });
        render::print_json(&all);
    } else {
        print::summary(record, &outcome);
    }
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) })
}

/// Makes a run id safe to print.
fn name(run: &str) -> String {
    contract::text::line(run, 100)
}
