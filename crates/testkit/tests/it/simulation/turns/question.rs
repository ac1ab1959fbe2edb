//! The questions of clients, the cells that the model writes for them, and the model's script.

use serde_json::json;
use testkit::model::{Condition, RUN_ID, Reply};

use super::super::super::faults::program::Chance;

/// The questions of one conversation.
pub(super) const QUESTIONS: usize = 2;

/// How often the model waits for the cells of a question before it answers without them: a cell that waits for calls of
/// another turn has no result until that turn continues.
const WAITS: u32 = 12;

/// A question of a client. The model answers it with a cell, then with a text.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The user's message, which identifies the question.
    pub text: String,
    pub answer: String,
    code: String,
}

impl Question {
    pub(super) fn new(chance: &mut Chance, conversation: usize, number: usize) -> Self {
        let name = format!("{conversation}-{number}");
        let mut code = "const got = {}\n\
             const make = (n, id, input) => tools.call(id, { n, ...input })\n\
               .then(value => { got[n] = value }, error => { got[n] = 'failed: ' + error.message })\n"
            .to_owned();
        let mut n = 0;
        for _ in 0..1 + chance.below(3) {
            let mut group = Vec::new();
            for _ in 0..1 + chance.below(3) {
                group.push(match chance.below(5) {
                    0 => format!("make({n}, 'openclaw:sim:slow', {{ ms: {} }})", [0, 40, 600][chance.below(3)]),
                    1 => format!("make({n}, 'openclaw:sim:read', {{ ms: {} }})", [0, 5, 1100][chance.below(3)]),
                    _ => format!("make({n}, 'client:app:lookup', {{}})"),
                });
                n += 1;
            }
            code += &format!("await Promise.all([{}])\n", group.join(", "));
        }
        code += &format!("return {{ of: '{name}', got }}");
        Self { text: format!("question {name}."), answer: format!("answer {name}."), code }
    }

    /// Returns the model's responses to this question, in the order in which they apply.
    fn replies(&self) -> [Reply; 3] {
        let when = |last: Option<&str>| {
            Some(Condition {
                contains: Some(self.text.clone()),
                last_contains: last.map(str::to_owned),
                ..Condition::default()
            })
        };
        let wait = Reply::call("wait", json!({"runId": RUN_ID}));
        [
            Reply { when: when(Some("\"status\":\"waiting\"")), times: Some(WAITS), ..wait },
            Reply { when: when(Some(self.text.as_str())), ..Reply::call("exec", json!({"code": self.code})) },
            Reply { when: when(None), ..Reply::text(&self.answer) },
        ]
    }
}

/// Returns the model's script. A later question of a conversation decides, because the earlier ones are in its history.
pub(super) fn script(conversations: &[Vec<Question>]) -> Vec<Reply> {
    let questions = conversations.iter().flat_map(|questions| questions.iter().rev());
    questions.flat_map(Question::replies).collect()
}
