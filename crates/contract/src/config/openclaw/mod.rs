//! Settings of OpenClaw that Cellmate does not use.
//!
//! An OpenClaw configuration is read as it is: a key that OpenClaw knows is not an error, but no setting is ignored
//! silently. [`unused`] lists those that have no effect, and [`included`] those that are missing from the file.

pub(crate) mod keys;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use super::error::{ConfigError, Path};
use crate::limits::GATEWAY_NUMBERS;
use keys::ForeignKey;

/// A setting that is accepted but has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedSetting {
    /// The path of the setting, in JavaScript syntax.
    pub path: String,
    pub kind: UnusedKind,
    pub reason: &'static str,
}

/// What the user loses because a setting is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnusedKind {
    /// The setting restricts something in OpenClaw, and Cellmate does not enforce that.
    NotEnforced,
    /// Neither OpenClaw nor Cellmate is known to have it.
    Unknown,
    /// The setting is about something that Cellmate does not have.
    NotApplicable,
}

impl UnusedKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotEnforced => "notEnforced",
            Self::Unknown => "unknown",
            Self::NotApplicable => "notApplicable",
        }
    }
}

impl fmt::Display for UnusedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.kind {
            UnusedKind::NotEnforced => "enforced",
            UnusedKind::Unknown | UnusedKind::NotApplicable => "used",
        };
        write!(f, "`{}` is not {verb}: {}", self.path, self.reason)
    }
}

/// Returns the settings that have no effect, in the order of the file. `settings` is everything but the servers.
pub fn unused(settings: &Value) -> Vec<UnusedSetting> {
    let mut report = Report(Vec::new());
    for (key, value) in fields(settings) {
        let path = Path::root(key);
        match key.as_str() {
            "tools" => report.tools(value, &path, ToolsOwner::Global),
            "agents" => report.agents(value, &path),
            "approvals" => report.foreign(value, &path, keys::APPROVALS),
            "plugins" => report.plugins(value, &path),
            "mcp" => report.open(value, &path, &["servers"], keys::MCP),
            "models" => report.models(value, &path),
            "gateway" => {
                let used = GATEWAY_NUMBERS.map(|bound| bound.key);
                report.open(value, &path, &used, keys::GATEWAY);
            }
            _ => report.section(key, value, &path),
        }
    }
    report.0
}

/// Returns an error for each part of the settings that is in another file.
///
/// Cellmate does not follow `$include`. It is an error and not only reported, because the other file may contain
/// restrictions, and without them a run would have more tools than in OpenClaw.
pub fn included(settings: &Value) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for (key, value) in fields(settings) {
        if key == INCLUDE {
            errors.push(not_followed(&Path::root(key), value));
        } else if READ_SECTIONS.contains(&key.as_str()) {
            find_included(value, &Path::root(key), &mut errors);
        }
    }
    errors
}

/// Returns the sections of OpenClaw's configuration that are not used, each with the reason.
pub fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    keys::SECTIONS.iter().map(|section| (section.name, section.reason))
}

/// Returns the keys of OpenClaw's `approvals` that are not used, each with the reason.
pub fn approvals_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    keys::APPROVALS.iter().map(|key| (key.name, key.reason))
}

/// The names of the keys of `approvals` that are accepted but not used.
pub static APPROVALS: ForeignKeys = ForeignKeys(keys::APPROVALS);

/// A table of keys that are accepted but not used.
#[derive(Clone, Copy, Debug)]
pub struct ForeignKeys(pub(crate) &'static [ForeignKey]);

const INCLUDE: &str = "$include";
const READ_SECTIONS: [&str; 8] = ["tools", "agents", "approvals", "plugins", "mcp", "store", "models", "gateway"];

/// What a newer OpenClaw accepts for `tools.codeMode` and the contract does not: the value `auto`, which switches code
/// mode on for some models, and the choice of an executor. Both are left out.
pub(super) fn code_mode(value: &Value) -> Option<Cow<'_, Value>> {
    if value.as_str() == Some(AUTO) {
        return None;
    }
    Some(without(value, |key, value| key == "executor" || (key == "enabled" && value.as_str() == Some(AUTO))))
}

/// What a newer OpenClaw accepts for `tools.toolSearch` and the contract does not: the mode `directory`.
pub(super) fn tool_search(value: &Value) -> Cow<'_, Value> {
    without(value, |key, value| key == "mode" && value.as_str() == Some(DIRECTORY))
}

const AUTO: &str = "auto";
const DIRECTORY: &str = "directory";

/// Returns the object without some of its keys.
fn without(value: &Value, is_left_out: impl Fn(&str, &Value) -> bool) -> Cow<'_, Value> {
    let Value::Object(fields) = value else { return Cow::Borrowed(value) };
    if !fields.iter().any(|(key, value)| is_left_out(key, value)) {
        return Cow::Borrowed(value);
    }
    let kept = fields.iter().filter(|(key, value)| !is_left_out(key, value));
    Cow::Owned(Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

/// Whose `tools` an object is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolsOwner {
    Global,
    Agent,
}

