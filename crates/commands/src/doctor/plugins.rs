//! The check of installed plugins: whether their files are those that the user added. No plugin is started.

use serde_json::{Value, json};

use crate::local_tools::{plugin_host, plugins_config};
use crate::plugins::{PluginReport, plugin_reports};
use crate::state::ConfiguredStore;

/// What was found out about the plugins.
pub(super) struct PluginsCheck {
    pub(super) json: Value,
    pub(super) text: String,
    pub(super) is_ok: bool,
}

pub(super) fn check(store: &ConfiguredStore) -> PluginsCheck {
    match reports(store) {
        Ok(reports) => of(&reports),
        Err(why) => PluginsCheck { json: json!({"error": why}), text: why, is_ok: false },
    }
}

fn reports(store: &ConfiguredStore) -> Result<Vec<PluginReport>, String> {
    let places = store.places();
    let Some(state) = store.arguments().folder(&places) else { return Ok(Vec::new()) };
    let loaded = client_config::load(&places).map_err(|error| error.to_string())?;
    plugin_reports(&plugin_host(&state, &places), &plugins_config(&loaded.settings)?)
}

fn of(reports: &[PluginReport]) -> PluginsCheck {
    let refused: Vec<&PluginReport> = reports.iter().filter(|report| report.state == "refused").collect();
    let text = match (reports, refused.as_slice()) {
        ([], _) => "none".to_owned(),
        (_, []) => {
            let used =
                reports.iter().filter(|report| report.state == "enabled").map(|report| report.plugin.id.as_str());
            let used: Vec<&str> = used.collect();
            format!(
                "{} installed; used: {}",
                reports.len(),
                if used.is_empty() { "none".to_owned() } else { used.join(", ") }
            )
        }
        (_, refused) => {
            let why = |report: &&PluginReport| {
                format!("`{}` cannot be used: {}", report.plugin.id, report.remark().unwrap_or_default())
            };
            refused.iter().map(why).collect::<Vec<_>>().join("; ")
        }
    };
    let json = json!(reports.iter().map(PluginReport::to_json).collect::<Vec<_>>());
    PluginsCheck { json, text, is_ok: refused.is_empty() }
}
