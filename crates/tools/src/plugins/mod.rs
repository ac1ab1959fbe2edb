//! Plugins: programs that the user installed, which offer tools, hooks on calls, and namespaces.
//!
//! A plugin is a folder with a [`Manifest`]. `installed` keeps a copy of each version under the hash of its content. A
//! [`Plugin`] is started by its first call or hook: `connection` is its process, `supervisor` starts, restarts and stops
//! it. `hook` passes calls to its hooks, and `scopes` has what its namespaces contain. docs/guide/plugins.md has the protocol.

mod connection;
mod hook;
mod installed;
mod manifest;
mod messages;
mod plugin;
mod scopes;
mod supervisor;
mod trial;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use catalog::{Registration, Registry, ScopeMaker};
use contract::config::PluginsConfig;
use contract::scope::Scope;
use executor::run::{LocalTools, Preparation};
use executor::{Hook, ToolSource};
use tokio::sync::watch;

pub use installed::{
    ContentError, INDEX_FILE, InspectedPlugin, InstalledPlugin, PluginError, PluginFolder, PluginRecord, VersionRecord,
    inspect, short_hash,
};
pub use manifest::{
    Effects, HookManifest, MANIFEST_FILE, Manifest, ManifestError, NamespaceManifest, PluginTool, ScopeManifest, schema,
};
pub use plugin::Plugin;
pub use supervisor::{PROTOCOL_VERSION, PluginOptions, PluginStatus, Unavailable, Variables};
pub use trial::{CallTrial, HookTrial, SAMPLE_TOOL, TrialReport, try_call, try_plugin, try_start};

use hook::{PluginHook, UnusableHook};

/// What plugins need from the program that runs them.
#[derive(Clone)]
pub struct PluginHost {
    pub folder: PluginFolder,
    pub variables: Variables,
    pub options: PluginOptions,
}

impl fmt::Debug for PluginHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginHost").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A plugin that is enabled and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusablePlugin {
    pub id: String,
    pub why: String,
    /// Whether it has a hook that decides about calls, which are all denied without it.
    pub denies_calls: bool,
}

/// The plugins that are used, in the order of their ids, which is also the order of their hooks.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    plugins: Vec<Arc<Plugin>>,
    unusable: Vec<UnusablePlugin>,
}

impl Plugins {
    /// Loads the plugins that are installed, enabled and permitted. Plugins of `former` with the same files and settings
    /// are kept, running or not; those that are no longer used are returned, to be retired. No plugin is started.
    ///
    /// One plugin that cannot be used does not affect the others; an index that cannot be read is an error, because it
    /// could hide a plugin that checks calls.
    pub fn load(
        host: &PluginHost,
        config: &PluginsConfig,
        former: &Self,
    ) -> Result<(Self, Vec<Arc<Plugin>>), PluginError> {
        let mut now = Self::default();
        for installed in host.folder.list()? {
            if !installed.record.enabled || !config.permits(&installed.id) {
                continue;
            }
            let settings = config.entries.get(&installed.id).cloned().unwrap_or_default();
            // A kept plugin is verified when it is started; a running one is not affected by changes of its files.
            if let Some(kept) =
                former.plugins.iter().find(|kept| kept.id() == installed.id && kept.is_same(&installed, &settings))
            {
                now.plugins.push(Arc::clone(kept));
                continue;
            }
            match installed.verify() {
                Ok(manifest) => {
                    let variables = host.variables.clone();
                    now.plugins.push(Plugin::new(installed, manifest, settings, variables, host.options));
                }
                Err(error) => {
                    let has_hook = installed.record.active_version().is_none_or(|version| version.checks_calls);
                    now.unusable.push(UnusablePlugin {
                        id: installed.id,
                        why: error.to_string(),
                        denies_calls: has_hook,
                    });
                }
            }
        }
        let is_kept = |plugin: &&Arc<Plugin>| now.plugins.iter().any(|kept| Arc::ptr_eq(kept, plugin));
        let removed = former.plugins.iter().filter(|plugin| !is_kept(plugin)).cloned().collect();
        Ok((now, removed))
    }

