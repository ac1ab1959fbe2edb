//! Prepares a run with the configured servers and tool policy, for the `cellmate tools` commands.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ::tools::plugins::Plugins;
use catalog::{Catalog, SurfaceError, SurfaceOptions, SurfaceReport};
use clap::Args;
use client_config::{LoadedConfig, Places, ServerEntry, display};
use contract::scope::Scope;
use contract::tool::{ToolId, ToolSpec};
use executor::clock::now_ms;
use executor::run::{PreparedRun, RunRequest, run_policy};
use executor::{Executor, ToolSource};
use mcp::server::{ApprovalHook, Principal, surface_report};
use mcp::{Status, Upstream, UpstreamOptions};
use serde_json::{Value, json};
use store::Millis;

use super::names;
use super::withheld::WithheldTools;
use crate::age::span;
use crate::engine::{MAX_NAMESPACE_WAIT, prepare_run_for};
use crate::local_tools::{local_tools, report_failed_plugins};
use crate::servers::{FilteredTools, ProbeResult, probe_all};
use crate::shared_arguments::{ConfigArguments, PolicyArguments};
use crate::upstream::STDERR_WAIT;
use crate::{hint, policy, render};

/// How long the remembered tool list of a server is used without starting the server.
const FRESH_MS: Millis = 24 * 60 * 60 * 1000;

/// The longest reason of a closed connection that is shown.
const MAX_SHOWN_CHARS: usize = 1_000;

/// How old a remembered tool list is at least when its age is mentioned.
const NOTABLE_MS: Millis = 60 * 1000;

/// The agent whose run it is, and the configuration.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// Use this agent's policy and standing approvals.
    #[arg(long, default_value_t = Principal::local().name().to_owned(), value_name = "ID")]
    agent: String,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

/// How the run of one command differs from another's.
#[derive(Clone, Debug, Default)]
pub(super) struct RunOptions {
    pub(super) session: String,
    pub(super) surface: SurfaceOptions,
    /// The state folder, if it is not the default one.
    pub(super) state: Option<PathBuf>,
}

/// Where tool lists come from, for commands that only read them.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ListSource {
    /// Start every server and list its tools again, instead of using lists that are less than a day old.
    #[arg(long)]
    refresh: bool,
}

impl ListSource {
    /// Starts every server.
    pub(super) const STARTED: Self = Self { refresh: true };
    /// Uses remembered lists where they are fresh.
    pub(super) const REMEMBERED: Self = Self { refresh: false };
}

impl RunArguments {
    pub(super) fn places(&self) -> Places {
        self.config.places()
    }

    pub(super) fn loaded(&self) -> Result<LoadedConfig, String> {
        client_config::load(&self.places()).map_err(|error| error.to_string())
    }

    /// Prepares a run with the tools of these servers, of plugins, and of Cellmate itself. Fails only if the configuration
    /// is invalid.
    pub(super) async fn ready(
        &self,
        loaded: &LoadedConfig,
        servers: Vec<ServerEntry>,
        lists: ListSource,
        options: RunOptions,
    ) -> Result<Ready, String> {
        let RunOptions { session, surface, state } = options;
        let state = state.or_else(|| self.places().state());
        let policy = policy::read(&loaded.settings).map_err(|error| error.to_string())?.with(&self.policy);
        let provider_note = policy.provider_note(&self.agent);
        let folder = self.places().tool_lists();
        let (remembered, unknown) = match lists.refresh {
            true => (Vec::new(), servers),
            false => remembered(servers, folder.clone()),
        };
        let results = probe_all(unknown, folder).await;
        let scope = Scope {
            agent_id: self.agent.clone(),
            session_id: session,
            sandboxed: policy.sandboxed,
            ..Scope::default()
        };
        let request = RunRequest { scope: scope.clone(), provider: policy.provider.clone(), ..RunRequest::default() };
        let mut withheld = WithheldTools::new(run_policy(&policy.config, &request));
        let mut sources: Vec<Arc<dyn ToolSource>> = Vec::new();
        let remembered_sources = remembered.iter().map(|one| (one.upstream.clone() as Arc<dyn ToolSource>, &one.entry));
        for (source, entry) in remembered_sources.chain(results.iter().filter_map(started)) {
            let offered = FilteredTools::new(Arc::clone(&source), entry);
            withheld.add_server(source.as_ref(), &offered, entry);
            sources.push(Arc::new(offered));
        }
        let local = local_tools(&policy, &loaded.settings, &self.places(), state.as_deref())?;
        local.tools.sources.iter().for_each(|source| withheld.add(source.tools()));
        local.tools.make_ready(&scope, MAX_NAMESPACE_WAIT).await;
        let (run, asked) =
            prepare_run_for(&policy, local.tools, sources, scope, surface).map_err(|error| error.to_string())?;
        Ok(Ready { run, results, remembered, plugins: local.plugins, asked, provider_note, withheld })
    }
}

