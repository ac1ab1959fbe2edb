//! The accept loop. `slots` decides which connection is closed when there is no room, and when a new connection waits.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use telemetry::LogIgnored;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::limits::{HEAD_TIMEOUT, MAX_CONNECTIONS, MAX_HEAD_BYTES, MAX_HEADERS, MAX_WAITING_CONNECTIONS};
use crate::paced_stream::PacedStream;
use crate::slots::{Connection, Slots};
use crate::tls::Transport;

/// Sockets in addition to those of open and waiting connections, for connections that lost their slot and are being
/// closed.
const CLOSING_CONNECTIONS: usize = 64;

/// The pause after a failed accept: usually the process is out of file descriptors, and some are released soon.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long calls in progress may take once the server is stopped.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

/// The application for one connection: it adds the connection to the extensions of every request.
struct ConnectionService {
    app: TowerToHyperService<Router>,
    connection: Connection,
}

impl Service<hyper::Request<Incoming>> for ConnectionService {
    type Response = Response;
    type Error = std::convert::Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request>>::Future;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.connection.clone());
        self.app.call(request)
    }
}

/// Serves the requests of one connection. Its error affects only its client.
async fn serve_stream<S>(stream: S, service: ConnectionService, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    watcher.watch(connection).await.log_expected("serve an HTTP connection");
}

/// Accepts and serves connections until `stop` is cancelled, then waits up to [`SHUTDOWN_GRACE`] for open connections.
pub(crate) async fn serve(listener: TcpListener, transport: Transport, app: Router, stop: CancellationToken) {
    let sockets = Arc::new(Semaphore::new(MAX_CONNECTIONS + MAX_WAITING_CONNECTIONS + CLOSING_CONNECTIONS));
    let slots = Slots::default();
    let graceful = GracefulShutdown::new();
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&sockets).acquire_owned() => permit,
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        // Responses are small and must not be delayed. Without the option they still arrive.
        stream.set_nodelay(true).log_expected("send responses without delay");
        let (slots, app) = (slots.clone(), TowerToHyperService::new(app.clone()));
        let (transport, watcher, stop) = (transport.clone(), graceful.watcher(), stop.clone());
        tokio::spawn(async move {
            let slot = tokio::select! {
                slot = slots.open(peer.ip()) => slot,
                () = stop.cancelled() => return,
            };
            let pace = slot.connection().pace;
            let service = ConnectionService { app, connection: slot.connection() };
            let stream = PacedStream::new(stream, pace);
            let served = async {
                match transport {
                    Transport::Tls(server) => tokio::select! {
                        accepted = TlsAcceptor::from(server.config()).accept(stream) => match accepted {
                            Ok(stream) => serve_stream(stream, service, watcher).await,
                            Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
                        },
                        () = stop.cancelled() => {}
                    },
                    Transport::Plain | Transport::BehindProxy => serve_stream(stream, service, watcher).await,
                }
            };
            tokio::select! {
                () = served => {}
                () = slot.must_close() => {}
            }
            drop((slot, permit));
        });
    }
    drop(listener);
    if tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown()).await.is_err() {
        tracing::info!("some connections were still open when the grace period ended");
    }
}
