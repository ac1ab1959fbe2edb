//! Many servers, some of them bad.

use std::time::{Duration, Instant};

use mcp::{Limits, ServerSpec, ServerState, Upstreams};
use serde_json::json;

use crate::fake::{Folder, limits, tool};
use crate::test_upstream::{eventually, options, scripted};

#[tokio::test]
async fn a_first_listing_lists_working_servers_and_reports_failed_ones() {
    let folder = Folder::new();
    let short = Limits { connect: Duration::from_secs(3), ..limits() };
    let fine = json!({"tools": [tool("fine", json!([{"result": {}}]))]});
    let mut specs: Vec<_> = (0..6).map(|n| scripted(&folder, &format!("fine{n}"), fine.clone(), limits())).collect();
    specs.push(scripted(&folder, "hangs", json!({"start": [{"sleepMs": 60_000}]}), short));
    specs.push(scripted(&folder, "ends", json!({"start": [{"exit": 1}]}), short));
    let second = scripted(&folder, "second", json!({"start": [{"exit": 1}]}), limits());
    specs.push(ServerSpec { name: "fine0".to_owned(), ..second });
    let mut upstreams = Upstreams::new(specs, &options());
    let began = Instant::now();
    let missing = upstreams.listed().await;
    assert!(began.elapsed() < Duration::from_secs(15));
    let names: Vec<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ends", "hangs"]);
    let tools: usize = upstreams.sources().iter().map(|source| source.tools().len()).sum();
    assert_eq!(tools, 6);
    assert!(upstreams.changes().has_changed().is_ok());
    assert!(*upstreams.changes().borrow_and_update() >= 6);
    let unknown = upstreams.refresh("nobody").await.unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no MCP server is named `nobody`; run `cellmate servers list` to see the configured servers"
    );
    upstreams.refresh("fine1").await.unwrap().unwrap();
    upstreams.stop_all().await;
    assert!(upstreams.statuses().iter().all(|status| status.state == ServerState::Retired));
    let refused = upstreams.get("fine1").unwrap().refresh().await.unwrap_err();
    assert_eq!(refused.to_string(), "this program is shutting down");
    upstreams = Upstreams::new(Vec::new(), &options());
    assert!(upstreams.listed().await.is_empty());
    eventually("nothing is left of them", || crate::keeper::speaking_of(&folder).is_empty()).await;
}