fn started(result: &ProbeResult) -> Option<(Arc<dyn ToolSource>, &ServerEntry)> {
    let source: Arc<dyn ToolSource> = result.server.as_ref().ok()?.clone();
    Some((source, &result.entry))
}

/// A server whose tools are known from an earlier start.
#[derive(Debug)]
pub(super) struct RememberedServer {
    entry: ServerEntry,
    upstream: Arc<Upstream>,
    listed_at: Millis,
}

/// Separates the servers whose remembered tool list is fresh from those that must be started.
fn remembered(servers: Vec<ServerEntry>, folder: Option<PathBuf>) -> (Vec<RememberedServer>, Vec<ServerEntry>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for entry in servers {
        let options = UpstreamOptions { cache_dir: folder.clone(), ..UpstreamOptions::DEFAULT };
        let upstream = Upstream::new(entry.spec(), options);
        match fresh_since(&upstream.status(), now_ms()) {
            Some(listed_at) => known.push(RememberedServer { entry, upstream, listed_at }),
            None => unknown.push(entry),
        }
    }
    (known, unknown)
}

/// Returns when the tools were listed, if that is not long ago and the server has not failed since.
fn fresh_since(status: &Status, now: Millis) -> Option<Millis> {
    let is_fresh = |at: &Millis| now.saturating_sub(*at) < FRESH_MS && *at <= now;
    status.listed_at.filter(|at| is_fresh(at) && status.last_failure.is_none())
}

/// A run that can start, and its servers, which are stopped when this is dropped.
pub(super) struct Ready {
    run: PreparedRun,
    pub(super) results: Vec<ProbeResult>,
    remembered: Vec<RememberedServer>,
    plugins: Plugins,
    asked: ApprovalHook,
    /// Says that the rules of several providers apply.
    provider_note: Option<String>,
    withheld: WithheldTools,
}

impl Ready {
    pub(super) fn catalog(&self) -> &Catalog {
        self.run.executor.catalog()
    }

    /// Returns the tool that the user typed. If there is none, the message says why, or names similar ones.
    pub(super) fn find(&self, typed: &str, places: &Places) -> Result<&ToolSpec, String> {
        let found = names::find_tool(self.catalog(), typed);
        found.map_err(|unknown| self.withheld.explain(typed, places).unwrap_or(unknown))
    }

    /// Reports how `cellmate mcp` would show the tools.
    pub(super) fn surface(&self) -> Result<SurfaceReport, SurfaceError> {
        surface_report(&self.run)
    }

    /// Returns the tools that policy lets the run see.
    pub(super) fn tools(&self) -> &[ToolSpec] {
        self.catalog().tools()
    }

    /// Returns an executor that asks for the same approvals as it would for a cell's calls.
    pub(super) fn executor(&self) -> &Executor {
        &self.run.executor
    }

