//! Detects servers that are cellmate itself, which would start itself recursively.

use std::path::Path;

use mcp::Transport;

/// Whether the command runs `cellmate mcp`, by name or by this program's path, directly or through a package runner or
/// shell.
pub(crate) fn is_us(transport: &Transport) -> bool {
    let Transport::Stdio { command, args, .. } = transport else { return false };
    let words: Vec<&str> = std::iter::once(command.as_str()).chain(args.iter().map(String::as_str)).collect();
    words.array_windows::<2>().any(|[program, verb]| *verb == "mcp" && is_our_program(program))
}

fn is_our_program(program: &str) -> bool {
    let path = Path::new(program);
    let same_file = || Some(path.canonicalize().ok()? == std::env::current_exe().ok()?.canonicalize().ok()?);
    path.file_name().is_some_and(|name| name == "cellmate") || same_file().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mcp::Transport;

    use super::is_us;

    #[test]
    fn commands_that_start_cellmate_are_recognised() {
        let us = |command: &str, args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            is_us(&Transport::Stdio { command: command.to_owned(), args, env: BTreeMap::new(), cwd: None })
        };
        let me = std::env::current_exe().unwrap().display().to_string();
        assert!(us("cellmate", &["mcp"]) && us("/opt/cellmate", &["mcp", "--config", "x"]) && us(&me, &["mcp"]));
        assert!(us("env", &["A=1", "/opt/cellmate", "mcp"]));
        assert!(!us("cellmate", &["exec"]) && !us("npx", &["mcp"]) && !us("cellmates", &["mcp"]));
    }
}
