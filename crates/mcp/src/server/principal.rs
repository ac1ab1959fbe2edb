//! The scope that a principal's runs have in the store.

use contract::scope::Scope;
pub use http_server::{BadPrincipal, Principal};

/// Gives a principal the scope of its runs.
pub(crate) trait PrincipalScope {
    /// Returns the principal's scope. All of its runs share one session id, because the protocol has no session that
    /// could identify them.
    fn scope(&self) -> Scope;
}

impl PrincipalScope for Principal {
    fn scope(&self) -> Scope {
        Scope {
            agent_id: self.name().to_owned(),
            session_id: format!("mcp:{}", self.name()),
            channel: Some("mcp".to_owned()),
            ..Scope::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Principal, PrincipalScope};

    #[test]
    fn a_principals_scope_admits_only_that_principal() {
        let ada = Principal::named("ada").unwrap();
        assert!(ada.scope().admits(&Principal::named("ada").unwrap().scope()));
        assert!(!ada.scope().admits(&Principal::local().scope()));
    }
}
