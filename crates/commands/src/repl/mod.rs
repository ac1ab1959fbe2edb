//! `cellmate repl`: runs cells at a prompt, with the configured servers, policy, approvals and store. All cells of a
//! prompt belong to one session.

mod complete;
mod dot;
mod failure;
mod history;
mod input;

use std::process::ExitCode;
use std::sync::Arc;

use catalog::Catalog;
use clap::Args;
use client_config::load;
use codemode::ExecInput;
use codemode::pool::Pool;
use contract::cell::{CellResult, Language};
use contract::config;
use contract::ids::RunId;
use contract::limits::MAX_LISTED_OUTPUTS;
use contract::scope::Scope;
use contract::text;
use contract::tool::{Source, ToolSpec};
use executor::Executor;
use executor::clock::now_ms;
use mcp::server::Principal;
use parking_lot::Mutex;
use sandbox::{InsertedReturn, TypedCell};
use serde_json::{Value, json};
use store::SessionKey;
use tokio::sync::watch;

use crate::engine::{Engine, code_mode_config};
use crate::local_tools::local_tools;
use crate::policy::CallPolicy;
use crate::render::OutputFormat;
use crate::runs::{HandleDisplay, find_run, output_json, output_table, print_values};
use crate::shared_arguments::{JailArguments, LanguageArgument, LimitArguments, PolicyArguments};
use crate::state::ConfiguredStore;
use crate::table::Table;
use crate::turns::Patience;
use crate::{cell_result, policy, render};
use complete::Names;
use dot::DotCommand;
use failure::VariableHint;
use history::HistoryFile;
use input::{Input, ReplInput, is_interactive};

/// The command, as it is recorded with runs and with decisions.
const COMMAND: &str = "repl";

/// How many tools `.tools` lists.
const MAX_LISTED_TOOLS: usize = 50;

/// The longest name of a session.
const MAX_NAME_BYTES: usize = 64;

#[derive(Debug, Args)]
#[command(
    after_help = "Without a terminal, cells are read from standard input: one per line, which continues on the next \
                        line while brackets are open. The exit code is then 1 if a cell failed, and 3 if one waits."
)]
pub(crate) struct ReplArguments {
    /// Continue the session of this name, or begin it. Without a name, a new session begins.
    #[arg(long, value_name = "NAME", value_parser = session_name)]
    session: Option<String>,
    /// Language of the cells [default: JavaScript].
    #[arg(long, value_enum, hide_possible_values = true)]
    language: Option<LanguageArgument>,
    /// Use this agent's policy and standing approvals.
    #[arg(long, default_value_t = Principal::local().name().to_owned(), value_name = "ID")]
    agent: String,
    #[command(flatten)]
    policy: PolicyArguments,
    /// Print one JSON value per cell and command, even on a terminal.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: ConfiguredStore,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    jail: JailArguments,
}

/// Parses the name of a session, for `clap`.
fn session_name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_plain) {
        return Err(format!("use 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`"));
    }
    Ok(text.to_owned())
}

pub(crate) async fn run(arguments: ReplArguments) -> ExitCode {
    match start(&arguments).await {
        Ok(code) => code,
        Err(message) => render::fatal(&message),
    }
}

