//! The tools of this process itself, as the configuration enables them: core tools and plugins.

use std::fmt;
use std::sync::Arc;

use ::tools::core::{CoreTools, ProtectedFolder, Root, Roots, Shell, ShellSettings, SystemLookup, WebFetch};
use client_config::{Places, display};
use contract::config;
use executor::run::LocalTools;

use crate::policy::CallPolicy;
use crate::render;

/// Returns the core tools and plugins that the user enabled. What cannot be used is reported, and the rest works.
pub(crate) fn local_tools(policy: &CallPolicy) -> LocalTools {
    let settings = policy.config.core_tools();
    let places = Places::here(&[]);
    let (roots, root_problems) = roots(settings, &places);
    let mut problems: Vec<String> = root_problems.iter().map(ToString::to_string).collect();
    let mut core = CoreTools::new(settings, &roots);
    if let Some(shell) = shell(settings, &roots, &places, &mut problems) {
        core = core.with_shell(shell);
    }
    if settings.web_fetch.enabled {
        match WebFetch::new(&settings.web_fetch.allow_private, SystemLookup) {
            Ok(web_fetch) => core = core.with_web_fetch(web_fetch),
            Err(why) => problems.push(format!("`tools.web.fetch`: {why}")),
        }
    }
    for problem in problems {
        render::note(&format!("cellmate: {problem}"));
        tracing::warn!(problem, "part of the configuration cannot be used");
    }
    LocalTools { sources: vec![Arc::new(core)], ..LocalTools::default() }
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

/// Opens the folders of `tools.fs.roots`, if a tool uses them. Returns also why some cannot be used.
pub(crate) fn roots(settings: &config::CoreTools, places: &Places) -> (Roots, Vec<RootProblem>) {
    let (mut roots, mut problems) = (Roots::default(), Vec::new());
    if !settings.files.enabled && !settings.shell.enabled {
        return (roots, problems);
    }
    let own = protected_folders(places);
    for (position, root) in settings.files.roots.iter().enumerate() {
        let opened = Root::open(&places.resolve(&root.path), root.access)
            .and_then(|opened| opened.keep_away_from(&own))
            .and_then(|opened| roots.push(opened));
        if let Err(error) = opened {
            let message = format!("the folder `{}` cannot be used: {error}", display::plain(&root.path));
            problems.push(RootProblem { setting: format!("tools.fs.roots[{position}]"), message });
        }
    }
    if settings.files.enabled && settings.files.roots.is_empty() {
        let message = "no folder is listed in `roots`, so there are no file tools; list the folders that they may use";
        problems.push(RootProblem { setting: "tools.fs".to_owned(), message: message.to_owned() });
    }
    (roots, problems)
}

/// Returns the folders with Cellmate's own settings, keys and tokens: a tool that changes them could grant itself
/// anything.
fn protected_folders(places: &Places) -> Vec<ProtectedFolder> {
    let settings = places.user_file().and_then(|file| Some(file.parent()?.to_owned()));
    let settings = settings.map(|path| ProtectedFolder { path, what: "Cellmate's configuration" });
    let state = places.state().map(|path| ProtectedFolder { path, what: "Cellmate's keys and tokens" });
    settings.into_iter().chain(state).collect()
}
