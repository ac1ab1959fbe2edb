//! The settings that govern tool calls: tool policy and approvals.

use contract::config::openclaw::UnusedKind;
use contract::config::pattern::Pattern;
use contract::config::{AgentsConfig, ConfigError, Path, PluginsConfig, StoreConfig, openclaw, reader};
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
    let mut errors = openclaw::included(settings);
    let config = AgentsConfig::resolve(section(settings, "tools"), section(settings, "agents"))
        .map_err(|wrong| errors.extend(wrong))
        .ok();
    if let Err(wrong) = PluginsConfig::resolve(section(settings, "plugins")) {
        errors.extend(wrong);
    }
    let (asking, pass) = approvals(section(settings, "approvals"), &mut errors);
    match config.filter(|_| errors.is_empty()) {
        Some(config) => Ok(CallPolicy { config, asking, pass }),
        None => Err(BadSettings(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
    }
}

/// Returns all errors in the settings, each with its path.
pub(crate) fn errors(settings: &Value) -> Vec<ConfigError> {
    let mut errors = openclaw::included(settings);
    if let Err(wrong) = AgentsConfig::resolve(section(settings, "tools"), section(settings, "agents")) {
        errors.extend(wrong);
    }
    if let Err(wrong) = PluginsConfig::resolve(section(settings, "plugins")) {
        errors.extend(wrong);
    }
    approvals(section(settings, "approvals"), &mut errors);
    if let Err(wrong) = StoreConfig::resolve(section(settings, "store")) {
        errors.extend(wrong);
    }
    errors
}

/// Returns a line about settings that have no effect, such as OpenClaw's; `None` if there are none. `command` shows them.
pub(crate) fn unused_notice(settings: &Value, command: &str) -> Option<String> {
    let unused = openclaw::unused(settings);
    let restrictions = unused.iter().filter(|one| one.kind == UnusedKind::NotEnforced).count();
    let (settings, are) = match unused.len() {
        0 => return None,
        1 => ("1 setting".to_owned(), "is"),
        many => (format!("{many} settings"), "are"),
    };
    let restrictions = match restrictions {
        0 => String::new(),
        1 => ", among them 1 restriction that is not enforced".to_owned(),
        many => format!(", among them {many} restrictions that are not enforced"),
    };
    Some(format!("{settings} of the configuration {are} not used{restrictions}; run `{command}` for the reasons"))
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
        reader.accept(openclaw::APPROVALS);
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

    use super::{errors, read, unused_notice};

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
            json!({"plugins": {"enabled": "yes"}}),
            json!({"tools": {"$include": "./tools.json5"}}),
        ] {
            assert!(read(&bad).is_err() && !errors(&bad).is_empty(), "{bad}");
        }
        assert!(read(&json!({"approvals": {"exec": {"enabled": true}, "ask": "never"}})).is_ok());
    }

    #[test]
    fn the_notice_counts_unused_settings_and_restrictions() {
        let notice = |settings: Value| unused_notice(&settings, "check");
        assert_eq!(notice(json!({"tools": {"deny": ["x"]}})), None);
        assert_eq!(
            notice(json!({"gateway": {}})).unwrap(),
            "1 setting of the configuration is not used; run `check` for the reasons"
        );
        assert_eq!(
            notice(json!({"gateway": {"tools": {"deny": []}}, "tools": {"elevated": {}}})).unwrap(),
            "3 settings of the configuration are not used, among them 2 restrictions that are not enforced; run `check` \
             for the reasons"
        );
    }
}
