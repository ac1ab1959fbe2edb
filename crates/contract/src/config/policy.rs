//! The allow and deny lists of the configuration, by scope.
//!
//! Scopes are not merged here: `catalog::policy` decides what they mean together for a tool.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::pattern::Pattern;
use super::profiles::{Profile, Profiles};
use super::reader::{self, ConfigReader};

/// The scopes of one agent, the broader first: `tools`, then `agents.<id>.tools` if it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyConfig {
    pub scopes: Vec<Scope>,
}

/// The policy of `tools`, or of one agent's `tools`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The path of the scope in the configuration.
    pub path: String,
    pub rules: Rules,
    /// Keyed by `<provider>` or `<provider>/<model>`.
    pub by_provider: BTreeMap<String, Rules>,
    /// Additional lists for sandboxed runs.
    pub sandbox: Lists,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub lists: Lists,
    pub profile: Option<Profile>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// `None` allows every tool, an empty list allows none.
    pub allow: Option<Vec<Pattern>>,
    /// Adds to the `allow` of the same object and to a profile. `None` keeps the list of a broader scope in force, an
    /// empty list does not.
    pub also_allow: Option<Vec<Pattern>>,
    pub deny: Vec<Pattern>,
}

impl Lists {
    pub fn read(reader: &mut ConfigReader<'_, '_>) -> Self {
        Self {
            allow: reader.list("allow", Pattern::read),
            also_allow: reader.list("alsoAllow", Pattern::read),
            deny: reader.list("deny", Pattern::read).unwrap_or_default(),
        }
    }
}

impl Rules {
    fn read(reader: &mut ConfigReader<'_, '_>, profiles: &Profiles) -> Self {
        let lists = Lists::read(reader);
        let profile = reader
            .field("profile")
            .and_then(|(value, path, errors)| profiles.choose(value, &path).map_err(|error| errors.push(error)).ok());
        Self { lists, profile }
    }
}

impl Scope {
    pub(super) fn empty(path: &Path) -> Self {
        Self {
            path: path.to_string(),
            rules: Rules::default(),
            by_provider: BTreeMap::new(),
            sandbox: Lists::default(),
        }
    }

    pub(super) fn read(reader: &mut ConfigReader<'_, '_>, profiles: &Profiles) -> Self {
        let rules = Rules::read(reader, profiles);
        let by_provider = reader.field("byProvider").map(|(value, path, errors)| {
            reader::entries(value, &path, errors, |value, path, errors| provider(value, path, errors, profiles))
        });
        let sandbox = reader.object("sandbox", |sandbox| sandbox.object("tools", Lists::read)).flatten();
        Self {
            path: reader.path().to_string(),
            rules,
            by_provider: by_provider.unwrap_or_default(),
            sandbox: sandbox.unwrap_or_default(),
        }
    }
}

fn provider(value: &Value, path: &Path, errors: &mut Vec<ConfigError>, profiles: &Profiles) -> Option<Rules> {
    reader::object(value, path, errors, |reader| Rules::read(reader, profiles))
}

#[cfg(test)]
mod tests;
