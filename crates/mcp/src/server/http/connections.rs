//! Connections: so many at once, each with a deadline for saying what it wants.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// A client of an older revision keeps one for its stream, and one for each call under way.
const MAX_CONNECTIONS: usize = 512;

/// From a connection, or from its last answer, to the end of the next request's head.
const HEAD_IN_TIME: Duration = Duration::from_secs(30);

/// Heads: lines, and bytes of all of them together.
const MAX_HEADERS: usize = 64;
const MAX_HEAD_BYTES: usize = 32 << 10;

/// After an accept that failed: usually there are no file descriptors left, and some come back.
const AFTER_TROUBLE: Duration = Duration::from_millis(100);

/// How long calls under way have when we are told to stop.
const GRACE: Duration = Duration::from_secs(3);

pub(super) async fn serve(listener: TcpListener, app: Router, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&room).acquire_owned() => permit,
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(AFTER_TROUBLE).await;
            continue;
        };
        // Answers are small and wanted at once. Where that cannot be had, they come all the same.
        drop(stream.set_nodelay(true));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_IN_TIME)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A connection that breaks concerns nobody but its client.
            drop(connection.await);
            drop(permit);
        });
    }
    drop(listener);
    drop(tokio::time::timeout(GRACE, graceful.shutdown()).await);
}
