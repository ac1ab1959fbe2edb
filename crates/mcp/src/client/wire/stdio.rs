//! The stdio transport for `rmcp`.

use std::io;

use process::{CLOSE_GRACE, LargeMessages, Line, LineError, LineWriter, Lines, Process};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};

use super::gate::Gate;
use crate::client::disconnect::DisconnectReason;
use crate::client::spec::MAX_FRAME_BYTES;
use crate::client::stray::StrayLine;

/// The transport over the pipes of a server's process.
#[derive(Debug)]
pub(crate) struct Stdio<R, W> {
    lines: Lines<R>,
    writer: LineWriter<W>,
    pub(super) gate: Gate,
    /// The server's process, which ends with the connection. `None` in tests without a process.
    process: Option<Process>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Stdio<R, W> {
    pub(crate) fn new(reader: R, writer: W, process: Option<Process>) -> Self {
        Self { lines: Lines::new(reader, MAX_FRAME_BYTES), writer: LineWriter::new(writer), gate: Gate::new(), process }
    }

    /// Notes the first line that is not a message there.
    pub(crate) fn noting(self, stray: StrayLine) -> Self {
        Self { gate: self.gate.noting(stray), ..self }
    }
}

impl<R, W> Transport<RoleClient> for Stdio<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.gate.on_send(&message);
        let line = serde_json::to_vec(&message);
        let writing = self.writer.reserve().map(|slot| line.map(|line| slot.write(line)));
        if writing.is_none() {
            self.gate.closed.set(DisconnectReason::DoesNotRead);
        }
        async move {
            match writing {
                Some(writing) => writing?.await,
                None => Err(io::Error::other(DisconnectReason::DoesNotRead.to_string())),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Some(answer) = self.gate.ready() {
                return Some(answer);
            }
            if self.gate.is_closed() {
                return None;
            }
            let arrived = match self.gate.is_reading() {
                true => self.gate.parse().await,
                false => match self.lines.next_or_large(LargeMessages::accepted_if(self.gate.accepts_large())).await {
                    Ok(Line::Whole(text)) => self.gate.take(text, None),
                    Ok(Line::Large(message)) => self.gate.take_large(message, None),
                    Err(LineError::TooLong) => {
                        self.gate.close_after_endless_message();
                        Ok(None)
                    }
                    Err(LineError::Ended) => Err(DisconnectReason::Ended),
                },
            };
            match arrived {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(why) => self.gate.closed.set(why),
            }
        }
    }

    /// Closes the server's input, which asks it to exit, waits a moment, then ends its process.
    async fn close(&mut self) -> io::Result<()> {
        self.writer.close();
        if self.gate.closed.get().is_none() {
            let ended = async { while self.lines.next().await.is_ok() {} };
            if tokio::time::timeout(CLOSE_GRACE, ended).await.is_err() {
                tracing::debug!("an MCP server did not exit when its input was closed");
            }
            self.gate.closed.set(DisconnectReason::Ended);
        }
        if let Some(process) = &mut self.process {
            process.end().await;
        }
        Ok(())
    }
}
