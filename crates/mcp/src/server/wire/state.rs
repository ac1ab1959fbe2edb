//! What a client carries for us from a question to its answer, sealed: a run, and what was asked about it.

use std::time::Duration;

use rmcp::model::{RequestStateCodec, SealOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::server::prefix::Tool;
use crate::server::principal::Principal;

/// As long as approvals can be given.
const GOOD_FOR: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    pub(super) run: String,
    /// Approvals.
    pub(super) asked: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Seal(RequestStateCodec);

/// Whose state it is, and for which call with which arguments.
pub(super) fn binding(principal: &Principal, tool: Tool, arguments: &Map<String, Value>) -> Vec<u8> {
    let arguments = Value::Object(arguments.clone()).to_string();
    let mut bound = Sha256::new();
    for part in [principal.name(), tool.as_str(), &arguments] {
        bound.update((part.len() as u64).to_le_bytes());
        bound.update(part.as_bytes());
    }
    bound.finalize().to_vec()
}

impl Seal {
    /// Nothing but for these seals is made with the key: it is derived from the store's.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let mut derived = Sha256::new();
        derived.update(b"cellmate request state 1");
        derived.update(key);
        Self(RequestStateCodec::new_unchecked(derived.finalize().to_vec()))
    }

    pub(super) fn close(&self, carried: &Carried, binding: &[u8]) -> Option<String> {
        let options = SealOptions::new().associated_data(binding).ttl(GOOD_FOR);
        self.0.seal_json_with(carried, &options).ok()
    }

    /// Forged, too old, somebody else's or another call's: all alike nothing.
    pub(super) fn open(&self, sealed: &str, binding: &[u8]) -> Option<Carried> {
        self.0.open_json_with(sealed, binding).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::{Carried, Seal, binding};
    use crate::server::Principal;
    use crate::server::prefix::Tool;

    #[test]
    fn request_state_opens_only_for_the_same_call_and_principal() {
        let seal = Seal::new(&[7; 32]);
        let arguments = |code: &str| Map::from_iter([("code".to_owned(), json!(code))]);
        let (local, ada) = (Principal::local(), Principal::named("ada").unwrap());
        let bound = binding(&local, Tool::Exec, &arguments("a"));
        let carried = Carried { run: "cm_1".to_owned(), asked: vec!["apr_1".to_owned()] };
        let sealed = seal.close(&carried, &bound).unwrap();
        assert_eq!(seal.open(&sealed, &bound), Some(carried));
        let others = [
            binding(&ada, Tool::Exec, &arguments("a")),
            binding(&local, Tool::Wait, &arguments("a")),
            binding(&local, Tool::Exec, &arguments("b")),
        ];
        for other in others {
            assert_eq!(seal.open(&sealed, &other), None);
        }
        assert_eq!(Seal::new(&[8; 32]).open(&sealed, &bound), None);
        assert_eq!(seal.open(&format!("{sealed}x"), &bound), None);
    }
}