/// The keys of an agent that are read in all shapes of `agents`.
const AGENT_KEYS: [&str; 8] =
    ["tools", "sandbox", "workspace", "model", "instructions", "maxModelCalls", "maxTurns", "maxOutputTokens"];
/// The keys of a model provider that are read, and those of one of its models.
const PROVIDER_KEYS: [&str; 10] =
    ["baseUrl", "apiKey", "api", "headers", "models", "timeoutSeconds", "stream", "quirks", "extra", "allowPrivate"];
const MODEL_KEYS: [&str; 4] = ["id", "name", "contextWindow", "maxTokens"];

const FOREIGN_API: &str = "cellmate does not speak this provider's API";
const UNKNOWN: &str = "cellmate does not know this key";
const CONTAINER: &str = "tools do not run in a container; `tools.sandbox.tools` and `workspaceAccess` are applied";
const NEWER: &str = "the contract of code mode does not have it";
const FOR_ALL: &str = "all agents share this setting; write it under `tools`";
const ONLY_RESTRICTS: &str = "an agent can only switch a core tool off; write it under `tools`";
const RULES: &str = "cellmate does not know the channel, group or sender that the rule is about";

struct Report(Vec<UnusedSetting>);

impl Report {
    fn add(&mut self, path: &Path, kind: UnusedKind, reason: &'static str) {
        self.0.push(UnusedSetting { path: path.to_string(), kind, reason });
    }

    /// Reports the keys of an object that are in a table.
    fn foreign(&mut self, object: &Value, path: &Path, table: &[ForeignKey]) {
        for (key, value) in fields(object) {
            if let Some(foreign) = table.iter().find(|foreign| foreign.name == key)
                && let Some(kind) = (foreign.judge)(value)
            {
                self.add(&path.child(key), kind, foreign.reason);
            }
        }
    }

    /// Reports the keys of an object that are in a table, and those that are neither there nor used.
    fn open(&mut self, object: &Value, path: &Path, used: &[&str], table: &[ForeignKey]) {
        self.foreign(object, path, table);
        let is_known = |key: &str| used.contains(&key) || table.iter().any(|foreign| foreign.name == key);
        for (key, _) in fields(object).filter(|(key, _)| !is_known(key)) {
            self.add(&path.child(key), UnusedKind::Unknown, UNKNOWN);
        }
    }

    /// Reports a section that is not used, and the tool rules inside it.
    fn section(&mut self, key: &str, value: &Value, path: &Path) {
        let Some(section) = keys::SECTIONS.iter().find(|section| section.name == key) else { return };
        self.add(path, UnusedKind::NotApplicable, section.reason);
        self.rules_inside(value, path);
    }

    fn rules_inside(&mut self, value: &Value, path: &Path) {
        for (key, below) in fields(value) {
            let path = path.child(key);
            if is_tool_rule(key, below) {
                self.add(&path, UnusedKind::NotEnforced, RULES);
            } else {
                self.rules_inside(below, &path);
            }
        }
        for (position, below) in value.as_array().into_iter().flatten().enumerate() {
            self.rules_inside(below, &path.item(position));
        }
    }

    fn tools(&mut self, tools: &Value, path: &Path, owner: ToolsOwner) {
        self.foreign(tools, path, keys::TOOLS);
        if let Some(code_mode) = tools.get("codeMode") {
            self.newer_code_mode(code_mode, &path.child("codeMode"));
        }
        if tools.pointer("/toolSearch/mode").and_then(Value::as_str) == Some(DIRECTORY) {
            self.add(&path.child("toolSearch").child("mode"), UnusedKind::NotApplicable, NEWER);
        }
        let exec = path.child("exec");
        self.foreign(at(tools, &["exec"]), &exec, keys::EXEC);
        self.foreign(at(tools, &["exec", "applyPatch"]), &exec.child("applyPatch"), keys::APPLY_PATCH);
        let web = path.child("web");
        self.foreign(at(tools, &["web"]), &web, keys::WEB);
        self.foreign(at(tools, &["web", "fetch"]), &web.child("fetch"), keys::FETCH);
        if owner == ToolsOwner::Agent {
            self.shared(at(tools, &["exec"]), &exec, &["timeoutSec", "timeoutSeconds"]);
            self.shared(at(tools, &["fs"]), &path.child("fs"), &[]);
            let limits = ["maxChars", "maxCharsCap", "maxResponseBytes", "timeoutSeconds", "maxRedirects"];
            self.shared(at(tools, &["web", "fetch"]), &web.child("fetch"), &limits);
        }
    }

