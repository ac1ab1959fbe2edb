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
use wire::upstream::ToolChoice;

/// One step of a turn.
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
    /// The client's results of delivered calls.
    Answered(Vec<CallResult>),
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
    },
    Aborted {
        reason: String,
    },
}

/// What must happen next in a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The model must be asked.
    Model,
    /// These calls of the model have no result.
    Calls(Vec<ModelCall>),
    /// The client has not sent the results of these calls.
    Client(Vec<DeliveredCall>),
    /// Nothing: the turn is over.
    Over(TurnEnd),
}

/// A stored turn that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the turn's record does not begin with a request")]
pub struct NoRequest;

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
    pub fn from_steps(steps: Vec<Step>) -> Result<Self, NoRequest> {
        let mut steps = steps.into_iter();
        match steps.next() {
            Some(Step::Request(request)) => Ok(Self { request, steps: steps.collect() }),
            Some(_) | None => Err(NoRequest),
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
    pub fn next(&self) -> Next {
        if let Some(Step::Ended(end)) = self.steps.last() {
            return Next::Over(end.clone());
        }
        let unanswered = self.unanswered();
        if !unanswered.is_empty() {
            return Next::Client(unanswered);
        }
        let Some(model) = self.last_model() else { return Next::Model };
        let open = self.open_calls();
        if !open.is_empty() {
            return Next::Calls(open);
        }
        let is_steered = self.steps.iter().rev().take_while(|step| !matches!(step, Step::Model(_))).any(is_steered);
        if model.message.calls.is_empty() && !is_steered && model.stop != StopReason::Pause {
            return Next::Over(TurnEnd::Completed(model.stop.clone()));
        }
        Next::Model
    }

    /// Returns the calls of the model's last response that have no result.
    fn open_calls(&self) -> Vec<ModelCall> {
        let Some(model) = self.last_model() else { return Vec::new() };
        let has_result = |call: &&ModelCall| {
            self.steps.iter().any(|step| matches!(step, Step::Result(given) if given.result.call_id == call.id))
        };
        model.message.calls.iter().filter(|call| !has_result(call)).cloned().collect()
    }

    /// Returns the delivered calls that the client has not answered.
    fn unanswered(&self) -> Vec<DeliveredCall> {
        let mut open: Vec<DeliveredCall> = Vec::new();
        for step in &self.steps {
            match step {
                Step::Delivered(calls) => open.extend(calls.iter().cloned()),
                Step::Answered(results) => {
                    open.retain(|call| !results.iter().any(|result| result.call_id == call.client.id));
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
        for step in &self.steps {
            match step {
                Step::Model(model) => items.push(Item::Assistant(model.message.clone())),
                Step::Result(given) => match items.last_mut() {
                    Some(Item::Results(results)) => results.push(given.result.clone()),
                    Some(_) | None => items.push(Item::Results(vec![given.result.clone()])),
                },
                Step::Steered(parts) => items.push(Item::User(parts.clone())),
                Step::Request(_) | Step::Delivered(_) | Step::Answered(_) | Step::Ended(_) => {}
            }
        }
        items
    }

    /// Returns what a client is told about usage: the prompt of the last request and the output of all of them.
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

    /// Returns how often the model has responded.
    pub fn model_calls(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Model(_))).count()
    }
}

fn is_steered(step: &Step) -> bool {
    matches!(step, Step::Steered(_))
}
