//! What happened in a turn, step by step, and what must happen next.
//!
//! The steps are stored as they happen. A process that takes over a turn reads them and continues with
//! [`TurnRecord::next`].

use contract::ids::{CallId, RunId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use wire::Wire;
use wire::conversation::{Assistant, CallResult, Item, ModelCall, Part, StopReason, Usage};
use wire::downstream::{ClientCall, ClientTool};
use wire::upstream::{ModelEvent, PARAGRAPH, ToolChoice, message_events};

/// A step of a turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The client's message. Always the first step, and never a later one.
    Request(TurnRequest),
    /// A complete response of the model.
    Model(ModelStep),
    /// The model receives this for one of its calls.
    Result(ControlResult),
    /// Calls that the client is asked to make. They are stored before they are sent.
    Delivered(Vec<DeliveredCall>),
    /// The client's results of delivered calls, and what it said with them.
    Answered(ClientResults),
    /// A message that a person sent while the turn was in progress.
    Steered(Vec<Part>),
    Ended(TurnEnd),
}

impl Step {
    /// Returns the name of the step's kind, as it is stored.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Model(_) => "model",
            Self::Result(_) => "result",
            Self::Delivered(_) => "delivered",
            Self::Answered(_) => "answered",
            Self::Steered(_) => "steered",
            Self::Ended(_) => "ended",
        }
    }
}

/// What a turn begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnRequest {
    /// The agent whose configuration applies.
    pub agent: String,
    /// The wire of the client that began the turn.
    pub wire: Wire,
    /// The model that the client asks for instead of the agent's, as `PROVIDER/MODEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where the request came from. Policy may depend on it, also after a restart.
    #[serde(default)]
    pub origin: Origin,
    /// The turn whose conversation this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TurnId>,
    /// The client's own instructions, after those of the agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// The new items after the parent's conversation; the whole conversation if there is no parent.
    pub items: Vec<Item>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    #[serde(default)]
    pub tool_choice: ToolChoice,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Further fields for the provider's request.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, serde_json::Value>,
    /// Given if the turn summarizes the conversation up to its parent, instead of continuing it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
}

/// What a summary of a conversation must not lose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// The suspended cells of the session, which the model can resume with `wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_runs: Vec<RunId>,
}

/// Where a turn's request came from, as its client says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
    /// The client's key of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
}

impl TurnRequest {
    /// Returns a request for these items that begins a conversation.
    pub fn new(agent: &str, wire: Wire, items: Vec<Item>) -> Self {
        Self {
            agent: agent.to_owned(),
            wire,
            parent: None,
            instructions: String::new(),
            items,
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output_tokens: None,
            extra: Map::new(),
            model: None,
            origin: Origin::default(),
            compaction: None,
        }
    }
}

/// A complete response of the model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelStep {
    pub provider: String,
    pub model: String,
    pub message: Assistant,
    pub stop: StopReason,
    pub usage: Usage,
}

/// What the model receives for one of its calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlResult {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    pub result: CallResult,
}

/// A call of a tool of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveredCall {
    /// The run and the call that the client's result settles.
    pub run_id: RunId,
    pub call: CallId,
    pub client: ClientCall,
}

/// What a client sends for the calls that it was asked to make: their results, and messages of the user.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientResults {
    pub results: Vec<CallResult>,
    /// Messages of the user after the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Vec<Part>>,
    /// The digest of the request with these results, by which a repeated request is recognized.
    #[serde(default)]
    pub request: String,
}

/// What a client received as one response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedResponse {
    /// The visible text and the reasoning, in order.
    pub said: Vec<ModelEvent>,
    /// The calls that the client was asked to make; none at the end of the turn.
    pub calls: Vec<ClientCall>,
    /// Whether the client received all of it.
    pub is_whole: bool,
    /// The usage that the response reported.
    pub usage: Usage,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The model is done.
    Completed(StopReason),
    /// Only people are awaited for longer than the client can be kept waiting. The text tells the client so. The runs
    /// continue by themselves, and the next turn of the conversation gets their results.
    Held {
        message: String,
        runs: Vec<RunId>,
    },
    Failed {
        status: u16,
        message: String,
        /// The seconds after which the provider accepts requests again, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    Aborted {
        reason: String,
    },
}

