//! The variables and secrets that a configuration refers to, whether they are set or not.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::entry::is_opencode_entry;
use crate::tree::{Kind, Tree};
use crate::variables::{Dialect, Reference, input_variable, is_name, is_secret_name, replace_references};

/// Keys of an entry whose strings are names of variables.
const NAMES_OF_VARIABLES: [&str; 4] = ["env_vars", "env_http_headers", "bearer_token_env_var", "bearerTokenEnv"];

/// The names of the variables and secrets that a part of the configuration refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    pub variables: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
}

impl References {
    /// Returns the references in a server's entry.
    pub(crate) fn of_entry(entry: &Tree, dialect: Dialect) -> Self {
        let kind = entry.get("type").and_then(Tree::text);
        let dialect = if is_opencode_entry(kind) { Dialect::Brace } else { dialect };
        let mut found = Self::default();
        for member in entry.members() {
            if NAMES_OF_VARIABLES.contains(&member.key.as_str()) {
                each_text(&member.value, &mut |name| found.add_variable(name));
            } else {
                each_text(&member.value, &mut |text| found.add_text(text, dialect));
            }
        }
        found
    }

    /// Returns the references in settings, or in a part of them.
    pub fn of_settings(settings: &Value) -> Self {
        let mut found = Self::default();
        found.add_value(settings);
        found
    }

    /// Adds the references of another part.
    pub fn extend(&mut self, other: &Self) {
        self.variables.extend(other.variables.iter().cloned());
        self.secrets.extend(other.secrets.iter().cloned());
    }

    fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text, Dialect::Dollar),
            Value::Array(items) => items.iter().for_each(|item| self.add_value(item)),
            Value::Object(members) => members.values().for_each(|member| self.add_value(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_text(&mut self, text: &str, dialect: Dialect) {
        let mut add = |reference: Reference<'_>| {
            match reference {
                Reference::Name(name) => self.add_variable(name),
                Reference::Braced(inner) => self.add_braced(inner),
            }
            Ok(String::new())
        };
        // A text that cannot be expanded is reported as a problem when its entry is read.
        drop(replace_references(text, dialect, &mut add));
    }

    fn add_braced(&mut self, inner: &str) {
        if let Some((name, _)) = inner.split_once(":-").filter(|(name, _)| is_name(name)) {
            return self.add_variable(name);
        }
        match inner.split_once(':') {
            Some(("env", name)) => self.add_variable(name),
            Some(("input", id)) => self.add_variable(&input_variable(id)),
            Some(("secret", name)) if is_secret_name(name) => {
                self.secrets.insert(name.to_owned());
            }
            Some(_) => {}
            // `${userHome}` and the like are no variables.
            None if matches!(
                inner,
                "userHome" | "workspaceFolder" | "workspaceFolderBasename" | "pathSeparator" | "/"
            ) => {}
            None => self.add_variable(inner),
        }
    }

    fn add_variable(&mut self, name: &str) {
        if is_name(name) {
            self.variables.insert(name.to_owned());
        }
    }
}

fn each_text(tree: &Tree, visit: &mut dyn FnMut(&str)) {
    match &tree.kind {
        Kind::Text(text) => visit(text),
        Kind::List(items) => items.iter().for_each(|item| each_text(item, visit)),
        Kind::Map(members) => members.iter().for_each(|member| each_text(&member.value, visit)),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::References;
    use crate::json5;
    use crate::variables::Dialect;

    fn found(entry: &str, dialect: Dialect) -> (Vec<String>, Vec<String>) {
        let References { variables, secrets } = References::of_entry(&json5::parse(entry).unwrap(), dialect);
        (variables.into_iter().collect(), secrets.into_iter().collect())
    }

    #[test]
    fn references_are_found_in_every_field_and_dialect() {
        let entry = "{command: '${userHome}/x', args: ['${A}', 'p${env:B}', '${C:-${D}}', '$${E}'], env: {
            X: '${secret:KEY} ${input:api-key}', Y: '$F', Z: '${secret:a b}', W: '${open',
        }, env_vars: ['G', 'not a name'], bearer_token_env_var: 'H', env_http_headers: {'X-I': 'I'}}";
        let (variables, secrets) = found(entry, Dialect::Dollar);
        assert_eq!(variables, ["A", "B", "C", "CELLMATE_INPUT_API_KEY", "G", "H", "I"]);
        assert_eq!(secrets, ["KEY"]);
        assert!(found(entry, Dialect::BareDollar).0.contains(&"F".to_owned()));
        assert_eq!(found(entry, Dialect::Literal).0, ["G", "H", "I"]);
        let opencodes = "{type: 'local', command: ['x', '{env:A}', '${B}']}";
        assert_eq!(found(opencodes, Dialect::Dollar).0, ["A"]);
    }

    #[test]
    fn references_in_settings_are_found() {
        let settings = json!({"store": {"url": "postgres://me:${PASS}@db/x", "n": [1, "${KEYS}"]}});
        let variables: Vec<String> = References::of_settings(&settings).variables.into_iter().collect();
        assert_eq!(variables, ["KEYS", "PASS"]);
    }
}
