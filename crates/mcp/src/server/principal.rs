//! The identity that an agent acts for. Its runs, standing approvals and configuration are found by this name.

use contract::config::LOCAL_AGENT;
use contract::scope::Scope;

const MAX_NAME_BYTES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a principal's name has 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` or `.`")]
pub struct BadPrincipal;

impl Principal {
    /// Returns the principal of clients that start this process, and of the token that is generated for them.
    pub fn local() -> Self {
        Self(LOCAL_AGENT.to_owned())
    }

    pub fn named(name: &str) -> Result<Self, BadPrincipal> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(plain) {
            return Err(BadPrincipal);
        }
        Ok(Self(name.to_owned()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns the principal's scope. All of its runs share one session id, because the protocol has no session that
    /// could identify them.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            agent_id: self.0.clone(),
            session_id: format!("mcp:{}", self.0),
            channel: Some("mcp".to_owned()),
            ..Scope::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BadPrincipal, Principal};

    #[test]
    fn a_principals_scope_admits_only_that_principal() {
        let ada = Principal::named("ada").unwrap();
        assert!(ada.scope().admits(&Principal::named("ada").unwrap().scope()));
        assert!(!ada.scope().admits(&Principal::local().scope()));
        for bad in ["", "a b", "a:b", "ä", &"a".repeat(65)] {
            assert_eq!(Principal::named(bad), Err(BadPrincipal), "{bad}");
        }
    }
}
