//! Tools that append every effect to a file and sync it before they answer, so that after a crash the file lists
//! exactly the effects that happened. A line is the tool's name, the call's key, its run, its number and its input.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ParkedOn, ToolResult, ToolSource};
use serde_json::{Value, json};

pub const TASK: &str = "openclaw:ledger:task";
pub const ASK: &str = "openclaw:ledger:ask";
pub const CLIENT: &str = "client:ledger:pick";
pub const SLOW: &str = "openclaw:ledger:slow";
pub const READ: &str = "openclaw:ledger:read";
pub const KEYED: &str = "openclaw:ledger:keyed";

#[derive(Debug)]
pub struct Ledger {
    file: Mutex<File>,
}

impl Ledger {
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: Mutex::new(OpenOptions::new().create(true).append(true).open(path)?) })
    }

    fn write(&self, call: &AuthorizedCall) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (name, token) = (call.id().name(), call.token());
        // One write: other processes may append to the same file.
        let line = format!("{name} {} {} {} {}\n", call.key(), token.run, token.call, call.input());
        file.write_all(line.as_bytes())?;
        file.sync_all()
    }
}

impl ToolSource for Ledger {
    fn tools(&self) -> Vec<ToolSpec> {
        let tool = |(id, repeat): (&str, Repeat)| {
            let id = ToolId::parse(id).ok()?;
            Some(ToolSpec { repeat, ..ToolSpec::new(id, "Records that it was called.", json!({"type": "object"})) })
        };
        [
            (TASK, Repeat::Never),
            (ASK, Repeat::Never),
            (CLIENT, Repeat::Never),
            (SLOW, Repeat::Never),
            (READ, Repeat::Always),
            (KEYED, Repeat::WithKey),
        ]
        .into_iter()
        .filter_map(tool)
        .collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            if let Err(error) = self.write(&call) {
                return Dispatch::Settled(Outcome::Failed(format!("cannot write the ledger: {error}")));
            }
            match call.id().as_str() {
                TASK => Dispatch::Parked(ParkedOn::Task),
                CLIENT => Dispatch::Parked(ParkedOn::Client),
                _ => {
                    let ms = call.input().get("ms").and_then(Value::as_u64).unwrap_or(0);
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    Dispatch::Settled(Outcome::Returned(ToolResult::json(json!({"did": call.input()}))))
                }
            }
        })
    }
}
