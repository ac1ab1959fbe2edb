//! Commands that messages suggest. They get the `--config` files of this command: without them, they would not find the
//! same servers and the same store.

use std::path::PathBuf;
use std::sync::OnceLock;

use clap::ArgMatches;
use clap::error::ErrorKind;
use client_config::display;
use telemetry::LogIgnored;

/// The id of the argument `--config`, which is the name of its field.
const CONFIG: &str = "files";

/// The `--config` flags of this command, as they are typed.
static FLAGS: OnceLock<String> = OnceLock::new();

/// Remembers the `--config` files that the user typed.
pub(crate) fn init(matches: &ArgMatches) {
    // Set once, by `main`.
    FLAGS.get_or_init(|| flags(&config_files(matches)));
}

/// Prints why the command line cannot be read, and what is probably meant, and exits.
pub(crate) fn exit_with(error: &clap::Error) -> ! {
    let words: Vec<String> = std::env::args().skip(1).collect();
    error.print().log_expected("print an error");
    if let Some(hint) = forgotten_separator(error.kind(), &words) {
        eprintln!("\n{hint}");
    }
    std::process::exit(error.exit_code())
}

/// Returns how to pass the flags of a server's command, if `servers add` has taken them for its own.
fn forgotten_separator(kind: ErrorKind, words: &[String]) -> Option<String> {
    let [servers, add, name, rest @ ..] = words else { return None };
    let is_add = servers == "servers" && add == "add" && kind == ErrorKind::UnknownArgument;
    if !is_add || rest.is_empty() || words.iter().any(|word| word == "--") || name.starts_with('-') {
        return None;
    }
    let line: Vec<String> = rest.iter().map(|word| display::for_shell(&display::plain(word))).collect();
    Some(format!("hint: write the server's command after `--`: cellmate servers add {name} -- {}", line.join(" ")))
}

/// Returns a command of this program, such as `cellmate servers list`, that reads the same configuration.
pub(crate) fn command(words: &str) -> String {
    format!("cellmate {words}{}", FLAGS.get().map(String::as_str).unwrap_or_default())
}

/// Returns the files of the innermost command that takes `--config`.
fn config_files(matches: &ArgMatches) -> Vec<PathBuf> {
    let below = matches.subcommand().map(|(_, below)| config_files(below)).unwrap_or_default();
    if !below.is_empty() {
        return below;
    }
    // Fails if the command has no such argument.
    let given = matches.try_get_many::<PathBuf>(CONFIG).ok().flatten();
    given.map(|files| files.cloned().collect()).unwrap_or_default()
}

fn flags(files: &[PathBuf]) -> String {
    files.iter().map(|file| format!(" --config {}", display::for_shell(&display::path(file)))).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{command, config_files, flags};
    use crate::arguments::Arguments;

    #[test]
    fn every_config_file_of_the_command_is_repeated_as_it_was_typed() {
        let typed = |line: &str| {
            let matches = Arguments::command().try_get_matches_from(line.split(' ')).unwrap();
            flags(&config_files(&matches))
        };
        assert_eq!(typed("cellmate exec -e 1 --config bad.json5"), " --config bad.json5");
        assert_eq!(typed("cellmate servers list --config a --config ~/b"), " --config a --config '~/b'");
        assert_eq!(typed("cellmate approvals rules list --config a"), " --config a");
        assert_eq!(typed("cellmate approvals --config a rules list"), " --config a");
        assert_eq!(typed("cellmate config check a.json5"), "");
        assert_eq!(typed("cellmate completions bash"), "");
    }

    #[test]
    fn flags_of_a_servers_command_without_a_separator_get_a_hint() {
        let hint = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let failed = Arguments::command().try_get_matches_from(line.split(' ')).unwrap_err();
            super::forgotten_separator(failed.kind(), &words[1..])
        };
        let expected = "hint: write the server's command after `--`: cellmate servers add x -- npx -y foo";
        assert_eq!(hint("cellmate servers add x npx -y foo").as_deref(), Some(expected));
        assert_eq!(hint("cellmate servers list -y"), None);
        assert_eq!(hint("cellmate servers add --bogus -- npx"), None);
    }

    #[test]
    fn a_command_without_config_files_suggests_plain_commands() {
        assert_eq!(command("servers list"), "cellmate servers list");
    }
}
