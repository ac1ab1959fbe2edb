//! Servers that are not trusted to declare which of their tools only read, so that all their calls need approval.

use std::collections::BTreeSet;

use client_config::{Places, ServerEntry, Source, display};
use contract::tool::{Source as ToolSource, ToolId};
use store::Approval;

use crate::hint;

/// The configured servers whose declarations the user could trust, and does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UntrustedServers(BTreeSet<String>);

impl UntrustedServers {
    /// Reads the configuration. If it cannot be read, there are none: the hints are not worth an error.
    pub(crate) fn load(places: &Places) -> Self {
        client_config::load(places).map(|loaded| Self::of(&loaded.servers)).unwrap_or_default()
    }

    pub(crate) fn of(servers: &[ServerEntry]) -> Self {
        let can_be_trusted = |server: &&ServerEntry| match server.origin.source {
            Source::Named | Source::User => !server.trusted,
            Source::Project | Source::Import(_) => false,
        };
        Self(servers.iter().filter(can_be_trusted).map(|server| server.name.clone()).collect())
    }

    /// Returns how to avoid the approval of calls that only read, if trust in the server's declarations can do that.
    pub(crate) fn hint(&self, approval: &Approval) -> Option<String> {
        let is_about_changes = approval.question.is_none() && approval.reason == mcp::server::MAY_CHANGE;
        let id =
            ToolId::parse(&approval.tool_id).ok().filter(|id| is_about_changes && id.source() == ToolSource::Mcp)?;
        self.0.contains(id.owner()).then(|| {
            let name = display::plain(id.owner());
            let trust = hint::command(&format!("servers trust-tools {}", display::for_shell(id.owner())));
            format!("server `{name}` is not trusted to declare which tools only read; to trust it, run `{trust}`")
        })
    }

    /// Returns the hints for several approvals, each once.
    pub(crate) fn hints<'a>(&self, approvals: impl IntoIterator<Item = &'a Approval>) -> BTreeSet<String> {
        approvals.into_iter().filter_map(|approval| self.hint(approval)).collect()
    }
}

#[cfg(test)]
mod tests {
    use store::Approval;

    use super::UntrustedServers;

    #[test]
    fn a_hint_is_given_only_where_trust_would_help() {
        let servers = UntrustedServers(["files".to_owned()].into());
        let asked = |tool: &str, reason: &str| {
            let (tool_id, reason) = (tool.to_owned(), reason.to_owned());
            servers.hint(&Approval { tool_id, reason, ..Approval::default() })
        };
        let hint = asked("mcp:files:read", mcp::server::MAY_CHANGE).unwrap();
        assert_eq!(
            hint,
            "server `files` is not trusted to declare which tools only read; to trust it, run `cellmate servers \
             trust-tools files`"
        );
        assert_eq!(asked("mcp:other:read", mcp::server::MAY_CHANGE), None);
        assert_eq!(asked("openclaw:files:read", mcp::server::MAY_CHANGE), None);
        assert_eq!(asked("mcp:files:read", "a hook asks"), None);
        let question = Some(serde_json::json!({"message": "Where?"}));
        let (tool_id, reason) = ("mcp:files:read".to_owned(), mcp::server::MAY_CHANGE.to_owned());
        assert_eq!(servers.hint(&Approval { tool_id, reason, question, ..Approval::default() }), None);
    }
}
