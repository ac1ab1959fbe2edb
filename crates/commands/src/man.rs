//! `cellmate man`: prints the manual page of a command, or writes all pages to a folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use client_config::display;
use serde_json::json;

use crate::render;

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Command whose page is printed, such as `servers add`; view it with `man -l -`.
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,
    /// Write the pages of all commands to this folder.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The manual page of one command.
struct Page {
    /// The words of the command after `cellmate`.
    command: String,
    file: String,
    roff: String,
}

/// Prints or writes pages of the program's whole command line.
pub(crate) fn run(arguments: &ManArguments, program: Command) -> ExitCode {
    let pages = match pages(program) {
        Ok(pages) => pages,
        Err(error) => return render::fatal(&format!("cannot write the manual: {error}")),
    };
    if let Some(folder) = &arguments.dir {
        return match write(&pages, folder) {
            Ok(()) if arguments.json => {
                let files: Vec<PathBuf> = pages.iter().map(|page| folder.join(&page.file)).collect();
                render::print_json(&json!({"files": files}));
                ExitCode::SUCCESS
            }
            Ok(()) => {
                render::print(&format!("wrote {} pages to {}\n", pages.len(), display::path(folder)));
                ExitCode::SUCCESS
            }
            Err(error) => render::fatal(&format!("cannot write to `{}`: {error}", display::path(folder))),
        };
    }
    let wanted = arguments.command.join(" ");
    let Some(page) = pages.iter().find(|page| page.command == wanted) else {
        return render::fatal(&format!("no command `{}`; `cellmate help` lists them", display::plain(&wanted)));
    };
    if arguments.json {
        let commands: Vec<&str> = pages.iter().map(|page| page.command.as_str()).collect();
        render::print_json(&json!({"command": page.command, "roff": page.roff, "commands": commands}));
    } else {
        render::print_safe(&page.roff);
    }
    ExitCode::SUCCESS
}

fn pages(program: Command) -> io::Result<Vec<Page>> {
    let mut root = program.disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, "", &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, words: &str, pages: &mut Vec<Page>) -> io::Result<()> {
    let man = clap_mangen::Man::new(command.clone());
    let (file, mut roff) = (man.get_filename(), Vec::new());
    man.render(&mut roff)?;
    pages.push(Page { command: words.to_owned(), file, roff: String::from_utf8_lossy(&roff).into_owned() });
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, format!("{words} {}", below.get_name()).trim(), pages)?;
    }
    Ok(())
}

fn write(pages: &[Page], folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    pages.iter().try_for_each(|page| fs::write(folder.join(&page.file), &page.roff))
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::pages;

    #[test]
    fn every_command_has_a_page_with_its_own_name() {
        let add = Command::new("add").about("Adds.");
        let program = Command::new("cellmate").subcommand(Command::new("servers").subcommand(add));
        let pages = pages(program).unwrap();
        let find = |command: &str| pages.iter().find(|page| page.command == command).unwrap();
        assert_eq!(find("").file, "cellmate.1");
        assert_eq!(find("servers add").file, "cellmate-servers-add.1");
        assert!(find("servers add").roff.contains("Adds."));
        assert_eq!(pages.len(), 3);
    }
}
