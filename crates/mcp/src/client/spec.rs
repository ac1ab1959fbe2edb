//! Which server to start or to reach, and how much of it to bear.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::client::Callback;

/// One MCP server, as configuration names it.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The owner in its tools' ids.
    pub name: String,
    pub transport: Transport,
    /// Whether what it says about its own tools (that they only read) is believed.
    pub trusted: bool,
    pub limits: Limits,
}

impl ServerSpec {
    /// A hash that says which server this is: its name with the command, arguments and folder, or with the whole
    /// address. Approvals are bound to it. Variables and headers do not count, so that a renewed token does not make
    /// another server of it.
    pub fn identity(&self) -> String {
        let said = match &self.transport {
            Transport::Stdio { command, args, cwd, .. } => json!(["stdio", self.name, command, args, cwd]),
            Transport::Http { url, .. } => json!(["http", self.name, url]),
        };
        Sha256::digest(said.to_string()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Where the server is.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A process of ours, spoken to over its standard streams.
    Stdio {
        command: String,
        args: Vec<String>,
        /// Beside `PATH` and `HOME` the server gets these and nothing else.
        env: BTreeMap<String, String>,
        cwd: Option<PathBuf>,
    },
    /// Somebody's server at an address, over streamable HTTP.
    Http {
        url: String,
        /// Sent with every request, and to no other host.
        headers: BTreeMap<String, String>,
        /// How to log in where the server wants that. None: it is not logged in to.
        login: Option<Login>,
    },
}

/// What logging in to a server needs. Most servers need nothing but the folder.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The folder where tokens are kept, one file of its owner's alone per server and issuer.
    pub tokens: PathBuf,
    /// Who we are to the issuer, where somebody registered us by hand.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    /// An https address where who we are is published, for issuers that read it there.
    pub client_metadata_url: Option<String>,
    /// What to ask for; the server's own word on it where empty.
    pub scopes: Vec<String>,
    /// Where the browser is sent back to.
    pub callback: Callback,
}

impl Login {
    /// All that is not configured is found out.
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
}

impl fmt::Debug for Transport {
    /// Names of variables and headers, never their values: they are where servers get their secrets. Arguments and
    /// what an address has before its host and after its path may hold some too.
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

/// An address that may be shown: scheme, host, port and path.
pub(crate) fn plain_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "(not an address)".to_owned() };
    let path = rest.find(['?', '#']).and_then(|end| rest.get(..end)).unwrap_or(rest);
    let host_ends = path.find('/').unwrap_or(path.len());
    let host_starts = path.get(..host_ends).and_then(|authority| authority.rfind('@')).map_or(0, |at| at + 1);
    let shown_part = path.get(host_starts..).unwrap_or_default();
    shown(&format!("{scheme}://{shown_part}"), MAX_SHOWN_NAME_CHARS)
}

/// How long, how many and how large, for one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From starting the process to having its tools.
    pub connect: Duration,
    /// From sending a call to its answer; progress does not extend it.
    pub call: Duration,
    /// More tools than this are no tools: the connection fails.
    pub tools: usize,
    /// A tool with a longer title or description is left out.
    pub description_bytes: usize,
    /// A tool with a longer schema, of input or output, is left out.
    pub schema_bytes: usize,
    /// All listed tools together; past it the connection fails.
    pub total_bytes: usize,
}

impl Limits {
    /// Python servers take some four seconds to start on a slow machine, package runners longer.
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

/// Pages of one listing. A server that hands out cursors for ever meets this or the deadline.
pub(crate) const MAX_PAGES: usize = 256;

/// One message from a server. Its reader gives up before the rest of a longer one is in memory.
pub(crate) const MAX_FRAME_BYTES: usize = contract::limits::MAX_SERVER_MESSAGE_BYTES;

/// Messages that a server at an address has begun and not ended, all together.
pub(crate) const MAX_HELD_BYTES: usize = 32 << 20;

/// Requests to a server at an address at once; more wait for their turn.
pub(crate) const MAX_EXCHANGES: usize = 64;

/// Lines in a row that are no message. Servers do print banners and stray logs where only messages belong.
pub(crate) const MAX_BAD_FRAMES: usize = 10;

/// Messages written but not yet taken by the server, beyond what the pipe holds.
pub(crate) const MAX_UNSENT: usize = 256;

/// Requests of the server to us that are not answered yet.
pub(crate) const MAX_ASKED: usize = 64;

/// The end of what a server wrote to its standard error.
pub(crate) const STDERR_BYTES: usize = 64 << 10;

/// Progress that one call may report, and the text of one report.
pub(crate) const MAX_UPDATES: u32 = 1_000;
pub(crate) const MAX_UPDATE_CHARS: usize = 1_000;

/// What is shown of a server's own words in an error.
pub(crate) const MAX_SHOWN_CHARS: usize = 1_000;

/// What is shown of a name that a server or a configuration gave.
pub(crate) const MAX_SHOWN_NAME_CHARS: usize = 200;

/// How long a server may take to end by itself once its input is closed.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// Text of others, cut to be shown and without what would steer a terminal.
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

    use super::{Limits, Login, ServerSpec, Transport, plain_url, shown};

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
    fn third_party_text_is_cut_and_escaped() {
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
    fn another_command_argument_folder_or_address_is_another_server_and_another_token_is_not() {
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
