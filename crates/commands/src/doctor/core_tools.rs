//! The section of `cellmate doctor` about the shell and `web_fetch`, if the user enabled one of them.

use client_config::load;
use contract::config::ShellTool;
use contract::text;
use serde_json::{Map, Value, json};

use crate::arguments::DoctorArguments;
use crate::{local_tools, policy};

#[derive(Debug)]
pub(super) struct CoreTools {
    pub(super) text: String,
    pub(super) json: Value,
    pub(super) is_ok: bool,
}

impl CoreTools {
    /// Checks the core tools that are enabled. Returns `None` if none is, or if the configuration is invalid, which is
    /// reported elsewhere.
    pub(super) fn check(arguments: &DoctorArguments) -> Option<Self> {
        let places = arguments.store.places();
        let loaded = load(&places).ok()?;
        let policy = policy::read(&loaded.settings).ok()?;
        let settings = policy.config.core_tools();
        if !settings.shell.enabled && !settings.web_fetch.enabled {
            return None;
        }
        let (mut lines, mut json, mut problems) = (Vec::new(), Map::new(), Vec::new());
        if settings.shell.enabled {
            let (roots, root_problems) = local_tools::roots(&policy.config, &places, None);
            problems.extend(root_problems.iter().map(ToString::to_string));
            let state = match local_tools::shell(settings, &roots, &places, &mut problems) {
                None => "off".to_owned(),
                Some(_) => confinement(&settings.shell),
            };
            json.insert("shell".to_owned(), json!(state));
            lines.push(format!("shell          {state}"));
        }
        if settings.web_fetch.enabled {
            json.insert("webFetch".to_owned(), json!("on"));
            lines.push("web_fetch      on".to_owned());
        }
        json.insert("problems".to_owned(), json!(problems));
        lines.extend(problems.iter().map(|problem| format!("  problem: {}", text::line(problem, usize::MAX))));
        Some(Self { text: lines.join("\n"), json: json.into(), is_ok: problems.is_empty() })
    }
}

/// Describes how commands are confined here.
fn confinement(shell: &ShellTool) -> String {
    let Ok(support) = process::confinement_support() else {
        return "on, not confined: commands have all rights of your user".to_owned();
    };
    let network = if shell.network { "with network" } else { "no network" };
    let signals = match support.scopes {
        true => "",
        false => "; before Linux 6.12, they can send signals to your other processes",
    };
    format!("on, commands are confined to their folders by Landlock, {network}{signals}")
}
