//! Removal of secret values from log lines, and the names of variables that suggest a secret value.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, MatchKind};
use parking_lot::RwLock;

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// The minimum length of a secret. Shorter values are not redacted, because they occur in ordinary text.
const MIN_SECRET_BYTES: usize = 6;

/// The maximum number of texts to search for, up to three for each secret. Secrets that are registered once there are so
/// many are not redacted. Configuration and logins contain far fewer.
const MAX_PATTERNS: usize = 4_096;

/// Replaces the registered secret values in a text.
///
/// Values are registered where they are read: resolved environment variables and headers of servers, tokens, passwords.
#[derive(Debug, Default)]
pub struct Redactor {
    values: RwLock<Values>,
}

/// The registered secret values, and the matcher that finds them in a text.
#[derive(Default)]
struct Values {
    /// The secrets, and their forms with escapes.
    known: BTreeSet<String>,
    /// `None` if it must be built, because `known` has changed.
    matcher: Option<Arc<AhoCorasick>>,
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Values").field("known", &self.known.len()).finish_non_exhaustive()
    }
}

static GLOBAL: LazyLock<Redactor> = LazyLock::new(Redactor::default);

impl Redactor {
    /// Returns the redactor that the log of this process uses.
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// Registers a secret value, trimmed, and the forms that it has with Rust's escapes and in a JSON string. Values
    /// shorter than `MIN_SECRET_BYTES` are ignored.
    pub fn register(&self, secret: &str) {
        let secret = secret.trim();
        if secret.len() < MIN_SECRET_BYTES {
            return;
        }
        let mut values = self.values.write();
        if values.known.len() >= MAX_PATTERNS || values.known.contains(secret) {
            return;
        }
        values.known.insert(secret.to_owned());
        let json = serde_json::to_string(secret).unwrap_or_default();
        // Without the quotation marks around it; one that the secret ends with stays.
        let json = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default();
        for form in [secret.escape_debug().to_string(), json.to_owned()].into_iter().filter(|form| !form.is_empty()) {
            values.known.insert(form);
        }
        // The matcher is built when the next line is redacted: configurations register many secrets before anything is
        // logged.
        values.matcher = None;
    }

    /// Returns the text with every registered secret replaced by [`REDACTED`].
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(matcher) = self.matcher() else { return Cow::Borrowed(text) };
        if !matcher.is_match(text) {
            return Cow::Borrowed(text);
        }
        let replacements = vec![REDACTED; matcher.patterns_len()];
        Cow::Owned(matcher.replace_all(text, &replacements))
    }

    /// Returns the matcher of all registered values, which is built if necessary. `None` if there are no values, or if it
    /// cannot be built; then nothing is redacted.
    fn matcher(&self) -> Option<Arc<AhoCorasick>> {
        let values = self.values.read();
        if values.known.is_empty() || values.matcher.is_some() {
            return values.matcher.clone();
        }
        drop(values);
        let mut values = self.values.write();
        if values.matcher.is_none() {
            // If one secret is a prefix of another, the longer one is replaced as a whole.
            let matcher = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&values.known);
            values.matcher = matcher.ok().map(Arc::new);
        }
        values.matcher.clone()
    }
}

/// Parts of the names of variables that hold credentials.
const CREDENTIAL_WORDS: [&str; 8] = ["TOKEN", "KEY", "SECRET", "PASSWORD", "PASS", "AUTH", "CREDENTIAL", "COOKIE"];

/// Whether a variable's name suggests that its value is a credential.
pub fn is_credential_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    CREDENTIAL_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::Redactor;

    #[test]
    fn registered_values_are_replaced_wherever_they_occur() {
        let redactor = Redactor::default();
        redactor.register("hunter2secret");
        redactor.register("hunter2secretlonger");
        redactor.register("quo\"ted-value");
        let redacted = redactor.redact("a=hunter2secret b=hunter2secretlonger c=\"quo\\\"ted-value\"");
        redactor.register("two\nlines, it's ü");
        assert_eq!(redactor.redact(r#"{"a":"two\nlines, it's ü"}"#), r#"{"a":"[redacted]"}"#);
        assert_eq!(redacted, "a=[redacted] b=[redacted] c=\"[redacted]\"");
    }

    #[test]
    fn short_values_are_not_redacted() {
        let redactor = Redactor::default();
        redactor.register("on");
        redactor.register("  ");
        assert_eq!(redactor.redact("on and on"), "on and on");
    }
}
