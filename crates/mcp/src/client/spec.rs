//! The specification of a server: how to start or reach it, and its limits.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
pub(crate) use process::{
    MAX_BAD_FRAMES, MAX_FRAME_BYTES, MAX_UNANSWERED_REQUESTS, MAX_UNSENT, MAX_UPDATE_CHARS, MAX_UPDATES,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use telemetry::{Redactor, is_credential_name};
use url::Url;

use crate::client::Callback;
use crate::client::downloads::runs_downloader;

/// The specification of a configured MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// The server's name, which is the owner in its tools' ids.
    pub name: String,
    pub transport: Transport,
    /// Whether the server's hints about its tools (such as read-only) are trusted.
    pub trusted: bool,
    pub limits: Limits,
}

/// Whether a server's hints about its tools, such as read-only, count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HintTrust {
    Trusted,
    Ignored,
}

impl ServerSpec {
    /// Returns whether the server's hints count.
    pub(crate) fn hint_trust(&self) -> HintTrust {
        if self.trusted { HintTrust::Trusted } else { HintTrust::Ignored }
    }

    /// Returns a hash that identifies the server: its name with the command, arguments and folder, or with the whole
    /// URL. Approvals are bound to it. Variables and headers are left out, so that a renewed token does not change it.
    pub fn identity(&self) -> String {
        let parts = match &self.transport {
            Transport::Stdio { command, args, cwd, .. } => json!(["stdio", self.name, command, args, cwd]),
            Transport::Http { url, .. } => json!(["http", self.name, url]),
        };
        let hash = Sha256::digest(parts.to_string());
        hex::encode(hash.get(..IDENTITY_BYTES).unwrap_or(&hash))
    }

    /// Registers the secrets of the specification, so that they are removed from the log: values of headers, values of
    /// variables whose names suggest a credential, the password in a URL, and an OAuth client secret.
    pub(crate) fn register_secrets(&self) {
        let redactor = Redactor::global();
        match &self.transport {
            Transport::Stdio { env, .. } => {
                env.iter().filter(|(name, _)| is_credential_name(name)).for_each(|(_, value)| redactor.register(value));
            }
            Transport::Http { url, headers, login } => {
                headers.iter().for_each(|(name, value)| register_header(name, value));
                if let Some(password) = Url::parse(url).ok().as_ref().and_then(Url::password) {
                    redactor.register(password);
                    redactor.register(&percent_decode_str(password).decode_utf8_lossy());
                }
                if let Some(secret) = login.as_ref().and_then(|login| login.client_secret.as_ref()) {
                    redactor.register(secret);
                }
            }
        }
    }
}

/// The number of bytes of the hash that identifies a server.
const IDENTITY_BYTES: usize = 16;

/// Registers a header's value, and for an authorization header also the credential after the scheme.
fn register_header(name: &str, value: &str) {
    Redactor::global().register(value);
    let authorizes = ["authorization", "proxy-authorization"].iter().any(|known| name.eq_ignore_ascii_case(known));
    if let Some((_, credential)) = value.trim().split_once(' ').filter(|_| authorizes) {
        Redactor::global().register(credential);
    }
}

/// How the server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A child process, over its standard streams.
    Stdio {
        command: String,
        args: Vec<String>,
        /// The server's own variables. They win over those that it inherits, which are listed in `process::environment`.
        env: BTreeMap<String, String>,
        cwd: Option<PathBuf>,
    },
    /// A remote server, over streamable HTTP.
    Http {
        url: String,
        /// Sent with every request, and to no other host.
        headers: BTreeMap<String, String>,
        /// How to log in if the server requires it. `None`: logins are disabled.
        login: Option<Login>,
    },
}

/// The settings of a login. Most servers need only the folder.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The folder that stores tokens: one file per server and issuer, readable only by its owner.
    pub tokens: PathBuf,
    /// The OAuth client id, if a client was registered by hand.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    /// The https URL of a client metadata document, for issuers that support it.
    pub client_metadata_url: Option<String>,
    /// The scopes to request; if empty, those that the server names.
    pub scopes: Vec<String>,
    /// The redirect URL of the browser.
    pub callback: Callback,
}

impl Login {
    /// Creates a login whose other settings are discovered.
    pub fn new(tokens: PathBuf) -> Self {
        let (client_id, client_secret, client_metadata_url) = (None, None, None);
        let (scopes, callback) = (Vec::new(), Callback::default());
        Self { tokens, client_id, client_secret, client_metadata_url, scopes, callback }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("tokens", &self.tokens).field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

impl Transport {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
        }
    }

    /// Whether the command may download a package or an image before the server runs, such as `npx` or `docker`.
    pub fn may_download(&self) -> bool {
        match self {
            Self::Stdio { command, args, .. } => runs_downloader(command, args),
            Self::Http { .. } => false,
        }
    }
}

