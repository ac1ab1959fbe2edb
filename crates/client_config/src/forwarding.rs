//! What a client's entry for cellmate must contain so that variables reach cellmate: clients differ in what they pass on
//! to the servers that they start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::clients::{Client, ForwardedVariables, ForwardingRule};
use crate::display;
use crate::places::Places;

/// Settings of cellmate that are paths, and so no secrets: they are written with their values, because a client that is
/// started from a desktop does not have the shell's variables.
const PATHS: [&str; 3] = ["CELLMATE_KEY_FILE", "XDG_CONFIG_HOME", "XDG_STATE_HOME"];

/// Settings of cellmate that may contain a password: they are passed on by name only.
const BY_NAME: [&str; 1] = ["CELLMATE_STORE"];

/// Variables that every client passes on.
const ALWAYS_PASSED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/// Variables that Codex passes on besides those of every client.
const PASSED_BY_CODEX: [&str; 4] = ["LANG", "LC_ALL", "TMPDIR", "TZ"];

/// The most variables that an entry passes on.
const MAX_FORWARDED: usize = 200;

impl ForwardedVariables {
    /// Decides which variables the client's entry passes on. `referenced` are those that the configuration refers to;
    /// `is_inheritable` tells whether servers inherit the variable of a name.
    pub fn of(
        client: Client,
        referenced: &BTreeSet<String>,
        places: &Places,
        is_inheritable: fn(&str) -> bool,
    ) -> Self {
        let is_passed = |name: &&String| ALWAYS_PASSED.contains(&name.as_str());
        let wanted: Vec<&String> = referenced.iter().filter(|name| !is_passed(name)).collect();
        let set = |name: &str| places.variable(name).is_some();
        let mut forwarded = Self::default();
        match client.forwarding() {
            ForwardingRule::Names => {
                let ours = PATHS.iter().chain(&BY_NAME).filter(|name| set(name)).map(|name| (*name).to_owned());
                let inherited = places.environment.keys().filter(|name| is_inheritable(name) && set(name));
                let passed = |name: &&String| is_passed(name) || PASSED_BY_CODEX.contains(&name.as_str());
                let names: BTreeSet<String> =
                    wanted.into_iter().chain(inherited.filter(|name| !passed(name))).cloned().chain(ours).collect();
                forwarded.names = names.into_iter().collect();
            }
            ForwardingRule::References { prefix, suffix } => {
                forwarded.env = paths(places);
                let secret = BY_NAME.iter().filter(|name| set(name)).map(|name| (*name).to_owned());
                // A client passes the reference itself on if the variable is not set, so those are left out.
                let wanted = wanted.into_iter().filter(|name| set(name)).cloned();
                forwarded
                    .env
                    .extend(wanted.chain(secret).map(|name| (name.clone(), format!("{prefix}{name}{suffix}"))));
            }
            ForwardingRule::Everything => forwarded.env = paths(places),
            ForwardingRule::LiteralEnv => {
                forwarded.env = paths(places);
                forwarded.notes.extend(not_forwarded(client, &wanted));
            }
        }
        forwarded.bounded()
    }

    fn bounded(mut self) -> Self {
        let many = self.names.len().max(self.env.len());
        if many > MAX_FORWARDED {
            self.names.truncate(MAX_FORWARDED);
            self.env = std::mem::take(&mut self.env).into_iter().take(MAX_FORWARDED).collect();
            self.notes.push(format!("only {MAX_FORWARDED} of {many} variables are passed on; use fewer"));
        }
        self
    }
}

fn paths(places: &Places) -> BTreeMap<String, String> {
    let value = |name: &str| places.variable(name).filter(|value| Path::new(value).is_absolute());
    PATHS.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?.to_owned()))).collect()
}

fn not_forwarded(client: Client, names: &[&String]) -> Option<String> {
    let (first, rest) = names.split_first()?;
    let (first, more) = (display::plain(first), rest.len());
    let others = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!(
        "{} passes no variables on, so `{first}`{others} will not be set: run `cellmate secrets set {first}` and write \
         `${{secret:{first}}}` instead of `${{{first}}}`",
        client.name()
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::{ForwardedVariables, MAX_FORWARDED};
    use crate::{Client, Places};

    const VARIABLES: [(&str, &str); 9] = [
        ("HOME", "/home/me"),
        ("PATH", "/bin"),
        ("LANG", "C"),
        ("TOKEN", "hunter2"),
        ("HTTPS_PROXY", "http://me:hunter2@proxy"),
        ("CELLMATE_STORE", "postgres://me:hunter2@db/x"),
        ("XDG_STATE_HOME", "/state"),
        ("XDG_CONFIG_HOME", "relative"),
        ("OTHER", "hunter2"),
    ];

    fn forwarded(client: Client, referenced: &[&str]) -> ForwardedVariables {
        let referenced: BTreeSet<String> = referenced.iter().map(|name| (*name).to_owned()).collect();
        let environment = VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let places = Places::of(&[], PathBuf::from("/none"), environment.into());
        let inheritable = |name: &str| ["HOME", "PATH", "LANG", "HTTPS_PROXY", "XDG_STATE_HOME", "TZ"].contains(&name);
        ForwardedVariables::of(client, &referenced, &places, inheritable)
    }

    #[test]
    fn each_client_gets_what_it_needs_and_no_secret() {
        let referenced = ["TOKEN", "NOT_SET", "HOME"];
        let codex = forwarded(Client::Codex, &referenced);
        let names = ["CELLMATE_STORE", "HTTPS_PROXY", "NOT_SET", "TOKEN", "XDG_CONFIG_HOME", "XDG_STATE_HOME"]
            .map(str::to_owned);
        assert_eq!((codex.names.as_slice(), codex.env.len()), (names.as_slice(), 0));
        let state = ("XDG_STATE_HOME", "/state");
        let pairs = |client| {
            let forwarded = forwarded(client, &referenced);
            assert!(forwarded.names.is_empty());
            forwarded.env.into_iter().collect::<Vec<_>>()
        };
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let cursor = [("CELLMATE_STORE", "${env:CELLMATE_STORE}"), ("TOKEN", "${env:TOKEN}"), state];
        assert_eq!(pairs(Client::Cursor), owned(&cursor));
        assert_eq!(pairs(Client::Windsurf), owned(&cursor));
        let gemini = [("CELLMATE_STORE", "${CELLMATE_STORE}"), ("TOKEN", "${TOKEN}"), state];
        assert_eq!(pairs(Client::Gemini), owned(&gemini));
        for client in [Client::ClaudeCode, Client::VsCode, Client::OpenCode, Client::Zed, Client::ClaudeDesktop] {
            assert_eq!(pairs(client), owned(&[state]), "{}", client.name());
        }
        for client in Client::ALL {
            let text = format!("{:?}", forwarded(client, &["TOKEN", "OTHER"]));
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_client_that_passes_nothing_on_is_reported() {
        let desktop = forwarded(Client::ClaudeDesktop, &["TOKEN", "A_KEY"]);
        let note = "claude-desktop passes no variables on, so `A_KEY` and 1 more will not be set: run `cellmate secrets set \
                    A_KEY` and write `${secret:A_KEY}` instead of `${A_KEY}`";
        assert_eq!(desktop.notes, [note]);
        assert!(forwarded(Client::ClaudeDesktop, &["HOME"]).notes.is_empty());
        let many: Vec<String> = (0..300).map(|number| format!("V{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let codex = forwarded(Client::Codex, &many);
        assert_eq!((codex.names.len(), codex.notes.len()), (MAX_FORWARDED, 1));
    }
}
