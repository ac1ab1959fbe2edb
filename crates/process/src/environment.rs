//! The environment variables that MCP servers, plugins and shell commands inherit from this process. The list is fixed:
//! no setting adds a variable for all servers, and a server gets any other variable only if its own entry names it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use telemetry::{Redactor, is_credential_name};
use url::Url;

/// Variables that are inherited for the same reason.
struct Group {
    /// Exact names; one that ends with `*` is a prefix.
    names: &'static [&'static str],
    urls: UrlPolicy,
}

/// Which URLs the value of a variable may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPolicy {
    /// Only URLs without a user name or password. Otherwise the variable is not inherited.
    WithoutCredentials,
    /// Any URL, because one that needs credentials does not work without them.
    Any,
}

const fn group(names: &'static [&'static str]) -> Group {
    Group { names, urls: UrlPolicy::WithoutCredentials }
}

/// The inherited variables. The comment on each group says what the variables make possible.
/// docs/reference/configuration.md has the same list.
const INHERITED: [Group; 13] = [
    // The process finds programs and files.
    group(&["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TEMP", "TMP"]),
    // Dates and messages are in the user's language and time zone.
    group(&["LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR"]),
    // Settings and caches are where the user's other programs keep them.
    group(&[
        "XDG_BIN_HOME",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_DIRS",
        "XDG_CONFIG_HOME",
        "XDG_DATA_DIRS",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
    ]),
    // The process reaches the network. A proxy that requires a password works only if the URL contains it.
    Group {
        names: &[
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
            "NO_PROXY",
            "no_proxy",
            "NODE_USE_ENV_PROXY",
        ],
        urls: UrlPolicy::Any,
    },
    // Certificates of the organisation's own authorities are accepted.
    group(&[
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NIX_SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "NODE_USE_SYSTEM_CA",
        "NPM_CONFIG_CAFILE",
        "npm_config_cafile",
        "DENO_CERT",
        "DENO_TLS_CA_STORE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "PIP_CERT",
        "UV_NATIVE_TLS",
        "UV_SYSTEM_CERTS",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "AWS_CA_BUNDLE",
        "CARGO_HTTP_CAINFO",
    ]),
    // `git` and `ssh` can ask the user's agent to sign; they cannot read its keys.
    group(&["SSH_AUTH_SOCK"]),
    // Browsers and password dialogs can open a window.
    group(&["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"]),
    // Servers that run in containers reach the engine that the user chose.
    group(&[
        "DOCKER_HOST",
        "DOCKER_CONTEXT",
        "DOCKER_CONFIG",
        "DOCKER_CERT_PATH",
        "DOCKER_TLS_VERIFY",
        "CONTAINER_HOST",
    ]),
    // `npx` and its relatives find their packages and caches. `NODE_OPTIONS` is missing: editors set it for debugging.
    group(&[
        "NODE_PATH",
        "NVM_DIR",
        "NVM_BIN",
        "FNM_DIR",
        "FNM_MULTISHELL_PATH",
        "VOLTA_HOME",
        "PNPM_HOME",
        "BUN_INSTALL",
        "DENO_DIR",
        "COREPACK_HOME",
        "NPM_CONFIG_CACHE",
        "npm_config_cache",
        "NPM_CONFIG_PREFIX",
        "npm_config_prefix",
        "NPM_CONFIG_USERCONFIG",
        "npm_config_userconfig",
    ]),
    // Python finds its packages.
    group(&[
        "PYTHONPATH",
        "PYTHONUSERBASE",
        "PYTHONUTF8",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "PYENV_ROOT",
        "PYENV_VERSION",
        "PIPX_HOME",
        "PIP_CACHE_DIR",
    ]),
    // `uvx` finds its interpreters, tools and caches.
    group(&[
        "UV_CACHE_DIR",
        "UV_CONFIG_FILE",
        "UV_PYTHON",
        "UV_PYTHON_INSTALL_DIR",
        "UV_TOOL_DIR",
        "UV_TOOL_BIN_DIR",
        "UV_LINK_MODE",
        "UV_OFFLINE",
    ]),
    // Packages come from the organisation's own registry, unless its URL contains a password.
    group(&[
        "NPM_CONFIG_REGISTRY",
        "npm_config_registry",
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
    ]),
    // Version managers find the programs that their shims start.
    group(&["ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "MISE_CONFIG_DIR", "MISE_CACHE_DIR", "JAVA_HOME"]),
];

/// Variables of shells, terminals and sessions, which no server needs, so [`withheld`] does not report them.
const NOT_REPORTED: [&str; 36] = [
    "_",
    "BASH*",
    "CELLMATE_*",
    "COLORTERM",
    "COLUMNS",
    "EDITOR",
    "GPG_AGENT_INFO",
    "HIST*",
    "HOSTNAME",
    "HOSTTYPE",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LESS*",
    "LINES",
    "LS_COLORS",
    "MACHTYPE",
    "MAIL",
    "MANAGERPID",
    "OLDPWD",
    "OSTYPE",
    "PAGER",
    "PS1",
    "PWD",
    "SESSION_MANAGER",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SYSTEMD_EXEC_PID",
    "TERM_*",
    "TMUX*",
    "VISUAL",
    "VTE_VERSION",
    "WINDOWID",
    "XDG_SESSION_*",
    "ZDOTDIR",
];

/// How many names [`withheld`] returns at most.
const MAX_WITHHELD: usize = 256;

/// The longest name that [`withheld`] returns.
const MAX_NAME_BYTES: usize = 128;

/// Returns the variables of this process that a server inherits.
pub(crate) fn inherited() -> Vec<(OsString, OsString)> {
    let variables: Vec<_> = std::env::vars_os().filter(|(name, value)| is_inherited(name, value)).collect();
    // Servers print the URL of their proxy in error messages. The password in it must not reach the log.
    variables.iter().for_each(|(_, value)| register_password(&value.to_string_lossy()));
    variables
}

/// Variables that a shell command does not inherit although a server does: those that name the user's folders, which it
/// cannot read, and those that lead to agents, containers and the desktop.
const NOT_FOR_COMMANDS: [&str; 14] = [
    "HOME",
    "TMPDIR",
    "TEMP",
    "TMP",
    "XDG_*",
    "SSH_AUTH_SOCK",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_*",
    "CONTAINER_HOST",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_userconfig",
];

/// Returns the variables of this process that a shell command gets: those of a server, without credentials of any kind.
pub fn command_variables() -> BTreeMap<String, String> {
    command_variables_of(std::env::vars_os())
}

fn command_variables_of(variables: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let texts = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts
        .filter(|(name, value)| {
            let is_withheld = NOT_FOR_COMMANDS.iter().any(|known| matches(known, name));
            is_inheritable(name) && !is_withheld && !has_credentials(value)
        })
        .collect()
}

/// Whether servers inherit the variable of this name, if its value contains no credentials.
pub fn is_inheritable(name: &str) -> bool {
    group_of(name).is_some()
}

/// Returns the names of this process's variables that a server with these variables of its own did not get, sorted and
/// without those that no server needs.
pub fn withheld(env: &BTreeMap<String, String>) -> Vec<String> {
    withheld_of(std::env::vars_os(), env)
}

fn withheld_of(variables: impl Iterator<Item = (OsString, OsString)>, env: &BTreeMap<String, String>) -> Vec<String> {
    let mut names: Vec<String> = variables
        .filter(|(name, value)| !is_inherited(name, value))
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| is_reportable(name) && !env.contains_key(name))
        .filter(|name| !NOT_REPORTED.iter().any(|known| matches(known, name)))
        .collect();
    names.sort_unstable();
    names.truncate(MAX_WITHHELD);
    names
}

/// Whether a name is short enough and has no characters that must not be printed.
fn is_reportable(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether servers inherit a variable with this name and value.
fn is_inherited(name: &OsStr, value: &OsStr) -> bool {
    let Some(group) = name.to_str().and_then(group_of) else { return false };
    group.urls == UrlPolicy::Any || !has_credentials(&value.to_string_lossy())
}

/// Returns the group of inherited variables that a name belongs to.
fn group_of(name: &str) -> Option<&'static Group> {
    let has = |known: &&str| {
        // A prefix also matches unforeseen names, so those that suggest a credential are excluded.
        matches(known, name) && (!known.ends_with('*') || !is_credential_name(name))
    };
    INHERITED.iter().find(|group| group.names.iter().any(has))
}

/// Whether a name matches an entry of a list, which is a name or a prefix followed by `*`.
fn matches(known: &str, name: &str) -> bool {
    match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == known,
    }
}

