//! Recognises commands that download a package or an image before a server runs.

/// Programs that download what they run if it is missing, whatever their arguments are.
const DOWNLOADERS: [&str; 10] = ["npx", "pnpx", "bunx", "uvx", "uv", "pipx", "deno", "docker", "podman", "nerdctl"];

/// Programs that download what they run if it is missing with one of these arguments.
const DOWNLOADING_COMMANDS: [(&str, &[&str]); 7] = [
    ("npm", &["exec", "x"]),
    ("pnpm", &["dlx", "exec"]),
    ("yarn", &["dlx"]),
    ("bun", &["x", "run"]),
    ("go", &["run"]),
    ("cargo", &["run"]),
    ("nix", &["run", "shell", "develop"]),
];

/// Programs that run the command in their arguments.
const WRAPPERS: [&str; 8] = ["env", "sh", "bash", "dash", "zsh", "nice", "timeout", "exec"];

/// Whether the program of a command line, or the one that it wraps (`env A=1 npx …`, `sh -c 'npx …'`), downloads what is
/// missing.
pub(super) fn runs_downloader(command: &str, args: &[String]) -> bool {
    let program = command.rsplit('/').next().unwrap_or(command);
    if WRAPPERS.contains(&program) {
        // A script is one argument, so its words are separated.
        let is_separator = |c: char| c.is_whitespace() || ";&|()'\"".contains(c);
        let words: Vec<String> = args.iter().flat_map(|arg| arg.split(is_separator)).map(str::to_owned).collect();
        return (0..words.len()).any(|at| match words.get(at..) {
            Some([word, rest @ ..]) => downloads(word, rest),
            Some([]) | None => false,
        });
    }
    downloads(program, args)
}

/// Whether this program downloads what is missing if it is started with these arguments.
fn downloads(command: &str, args: &[String]) -> bool {
    let program = command.rsplit('/').next().unwrap_or(command);
    let downloads_with =
        |(known, verbs): &(&str, &[&str])| *known == program && args.iter().any(|arg| verbs.contains(&arg.as_str()));
    DOWNLOADERS.contains(&program) || DOWNLOADING_COMMANDS.iter().any(downloads_with)
}
