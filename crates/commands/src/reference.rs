//! Renders `docs/reference/cli.md` from the command line's own definitions, and checks that the page is up to date.

use std::path::Path;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::arguments::Arguments;
use crate::render;

/// What stands above the commands.
const INTRODUCTION: &str = "# Command line

Every command of `cellmate`, with its arguments and exit codes.
`cellmate COMMAND --help` prints the same on a terminal, `cellmate man COMMAND` as a manual page.
It is rendered from the definitions of the commands; with `CELLMATE_UPDATE_SNAPSHOTS=1`, a test rewrites it.

## Exit codes

| code | meaning |
|---|---|
| 0 | the operation succeeded; a cell completed |
| 1 | the operation failed, or found a problem; a cell failed, or a server did not start |
| 2 | the operation could not be attempted, because of the arguments, the configuration, a file or the store |
| 3 | a cell has not ended, and waits for a person or for `cellmate wait` |
";

/// The exit codes of single commands: the path of the command, the code and its meaning. The codes 0, 1 and 2 are named
/// only if they mean something more exact than in general.
const EXIT_CODES: &[(&str, u8, &str)] = &[
    ("exec", 0, "the cell completed"),
    ("exec", render::FAILED, "the cell failed; the result says why"),
    ("exec", render::WAITING, "the cell has not ended: it waits for a person, or `--no-wait` was given"),
    ("exec", render::INTERRUPTED, "interrupted; the run is cancelled"),
    ("wait", 0, "the cell completed"),
    ("wait", render::FAILED, "the cell failed; the result says why"),
    ("wait", render::WAITING, "the cell waits for a person"),
    ("wait", render::INTERRUPTED, "interrupted; the run stays as it is"),
    ("repl", render::FAILED, "without a terminal: a cell failed"),
    ("repl", render::WAITING, "without a terminal: a cell waits for a person"),
    ("repl", render::INTERRUPTED, "interrupted without a terminal"),
    ("servers test", render::FAILED, "a server does not work"),
    ("tools list", render::FAILED, "a server did not start; the tools of the others are listed"),
    ("tools show", render::FAILED, "the tool was not found, and a server that may have it did not start"),
    ("tools search", render::FAILED, "a server did not start; the tools of the others are searched"),
    ("tools call", render::FAILED, "the tool reported an error, the call was denied, or its server did not start"),
    ("config check", render::FAILED, "the configuration has errors"),
    ("doctor", render::FAILED, "a check failed"),
    ("runs replay", render::FAILED, "a step differs from the record"),
    ("approvals approve", render::FAILED, "an approval was no longer pending"),
    ("approvals deny", render::FAILED, "an approval was no longer pending"),
    ("plugins test", render::FAILED, "the plugin does not work"),
];

/// How many commands must have an option with the same text for it to be described once.
const SHARED_BY: usize = 3;

/// Returns the whole page.
fn page(program: Command) -> String {
    let mut root = program.disable_help_subcommand(true);
    root.build();
    let mut page = INTRODUCTION.to_owned();
    page += "\nCommands with further codes name them below.\n\n## Options of every command\n\n";
    root.get_arguments().filter(|argument| argument.is_global_set()).for_each(|argument| page += &item(argument));
    page +=
        "- `-h`, `--help`: Print help.\n\n## Shared options\n\nCommands that take these options only name them.\n\n";
    let shared = shared(&root);
    shared.iter().for_each(|item| page += item);
    page += "\n## Commands\n\n| command | purpose |\n|---|---|\n";
    for command in visible(&root) {
        let name = command.get_name();
        page += &format!("| [`cellmate {name}`](#cellmate-{name}) | {} |\n", cell(&about(command)));
    }
    visible(&root).for_each(|command| section((&root, &shared), command, command.get_name(), &mut page));
    page
}

/// Returns the items of options that many commands have with the same text, in the order of their first command.
fn shared(root: &Command) -> Vec<String> {
    fn count(root: &Command, command: &Command, items: &mut Vec<(String, usize)>) {
        if visible(command).next().is_none() {
            for text in arguments(root, command).into_iter().filter(|one| !one.is_positional()).map(item) {
                match items.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, times)) => *times += 1,
                    None => items.push((text, 1)),
                }
            }
        }
        visible(command).for_each(|below| count(root, below, items));
    }
    let mut items = Vec::new();
    count(root, root, &mut items);
    // An option that has another text in other commands is described there.
    let name = |item: &str| item.split_once("`: ").map(|(name, _)| name.to_owned());
    let is_usual = |(item, times): &&(String, usize)| {
        *times >= SHARED_BY && !items.iter().any(|(other, more)| name(other) == name(item) && more > times)
    };
    items.iter().filter(is_usual).map(|(item, _)| item.clone()).collect()
}

/// Returns the arguments of a command that are its own.
fn arguments<'a>(root: &Command, command: &'a Command) -> Vec<&'a Arg> {
    let shown = |argument: &&Arg| {
        let is_common = root.get_arguments().any(|common| common.get_id() == argument.get_id());
        !argument.is_hide_set() && !is_common && !matches!(argument.get_action(), ArgAction::Help | ArgAction::Version)
    };
    command.get_arguments().filter(shown).collect()
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