    pub fn get(&self, id: &str) -> Option<&Arc<Plugin>> {
        self.plugins.iter().find(|plugin| plugin.id() == id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.plugins.iter()
    }

    /// Returns the plugins that are enabled and cannot be used, with the reasons.
    pub fn unusable(&self) -> &[UnusablePlugin] {
        &self.unusable
    }

    /// Whether these are the same plugins, each with the same files and settings.
    pub fn are_same(&self, other: &Self) -> bool {
        let pairs = self.plugins.iter().zip(&other.plugins);
        self.plugins.len() == other.plugins.len()
            && self.unusable == other.unusable
            && pairs.into_iter().all(|(one, two)| Arc::ptr_eq(one, two))
    }

    /// Adds the plugins' tools, hooks and namespaces to those of this process. Returns the namespaces that cannot be
    /// registered, with the reasons.
    pub fn add_to(&self, local: &mut LocalTools) -> Vec<String> {
        for plugin in &self.plugins {
            let source: Arc<dyn ToolSource> = plugin.clone();
            local.sources.push(source);
        }
        local.hooks.extend(self.hooks());
        let problems = self.register_namespaces(&mut local.namespaces);
        if self.plugins.iter().any(|plugin| plugin.scopes.are_created()) {
            local.preparations.push(Arc::new(self.clone()));
        }
        problems
    }

    fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        let unusable = self.unusable.iter().filter(|plugin| plugin.denies_calls);
        let unusable = unusable.map(|plugin| -> Arc<dyn Hook> {
            Arc::new(UnusableHook { plugin: plugin.id.clone(), why: plugin.why.clone() })
        });
        let hooks = self.plugins.iter().filter_map(PluginHook::of).map(|hook| -> Arc<dyn Hook> { Arc::new(hook) });
        unusable.chain(hooks).collect()
    }

    fn register_namespaces(&self, registry: &mut Registry) -> Vec<String> {
        let mut problems = Vec::new();
        for plugin in &self.plugins {
            for namespace in &plugin.manifest().namespaces {
                let scope = match &namespace.scope {
                    ScopeManifest::Fixed(scope) => ScopeMaker::fixed(scope.clone()),
                    ScopeManifest::Created => plugin.scopes.maker(&namespace.id),
                };
                let registration = Registration {
                    id: format!("{}/{}", plugin.id(), namespace.id),
                    global_name: namespace.global_name.clone(),
                    description: namespace.description.clone(),
                    prompt: namespace.prompt.clone(),
                    required_tool_names: namespace.required_tool_names.clone(),
                    scope,
                };
                if let Err(error) = registry.register(plugin.id(), registration) {
                    problems.push(format!(
                        "namespace `{}` of plugin `{}`: {error}",
                        namespace.global_name,
                        plugin.id()
                    ));
                }
            }
        }
        problems
    }

    /// Returns what notices that a plugin has created a scope, so that runs must be prepared again; `None` if no plugin
    /// creates scopes.
    pub fn scope_changes(&self) -> Option<ScopeChanges> {
        let created = self.plugins.iter().filter(|plugin| plugin.scopes.are_created());
        let changes: Vec<_> = created.map(|plugin| plugin.scopes.changes()).collect();
        (!changes.is_empty()).then_some(ScopeChanges(changes))
    }

    /// Stops all plugins permanently.
    pub async fn stop(&self) {
        futures_util::future::join_all(self.plugins.iter().map(|plugin| plugin.retire())).await;
    }
}

/// Notices scopes that plugins have created, from when it was made.
#[derive(Debug)]
pub struct ScopeChanges(Vec<watch::Receiver<u64>>);

impl ScopeChanges {
    /// Waits for the next change.
    pub async fn next(&mut self) {
        let waiting: Vec<_> = self.0.iter_mut().map(|change| Box::pin(change.changed())).collect();
        if futures_util::future::select_all(waiting).await.0.is_err() {
            // That plugin is no longer used, and with it these changes.
            std::future::pending::<()>().await;
        }
    }
}

impl Preparation for Plugins {
    /// Creates the scopes of dynamic namespaces, all plugins at once.
    fn make_ready<'a>(&'a self, scope: &'a Scope) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let created = self.plugins.iter().filter(|plugin| plugin.scopes.are_created());
        let all =
            futures_util::future::join_all(created.map(|plugin| plugin.scopes.make_ready(plugin.supervisor(), scope)));
        Box::pin(async move { drop(all.await) })
    }
}
