//! The settings that govern tool calls: tool policy and approvals.

use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
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
    let section = |name: &str| settings.get(name).unwrap_or(&Value::Null);
    let config = AgentsConfig::resolve(section("tools"), section("agents"))
        .map_err(|errors| BadSettings(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
    let (asking, pass) = approvals(section("approvals")).map_err(BadSettings)?;
    Ok(CallPolicy { config, asking, pass })
}

/// Reads `{ "ask": "changes" | "never" | [patterns], "pass": [patterns], "nonInteractive": bool }`.
///
/// `nonInteractive` is only validated here: `approvals::non_interactive` reads it, from the user's own files only.
fn approvals(given: &Value) -> Result<(ApprovalPolicy, Vec<Pattern>), String> {
    let asking = match given.get("ask") {
        None | Some(Value::Null) => ApprovalPolicy::Changes,
        Some(Value::String(word)) if word == "changes" => ApprovalPolicy::Changes,
        Some(Value::String(word)) if word == "never" => ApprovalPolicy::Never,
        Some(list @ Value::Array(_)) => ApprovalPolicy::Named(patterns("approvals.ask", list)?),
        Some(_) => return Err("`approvals.ask`: expected \"changes\", \"never\" or a list of patterns".to_owned()),
    };
    let pass = given.get("pass").map_or_else(|| Ok(Vec::new()), |list| patterns("approvals.pass", list))?;
    if given.get("nonInteractive").is_some_and(|value| !value.is_boolean()) {
        return Err("`approvals.nonInteractive`: expected true or false".to_owned());
    }
    Ok((asking, pass))
}

fn patterns(place: &str, list: &Value) -> Result<Vec<Pattern>, String> {
    let items = list.as_array().ok_or_else(|| format!("`{place}`: expected a list of patterns"))?;
    let read = |item: &Value| {
        let text = item.as_str().ok_or_else(|| format!("`{place}`: expected a pattern, found `{item}`"))?;
        Pattern::parse(text).map_err(|bad| format!("`{place}`: expected {bad}, found `{text}`"))
    };
    items.iter().map(read).collect()
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
            json!({"approvals": {"pass": "mcp:*"}}),
            json!({"approvals": {"nonInteractive": "yes"}}),
            json!({"approvals": {"ask": ["group:nothing"]}}),
            json!({"tools": {"codeMode": 3}}),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
