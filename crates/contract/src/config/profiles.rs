//! Profiles are named allow lists: four built-in ones, and those under `tools.profiles`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::{ConfigError, Path, listed};
use super::pattern::Pattern;
use super::reader;

/// A profile that a scope has chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    pub allow: Vec<Pattern>,
}

/// The profiles of the first implementation. They include the source of a tool, so that a tool of the same name from
/// another source is not in them.
pub(super) const BUILT_IN: [(&str, &[&str]); 4] = [
    ("minimal", &["openclaw:*:session_status"]),
    (
        "coding",
        &[
            "group:fs",
            "group:runtime",
            "group:web",
            "group:sessions",
            "group:memory",
            "openclaw:*:cron",
            "openclaw:*:get_goal",
            "openclaw:*:create_goal",
            "openclaw:*:update_goal",
            "openclaw:*:update_plan",
            "openclaw:*:image",
            "openclaw:*:image_generate",
            "openclaw:*:music_generate",
            "openclaw:*:video_generate",
            "bundle-mcp",
        ],
    ),
    (
        "messaging",
        &[
            "group:messaging",
            "openclaw:*:sessions",
            "openclaw:*:sessions_list",
            "openclaw:*:sessions_history",
            "openclaw:*:sessions_search",
            "openclaw:*:sessions_send",
            "openclaw:*:session_status",
            "bundle-mcp",
        ],
    ),
    ("full", &["*"]),
];

/// All profiles that a configuration can choose from.
#[derive(Clone, Debug)]
pub(super) struct Profiles(BTreeMap<String, Vec<Pattern>>);

impl Profiles {
    pub(super) fn built_in() -> Self {
        let parsed = |texts: &[&str]| texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect();
        Self(BUILT_IN.iter().map(|(name, texts)| ((*name).to_owned(), parsed(texts))).collect())
    }

    /// Adds the profiles of `tools.profiles`. A built-in profile cannot be replaced.
    pub(super) fn add(&mut self, value: &Value, path: &Path, errors: &mut Vec<ConfigError>) {
        let added = reader::entries(value, path, errors, |value, path, errors| {
            reader::list(value, path, errors, Pattern::read)
        });
        for (name, allow) in added {
            if BUILT_IN.iter().any(|(taken, _)| *taken == name) {
                let taken = BUILT_IN.map(|(name, _)| name);
                let expected = format!("a name other than {}", listed(&taken));
                errors.push(ConfigError::wrong_value(&path.child(&name), &Value::from(name), &expected));
            } else {
                self.0.insert(name, allow);
            }
        }
    }

    pub(super) fn choose(&self, value: &Value, path: &Path) -> Result<Profile, ConfigError> {
        let chosen = value.as_str().and_then(|name| self.0.get_key_value(name));
        chosen.map(|(name, allow)| Profile { name: name.clone(), allow: allow.clone() }).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            ConfigError::unknown_word(path, value, &format!("one of {}", listed(&known)), known.iter().copied())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BUILT_IN, Path, Profiles};

    #[test]
    fn every_built_in_pattern_parses() {
        let profiles = Profiles::built_in();
        for (name, texts) in BUILT_IN {
            let profile = profiles.choose(&json!(name), &Path::root("profile")).unwrap();
            assert_eq!(profile.name, name);
            assert_eq!(profile.allow.iter().map(|pattern| pattern.as_str()).collect::<Vec<_>>(), texts);
        }
    }

    #[test]
    fn profiles_can_be_added_but_not_replace_built_in_ones() {
        let mut profiles = Profiles::built_in();
        let mut errors = Vec::new();
        let given = json!({"readers": ["read*"], "full": ["read"], "broken": "read", "none": []});
        profiles.add(&given, &Path::root("tools").child("profiles"), &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "`tools.profiles.broken`: expected a list, found `\"read\"`",
                "`tools.profiles.full`: expected a name other than `minimal`, `coding`, `messaging`, `full`, \
                 found `\"full\"`",
            ]
        );
        let choose = |name: &str| profiles.choose(&json!(name), &Path::root("profile"));
        assert_eq!(choose("readers").unwrap().allow.len(), 1);
        assert_eq!(choose("none").unwrap().allow.len(), 0);
        assert_eq!(choose("full").unwrap().allow.first().unwrap().as_str(), "*");
        assert_eq!(
            choose("reader").unwrap_err().to_string(),
            "`profile`: expected one of `coding`, `full`, `messaging`, `minimal`, `none`, `readers`, \
             found `\"reader\"`; did you mean `readers`?"
        );
        assert_eq!(
            profiles.choose(&json!(7), &Path::root("profile")).unwrap_err().to_string(),
            "`profile`: expected one of `coding`, `full`, `messaging`, `minimal`, `none`, `readers`, found `7`"
        );
    }
}
