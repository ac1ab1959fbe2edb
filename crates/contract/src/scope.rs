//! On whose behalf: what a run, its calls and its hooks carry along.

use serde::{Deserialize, Serialize};

/// Who asked, where, and within which agent run. A suspended cell is found again only from the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scope {
    pub agent_id: String,
    pub session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The agent run; a session has many, one after the other.
    pub agent_run_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Whether the agent's own tools run in a sandbox of theirs; policy has lists for that.
    pub sandboxed: bool,
}

impl Scope {
    /// Whether a run that was started by `self` may be gone on with by `other`.
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
        let mine = scope("a", "s", "r");
        assert!(mine.admits(&Scope { sender: Some("somebody".to_owned()), ..mine.clone() }));
        for other in [scope("b", "s", "r"), scope("a", "t", "r"), scope("a", "s", "q"), Scope::default()] {
            assert!(!mine.admits(&other), "{other:?}");
        }
    }
}
