//! Serves a scripted model on a loopback port: `scripted-model SCRIPT.json [PORT]`.
//!
//! Prints the base URL. `GET` of any path returns the bodies of all requests so far.

use std::process::ExitCode;

use cellmate_testkit::model::{Script, ScriptedModel};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("usage: scripted-model SCRIPT.json [PORT]");
        return ExitCode::from(2);
    };
    let port = arguments.next().map_or(Ok(0), |port| port.parse());
    let Ok(port) = port else {
        eprintln!("scripted-model: the port must be a number");
        return ExitCode::from(2);
    };
    let text = std::fs::read_to_string(&file);
    let started = text.and_then(|text| Script::parse(&text)).and_then(|script| ScriptedModel::start_on(port, script));
    match started {
        Ok(model) => {
            println!("{}", model.url());
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            eprintln!("scripted-model: `{file}`: {error}");
            ExitCode::FAILURE
        }
    }
}
