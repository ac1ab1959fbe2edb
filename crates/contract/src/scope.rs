//! The scope of a run: the agent, session and agent run that it belongs to.

use serde::{Deserialize, Serialize};

/// The agent, session and agent run that a run, its calls and its hooks act for. A suspended cell can be resumed only
/// from the same scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scope {
    /// The agent.
    pub agent_id: String,
    /// The session.
    pub session_id: String,
    /// The key by which the host finds the session, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The agent run. A session has many, one after another.
    pub agent_run_id: String,
    /// Who sent the message that the agent answers, if the host knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// Where that message came from, such as a chat program, if the host knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Whether the agent's own tools run in a sandbox, for which policy has separate lists (`tools.sandbox`).
    pub sandboxed: bool,
    /// The client program and the project that a run is started from, as a short key. Empty if the host does not tell
    /// clients apart. Only the same client finds a run without its id; with the id, any client of the scope does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
}

impl Scope {
    /// Returns the scope of an agent, without a session.
    pub fn agent(agent_id: impl Into<String>) -> Self {
        Self { agent_id: agent_id.into(), ..Self::default() }
    }

    /// Sets the session.
    #[must_use]
    pub fn session(self, session_id: impl Into<String>) -> Self {
        Self { session_id: session_id.into(), ..self }
    }

    /// Sets the agent run. A run that is started in one agent run cannot be resumed from another.
    #[must_use]
    pub fn agent_run(self, agent_run_id: impl Into<String>) -> Self {
        Self { agent_run_id: agent_run_id.into(), ..self }
    }

    /// Whether `other` may resume a run that `self` started.
    pub fn admits(&self, other: &Self) -> bool {
        self.agent_id == other.agent_id
            && self.session_id == other.session_id
            && self.agent_run_id == other.agent_run_id
    }
}

#[cfg(test)]
mod tests {
    use super::Scope;

    #[test]
    fn another_agent_session_or_agent_run_is_not_admitted() {
        let scope = |agent: &str, session: &str, run: &str| Scope {
            agent_id: agent.to_owned(),
            session_id: session.to_owned(),
            agent_run_id: run.to_owned(),
            ..Scope::default()
        };
        let own = scope("a", "s", "r");
        assert!(own.admits(&Scope { sender: Some("another sender".to_owned()), ..own.clone() }));
        assert!(own.admits(&Scope { client: "another client".to_owned(), ..own.clone() }));
        for other in [scope("b", "s", "r"), scope("a", "t", "r"), scope("a", "s", "q"), Scope::default()] {
            assert!(!own.admits(&other), "{other:?}");
        }
    }
}
