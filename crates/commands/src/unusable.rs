//! Configured servers that cannot be started at all, such as one whose variable is not set. They offer no tools, but the
//! description of `exec` names them with the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::UnavailableServer;
use client_config::{Problem, ServerEntry};
use contract::tool::ToolSpec;
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolSource};

/// A configured server that cannot be started.
#[derive(Debug)]
struct UnusableServer(UnavailableServer);

/// Returns the servers that have problems and are not among the usable ones.
pub(crate) fn unusable_servers(usable: &[ServerEntry], problems: &[Problem]) -> Vec<Arc<dyn ToolSource>> {
    reasons(usable, problems)
        .into_iter()
        .map(|(name, reason)| -> Arc<dyn ToolSource> {
            Arc::new(UnusableServer(UnavailableServer { name: name.to_owned(), reason: reason.to_owned() }))
        })
        .collect()
}

/// Returns the first problem of each server. A server with a problem may be usable; the problem is then only a note.
fn reasons<'a>(usable: &[ServerEntry], problems: &'a [Problem]) -> BTreeMap<&'a str, &'a str> {
    let mut reasons = BTreeMap::new();
    for problem in problems {
        if let Some(name) = problem.server.as_deref().filter(|name| usable.iter().all(|entry| entry.name != **name)) {
            reasons.entry(name).or_insert(problem.message.as_str());
        }
    }
    reasons
}

impl ToolSource for UnusableServer {
    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    fn unavailable(&self) -> Option<UnavailableServer> {
        Some(self.0.clone())
    }

    /// Refuses the call. The source has no tools, so nothing calls this.
    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        let message = format!("the MCP server `{}` is unavailable: {}", self.0.name, self.0.reason);
        Box::pin(std::future::ready(Dispatch::Settled(Outcome::Failed(message))))
    }
}

#[cfg(test)]
mod tests {
    use client_config::Problem;

    use super::unusable_servers;

    fn problem(server: Option<&str>, message: &str) -> Problem {
        let (server, message) = (server.map(str::to_owned), message.to_owned());
        Problem { file: "config.json".into(), line: Some(1), server, message }
    }

    #[test]
    fn a_server_is_named_once_with_its_first_problem() {
        let problems =
            [problem(None, "x"), problem(Some("b"), "one"), problem(Some("a"), "y"), problem(Some("b"), "two")];
        let found: Vec<_> = unusable_servers(&[], &problems).iter().filter_map(|source| source.unavailable()).collect();
        let found: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.reason.as_str())).collect();
        assert_eq!(found, [("a", "y"), ("b", "one")]);
    }
}
