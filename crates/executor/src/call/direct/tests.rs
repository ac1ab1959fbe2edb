use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use catalog::Catalog;
use contract::scope::Scope;
use contract::tool::{ToolId, ToolSpec};
use serde_json::json;
use store::{Keys, Location, Store};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::CallEnd;
use crate::outcome::{Outcome, ToolResult};
use crate::{AuthorizedCall, CallFuture, Dispatch, Executor, ProgressSink, Routes, ToolSource};

const TOOL: &str = "openclaw:test:warn";

/// A tool that logs a warning.
#[derive(Debug)]
struct WarningTool;

impl ToolSource for WarningTool {
    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new(ToolId::parse(TOOL).unwrap(), "Warns.", json!({"type": "object"}))]
    }

    fn call(&self, _call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async {
            tracing::warn!("the tool is slow");
            Dispatch::Settled(Outcome::Returned(ToolResult::text("done")))
        })
    }
}

/// Records the spans of each warning, innermost first. Like the log on standard error, it has no spans and events below
/// the level of warnings.
#[derive(Clone, Debug, Default)]
struct WarningLog(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    /// The text of each span and the id of its parent. The id of a span is its position, beginning with 1.
    spans: Vec<(String, Option<u64>)>,
    entered: Vec<u64>,
    warnings: Vec<Vec<String>>,
}

impl Subscriber for WarningLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Fields(span.metadata().name().to_owned());
        span.record(&mut text);
        let mut recorded = self.0.lock().unwrap();
        let contextual = recorded.entered.last().copied().filter(|_| span.is_contextual());
        recorded.spans.push((text.0, span.parent().map(Id::into_u64).or(contextual)));
        Id::from_u64(recorded.spans.len() as u64)
    }

    fn event(&self, _event: &Event<'_>) {
        let mut recorded = self.0.lock().unwrap();
        let (mut spans, mut next) = (Vec::new(), recorded.entered.last().copied());
        while let Some(id) = next {
            let (text, parent) = recorded.spans[usize::try_from(id).unwrap() - 1].clone();
            spans.push(text);
            next = parent;
        }
        recorded.warnings.push(spans);
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, _span: &Id) {
        self.0.lock().unwrap().entered.pop();
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

#[tokio::test]
async fn a_warning_of_a_direct_call_names_its_run_and_call() {
    let (routes, tools) = Routes::collect(&[Arc::new(WarningTool)]);
    let executor = Executor::new(Arc::new(Catalog::new(tools).unwrap()), routes, Scope::default());
    let store = Store::open(&Location::Memory, Keys::ephemeral().unwrap()).await.unwrap();
    let log = WarningLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let made = executor.call_directly(&store, "t", TOOL, json!({}), ProgressSink::default()).await.unwrap();
    drop(guard);
    assert!(matches!(made.end, CallEnd::Settled(Outcome::Returned(_))), "{made:?}");
    let spans = vec![format!("call call=1 tool={TOOL}"), format!("run run={}", made.run_id)];
    assert_eq!(log.0.lock().unwrap().warnings, [spans]);
}