/// What must happen next in a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The model must be asked.
    Model,
    /// Calls of the model that have no result.
    Calls(Vec<ModelCall>),
    /// The client has not sent the results of these calls.
    Client(Vec<DeliveredCall>),
    /// Nothing: the turn is over.
    Over(TurnEnd),
}

/// A stored turn that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the turn's record does not begin with a request")]
pub struct UnreadableTurn;

/// The steps of a turn.
#[derive(Clone, Debug)]
pub struct TurnRecord {
    request: TurnRequest,
    /// The steps after the request.
    steps: Vec<Step>,
}

impl TurnRecord {
    pub fn new(request: TurnRequest) -> Self {
        Self { request, steps: Vec::new() }
    }

    /// Reads a stored turn.
    pub fn from_steps(steps: Vec<Step>) -> Result<Self, UnreadableTurn> {
        let mut steps = steps.into_iter();
        match steps.next() {
            Some(Step::Request(request)) => Ok(Self { request, steps: steps.collect() }),
            Some(_) | None => Err(UnreadableTurn),
        }
    }

    pub fn request(&self) -> &TurnRequest {
        &self.request
    }

    /// Returns the steps after the request.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Returns what must happen next. A model without calls is done, unless a person has sent a message since.
    pub fn next(&self) -> NextStep {
        if let Some(Step::Ended(end)) = self.steps.last() {
            return NextStep::Over(end.clone());
        }
        let unanswered = self.unanswered();
        if !unanswered.is_empty() {
            return NextStep::Client(unanswered);
        }
        let Some(model) = self.last_model() else { return NextStep::Model };
        let open = self.open_calls();
        if !open.is_empty() {
            return NextStep::Calls(open);
        }
        let is_steered = self.steps.iter().rev().take_while(|step| !matches!(step, Step::Model(_))).any(is_steered);
        if model.message.calls.is_empty() && !is_steered && model.stop != StopReason::Pause {
            return NextStep::Over(TurnEnd::Completed(model.stop.clone()));
        }
        NextStep::Model
    }

    /// Returns the item that stands for the conversation up to the parent; `None` if the turn is not a compaction, or
    /// has no summary.
    pub fn summary(&self) -> Option<Item> {
        let compaction = self.request.compaction.as_ref()?;
        let text = self.last_model().map(|model| model.message.text.trim()).filter(|text| !text.is_empty())?;
        let mut text = format!("Summary of the conversation so far:\n\n{text}");
        if !compaction.waiting_runs.is_empty() {
            let runs: Vec<&str> = compaction.waiting_runs.iter().map(RunId::as_str).collect();
            text.push_str(&format!("\n\nSuspended cells, which `wait` resumes: {}", runs.join(", ")));
        }
        Some(Item::User(vec![Part::Text(text)]))
    }

    /// Returns the calls of the model's last response that have no result.
    pub fn open_calls(&self) -> Vec<ModelCall> {
        let Some(model) = self.last_model() else { return Vec::new() };
        // Some providers use the same ids in every response.
        let has_result = |call: &&ModelCall| {
            let later = self.steps.iter().rev().take_while(|step| !matches!(step, Step::Model(_)));
            later.into_iter().any(|step| matches!(step, Step::Result(given) if given.result.call_id == call.id))
        };
        model.message.calls.iter().filter(|call| !has_result(call)).cloned().collect()
    }

    /// Returns the delivered calls that the client has not answered.
    pub fn unanswered(&self) -> Vec<DeliveredCall> {
        let mut open: Vec<DeliveredCall> = Vec::new();
        for step in &self.steps {
            match step {
                Step::Delivered(calls) => open.extend(calls.iter().cloned()),
                Step::Answered(answers) => {
                    open.retain(|call| !answers.results.iter().any(|result| result.call_id == call.client.id));
                }
                _ => {}
            }
        }
        open
    }

