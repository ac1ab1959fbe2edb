//! The settings that govern tool calls: tool policy and approvals.

use catalog::policy::{Provider, provider_keys};
use client_config::display;
use contract::config::openclaw::UnusedKind;
use contract::config::pattern::Pattern;
use contract::config::{
    AgentsConfig, ConfigError, GatewayConfig, ModelsConfig, Path, PluginsConfig, Problem, StoreConfig, openclaw, reader,
};
use contract::spelling::edits;
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

/// The sections that restrict what agents may do. If one of them is misspelt, its rules would not apply.
const RESTRICTING_SECTIONS: [&str; 3] = ["tools", "approvals", "agents"];

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

impl BadSettings {
    /// Joins the messages of several errors.
    pub(crate) fn of(errors: impl IntoIterator<Item = String>) -> Self {
        Self(errors.into_iter().collect::<Vec<_>>().join("; "))
    }
}

/// Reads the policy from the settings, which are everything in the configuration but the servers.
pub(crate) fn read(settings: &Value) -> Result<CallPolicy, BadSettings> {
    let mut errors = Vec::new();
    let policy = read_collecting(settings, &mut errors);
    policy.filter(|_| errors.is_empty()).ok_or_else(|| BadSettings::of(errors.iter().map(ToString::to_string)))
}

/// Reads the policy, and adds the errors of its sections to `errors`. Returns `None` if it cannot be used at all.
fn read_collecting(settings: &Value, errors: &mut Vec<ConfigError>) -> Option<CallPolicy> {
    errors.extend(openclaw::included(settings));
    errors.extend(misspelt_sections(settings));
    let config = AgentsConfig::resolve(section(settings, "tools"), section(settings, "agents"))
        .map_err(|wrong| errors.extend(wrong))
        .ok();
    if let Err(wrong) = PluginsConfig::resolve(section(settings, "plugins")) {
        errors.extend(wrong);
    }
    let (asking, pass) = approvals(section(settings, "approvals"), errors);
    Some(CallPolicy { config: config?, asking, pass, provider: Provider::Unknown, sandboxed: false })
}

/// Reads the settings of the gateway: its models, and its own.
pub(crate) fn models(settings: &Value) -> Result<(ModelsConfig, GatewayConfig), BadSettings> {
    let bad = |errors: Vec<ConfigError>| BadSettings::of(errors.iter().map(ToString::to_string));
    let models = ModelsConfig::resolve(section(settings, "models")).map_err(bad)?;
    Ok((models, GatewayConfig::resolve(section(settings, "gateway")).map_err(bad)?))
}

/// Returns all errors in the settings, each with its path.
pub(crate) fn errors(settings: &Value) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    drop(read_collecting(settings, &mut errors));
    if let Err(wrong) = StoreConfig::resolve(section(settings, "store")) {
        errors.extend(wrong);
    }
    if let Err(wrong) = ModelsConfig::resolve(section(settings, "models")) {
        errors.extend(wrong);
    }
    if let Err(wrong) = GatewayConfig::resolve(section(settings, "gateway")) {
        errors.extend(wrong);
    }
    errors
}

