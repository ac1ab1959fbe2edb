//! `plugins`: which plugins are used, and the settings of each.
//!
//! The keys are OpenClaw's. Plugins themselves are found and loaded elsewhere.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{ConfigError, Path};
use super::openclaw::keys;
use super::reader::{self, ConfigReader};

/// The resolved configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginsConfig {
    /// Whether any plugin is used; `true` by default.
    pub enabled: bool,
    /// Ids of the plugins that may be used. `None` allows all, an empty list allows none.
    pub allow: Option<Vec<String>>,
    /// Ids of the plugins that are not used, whatever else is configured.
    pub deny: Vec<String>,
    /// Settings by plugin id.
    pub entries: BTreeMap<String, PluginEntry>,
}

/// `plugins.entries.<id>`: the settings of one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginEntry {
    /// `None` if the entry does not say.
    pub enabled: Option<bool>,
    /// The plugin's own settings; an object.
    pub config: Value,
    /// Values for environment variables that the plugin's manifest names. They may contain `${secret:NAME}`.
    pub env: BTreeMap<String, String>,
}

impl Default for PluginEntry {
    fn default() -> Self {
        Self { enabled: None, config: Value::Object(Map::new()), env: BTreeMap::new() }
    }
}

impl Default for PluginsConfig {
    fn default() -> Self {
        Self { enabled: true, allow: None, deny: Vec::new(), entries: BTreeMap::new() }
    }
}

impl PluginsConfig {
    /// Resolves the value of `plugins`; `null` for a configuration without it.
    pub fn resolve(plugins: &Value) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let read = match plugins {
            Value::Null => None,
            given => reader::object(given, &Path::root("plugins"), &mut errors, Self::read),
        };
        if errors.is_empty() { Ok(read.unwrap_or_default()) } else { Err(errors) }
    }

    /// Whether the configuration permits a plugin. A plugin that is permitted is not necessarily switched on: that may
    /// also depend on where it comes from.
    pub fn permits(&self, id: &str) -> bool {
        let listed = |ids: &[String]| ids.iter().any(|one| one == id);
        let switched_off = self.entries.get(id).is_some_and(|entry| entry.enabled == Some(false));
        self.enabled && !switched_off && !listed(&self.deny) && self.allow.as_deref().is_none_or(listed)
    }

    fn read(reader: &mut ConfigReader<'_, '_>) -> Self {
        reader.accept_table(keys::PLUGINS);
        let entries = reader
            .field("entries")
            .map(|(value, path, errors)| reader::entries(value, &path, errors, PluginEntry::read));
        Self {
            enabled: reader.flag("enabled").unwrap_or(true),
            allow: reader.list("allow", id),
            deny: reader.list("deny", id).unwrap_or_default(),
            entries: entries.unwrap_or_default(),
        }
    }
}

impl PluginEntry {
    fn read(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<Self> {
        reader::object(value, path, errors, |reader| {
            reader.accept_table(keys::PLUGIN_ENTRY);
            let default = Self::default();
            let env = reader.field("env").map(|(value, path, errors)| reader::entries(value, &path, errors, variable));
            Self {
                enabled: reader.flag("enabled"),
                config: config(reader).unwrap_or(default.config),
                env: env.unwrap_or(default.env),
            }
        })
    }
}

/// Reads the plugin's own settings. The value is not shown in an error, because it may contain a password.
fn config(reader: &mut ConfigReader<'_, '_>) -> Option<Value> {
    let (value, path, errors) = reader.field("config")?;
    if !value.is_object() {
        errors.push(ConfigError::wrong_value(&path, &Value::Null, "an object"));
        return None;
    }
    Some(value.clone())
}

/// Reads the value of an environment variable. It is not shown in an error, because it may be a password.
fn variable(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<String> {
    let text = value.as_str().map(str::to_owned);
    if text.is_none() {
        errors.push(ConfigError::wrong_value(path, &Value::Null, "a string such as `${secret:NAME}` or `${VARIABLE}`"));
    }
    text
}

fn id(value: &Value, path: &Path) -> Result<String, ConfigError> {
    let text = value.as_str().map(str::trim).filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| ConfigError::wrong_value(path, value, "a plugin's id"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::PluginsConfig;

    #[test]
    fn without_settings_every_plugin_is_permitted() {
        for nothing in [Value::Null, json!({})] {
            let config = PluginsConfig::resolve(&nothing).unwrap();
            assert_eq!(config, PluginsConfig::default());
            assert!(config.permits("any"));
        }
    }

    #[test]
    fn a_plugin_is_permitted_unless_a_setting_excludes_it() {
        let cases = [
            (json!({"entries": {"a": {"enabled": true}}}), true),
            (json!({"entries": {"a": {"config": {"key": 1}}}}), true),
            (json!({"entries": {"a": {"enabled": false}}}), false),
            (json!({"entries": {"b": {"enabled": false}}}), true),
            (json!({"enabled": false, "entries": {"a": {"enabled": true}}}), false),
            (json!({"allow": ["a"]}), true),
            (json!({"allow": ["b"]}), false),
            (json!({"allow": []}), false),
            (json!({"allow": ["a"], "deny": ["a"]}), false),
        ];
        for (plugins, expected) in cases {
            assert_eq!(PluginsConfig::resolve(&plugins).unwrap().permits("a"), expected, "{plugins}");
        }
    }

    #[test]
    fn settings_of_a_plugin_are_kept_as_they_are() {
        let config = PluginsConfig::resolve(&json!({"entries": {"a": {"config": {"x": [1]}}, "b": {}}})).unwrap();
        assert_eq!(config.entries["a"].config, json!({"x": [1]}));
        let env = json!({"entries": {"a": {"env": {"TOKEN": "${secret:a}"}}}});
        assert_eq!(PluginsConfig::resolve(&env).unwrap().entries["a"].env["TOKEN"], "${secret:a}");
        let errors = PluginsConfig::resolve(&json!({"entries": {"a": {"env": {"TOKEN": ["s3cret"]}}}})).unwrap_err();
        assert!(!format!("{errors:?}").contains("s3cret") && format!("{errors:?}").contains("TOKEN"), "{errors:?}");
        assert_eq!((&config.entries["b"].config, config.entries["b"].enabled), (&json!({}), None));
    }

    #[test]
    fn wrong_values_are_reported_and_settings_of_a_plugin_are_not_shown() {
        let wrong = json!({
            "enabled": "yes", "allow": [""], "entries": {"a": {"config": "secret", "enable": true}},
        });
        let texts: Vec<String> = PluginsConfig::resolve(&wrong).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "`plugins.entries.a.config`: expected an object, found `null`",
                "`plugins.entries.a.enable`: unknown key; did you mean `enabled`?",
                "`plugins.enabled`: expected `true` or `false`, found `\"yes\"`",
                "`plugins.allow[0]`: expected a plugin's id, found `\"\"`",
            ]
        );
    }
}
