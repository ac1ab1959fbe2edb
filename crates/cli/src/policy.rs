//! The settings that govern tool calls: tool policy and approvals.

use contract::config::pattern::Pattern;
use contract::config::{AgentsConfig, ConfigError, Path, PluginsConfig, StoreConfig, reader};
use mcp::server::ApprovalPolicy;
use serde_json::Value;

/// Tool policy and approval settings. Invalid settings are an error: a typo must not let calls run without approval.
#[derive(Debug)]
pub(crate) struct CallPolicy {
    pub(crate) config: AgentsConfig,
    pub(crate) asking: ApprovalPolicy,
    /// Tools that never need approval.
    pub(crate) pass: Vec<Pattern>,
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
        Some(config) => Ok(CallPolicy { config, asking, pass }),
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
    if let Err(wrong) = PluginsConfig::resolve(section(settings, "plugins")) {
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
    use mcp::server::ApprovalPolicy;
    use serde_json::{Value, json};

    use super::read;

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