impl fmt::Debug for Transport {
    /// Shows the names of variables and headers, never their values, which often are secrets. Arguments, and the user
    /// and query parts of a URL, may contain secrets too and are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", &env.keys())
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers, login } => f
                .debug_struct("Http")
                .field("url", &plain_url(url))
                .field("headers", &headers.keys())
                .field("login", login)
                .finish(),
        }
    }
}

/// Returns the part of a URL that may be shown: scheme, host, port and path.
pub(crate) fn plain_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "(not an address)".to_owned() };
    let path = rest.find(['?', '#']).and_then(|end| rest.get(..end)).unwrap_or(rest);
    let host_ends = path.find('/').unwrap_or(path.len());
    let host_starts = path.get(..host_ends).and_then(|authority| authority.rfind('@')).map_or(0, |at| at + 1);
    let shown_part = path.get(host_starts..).unwrap_or_default();
    shown(&format!("{scheme}://{shown_part}"), MAX_SHOWN_NAME_CHARS)
}

/// The time and size limits of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time from starting the process to having listed its tools.
    pub connect: Duration,
    /// The time from sending a call to its response; progress does not extend it.
    pub call: Duration,
    /// The maximum number of tools. If the server lists more, the connection fails.
    pub tools: usize,
    /// A tool with a longer title or description is left out.
    pub description_bytes: usize,
    /// A tool with a longer schema, of input or output, is left out.
    pub schema_bytes: usize,
    /// The maximum size of all listed tools together. If it is exceeded, the connection fails.
    pub total_bytes: usize,
}

impl Limits {
    /// The time from starting a process that may download its package to having listed its tools. If the download is
    /// interrupted, package runners such as `npx` leave a folder that does not work.
    pub const CONNECT_WITH_DOWNLOAD: Duration = Duration::from_secs(5 * 60);

    /// Returns the limits of a server that has none of its own. A process that may download its package has more time to
    /// start.
    pub fn for_transport(transport: &Transport) -> Self {
        let connect = if transport.may_download() { Self::CONNECT_WITH_DOWNLOAD } else { Self::DEFAULT.connect };
        Self { connect, ..Self::DEFAULT }
    }

    /// Python servers take some four seconds to start on a slow machine.
    pub const DEFAULT: Self = Self {
        connect: Duration::from_secs(30),
        call: Duration::from_secs(60),
        tools: 2_000,
        description_bytes: 16 << 10,
        schema_bytes: 128 << 10,
        total_bytes: 8 << 20,
    };
}

/// The longest server name.
pub(crate) const MAX_SERVER_NAME_BYTES: usize = 64;

/// The longest tool name; the protocol's own limit.
pub(crate) const MAX_TOOL_NAME_BYTES: usize = 128;

/// The maximum number of pages of one listing. It stops a server that returns cursors forever.
pub(crate) const MAX_PAGES: usize = 256;

/// The maximum size of all unfinished messages of one HTTP server together.
pub(crate) const MAX_HELD_BYTES: usize = 32 << 20;

/// The maximum number of concurrent requests to one HTTP server; further requests wait.
pub(crate) const MAX_EXCHANGES: usize = 64;

/// How much of a server's own text an error message shows.
pub(crate) const MAX_SHOWN_CHARS: usize = 1_000;

/// How much of a name from a server or a configuration is shown.
pub(crate) const MAX_SHOWN_NAME_CHARS: usize = 200;

