//! Expands `${VARIABLE}` and similar references, as each client does, and parses files of variables.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{display, secrets};

/// The variable syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `${X}`, `${X:-default}`, `${env:X}`, `${secret:X}`, `${userHome}`, `${workspaceFolder}`, `${input:id}`.
    Dollar,
    /// Gemini: also `$X`.
    BareDollar,
    /// opencode: `{env:X}`.
    Brace,
    /// Codex: no variables.
    Literal,
}

/// Whether a text may refer to the user's secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretUse {
    Allowed,
    /// The text ends up where others can read it, such as a command line.
    Refused,
}

/// The user's stored secrets, to which `${secret:NAME}` refers.
pub trait SecretSource: Send + Sync {
    /// Returns a secret's value; `None` if it is not set. The error says why the secrets cannot be read.
    fn secret(&self, name: &str) -> Result<Option<String>, String>;

    /// Returns the file whose change can change the secrets.
    fn file(&self) -> Option<PathBuf> {
        None
    }
}

/// The values of variables.
#[derive(Clone, Default)]
pub(crate) struct Variables {
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) home: Option<PathBuf>,
    /// The value of `${workspaceFolder}`.
    pub(crate) folder: PathBuf,
    /// Defaults of the file's `inputs`, by id.
    pub(crate) inputs: BTreeMap<String, Option<String>>,
    pub(crate) secrets: Option<Arc<dyn SecretSource>>,
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variables").field("environment", &self.environment.len()).finish_non_exhaustive()
    }
}

/// Why a text cannot be expanded. Messages contain names only: a default next to a name may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpansionError {
    #[error(
        "environment variable `{0}` is not set; set it in the environment that cellmate starts in, or run `cellmate secrets set {0}` and write `${{secret:{0}}}` in cellmate's configuration"
    )]
    Variable(String),
    #[error("the input `{id}` has no value; set `{variable}` in the environment that cellmate starts in")]
    Input { id: String, variable: String },
    #[error("secret `{0}` is not set; run `cellmate secrets set {0}`")]
    Secret(String),
    #[error("secret `{name}` cannot be read: {why}")]
    UnreadableSecret { name: String, why: String },
    #[error("the name in `${{secret:…}}` is not valid: {SECRET_NAME_RULE}")]
    SecretName,
    #[error(
        "`${{secret:{0}}}` is possible only in `env`, `headers`, `url` and `oauth` of a server, `apiKey` and `headers` of a provider, and `env` of a plugin, because process lists show commands and arguments; move it there"
    )]
    MisplacedSecret(String),
    #[error("`${{{0}}}` works only in the client it was written for; write its value, or `${{A_VARIABLE}}`")]
    Foreign(String),
    #[error("a `${{` has no `}}`; write `$${{` for a literal `${{`")]
    Open,
}

/// The most characters of a secret's name.
const MAX_SECRET_NAME_CHARS: usize = 128;

/// The rule that [`is_secret_name`] checks, for messages.
pub const SECRET_NAME_RULE: &str =
    "a secret's name has 1 to 128 letters, digits, `_`, `.` and `-`, and does not begin with `-`";

/// Whether a text can be the name of a secret.
pub fn is_secret_name(name: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=MAX_SECRET_NAME_CHARS).contains(&name.len()) && name.bytes().all(valid) && !name.starts_with('-')
}

