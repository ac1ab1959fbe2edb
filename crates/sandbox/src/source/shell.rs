//! Tells a shell command that a model took for a cell from a cell that has a mistake.

/// Whether a source that does not parse is plainly a shell command.
///
/// It is asked only after the parse failed, and it says no where JavaScript is likely: one line
/// that is a statement or a declaration is enough.
pub(super) fn looks_like(source: &str) -> bool {
    let mut lines = source.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(first) = lines.clone().next() else { return false };
    if first.starts_with("#!") {
        return first.contains("sh");
    }
    if lines.clone().any(is_javascript) {
        return false;
    }
    lines.find(|line| !line.starts_with('#')).is_some_and(is_command)
}

fn is_javascript(line: &str) -> bool {
    const STARTS: [&str; 20] = [
        "const ",
        "let ",
        "var ",
        "await ",
        "return ",
        "function ",
        "async ",
        "class ",
        "import ",
        "throw ",
        "if (",
        "for (",
        "while (",
        "//",
        "/*",
        "type ",
        "interface ",
        "enum ",
        "export {",
        "export default ",
    ];
    STARTS.iter().any(|start| line.starts_with(start)) || line.contains("=>") || line.ends_with(';')
}

/// Whether a line starts with a command that models run, and then an argument.
fn is_command(line: &str) -> bool {
    const COMMANDS: [&str; 54] = [
        "apt", "apt-get", "awk", "bash", "brew", "cargo", "cat", "cd", "chmod", "chown", "cp", "curl", "cut", "df",
        "docker", "du", "echo", "env", "find", "git", "grep", "head", "kill", "kubectl", "ln", "ls", "make", "mkdir",
        "mv", "node", "npm", "npx", "pip", "pip3", "pnpm", "ps", "pwd", "python", "python3", "rg", "rm", "rsync",
        "scp", "sed", "sh", "sort", "ssh", "sudo", "tail", "tar", "touch", "wget", "which", "yarn",
    ];
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let (command, arguments) = line.split_once(' ').unwrap_or((line, ""));
    COMMANDS.contains(&command) && !is_code(arguments.trim_start())
        || command == "export" && is_variable(arguments)
        || is_path(command)
}

/// Whether the text behind a name makes it JavaScript: `echo = 1`, `sort (x)`, `find .x`.
fn is_code(rest: &str) -> bool {
    let starts = ["=", "(", "[", "?", ":", "+", "* ", "- ", "< ", "> "];
    let property = rest.strip_prefix('.').unwrap_or_default();
    starts.iter().any(|start| rest.starts_with(start)) || property.starts_with(char::is_alphabetic)
}

/// Whether the arguments of `export` set an environment variable.
fn is_variable(arguments: &str) -> bool {
    arguments
        .split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
}

/// Whether the command is a program named by its path, such as `./run.sh` or `/usr/bin/env`.
fn is_path(command: &str) -> bool {
    let rest = ["./", "../", "~/", "/usr/", "/bin/", "/opt/"].iter().find_map(|start| command.strip_prefix(start));
    rest.is_some_and(|rest| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        !rest.is_empty() && rest.bytes().all(plain)
    })
}

#[cfg(test)]
mod tests {
    use super::looks_like;

    #[test]
    fn distinguishes_shell_from_javascript_with_a_mistake() {
        let shell = [
            "#!/bin/bash\necho hi",
            "#!/usr/bin/env sh",
            "ls -la",
            "cd /tmp && npm install",
            "cat file | grep x",
            "echo $HOME",
            "echo \"hello\" > /tmp/x",
            "curl https://example.com",
            "$ git status --short",
            "# list the files\nls -la /tmp",
            "find . -name '*.rs' | wc -l",
            "./scripts/build.sh --release",
            "python3 -c 'print(1)'",
            "export PATH=/bin",
            "mkdir -p a/b\ncd a/b\ntouch c",
        ];
        for source in shell {
            assert!(looks_like(source), "{source}");
        }
        let javascript = [
            "",
            "return 1 +",
            "const x = ;",
            "echo = = 1",
            "ls(",
            "sort.by((a, b) => a)",
            "find (x",
            "git\nconst a = 1 1",
            "#!/usr/bin/env node\nfoo(",
            "ls -la;\nreturn 1 2;",
            "cat - dog dog",
            "let cat = dog dog",
            "import fs from fs",
            "export abstract class A { b( }",
            "export const x = = 1",
        ];
        for source in javascript {
            assert!(!looks_like(source), "{source}");
        }
    }
}
