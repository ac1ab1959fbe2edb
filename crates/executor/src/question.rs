//! A tool's question to a person (an MCP elicitation), the answer, and the channel on which a running tool asks.

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::sink::StateSink;

/// A question that a tool asks a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Identifies the question among the questions of one call.
    pub key: String,
    /// The text of the question.
    pub message: String,
    /// How it is answered.
    pub kind: QuestionKind,
}

/// How a person answers a question.
#[derive(Clone, Debug, PartialEq)]
pub enum QuestionKind {
    /// With a form, which is described by a flat JSON Schema.
    Form(Value),
    /// On a web page that the person visits. What they enter there does not pass through Cellmate.
    Url(String),
}

/// A person's answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The fields of the form.
    Filled(Map<String, Value>),
    /// The person states that they visited the page.
    Visited,
    /// The person does not answer.
    Declined,
}

impl Question {
    /// Returns the question as JSON, as it is stored and shown to people.
    pub fn to_json(&self) -> Value {
        let mut question = json!({"key": self.key, "message": self.message});
        let (kind, content) = match &self.kind {
            QuestionKind::Form(schema) => ("form", schema.clone()),
            QuestionKind::Url(url) => ("url", json!(url)),
        };
        if let Some(fields) = question.as_object_mut() {
            fields.insert(kind.to_owned(), content);
        }
        question
    }

    /// Parses the JSON of [`Self::to_json`].
    pub fn from_json(asked: &Value) -> Option<Self> {
        let text = |name: &str| asked.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = match (asked.get("form"), text("url")) {
            (Some(schema), None) => QuestionKind::Form(schema.clone()),
            (None, Some(url)) => QuestionKind::Url(url),
            _ => return None,
        };
        Some(Self { key: text("key")?, message: text("message")?, kind })
    }

    /// Checks a person's input against the question and returns it as an answer. Missing fields get the form's
    /// defaults.
    ///
    /// Fails with a message for the person.
    pub fn parse_answer(&self, given: Option<&Value>) -> Result<Answer, String> {
        match (&self.kind, given) {
            (QuestionKind::Url(_), None) => Ok(Answer::Visited),
            (QuestionKind::Url(_), Some(_)) => {
                Err("this question asks you to visit a page and takes no input; answer without input".to_owned())
            }
            (QuestionKind::Form(schema), given) => {
                let given = given.cloned().unwrap_or_else(|| json!({}));
                let given = catalog::arguments::with_defaults(schema, given);
                catalog::arguments::check(schema, &given).map_err(|bad| bad.to_string())?;
                match given {
                    Value::Object(given) => Ok(Answer::Filled(given)),
                    _ => Err("the answer to a form must be a JSON object".to_owned()),
                }
            }
        }
    }
}

/// The maximum number of questions of one call in the channel. They are asked one at a time.
const MAX_QUEUED: usize = 8;

/// Sends a running tool's questions to the executor. The default sender is disabled: every question stays unanswered.
#[derive(Clone, Debug, Default)]
pub struct QuestionSender(Option<mpsc::Sender<PendingQuestion>>);

/// A question that a running tool waits for, and the sender of its answer.
#[derive(Debug)]
pub(crate) struct PendingQuestion {
    pub(crate) question: Question,
    pub(crate) reply: oneshot::Sender<Option<Answer>>,
}

impl QuestionSender {
    /// Creates a sender and its receiver. The sender is disabled if nothing observes the call's state, because then
    /// no person would learn that the call waits for an answer.
    pub(crate) fn channel(states: &StateSink) -> (Self, mpsc::Receiver<PendingQuestion>) {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        (Self(states.is_set().then_some(sender)), receiver)
    }

    /// Asks a question and waits for the answer. Returns `None` if the question could not be asked or was not answered
    /// before it expired.
    pub async fn ask(&self, question: Question) -> Option<Answer> {
        let (reply, answered) = oneshot::channel();
        let sent = self.0.as_ref()?.try_send(PendingQuestion { question, reply });
        sent.inspect_err(|error| tracing::debug!(%error, "the tool's question cannot be asked")).ok()?;
        answered.await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Answer, Question, QuestionKind};

    fn ask(kind: QuestionKind) -> Question {
        Question { key: "k".to_owned(), message: "Where to?".to_owned(), kind }
    }

    fn form() -> Question {
        let properties = json!({"city": {"type": "string"}, "nights": {"type": "integer", "default": 2}});
        ask(QuestionKind::Form(json!({"type": "object", "properties": properties, "required": ["city"]})))
    }

    #[test]
    fn a_question_survives_a_json_round_trip() {
        for ask in [form(), ask(QuestionKind::Url("https://example.com/login".to_owned()))] {
            assert_eq!(Question::from_json(&ask.to_json()), Some(ask));
        }
        assert_eq!(Question::from_json(&json!({"key": "k", "message": "m"})), None);
    }

    #[test]
    fn an_answer_must_match_the_question() {
        let given = |value: Value| form().parse_answer(Some(&value));
        let oslo = Map::from_iter([("city".to_owned(), json!("Oslo")), ("nights".to_owned(), json!(2))]);
        assert_eq!(given(json!({"city": "Oslo"})), Ok(Answer::Filled(oslo)));
        for bad in [json!({"city": 7}), json!({}), json!(7)] {
            assert!(given(bad.clone()).is_err(), "{bad}");
        }
        assert!(form().parse_answer(None).is_err());
        let page = ask(QuestionKind::Url("https://example.com".to_owned()));
        assert_eq!(page.parse_answer(None), Ok(Answer::Visited));
        assert!(page.parse_answer(Some(&json!({}))).is_err());
    }
}
