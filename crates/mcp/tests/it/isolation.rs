//! Bad servers do not slow down the good ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::Catalog;
use contract::scope::Scope;
use executor::{CallEnd, Executor, Outcome, ProgressSink, Routes};
use futures_util::future::join_all;
use mcp::{Limits, ServerSpec, Upstreams};
use serde_json::{Value, json};
use store::{Keys, Location, Store};

use crate::fake::{Folder, limits, tool};
use crate::test_upstream::{options, scripted};

const SERVERS: usize = 16;
const CALLS: usize = 40;

/// How long a slow, shared machine may delay any single call.
const SLACK: Duration = Duration::from_millis(100);

fn fine() -> Value {
    json!({"tools": [tool("call", json!([{"result": {}}]))]})
}

/// The kinds of bad servers.
fn bad() -> Vec<Value> {
    let flood: Vec<Value> = vec![json!({"stderrBytes": 1 << 20}); 4000];
    let garbage = Value::from(vec![json!({"print": "?"}); 20]);
    vec![
        json!({"start": [{"exit": 1}]}),
        json!({"tools": [tool("call", json!([{"exit": 1}]))]}),
        json!({"start": [{"sleepMs": 600_000}]}),
        json!({"tools": [tool("call", json!([]))]}),
        json!({"tools": [tool("call", json!(flood))]}),
        json!({"tools": [tool("call", garbage)]}),
    ]
}

struct Fleet {
    upstreams: Upstreams,
    executor: Executor,
    store: Store,
    _folder: Folder,
}

async fn fleet(bad: Vec<Value>) -> Fleet {
    let folder = Folder::new();
    let short = Limits { connect: Duration::from_secs(5), call: Duration::from_secs(10), ..limits() };
    let scripts = bad.into_iter().map(|script| ("bad", script)).chain(std::iter::repeat_with(|| ("fine", fine())));
    let specs: Vec<ServerSpec> = scripts
        .take(SERVERS)
        .enumerate()
        .map(|(n, (kind, script))| scripted(&folder, &format!("{kind}{n}"), script, short))
        .collect();
    let upstreams = Upstreams::new(specs, &options());
    upstreams.listed().await;
    let (routes, tools) = Routes::collect(&upstreams.sources());
    let executor = Executor::new(Arc::new(Catalog::new(tools).unwrap()), routes, Scope::default());
    let store = Store::open(&Location::Memory, Keys::ephemeral().unwrap()).await.unwrap();
    Fleet { upstreams, executor, store, _folder: folder }
}

impl Fleet {
    fn names(&self, kind: &str) -> Vec<String> {
        self.upstreams.statuses().into_iter().map(|status| status.name).filter(|name| name.starts_with(kind)).collect()
    }

    async fn call(&self, server: &str) -> Outcome {
        let id = format!("mcp:{server}:call");
        match self
            .executor
            .call_directly(&self.store, "test", &id, json!({}), ProgressSink::default())
            .await
            .unwrap()
            .end
        {
            CallEnd::Settled(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the 99th percentile of the duration of many calls to the good servers.
    async fn p99(&self) -> Duration {
        let mut took = Vec::new();
        for _ in 0..CALLS {
            let timed = self.names("fine").into_iter().take(10).map(|name| async move {
                let began = Instant::now();
                let outcome = self.call(&name).await;
                assert!(matches!(outcome, Outcome::Returned(_)), "{name}: {outcome:?}");
                began.elapsed()
            });
            took.extend(join_all(timed).await);
        }
        took.sort_unstable();
        took[took.len() * 99 / 100]
    }

    /// Calls the bad servers until the future is dropped.
    async fn trouble(&self) {
        let callers = self.names("bad").into_iter().map(|name| async move {
            loop {
                self.call(&name).await;
                // Also the servers that have never listed anything.
                drop(self.upstreams.get(&name).unwrap().listed().await);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        join_all(callers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_servers_do_not_slow_the_good_ones() {
    let quiet = fleet(Vec::new()).await;
    let alone = quiet.p99().await;
    quiet.upstreams.stop_all().await;
    let loud = fleet(bad()).await;
    assert_eq!((loud.names("bad").len(), loud.names("fine").len()), (6, 10));
    let among_bad = tokio::select! {
        took = loud.p99() => took,
        () = loud.trouble() => panic!("trouble does not end by itself"),
    };
    println!("p99 alone {alone:?}, among bad servers {among_bad:?}");
    assert!(among_bad <= alone * 2 + SLACK, "alone {alone:?}, among bad servers {among_bad:?}");
    loud.upstreams.stop_all().await;
}