/// Returns an error for each top-level key that is probably a misspelt section of [`RESTRICTING_SECTIONS`]. Other unknown
/// keys are accepted, because the file may be another program's.
fn misspelt_sections(settings: &Value) -> impl Iterator<Item = ConfigError> {
    let is_known =
        |key: &str| RESTRICTING_SECTIONS.contains(&key) || openclaw::sections().any(|(section, _)| section == key);
    let meant = |key: &str| {
        // Two edits only in a long name: `hooks` of another program differs from `tools` in two letters.
        let most = |section: &str| if section.len() < 8 { 1 } else { 2 };
        RESTRICTING_SECTIONS.into_iter().find(|section| edits(key, section) <= most(section))
    };
    let keys = settings.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    keys.filter(move |key| !is_known(key)).filter_map(move |key| {
        let nearest = Some(meant(key)?);
        let problem = Problem::UnknownKey { known: RESTRICTING_SECTIONS.to_vec(), nearest };
        Some(ConfigError { path: display::plain(key), problem })
    })
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
/// A list adds to `changes`: it requires approval for more tools, never for fewer.
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
        // The word `changes` may stand in the list, for what is asked about anyway.
        Value::Array(_) => {
            reader::list(value, path, errors, Pattern::read).map(|patterns| ApprovalPolicy::Changes.and(patterns))
        }
        Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            let expected = "`changes`, `never` or a list of patterns";
            errors.push(ConfigError::unknown_word(path, value, expected, ["changes", "never"]));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use catalog::policy::Provider;
    use contract::tool::{Repeat, ToolId, ToolSpec};
    use mcp::server::ApprovalPolicy;
    use serde_json::{Value, json};

    use super::{errors, read, unused_notice};

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
        assert!(matches!(served.asking, ApprovalPolicy::ChangesAnd(ref patterns) if patterns.len() == 1));
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
        for bad in [
            json!({"models": {"providers": {"p": {"api": "chat"}}}}),
            json!({"gateway": {"holdSeconds": "long"}}),
            json!({"agents": {"a": {"model": 7}}}),
        ] {
            assert!(!errors(&bad).is_empty(), "{bad}");
        }
        assert!(read(&json!({"approvals": {"exec": {"enabled": true}, "ask": "never"}})).is_ok());
    }

    #[test]
    fn a_misspelt_section_with_restrictions_is_refused_and_other_unknown_keys_are_not() {
        for (key, meant) in [
            ("tool", "tools"),
            ("Tools", "tools"),
            ("toosl", "tools"),
            ("agents_", "agents"),
            ("aproval", "approvals"),
            ("approval", "approvals"),
        ] {
            let settings = json!({key: {"deny": ["mcp:files:*"]}});
            let expected = format!("configuration: `{key}`: unknown key; did you mean `{meant}`?");
            assert_eq!(read(&settings).unwrap_err().to_string(), expected);
            assert_eq!(errors(&settings).len(), 1, "{key}");
        }
        for key in ["hooks", "channels", "session", "x", "projects", "mcpServers", "tools\u{1b}[2J", ""] {
            assert!(read(&json!({key: {}})).is_ok(), "{key:?}");
        }
    }

    /// From the text of a configuration to the tools whose calls need approval.
    #[test]
    fn a_list_of_patterns_asks_for_more_tools_than_the_default_and_never_for_fewer() {
        const CHANGES: [&str; 3] = ["mcp:files:write_file", "openclaw:core:exec", "openclaw:core:write"];
        const READS: [&str; 2] = ["mcp:files:read_file", "openclaw:core:web_fetch"];
        let tool = |id: &&str, repeat| ToolSpec { repeat, ..ToolSpec::new(ToolId::parse(id).unwrap(), "", json!({})) };
        let changes = CHANGES.iter().map(|id| tool(id, Repeat::Never));
        let tools: Vec<ToolSpec> = changes.chain(READS.iter().map(|id| tool(id, Repeat::Always))).collect();
        let asked = |text: &str| -> Vec<String> {
            let policy = read(&json!({"approvals": serde_json::from_str::<Value>(text).unwrap()})).unwrap();
            let hook = policy.asking.hook_for(&policy.pass, &tools);
            let mut asked: Vec<_> = tools.iter().filter(|tool| hook.covers(&tool.id)).collect();
            asked.sort_unstable_by(|one, other| one.id.cmp(&other.id));
            asked.iter().map(|tool| tool.id.as_str().to_owned()).collect()
        };
        let [write_file, exec, write] = CHANGES;
        let [read_file, web_fetch] = READS;
        for (text, expected) in [
            ("null", &CHANGES[..]),
            ("{}", &CHANGES),
            (r#"{"ask": null}"#, &CHANGES),
            (r#"{"ask": "changes"}"#, &CHANGES),
            (r#"{"ask": []}"#, &CHANGES),
            (r#"{"ask": ["changes"]}"#, &CHANGES),
            (r#"{"ask": ["matches_nothing"]}"#, &CHANGES),
            (r#"{"ask": ["mcp:everything:*"]}"#, &CHANGES),
            (r#"{"ask": ["openclaw:core:exec"]}"#, &CHANGES),
            (r#"{"ask": ["web_fetch"]}"#, &[write_file, exec, web_fetch, write]),
            (r#"{"ask": ["changes", "web_fetch"]}"#, &[write_file, exec, web_fetch, write]),
            (r#"{"ask": ["mcp:files:*"]}"#, &[read_file, write_file, exec, write]),
            (r#"{"ask": ["files"], "pass": ["mcp:files:read_file", "openclaw:core:exec"]}"#, &[write_file, write]),
            (r#"{"pass": ["openclaw:core:*"]}"#, &[write_file]),
            (r#"{"pass": ["changes"]}"#, &CHANGES),
            (r#"{"ask": "never"}"#, &[]),
        ] {
            assert_eq!(asked(text), expected, "{text}");
        }
    }

    #[test]
    fn the_notice_counts_unused_settings_and_restrictions() {
        let notice = |settings: Value| unused_notice(&settings, "check");
        assert_eq!(notice(json!({"tools": {"deny": ["x"]}})), None);
        assert_eq!(
            notice(json!({"desktop": {}})).unwrap(),
            "1 setting of the configuration is not used; run `check` for the reasons"
        );
        assert_eq!(
            notice(json!({"desktop": {"tools": {"deny": []}}, "tools": {"elevated": {}}})).unwrap(),
            "3 settings of the configuration are not used, among them 2 restrictions that are not enforced; run `check` \
             for the reasons"
        );
    }
}
