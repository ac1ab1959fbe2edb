//! A client of the gateways: one conversation, with a tool of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::requests::HttpRequest;
use super::question::Question;

/// A conversation as its client knows it.
#[derive(Debug)]
pub(super) struct Conversation {
    questions: Vec<Question>,
    /// The number of the question that is asked now.
    current: usize,
    /// What the client sends next, or again.
    messages: Vec<Value>,
    /// How often it was sent.
    sent: usize,
    /// All results that the client has sent, by the ids of the calls.
    pub results: BTreeMap<String, BTreeSet<String>>,
    /// The number of results that were made up so far, so that all differ.
    made: usize,
}

/// A request of a conversation.
#[derive(Clone, Debug)]
pub(super) struct SentRequest {
    pub conversation: usize,
    /// The number of its messages.
    messages: usize,
    /// The calls whose results it sends.
    pub answered: Vec<String>,
}

impl Conversation {
    pub(super) fn new(questions: Vec<Question>) -> Self {
        let mut conversation =
            Self { questions, current: 0, messages: Vec::new(), sent: 0, results: BTreeMap::new(), made: 0 };
        conversation.ask();
        conversation
    }

    fn ask(&mut self) {
        let question = &self.questions[self.current];
        self.messages.push(json!({"role": "user", "content": question.text}));
        self.sent = 0;
    }

    pub(super) fn is_over(&self) -> bool {
        self.current == self.questions.len()
    }

    /// Returns the request that the client sends now, which may be one that it has sent before.
    pub(super) fn request(&mut self, number: usize, patience: Duration) -> (HttpRequest, SentRequest) {
        let tool = json!({"type": "function", "function": {"name": "lookup", "description": "Looks it up.",
            "parameters": {"type": "object"}}});
        let body = json!({"model": "openclaw", "messages": self.messages, "tools": [tool]});
        let request = HttpRequest { path: "/v1/chat/completions".to_owned(), body, retries: self.sent, patience };
        self.sent += 1;
        let last = self.messages.iter().rev().take_while(|message| message["role"] == "tool");
        let answered = last.filter_map(|message| message["tool_call_id"].as_str().map(str::to_owned)).collect();
        (request, SentRequest { conversation: number, messages: self.messages.len(), answered })
    }

    /// Makes up other results for the last calls. Returns whether there are such calls.
    pub(super) fn contradict(&mut self) -> bool {
        let Some(first) = self.messages.iter().rposition(|message| message["role"] != "tool") else { return false };
        let ids: Vec<String> =
            self.messages.drain(first + 1..).map(|message| message["tool_call_id"].as_str().unwrap().into()).collect();
        let has_calls = !ids.is_empty();
        ids.iter().for_each(|id| self.push_result(id));
        if has_calls {
            self.sent = 0;
        }
        has_calls
    }

    fn push_result(&mut self, id: &str) {
        self.made += 1;
        let result = format!("result {} of {id}", self.made);
        self.results.entry(id.to_owned()).or_default().insert(result.clone());
        // A text that is JSON is given to the cell as a value.
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": json!(result).to_string()}));
    }

    /// Continues the conversation with a response, unless it answers an earlier request.
    pub(super) fn receive(&mut self, sent: &SentRequest, response: &Value) -> Result<(), String> {
        if sent.messages != self.messages.len() || self.is_over() {
            return Ok(());
        }
        let message = &response["choices"][0]["message"];
        let calls = asked_calls(response);
        self.messages.push(message.clone());
        self.sent = 0;
        if calls.is_empty() {
            let (said, expected) = (message["content"].as_str().unwrap_or_default(), &self.questions[self.current]);
            if !said.ends_with(&expected.answer) {
                return Err(format!("`{}` was answered with {response}", expected.text));
            }
            self.current += 1;
            if !self.is_over() {
                self.ask();
            }
        }
        calls.iter().for_each(|id| self.push_result(id));
        Ok(())
    }
}

/// Returns the ids of the calls that a response asks the client to make.
pub(super) fn asked_calls(response: &Value) -> Vec<String> {
    let calls = response["choices"][0]["message"]["tool_calls"].as_array();
    calls.into_iter().flatten().filter_map(|call| call["id"].as_str().map(str::to_owned)).collect()
}
