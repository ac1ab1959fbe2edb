//! Progress on its way to a client that asked for it: lines as they come, and a sign of life where none come.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::server::progress::Progress;

/// No call is silent for longer. Clients give up after a minute without a word.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Between two lines, so that a busy cell does not flood its client.
const BREATH: Duration = Duration::from_millis(20);

pub(super) struct Pump {
    token: ProgressToken,
    peer: Peer<RoleServer>,
    lines: mpsc::Receiver<String>,
}

impl Pump {
    /// Nobody is told where no token was given.
    pub(super) fn new(token: Option<ProgressToken>, peer: &Peer<RoleServer>) -> (Progress, Option<Self>) {
        let Some(token) = token else { return (Progress::default(), None) };
        let (progress, lines) = Progress::channel();
        (progress, Some(Self { token, peer: peer.clone(), lines }))
    }

    /// Never ends: whoever has the answer stops it.
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
            let told = ProgressNotificationParam::new(pump.token.clone(), number).with_message(line);
            // A client that cannot be told is gone, which shows elsewhere.
            drop(pump.peer.notify_progress(told).await);
            tokio::time::sleep(BREATH).await;
        }
    }
}
