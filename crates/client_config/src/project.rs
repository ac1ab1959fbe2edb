//! The settings that a project's own file may contain: servers and restrictions, and nothing else.
//!
//! The file comes with the project, so only the user's own configuration can allow more calls or choose where data is
//! stored.

use contract::config::pattern::Pattern;
use contract::limits::MAX_PROJECT_DENY_PATTERNS;
use serde_json::{Map, Value};

use crate::display;
use crate::document::{self, ServerContainer};
use crate::tree::{Member, Tree};

/// Keys of a project's file that are applied. All others are for the user's configuration: `approvals`, `store`,
/// `imports`, `agents` and any that are added later.
/// `$schema` is for editors.
const APPLIED: [&[&str]; 3] = [&["$schema"], &["inputs"], &["tools", "deny"]];

/// How many keys that are not applied get a message each; the rest share one.
const MAX_NAMED_KEYS: usize = 20;

/// Something in a project's file that is not applied, and its place in the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) offset: usize,
    pub(crate) message: String,
}

/// The restrictions in a project's file.
#[derive(Debug, Default)]
pub(crate) struct Restrictions {
    pub(crate) deny: Vec<String>,
    pub(crate) refused: Vec<Refusal>,
}

impl Restrictions {
    pub(crate) fn read(tree: &Tree) -> Self {
        let mut found = Self::default();
        let servers = document::servers(tree);
        found.refuse_keys(&[], tree, &servers);
        if let Some(deny) = tree.at(&["tools", "deny"]) {
            found.read_deny(deny);
        }
        found
    }

    /// Adds the restrictions to the settings of the user's own files.
    pub(crate) fn add_to(self, settings: &mut Map<String, Value>) {
        if self.deny.is_empty() {
            return;
        }
        let tools = settings.entry("tools").or_insert_with(|| Value::Object(Map::new()));
        if tools.is_null() {
            *tools = Value::Object(Map::new());
        }
        // A user's value of another type is left alone: reading the settings fails on it, so nothing is called.
        if let Some(tools) = tools.as_object_mut() {
            let listed = tools.entry("deny").or_insert_with(|| Value::Array(Vec::new()));
            if listed.is_null() {
                *listed = Value::Array(Vec::new());
            }
            if let Some(listed) = listed.as_array_mut() {
                listed.extend(self.deny.into_iter().map(Value::from));
            }
        }
    }

