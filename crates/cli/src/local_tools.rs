//! The tools of this process itself, as the configuration enables them: core tools and plugins.

use std::path::Path;
use std::sync::Arc;

use ::tools::core::CoreTools;
use ::tools::plugins::{Plugin, PluginFolder, PluginHost, PluginOptions, Plugins};
use contract::config::PluginsConfig;
use executor::run::LocalTools;
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
pub(crate) struct Reloaded {
    pub(crate) local: Local,
    /// Plugins that are no longer used.
    pub(crate) retired: Vec<Arc<Plugin>>,
    /// What cannot be used, and why.
    pub(crate) problems: Vec<String>,
}

/// Returns the core tools and plugins that the user enabled, and prints which plugins cannot be used. No plugin is
/// started. Without a state folder there are no plugins.
pub(crate) fn local_tools(policy: &CallPolicy, settings: &Value, state: Option<&Path>) -> Result<Local, String> {
    let Reloaded { local, problems, .. } = reloaded(policy, settings, state, &Plugins::default())?;
    problems.iter().for_each(|problem| render::note(&format!("cellmate: {problem}")));
    Ok(local)
}

/// Returns the local tools of a changed configuration: plugins that have not changed are kept as they are, running or
/// not.
pub(crate) fn reloaded(
    policy: &CallPolicy,
    settings: &Value,
    state: Option<&Path>,
    former: &Plugins,
) -> Result<Reloaded, String> {
    let mut tools =
        LocalTools { sources: vec![Arc::new(CoreTools::new(policy.config.core_tools()))], ..LocalTools::default() };
    let Some(state) = state else {
        let local = Local { tools, plugins: Plugins::default() };
        return Ok(Reloaded { local, retired: Vec::new(), problems: Vec::new() });
    };
    let config = plugins_config(settings)?;
    let (plugins, retired) =
        Plugins::load(&plugin_host(state), &config, former).map_err(|error| format!("plugins: {error}"))?;
    let unusable =
        plugins.unusable().iter().map(|plugin| format!("plugin `{}` is not used: {}", plugin.id, plugin.why));
    let mut problems: Vec<String> = unusable.collect();
    problems.extend(plugins.add_to(&mut tools));
    Ok(Reloaded { local: Local { tools, plugins }, retired, problems })
}

/// Reads the section `plugins` of the settings.
pub(crate) fn plugins_config(settings: &Value) -> Result<PluginsConfig, String> {
    let section = settings.get("plugins").unwrap_or(&Value::Null);
    PluginsConfig::resolve(section).map_err(|errors| {
        format!("configuration: {}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    })
}

/// Returns what plugins need from this process: where they are installed, and the environment.
pub(crate) fn plugin_host(state: &Path) -> PluginHost {
    PluginHost {
        folder: PluginFolder::new(state.join(PLUGINS_FOLDER)),
        variables: Arc::new(|name| std::env::var(name).ok()),
        options: PluginOptions::DEFAULT,
    }
}
