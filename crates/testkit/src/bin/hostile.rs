//! `hostile DIR`: runs every hostile cell of a folder through a real host and checks the results.
//!
//! `--json` prints the whole report. `--slack N` multiplies the time limits, and `--settle-ms N` sets how long the host
//! may take to release memory: both are for unoptimised builds on busy machines.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use cellmate_testkit::hostile::{self, Options, Result, mcp_server};
use contract::limits::HOST_STACK_BYTES;

const USAGE: &str = "usage: hostile DIR [--json] [--slack N] [--settle-ms N]";

/// Default of `--settle-ms`.
const SETTLE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    sandbox::worker_main();
    process::keeper_main();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == mcp_server::ARGUMENT) {
        return if mcp_server::serve().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    match parse(arguments).and_then(drive) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    folder: PathBuf,
    json: bool,
    time_factor: u32,
    settle: Duration,
}

fn parse(arguments: Vec<OsString>) -> Result<Arguments> {
    let mut folder = None;
    let mut parsed = Arguments { folder: PathBuf::new(), json: false, time_factor: 1, settle: SETTLE };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u32> {
            let text = arguments.next().and_then(|text| text.into_string().ok()).ok_or(USAGE)?;
            Ok(text.parse()?)
        };
        match argument.to_str() {
            Some("--json") => parsed.json = true,
            Some("--slack") => parsed.time_factor = number()?.max(1),
            Some("--settle-ms") => parsed.settle = Duration::from_millis(number()?.into()),
            Some(flag) if flag.starts_with('-') => return Err(USAGE.into()),
            _ => folder = Some(PathBuf::from(argument)),
        }
    }
    parsed.folder = std::path::absolute(folder.ok_or(USAGE)?)?;
    Ok(parsed)
}

fn drive(arguments: Arguments) -> Result<ExitCode> {
    let scratch = tempfile::tempdir()?;
    let (state, here) = (scratch.path().join("state"), scratch.path().join("here"));
    std::fs::create_dir(&state)?;
    std::fs::create_dir(&here)?;
    // Files written to relative paths appear here and are reported.
    std::env::set_current_dir(&here)?;
    let Arguments { folder, json, time_factor, settle } = arguments;
    let options = Options { untouched: vec![folder.clone(), here], folder, state, time_factor, settle };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_stack_size(HOST_STACK_BYTES).enable_all().build()?;
    let report = runtime.block_on(hostile::run(&options))?;
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