async fn start(arguments: &ReplArguments) -> Result<ExitCode, String> {
    let places = arguments.store.places();
    let loaded = load(&places).map_err(as_text)?;
    loaded.problems.iter().for_each(|problem| render::note(&format!("cellmate: {problem}")));
    let policy = policy::read(&loaded.settings).map_err(as_text)?.with(&arguments.policy);
    if let Some(note) = policy.provider_note(&arguments.agent) {
        render::note(&format!("cellmate: {note}"));
    }
    let store_settings = arguments.store.arguments().choose(&loaded.settings, &places).map_err(as_text)?;
    let config = arguments.limits.apply_to(code_mode_config(&policy, &arguments.agent));
    let name = match &arguments.session {
        Some(name) => name.clone(),
        None => new_name().map_err(as_text)?,
    };
    let pool = arguments.jail.pool(config.limits.memory_bytes);
    let (pool, store) = tokio::join!(Pool::start(pool), store_settings.open());
    let local = local_tools(&policy, &loaded.settings, &places, Some(store_settings.state.folder()))?;
    let engine =
        Engine::new(pool.map_err(as_text)?, store.map_err(as_text)?, &loaded, local, &store_settings.state, None);
    let engine = engine.map_err(as_text)?;
    let mut repl = Repl {
        engine: &engine,
        policy,
        config,
        scope: Scope { agent_id: arguments.agent.clone(), session_id: format!("repl:{name}"), ..Scope::default() },
        language: arguments.language.map_or(Language::JavaScript, LanguageArgument::language),
        format: OutputFormat::from_flag(arguments.json),
        waiting: None,
        outcome: Outcome::default(),
        hint: VariableHint::default(),
    };
    let done = repl.run(&name, HistoryFile::of(&store_settings.state)).await;
    let outcome = repl.outcome;
    engine.shut_down().await;
    done.map(|end| match end {
        End::Interrupted => ExitCode::from(render::INTERRUPTED),
        // A person has seen what happened.
        End::Left if is_interactive() => ExitCode::SUCCESS,
        End::Left => outcome.exit_code(),
    })
}

/// Returns a name for a new session.
fn new_name() -> Result<String, getrandom::Error> {
    let mut random = [0; 4];
    getrandom::fill(&mut random)?;
    Ok(hex::encode(random))
}

/// How the prompt was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Left,
    Interrupted,
}

/// What became of the cells so far.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    has_failed: bool,
    is_waiting: bool,
}

impl Outcome {
    fn exit_code(self) -> ExitCode {
        match self {
            Self { has_failed: true, .. } => ExitCode::from(render::FAILED),
            Self { is_waiting: true, .. } => ExitCode::from(render::WAITING),
            Self { .. } => ExitCode::SUCCESS,
        }
    }
}

/// What a person typed to run a cell decides how its result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellKind {
    /// An expression: its value is shown, and a failure has the place in what was typed.
    Expression(InsertedReturn),
    /// A cell of another prompt or client: its value is shown.
    Other,
    /// Statements: the value is shown unless it is `null`, because most statements return nothing.
    Statements,
}

struct Repl<'a> {
    engine: &'a Engine,
    policy: CallPolicy,
    config: config::CodeMode,
    scope: Scope,
    language: Language,
    format: OutputFormat,
    /// The last cell that has not ended.
    waiting: Option<(RunId, CellKind)>,
    outcome: Outcome,
    hint: VariableHint,
}