    fn last_model(&self) -> Option<&ModelStep> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Model(model) => Some(model),
            _ => None,
        })
    }

    /// Returns what this turn adds to the conversation with the model: the client's items, the model's messages and the
    /// results of its calls. What went to the client and back is part of those results.
    pub fn items(&self) -> Vec<Item> {
        let mut items = self.request.items.clone();
        // A message that arrives while calls of the model are in progress follows their results.
        let mut said: Vec<Item> = Vec::new();
        for step in &self.steps {
            match step {
                Step::Model(model) => {
                    items.append(&mut said);
                    items.push(Item::Assistant(model.message.clone()));
                }
                Step::Result(given) => push_result(&mut items, given.result.clone()),
                Step::Steered(parts) => said.push(Item::User(parts.clone())),
                Step::Answered(answers) => said.extend(answers.said.iter().cloned().map(Item::User)),
                Step::Request(_) | Step::Delivered(_) | Step::Ended(_) => {}
            }
        }
        items.append(&mut said);
        items
    }

    /// Returns the model's responses with these numbers and the results of their calls. `open` gives the results of
    /// calls that have none.
    pub fn exchange(
        &self,
        models: std::ops::RangeInclusive<usize>,
        open: impl Fn(&ModelCall) -> CallResult,
    ) -> Vec<Item> {
        let (mut items, mut said, mut number) = (Vec::new(), Vec::new(), 0);
        let mut unanswered: Vec<&ModelCall> = Vec::new();
        for step in &self.steps {
            if let Step::Model(model) = step {
                number += 1;
                if models.contains(&(number - 1)) {
                    close(&mut items, &mut unanswered, &open);
                    items.append(&mut said);
                    unanswered = model.message.calls.iter().collect();
                    items.push(Item::Assistant(model.message.clone()));
                }
                continue;
            }
            if number == 0 || !models.contains(&(number - 1)) {
                continue;
            }
            match step {
                Step::Result(given) => {
                    unanswered.retain(|call| call.id != given.result.call_id);
                    push_result(&mut items, given.result.clone());
                }
                Step::Steered(parts) => said.push(Item::User(parts.clone())),
                // The client's own messages are in its history.
                Step::Request(_) | Step::Model(_) | Step::Delivered(_) | Step::Answered(_) | Step::Ended(_) => {}
            }
        }
        close(&mut items, &mut unanswered, &open);
        items.append(&mut said);
        items
    }

    /// Returns the number of the model's response that led to a call of the client's tool.
    pub fn model_of_delivery(&self, call_id: &str) -> Option<usize> {
        let mut models: usize = 0;
        for step in &self.steps {
            match step {
                Step::Model(_) => models += 1,
                Step::Delivered(calls) if calls.iter().any(|call| call.client.id == call_id) => {
                    return models.checked_sub(1);
                }
                _ => {}
            }
        }
        None
    }

    /// Returns what the client has received so far: one response for the request, and one for each time that it sent
    /// results. The last one may not be whole.
    pub fn responses(&self) -> Vec<RecordedResponse> {
        let (mut responses, mut current) = (Vec::new(), RecordedResponse::default());
        let mut usage = Usage::default();
        for step in &self.steps {
            match step {
                Step::Model(model) => {
                    push_said(&mut current.said, message_events(&model.message));
                    usage = Usage { output_tokens: usage.output_tokens + model.usage.output_tokens, ..model.usage };
                }
                Step::Delivered(calls) => {
                    current.calls = calls.iter().map(|call| call.client.clone()).collect();
                    (current.is_whole, current.usage) = (true, usage);
                }
                Step::Answered(_) => responses.push(std::mem::take(&mut current)),
                Step::Ended(end) => {
                    if let TurnEnd::Held { message, .. } = end {
                        push_said(&mut current.said, vec![ModelEvent::Text(message.clone())]);
                    }
                    current.is_whole = matches!(end, TurnEnd::Completed(_) | TurnEnd::Held { .. });
                    current.usage = usage;
                }
                Step::Request(_) | Step::Result(_) | Step::Steered(_) => {}
            }
        }
        responses.push(current);
        responses
    }

    /// Returns the last results that the client sent.
    pub fn last_results(&self) -> Option<&ClientResults> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Answered(answers) => Some(answers),
            _ => None,
        })
    }

    /// Returns the result that the client sent for a call. The first one counts.
    pub fn result_of(&self, call_id: &str) -> Option<&CallResult> {
        let results = self.steps.iter().filter_map(|step| match step {
            Step::Answered(answers) => Some(&answers.results),
            _ => None,
        });
        results.flatten().find(|result| result.call_id == call_id)
    }

    /// Returns whether a call of a run was sent to the client.
    pub fn is_delivered(&self, run_id: &RunId, call: CallId) -> bool {
        let is_it = |one: &DeliveredCall| one.run_id == *run_id && one.call == call;
        self.steps.iter().any(|step| matches!(step, Step::Delivered(calls) if calls.iter().any(is_it)))
    }

    /// Returns the usage that a client receives: the prompt of the last request and the output of all of them.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for step in &self.steps {
            if let Step::Model(model) = step {
                let output_tokens = usage.output_tokens + model.usage.output_tokens;
                usage = Usage { output_tokens, ..model.usage };
            }
        }
        usage
    }

    /// Returns whether calls of the model were made, or the client was asked to make some.
    pub fn has_effects(&self) -> bool {
        self.last_model().is_some_and(|model| !model.message.calls.is_empty())
            || self.steps.iter().any(|step| matches!(step, Step::Result(_) | Step::Delivered(_)))
    }

    /// Returns how many responses of this turn the client has received: each ended with calls for the client.
    pub fn rounds(&self) -> u32 {
        let rounds = self.steps.iter().filter(|step| matches!(step, Step::Delivered(_))).count();
        u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    /// Returns how often the model has responded.
    pub fn model_calls(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Model(_))).count()
    }
}

