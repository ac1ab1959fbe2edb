//! Registers the secrets of the configuration with the log's redactor.
//!
//! Every value that a variable stands for counts as a secret, and so do literal values if their name or their form says
//! so. Other literal values, such as `production`, stay readable in the log.

use mcp::Transport;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use telemetry::Redactor;
use url::Url;

use crate::display::{looks_random, names_a_secret};

/// Variables whose values are no secrets and occur in many paths and messages.
const PUBLIC_VARIABLES: [&str; 12] =
    ["EDITOR", "HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER", "USERPROFILE"];

/// Headers whose values are no secrets.
const PUBLIC_HEADERS: [&str; 5] = ["accept", "accept-language", "content-type", "origin", "user-agent"];

/// Registers the value that a reference to a variable was replaced with.
pub(crate) fn register_variable(name: &str, value: &str) {
    if !PUBLIC_VARIABLES.contains(&name) && !name.starts_with("XDG_") {
        Redactor::global().register(value);
    }
}

/// Registers a stored secret, also as it appears in a URL. Each line of it is registered: logs are written by line.
pub(crate) fn register_secret(value: &str) {
    Redactor::global().register(value);
    value.lines().for_each(|line| Redactor::global().register(line));
    Redactor::global().register(&utf8_percent_encode(value, NON_ALPHANUMERIC).to_string());
}

/// Registers the headers, variables, hidden arguments and login of a server that are secret.
pub(crate) fn register_server<'a>(transport: &Transport, hidden_arguments: impl Iterator<Item = &'a String>) {
    hidden_arguments.for_each(|argument| Redactor::global().register(argument));
    match transport {
        Transport::Stdio { env, .. } => env.iter().for_each(|(name, value)| register_literal(name, value)),
        Transport::Http { url, headers, login } => {
            register_url(url);
            for (name, value) in headers {
                if !PUBLIC_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
                    register_header(value);
                }
            }
            let secret = login.as_ref().and_then(|login| login.client_secret.as_ref());
            secret.iter().for_each(|secret| Redactor::global().register(secret));
        }
    }
}

/// Registers the parts of a URL that are secret: its password, and keys in its path and query.
pub fn register_url(url: &str) {
    let Ok(url) = Url::parse(url) else { return };
    if let Some(password) = url.password() {
        Redactor::global().register(password);
        Redactor::global().register(&percent_decode_str(password).decode_utf8_lossy());
    }
    for (name, value) in url.query_pairs() {
        register_literal(&name, &value);
    }
    for pair in url.query().unwrap_or_default().split('&') {
        let (name, encoded) = pair.split_once('=').unwrap_or(("", pair));
        register_literal(name, encoded);
    }
    url.path().split('/').for_each(|part| register_literal("", part));
}

/// Registers a value, and the part after its scheme as in `Bearer …`.
fn register_header(value: &str) {
    Redactor::global().register(value);
    if let Some((_, credentials)) = value.split_once(' ') {
        Redactor::global().register(credentials);
    }
}

fn register_literal(name: &str, value: &str) {
    if names_a_secret(name) || looks_random(value) {
        Redactor::global().register(value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use telemetry::{REDACTED, Redactor};

    use super::{register_header, register_url, register_variable};
    use crate::{Places, load};

    fn is_redacted(value: &str) -> bool {
        let redacted = Redactor::global().redact(value);
        redacted == REDACTED
    }

    #[test]
    fn passwords_and_keys_in_a_url_are_registered_and_the_rest_is_not() {
        register_url("postgres://me:pass%2Fword-1@db.example/runs?sslmode=require&password=query-pass");
        register_url("https://example.com/s/a1b2c3d4e5f6a7b8c9d0e1/mcp?token=url-token-1");
        for secret in ["pass%2Fword-1", "pass/word-1", "query-pass", "a1b2c3d4e5f6a7b8c9d0e1", "url-token-1"] {
            assert!(is_redacted(secret), "{secret}");
        }
        for public in ["db.example", "sslmode=require", "require", "example.com"] {
            assert!(!is_redacted(public), "{public}");
        }
    }

    #[test]
    fn variables_are_registered_unless_they_are_public() {
        register_variable("SOME_SETTING", "value-of-a-variable");
        register_variable("HOME", "/home/another-user");
        register_header("Bearer header-credentials");
        assert!(is_redacted("value-of-a-variable") && is_redacted("header-credentials"));
        assert!(!is_redacted("/home/another-user"));
    }

    #[test]
    fn loading_a_configuration_registers_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json5");
        let text = "{mcpServers: {
            a: {command: 'x', args: ['--token', 'literal-argument'], env: {
                API_KEY: 'literal-env-key', MODE: 'production-mode', PLAIN: '${FROM_ENVIRONMENT}',
            }},
            b: {url: 'https://example.com/mcp', headers: {'X-Custom': 'literal-header', Accept: 'application/json'}},
        }}";
        std::fs::write(&file, text).unwrap();
        let environment = [("FROM_ENVIRONMENT", "resolved-value")];
        let environment: BTreeMap<String, String> =
            environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let loaded = load(&Places::of(&[file], PathBuf::from(folder.path()), environment)).unwrap();
        assert_eq!(loaded.servers.len(), 2);
        for secret in ["literal-argument", "literal-env-key", "resolved-value", "literal-header"] {
            assert!(is_redacted(secret), "{secret}");
        }
        for public in ["production-mode", "application/json"] {
            assert!(!is_redacted(public), "{public}");
        }
    }
}