/// A reference in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference<'t> {
    /// The text between `${` and `}`.
    Braced(&'t str),
    /// The name in `$X` or `{env:X}`.
    Name(&'t str),
}

/// Replaces each reference in a text with what `value` returns for it.
pub(crate) fn replace_references<'t>(
    text: &'t str,
    dialect: Dialect,
    value: &mut dyn FnMut(Reference<'t>) -> Result<String, ExpansionError>,
) -> Result<String, ExpansionError> {
    match dialect {
        Dialect::Literal => Ok(text.to_owned()),
        Dialect::Dollar | Dialect::BareDollar => replace_dollars(text, dialect, value),
        Dialect::Brace => replace_braces(text, value),
    }
}

fn replace_dollars<'t>(
    text: &'t str,
    dialect: Dialect,
    value: &mut dyn FnMut(Reference<'t>) -> Result<String, ExpansionError>,
) -> Result<String, ExpansionError> {
    let mut full = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        full.push_str(before);
        if let Some(after) = from.strip_prefix("$${") {
            full.push_str("${");
            rest = after;
        } else if let Some(inner) = from.strip_prefix("${") {
            let (inner, after) = inner.split_once('}').ok_or(ExpansionError::Open)?;
            full.push_str(&value(Reference::Braced(inner))?);
            rest = after;
        } else {
            let after = from.strip_prefix('$').unwrap_or(from);
            let is_bare = |name: &&str| dialect == Dialect::BareDollar && is_name(name);
            let name = after.split(|c: char| !is_name_char(c)).next().filter(is_bare);
            match name {
                Some(name) => full.push_str(&value(Reference::Name(name))?),
                None => full.push('$'),
            }
            rest = after.strip_prefix(name.unwrap_or_default()).unwrap_or(after);
        }
    }
    full.push_str(rest);
    Ok(full)
}

fn replace_braces<'t>(
    text: &'t str,
    value: &mut dyn FnMut(Reference<'t>) -> Result<String, ExpansionError>,
) -> Result<String, ExpansionError> {
    let mut full = String::new();
    let mut rest = text;
    while let Some((before, inner)) = rest.split_once("{env:") {
        let (name, after) = inner.split_once('}').ok_or(ExpansionError::Open)?;
        full.push_str(before);
        full.push_str(&value(Reference::Name(name))?);
        rest = after;
    }
    full.push_str(rest);
    Ok(full)
}

impl Variables {
    pub(crate) fn expand(&self, text: &str, dialect: Dialect, secret_use: SecretUse) -> Result<String, ExpansionError> {
        replace_references(text, dialect, &mut |reference| match reference {
            Reference::Name(name) => self.variable(name),
            Reference::Braced(inner) => self.value(inner, secret_use),
        })
    }