fn is_steered(step: &Step) -> bool {
    matches!(step, Step::Steered(_))
}

/// Adds a result to those of the same message.
fn push_result(items: &mut Vec<Item>, result: CallResult) {
    match items.last_mut() {
        Some(Item::Results(results)) => results.push(result),
        Some(_) | None => items.push(Item::Results(vec![result])),
    }
}

/// Adds results for calls that have none.
fn close(items: &mut Vec<Item>, unanswered: &mut Vec<&ModelCall>, open: impl Fn(&ModelCall) -> CallResult) {
    for call in unanswered.drain(..) {
        push_result(items, open(call));
    }
}

/// Adds what a model says as the driver shows it: each response begins a paragraph.
fn push_said(all: &mut Vec<ModelEvent>, more: Vec<ModelEvent>) {
    let (mut has_text, mut has_reasoning) = (false, false);
    for event in more {
        let follows = match &event {
            ModelEvent::Text(_) => {
                !std::mem::replace(&mut has_text, true) && all.iter().any(|one| matches!(one, ModelEvent::Text(_)))
            }
            ModelEvent::Reasoning(_) => {
                !std::mem::replace(&mut has_reasoning, true) && matches!(all.last(), Some(ModelEvent::Reasoning(_)))
            }
        };
        all.push(match event {
            ModelEvent::Text(text) if follows => ModelEvent::Text(format!("{PARAGRAPH}{text}")),
            ModelEvent::Reasoning(text) if follows => ModelEvent::Reasoning(format!("{PARAGRAPH}{text}")),
            event => event,
        });
    }
}

#[cfg(test)]
mod tests {
    use contract::ids::CallId;
    use wire::Wire;
    use wire::conversation::{Arguments, Assistant, CallResult, Item, ModelCall, Part, StopReason, Usage};
    use wire::downstream::ClientCall;

    use super::{ControlResult, DeliveredCall, ModelStep, NextStep, Step, TurnEnd, TurnRecord, TurnRequest};

    fn record() -> TurnRecord {
        let hello = Item::User(vec![Part::Text("hello".into())]);
        TurnRecord::new(TurnRequest::new("a", Wire::Chat, vec![hello]))
    }

    fn call(id: &str) -> ModelCall {
        ModelCall { id: id.into(), name: "exec".into(), arguments: Arguments::classify("{}".into()) }
    }