    fn refuse_keys(&mut self, path: &[&str], tree: &Tree, servers: &[ServerContainer<'_>]) {
        // A file whose top level is the servers by name has no other keys.
        if servers.iter().any(|servers| servers.path == path) {
            return;
        }
        for member in tree.members() {
            let path: Vec<&str> = path.iter().copied().chain([member.key.as_str()]).collect();
            let is = |known: &[&str]| known == path;
            let leads_to = |known: &[&str]| known.len() > path.len() && known.starts_with(&path);
            if APPLIED.iter().any(|known| is(known)) || servers.iter().any(|servers| is(servers.path)) {
                continue;
            }
            let inside =
                APPLIED.iter().any(|known| leads_to(known)) || servers.iter().any(|servers| leads_to(servers.path));
            if inside && member.value.is_map() {
                self.refuse_keys(&path, &member.value, servers);
            } else {
                self.refuse(&path.join("."), member);
            }
        }
    }

    fn refuse(&mut self, key: &str, member: &Member) {
        let message = match self.refused.len() {
            MAX_NAMED_KEYS => "more keys that a project's file cannot set are not applied".to_owned(),
            named if named > MAX_NAMED_KEYS => return,
            _ => format!(
                "`{}` is not applied: a project's file can only add servers and `tools.deny`; \
                 to use it, set it in your own configuration",
                display::plain(key)
            ),
        };
        self.refused.push(Refusal { offset: member.key_span.start, message });
    }

    fn read_deny(&mut self, deny: &Tree) {
        let refusal = |tree: &Tree, message: String| Refusal { offset: tree.span.start, message };
        let Some(items) = deny.items() else {
            let message = format!("`tools.deny`: expected a list of patterns, found {}", deny.sort());
            self.refused.push(refusal(deny, message));
            return;
        };
        if items.len() > MAX_PROJECT_DENY_PATTERNS {
            let message = format!(
                "`tools.deny` has more than {MAX_PROJECT_DENY_PATTERNS} patterns; the rest is not applied: shorten it"
            );
            self.refused.push(refusal(deny, message));
        }
        for item in items.iter().take(MAX_PROJECT_DENY_PATTERNS) {
            match item.text().map(Pattern::parse) {
                Some(Ok(pattern)) => self.deny.push(pattern.as_str().to_owned()),
                Some(Err(bad)) => {
                    let found = display::plain(item.text().unwrap_or_default());
                    self.refused.push(refusal(item, format!("`tools.deny`: expected {bad}, found `{found}`")));
                }
                None => {
                    let message = format!("`tools.deny`: expected a pattern, found {}", item.sort());
                    self.refused.push(refusal(item, message));
                }
            }
            if self.refused.len() > 2 * MAX_NAMED_KEYS {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_PROJECT_DENY_PATTERNS;
    use serde_json::{Value, json};

    use super::Restrictions;
    use crate::json5;

    fn read(text: &str) -> Restrictions {
        Restrictions::read(&json5::parse(text).unwrap())
    }

    #[test]
    fn only_servers_inputs_and_deny_lists_are_applied_and_every_other_key_is_named() {
        let cases: [(&str, &[&str], &[&str]); 12] = [
            ("{mcpServers: {a: {command: 'x'}}, inputs: [], tools: {deny: ['b', 'mcp:c:*']}}", &["b", "mcp:c:*"], &[]),
            ("{a: {command: 'x'}, approvals: {url: 'x'}}", &[], &[]),
            ("{approvals: {ask: 'never'}, store: {url: 'x'}}", &[], &["approvals", "store"]),
            ("{approvals: {ask: 'always', nonInteractive: true}}", &[], &["approvals"]),
            ("{mcp: {servers: {a: {command: 'x'}}, other: 1}}", &[], &["mcp.other"]),
            ("{servers: {a: {command: 'x'}}, approvals: {}}", &[], &["approvals"]),
            ("{mcpServers: {}, imports: ['cursor'], trustedProjects: ['/']}", &[], &["imports", "trustedProjects"]),
            (
                "{tools: {allow: ['*'], alsoAllow: ['x'], deny: ['d'], codeMode: true}}",
                &["d"],
                &["tools.allow", "tools.alsoAllow", "tools.codeMode"],
            ),
            ("{agents: {main: {tools: {allow: ['*']}}}, secrets: 1}", &[], &["agents", "secrets"]),
            ("{tools: true}", &[], &["tools"]),
            ("{models: {providers: {}}, gateway: {holdSeconds: 1}}", &[], &["models", "gateway"]),
            ("{'\u{9b}key': 1}", &[], &["\\u{9b}key"]),
        ];
        for (text, deny, refused) in cases {
            let found = read(text);
            assert_eq!(found.deny, deny, "{text}");
            let keys: Vec<&str> =
                found.refused.iter().map(|one| one.message.split('`').nth(1).unwrap_or_default()).collect();
            assert_eq!(keys, refused, "{text}");
        }
    }

    #[test]
    fn invalid_items_of_a_deny_list_are_reported_one_by_one() {
        let found = read("{tools: {deny: ['ok', 'group:nothing', 3]}}");
        assert_eq!((found.deny, found.refused.len()), (vec!["ok".to_owned()], 2));
        assert_eq!(read("{tools: {deny: 'x'}}").refused.len(), 1);
        let many = format!("{{tools: {{deny: [{}]}}}}", "'x',".repeat(MAX_PROJECT_DENY_PATTERNS + 1));
        let found = read(&many);
        assert_eq!((found.deny.len(), found.refused.len()), (MAX_PROJECT_DENY_PATTERNS, 1));
        let keys: String = (0..5_000).map(|number| format!("k{number}: 1,")).collect();
        assert_eq!(read(&format!("{{{keys}}}")).refused.len(), 21);
    }

    #[test]
    fn restrictions_are_added_to_the_users_settings() {
        let cases = [
            (json!({}), json!({"tools": {"deny": ["p"]}})),
            (json!({"tools": null}), json!({"tools": {"deny": ["p"]}})),
            (
                json!({"tools": {"deny": ["u"], "allow": ["a"]}, "approvals": {}}),
                json!({"tools": {"deny": ["u", "p"], "allow": ["a"]}, "approvals": {}}),
            ),
            (json!({"tools": 3}), json!({"tools": 3})),
        ];
        for (user, expected) in cases {
            let Value::Object(mut settings) = user else { unreachable!() };
            read("{tools: {deny: ['p']}}").add_to(&mut settings);
            assert_eq!(Value::Object(settings), expected);
        }
    }
}
