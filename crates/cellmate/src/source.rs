//! What a program needs to write its own [`ToolSource`]: tools that are not known in advance, results with images,
//! calls that continue for hours, questions to people.
//!
//! A source lists its tools and executes their calls. It receives a call only after policy and hooks have allowed it,
//! a person has approved it if that is required, and it is journaled.
//!
//! A call that takes long can be *parked*: `call` returns [`Dispatch::Parked`], the cell is suspended, and any process
//! that uses the store later settles the call by its [`CallToken`] with
//! [`Cellmate::settle`](crate::Cellmate::settle).
//!
//! ```
//! use cellmate::json;
//! use cellmate::source::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolId, ToolResult, ToolSource, ToolSpec};
//!
//! #[derive(Debug)]
//! struct Cities(Vec<&'static str>);
//!
//! impl ToolSource for Cities {
//!     fn tools(&self) -> Vec<ToolSpec> {
//!         let spec = |city| {
//!             let id = ToolId::parse(&format!("plugin:cities:weather_{city}")).ok()?;
//!             Some(ToolSpec::new(id, format!("Returns the weather in {city}."), json!({"type": "object"})))
//!         };
//!         self.0.iter().filter_map(spec).collect()
//!     }
//!
//!     fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
//!         Box::pin(async move {
//!             let text = format!("{}: sunny", call.id().name());
//!             Dispatch::Settled(Outcome::Returned(ToolResult::text(text)))
//!         })
//!     }
//! }
//!
//! assert_eq!(Cities(vec!["oslo", "rome"]).tools().len(), 2);
//! ```

pub use catalog::UnavailableServer;
pub use contract::tool::{BadToolId, Operation, Repeat, Source, ToolHash, ToolId, ToolSpec};
pub use executor::{
    Answer as QuestionAnswer, Answers, AuthorizedCall, CallFuture, CallToken, CancelFuture, Dispatch, LargeText,
    MAX_TICKET_BYTES, Outcome, ParkedCall, ParkedOn, ProgressSink, Question, QuestionBatch, QuestionKind,
    QuestionSender, Ticket, ToolResult, ToolSource, ToolUpdate,
};
pub use store::SettleResult;
