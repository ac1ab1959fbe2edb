//! Measures parked sessions: their run is suspended until the client sends the result of its own tool.

use std::sync::Mutex;

use figures::{Facts, machine};
use serde_json::{Value, json};

use crate::client::Client;
use crate::gateway::{Binaries, Gateway, TOOL_RESULT};
use crate::turns::{check_turn, run_jobs};
use crate::{Load, Result, print_line};

/// The number of parked sessions that are continued at the end.
const CONTINUED_SESSIONS: usize = 200;

/// Returns the message for which the model starts a cell that calls the client's tool.
fn user_message(number: usize) -> Value {
    json!({"role": "user", "content": format!("[park] {number}")})
}

/// Continues a session with the result of its tool call, and checks that it ends correctly.
fn continue_session(client: &mut Client, number: usize, message: &Value) -> Result<()> {
    let call = message.pointer("/tool_calls/0/id").ok_or("no call")?;
    let result = json!({"role": "tool", "tool_call_id": call, "content": TOOL_RESULT});
    check_turn(&client.send(&json!([user_message(number), message, result]))?)
}

/// Measures the memory and the stored bytes that parked sessions need, and the time to continue them.
pub(crate) fn measure(binaries: &Binaries, load: Load, facts: &mut Facts) -> Result<()> {
    let gateway = Gateway::start(binaries)?;
    // The first sessions start workers and fill caches.
    run_jobs(&gateway, 8, 40, |client, number| {
        let number = load.parked + number;
        let message = client.send(&json!([user_message(number)]))?;
        continue_session(client, number, &message)
    });
    let (pss, bytes) = (gateway.idle_pss_mib()?, gateway.store_bytes()?);
    let calls = Mutex::new(Vec::new());
    let parked = run_jobs(&gateway, load.clients, load.parked, |client, number| {
        let message = client.send(&json!([user_message(number)]))?;
        if message.pointer("/tool_calls/0/function/name") != Some(&json!("lookup")) {
            return Err(format!("the session does not wait: {message}").into());
        }
        calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, message));
        Ok(())
    });
    let growth = gateway.idle_pss_mib()? - pss;
    let stored = machine::mebibytes(gateway.store_bytes()?.saturating_sub(bytes));
    let calls = calls.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let sample: Vec<_> =
        calls.iter().step_by((calls.len() / CONTINUED_SESSIONS).max(1)).take(CONTINUED_SESSIONS).collect();
    let answered = run_jobs(&gateway, load.clients, sample.len(), |client, at| {
        let (number, message) = sample.get(at).ok_or("no such session")?;
        continue_session(client, *number, message)
    });
    println!("\n{} sessions that wait for their client", load.parked);
    print_line("lost", &parked.lost.to_string());
    print_line("growth of gateway and workers (PSS)", &format!("{growth:.1} MiB"));
    print_line("growth of the store", &format!("{stored:.1} MiB"));
    let times = format!("{:.0} ms; {:.0} ms", answered.times.p50(), answered.times.p99());
    print_line(&format!("{} continued (p50; p99)", sample.len()), &times);
    print_line("not continued correctly", &answered.lost.to_string());
    facts.add("parked", load.parked as f64);
    facts.add("parked_lost", parked.lost as f64);
    facts.add("parked_growth_mib", growth);
    facts.add("parked_store_mib", stored);
    facts.add("answers_wrong", answered.lost as f64);
    facts.add("answer_p50_ms", answered.times.p50());
    facts.add("answer_p99_ms", answered.times.p99());
    Ok(())
}