/// Whether a value contains a URL with a password, or an HTTP URL with a user name, which may be a token. The user of
/// `ssh://me@host` is neither. The address of a proxy may have no scheme: `me:password@proxy:3128`.
fn has_credentials(value: &str) -> bool {
    let first = value.split_once("://").map_or(value, |(first, _)| first);
    if first.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        return true;
    }
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("://") {
        let authority = after.split(['/', '?', '#', ' ', '\t', '\n']).next().unwrap_or_default();
        let is_http = before.to_ascii_lowercase().ends_with("http") || before.to_ascii_lowercase().ends_with("https");
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        if user.is_some_and(|user| is_http || user.contains(':')) {
            return true;
        }
        rest = after;
    }
    false
}

/// Registers the password of a URL, which may lack its scheme, so that it is redacted in the log.
fn register_password(value: &str) {
    let with_scheme = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    if let Some(password) = Url::parse(&with_scheme).ok().as_ref().and_then(Url::password) {
        Redactor::global().register(password);
        Redactor::global().register(&percent_encoding::percent_decode_str(password).decode_utf8_lossy());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::{OsStr, OsString};

    use super::{
        INHERITED, MAX_WITHHELD, command_variables_of, is_credential_name, is_inheritable, is_inherited, withheld_of,
    };

    #[test]
    fn a_command_gets_neither_credentials_nor_sockets_nor_the_home_folder() {
        let given = [
            ("PATH", "/bin"),
            ("LANG", "C.UTF-8"),
            ("HTTPS_PROXY", "http://me:pass@proxy:3128"),
            ("https_proxy", "me:pass@proxy:3128"),
            ("ALL_PROXY", "http://me:pa,ss@proxy:3128"),
            ("HTTP_PROXY", "http://proxy:3128"),
            ("http_proxy", "proxy:3128"),
            ("HOME", "/home/me"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/bus"),
            ("DOCKER_HOST", "unix:///run/docker.sock"),
            ("XDG_RUNTIME_DIR", "/run/user/1"),
            ("OPENAI_API_KEY", "x"),
            ("LD_PRELOAD", "/x.so"),
            ("CELLMATE_TOKEN", "x"),
        ];
        let variables = given.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let names: Vec<String> = command_variables_of(variables.into_iter()).into_keys().collect();
        assert_eq!(names, ["HTTP_PROXY", "LANG", "PATH", "http_proxy"]);
    }

    fn is_passed(name: &str, value: &str) -> bool {
        is_inherited(OsStr::new(name), OsStr::new(value))
    }

    #[test]
    fn what_a_server_needs_to_work_is_inherited_and_credentials_are_not() {
        for (name, value) in [
            ("PATH", "/bin"),
            ("LANG", "de_DE.UTF-8"),
            ("LC_ALL", "C"),
            ("TZ", "Europe/Berlin"),
            ("TMPDIR", "/tmp"),
            ("XDG_CACHE_HOME", "/c"),
            ("HTTPS_PROXY", "http://me:pass@proxy:3128"),
            ("no_proxy", "localhost"),
            ("SSL_CERT_FILE", "/etc/ca.pem"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("WAYLAND_DISPLAY", "wayland-0"),
            ("DOCKER_HOST", "ssh://me@host"),
            ("NVM_DIR", "/home/me/.nvm"),
            ("UV_CACHE_DIR", "/c"),
            ("UV_INDEX_URL", "https://pypi.example/simple"),
        ] {
            assert!(is_passed(name, value), "{name}");
        }
        for (name, value) in [
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("AWS_PROFILE", "x"),
            ("GITHUB_TOKEN", "x"),
            ("OPENAI_API_KEY", "x"),
            ("NODE_OPTIONS", "--inspect"),
            ("LD_PRELOAD", "/x.so"),
            ("path", "/bin"),
            ("LC_GITHUB_TOKEN", "x"),
            ("PATHX", "/bin"),
            ("UV_INDEX_URL", "https://me:pass@pypi.example/simple"),
            ("UV_INDEX_URL", "https://token@pypi.example/simple"),
            ("UV_INDEX", "a=https://ok.example b=https://me:pass@pypi.example/simple"),
            ("PIP_EXTRA_INDEX_URL", "HTTPS://token@pypi.example"),
            ("DOCKER_HOST", "tcp://me:pass@host"),
        ] {
            assert!(!is_passed(name, value), "{name}={value}");
        }
        assert!(is_inheritable("NO_PROXY") && !is_inheritable("AWS_PROFILE"));
    }

    #[test]
    fn no_inherited_name_suggests_a_credential() {
        // These name a socket and a file; neither is a credential itself.
        let exempt = ["SSH_AUTH_SOCK", "XAUTHORITY"];
        let names = INHERITED.iter().flat_map(|group| group.names).filter(|name| !exempt.contains(name));
        for name in names {
            assert!(!is_credential_name(name), "{name}");
        }
    }

    #[test]
    fn the_documentation_lists_every_inherited_variable() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
        let documented = std::fs::read_to_string(path).unwrap();
        for name in INHERITED.iter().flat_map(|group| group.names).filter(|name| name.to_uppercase() == **name) {
            assert!(documented.contains(&format!("`{name}`")), "{name} is not in docs/reference/configuration.md");
        }
    }

    #[test]
    fn withheld_names_are_sorted_bounded_and_without_those_of_the_shell() {
        let variable = |name: &str| (OsString::from(name), OsString::from("x"));
        let given = ["PWD", "AWS_PROFILE", "PATH", "A_TOKEN", "GIVEN", "TERM_PROGRAM", "bad name", "CELLMATE_STORE"];
        let env = BTreeMap::from([("GIVEN".to_owned(), "1".to_owned())]);
        assert_eq!(withheld_of(given.map(variable).into_iter(), &env), ["AWS_PROFILE", "A_TOKEN"]);
        let many = (0..1_000).map(|number| variable(&format!("V{number}")));
        assert_eq!(withheld_of(many, &BTreeMap::new()).len(), MAX_WITHHELD);
    }
}