/// Shortens untrusted text for display and replaces its control characters, which could control a terminal.
pub(crate) fn shown(text: &str, chars: usize) -> String {
    let plain = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { ' ' } else { c };
    let mut shown: String = text.chars().take(chars).map(plain).collect();
    if text.chars().nth(chars).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Limits, Login, Redactor, ServerSpec, Transport, plain_url, shown};

    #[test]
    fn secrets_of_an_address_are_not_shown() {
        let cases = [
            ("https://u:hunter2@h.example:8/mcp?key=hunter2#hunter2", "https://h.example:8/mcp"),
            ("https://h.example/a@b", "https://h.example/a@b"),
            ("https://u@v:hunter2@h.example", "https://h.example"),
            ("hunter2", "(not an address)"),
        ];
        for (url, plain) in cases {
            assert_eq!(plain_url(url), plain);
        }
        let headers = BTreeMap::from([("authorization".to_owned(), "hunter2".to_owned())]);
        let shown = format!("{:?}", Transport::Http { url: cases[0].0.to_owned(), headers, login: None });
        assert_eq!(shown, r#"Http { url: "https://h.example:8/mcp", headers: ["authorization"], login: None }"#);
        let mut login = Login::new("/t".into());
        login.client_secret = Some("hunter2".to_owned());
        assert_eq!(format!("{login:?}"), r#"Login { tokens: "/t", scopes: [], .. }"#);
    }

    #[test]
    fn secrets_of_a_specification_are_registered_for_the_log() {
        let spec = |transport| ServerSpec { name: "s".to_owned(), transport, trusted: false, limits: Limits::DEFAULT };
        let pair = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let (command, args, cwd) = ("npx".to_owned(), Vec::new(), None);
        let env = pair("github_token", "spec-secret-1").into_iter().chain(pair("LOG_LEVEL", "spec-plain-1")).collect();
        spec(Transport::Stdio { command, args, env, cwd }).register_secrets();
        let url = "https://u:spec%2Dsecret-2@h.example/mcp".to_owned();
        spec(Transport::Http { url, headers: pair("Authorization", "Bearer spec-secret-3"), login: None })
            .register_secrets();
        let text = "spec-secret-1 spec-plain-1 spec%2Dsecret-2 spec-secret-2 spec-secret-3";
        let redacted = Redactor::global().redact(text);
        assert_eq!(redacted, "[redacted] spec-plain-1 [redacted] [redacted] [redacted]");
    }

    #[test]
    fn commands_that_may_download_have_minutes_to_start() {
        let limit = |line: &[&str]| {
            let mut words = line.iter().map(|word| (*word).to_owned());
            let (command, args) = (words.next().unwrap(), words.collect());
            Limits::for_transport(&Transport::Stdio { command, args, env: BTreeMap::new(), cwd: None }).connect
        };
        let downloading: [&[&str]; 9] = [
            &["npx", "-y", "@modelcontextprotocol/server-filesystem", "/notes"],
            &["/usr/local/bin/uvx", "mcp-server-time"],
            &["uv", "run", "server.py"],
            &["docker", "run", "-i", "--rm", "mcp/time"],
            &["pnpm", "dlx", "pkg"],
            &["npm", "exec", "--", "pkg"],
            &["bun", "x", "pkg"],
            &["env", "A=1", "npx", "pkg"],
            &["sh", "-c", "cd /srv&&exec npx pkg"],
        ];
        for line in downloading {
            assert_eq!(limit(line), Limits::CONNECT_WITH_DOWNLOAD, "{line:?}");
        }
        let others: [&[&str]; 6] = [
            &["node", "npx.js"],
            &["python3", "-m", "server"],
            &["pnpm", "start"],
            &["sh", "server.sh"],
            &["env", "npx=1", "node"],
            &["bash", "-c", "true"],
        ];
        for line in others {
            assert_eq!(limit(line), Limits::DEFAULT.connect, "{line:?}");
        }
        let http = Transport::Http { url: "https://npx/npx".to_owned(), headers: BTreeMap::new(), login: None };
        assert_eq!(Limits::for_transport(&http), Limits::DEFAULT);
    }

    #[test]
    fn untrusted_text_is_cut_and_loses_its_control_characters() {
        assert_eq!(shown("abc", 3), "abc");
        assert_eq!(shown("äöüß", 3), "äöü…");
        assert_eq!(shown("a\u{1b}[2J\n\tb\u{0}", 20), "a [2J\n\tb ");
    }

    fn stdio(name: &str, command: &str, args: &[&str], cwd: Option<&str>, token: &str) -> String {
        identity(
            name,
            Transport::Stdio {
                command: command.to_owned(),
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                env: BTreeMap::from([("TOKEN".to_owned(), token.to_owned())]),
                cwd: cwd.map(Into::into),
            },
        )
    }

    fn http(name: &str, url: &str) -> String {
        identity(name, Transport::Http { url: url.to_owned(), headers: BTreeMap::new(), login: None })
    }

    fn identity(name: &str, transport: Transport) -> String {
        ServerSpec { name: name.to_owned(), transport, trusted: false, limits: Limits::DEFAULT }.identity()
    }

    #[test]
    fn the_identity_depends_on_command_arguments_folder_and_url_and_not_on_tokens() {
        let first = stdio("s", "npx", &["-y", "a"], None, "1");
        assert_eq!(first, stdio("s", "npx", &["-y", "a"], None, "2"));
        let mut all = vec![
            first,
            stdio("t", "npx", &["-y", "a"], None, "1"),
            stdio("s", "uvx", &["-y", "a"], None, "1"),
            stdio("s", "npx", &["-y", "b"], None, "1"),
            stdio("s", "npx", &["-y a"], None, "1"),
            stdio("s", "npx", &["-y", "a"], Some("/tmp"), "1"),
            http("s", "https://a.example/mcp"),
            http("t", "https://a.example/mcp"),
            http("s", "https://b.example/mcp"),
            http("s", "https://a.example/mcp?tenant=2"),
            http("s", "http://a.example/mcp"),
        ];
        let number = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), number);
    }
}
