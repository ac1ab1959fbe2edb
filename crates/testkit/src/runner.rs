//! Runs cases of the executable contract in this process, with worker threads, or through the real binary.

use std::path::Path;
use std::process::Command;

use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use codemode::{CodeMode, ExecInput};
use contract::cell::CellResult;
use contract::scope::Scope;
use executor::{CannedTools, Executor};
use serde_json::{Value, json};
use store::{Keys, Location, Store};

use crate::case::{Answers, Case};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Starts code mode with a worker that runs on threads of this process, and a store in memory.
pub async fn in_process() -> Result<CodeMode> {
    let options = PoolOptions {
        jail: JailPolicy::Off,
        workers: 1,
        slots: 16,
        threads: 4,
        ..PoolOptions::new(Launch::InProcess(sandbox::serve_attached))
    };
    let store = Store::open(&Location::Memory, Keys::ephemeral()?).await?;
    Ok(CodeMode::new(Pool::start(options).await?, store)?)
}

/// Builds an executor of canned tools, `[{ "id": …, "answers": […] }]`.
pub fn canned(tools: &Value) -> Result<Executor> {
    executor_of(&json!({ "tools": tools }))
}

/// Builds an executor from a catalog of canned tools.
fn executor_of(catalog: &Value) -> Result<Executor> {
    Ok(CannedTools::parse(&catalog.to_string())?.executor(Scope::default())?)
}

/// Runs a case with `exec`, then `wait` until it ends, and joins the output, like `cellmate exec`.
pub async fn run_in_process(code_mode: &CodeMode, case: &Case) -> Result<Answers> {
    let executor = executor_of(&case.catalog())?;
    let config = case.code_mode()?;
    let input = ExecInput { source: case.source.clone(), language: case.language };
    let first = serde_json::to_value(code_mode.exec(&executor, &config, "exec-1", input).await)?;
    let mut result = first.clone();
    let mut shown: Vec<Value> = Vec::new();
    while result.get("status") == Some(&json!("waiting")) && !case.ends_waiting() {
        shown.extend(output_of(&result));
        let run_id = result.get("runId").and_then(Value::as_str).unwrap_or_default().into();
        let waited: CellResult = code_mode.wait(&executor, &config, "wait-1", &run_id).await;
        result = serde_json::to_value(waited)?;
    }
    shown.extend(output_of(&result));
    if let Some(fields) = result.as_object_mut() {
        fields.insert("output".to_owned(), Value::from(shown));
    }
    Ok(Answers { first: Some(first), last: result })
}

fn output_of(result: &Value) -> Vec<Value> {
    result.get("output").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Runs a case through the `cellmate` binary, as a user would; once more for the first answer if the case names it,
/// because the command prints only the last one.
pub fn run_through_binary(binary: &Path, case: &Case, scratch: &Path) -> Result<Answers> {
    let last = run_command(binary, case, scratch, if case.ends_waiting() { NO_WAIT } else { &[] })?;
    let first = case.expected_first.is_some().then(|| run_command(binary, case, scratch, NO_WAIT)).transpose()?;
    Ok(Answers { first, last })
}

/// Makes the command print what `exec` answers instead of waiting for the end of the cell.
const NO_WAIT: &[&str] = &["--no-wait"];

fn run_command(binary: &Path, case: &Case, scratch: &Path, more: &[&str]) -> Result<Value> {
    let catalog = scratch.join("catalog.json");
    std::fs::write(&catalog, case.catalog().to_string())?;
    let limits = case.limits();
    let mut command = Command::new(binary);
    command.arg("exec").arg("--json").arg("--catalog").arg(&catalog).args(["--language", case.language.as_str()]);
    for (flag, value) in [
        ("--timeout-ms", limits.timeout_ms),
        ("--max-wait-ms", limits.max_wait_ms),
        ("--memory-limit-bytes", limits.memory_bytes),
        ("--max-output-bytes", limits.output_bytes),
        ("--max-stored-output-bytes", limits.stored_output_bytes),
        ("--max-snapshot-bytes", limits.snapshot_bytes),
        ("--max-pending-tool-calls", limits.pending_calls),
    ] {
        command.arg(flag).arg(value.to_string());
    }
    if let Some(languages) = case.languages() {
        command.arg("--languages").arg(languages);
    }
    let output = command.args(more).arg("-e").arg(&case.source).output()?;
    let text = String::from_utf8(output.stdout)?;
    serde_json::from_str(&text).map_err(|error| {
        format!("{error}: stdout {text:?}, stderr {:?}", String::from_utf8_lossy(&output.stderr)).into()
    })
}
