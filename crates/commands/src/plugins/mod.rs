//! `cellmate plugins`: manages the installed plugins.

mod add;
mod list;
mod new;
mod remove;
mod rollback;
mod schema;
mod show;
mod switch;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use ::tools::plugins::{InstalledPlugin, PluginHost};
use clap::{Args, Subcommand};
use contract::config::PluginsConfig;

use crate::local_tools::{plugin_host, plugins_config};
use crate::shared_arguments::ConfigArguments;
use crate::state::State;

pub(crate) use list::{PluginReport, plugin_reports};

#[derive(Debug, Args)]
pub(crate) struct PluginsArguments {
    #[command(subcommand)]
    command: PluginsCommand,
}

#[derive(Debug, Subcommand)]
enum PluginsCommand {
    /// List the installed plugins, without starting them.
    List(list::ListArguments),
    /// Install a plugin, or a new version of one: copies its folder, after you have confirmed what it may do.
    Add(add::AddArguments),
    /// Show a plugin: its tools, hooks, namespaces and versions.
    Show(show::ShowArguments),
    /// Use a plugin again that was disabled.
    Enable(switch::SwitchArguments),
    /// Keep a plugin and do not use it.
    Disable(switch::SwitchArguments),
    /// Use an earlier version of a plugin again.
    Rollback(rollback::RollbackArguments),
    /// Remove a plugin with all its versions and its data.
    Remove(remove::RemoveArguments),
    /// Start a plugin, try its hooks and call its tools, and report what it does.
    Test(test::TestArguments),
    /// Write a new plugin to a folder, to begin with.
    New(new::NewArguments),
    /// Print the JSON Schema of `cellmate.plugin.json`.
    Schema(schema::SchemaArguments),
}

pub(crate) async fn run(arguments: PluginsArguments) -> ExitCode {
    match arguments.command {
        PluginsCommand::List(arguments) => list::run(&arguments),
        PluginsCommand::Add(arguments) => add::run(&arguments),
        PluginsCommand::Show(arguments) => show::run(&arguments),
        PluginsCommand::Enable(arguments) => switch::run(&arguments, switch::PluginState::Enabled),
        PluginsCommand::Disable(arguments) => switch::run(&arguments, switch::PluginState::Disabled),
        PluginsCommand::Rollback(arguments) => rollback::run(&arguments),
        PluginsCommand::Remove(arguments) => remove::run(&arguments),
        PluginsCommand::Test(arguments) => test::run(&arguments).await,
        PluginsCommand::New(arguments) => new::run(&arguments),
        PluginsCommand::Schema(arguments) => schema::run(&arguments),
    }
}

/// Where plugins are installed and configured.
#[derive(Clone, Debug, Args)]
struct PlaceArguments {
    /// Folder for this machine's state [default: `$XDG_STATE_HOME/cellmate`].
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArguments,
}

impl PlaceArguments {
    fn host(&self) -> Result<PluginHost, String> {
        let state = State::open(self.state_dir.as_deref()).map_err(|error| error.to_string())?;
        Ok(plugin_host(state.folder(), &self.config.places()))
    }

    /// Returns the settings of plugins.
    fn settings(&self) -> Result<PluginsConfig, String> {
        let loaded = client_config::load(&self.config.places()).map_err(|error| error.to_string())?;
        plugins_config(&loaded.settings)
    }
}

/// Returns the version of a plugin, as its manifest calls it.
fn version(plugin: &InstalledPlugin) -> String {
    plugin.record.active_version().map_or_else(|| "?".to_owned(), |version| version.version.clone())
}