impl Repl<'_> {
    /// Reads and runs cells until the user leaves.
    async fn run(&mut self, name: &str, history: HistoryFile) -> Result<End, String> {
        let executor = self.engine.executor(&self.policy, self.scope.clone(), None).await.map_err(as_text)?;
        let names = Arc::new(Mutex::new(Names::of(executor.catalog())));
        let input = Input::start(Arc::clone(&names), history).map_err(as_text)?;
        if is_interactive() {
            let tools = match executor.catalog().len() {
                1 => "1 tool".to_owned(),
                count => format!("{count} tools"),
            };
            render::note(&format!("session {name}, {tools}; .help shows what you can type, Ctrl-D leaves"));
        }
        drop(executor);
        loop {
            let typed = tokio::select! {
                typed = input.next() => typed,
                // A prompt reads Ctrl-C itself.
                Ok(()) = tokio::signal::ctrl_c(), if !is_interactive() => return Ok(End::Interrupted),
            };
            let typed = match typed {
                ReplInput::Text(typed) => typed,
                ReplInput::Interrupted => {
                    render::note("(Ctrl-D or .exit leaves)");
                    continue;
                }
                ReplInput::End => break,
                ReplInput::Failed(message) => return Err(message),
            };
            // The servers' tools may have changed since the last cell.
            let executor = self.engine.executor_with_known_tools(&self.policy, self.scope.clone()).map_err(as_text)?;
            *names.lock() = Names::of(executor.catalog());
            let done = match dot::parse(&typed) {
                Some(Ok(DotCommand::Exit)) => break,
                Some(Ok(command)) => self.carry_out(&executor, command).await,
                Some(Err(message)) => Err(message),
                None => self.run_cell(&executor, typed).await,
            };
            match done {
                Ok(Some(End::Interrupted)) if !is_interactive() => return Ok(End::Interrupted),
                Ok(_) => {}
                Err(message) => {
                    self.outcome.has_failed = true;
                    render::note(&format!("cellmate: {message}"));
                }
            }
        }
        if is_interactive() {
            render::note(&format!("`cellmate repl --session {name}` continues this session"));
        }
        Ok(End::Left)
    }

    async fn run_cell(&mut self, executor: &Executor, typed: String) -> Result<Option<End>, String> {
        let (source, kind) = match TypedCell::judge(&typed) {
            TypedCell::Expression { source, inserted } => (source, CellKind::Expression(inserted)),
            TypedCell::Statements | TypedCell::Unfinished | TypedCell::Invalid => (typed, CellKind::Statements),
        };
        if kind == CellKind::Statements {
            self.hint.remember(&source);
        }
        let cell = ExecInput { source, language: self.language };
        let turns = self.engine.turns(executor, &self.config, COMMAND);
        let started: watch::Sender<Option<RunId>> = watch::Sender::new(None);
        let result = tokio::select! {
            biased;
            Ok(()) = tokio::signal::ctrl_c() => None,
            result = turns.exec(cell, Patience::NeedsHelp, &started) => Some(result.map_err(as_text)?),
        };
        let run_id = started.borrow().clone();
        match (result, run_id) {
            (Some(result), _) => self.show(result, kind).await.map(|()| None),
            (None, Some(run_id)) => {
                self.engine.code_mode.abort_with(executor, &run_id).await;
                render::note(&format!("cellmate: interrupted; run {run_id} is cancelled"));
                Ok(Some(End::Interrupted))
            }
            (None, None) => Ok(Some(End::Interrupted)),
        }
    }

    /// Continues a cell that has not ended. Ctrl-C ends only the waiting.
    async fn wait(&mut self, executor: &Executor, run: Option<&str>) -> Result<Option<End>, String> {
        let (run_id, kind) = match (run, &self.waiting) {
            (Some(typed), _) => {
                (find_run(self.engine.code_mode.store(), typed).await.map_err(as_text)?, CellKind::Other)
            }
            (None, Some(waiting)) => waiting.clone(),
            (None, None) => return Err("no cell of this prompt waits; `.wait RUN` continues another".to_owned()),
        };
        let turns = self.engine.turns(executor, &self.config, COMMAND);
        tokio::select! {
            biased;
            Ok(()) = tokio::signal::ctrl_c() => {
                render::note(&format!("cellmate: interrupted; `.wait {run_id}` continues the run"));
                Ok(Some(End::Interrupted))
            }
            result = turns.wait(&run_id) => self.show(result.map_err(as_text)?, kind).await.map(|()| None),
        }
    }

    /// Prints the result of a cell, and remembers whether it failed or waits.
    async fn show(&mut self, mut result: CellResult, kind: CellKind) -> Result<(), String> {
        if let (CellResult::Failed { error, .. }, CellKind::Expression(inserted)) = (&mut result, kind) {
            *error = failure::with_typed_position(error, inserted);
        }
        let advice = match &result {
            CellResult::Failed { error, .. } => self.hint.hint_for(error),
            _ => cell_result::advice(&self.engine.code_mode, &result).await.map_err(as_text)?,
        };
        self.waiting = match &result {
            CellResult::Waiting { run_id, .. } => Some((run_id.clone(), kind)),
            CellResult::Completed { .. } | CellResult::Failed { .. } => None,
        };
        match &result {
            CellResult::Failed { .. } => self.outcome.has_failed = true,
            CellResult::Waiting { .. } => self.outcome.is_waiting = true,
            CellResult::Completed { .. } => {}
        }
        if self.format == OutputFormat::Json {
            cell_result::print(&result, None, advice.as_deref(), OutputFormat::Json);
            return Ok(());
        }
        render::print_output(result.output());
        match &result {
            CellResult::Completed { value, .. } => {
                if kind != CellKind::Statements || value.get() != "null" {
                    render::print_safe(&format!("{}\n", render::pretty(value.get())));
                }
            }
            CellResult::Waiting { run_id, pending_tool_calls, .. } => {
                render::print_waiting(run_id, pending_tool_calls.len());
            }
            CellResult::Failed { error, code, effects, .. } => render::print_failure(error, *code, effects),
        }
        if let Some(advice) = advice {
            render::note(&format!("cellmate: {advice}"));
        }
        Ok(())
    }

    async fn carry_out(&mut self, executor: &Executor, command: DotCommand) -> Result<Option<End>, String> {
        let store = self.engine.code_mode.store();
        let session = SessionKey::from(&self.scope);
        match command {
            DotCommand::Exit => {}
            DotCommand::Help if self.format == OutputFormat::Json => render::print_json(&json!({"help": dot::help()})),
            DotCommand::Help => render::print(&dot::help()),
            DotCommand::State => {
                print_values(&session, &store.session_values(&session).await.map_err(as_text)?, self.format);
            }
            DotCommand::Outputs => {
                let outputs = store.outputs_of_session(&session, MAX_LISTED_OUTPUTS as u32).await.map_err(as_text)?;
                if self.format == OutputFormat::Json {
                    render::print_json(&json!({"outputs": outputs.iter().map(output_json).collect::<Vec<_>>()}));
                } else if outputs.is_empty() {
                    render::note("no stored outputs; what fits a result is part of it");
                } else {
                    render::print_table(&output_table(&outputs, HandleDisplay::Handle, now_ms()));
                }
            }
            DotCommand::Tools { query } => list_tools(executor.catalog(), &query, self.format),
            DotCommand::Wait { run } => return self.wait(executor, run.as_deref()).await,
        }
        Ok(None)
    }
}

