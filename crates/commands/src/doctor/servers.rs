//! The server section of `cellmate doctor`: the last known state of each server, or a fresh probe with `--servers`.

use client_config::{LoadedConfig, Problem, display};
use serde_json::{Value, json};

use crate::arguments::DoctorArguments;
use crate::policy;
use crate::servers::{ServerReport, probe_all, problem_json, server_json, server_reports};
use crate::unmatched::{self, PatternWarning};

/// What `cellmate doctor` reports about the configured servers and the patterns of the policy.
#[derive(Debug)]
pub(super) struct ServerSection {
    reports: Vec<ServerReport>,
    problems: Vec<Problem>,
    /// Patterns of the policy that match no tool. Not counted as problems.
    patterns: Vec<PatternWarning>,
}

impl ServerSection {
    /// Reports on every configured server. Fails if the configuration or the state folder cannot be used.
    pub(super) async fn check(arguments: &DoctorArguments) -> Result<Self, String> {
        let places = arguments.store.places();
        let loaded = client_config::load(&places).map_err(|error| error.to_string())?;
        let store_arguments = arguments.store.arguments();
        if arguments.servers {
            let tool_lists = store_arguments.lists(&places);
            let on = loaded.servers.iter().filter(|server| server.enabled).cloned().collect();
            // Probing stores each list of tools in a file, which the reports read; the servers are stopped again.
            drop(probe_all(on, tool_lists).await);
        }
        let reports = server_reports(&loaded, &places, store_arguments).await.map_err(|error| error.to_string())?;
        let (state, tool_lists) = (store_arguments.folder(&places), store_arguments.lists(&places));
        let patterns = policy::read(&loaded.settings).map_or_else(
            // An invalid policy is reported by the check of the gateway.
            |_| Vec::new(),
            |policy| {
                let known = unmatched::known_tools(&loaded, &policy, &places, state.as_deref(), tool_lists);
                unmatched::warnings(&loaded.settings, &known)
            },
        );
        let LoadedConfig { problems, .. } = loaded;
        Ok(Self { reports, problems, patterns })
    }

    pub(super) fn are_ok(&self) -> bool {
        self.problems.is_empty() && !self.reports.iter().any(|report| report.readiness().needs_attention())
    }

    pub(super) fn readable(&self) -> String {
        let mut text = self.readable_servers();
        self.patterns.iter().for_each(|warning| text += &format!("policy         {}\n", warning.message));
        text
    }

    fn readable_servers(&self) -> String {
        if self.reports.is_empty() && self.problems.is_empty() {
            return "servers        none; add one with `cellmate servers add NAME -- COMMAND`\n".to_owned();
        }
        let bad =
            self.reports.iter().filter(|report| report.readiness().needs_attention()).count() + self.problems.len();
        let found = match bad {
            0 => "no problems".to_owned(),
            1 => "1 problem".to_owned(),
            _ => format!("{bad} problems"),
        };
        let mut text = format!("servers        {} configured, {found}\n", self.reports.len());
        for report in &self.reports {
            let (name, state) = (display::plain(&report.entry.name), report.readiness().as_str());
            text += &format!("  {name}: {state}, {}\n", report.tools());
            report.remarks().iter().for_each(|remark| text += &format!("    {remark}\n"));
            report.next().iter().for_each(|next| text += &format!("    run `{next}`\n"));
        }
        self.problems.iter().for_each(|problem| text += &format!("  problem: {problem}\n"));
        text
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "servers": self.reports.iter().map(server_json).collect::<Vec<_>>(),
            "problems": self.problems.iter().map(problem_json).collect::<Vec<_>>(),
            "unmatchedPatterns": self.patterns.iter().map(pattern_json).collect::<Vec<_>>(),
        })
    }
}

fn pattern_json(warning: &PatternWarning) -> Value {
    json!({"setting": warning.path, "message": warning.message})
}
