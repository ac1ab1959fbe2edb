//! `cellmate`: arguments in, exit code out.

mod approvals;
mod arguments;
mod backup;
mod config;
mod connect;
mod doctor;
mod exec;
mod jail;
mod keys;
mod log;
mod policy;
mod render;
mod runs;
mod serve;
mod servers;
mod state;
mod tools;

use clap::Parser;
use contract::limits::HOST_STACK_BYTES;

use arguments::{Arguments, Command};

/// What is left running when a command is done has this long to be put away.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(500);

fn main() -> std::process::ExitCode {
    // Before anything else: a worker, and the keeper of an MCP server, is this program, started again.
    sandbox::worker_main();
    mcp::keeper_main();

    let arguments = Arguments::parse();
    let kind = match arguments.command {
        Command::Mcp(_) => log::CommandKind::Server,
        _ => log::CommandKind::Short,
    };
    if let Err(message) = log::init(&arguments.log, kind) {
        return render::trouble(&message);
    }
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().thread_stack_size(HOST_STACK_BYTES).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return render::trouble(&format!("cannot start: {error}")),
        };
    let code = match arguments.command {
        Command::Exec(arguments) => runtime.block_on(exec::run(arguments)),
        Command::Servers(arguments) => runtime.block_on(servers::run(arguments)),
        Command::Tools(arguments) => runtime.block_on(tools::run(arguments)),
        Command::Connect(arguments) => connect::run(&arguments),
        Command::Doctor(arguments) => runtime.block_on(doctor::run(arguments)),
        Command::Mcp(arguments) => runtime.block_on(serve::run(arguments)),
        Command::Runs(arguments) => runtime.block_on(runs::run(arguments)),
        Command::Approvals(arguments) => runtime.block_on(approvals::run(arguments)),
        Command::Backup(arguments) => runtime.block_on(backup::run_backup(arguments)),
        Command::Restore(arguments) => runtime.block_on(backup::run_restore(arguments)),
        Command::Keys(arguments) => runtime.block_on(keys::run(arguments)),
        Command::Logs(arguments) => runtime.block_on(log::run(arguments)),
    };
    runtime.shutdown_timeout(LAST_WORDS);
    code
}
