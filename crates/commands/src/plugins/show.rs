//! `cellmate plugins show`: what a plugin offers, and its versions.

use std::process::ExitCode;

use ::tools::plugins::{Manifest, short_hash};
use clap::Args;
use contract::text::line;
use serde_json::{Value, json};

use super::PlaceArguments;
use super::list::plugin_reports;
use crate::render;

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// Plugin to show.
    id: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

/// How much of a plugin's text is shown on a line.
const MAX_LINE_CHARS: usize = 200;

pub(super) fn run(arguments: &ShowArguments) -> ExitCode {
    match show(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => render::fatal(&message),
    }
}

fn show(arguments: &ShowArguments) -> Result<(), String> {
    let host = arguments.place.host()?;
    // Fails if the id is invalid or unknown.
    host.folder.get(&arguments.id).map_err(|error| error.to_string())?;
    let reports = plugin_reports(&host, &arguments.place.settings()?)?;
    let Some(report) = reports.into_iter().find(|report| report.plugin.id == arguments.id) else {
        return Err(format!("there is no plugin `{}`", line(&arguments.id, MAX_LINE_CHARS)));
    };
    if arguments.json {
        let mut result = report.to_json();
        if let (Some(fields), Ok(manifest)) = (result.as_object_mut(), &report.manifest) {
            fields.insert("manifest".to_owned(), manifest_json(manifest));
        }
        render::print_json(&result);
        return Ok(());
    }
    if let Ok(manifest) = &report.manifest {
        render::print(&summary(manifest));
    }
    render::print(&format!("state       {}\n", report.state));
    for version in report.plugin.record.versions.iter().rev() {
        let mark = if version.hash == report.plugin.record.active { "used" } else { "kept" };
        let from = line(&version.from, MAX_LINE_CHARS);
        render::print(&format!("{mark}        {} {} from {from}\n", version.version, short_hash(&version.hash)));
    }
    if let Some(remark) = report.remark() {
        render::note(&remark);
    }
    Ok(())
}

/// Describes what a plugin offers and needs, for people.
pub(super) fn summary(manifest: &Manifest) -> String {
    let shown = |text: &str| line(text, MAX_LINE_CHARS);
    let mut text = format!(
        "{} {} ({}): {}\ncommand     {}\n",
        shown(&manifest.name),
        manifest.version,
        manifest.id,
        shown(&manifest.description),
        shown(&manifest.command.join(" ")),
    );
    if !manifest.env.is_empty() {
        text += &format!("reads       environment variables {}\n", manifest.env.join(", "));
    }
    for tool in &manifest.tools {
        text += &format!(
            "tool        {} ({}): {}\n",
            tool.spec.id.as_str(),
            tool.effects.as_str(),
            shown(&tool.spec.description)
        );
    }
    for (name, hook) in manifest.hooks() {
        let tools = hook.tools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let cells = if hook.cells { "; also for cells" } else { "" };
        text += &format!("hook        {name}: {}{cells}\n", shown(&tools));
    }
    for namespace in &manifest.namespaces {
        text += &format!("namespace   {}: {}\n", namespace.global_name, shown(&namespace.description));
    }
    text
}

pub(super) fn manifest_json(manifest: &Manifest) -> Value {
    json!({
        "id": manifest.id,
        "name": manifest.name,
        "version": manifest.version,
        "description": manifest.description,
        "command": manifest.command,
        "env": manifest.env,
        "tools": manifest.tools.iter().map(|tool| json!({
            "id": tool.spec.id.as_str(),
            "description": tool.spec.description,
            "effects": tool.effects.as_str(),
            "timeoutMs": tool.timeout.as_millis(),
        })).collect::<Vec<_>>(),
        "hooks": manifest.hooks().map(|(name, hook)| json!({
            "name": name,
            "tools": hook.tools.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "cells": hook.cells,
            "timeoutMs": hook.timeout.as_millis(),
        })).collect::<Vec<_>>(),
        "namespaces": manifest.namespaces.iter().map(|namespace| json!({
            "id": namespace.id,
            "globalName": namespace.global_name,
            "description": namespace.description,
            "requiredToolNames": namespace.required_tool_names,
        })).collect::<Vec<_>>(),
    })
}