/// Prints the tools that match the query, with the expression that calls each.
fn list_tools(catalog: &Catalog, query: &str, format: OutputFormat) {
    let found = catalog.find(query, MAX_LISTED_TOOLS, |_| true);
    if format == OutputFormat::Json {
        let listed = found.iter().map(
            |tool| json!({"id": tool.id.as_str(), "call": called(catalog, tool), "description": tool.description}),
        );
        return render::print_json(&json!({"tools": listed.collect::<Vec<Value>>()}));
    }
    if found.is_empty() {
        return render::note(if catalog.is_empty() { "there are no tools" } else { "no tool matches" });
    }
    let mut table = Table::new(["CALL", "DESCRIPTION"]).with_whole(&[0]);
    for tool in &found {
        let first_line = tool.description.lines().map(str::trim).find(|line| !line.is_empty());
        table.add([called(catalog, tool), text::line(first_line.unwrap_or_default(), 200)]);
    }
    render::print_table(&table);
    if query.is_empty() && found.len() < catalog.len() {
        render::note(&format!("{} of {} tools; `.tools QUERY` finds others", found.len(), catalog.len()));
    }
}

/// Returns the expression that calls a tool in a cell.
fn called(catalog: &Catalog, tool: &ToolSpec) -> String {
    match tool.id.source() {
        Source::Mcp => catalog.called(tool).unwrap_or_else(|| tool.id.as_str().to_owned()),
        _ => format!("tools.call({})", Value::from(tool.id.as_str())),
    }
}

fn as_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAME_BYTES, session_name};

    #[test]
    fn the_name_of_a_session_is_short_and_plain() {
        for name in ["a", "2026-11-16_trip.1", &"x".repeat(MAX_NAME_BYTES)] {
            assert_eq!(session_name(name).as_deref(), Ok(name));
        }
        for wrong in ["", "a b", "mcp:local", "\u{9b}", &"x".repeat(MAX_NAME_BYTES + 1)] {
            assert!(session_name(wrong).is_err(), "{wrong}");
        }
    }
}
