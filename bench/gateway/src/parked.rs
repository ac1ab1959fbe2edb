//! Sessions that wait for a result of their client's tool.

use std::sync::Mutex;

use figures::{Facts, machine};
use serde_json::{Value, json};

use crate::client::Client;
use crate::servers::{Binaries, Gateway, RESULT};
use crate::turns::{check, run};
use crate::{Load, Result, print_line};

/// Sessions that are continued at the end.
const SAMPLE: usize = 200;

fn question(number: usize) -> Value {
    json!({"role": "user", "content": format!("[park] {number}")})
}

/// Continues a session with the result of its call.
fn answer(client: &mut Client, number: usize, message: &Value) -> Result<()> {
    let call = message.pointer("/tool_calls/0/id").ok_or("no call")?;
    let result = json!({"role": "tool", "tool_call_id": call, "content": RESULT});
    check(&client.send(&json!([question(number), message, result]))?)
}

pub(crate) fn measure(binaries: &Binaries, load: Load, facts: &mut Facts) -> Result<()> {
    let gateway = Gateway::start(binaries)?;
    // The first sessions start workers and fill caches.
    run(&gateway, 8, 40, |client, number| {
        let number = load.parked + number;
        let message = client.send(&json!([question(number)]))?;
        answer(client, number, &message)
    });
    let (pss, bytes) = (gateway.idle_pss_mib()?, gateway.store_bytes()?);
    let calls = Mutex::new(Vec::new());
    let parked = run(&gateway, load.clients, load.parked, |client, number| {
        let message = client.send(&json!([question(number)]))?;
        if message.pointer("/tool_calls/0/function/name") != Some(&json!("lookup")) {
            return Err(format!("the session does not wait: {message}").into());
        }
        calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, message));
        Ok(())
    });
    let growth = gateway.idle_pss_mib()? - pss;
    let stored = machine::mebibytes(gateway.store_bytes()?.saturating_sub(bytes));
    let calls = calls.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let sample: Vec<_> = calls.iter().step_by((calls.len() / SAMPLE).max(1)).take(SAMPLE).collect();
    let answered = run(&gateway, load.clients, sample.len(), |client, at| {
        let (number, message) = sample.get(at).ok_or("no such session")?;
        answer(client, *number, message)
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
