//! A tool's question to a person, the answer, and the channel by which a running tool sends questions.

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::sink::StateSink;

/// One question that a tool asks a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The tool's name for the question.
    pub key: String,
    pub message: String,
    pub how: QuestionKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum QuestionKind {
    /// A form: a flat JSON Schema.
    Form(Value),
    /// A page that the person visits; what they enter there does not pass through Cellmate.
    Url(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The form, filled in.
    Filled(Map<String, Value>),
    /// The person visited the page; what they entered there is not known here.
    Visited,
    Declined,
}

impl Question {
    /// Returns the form that is stored and shown to people.
    pub fn to_json(&self) -> Value {
        let mut asked = json!({"key": self.key, "message": self.message});
        let (how, what) = match &self.how {
            QuestionKind::Form(schema) => ("form", schema.clone()),
            QuestionKind::Url(url) => ("url", json!(url)),
        };
        if let Some(fields) = asked.as_object_mut() {
            fields.insert(how.to_owned(), what);
        }
        asked
    }

    pub fn from_json(asked: &Value) -> Option<Self> {
        let text = |name: &str| asked.get(name).and_then(Value::as_str).map(str::to_owned);
        let how = match (asked.get("form"), text("url")) {
            (Some(schema), None) => QuestionKind::Form(schema.clone()),
            (None, Some(url)) => QuestionKind::Url(url),
            _ => return None,
        };
        Some(Self { key: text("key")?, message: text("message")?, how })
    }

    /// Checks a person's input against the question and returns it as an answer. Fields that they left out get the
    /// form's defaults.
    pub fn filled(&self, given: Option<&Value>) -> Result<Answer, String> {
        match (&self.how, given) {
            (QuestionKind::Url(_), None) => Ok(Answer::Visited),
            (QuestionKind::Url(_), Some(_)) => Err("this question asks to visit a page and takes no input".to_owned()),
            (QuestionKind::Form(schema), given) => {
                let given = given.cloned().unwrap_or_else(|| json!({}));
                let given = catalog::arguments::with_defaults(schema, given);
                catalog::arguments::check(schema, &given).map_err(|bad| bad.to_string())?;
                match given {
                    Value::Object(given) => Ok(Answer::Filled(given)),
                    _ => Err("the answer to a form must be one JSON object".to_owned()),
                }
            }
        }
    }
}

/// The number of questions of one call that may wait; they are asked one at a time.
const MAX_WAITING: usize = 8;

/// Sends a running tool's questions to the executor.
#[derive(Clone, Debug, Default)]
pub struct QuestionSender(Option<mpsc::Sender<PendingQuestion>>);

#[derive(Debug)]
pub(crate) struct PendingQuestion {
    pub(crate) ask: Question,
    pub(crate) reply: oneshot::Sender<Option<Answer>>,
}

impl QuestionSender {
    /// Creates a sender and its receiver. The sender is disabled when nothing observes the call's state: the question
    /// would never be answered.
    pub(crate) fn of(states: &StateSink) -> (Self, mpsc::Receiver<PendingQuestion>) {
        let (asker, asked) = mpsc::channel(MAX_WAITING);
        (Self(states.is_set().then_some(asker)), asked)
    }

    /// Asks a question and waits for the answer. `None` if it could not be asked or was not answered in time.
    pub async fn ask(&self, ask: Question) -> Option<Answer> {
        let (reply, answered) = oneshot::channel();
        let sent = self.0.as_ref()?.try_send(PendingQuestion { ask, reply });
        sent.inspect_err(|error| tracing::debug!(%error, "the tool's question cannot be asked")).ok()?;
        answered.await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Answer, Question, QuestionKind};

    fn ask(how: QuestionKind) -> Question {
        Question { key: "k".to_owned(), message: "Where to?".to_owned(), how }
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
        let given = |value: Value| form().filled(Some(&value));
        let oslo = Map::from_iter([("city".to_owned(), json!("Oslo")), ("nights".to_owned(), json!(2))]);
        assert_eq!(given(json!({"city": "Oslo"})), Ok(Answer::Filled(oslo)));
        for bad in [json!({"city": 7}), json!({}), json!(7)] {
            assert!(given(bad.clone()).is_err(), "{bad}");
        }
        assert!(form().filled(None).is_err());
        let page = ask(QuestionKind::Url("https://example.com".to_owned()));
        assert_eq!(page.filled(None), Ok(Answer::Visited));
        assert!(page.filled(Some(&json!({}))).is_err());
    }
}
