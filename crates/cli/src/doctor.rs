//! `cellmate doctor`: what of the sandbox works here, and whether the store answers.

use std::process::ExitCode;
use std::time::Instant;

use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use contract::frame::{Hello, Jail};
use serde_json::{Value, json};

use crate::arguments::DoctorArguments;
use crate::{render, state};

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
    report(&hello, start_ms, &state::look::look(&arguments.store).await, arguments.json)
}

fn report(hello: &Hello, start_ms: f64, store: &(String, Value, bool), as_json: bool) -> ExitCode {
    let (said, told, is_well) = store;
    let (jail, remedy) = match hello.jail {
        Jail::Full => ("full", "Landlock and seccomp stand"),
        Jail::Seccomp => {
            ("seccomp", "this kernel has no Landlock (5.13 and later have it); `--jail preferred` runs anyway")
        }
        Jail::None => ("none", "system calls cannot be filtered here; `--jail preferred` runs anyway, without a jail"),
    };
    let pages =
        if hello.page_scan { "asked of the kernel" } else { "found by comparison (Linux 6.7 and later is faster)" };
    if as_json {
        let report = json!({
            "image": hello.image.to_string(),
            "jail": jail,
            "pageScan": hello.page_scan,
            "workerStartMs": start_ms,
            "store": told,
        });
        println!("{report}");
    } else {
        println!("image          {}", hello.image);
        println!("jail           {jail}: {remedy}");
        println!("changed pages  {pages}");
        println!("worker start   {start_ms:.1} ms");
        println!("store          {said}");
    }
    if hello.jail == Jail::Full && *is_well { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
