//! `cellmate plugins enable` and `disable`: switch a plugin on or off and keep it.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::PlaceArguments;
use crate::render;

#[derive(Debug, Args)]
pub(super) struct SwitchArguments {
    /// Plugin to switch.
    id: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

/// The state that a plugin is switched to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PluginState {
    Enabled,
    Disabled,
}

pub(super) fn run(arguments: &SwitchArguments, state: PluginState) -> ExitCode {
    let switched = arguments.place.host().and_then(|host| {
        let is_change = match state {
            PluginState::Enabled => host.folder.enable(&arguments.id),
            PluginState::Disabled => host.folder.disable(&arguments.id),
        };
        is_change.map_err(|error| error.to_string())
    });
    let is_change = match switched {
        Ok(is_change) => is_change,
        Err(message) => return render::fatal(&message),
    };
    let enabled = state == PluginState::Enabled;
    if arguments.json {
        render::print_json(&json!({"id": arguments.id, "enabled": enabled, "changed": is_change}));
        return ExitCode::SUCCESS;
    }
    let state = if enabled { "enabled" } else { "disabled" };
    let text = if is_change {
        format!("{state} `{}`\n", arguments.id)
    } else {
        format!("`{}` is already {state}\n", arguments.id)
    };
    render::print(&text);
    ExitCode::SUCCESS
}
