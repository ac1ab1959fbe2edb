//! The supported MCP clients: the file in which each stores its MCP servers, the key, and the format of an entry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::places::{Places, Scope};
use crate::variables::Dialect;

/// The variables in a client's entry for cellmate. It never contains the value of a variable that may be secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardedVariables {
    /// Names of variables that the client passes on.
    pub names: Vec<String>,
    /// Variables with their values: paths, and references that the client replaces.
    pub env: BTreeMap<String, String>,
    /// What the user should know, one sentence each.
    pub notes: Vec<String>,
}

/// Which variables a client passes on to the servers that it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardingRule {
    /// All variables that the client has.
    Everything,
    /// A small fixed set, and the variables that the entry lists by name.
    Names,
    /// A small fixed set, and the variables in the entry's `env`, where references are replaced.
    References { prefix: &'static str, suffix: &'static str },
    /// A small fixed set, and the variables in the entry's `env`, as literal text.
    LiteralEnv,
}

/// An MCP client whose configuration can be read and edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    ClaudeCode,
    ClaudeDesktop,
    Codex,
    Cursor,
    VsCode,
    OpenCode,
    Windsurf,
    Gemini,
    Zed,
    Mcporter,
    OpenClaw,
}

impl Client {
    /// All known clients.
    pub const ALL: [Self; 11] = [
        Self::ClaudeCode,
        Self::ClaudeDesktop,
        Self::Codex,
        Self::Cursor,
        Self::VsCode,
        Self::OpenCode,
        Self::Windsurf,
        Self::Gemini,
        Self::Zed,
        Self::Mcporter,
        Self::OpenClaw,
    ];

