//! The commands of the prompt, which begin with a dot. No cell begins so.

/// Each command with its arguments and what it does.
pub(super) const COMMANDS: [(&str, &str, &str); 6] = [
    (".exit", "", "leave; so does Ctrl-D"),
    (".help", "", "show this"),
    (".outputs", "", "list what the cells of this session stored because it was too large, images and sounds"),
    (".state", "", "list the values of this session"),
    (".tools", "[QUERY]", "list tools, or find some"),
    (".wait", "[RUN]", "continue a cell that waits; without a run, the last one"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DotCommand {
    Exit,
    Help,
    Outputs,
    State,
    Tools { query: String },
    Wait { run: Option<String> },
}

/// Parses a dot command. Returns `None` if the text is a cell, and a message if there is no such command.
pub(super) fn parse(text: &str) -> Option<Result<DotCommand, String>> {
    let text = text.trim();
    let name = text.strip_prefix('.')?;
    // `.5` is a number.
    if !name.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
        return None;
    }
    let (name, rest) = name.split_once(char::is_whitespace).unwrap_or((name, ""));
    let rest = rest.trim();
    let alone = |command: DotCommand| match rest {
        "" => Ok(command),
        _ => Err(format!("`.{name}` takes no arguments; `.help` lists the commands")),
    };
    Some(match name {
        "exit" => alone(DotCommand::Exit),
        "help" => alone(DotCommand::Help),
        "outputs" => alone(DotCommand::Outputs),
        "state" => alone(DotCommand::State),
        "tools" => Ok(DotCommand::Tools { query: rest.to_owned() }),
        "wait" => Ok(DotCommand::Wait { run: (!rest.is_empty()).then(|| rest.to_owned()) }),
        other => Err(format!("no command `.{}`; `.help` lists the commands", contract::text::line(other, 100))),
    })
}

/// Returns what the prompt can do.
pub(super) fn help() -> String {
    let mut help = String::new();
    for (name, arguments, what) in COMMANDS {
        help += &format!("{:<16}  {what}\n", format!("{name} {arguments}").trim_end());
    }
    help + "\nEvery input is a cell: `await` works, and an expression shows its value. Variables end with their cell;\n\
            `await store(\"key\", value)` keeps one, and `await load(\"key\")` reads it. Input continues on the next line while\n\
            brackets are open. Tab completes names, and Ctrl-C cancels the cell that runs.\n"
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, DotCommand, help, parse};

    #[test]
    fn only_a_dot_and_a_letter_make_a_command() {
        assert_eq!(parse(" .exit "), Some(Ok(DotCommand::Exit)));
        assert_eq!(parse(".tools read file"), Some(Ok(DotCommand::Tools { query: "read file".to_owned() })));
        assert_eq!(parse(".wait"), Some(Ok(DotCommand::Wait { run: None })));
        assert_eq!(parse(".wait\tcm_1"), Some(Ok(DotCommand::Wait { run: Some("cm_1".to_owned()) })));
        for cell in ["1", "", ".5", "...a", "a.exit"] {
            assert_eq!(parse(cell), None, "{cell}");
        }
        for wrong in [".exit now", ".nothing", ".Exit", ".e\u{9b}"] {
            let message = parse(wrong).unwrap().unwrap_err();
            assert!(message.contains("`.help`") && !message.contains('\u{9b}'), "{message}");
        }
    }

    #[test]
    fn every_command_is_parsed_and_explained() {
        for (name, ..) in COMMANDS {
            assert!(matches!(parse(name), Some(Ok(_))), "{name}");
            assert!(help().contains(name));
        }
        assert!(help().lines().all(|line| line.len() <= 120));
    }
}
