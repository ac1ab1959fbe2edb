//! The stored form of outcomes.

use serde_json::{Value, json};

use crate::source::{Outcome, Returned};

impl Outcome {
    pub fn to_json(&self) -> String {
        match self {
            Self::Returned(returned) => {
                // Written piece by piece: a copy of the details could take many times the memory of their text.
                let [content, labels] = [json!(returned.content), json!(returned.labels)];
                let details = returned.details.as_ref().unwrap_or(&Value::Null);
                // A tool may return `null`, which is not the same as returning no details.
                let has_details = returned.details.is_some();
                return format!(
                    r#"{{"returned":{{"content":{content},"details":{details},"labels":{labels}}},"hasDetails":{has_details}}}"#
                );
            }
            Self::Failed(message) => json!({"failed": message}),
            Self::Unknown => json!({"unknown": true}),
        }
        .to_string()
    }

    /// Reads a stored outcome. Text that cannot be read is `Unknown`.
    pub fn from_json(text: &str) -> Self {
        let Ok(value) = contract::json::read(text) else { return Self::Unknown };
        if let Some(message) = value.get("failed").and_then(Value::as_str) {
            return Self::Failed(message.to_owned());
        }
        let Some(returned) = value.get("returned") else { return Self::Unknown };
        let list = |name: &str| returned.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let has_details = value.get("hasDetails") == Some(&Value::Bool(true));
        Self::Returned(Returned {
            content: list("content"),
            details: returned.get("details").filter(|_| has_details).cloned(),
            labels: list("labels").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    pub fn is_error(&self) -> bool {
        !matches!(self, Self::Returned(_))
    }
}

/// The message for guest, model and transcript when a crash of the host or of the tool's server lost an outcome.
pub const UNKNOWN_OUTCOME: &str = "the outcome of this call is unknown: the host or the tool's server stopped between \
     the call and its result. It was not repeated; check whether it took effect before calling it again";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::source::{Outcome, Returned};

    #[test]
    fn an_outcome_survives_a_json_round_trip() {
        let labelled = Returned { labels: vec!["mcp:a:b".to_owned()], ..Returned::text("hello") };
        for outcome in [
            Outcome::Returned(Returned::json(json!({"n": [1, null]}))),
            Outcome::Returned(Returned::json(Value::Null)),
            Outcome::Returned(labelled),
            Outcome::Failed("no such city".to_owned()),
            Outcome::Unknown,
        ] {
            assert_eq!(Outcome::from_json(&outcome.to_json()), outcome);
        }
        assert_eq!(Outcome::from_json("{"), Outcome::Unknown);
    }
}
