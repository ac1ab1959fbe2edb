//! Calls of one model response that run at the same time.

use std::sync::Arc;

use catalog::SurfaceChoice;
use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolResult, ToolSource};
use serde_json::{Value, json};
use testkit::model::{Reply, ScriptedCall, ScriptedModel};
use tokio::sync::{Barrier, watch};
use tokio_util::sync::CancellationToken;
use wire::Wire;

use crate::answer::Answer;
use crate::world::{ADA, APIS, Form, Options, PATIENCE, open, path, question, serve, start_gateway};

/// Tools that return only when all of them run. The first one returns last.
#[derive(Debug)]
struct Meeting {
    all_run: Barrier,
    last_but_one: watch::Sender<usize>,
}

const CALLS: usize = 3;

impl ToolSource for Meeting {
    fn tools(&self) -> Vec<ToolSpec> {
        let tool = |n: usize| {
            let id = ToolId::parse(&format!("openclaw:core:meet_{n}")).unwrap();
            ToolSpec::new(id, "Meets the others.", json!({"type": "object"}))
        };
        (0..CALLS).map(tool).collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            self.all_run.wait().await;
            let name = call.id().name().to_owned();
            if name == "meet_0" {
                let mut others = self.last_but_one.subscribe();
                others.wait_for(|done| *done == CALLS - 1).await.unwrap();
            } else {
                self.last_but_one.send_modify(|done| *done += 1);
            }
            Dispatch::Settled(Outcome::Returned(ToolResult::json(json!(format!("{name} was there")))))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_calls_of_one_response_run_together_and_their_results_keep_their_order() {
    for api in APIS {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&crate::world::location(&folder).await).await;
        let call = |n: usize| ScriptedCall { name: format!("meet_{n}"), arguments: json!({}), id: None };
        let all = Reply { calls: (0..CALLS).map(call).collect(), ..Reply::default() };
        let model = ScriptedModel::start(vec![all, Reply::text("All met.")].into()).unwrap();
        let options = Options { api, surface: Some(SurfaceChoice::Direct), ..Options::default() };
        let meeting = Arc::new(Meeting { all_run: Barrier::new(CALLS), last_but_one: watch::Sender::new(0) });
        let gateway = start_gateway(&store, meeting, &options, &model.url()).await;
        let stop = CancellationToken::new();
        let base = serve(gateway, stop.clone()).await;
        let client = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
        let body = question(Wire::Chat, Form::Whole, "meet");
        let sent =
            client.post(format!("{base}{}", path(Wire::Chat))).bearer_auth(ADA).json(&body).send().await.unwrap();
        let answer = Answer::read(Wire::Chat, sent).await;
        assert_eq!(answer.text(), "All met.", "{api:?}: {}", answer.raw);
        let prompt: Value = model.requests()[1].json();
        let prompt = prompt.get("messages").or(prompt.get("input")).unwrap().to_string();
        let places: Vec<usize> = (0..CALLS)
            .map(|n| prompt.find(&format!("meet_{n} was there")).unwrap_or_else(|| panic!("{n}: {prompt}")))
            .collect();
        assert!(places.is_sorted(), "{api:?}: {prompt}");
        stop.cancel();
    }
}
