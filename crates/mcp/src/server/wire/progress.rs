//! Sends progress notifications to a client that asked for them: each line of a call, and a heartbeat while there is
//! none.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use telemetry::LogIgnored;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::server::progress::Progress;

/// The longest silence during a call. Clients time out after a minute without a message.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The pause between two lines, so that a busy cell does not flood its client.
const LINE_PAUSE: Duration = Duration::from_millis(20);

/// Sends the progress of one call.
pub(super) struct ProgressPump {
    token: ProgressToken,
    peer: Peer<RoleServer>,
    lines: mpsc::Receiver<String>,
}

impl ProgressPump {
    /// Creates a pump, or disabled progress if the client sent no progress token.
    pub(super) fn new(token: Option<ProgressToken>, peer: &Peer<RoleServer>) -> (Progress, Option<Self>) {
        let Some(token) = token else { return (Progress::default(), None) };
        let (progress, lines) = Progress::channel();
        (progress, Some(Self { token, peer: peer.clone(), lines }))
    }

    /// Sends notifications until the caller drops the future. It never completes.
    pub(super) async fn run(pump: Option<Self>) {
        let Some(mut pump) = pump else { return std::future::pending().await };
        let began = Instant::now();
        let mut number = 0.0;
        loop {
            let line = match tokio::time::timeout(HEARTBEAT, pump.lines.recv()).await {
                Ok(Some(line)) => line,
                Ok(None) => return std::future::pending().await,
                Err(_) => format!("{} s", began.elapsed().as_secs()),
            };
            number += 1.0;
            let notification = ProgressNotificationParam::new(pump.token.clone(), number).with_message(line);
            // An error means that the client has disconnected, which the request's handler notices itself.
            pump.peer.notify_progress(notification).await.log_expected("send progress");
            tokio::time::sleep(LINE_PAUSE).await;
        }
    }
}