    fn model(text: &str, calls: &[&str]) -> Step {
        let calls: Vec<ModelCall> = calls.iter().map(|id| call(id)).collect();
        let stop = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolCalls };
        Step::Model(ModelStep {
            provider: "p".into(),
            model: "m".into(),
            message: Assistant { text: text.into(), calls, raw: None },
            stop,
            usage: Usage { input_tokens: 10, output_tokens: 3, ..Usage::default() },
        })
    }

    fn result(id: &str) -> Step {
        Step::Result(ControlResult { run_id: None, result: CallResult::text(id, "done") })
    }

    fn answered(id: &str) -> Step {
        let results = vec![CallResult::text(id, "1")];
        Step::Answered(super::ClientResults { results, ..super::ClientResults::default() })
    }

    fn delivered(id: &str) -> DeliveredCall {
        let client = ClientCall { id: id.into(), name: "tool".into(), arguments: "{}".into() };
        DeliveredCall { run_id: "cm_1".into(), call: CallId(1), client }
    }

    #[test]
    fn each_step_determines_the_next_one() {
        let mut record = record();
        assert_eq!(record.next(), NextStep::Model);
        record.push(model("", &["one", "two"]));
        assert_eq!(record.next(), NextStep::Calls(vec![call("one"), call("two")]));
        record.push(result("two"));
        assert_eq!(record.next(), NextStep::Calls(vec![call("one")]));
        let asked = vec![delivered("call_a"), delivered("call_b")];
        record.push(Step::Delivered(asked.clone()));
        assert_eq!(record.next(), NextStep::Client(asked.clone()));
        record.push(answered("call_b"));
        assert_eq!(record.next(), NextStep::Client(vec![delivered("call_a")]));
        record.push(answered("call_a"));
        assert_eq!(record.next(), NextStep::Calls(vec![call("one")]));
        record.push(result("one"));
        assert_eq!(record.next(), NextStep::Model);
        record.push(model("bye", &[]));
        assert_eq!(record.next(), NextStep::Over(TurnEnd::Completed(StopReason::EndTurn)));
        record.push(Step::Steered(vec![Part::Text("wait".into())]));
        assert_eq!(record.next(), NextStep::Model);
        let end = TurnEnd::Aborted { reason: "test".into() };
        record.push(Step::Ended(end.clone()));
        assert_eq!(record.next(), NextStep::Over(end));
    }

    #[test]
    fn a_later_call_with_the_id_of_an_earlier_one_needs_its_own_result() {
        let mut record = record();
        for _ in 0..2 {
            record.push(model("", &["same"]));
            assert_eq!(record.next(), NextStep::Calls(vec![call("same")]));
            record.push(result("same"));
            assert_eq!(record.next(), NextStep::Model);
        }
    }

    #[test]
    fn the_model_sees_results_and_not_what_went_to_the_client() {
        let mut record = record();
        record.push(model("I look.", &["one", "two"]));
        record.push(Step::Delivered(vec![delivered("call_a")]));
        record.push(answered("call_a"));
        record.push(result("one"));
        record.push(result("two"));
        record.push(model("bye", &[]));
        let items = record.items();
        let kinds: Vec<&str> = items
            .iter()
            .map(|item| match item {
                Item::System(_) => "system",
                Item::User(_) => "user",
                Item::Assistant(_) => "assistant",
                Item::Results(results) => {
                    assert_eq!(results.len(), 2);
                    "results"
                }
            })
            .collect();
        assert_eq!(kinds, ["user", "assistant", "results", "assistant"]);
        assert_eq!(record.usage(), Usage { input_tokens: 10, output_tokens: 6, ..Usage::default() });
        assert_eq!(record.model_calls(), 2);
    }

    #[test]
    fn a_stored_turn_continues_where_it_was() {
        let mut record = record();
        record.push(model("", &["one"]));
        record.push(Step::Delivered(vec![delivered("call_a")]));
        let mut steps = vec![Step::Request(record.request().clone())];
        steps.extend(record.steps().iter().cloned());
        let stored: Vec<String> = steps.iter().map(|step| serde_json::to_string(step).unwrap()).collect();
        let read = stored.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let read = TurnRecord::from_steps(read).unwrap();
        assert_eq!(read.next(), record.next());
        assert_eq!(format!("{:?}", read.items()), format!("{:?}", record.items()));
        assert!(TurnRecord::from_steps(vec![model("", &[])]).is_err());
    }
}
