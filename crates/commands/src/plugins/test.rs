//! `cellmate plugins test`: starts a plugin, tries its hooks and calls its tools, and reports what it does.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ::tools::plugins::{
    CallTrial, HookTrial, Plugin, PluginHost, Plugins, SAMPLE_TOOL, TrialReport, inspect, try_call, try_plugin,
    try_start,
};
use clap::Args;
use contract::config::PluginsConfig;
use contract::text::{line, plain};
use executor::clock::now_ms;
use serde_json::{Value, json};

use super::PlaceArguments;
use super::show::summary;
use crate::local_tools::plugin_host;
use crate::render::{self, OutputFormat};

#[derive(Debug, Args)]
pub(super) struct TestArguments {
    /// Installed plugin, or the folder of one that is not installed.
    plugin: String,
    /// Ask the hooks about a call of this tool, and call it if it is the plugin's own, which then really does what
    /// it does; the tool of another source is named by its id; may be repeated.
    #[arg(long = "call", value_name = "TOOL")]
    calls: Vec<String>,
    /// Input of the tool, as JSON; of each --call in their order [default: `{}`].
    #[arg(long = "input", value_name = "JSON", requires = "calls")]
    inputs: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

/// How much of a tool's result is shown.
const MAX_RESULT_CHARS: usize = 4_000;

pub(super) async fn run(arguments: &TestArguments) -> ExitCode {
    match test(arguments).await {
        Ok(code) => code,
        Err(message) => render::fatal(&message),
    }
}

async fn test(arguments: &TestArguments) -> Result<ExitCode, String> {
    let format = OutputFormat::from_flag(arguments.json);
    let inputs = inputs(arguments)?;
    // A folder is installed in a scratch folder, so that it runs exactly as it would.
    let scratch = tempfile::tempdir().map_err(|error| format!("cannot create a scratch folder: {error}"))?;
    let (host, id) = place(arguments, scratch.path())?;
    let mut settings = arguments.place.settings()?;
    // A plugin that is disabled can be tested too.
    settings = PluginsConfig { entries: settings.entries, ..PluginsConfig::default() };
    settings.entries.retain(|entry, _| *entry == id);
    settings.entries.values_mut().for_each(|entry| entry.enabled = None);
    let plugin = load(&host, &settings, &id)?;
    if format == OutputFormat::Text {
        render::print(&summary(plugin.manifest()));
    }
    let report = if arguments.calls.is_empty() { try_plugin(&plugin).await } else { try_start(&plugin).await };
    let mut calls = Vec::new();
    if report.start.is_ok() {
        for (tool, input) in arguments.calls.iter().zip(inputs) {
            calls.push((tool.as_str(), try_call(&plugin, tool, input).await));
        }
    }
    let stderr = plugin.status().stderr;
    plugin.retire().await;
    print(&report, &calls, stderr.as_deref(), format);
    let is_ok = report.is_ok() && calls.iter().all(|(_, call)| call.is_ok());
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) })
}

fn inputs(arguments: &TestArguments) -> Result<Vec<Value>, String> {
    if arguments.inputs.len() > arguments.calls.len() {
        return Err("there are more --input than --call".to_owned());
    }
    let given = arguments.inputs.iter().map(|text| {
        contract::json::read(text).map_err(|error| format!("--input is not JSON: {error}: {}", line(text, 100)))
    });
    let mut inputs: Vec<Value> = given.collect::<Result<_, _>>()?;
    inputs.resize(arguments.calls.len(), json!({}));
    Ok(inputs)
}

/// Returns where the plugin is installed, and its id.
fn place(arguments: &TestArguments, scratch: &Path) -> Result<(PluginHost, String), String> {
    let folder = Path::new(&arguments.plugin);
    let is_folder = arguments.plugin.contains('/') || arguments.plugin.starts_with('.');
    if !is_folder {
        return Ok((arguments.place.host()?, arguments.plugin.clone()));
    }
    let host = plugin_host(scratch, &arguments.place.config.places());
    let inspected = inspect(folder).map_err(|error| error.to_string())?;
    host.folder.add(folder, &inspected.hash, now_ms()).map_err(|error| error.to_string())?;
    Ok((host, inspected.manifest.id))
}

