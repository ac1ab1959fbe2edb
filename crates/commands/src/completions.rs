//! `cellmate completions`: prints a completion script for a shell.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use crate::render;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell to print the script for.
    #[arg(value_enum)]
    shell: Shell,
    /// Print the script as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the script for the program's whole command line.
pub(crate) fn run(arguments: &CompletionsArguments, mut program: Command) -> ExitCode {
    let mut script = Vec::new();
    program = without_hidden(program);
    clap_complete::generate(arguments.shell, &mut program, "cellmate", &mut script);
    let script = String::from_utf8_lossy(&script);
    if arguments.json {
        render::print_json(&json!({"shell": arguments.shell.to_string(), "script": script}));
    } else {
        render::print_safe(&script);
    }
    ExitCode::SUCCESS
}

/// Returns the command without its hidden subcommands, at any depth: the scripts would offer them.
fn without_hidden(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = names.iter().fold(command, |command, name| command.mut_subcommand(name, without_hidden));
    if !command.get_subcommands().any(Command::is_hide_set) {
        return command;
    }
    // A subcommand cannot be removed, so the command is built again with what a script shows of it. Names are static in
    // this build of clap; few are leaked, and the program ends soon.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut shown = Command::new(name)
        .args(command.get_arguments().cloned())
        .subcommands(command.get_subcommands().filter(|below| !below.is_hide_set()).cloned());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    shown
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::without_hidden;

    #[test]
    fn hidden_subcommands_are_left_out_at_any_depth() {
        let servers = Command::new("servers")
            .about("Manage servers")
            .arg(Arg::new("config").long("config"))
            .subcommand(Command::new("list").subcommand(Command::new("old").hide(true)))
            .subcommand(Command::new("trust").hide(true));
        let program = without_hidden(Command::new("program").version("1").subcommand(servers));
        assert_eq!(program.get_version(), Some("1"));
        let servers = program.find_subcommand("servers").unwrap();
        assert_eq!(servers.get_about().unwrap().to_string(), "Manage servers");
        assert!(servers.get_arguments().any(|argument| argument.get_id() == "config"));
        let below: Vec<&str> = servers.get_subcommands().map(Command::get_name).collect();
        assert_eq!(below, ["list"]);
        assert_eq!(servers.find_subcommand("list").unwrap().get_subcommands().count(), 0);
    }
}
