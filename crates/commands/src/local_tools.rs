//! The tools of this process itself, as the configuration enables them: core tools and plugins.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ::tools::core::{CoreTools, ProtectedFolder, Root, Roots, Shell, ShellSettings, SystemLookup, WebFetch};
use ::tools::plugins::{Plugin, PluginFolder, PluginHost, PluginOptions, PluginStatus, Plugins, Variables};
use client_config::{Places, display};
use contract::config::{self, AgentsConfig, PluginsConfig};
use executor::run::LocalTools;
use mcp::server::Principal;
use serde_json::Value;

use crate::policy::CallPolicy;
use crate::render;

/// The folder inside the state folder that has the installed plugins.
pub(crate) const PLUGINS_FOLDER: &str = "plugins";

/// The core tools and plugins that the user enabled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Local {
    pub(crate) tools: LocalTools,
    pub(crate) plugins: Plugins,
}

/// The local tools of a changed configuration.
#[derive(Debug)]
pub(crate) struct ReloadedTools {
    pub(crate) local: Local,
    /// Plugins that are no longer used.
    pub(crate) retired: Vec<Arc<Plugin>>,
    /// What cannot be used, and why.
    pub(crate) problems: Vec<String>,
}

/// Returns the core tools and plugins that the user enabled, and prints what cannot be used. No plugin is started.
/// Without a state folder there are no plugins.
pub(crate) fn local_tools(
    policy: &CallPolicy,
    settings: &Value,
    places: &Places,
    state: Option<&Path>,
) -> Result<Local, String> {
    let ReloadedTools { local, problems, .. } = reloaded(policy, settings, (places, state), &Plugins::default())?;
    problems.iter().for_each(|problem| render::note(&format!("cellmate: {problem}")));
    Ok(local)
}

/// Returns the local tools of a changed configuration: plugins that have not changed are kept as they are, running or
/// not.
pub(crate) fn reloaded(
    policy: &CallPolicy,
    settings: &Value,
    (places, state): (&Places, Option<&Path>),
    former: &Plugins,
) -> Result<ReloadedTools, String> {
    let (core, mut problems) = core_tools(policy, places, state);
    let mut tools = LocalTools { sources: vec![Arc::new(core)], ..LocalTools::default() };
    let Some(state) = state else {
        let local = Local { tools, plugins: Plugins::default() };
        return Ok(ReloadedTools { local, retired: Vec::new(), problems });
    };
    let config = plugins_config(settings)?;
    let (plugins, retired) =
        Plugins::load(&plugin_host(state, places), &config, former).map_err(|error| format!("plugins: {error}"))?;
    let unusable =
        plugins.unusable().iter().map(|plugin| format!("plugin `{}` is not used: {}", plugin.id, plugin.why));
    problems.extend(unusable);
    problems.extend(plugins.add_to(&mut tools));
    Ok(ReloadedTools { local: Local { tools, plugins }, retired, problems })
}

/// Prints which plugins have failed in this process, with the end of their standard error.
pub(crate) fn report_failed_plugins(plugins: &Plugins) {
    for plugin in plugins.iter() {
        let PluginStatus { last_failure: Some(why), stderr, .. } = plugin.status() else { continue };
        render::note(&format!("cellmate: plugin `{}` failed: {why}", plugin.id()));
        render::note_stderr(&process::excerpt(&stderr.unwrap_or_default()));
    }
}

/// Returns the core tools that the user enabled, and what cannot be used.
fn core_tools(policy: &CallPolicy, places: &Places, state: Option<&Path>) -> (CoreTools, Vec<String>) {
    let settings = policy.config.core_tools();
    let (roots, root_problems) = roots(&policy.config, places, state);
    let mut problems: Vec<String> = root_problems.iter().map(ToString::to_string).collect();
    let mut core = CoreTools::new(settings, &roots);
    if let Some(shell) = shell(settings, &roots, places, &mut problems) {
        core = core.with_shell(shell);
    }
    if settings.web_fetch.enabled {
        match WebFetch::new(&settings.web_fetch, SystemLookup) {
            Ok(web_fetch) => core = core.with_web_fetch(web_fetch),
            Err(why) => problems.push(format!("`tools.web.fetch`: {why}")),
        }
    }
    (core, problems)
}

