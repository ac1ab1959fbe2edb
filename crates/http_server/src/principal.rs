//! The identity that an agent acts for. Its runs, standing approvals and configuration are found by this name.

use contract::config::LOCAL_AGENT;

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
}

#[cfg(test)]
mod tests {
    use super::{BadPrincipal, Principal};

    #[test]
    fn a_principals_name_is_short_and_plain() {
        assert!(Principal::named("ada-1_x.y").is_ok());
        for bad in ["", "a b", "a:b", "ä", &"a".repeat(65)] {
            assert_eq!(Principal::named(bad), Err(BadPrincipal), "{bad}");
        }
    }
}
