//! Measures many concurrent turns, without and with a cell.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use figures::{Facts, Samples};
use serde_json::{Value, json};

use crate::client::{Client, Refused};
use crate::gateway::{Binaries, Gateway, RIGHT};
use crate::{BoxError, Load, Result, print_line};

/// The number of failures whose text is printed.
const PRINTED_FAILURES: usize = 3;

/// Connections that the gateway accepts from one principal. If there are more clients, each opens a new connection for
/// every job and retries if the gateway refuses it.
const MAX_CONNECTIONS: usize = 256;

/// The pause before the first retry. It doubles with each retry, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a client retries a job.
const RETRY_TIME: Duration = Duration::from_secs(60);

/// The times and failures of the jobs of one `run_jobs`.
#[derive(Debug, Default)]
pub(crate) struct JobResults {
    /// The times of the jobs that succeeded, in milliseconds, including retries and the pauses between them.
    pub(crate) times: Samples,
    /// Jobs that failed, after retries if there were any.
    pub(crate) lost: usize,
    /// Attempts that the gateway refused and the client repeated.
    pub(crate) refused: usize,
}

/// Runs `count` jobs in all, on as many threads as there are `clients`. A client keeps its connection from job to job
/// until a job fails.
pub(crate) fn run_jobs(
    gateway: &Gateway,
    clients: usize,
    count: usize,
    job: impl Fn(&mut Client, usize) -> Result<()> + Sync,
) -> JobResults {
    let (next, refused, results) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(JobResults::default()));
    let record = |result: Result<f64>| {
        let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match result {
            Ok(took) => results.times.push(took),
            Err(error) => {
                results.lost += 1;
                if results.lost <= PRINTED_FAILURES {
                    eprintln!("bench-gateway: lost: {error}");
                }
            }
        }
    };
    let crowded = clients > MAX_CONNECTIONS;
    let is_refusal = |error: &BoxError| {
        // A refusing gateway also closes connections whose request it has not read.
        error.is::<Refused>() || error.is::<std::io::Error>()
    };
    let work = || {
        let mut connection = None;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let began = Instant::now();
            let mut attempt = || {
                let mut client = connection.take().map_or_else(|| gateway.connect(), Ok)?;
                job(&mut client, number)?;
                connection = Some(client).filter(|_| !crowded);
                Ok(began.elapsed().as_secs_f64() * 1e3)
            };
            let (mut result, mut pause) = (attempt(), FIRST_PAUSE);
            while crowded && began.elapsed() < RETRY_TIME && result.as_ref().is_err_and(is_refusal) {
                refused.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(pause);
                pause = (2 * pause).min(LONGEST_PAUSE);
                result = attempt();
            }
            record(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    JobResults { refused: refused.into_inner(), ..results }
}

/// Returns an error unless the last message of a turn is the one for a correct turn.
pub(crate) fn check_turn(message: &Value) -> Result<()> {
    match message.get("content").and_then(Value::as_str) {
        Some(RIGHT) => Ok(()),
        _ => Err(format!("the model got or said something else: {message}").into()),
    }
}

/// Sends one message to a gateway and checks the model's answer: it only writes text, or runs one cell first.
pub(crate) fn turn(client: &mut Client, kind: &str, number: usize) -> Result<()> {
    check_turn(&client.send(&json!([{"role": "user", "content": format!("[{kind}] {number}")}]))?)
}

/// Measures turns in which the model only writes text, and turns in which it runs one cell.
pub(crate) fn measure(binaries: &Binaries, load: Load, facts: &mut Facts) -> Result<()> {
    let gateway = Gateway::start(binaries)?;
    for kind in ["plain", "cell"] {
        let turn = |client: &mut Client, number: usize| turn(client, kind, number);
        // The first turns start workers, open the store's connections, and fill caches.
        run_jobs(&gateway, 8, 40, |client, number| turn(client, load.turns + number));
        let (cpu, began) = (gateway.cpu_ms()?, Instant::now());
        let results = run_jobs(&gateway, load.clients, load.turns, turn);
        let took = began.elapsed().as_secs_f64();
        let cpu = (gateway.cpu_ms()? - cpu) / load.turns as f64;
        println!("\n{} turns {kind}, {} at once", load.turns, load.clients);
        print_line("lost", &results.lost.to_string());
        print_line("CPU of gateway and workers per turn", &format!("{cpu:.2} ms"));
        let (p50, p99) = (results.times.p50(), results.times.p99());
        print_line("time of a turn (p50; p99)", &format!("{p50:.0} ms; {p99:.0} ms"));
        print_line("turns per second", &format!("{:.0}", load.turns as f64 / took));
        if results.refused > 0 {
            print_line("refused and repeated", &results.refused.to_string());
        }
        let pss = gateway.pss_mib()?;
        print_line("gateway and workers right after (PSS)", &format!("{pss:.1} MiB"));
        facts.add(&format!("{kind}_lost"), results.lost as f64);
        facts.add(&format!("{kind}_refused"), results.refused as f64);
        facts.add(&format!("{kind}_pss_mib"), pss);
        facts.add(&format!("{kind}_cpu_ms"), cpu);
        facts.add(&format!("{kind}_p50_ms"), p50);
        facts.add(&format!("{kind}_p99_ms"), p99);
        facts.add(&format!("{kind}_per_second"), load.turns as f64 / took);
    }
    Ok(())
}
