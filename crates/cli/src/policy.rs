//! The settings that govern tool calls: tool policy and approvals.

use catalog::policy::{Provider, provider_keys};
use client_config::display;
use contract::config::pattern::Pattern;
use contract::config::{AgentsConfig, ConfigError, Path, StoreConfig, reader};
use mcp::server::ApprovalPolicy;
use serde_json::Value;

use crate::shared_arguments::PolicyArguments;

/// Tool policy and approval settings. Invalid settings are an error: a typo must not let calls run without approval.
#[derive(Debug)]
pub(crate) struct CallPolicy {
    pub(crate) config: AgentsConfig,
    pub(crate) asking: ApprovalPolicy,
    /// Tools that never need approval.
    pub(crate) pass: Vec<Pattern>,
    /// Whose rules in `tools.byProvider` apply.
    pub(crate) provider: Provider,
    /// Whether the rules in `tools.sandbox.tools` apply to every agent.
    pub(crate) sandboxed: bool,
}

/// The most providers that a note names.
const MAX_NAMED_PROVIDERS: usize = 8;

impl CallPolicy {
    /// Returns the policy for runs with these arguments.
    pub(crate) fn with(self, arguments: &PolicyArguments) -> Self {
        Self { provider: arguments.provider(), sandboxed: arguments.sandboxed, ..self }
    }

    /// Returns a note for the operator if the rules of several providers apply to an agent's runs, because it is not
    /// known which one applies.
    pub(crate) fn provider_note(&self, agent: &str) -> Option<String> {
        let keys = provider_keys(&self.config.tools(agent).policy);
        if self.provider != Provider::Unknown || keys.is_empty() {
            return None;
        }
        let mut named: Vec<String> = keys.iter().take(MAX_NAMED_PROVIDERS).map(|key| display::plain(key)).collect();
        if keys.len() > MAX_NAMED_PROVIDERS {
            named.push(format!("{} more", keys.len() - MAX_NAMED_PROVIDERS));
        }
        Some(format!(
            "the rules of all providers in `tools.byProvider` apply together ({}), because the provider is not known; \
             name it with --provider NAME[/MODEL]",
            named.join(", ")
        ))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("configuration: {0}")]
pub(crate) struct BadSettings(String);

/// Reads the policy from the settings, which are everything in the configuration but the servers.
pub(crate) fn read(settings: &Value) -> Result<CallPolicy, BadSettings> {
    let mut errors = Vec::new();
    let config = AgentsConfig::resolve(section(settings, "tools"), section(settings, "agents"))
        .map_err(|wrong| errors.extend(wrong))
        .ok();
    let (asking, pass) = approvals(section(settings, "approvals"), &mut errors);
    match config.filter(|_| errors.is_empty()) {
        Some(config) => Ok(CallPolicy { config, asking, pass, provider: Provider::Unknown, sandboxed: false }),
        None => Err(BadSettings(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
    }
}

/// Returns all errors in the settings, each with its path.
pub(crate) fn errors(settings: &Value) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    if let Err(wrong) = AgentsConfig::resolve(section(settings, "tools"), section(settings, "agents")) {
        errors.extend(wrong);
    }
    approvals(section(settings, "approvals"), &mut errors);
    if let Err(wrong) = StoreConfig::resolve(section(settings, "store")) {
        errors.extend(wrong);
    }
    errors
}

fn section<'s>(settings: &'s Value, name: &str) -> &'s Value {
    settings.get(name).unwrap_or(&Value::Null)
}

/// Reads `{ "ask": "changes" | "never" | [patterns], "pass": [patterns], "nonInteractive": bool }`.
///
/// `nonInteractive` is only validated here: `approvals::non_interactive` reads it, from the user's own files only.
fn approvals(given: &Value, errors: &mut Vec<ConfigError>) -> (ApprovalPolicy, Vec<Pattern>) {
    if given.is_null() {
        return (ApprovalPolicy::Changes, Vec::new());
    }
    let read = reader::object(given, &Path::root("approvals"), errors, |reader| {
        let asking = reader.field("ask").and_then(|(value, path, errors)| asking(value, &path, errors));
        let pass = reader.list("pass", Pattern::read);
        let _validated = reader.flag("nonInteractive");
        (asking.unwrap_or(ApprovalPolicy::Changes), pass.unwrap_or_default())
    });
    read.unwrap_or((ApprovalPolicy::Changes, Vec::new()))
}

fn asking(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<ApprovalPolicy> {
    match value {
        Value::Null => None,
        Value::String(word) if word == "changes" => Some(ApprovalPolicy::Changes),
        Value::String(word) if word == "never" => Some(ApprovalPolicy::Never),
        Value::Array(_) => reader::list(value, path, errors, Pattern::read).map(ApprovalPolicy::Named),
        Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            let expected = "`changes`, `never` or a list of patterns";
            errors.push(ConfigError::word(path, value, expected, ["changes", "never"]));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use catalog::policy::Provider;
    use mcp::server::ApprovalPolicy;
    use serde_json::{Value, json};

    use super::read;

    #[test]
    fn rules_of_several_providers_are_reported_until_the_provider_is_named() {
        let rules = |count: usize| {
            let rules = (0..count).map(|at| (format!("p{at:02}\u{202e}"), json!({"deny": ["x"]})));
            json!({"tools": {"byProvider": rules.collect::<serde_json::Map<_, _>>()}})
        };
        let note = |settings: &Value, provider: Provider| {
            super::CallPolicy { provider, ..read(settings).unwrap() }.provider_note("main")
        };
        assert_eq!(note(&json!({}), Provider::Unknown), None);
        let several = note(&rules(20), Provider::Unknown).unwrap();
        assert!(several.contains("--provider NAME[/MODEL]") && several.contains("12 more"), "{several}");
        assert!(!several.contains('\u{202e}'), "{several}");
        assert_eq!(note(&rules(2), Provider::parse("p00").unwrap()), None);
    }

    #[test]
    fn approval_settings_are_read_and_a_typo_is_refused() {
        let served = read(&json!({"approvals": {"ask": ["mcp:good:*"], "pass": ["mcp:good:read"]}})).unwrap();
        assert!(matches!(served.asking, ApprovalPolicy::Named(ref patterns) if patterns.len() == 1));
        assert_eq!(served.pass.len(), 1);
        assert_eq!(read(&Value::Null).unwrap().asking, ApprovalPolicy::Changes);
        assert_eq!(read(&json!({"approvals": {"ask": "never"}})).unwrap().asking, ApprovalPolicy::Never);
        for bad in [
            json!({"approvals": {"ask": "nevr"}}),
            json!({"approvals": {"aks": "never"}}),
            json!({"approvals": "never"}),
            json!({"approvals": {"pass": "mcp:*"}}),
            json!({"approvals": {"nonInteractive": "yes"}}),
            json!({"approvals": {"ask": ["group:nothing"]}}),
            json!({"tools": {"codeMode": 3}}),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