    fn value(&self, inner: &str, secret_use: SecretUse) -> Result<String, ExpansionError> {
        let path = |path: &Path| path.display().to_string();
        if let Some((name, default)) = inner.split_once(":-").filter(|(name, _)| is_name(name)) {
            let found = self.environment.get(name).filter(|value| !value.is_empty());
            let value = found.map_or(default, String::as_str);
            secrets::register_variable(name, value);
            return Ok(value.to_owned());
        }
        match inner.split_once(':') {
            Some(("env", name)) => self.variable(name),
            Some(("input", id)) => self.input(id),
            Some(("secret", name)) => self.secret(name, secret_use),
            None if inner == "userHome" => {
                self.home.as_deref().map(path).ok_or_else(|| ExpansionError::Variable("HOME".to_owned()))
            }
            None if inner == "workspaceFolder" => Ok(path(&self.folder)),
            None if inner == "workspaceFolderBasename" => {
                Ok(self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
            }
            None if matches!(inner, "pathSeparator" | "/") => Ok(std::path::MAIN_SEPARATOR_STR.to_owned()),
            None if is_name(inner) => self.variable(inner),
            Some((kind, _)) => Err(ExpansionError::Foreign(format!("{}:{}", display::plain(kind), display::HIDDEN))),
            None => Err(ExpansionError::Foreign(display::plain(inner))),
        }
    }

    pub(crate) fn variable(&self, name: &str) -> Result<String, ExpansionError> {
        let value = self.environment.get(name).ok_or_else(|| ExpansionError::Variable(display::plain(name)))?;
        secrets::register_variable(name, value);
        Ok(value.clone())
    }

    fn secret(&self, name: &str, secret_use: SecretUse) -> Result<String, ExpansionError> {
        if !is_secret_name(name) {
            return Err(ExpansionError::SecretName);
        }
        if secret_use == SecretUse::Refused {
            return Err(ExpansionError::MisplacedSecret(name.to_owned()));
        }
        let stored = self.secrets.as_ref().map(|secrets| secrets.secret(name)).transpose();
        let stored = stored.map_err(|why| ExpansionError::UnreadableSecret { name: name.to_owned(), why })?;
        let value = stored.flatten().ok_or_else(|| ExpansionError::Secret(name.to_owned()))?;
        secrets::register_secret(&value);
        Ok(value)
    }

    /// Returns the value of an input that the client would prompt for: from the environment, or the input's default.
    fn input(&self, id: &str) -> Result<String, ExpansionError> {
        let variable = input_variable(id);
        let default = || self.inputs.get(id).cloned().flatten();
        let found = self.environment.get(&variable).cloned().or_else(default);
        let value = found.ok_or_else(|| ExpansionError::Input { id: display::plain(id), variable })?;
        secrets::register_variable(id, &value);
        Ok(value)
    }
}

/// Returns the variable for an input: `api-key` → `CELLMATE_INPUT_API_KEY`.
pub(crate) fn input_variable(id: &str) -> String {
    let name: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    format!("CELLMATE_INPUT_{}", display::plain(&name))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_name_char) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the variables that an `envFile` of `NAME=value` lines assigns. Other lines are ignored: such files are often shell scripts.
pub(crate) fn parse_env_file(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(assignment).collect()
}

fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=').filter(|(name, _)| is_name(name.trim()))?;
    let value = value.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.split_once(quote).map(|(inner, _)| inner);
    let value = match quoted('"') {
        Some(inner) => inner.replace("\\n", "\n"),
        None => quoted('\'').unwrap_or_else(|| value.split(" #").next().unwrap_or(value).trim_end()).to_owned(),
    };
    Some((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::{Dialect, SecretSource, SecretUse, Variables, is_secret_name, parse_env_file};

    struct Stored;

    impl SecretSource for Stored {
        fn secret(&self, name: &str) -> Result<Option<String>, String> {
            match name {
                "broken" => Err("the disk is on fire".to_owned()),
                "KEY" => Ok(Some("value-of-the-secret".to_owned())),
                _ => Ok(None),
            }
        }
    }

    fn variables() -> Variables {
        let environment = [("A", "1"), ("EMPTY", ""), ("CELLMATE_INPUT_API_KEY", "k")];
        Variables {
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            home: Some(PathBuf::from("/home/me")),
            folder: PathBuf::from("/src/project"),
            inputs: BTreeMap::from([("region".to_owned(), Some("eu".to_owned())), ("user".to_owned(), None)]),
            secrets: Some(Arc::new(Stored)),
        }
    }

    #[test]
    fn every_dialect_is_expanded_as_its_client_does() {
        let cases = [
            (Dialect::Dollar, "a${A}b${env:A}", Ok("a1b1")),
            (Dialect::Dollar, "${B:-x}${EMPTY:-y}${A:-z}${B:-}", Ok("xy1")),
            (
                Dialect::Dollar,
                "${userHome}${/}x ${workspaceFolder} ${workspaceFolderBasename}",
                Ok("/home/me/x /src/project project"),
            ),
            (Dialect::Dollar, "${input:api-key} ${input:region}", Ok("k eu")),
            (Dialect::Dollar, "$A $$ $${A} 5$", Ok("$A $$ ${A} 5$")),
            (
                Dialect::BareDollar,
                "$A/$A_ ${A}",
                Err(
                    "environment variable `A_` is not set; set it in the environment that cellmate starts in, or run `cellmate secrets set A_` and write `${secret:A_}` in cellmate's configuration",
                ),
            ),
            (Dialect::BareDollar, "$A/x $1", Ok("1/x $1")),
            (Dialect::Brace, "{env:A} ${A} {file:x}", Ok("1 ${A} {file:x}")),
            (Dialect::Literal, "${A} $A {env:A}", Ok("${A} $A {env:A}")),
            (
                Dialect::Dollar,
                "${B}",
                Err(
                    "environment variable `B` is not set; set it in the environment that cellmate starts in, or run `cellmate secrets set B` and write `${secret:B}` in cellmate's configuration",
                ),
            ),
            (
                Dialect::Dollar,
                "${env:B}",
                Err(
                    "environment variable `B` is not set; set it in the environment that cellmate starts in, or run `cellmate secrets set B` and write `${secret:B}` in cellmate's configuration",
                ),
            ),
            (
                Dialect::Brace,
                "{env:B}",
                Err(
                    "environment variable `B` is not set; set it in the environment that cellmate starts in, or run `cellmate secrets set B` and write `${secret:B}` in cellmate's configuration",
                ),
            ),
            (
                Dialect::Dollar,
                "${input:user}",
                Err(
                    "the input `user` has no value; set `CELLMATE_INPUT_USER` in the environment that cellmate starts in",
                ),
            ),
            (
                Dialect::Dollar,
                "${command:pick.one}",
                Err("`${command:…}` works only in the client it was written for; write its value, or `${A_VARIABLE}`"),
            ),
            (Dialect::Dollar, "${A", Err("a `${` has no `}`; write `$${` for a literal `${`")),
        ];
        for (dialect, text, expected) in cases {
            let found = variables().expand(text, dialect, SecretUse::Allowed).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn secrets_are_replaced_where_they_are_allowed_and_refused_elsewhere() {
        let expand = |text: &str, secret_use| {
            variables().expand(text, Dialect::Dollar, secret_use).map_err(|error| error.to_string())
        };
        let allowed = |text: &str| expand(text, SecretUse::Allowed);
        assert_eq!(allowed("Bearer ${secret:KEY}"), Ok("Bearer value-of-the-secret".to_owned()));
        let redacted = telemetry::Redactor::global().redact("a value-of-the-secret b").into_owned();
        assert_eq!(redacted, "a [redacted] b");
        for (text, message) in [
            ("${secret:OTHER}", "secret `OTHER` is not set; run `cellmate secrets set OTHER`"),
            ("${secret:broken}", "secret `broken` cannot be read: the disk is on fire"),
            (
                "${secret:a b}",
                "the name in `${secret:…}` is not valid: a secret's name has 1 to 128 letters, digits, `_`, `.` and `-`, and does not begin with `-`",
            ),
            (
                "${secret:KEY:-x}",
                "the name in `${secret:…}` is not valid: a secret's name has 1 to 128 letters, digits, `_`, `.` and `-`, and does not begin with `-`",
            ),
        ] {
            assert_eq!(allowed(text), Err(message.to_owned()), "{text}");
        }
        assert_eq!(
            expand("--key=${secret:KEY}", SecretUse::Refused),
            Err("`${secret:KEY}` is possible only in `env`, `headers`, `url` and `oauth` of a server, `apiKey` and `headers` of a provider, and `env` of a plugin, because process lists show commands and arguments; move it there".to_owned())
        );
        assert_eq!(allowed("$${secret:KEY}"), Ok("${secret:KEY}".to_owned()));
        let nothing = Variables { secrets: None, ..variables() };
        assert!(nothing.expand("${secret:KEY}", Dialect::Dollar, SecretUse::Allowed).is_err());
    }

    #[test]
    fn names_of_secrets_are_short_and_plain() {
        let long = "x".repeat(128);
        for name in ["A", "github-token", "a.b_c-1", &long] {
            assert!(is_secret_name(name), "{name}");
        }
        let longer = "x".repeat(129);
        for name in ["", "-a", "a b", "a/b", "ä", "a:b", &longer] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn assignments_in_an_env_file_are_read_and_other_lines_are_ignored() {
        let text =
            "# keys\nA=1\nexport B = \"two words\" # why\nC='#3'\nD=x # note\nnot a line\n1=2\nE=\nF=\"a\\nb\"\n";
        let found: Vec<(String, String)> = parse_env_file(text).into_iter().collect();
        let expected = [("A", "1"), ("B", "two words"), ("C", "#3"), ("D", "x"), ("E", ""), ("F", "a\nb")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