/// Creates the shell, if the user enabled it. Adds why it, or a part of it, cannot be used.
pub(crate) fn shell(
    settings: &config::CoreTools,
    roots: &Roots,
    places: &Places,
    problems: &mut Vec<String>,
) -> Option<Shell> {
    if !settings.shell.enabled {
        return None;
    }
    let mut shell = ShellSettings::new(&settings.shell, std::env::temp_dir());
    for path in &settings.shell.readable {
        if let Err(error) = shell.allow_reading(&places.resolve(path)) {
            problems.push(error.to_string());
        }
    }
    Shell::new(shell, roots).map_err(|why| problems.push(format!("the shell (`tools.exec`) is off: {why}"))).ok()
}

/// Why a part of `tools.fs` cannot be used.
#[derive(Debug)]
pub(crate) struct RootProblem {
    /// The path of the setting.
    pub(crate) setting: String,
    message: String,
}

impl fmt::Display for RootProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.setting, self.message)
    }
}

/// Opens the folders of `tools.fs.roots`, or the agent's workspace, if a tool uses them. Also returns why some cannot be
/// used.
pub(crate) fn roots(config: &AgentsConfig, places: &Places, state: Option<&Path>) -> (Roots, Vec<RootProblem>) {
    let settings = config.core_tools();
    let (mut roots, mut problems) = (Roots::default(), Vec::new());
    if !settings.files.enabled && !settings.shell.enabled {
        return (roots, problems);
    }
    let own = protected_folders(places, state);
    let folders = config.file_roots(Principal::local().name());
    for (position, root) in folders.iter().enumerate() {
        let opened = Root::open(&places.resolve(&root.path), root.access)
            .and_then(|opened| opened.keep_away_from(&own))
            .and_then(|opened| roots.push(opened));
        if let Err(error) = opened {
            let message = format!("the folder `{}` cannot be used: {error}", display::plain(&root.path));
            problems.push(RootProblem { setting: root_setting(&settings.files, position), message });
        }
    }
    if folders.is_empty() {
        let message =
            "no folder is listed in `roots`, so file tools and shell have none; list the folders that they may use";
        problems.push(RootProblem { setting: "tools.fs".to_owned(), message: message.to_owned() });
    }
    (roots, problems)
}

/// Returns the path of the setting that names a root: its entry in `tools.fs.roots`, or the workspace of an agent.
fn root_setting(files: &config::FileTools, position: usize) -> String {
    if files.roots.is_empty() { "agents".to_owned() } else { format!("tools.fs.roots[{position}]") }
}

/// Returns the folders with Cellmate's own settings, keys and tokens, those that the user named included: a tool that
/// changes them could grant itself anything. Files of projects are not among them: a changed one is no longer trusted.
fn protected_folders(places: &Places, state: Option<&Path>) -> Vec<ProtectedFolder> {
    let own = places.user_file().and_then(|file| Some(file.parent()?.to_owned()));
    let settings = own.into_iter().chain(places.named_files());
    let settings = settings.map(|path| ProtectedFolder { path, what: "Cellmate's configuration" });
    let states = places.state().into_iter().chain(state.map(Path::to_owned));
    settings.chain(states.map(|path| ProtectedFolder { path, what: "Cellmate's keys and tokens" })).collect()
}

/// Reads the section `plugins` of the settings.
pub(crate) fn plugins_config(settings: &Value) -> Result<PluginsConfig, String> {
    let section = settings.get("plugins").unwrap_or(&Value::Null);
    PluginsConfig::resolve(section).map_err(|errors| {
        format!("configuration: {}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    })
}

/// Returns the folder in which plugins are installed.
pub(crate) fn plugin_folder(state: &Path) -> PluginFolder {
    PluginFolder::new(state.join(PLUGINS_FOLDER))
}

/// Returns what plugins need from this process: where they are installed, and the environment.
pub(crate) fn plugin_host(state: &Path, places: &Places) -> PluginHost {
    let places = places.clone();
    PluginHost {
        folder: plugin_folder(state),
        variables: Variables {
            inherited: Arc::new(|name| std::env::var(name).ok()),
            expand: Arc::new(move |text| places.expand_secret(text).map_err(|unset| unset.to_string())),
        },
        options: PluginOptions::DEFAULT,
    }
}
