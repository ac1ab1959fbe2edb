//! MCP servers as sources of tools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mcp::{Limits, ServerSpec, Transport, UpstreamOptions, Upstreams};

use crate::error::{Error, ErrorKind, Result};

/// An MCP server whose tools cells can call; see [`Builder::mcp_server`](crate::Builder::mcp_server).
///
/// A server that cannot be started does not fail the program: cells read why its tools are missing, and it is started
/// again when one of its tools is called.
#[must_use]
#[derive(Clone, Debug)]
pub struct McpServer {
    spec: ServerSpec,
    misuse: Option<&'static str>,
}

impl McpServer {
    /// Returns a server that is a program, which is started when it is needed and stopped when it is idle.
    ///
    /// ```
    /// use cellmate::McpServer;
    /// let git = McpServer::command("git", "uvx", ["mcp-server-git"]).variable("GIT_PAGER", "cat");
    /// ```
    pub fn command<A: Into<String>>(
        name: impl Into<String>,
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let args = arguments.into_iter().map(Into::into).collect();
        Self::new(name, Transport::Stdio { command: program.into(), args, env: BTreeMap::new(), cwd: None })
    }

    /// Returns a remote server, which is called over streamable HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name, Transport::Http { url: url.into(), headers: BTreeMap::new(), login: None })
    }

    fn new(name: impl Into<String>, transport: Transport) -> Self {
        let limits = Limits::for_transport(&transport);
        let spec = ServerSpec { name: name.into(), transport, trusted: false, limits };
        Self { spec, misuse: None }
    }

    /// Sets an environment variable of the program. It inherits few others.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        match &mut self.spec.transport {
            Transport::Stdio { env, .. } => drop(env.insert(name.into(), value.into())),
            Transport::Http { .. } => self.misuse = Some("a remote server has no environment variables"),
        }
        self
    }

    /// Sets the working directory of the program.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        match &mut self.spec.transport {
            Transport::Stdio { cwd, .. } => *cwd = Some(folder.into()),
            Transport::Http { .. } => self.misuse = Some("a remote server has no working directory"),
        }
        self
    }

    /// Sets a header that is sent with every request, such as `Authorization`.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        match &mut self.spec.transport {
            Transport::Http { headers, .. } => drop(headers.insert(name.into(), value.into())),
            Transport::Stdio { .. } => self.misuse = Some("a server that is a program has no headers"),
        }
        self
    }

    /// Trusts what the server declares about its tools, such as that they only read.
    pub fn trusted(mut self) -> Self {
        self.spec.trusted = true;
        self
    }
}

/// Starts the servers and waits until each has listed its tools, or failed.
pub(crate) async fn start(servers: Vec<McpServer>) -> Result<Upstreams> {
    let mut specs: Vec<ServerSpec> = Vec::with_capacity(servers.len());
    for McpServer { spec, misuse } in servers {
        let bad = |why: &str| {
            Error::new(ErrorKind::InvalidConfig, format!("the MCP server `{}` is invalid: {why}", spec.name))
        };
        if let Some(why) = misuse {
            return Err(bad(why));
        }
        if specs.iter().any(|other| other.name == spec.name) {
            return Err(bad("another server has this name"));
        }
        specs.push(spec);
    }
    let servers = Upstreams::new(specs, &UpstreamOptions::DEFAULT);
    for (server, error) in servers.listed().await {
        tracing::warn!(server, %error, "an MCP server is not available");
    }
    Ok(servers)
}
