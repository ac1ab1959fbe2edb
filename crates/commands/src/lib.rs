//! The commands of the program `cellmate`.
//!
//! The binary is another crate, because all crates are optimised once more together with the level of the binary's
//! crate: there for speed, here for size.

mod age;
mod approvals;
mod approver;
mod arguments;
mod backup;
mod call_progress;
mod cell_result;
mod completions;
mod config;
mod connect;
mod doctor;
mod engine;
mod exec;
mod hint;
mod keys;
mod local_tools;
mod log;
mod man;
mod named_words;
mod plugins;
mod policy;
mod progress;
#[cfg(test)]
mod reference;
mod render;
mod repl;
mod runs;
mod secrets;
mod serve;
mod servers;
mod shared_arguments;
mod size;
mod state;
mod style;
mod table;
mod tokens;
mod tools;
mod turns;
mod unmatched;
mod unusable;
mod upstream;
mod wait;

use clap::{CommandFactory, FromArgMatches};
use contract::limits::HOST_STACK_BYTES;

use arguments::{Arguments, Command};

/// How long the runtime waits for remaining tasks after a command has finished.
const SHUTDOWN_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(500);

/// Parses the arguments, runs one command and returns its exit code. The binary calls it first.
pub fn main() -> std::process::ExitCode {
    // Must come first: sandbox workers, and the keeper processes that supervise MCP servers and shell commands, are
    // this program re-executed; in them these calls do not return.
    sandbox::worker_main();
    process::keeper_main_closing_files(sandbox::close_inherited_files);

    let matches = Arguments::command().try_get_matches().unwrap_or_else(|error| hint::exit_with(&error));
    hint::init(&matches);
    let arguments =
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut Arguments::command()).exit());
    style::init(arguments.color);
    let kind = match arguments.command {
        Command::Mcp(_) | Command::Gateway(_) => log::CommandKind::Server,
        _ => log::CommandKind::OneShot,
    };
    if let Err(message) = log::init(&arguments.log, kind) {
        return render::fatal(&message);
    }
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().thread_stack_size(HOST_STACK_BYTES).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return render::fatal(&format!("cannot start: {error}")),
        };
    let code = match arguments.command {
        Command::Exec(arguments) => runtime.block_on(exec::run(*arguments)),
        Command::Repl(arguments) => runtime.block_on(repl::run(*arguments)),
        Command::Wait(arguments) => runtime.block_on(wait::run(arguments)),
        Command::Servers(arguments) => runtime.block_on(servers::run(arguments)),
        Command::Plugins(arguments) => runtime.block_on(plugins::run(arguments)),
        Command::Tools(arguments) => runtime.block_on(tools::run(arguments)),
        Command::Config(arguments) => {
            // `config check` creates sources of tools, whose tasks need a runtime, although the command is not async.
            let _entered = runtime.enter();
            config::run(&arguments)
        }
        Command::Connect(arguments) => runtime.block_on(connect::run(&arguments)),
        Command::Disconnect(arguments) => connect::run_disconnect(&arguments),
        Command::Secrets(arguments) => secrets::run(&arguments),
        Command::Doctor(arguments) => runtime.block_on(doctor::run(arguments)),
        Command::Mcp(arguments) => runtime.block_on(serve::run_mcp(arguments)),
        Command::Gateway(arguments) => runtime.block_on(serve::run_gateway(arguments)),
        Command::Runs(arguments) => runtime.block_on(runs::run(arguments)),
        Command::Approvals(arguments) => runtime.block_on(approvals::run(arguments)),
        Command::Backup(arguments) => runtime.block_on(backup::run_backup(arguments)),
        Command::Restore(arguments) => runtime.block_on(backup::run_restore(arguments)),
        Command::Keys(arguments) => runtime.block_on(keys::run(arguments)),
        Command::Tokens(arguments) => runtime.block_on(tokens::run(arguments)),
        Command::Logs(arguments) => runtime.block_on(log::run(arguments)),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Command::Man(arguments) => man::run(&arguments, Arguments::command()),
    };
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    code
}
