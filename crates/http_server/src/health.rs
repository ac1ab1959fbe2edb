//! `/healthz` and `/readyz`, which need no token and reveal nothing but their answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::limits::READINESS_TTL;

type Check = Box<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// Returns the routes `/healthz` and `/readyz`. `check` says whether the server is ready; its result is cached for
/// [`READINESS_TTL`], because clients without a token can cause it.
pub fn health<F>(check: impl Fn() -> F + Send + Sync + 'static) -> Router
where
    F: Future<Output = bool> + Send + 'static,
{
    let check: Check = Box::new(move || Box::pin(check()));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Arc::new(Readiness { check, last: Mutex::default() }))
}

/// The readiness check and its last result.
struct Readiness {
    check: Check,
    last: Mutex<Option<(Instant, bool)>>,
}

async fn ready(State(readiness): State<Arc<Readiness>>) -> (StatusCode, &'static str) {
    let mut last = readiness.last.lock().await;
    let is_ready = match *last {
        Some((at, is_ready)) if at.elapsed() < READINESS_TTL => is_ready,
        _ => {
            let is_ready = (readiness.check)().await;
            *last = Some((Instant::now(), is_ready));
            is_ready
        }
    };
    if is_ready { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}
