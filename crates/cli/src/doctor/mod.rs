//! `cellmate doctor`: what works here, what does not, and what to type next.

mod servers;

use std::process::ExitCode;
use std::time::Instant;

use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use contract::frame::{Hello, Jail};
use contract::text;
use serde_json::{Value, json};

use crate::arguments::DoctorArguments;
use crate::{render, state};
use servers::Servers;

pub(crate) async fn run(arguments: DoctorArguments) -> ExitCode {
    let began = Instant::now();
    let options = PoolOptions { jail: JailPolicy::Preferred, workers: 1, ..PoolOptions::new(Launch::ThisProgram) };
    let pool = match Pool::start(options).await {
        Ok(pool) => pool,
        Err(error) => return render::trouble(&error.to_string()),
    };
    let Some(hello) = pool.workers().into_iter().next() else {
        return render::trouble("the worker came up and went away again");
    };
    let start_ms = began.elapsed().as_secs_f64() * 1000.0;
    let (said, told, store_is_well) = state::look::look(&arguments.store).await;
    let mut all = machine_json(&hello, start_ms);
    if let Value::Object(all) = &mut all {
        all.insert("store".to_owned(), told);
    }
    let machine = format!("{}\nstore          {}", machine(&hello, start_ms), text::line(&said, usize::MAX));
    let servers = match Servers::look(&arguments).await {
        Ok(servers) => servers,
        // The machine is what it is, whatever a file says.
        Err(message) => {
            print(&all, &machine, &arguments);
            return render::trouble(&message);
        }
    };
    if let (Value::Object(all), Value::Object(servers)) = (&mut all, servers.to_json()) {
        all.extend(servers);
    }
    let readable = format!("{machine}\n{}", servers.readable());
    print(&all, readable.trim_end(), &arguments);
    if hello.jail == Jail::Full && store_is_well && servers.are_well() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn print(json: &Value, readable: &str, arguments: &DoctorArguments) {
    if arguments.json { render::say_json(json) } else { render::say(&format!("{readable}\n")) }
}

fn jail(hello: &Hello) -> (&'static str, &'static str) {
    match hello.jail {
        Jail::Full => ("full", "Landlock and seccomp stand"),
        Jail::Seccomp => {
            ("seccomp", "this kernel has no Landlock (5.13 and later have it); `--jail preferred` runs anyway")
        }
        Jail::None => ("none", "system calls cannot be filtered here; `--jail preferred` runs anyway, without a jail"),
    }
}

fn machine_json(hello: &Hello, start_ms: f64) -> Value {
    json!({
        "image": hello.image.to_string(),
        "jail": jail(hello).0,
        "pageScan": hello.page_scan,
        "workerStartMs": start_ms,
    })
}

fn machine(hello: &Hello, start_ms: f64) -> String {
    let (jail, remedy) = jail(hello);
    let pages =
        if hello.page_scan { "asked of the kernel" } else { "found by comparison (Linux 6.7 and later is faster)" };
    format!(
        "image          {}\njail           {jail}: {remedy}\nchanged pages  {pages}\nworker start   {start_ms:.1} ms",
        hello.image
    )
}