fn load(host: &PluginHost, settings: &PluginsConfig, id: &str) -> Result<Arc<Plugin>, String> {
    let installed = host.folder.get(id).map_err(|error| error.to_string())?;
    if !installed.record.enabled {
        return Err(format!("the plugin `{id}` is disabled; run `cellmate plugins enable {id}` first"));
    }
    let (plugins, _) = Plugins::load(host, settings, &Plugins::default()).map_err(|error| error.to_string())?;
    match plugins.get(id) {
        Some(plugin) => Ok(Arc::clone(plugin)),
        None => Err(plugins
            .unusable()
            .iter()
            .find(|one| one.id == id)
            .map_or_else(|| format!("the plugin `{id}` cannot be used"), |one| one.why.clone())),
    }
}

fn print(report: &TrialReport, calls: &[(&str, CallTrial)], stderr: Option<&str>, format: OutputFormat) {
    if format == OutputFormat::Json {
        let as_value = |result: &Result<String, String>| match result {
            Ok(text) => json!({"ok": true, "result": text}),
            Err(why) => json!({"ok": false, "error": why}),
        };
        let hooks = |trials: &[HookTrial]| -> Vec<Value> {
            trials.iter().map(|trial| json!({"hook": trial.hook, "outcome": as_value(&trial.result)})).collect()
        };
        let samples = report
            .hooks
            .iter()
            .map(|trial| json!({"hook": trial.hook, "tool": SAMPLE_TOOL, "outcome": as_value(&trial.result)}));
        let scopes = report.scopes.iter().map(|(name, made)| json!({"namespace": name, "error": made.as_ref().err()}));
        let calls = calls.iter().map(|(tool, call)| {
            let mut value = json!({"tool": tool, "ok": call.is_ok(), "hooks": hooks(&call.hooks)});
            match (&call.result, value.as_object_mut()) {
                (Some(Ok(result)), Some(fields)) => drop(fields.insert("result".to_owned(), result.clone())),
                (Some(Err(why)), Some(fields)) => drop(fields.insert("error".to_owned(), json!(why))),
                _ => {}
            }
            value
        });
        render::print_json(&json!({
            "ok": report.is_ok(),
            "pluginStartMs": report.start.as_ref().ok().map(|took| took.as_millis()),
            "startError": report.start.as_ref().err(),
            "hooks": samples.collect::<Vec<_>>(),
            "namespaces": scopes.collect::<Vec<_>>(),
            "calls": calls.collect::<Vec<_>>(),
            "stderr": stderr,
        }));
        return;
    }
    match &report.start {
        Ok(_) => render::print("start       ok\n"),
        Err(why) => render::print(&format!("start       failed: {why}\n")),
    }
    for trial in &report.hooks {
        let result = match &trial.result {
            Ok(decision) => decision.clone(),
            Err(why) => format!("failed: {why}"),
        };
        render::print(&format!("{}  {SAMPLE_TOOL} (invented): {result}\n", trial.hook));
    }
    for (namespace, made) in &report.scopes {
        let result = made.as_ref().map_or_else(|why| format!("failed: {why}"), |()| "created".to_owned());
        render::print(&format!("scope       {namespace}: {result}\n"));
    }
    for (tool, call) in calls {
        let tool = line(tool, 100);
        for trial in &call.hooks {
            let result = trial.result.as_ref().map_or_else(|why| format!("failed: {why}"), Clone::clone);
            render::print(&format!("{}  {tool}: {result}\n", trial.hook));
        }
        match &call.result {
            None => render::print(&format!("call        {tool}: not called, because it is not the plugin's own\n")),
            Some(Ok(value)) => {
                let text = plain(&render::pretty(&value.to_string()), MAX_RESULT_CHARS);
                render::print(&format!("call        {tool}: {}\n", text.replace('\n', "\n  ")));
            }
            Some(Err(why)) => render::print(&format!("call        {tool} failed: {}\n", why.replace('\n', "\n  "))),
        }
    }
    if let Some(stderr) = stderr {
        render::print(&format!("stderr      {}\n", stderr.replace('\n', "\n  ")));
    }
}
