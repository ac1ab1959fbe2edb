//! `cellmate plugins list`: lists the installed plugins.

use std::process::ExitCode;

use ::tools::plugins::{InstalledPlugin, Manifest, PluginHost, short_hash};
use clap::Args;
use contract::config::PluginsConfig;
use serde_json::{Value, json};

use super::{PlaceArguments, version};
use crate::render;
use crate::table::Table;

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

/// An installed plugin and whether it can be used.
pub(crate) struct PluginReport {
    pub(crate) plugin: InstalledPlugin,
    pub(crate) manifest: Result<Manifest, String>,
    pub(crate) state: &'static str,
}

/// Reads all installed plugins and checks their files, without starting them.
pub(crate) fn plugin_reports(host: &PluginHost, config: &PluginsConfig) -> Result<Vec<PluginReport>, String> {
    let installed = host.folder.list().map_err(|error| error.to_string())?;
    let report = |plugin: InstalledPlugin| {
        let manifest = plugin.verify().map_err(|error| error.to_string());
        let state = match (&manifest, plugin.record.enabled, config.permits(&plugin.id)) {
            (_, false, _) => "disabled",
            (_, true, false) => "excluded",
            (Err(_), true, true) => "refused",
            (Ok(_), true, true) => "enabled",
        };
        PluginReport { plugin, manifest, state }
    };
    Ok(installed.into_iter().map(report).collect())
}

impl PluginReport {
    /// Returns why an enabled plugin is not used, if it is not, and what helps.
    pub(crate) fn remark(&self) -> Option<String> {
        match (&self.manifest, self.state) {
            (Err(why), _) => Some(why.clone()),
            (Ok(_), "excluded") => Some("`plugins` in the configuration excludes it".to_owned()),
            (Ok(_), _) => None,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let manifest = self.manifest.as_ref().ok();
        json!({
            "id": self.plugin.id,
            "name": manifest.map(|manifest| &manifest.name),
            "version": version(&self.plugin),
            "state": self.state,
            "hash": self.plugin.record.active,
            "tools": manifest.map(|manifest| manifest.tools.len()),
            "hooks": manifest.map(|manifest| manifest.hooks().map(|(name, _)| name).collect::<Vec<_>>()),
            "namespaces": manifest.map(|manifest| {
                manifest.namespaces.iter().map(|namespace| namespace.global_name.clone()).collect::<Vec<_>>()
            }),
            "versions": self.plugin.record.versions.iter().map(|version| json!({
                "version": version.version,
                "hash": version.hash,
                "addedAt": version.added_at,
                "from": version.from,
            })).collect::<Vec<_>>(),
            "problem": self.remark(),
        })
    }
}

pub(super) fn run(arguments: &ListArguments) -> ExitCode {
    let reports = arguments.place.host().and_then(|host| plugin_reports(&host, &arguments.place.settings()?));
    let reports = match reports {
        Ok(reports) => reports,
        Err(message) => return render::fatal(&message),
    };
    if arguments.json {
        render::print_json(&json!({"plugins": reports.iter().map(PluginReport::to_json).collect::<Vec<_>>()}));
        return ExitCode::SUCCESS;
    }
    if reports.is_empty() {
        render::print("no plugins; add one with `cellmate plugins add FOLDER`\n");
        return ExitCode::SUCCESS;
    }
    let table = Table::new(["ID", "VERSION", "STATE", "TOOLS", "HOOKS", "NAMESPACES", "HASH"]);
    // On a narrow terminal, `HASH` is left out first.
    let mut table = table.with_whole(&[0]).with_least(&[6, 5, 4]);
    for report in &reports {
        let none = || "-".to_owned();
        let manifest = report.manifest.as_ref().ok();
        let hooks =
            manifest.map(|manifest| manifest.hooks().map(|(name, _)| short_name(name)).collect::<Vec<_>>().join(", "));
        let globals = manifest.map(|manifest| {
            manifest.namespaces.iter().map(|namespace| namespace.global_name.as_str()).collect::<Vec<_>>().join(", ")
        });
        table.add([
            report.plugin.id.clone(),
            version(&report.plugin),
            report.state.to_owned(),
            manifest.map_or_else(none, |manifest| manifest.tools.len().to_string()),
            hooks.filter(|text| !text.is_empty()).unwrap_or_else(none),
            globals.filter(|text| !text.is_empty()).unwrap_or_else(none),
            short_hash(&report.plugin.record.active).to_owned(),
        ]);
    }
    render::print_table(&table);
    for report in &reports {
        if let Some(remark) = report.remark() {
            render::note(&format!("{}: {remark}", report.plugin.id));
        }
    }
    ExitCode::SUCCESS
}

/// Returns the name of a hook in a narrow column.
fn short_name(hook: &str) -> &str {
    hook.strip_suffix("_tool_call").unwrap_or(hook)
}
