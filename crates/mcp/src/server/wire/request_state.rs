//! The sealed state that a client carries from a question to its answer: a run, and what its user was asked about.

use std::time::Duration;

use contract::ids::{ApprovalId, RunId};
use rmcp::model::{RequestStateCodec, SealOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::server::elicitation::Grouping;
use crate::server::principal::Principal;
use crate::server::tools::Tool;

/// How long the state is valid: as long as an approval stays open.
const GOOD_FOR: Duration = Duration::from_secs(15 * 60);

/// The content of a sealed state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestState {
    pub(super) run: RunId,
    /// The approvals in each form of the result. A form's answer has the id of its first approval.
    pub(super) forms: Vec<Vec<ApprovalId>>,
    /// Other approvals that the user was asked about during this call and left open.
    pub(super) left_open: Vec<ApprovalId>,
    pub(super) grouping: Grouping,
}

/// Seals and opens request states.
#[derive(Clone, Debug)]
pub(super) struct Seal(RequestStateCodec);

/// Returns the hash that binds a state to its principal, tool and arguments.
pub(super) fn binding(principal: &Principal, tool: &Tool, arguments: &Map<String, Value>) -> Vec<u8> {
    let arguments = Value::Object(arguments.clone()).to_string();
    let mut bound = Sha256::new();
    for part in [principal.name(), tool.as_str(), &arguments] {
        bound.update((part.len() as u64).to_le_bytes());
        bound.update(part.as_bytes());
    }
    bound.finalize().to_vec()
}

impl Seal {
    /// Derives the sealing key from the store's key, so that it is used for nothing else.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let mut derived = Sha256::new();
        derived.update(b"cellmate request state 1");
        derived.update(key);
        Self(RequestStateCodec::new_unchecked(derived.finalize().to_vec()))
    }

    pub(super) fn close(&self, carried: &RequestState, binding: &[u8]) -> Option<String> {
        let options = SealOptions::new().associated_data(binding).ttl(GOOD_FOR);
        self.0.seal_json_with(carried, &options).ok()
    }

    /// Opens a sealed state. Returns `None` if it is forged, expired, or bound to another principal or call.
    pub(super) fn open(&self, sealed: &str, binding: &[u8]) -> Option<RequestState> {
        self.0.open_json_with(sealed, binding).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::{RequestState, Seal, binding};
    use crate::server::Principal;
    use crate::server::elicitation::Grouping;
    use crate::server::tools::Tool;

    #[test]
    fn a_state_opens_only_for_the_same_call_of_the_same_principal() {
        let seal = Seal::new(&[7; 32]);
        let arguments = |code: &str| Map::from_iter([("code".to_owned(), json!(code))]);
        let (local, ada) = (Principal::local(), Principal::named("ada").unwrap());
        let bound = binding(&local, &Tool::Exec, &arguments("a"));
        let carried = RequestState {
            run: "cm_1".into(),
            forms: vec![vec!["apr_1".into(), "apr_2".into()]],
            left_open: vec!["apr_0".into()],
            grouping: Grouping::OneByOne,
        };
        let sealed = seal.close(&carried, &bound).unwrap();
        assert_eq!(seal.open(&sealed, &bound), Some(carried));
        let others = [
            binding(&ada, &Tool::Exec, &arguments("a")),
            binding(&local, &Tool::Wait, &arguments("a")),
            binding(&local, &Tool::Exec, &arguments("b")),
        ];
        for other in others {
            assert_eq!(seal.open(&sealed, &other), None);
        }
        assert_eq!(Seal::new(&[8; 32]).open(&sealed, &bound), None);
        assert_eq!(seal.open(&format!("{sealed}x"), &bound), None);
    }
}