    /// Whether calls of this tool need approval, unless a standing approval covers them.
    pub(super) fn asks_about(&self, id: &ToolId) -> bool {
        self.asked.covers(id)
    }

    /// Prints why servers closed their connections since they were started, and why plugins failed, with the end of their
    /// standard error.
    pub(super) async fn report_failures(&self) {
        for ProbeResult { entry, server, .. } in &self.results {
            let Some(server) = server.as_ref().ok() else { continue };
            let Some(why) = server.why_closed() else { continue };
            // The process may still be writing its reason.
            tokio::time::sleep(STDERR_WAIT).await;
            let why = contract::text::line(&entry.without_secrets(&why.to_string()), MAX_SHOWN_CHARS);
            render::note(&format!("cellmate: server `{}`: {why}", display::plain(&entry.name)));
            render::note_stderr(&process::excerpt(&entry.without_secrets(&server.stderr_tail())));
        }
        report_failed_plugins(&self.plugins);
    }

    pub(super) fn all_started(&self) -> bool {
        self.results.iter().all(|result| result.server.is_ok())
    }

    /// Returns the exit code of a command that lists tools: it fails if a server's tools are missing.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.all_started() { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) }
    }

    /// Says on standard error that the rules of several providers apply, if they do.
    pub(super) fn note_provider(&self) {
        if let Some(note) = &self.provider_note {
            render::note(&format!("note: {note}"));
        }
    }

    /// Prints the servers that could not be started, and the age of remembered lists, to standard error.
    pub(super) fn report(&self) {
        for result in &self.results {
            if let Err(failure) = &result.server {
                let (name, why) = (display::plain(&result.entry.name), &failure.why);
                let test = hint::command(&format!("servers test {}", display::for_shell(&name)));
                render::note(&format!("problem: server `{name}`: {why}; run `{test}` for details"));
                render::note_stderr(&failure.excerpt());
            }
        }
        let oldest = self.remembered.iter().map(|server| now_ms().saturating_sub(server.listed_at)).max();
        if let Some(age) = oldest.filter(|age| *age >= NOTABLE_MS) {
            render::note_on_terminal(&format!("tool lists are up to {} old; --refresh lists them again", span(age)));
        }
    }

    /// Returns the servers that could not be started, as problems in JSON.
    pub(super) fn problems_json(&self) -> impl Iterator<Item = Value> {
        let failures = self.results.iter().filter_map(|result| Some((result, result.server.as_ref().err()?)));
        failures.map(|(result, failure)| {
            json!({"server": result.entry.name, "message": failure.why, "stderr": failure.excerpt()})
        })
    }
}

#[cfg(test)]
mod tests {
    use mcp::{LastFailure, ServerState, Status};

    use super::{FRESH_MS, fresh_since};

    #[test]
    fn a_remembered_list_is_used_for_a_day_unless_the_server_failed_since() {
        let status = |listed_at: Option<i64>, failed: bool| Status {
            name: "s".to_owned(),
            state: ServerState::Stopped,
            since: 0,
            restarts: 0,
            failures: 0,
            next_try: None,
            in_flight: 0,
            tools: 1,
            left_out: 0,
            listed_at,
            remembered: true,
            changed_since_approved: Vec::new(),
            last_failure: failed.then(|| LastFailure {
                at: 1,
                message: "m".to_owned(),
                stderr: String::new(),
                timed_out: false,
            }),
        };
        assert_eq!(fresh_since(&status(Some(1_000), false), 1_000 + FRESH_MS - 1), Some(1_000));
        assert_eq!(fresh_since(&status(Some(1_000), false), 1_000 + FRESH_MS), None);
        assert_eq!(fresh_since(&status(Some(1_000), true), 1_001), None);
        assert_eq!(fresh_since(&status(Some(2_000), false), 1_000), None, "a time in the future is not trusted");
        assert_eq!(fresh_since(&status(None, false), 1_000), None);
    }
}
