//! Prepares parts of a configuration for display: hides secrets and escapes characters that control a terminal.

use std::borrow::Cow;
use std::path::Path;

use contract::text;

/// Shown instead of a hidden value.
pub const HIDDEN: &str = "…";

/// The longest untrusted text that is shown; longer ones are cut.
const MAX_SHOWN_CHARS: usize = 200;

/// Words in a name that mark its value as a secret.
const SECRET_WORDS: [&str; 12] =
    ["token", "secret", "password", "passwd", "key", "auth", "bearer", "credential", "cookie", "session", "pat", "dsn"];

/// Returns untrusted text on one line of at most `MAX_SHOWN_CHARS`, with control and invisible characters escaped.
pub fn plain(text: &str) -> String {
    text::line(text, MAX_SHOWN_CHARS)
}

/// Returns a path with control and invisible characters escaped: its folders may come with a project that is not
/// trusted. It is not cut.
pub fn path(path: &Path) -> String {
    text::line(&path.display().to_string(), usize::MAX)
}

/// Returns a URL without user, query and fragment, which may contain tokens.
pub(crate) fn url(address: &str) -> String {
    let (rest, query) = match address.split_once(['?', '#']) {
        Some((rest, _)) => (rest, "?…"),
        None => (address, ""),
    };
    let shown = match rest.split_once("://") {
        Some((scheme, after)) => {
            let (host, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            format!("{scheme}://{host}{}{query}", hide_long_parts(path))
        }
        None => format!("{rest}{query}"),
    };
    plain(&shown)
}

/// Hides the parts of a path that look like a key, which some services put there.
fn hide_long_parts(path: &str) -> String {
    path.split('/').map(|part| if looks_random(part) { HIDDEN } else { part }).collect::<Vec<_>>().join("/")
}

/// Returns a command line with secrets hidden.
pub(crate) fn command(command: &str, args: &[String]) -> String {
    let mut words = vec![plain(command)];
    words.extend(arguments(args).iter().map(|word| quoted(&plain(word)).into_owned()));
    words.join(" ")
}

/// Hides secrets in arguments, such as the values of `--token x`, `--token=x` and `TOKEN=x`.
pub(crate) fn arguments(args: &[String]) -> Vec<String> {
    let mut after_secret_flag = false;
    args.iter()
        .map(|arg| {
            let is_secret = after_secret_flag && !arg.starts_with('-');
            after_secret_flag = arg.starts_with('-') && !arg.contains('=') && names_a_secret(arg);
            if is_secret && !is_variable(arg) { HIDDEN.to_owned() } else { argument(arg) }
        })
        .collect()
}

/// Whether the argument is a reference to a variable, without a default value that could be a secret.
fn is_variable(arg: &str) -> bool {
    arg.starts_with("${") && arg.ends_with('}') && !arg.contains(":-")
}

/// Hides the parts of an argument that look like a secret.
fn argument(arg: &str) -> String {
    if is_variable(arg) {
        return arg.to_owned();
    }
    match arg.split_once('=') {
        Some((name, value)) if names_a_secret(name) && !value.starts_with("${") => format!("{name}={HIDDEN}"),
        _ if arg.contains("://") => url(arg),
        // `Authorization: Bearer …`, as bridges to remote servers expect it.
        _ => match arg.split_once(':') {
            Some((name, _)) if names_a_secret(name) && !name.contains(['/', '@']) => format!("{name}: {HIDDEN}"),
            _ if looks_random(arg) => HIDDEN.to_owned(),
            _ => arg.to_owned(),
        },
    }
}

/// Whether the value of this name is likely to be a secret.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|part| SECRET_WORDS.iter().any(|word| part == *word || (word.len() > 3 && part.contains(word))))
        || name.contains("apikey")
        || name.ends_with("key")
}

/// Whether the text is probably a key: long, with letters and digits, and not a path or package.
pub(crate) fn looks_random(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    let count = |is: fn(&u8) -> bool| text.bytes().filter(is).count();
    plain && text.len() >= 20 && count(u8::is_ascii_digit) >= 4 && count(u8::is_ascii_alphabetic) >= 4
}

/// Quotes a word of a command line for people to read. A variable such as `${NAME}` stays as it is.
fn quoted(word: &str) -> Cow<'_, str> {
    let bare = |c: char| c.is_alphanumeric() || "-_./@:=+,~%${}…?".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// Quotes a word for a command that the user copies into a shell, which must not expand it.
pub fn for_shell(word: &str) -> String {
    if word.contains(['$', '{', '}', '~', '%', '?', '…']) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    quoted(word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{arguments, command, names_a_secret, plain, url};

    #[test]
    fn urls_are_shown_without_users_queries_and_keys() {
        for (address, shown) in [
            ("https://example.com/mcp", "https://example.com/mcp"),
            ("https://me:pw@example.com/mcp", "https://example.com/mcp"),
            ("https://example.com/mcp?key=1#x", "https://example.com/mcp?…"),
            ("https://example.com/s/a1b2c3d4e5f6a7b8c9d0e1/mcp", "https://example.com/s/…/mcp"),
            ("${BASE}/mcp", "${BASE}/mcp"),
        ] {
            assert_eq!(url(address), shown);
        }
    }

    #[test]
    fn arguments_with_a_secrets_name_lose_their_values() {
        let given = [
            "-y",
            "@scope/server@1.2.3",
            "--api-key",
            "hunter2",
            "--token=hunter2",
            "GITHUB_TOKEN=hunter2",
            "--header",
            "Authorization: Bearer hunter2",
            "--api-key",
            "${KEY}",
            "--verbose",
            "/home/me",
            "ghp_0123456789abcdefghij",
            "https://a:hunter2@b.c/?k=hunter2",
            "--monkey-business",
            "on",
        ];
        let shown = [
            "-y",
            "@scope/server@1.2.3",
            "--api-key",
            "…",
            "--token=…",
            "GITHUB_TOKEN=…",
            "--header",
            "Authorization: …",
            "--api-key",
            "${KEY}",
            "--verbose",
            "/home/me",
            "…",
            "https://b.c/?…",
            "--monkey-business",
            "on",
        ];
        assert_eq!(arguments(&given.map(str::to_owned)), shown);
    }

    #[test]
    fn command_lines_are_quoted_for_a_shell() {
        let line = command("npx", &["a b".to_owned(), "it's".to_owned(), String::new()]);
        assert_eq!(line, r"npx 'a b' 'it'\''s' ''");
        assert_eq!(plain("a\u{1b}[2J"), "a\\u{1b}[2J");
    }

    #[test]
    fn names_of_secrets_are_recognised() {
        for name in ["API_KEY", "apiKey", "GITHUB_TOKEN", "x-api-key", "Authorization", "--pat", "client_secret"] {
            assert!(names_a_secret(name), "{name}");
        }
        for name in ["PATH", "HOME", "--monkeys", "pattern", "LOG_LEVEL", "command"] {
            assert!(!names_a_secret(name), "{name}");
        }
    }
}