/// Writes the section of one command, and those of the commands below it.
fn section((root, shared): (&Command, &[String]), command: &Command, words: &str, page: &mut String) {
    let level = "#".repeat(1 + words.split(' ').count());
    *page += &format!("\n{level} cellmate {words}\n\n{}\n", sentences(&about(command)));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    *page += &format!("\n```text\n{usage}\n```\n");
    let arguments = arguments(root, command);
    // The options of a group are those of its commands, where they are listed.
    if visible(command).next().is_none() || !command.is_subcommand_required_set() {
        let (positional, options): (Vec<&Arg>, Vec<&Arg>) = arguments.iter().partition(|one| one.is_positional());
        let is_shared = |one: &&Arg| shared.contains(&item(one));
        let (common, options): (Vec<&Arg>, Vec<&Arg>) = options.into_iter().partition(is_shared);
        for (title, arguments) in [("Arguments", positional), ("Options", options)] {
            if !arguments.is_empty() {
                *page += &format!("\n{title}:\n\n");
                arguments.into_iter().for_each(|argument| *page += &item(argument));
            }
        }
        let names: Vec<String> =
            common.iter().filter_map(|one| one.get_long()).map(|name| format!("`--{name}`")).collect();
        if !names.is_empty() {
            *page += &format!("\n[Shared options](#shared-options): {}.\n", names.join(", "));
        }
    }
    if let Some(text) = command.get_after_help() {
        *page += &format!("\n{}\n", sentences(&text.to_string()));
    }
    let codes: Vec<_> = EXIT_CODES.iter().filter(|(of, ..)| *of == words).collect();
    if !codes.is_empty() {
        *page += "\n| exit code | meaning |\n|---|---|\n";
        codes.into_iter().for_each(|(_, code, meaning)| *page += &format!("| {code} | {meaning} |\n"));
    }
    visible(command).for_each(|below| section((root, shared), below, &format!("{words} {}", below.get_name()), page));
}

fn about(command: &Command) -> String {
    let text = command.get_long_about().or(command.get_about());
    text.map(|text| with_stop(&text.to_string())).unwrap_or_default()
}

/// Returns the list item of an argument.
fn item(argument: &Arg) -> String {
    let values: Vec<&str> = argument.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    let takes_value = argument.get_action().takes_values();
    let value = if takes_value { values.iter().map(|name| format!(" {name}")).collect() } else { String::new() };
    let names: Vec<String> = if argument.is_positional() {
        vec![format!("`{}`", if values.is_empty() { argument.get_id().as_str() } else { value.trim() })]
    } else {
        let short = argument.get_short().map(|letter| format!("`-{letter}`"));
        let long = argument.get_long().map(|name| format!("`--{name}{value}`"));
        short.into_iter().chain(long).collect()
    };
    let help = argument.get_long_help().or(argument.get_help()).map(|text| with_stop(&text.to_string()));
    let mut text = help.unwrap_or_default();
    let possible = if takes_value { argument.get_possible_values() } else { Vec::new() };
    let shown: Vec<&PossibleValue> = possible.iter().filter(|one| !one.is_hide_set()).collect();
    let are_explained = shown.iter().any(|one| one.get_help().is_some());
    if !shown.is_empty() && !are_explained {
        let words: Vec<String> = shown.iter().map(|one| format!("`{}`", one.get_name())).collect();
        text += &format!(" Values: {}.", words.join(", "));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if takes_value && !defaults.is_empty() {
        text += &format!(" Default: {}.", defaults.join(", "));
    }
    let mut item = format!("- {}: {}\n", names.join(", "), sentences(text.trim()).replace('\n', "\n  "));
    for one in shown.into_iter().filter(|_| are_explained) {
        let help = one.get_help().map(|help| format!(": {}", with_stop(&help.to_string())));
        item += &format!("  - `{}`{}\n", one.get_name(), help.unwrap_or_default());
    }
    item
}

/// Adds the full stop that clap takes from a comment of one sentence.
fn with_stop(text: &str) -> String {
    let text = text.trim();
    let is_ended = text.is_empty() || text.ends_with(['.', ':', '?', '!']);
    if is_ended { text.to_owned() } else { format!("{text}.") }
}

/// Puts every sentence on a line of its own.
fn sentences(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines = String::new();
    let mut rest = joined.as_str();
    while let Some(end) = rest.find(". ") {
        let (sentence, after) = rest.split_at(end + 2);
        lines += sentence.trim_end();
        // A full stop inside an abbreviation is not followed by a capital letter or a code span.
        let begins = after.starts_with(|letter: char| letter.is_uppercase() || letter == '`');
        lines.push(if begins { '\n' } else { ' ' });
        rest = after;
    }
    lines + rest
}

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[test]
fn the_page_of_the_command_line_is_what_the_definitions_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let page = page(Arguments::command());
    if std::env::var_os("CELLMATE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(recorded.lines()).find(|(now, then)| now != then);
    assert!(page == recorded, "run with CELLMATE_UPDATE_SNAPSHOTS=1 to write the page again: {differs:?}");
}

#[test]
fn every_exit_code_belongs_to_a_command() {
    let program = Arguments::command();
    for (words, code, _) in EXIT_CODES {
        let found = words.split(' ').try_fold(&program, |command, word| command.find_subcommand(word));
        assert!(found.is_some(), "`cellmate {words}` does not exist, but has the exit code {code}");
    }
}
