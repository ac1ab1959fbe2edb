//! The key of a client program in a project: it tells apart the clients of one principal.
//!
//! Without a `runId`, `wait` finds only runs of the same client: two agents of one user do not see each other's runs. A
//! client that restarts has the same key.

use std::fmt;

use contract::scope::Scope;
use sha2::{Digest, Sha256};

use super::principal::{Principal, PrincipalScope};

/// The bytes of the digest that make up a key. A collision would only list another client's run of the same user.
const KEY_BYTES: usize = 16;

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey(String);

impl ClientKey {
    /// Creates the key of a client from the name that it gives itself and the folder that it works in. Both are foreign
    /// text of any length, so the key is a digest.
    pub(crate) fn new(client_name: &str, project: Option<&str>) -> Self {
        let mut digest = Sha256::new();
        for part in [client_name, project.unwrap_or_default()] {
            // The length keeps the two apart.
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(hex::encode(digest.finalize().get(..KEY_BYTES).unwrap_or_default()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the scope of the principal's runs that this client starts, and finds without their ids.
    pub(crate) fn scope(&self, principal: &Principal) -> Scope {
        Scope { client: self.0.clone(), ..principal.scope() }
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::ClientKey;

    #[test]
    fn a_key_is_short_and_depends_on_client_and_project() {
        let key = ClientKey::new("claude-code", Some("/home/ada/shop"));
        assert_eq!(key, ClientKey::new("claude-code", Some("/home/ada/shop")));
        let others = [
            ClientKey::new("codex", Some("/home/ada/shop")),
            ClientKey::new("claude-code", Some("/home/ada/blog")),
            ClientKey::new("claude-code", None),
            ClientKey::new("claude-code/home/ada/shop", None),
            ClientKey::new("", Some("claude-code/home/ada/shop")),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(key, *other);
            assert!(others.iter().skip(at + 1).all(|another| another != other));
        }
        assert_eq!(ClientKey::new(&"x".repeat(1 << 20), Some("/")).as_str().len(), 32);
    }
}
