//! `cellmate doctor`: checks the sandbox, the store and the servers, and suggests fixes.

mod core_tools;
mod gateway;
mod plugins;
mod servers;

use std::process::ExitCode;
use std::time::Instant;

use client_config::Places;
use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use contract::frame::{Hello, Jail};
use contract::text;
use serde_json::{Value, json};

use crate::arguments::DoctorArguments;
use crate::config::{ProblemCounts, count_problems, counted};
use crate::{hint, render, secrets, state};
use core_tools::CoreTools;
use servers::ServerSection;

pub(crate) async fn run(arguments: DoctorArguments) -> ExitCode {
    let began = Instant::now();
    let options = PoolOptions { jail: JailPolicy::Preferred, workers: 1, ..PoolOptions::new(Launch::ThisProgram) };
    let pool = match Pool::start(options).await {
        Ok(pool) => pool,
        Err(error) => return render::fatal(&error.to_string()),
    };
    let Some(hello) = pool.workers().into_iter().next() else {
        return render::fatal("the sandbox worker exited right after it started");
    };
    let start_ms = began.elapsed().as_secs_f64() * 1000.0;
    let store = state::store_check::check_store(&arguments.store).await;
    let secrets = secrets::check(&arguments.store.places());
    let plugins = plugins::check(&arguments.store);
    let gateway = gateway::check(&arguments.store);
    let configuration = ConfigurationCheck::of(&arguments.store.places());
    let mut all = machine_json(&hello, start_ms);
    if let Value::Object(all) = &mut all {
        all.insert("store".to_owned(), store.json);
        all.insert("secrets".to_owned(), secrets.json);
        all.insert("plugins".to_owned(), plugins.json);
        all.insert("gateway".to_owned(), gateway.json);
        all.insert("configuration".to_owned(), configuration.json);
    }
    let line = |text: &str| text::line(text, usize::MAX);
    let machine = format!(
        "{}\nstore          {}\nsecrets        {}\nplugins        {}\ngateway        {}\nconfiguration  {}",
        machine(&hello, start_ms),
        line(&store.text),
        line(&secrets.text),
        line(&plugins.text),
        line(&gateway.text),
        line(&configuration.text)
    );
    let core_tools = CoreTools::check(&arguments);
    let machine = match &core_tools {
        Some(core_tools) => format!("{machine}\n{}", core_tools.text),
        None => machine,
    };
    if let (Value::Object(all), Some(core_tools)) = (&mut all, &core_tools) {
        all.insert("coreTools".to_owned(), core_tools.json.clone());
    }
    let servers = match ServerSection::check(&arguments).await {
        Ok(servers) => servers,
        // The checks of the machine and the store are worth printing even if the configuration is invalid.
        Err(message) => {
            print(&all, &machine, &arguments);
            return render::fatal(&message);
        }
    };
    if let (Value::Object(all), Value::Object(servers)) = (&mut all, servers.to_json()) {
        all.extend(servers);
    }
    let readable = format!("{machine}\n{}", servers.readable());
    print(&all, readable.trim_end(), &arguments);
    let core_tools_are_ok = core_tools.is_none_or(|core_tools| core_tools.is_ok);
    let settings_are_ok = store.is_ok && secrets.is_ok && core_tools_are_ok && plugins.is_ok && gateway.is_ok;
    let is_ok = hello.jail == Jail::Full && settings_are_ok && servers.are_ok();
    if is_ok { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// How many problems `cellmate config check` finds. The other checks report those that prevent something.
struct ConfigurationCheck {
    json: Value,
    text: String,
}

impl ConfigurationCheck {
    fn of(places: &Places) -> Self {
        let ProblemCounts { errors, warnings } = count_problems(places);
        let check = hint::command("config check");
        let text = match (errors, warnings) {
            (0, 0) => "no problems".to_owned(),
            (_, 0) => format!("{}; see `{check}`", counted(errors, "error")),
            (0, _) => format!("{}; see `{check}`", counted(warnings, "warning")),
            _ => format!("{}, {}; see `{check}`", counted(errors, "error"), counted(warnings, "warning")),
        };
        Self { json: json!({"errors": errors, "warnings": warnings}), text }
    }
}

fn print(json: &Value, readable: &str, arguments: &DoctorArguments) {
    if arguments.json { render::print_json(json) } else { render::print(&format!("{readable}\n")) }
}

/// Returns the jail's level, and what it means or how to run without it.
fn jail(hello: &Hello) -> (&'static str, &'static str) {
    match hello.jail {
        Jail::Full => ("full", "Landlock and seccomp are active"),
        Jail::Seccomp => {
            ("seccomp", "this kernel lacks Landlock (needs Linux 5.13 or later); `--jail preferred` runs without it")
        }
        Jail::None => ("none", "this system cannot filter system calls; `--jail preferred` runs without a jail"),
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
    let page_scan =
        if hello.page_scan { "supported" } else { "not supported: suspending is faster with Linux 6.7 or later" };
    let image = &hello.image;
    format!(
        "image          {image}\njail           {jail}: {remedy}\npage scan      {page_scan}\n\
         worker start   {start_ms:.1} ms"
    )
}