    /// Returns the client's name in commands and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::OpenCode => "opencode",
            Self::Windsurf => "windsurf",
            Self::Gemini => "gemini",
            Self::Zed => "zed",
            Self::Mcporter => "mcporter",
            Self::OpenClaw => "openclaw",
        }
    }

    /// Finds a client by its name; `claude` means Claude Code.
    pub fn parse(name: &str) -> Option<Self> {
        let name = if name == "claude" { "claude-code" } else { name };
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    /// Returns the path of the key under which the client's file has its servers.
    pub fn servers_key(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor | Self::Windsurf | Self::Gemini | Self::Mcporter => {
                &["mcpServers"]
            }
            Self::Codex => &["mcp_servers"],
            Self::VsCode => &["servers"],
            Self::OpenCode => &["mcp"],
            Self::Zed => &["context_servers"],
            Self::OpenClaw => &["mcp", "servers"],
        }
    }

    /// Returns the paths of all keys under which the client's file has servers, highest precedence first. Claude Code's
    /// user file also has servers that apply only in one folder.
    pub(crate) fn servers_keys(self, folder: &str) -> Vec<Vec<&str>> {
        let local = (self == Self::ClaudeCode).then(|| vec!["projects", folder, "mcpServers"]);
        local.into_iter().chain([self.servers_key().to_vec()]).collect()
    }

    /// Returns the syntax of variables in the client's file.
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::Codex | Self::Zed => Dialect::Literal,
            Self::OpenCode => Dialect::Brace,
            Self::Gemini => Dialect::BareDollar,
            Self::ClaudeCode
            | Self::ClaudeDesktop
            | Self::Cursor
            | Self::VsCode
            | Self::Windsurf
            | Self::Mcporter
            | Self::OpenClaw => Dialect::Dollar,
        }
    }

    /// Returns which variables the client passes on.
    pub(crate) fn forwarding(self) -> ForwardingRule {
        match self {
            Self::Codex => ForwardingRule::Names,
            Self::Cursor | Self::Windsurf => ForwardingRule::References { prefix: "${env:", suffix: "}" },
            // Gemini does not pass on variables that look like credentials, unless the entry names them.
            Self::Gemini => ForwardingRule::References { prefix: "${", suffix: "}" },
            Self::ClaudeDesktop => ForwardingRule::LiteralEnv,
            Self::ClaudeCode | Self::VsCode | Self::OpenCode | Self::Zed | Self::Mcporter | Self::OpenClaw => {
                ForwardingRule::Everything
            }
        }
    }

    /// Returns the files that may contain the client's servers, starting with the one that the client itself would
    /// create. Empty if the client has no files in this scope, or if there is no home folder.
    pub fn files(self, scope: Scope, places: &Places) -> Vec<PathBuf> {
        let home = |path: &str| places.home.iter().map(|home| home.join(path)).collect();
        let config = |paths: &[&str]| -> Vec<PathBuf> {
            let below = |base: &PathBuf| paths.iter().map(|path| base.join(path)).collect::<Vec<_>>();
            places.config_home.iter().flat_map(below).collect()
        };
        let project = |paths: &[&str]| paths.iter().map(|path| places.folder.join(path)).collect();
        // The file's path if an environment variable overrides the client's folder.
        let overridden =
            |variable: &str, file: &str| places.variable(variable).map(|folder| Path::new(folder).join(file));
        match (self, scope) {
            (Self::ClaudeCode, Scope::User) => {
                overridden("CLAUDE_CONFIG_DIR", ".claude.json").map_or_else(|| home(".claude.json"), |file| vec![file])
            }
            (Self::ClaudeCode, Scope::Project) => project(&[".mcp.json"]),
            (Self::ClaudeDesktop, Scope::User) => config(&["Claude/claude_desktop_config.json"]),
            (Self::Codex, Scope::User) => {
                overridden("CODEX_HOME", "config.toml").map_or_else(|| home(".codex/config.toml"), |file| vec![file])
            }
            (Self::Codex, Scope::Project) => project(&[".codex/config.toml"]),
            (Self::Cursor, Scope::User) => home(".cursor/mcp.json"),
            (Self::Cursor, Scope::Project) => project(&[".cursor/mcp.json"]),
            (Self::VsCode, Scope::User) => config(&["Code/User/mcp.json"]),
            (Self::VsCode, Scope::Project) => project(&[".vscode/mcp.json"]),
            (Self::OpenCode, Scope::User) => config(&["opencode/opencode.json", "opencode/opencode.jsonc"]),
            (Self::OpenCode, Scope::Project) => project(&["opencode.json", "opencode.jsonc"]),
            (Self::Windsurf, Scope::User) => home(".codeium/windsurf/mcp_config.json"),
            (Self::Gemini, Scope::User) => home(".gemini/settings.json"),
            (Self::Gemini, Scope::Project) => project(&[".gemini/settings.json"]),
            (Self::Zed, Scope::User) => config(&["zed/settings.json"]),
            (Self::Zed, Scope::Project) => project(&[".zed/settings.json"]),
            (Self::Mcporter, Scope::User) => places
                .home
                .iter()
                .flat_map(|home| ["json", "jsonc"].map(|end| home.join(".mcporter/mcporter").with_extension(end)))
                .collect(),
            (Self::Mcporter, Scope::Project) => project(&["config/mcporter.json"]),
            (Self::OpenClaw, Scope::User) => {
                let named = places.variable("OPENCLAW_CONFIG_PATH").map(|file| vec![PathBuf::from(file)]);
                named.unwrap_or_else(|| home(".openclaw/openclaw.json"))
            }
            (Self::ClaudeDesktop | Self::Windsurf | Self::OpenClaw, Scope::Project) => Vec::new(),
        }
    }

    /// Returns the entry of a server with this command and these variables, in the client's format.
    pub fn entry(self, command: &str, args: &[String], forwarded: &ForwardedVariables) -> Value {
        let mut entry = match self {
            Self::ClaudeCode | Self::VsCode => json!({"type": "stdio", "command": command, "args": args}),
            // Codex's default of ten seconds is too short if cellmate starts other servers first.
            Self::Codex => json!({"command": command, "args": args, "startup_timeout_sec": 60}),
            Self::OpenCode => {
                let line: Vec<&str> = std::iter::once(command).chain(args.iter().map(String::as_str)).collect();
                json!({"type": "local", "command": line, "enabled": true})
            }
            Self::Zed => json!({"source": "custom", "command": command, "args": args, "env": {}}),
            Self::ClaudeDesktop | Self::Cursor | Self::Windsurf | Self::Gemini | Self::Mcporter | Self::OpenClaw => {
                json!({"command": command, "args": args})
            }
        };
        if let Value::Object(entry) = &mut entry {
            if !forwarded.names.is_empty() {
                entry.insert("env_vars".to_owned(), json!(forwarded.names));
            }
            if !forwarded.env.is_empty() {
                let key = if self == Self::OpenCode { "environment" } else { "env" };
                entry.insert(key.to_owned(), json!(forwarded.env));
            }
        }
        entry
    }

    /// Returns an instruction for the user: how to make the client load the change.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::ClaudeCode => "start a new Claude Code session; `/mcp` shows cellmate",
            Self::ClaudeDesktop => "restart Claude Desktop",
            Self::Codex => "start a new Codex session; `/mcp` shows cellmate",
            Self::Cursor => "Cursor lists cellmate under Settings, MCP; switch it on there if it is off",
            Self::VsCode => "run `MCP: List Servers` in VS Code and start cellmate",
            Self::OpenCode => "restart opencode; `opencode mcp list` shows cellmate",
            Self::Windsurf => "refresh the MCP servers in Windsurf's Cascade panel",
            Self::Gemini => "restart Gemini CLI; `/mcp` shows cellmate",
            Self::Zed => "Zed lists cellmate in its agent settings",
            Self::Mcporter => "`mcporter list` shows cellmate",
            Self::OpenClaw => "restart the OpenClaw gateway",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Client;

    #[test]
    fn every_client_is_found_by_its_name() {
        for client in Client::ALL {
            assert_eq!(Client::parse(client.name()), Some(client));
        }
        assert_eq!(Client::parse("claude"), Some(Client::ClaudeCode));
        assert_eq!(Client::parse("emacs"), None);
    }
}