    /// Reports what an agent cannot change about a core tool.
    fn shared(&mut self, tool: &Value, path: &Path, keys: &[&str]) {
        if tool.get("enabled").and_then(Value::as_bool) == Some(true) {
            self.add(&path.child("enabled"), UnusedKind::NotApplicable, ONLY_RESTRICTS);
        }
        for (key, _) in fields(tool).filter(|(key, _)| keys.contains(&key.as_str())) {
            self.add(&path.child(key), UnusedKind::NotApplicable, FOR_ALL);
        }
    }

    fn newer_code_mode(&mut self, code_mode: &Value, path: &Path) {
        let is_auto = |value: &Value| value.as_str() == Some(AUTO);
        if is_auto(code_mode) {
            self.add(path, UnusedKind::NotApplicable, NEWER);
        }
        if code_mode.get("enabled").is_some_and(is_auto) {
            self.add(&path.child("enabled"), UnusedKind::NotApplicable, NEWER);
        }
        if code_mode.get("executor").is_some() {
            let reason = "cells always run in the QuickJS sandbox";
            self.add(&path.child("executor"), UnusedKind::NotApplicable, reason);
        }
    }

    fn agents(&mut self, agents: &Value, path: &Path) {
        for (key, value) in fields(agents) {
            let path = path.child(key);
            match key.as_str() {
                "defaults" => self.agent(value, &path, &[]),
                "list" => {
                    for (position, agent) in value.as_array().into_iter().flatten().enumerate() {
                        self.agent(agent, &path.item(position), &["id", "default"]);
                    }
                }
                "entries" => {
                    fields(value).for_each(|(id, agent)| self.agent(agent, &path.child(id), &["default"]));
                }
                _ => match keys::AGENTS.iter().find(|foreign| foreign.name == key) {
                    Some(foreign) => self.add(&path, UnusedKind::NotApplicable, foreign.reason),
                    None => self.agent(value, &path, &["default"]),
                },
            }
        }
    }

    fn agent(&mut self, agent: &Value, path: &Path, more: &[&str]) {
        let used: Vec<&str> = AGENT_KEYS.iter().chain(more).copied().collect();
        self.open(agent, path, &used, keys::AGENT);
        let sandbox = at(agent, &["sandbox"]);
        self.open(sandbox, &path.child("sandbox"), &["mode", "workspaceAccess"], keys::SANDBOX);
        if matches!(sandbox.get("mode").and_then(Value::as_str), Some("all" | "non-main")) {
            self.add(&path.child("sandbox").child("mode"), UnusedKind::NotEnforced, CONTAINER);
        }
        self.tools(at(agent, &["tools"]), &path.child("tools"), ToolsOwner::Agent);
        self.open(at(agent, &["model"]), &path.child("model"), &["primary", "fallbacks"], &[]);
    }

    fn models(&mut self, models: &Value, path: &Path) {
        self.open(models, path, &["providers"], keys::MODELS);
        for (id, provider) in fields(at(models, &["providers"])) {
            let path = path.child("providers").child(id);
            if keys::has_foreign_api(provider) {
                self.add(&path, UnusedKind::NotApplicable, FOREIGN_API);
                continue;
            }
            self.open(provider, &path, &PROVIDER_KEYS, keys::MODEL_PROVIDER);
            for (position, model) in at(provider, &["models"]).as_array().into_iter().flatten().enumerate() {
                self.open(model, &path.child("models").item(position), &MODEL_KEYS, keys::MODEL);
            }
        }
    }

    fn plugins(&mut self, plugins: &Value, path: &Path) {
        self.foreign(plugins, path, keys::PLUGINS);
        for (id, entry) in fields(at(plugins, &["entries"])) {
            self.foreign(entry, &path.child("entries").child(id), keys::PLUGIN_ENTRY);
        }
    }
}

/// Whether a value restricts tools: an object with tool lists or a profile, or one with such objects by sender.
fn is_tool_rule(key: &str, value: &Value) -> bool {
    let has_lists = || ["allow", "alsoAllow", "deny", "profile"].iter().any(|list| value.get(list).is_some());
    match key {
        "tools" => has_lists(),
        "toolsBySender" | "elevated" => value.is_object(),
        _ => false,
    }
}

fn find_included(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) {
    for (key, below) in fields(value) {
        if key == INCLUDE {
            errors.push(not_followed(&path.child(key), below));
        } else {
            find_included(below, &path.child(key), errors);
        }
    }
    for (position, below) in value.as_array().into_iter().flatten().enumerate() {
        find_included(below, &path.item(position), errors);
    }
}

fn not_followed(path: &Path, value: &Value) -> ConfigError {
    let expected = "the settings themselves (cellmate does not read included files, and without the restrictions in \
                    them a run could have more tools; copy them here)";
    ConfigError::wrong_value(path, value, expected)
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().fold(value, |value, key| value.get(key).unwrap_or(&Value::Null))
}

#[cfg(test)]
mod tests;
