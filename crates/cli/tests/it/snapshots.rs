//! What every command prints, recorded in `tests/snapshots/*.txt`.
//!
//! Each file is a session of one test user. A line that begins with `$ ` is a command, and what follows it is its
//! recorded output: lines of standard output, lines of standard error after `! `, and the exit code after `= ` unless it
//! is 0. Other lines before a command:
//!
//! - `# text`: a comment.
//! - `@ write PATH TEXT`: writes a file; `{root}` is the user's folder, and `\n` a line break.
//! - `@ cell CODE`: runs a cell in `cellmate mcp`; `{run}` and `{approval}` are its ids in later commands.
//! - `< TEXT`: the standard input of the next command.
//!
//! `{token}` is the id of the first HTTP token that a command has shown.
//!
//! A command may begin with `NAME=value` variables, such as `COLUMNS=60` for a narrow terminal, and with `tty` to run on
//! a terminal; otherwise it has none. With `| head N` at its end, only N lines of its output are recorded. To record the output of new commands, add their `$ ` lines and run the tests with
//! `CELLMATE_UPDATE_SNAPSHOTS=1`; then read the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::person::{Person, exec_over_streams};
use crate::terminal::commands;

/// The user's configuration file, in the test's folder.
const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

/// The configuration that each session begins with.
const CONFIG: &str = "{
  // The servers of the test user.
  mcpServers: {
    greeter: { command: 'sh', args: ['{root}/server.sh'], env: { TOKEN: '${SECRET}' } },
    broken: { command: 'sh', args: ['{root}/server.sh', 'fail'] },
    off: { command: 'sh', args: ['{root}/server.sh'], enabled: false },
  },
  tools: { deny: ['mcp:greeter:other'] },
}
";

/// A user's folder is `/tmp/cmXXXXXX`. It is shown as another path of the same length, so that tables stay aligned.
const FOLDER_PREFIX: &str = "/tmp/cm";
const SHOWN_FOLDER: &str = "/tmp/cellmate";

struct Session {
    person: Person,
    root: String,
    names: BTreeMap<&'static str, String>,
}

impl Session {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("cm").rand_bytes(6).tempdir_in("/tmp").unwrap();
        let root = folder.path().display().to_string();
        assert_eq!(root.len(), SHOWN_FOLDER.len());
        let person = Person::in_folder(folder);
        person.write(USER_CONFIG, &CONFIG.replace("{root}", &root));
        Self { person, root, names: BTreeMap::new() }
    }

    fn expanded(&self, text: &str) -> String {
        let text = text.replace("{root}", &self.root);
        self.names.iter().fold(text, |text, (name, id)| text.replace(&format!("{{{name}}}"), id))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.person.path("project")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.person.path("home"));
        command.env("SECRET", "hunter2-is-secret").env("USER", "ada");
        command
    }

    fn directive(&mut self, text: &str) {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("write", rest) => {
                let (path, content) = rest.split_once(' ').unwrap_or((rest, ""));
                self.person.write(path, &self.expanded(content).replace("\\n", "\n"));
            }
            ("cell", code) => self.run_cell(code),
            other => panic!("unknown directive {other:?}"),
        }
    }

    /// Runs a cell in `cellmate mcp` until it ends or waits, and remembers the ids of the run and its first approval.
    fn run_cell(&mut self, code: &str) {
        let mut server = self.command(env!("CARGO_BIN_EXE_cellmate"));
        let server = server.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = server.spawn().unwrap();
        let answer = exec_over_streams(&mut child, code).to_string();
        child.wait().unwrap();
        for (name, prefix) in [("run", "cm_"), ("approval", "apr_")] {
            if let Some(id) = words_of(&answer).find(|word| word.starts_with(prefix)) {
                self.names.insert(name, id.to_owned());
            }
        }
    }

    /// Runs a command line and returns what is recorded of it.
    fn run(&mut self, line: &str, input: &str) -> String {
        let (mut variables, mut is_terminal, mut words) = (Vec::new(), false, Vec::new());
        for word in split(&self.expanded(line)) {
            match word.split_once('=') {
                Some((name, value)) if words.is_empty() => variables.push((name.to_owned(), value.to_owned())),
                _ if words.is_empty() && word == "tty" => is_terminal = true,
                _ => words.push(word),
            }
        }
        assert_eq!(words.first().map(String::as_str), Some("cellmate"), "{line}");
        let mut arguments = words.split_off(1);
        let head = arguments.iter().position(|word| word == "|").map(|pipe| arguments.split_off(pipe));
        let most: Option<usize> = head.map(|words| words[2].parse().unwrap());
        let program = env!("CARGO_BIN_EXE_cellmate");
        let mut command = if is_terminal {
            let quoted = arguments.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
            let line = format!("stty cols 80; '{program}' {}", quoted.collect::<Vec<_>>().join(" "));
            let mut command = self.command("script");
            command.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm");
            command
        } else {
            let mut command = self.command(program);
            command.args(&arguments);
            command
        };
        command.envs(variables).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may have exited already.
        drop(child.stdin.take().unwrap().write_all(self.expanded(input).as_bytes()));
        let output = child.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if let Some(id) = words_of(&out).chain(words_of(&err)).find(|word| word.starts_with("tok_")) {
            self.names.entry("token").or_insert_with(|| id.to_owned());
        }
        let text = |bytes: &[u8]| normalised(&String::from_utf8_lossy(bytes).replace("\r\n", "\n"));
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let mut recorded = match most {
            Some(most) => out.lines().take(most).map(|line| format!("{line}\n")).chain(["…\n".to_owned()]).collect(),
            None => out,
        };
        if !recorded.is_empty() && !recorded.ends_with('\n') {
            recorded.push_str("⏎\n");
        }
        err.lines().for_each(|line| recorded += &format!("! {line}\n"));
        match output.status.code() {
            Some(0) => {}
            code => recorded += &format!("= {}\n", code.map_or_else(|| "signal".to_owned(), |code| code.to_string())),
        }
        assert!(!recorded.contains("hunter2"), "{line} prints a secret:\n{recorded}");
        recorded
    }
}

/// Splits a command line at blanks outside quotes.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut any) = (Vec::new(), String::new(), None, false);
    for letter in line.chars() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => (quote, any) = (Some(letter), true),
            (' ', None) => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            _ => {
                word.push(letter);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter| !is_word(letter)).filter(|word| !word.is_empty())
}

/// Replaces what differs from run to run: the folder, ids, hashes, times and the commit.
fn normalised(text: &str) -> String {
    let text = text.replace(env!("CARGO_BIN_EXE_cellmate"), "/usr/bin/cellmate").replace('\u{1b}', "␛");
    // A program that was built without a repository has no commit.
    let bare = concat!("cellmate ", env!("CARGO_PKG_VERSION"), "\n");
    let text = if text == bare { format!("{} (0)\n", bare.trim_end()) } else { text };
    let text = text.replace(concat!("cellmate ", env!("CARGO_PKG_VERSION"), " ("), "cellmate VERSION (");
    // What depends on the kernel.
    let text = text.replace("not supported: suspending is faster with Linux 6.7 or later", "supported");
    let text = text.replace("\"pageScan\":false", "\"pageScan\":true");
    let text = text.replace("; before Linux 6.12, they can send signals to your other processes", "");
    let text = shown_folder(&without_durations(&without_tokens(&text)));
    let mut shown = String::new();
    let mut rest = text.as_str();
    while let Some(letter) = rest.chars().next() {
        if !is_word(letter) {
            shown.push(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        }
        let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        shown += &shown_word(&shown, word, after);
        rest = after;
    }
    // The fraction of a number that was replaced.
    let mut whole = shown;
    for digit in '0'..='9' {
        while let Some(at) = whole.find(&format!("N.{digit}")) {
            let end =
                whole[at + 2..].find(|letter: char| !letter.is_ascii_digit()).map_or(whole.len(), |end| at + 2 + end);
            whole.replace_range(at + 1..end, "");
        }
    }
    whole.replace("N.N", "N").replace("N ms ago", "N ago").replace("N s ago", "N ago")
}

/// Replaces the secrets of HTTP tokens: `cm_` and 43 characters, some of which are not part of words.
fn without_tokens(text: &str) -> String {
    const LETTERS: usize = 43;
    let mut parts = text.split("cm_");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_secret = |letter: char| is_word(letter) || letter == '-';
        let length = part.find(|letter| !is_secret(letter)).unwrap_or(part.len());
        shown += if length == LETTERS { "cm_SECRET" } else { "cm_" };
        shown += if length == LETTERS { &part[length..] } else { part };
    }
    shown
}

/// Removes the times in the telemetry of results.
fn without_durations(text: &str) -> String {
    let mut parts = text.split("\"durationMs\":{");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown += "\"durationMs\":{";
        shown += part.find('}').map_or(part, |end| &part[end..]);
    }
    shown
}

fn shown_folder(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(FOLDER_PREFIX) {
        let random = after.chars().take(6).take_while(char::is_ascii_alphanumeric).count();
        shown += before;
        shown += &SHOWN_FOLDER[..FOLDER_PREFIX.len() + random];
        rest = &after[random..];
    }
    shown + rest
}

fn shown_word(before: &str, word: &str, after: &str) -> String {
    if let Some((_, name)) = word.strip_prefix("out_cm_").and_then(|rest| rest.split_once('_')) {
        return format!("out_cm_ID_{name}");
    }
    for prefix in ["cm_", "apr_", "rule_", "inc_", "tok_"] {
        if word.starts_with(prefix) && word.len() > prefix.len() + 8 {
            return format!("{prefix}ID");
        }
    }
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fraction = after.strip_prefix('.').map_or(0, |rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 { digits + 1 } else { 0 }
    });
    let unit = &after[fraction..];
    let has_unit = [" ms", " s)", " s ", " s\n", " us"].iter().any(|one| unit.starts_with(one));
    let is_key_of_time =
        ["\"ms\":", "StartMs\":", "At\":", "\"at\":", "\"us\":"].iter().any(|key| before.ends_with(key));
    if is_hex && word.len() >= 32 {
        "HASH".to_owned()
    } else if before.ends_with("cellmate VERSION (") {
        "COMMIT".to_owned()
    } else if is_number && (word.len() >= 13 || has_unit || is_key_of_time || before.ends_with("N.")) {
        "N".to_owned()
    } else {
        word.to_owned()
    }
}

/// One command of a file, with the lines before it.
#[derive(Debug, Default)]
struct Case {
    /// Comments, directives and input.
    before: Vec<String>,
    line: String,
    recorded: String,
}

fn parse(text: &str) -> (Vec<Case>, Vec<String>) {
    let (mut cases, mut before): (Vec<Case>, Vec<String>) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            cases.push(Case { before: std::mem::take(&mut before), line: command.to_owned(), recorded: String::new() });
        } else if line.starts_with("# ") || line.starts_with("@ ") || line.starts_with("< ") {
            before.push(line.to_owned());
        } else if let Some(case) = cases.last_mut() {
            case.recorded += &format!("{line}\n");
        }
    }
    (cases, before)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

/// Runs a file's session. Returns it with the output of now, and the commands whose output differs.
fn replay(text: &str) -> (String, Vec<String>) {
    let mut session = Session::new();
    let (mut now, mut differences) = (String::new(), Vec::new());
    let (cases, left) = parse(text);
    assert!(left.is_empty(), "lines without a command: {left:?}");
    for case in cases {
        let mut input = String::new();
        for line in &case.before {
            now += &format!("{line}\n");
            match line.split_at(2) {
                ("@ ", directive) => session.directive(directive),
                ("< ", text) => input += &format!("{text}\n"),
                _ => {}
            }
        }
        let output = session.run(&case.line, &input);
        // Lines that would be read as part of the next case are marked.
        let output: String = output.lines().map(|line| format!("{}\n", escaped(line))).collect();
        if comparable(&output) != comparable(&case.recorded) {
            differences.push(format!("$ {}\n--- recorded\n{}\n+++ now\n{output}", case.line, case.recorded.trim_end()));
        }
        now += &format!("$ {}\n{output}\n", case.line);
    }
    (format!("{}\n", now.trim_end()), differences)
}

/// Returns the lines of an output. Servers that start together finish in any order, so if there are lines of progress
/// (`[1/2] greeter: …`), the lines are sorted, without the numbers.
fn comparable(output: &str) -> Vec<String> {
    let mut has_progress = false;
    let mut lines: Vec<String> = output
        .trim_end()
        .lines()
        .map(|line| match line.split_once("] ") {
            Some((number, rest)) if number.contains('[') && number.ends_with("/2") => {
                has_progress = true;
                rest.to_owned()
            }
            _ => line.to_owned(),
        })
        .collect();
    if has_progress {
        lines.sort();
    }
    lines
}

fn escaped(line: &str) -> String {
    let special = ["$ ", "# ", "@ ", "< "].iter().any(|mark| line.starts_with(mark));
    if special { format!("\\{line}") } else { line.trim_end().to_owned() }
}

fn check(name: &str) {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let (now, differences) = replay(&text);
    if std::env::var_os("CELLMATE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, now).unwrap();
        return;
    }
    let hint = "run with CELLMATE_UPDATE_SNAPSHOTS=1 to record what the commands print now";
    assert!(differences.is_empty(), "{}: {hint}\n{}", path.display(), differences.join("\n"));
}

#[test]
fn commands_print_what_is_recorded() {
    // Sessions are independent, and most of their time is spent waiting for processes.
    let files = files();
    assert!(files.len() >= 10, "{files:?}");
    let names: Vec<String> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads = names.chunks(names.len().div_ceil(3)).map(|chunk| {
            scope.spawn(move || {
                let checked = chunk.iter().filter_map(|name| {
                    let panic = std::panic::catch_unwind(|| check(name)).err()?;
                    Some(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| format!("{name} failed")))
                });
                checked.collect::<Vec<String>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// What is recorded of each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Help,
    Success,
    Failure,
    Json,
    NarrowTerminal,
    NoTerminal,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Help, Self::Success, Self::Failure, Self::Json, Self::NarrowTerminal, Self::NoTerminal];

    /// Returns the kinds that a case is an example of. The words before the program's name are its environment.
    fn of(environment: &[String], arguments: &[String], recorded: &str) -> BTreeSet<Self> {
        let has = |flag: &str| arguments.iter().any(|word| word == flag);
        let columns = environment.iter().find_map(|word| word.strip_prefix("COLUMNS="));
        let mut kinds = BTreeSet::new();
        if columns.is_some_and(|columns| columns.parse::<u16>().unwrap() <= 60) {
            kinds.insert(Self::NarrowTerminal);
        }
        if has("--help") {
            kinds.insert(Self::Help);
            return kinds;
        }
        let failed = recorded.lines().any(|line| line.starts_with("= "));
        kinds.insert(if failed { Self::Failure } else { Self::Success });
        if has("--json") {
            kinds.insert(Self::Json);
        }
        if environment.iter().all(|word| word != "tty") {
            kinds.insert(Self::NoTerminal);
        }
        kinds
    }
}

/// The kinds that a command cannot have, and why.
const IMPOSSIBLE: [(&str, Kind, &str); 4] = [
    ("gateway", Kind::Success, "it serves until it is stopped; `tests/it/gateway` starts it"),
    ("gateway", Kind::Json, "it has no result to print"),
    ("mcp", Kind::Json, "its standard output is the protocol"),
    ("servers login", Kind::Success, "it needs a browser and a server with a login; `mcp`'s tests of logins have both"),
];

#[test]
fn every_command_has_a_recording_of_every_kind() {
    let commands: Vec<Vec<String>> = commands(&[]);
    let mut recorded: BTreeMap<&[String], BTreeSet<Kind>> = BTreeMap::new();
    for file in files() {
        let (cases, _) = parse(&std::fs::read_to_string(file).unwrap());
        for case in cases {
            let words = split(&case.line);
            let program = words.iter().position(|word| word == "cellmate").unwrap();
            let (environment, arguments) = (&words[..program], &words[program + 1..]);
            if let Some(command) = commands.iter().find(|command| arguments.starts_with(command)) {
                recorded.entry(command).or_default().extend(Kind::of(environment, arguments, &case.recorded));
            }
        }
    }
    let mut missing = Vec::new();
    for command in &commands {
        let shown = command.join(" ");
        let has = |kind: Kind| recorded.get(command.as_slice()).is_some_and(|kinds| kinds.contains(&kind));
        for kind in Kind::ALL {
            let is_impossible = IMPOSSIBLE.iter().any(|(name, which, _)| (*name, *which) == (shown.as_str(), kind));
            assert!(!(is_impossible && has(kind)), "cellmate {shown} has a recording of {kind:?}: update IMPOSSIBLE");
            if !is_impossible && !has(kind) {
                missing.push(format!("cellmate {shown}: {kind:?}"));
            }
        }
    }
    let unknown = IMPOSSIBLE.iter().find(|(name, ..)| commands.iter().all(|command| command.join(" ") != *name));
    assert!(unknown.is_none(), "no such command: {unknown:?}");
    assert!(missing.is_empty(), "add these to tests/snapshots/*.txt: {missing:#?}");
}

#[test]
fn what_differs_from_run_to_run_is_replaced() {
    let cases = [
        ("ok greeter: 2 tools in 31 ms, MCP", "ok greeter: 2 tools in N ms, MCP"),
        ("{\"ms\":12.25,\"tools\":2}", "{\"ms\":N,\"tools\":2}"),
        ("worker start   101.3 ms", "worker start   N ms"),
        ("/tmp/cmAb12Cd/home", "/tmp/cellmate/home"),
        ("/tmp/cmAb…", "/tmp/cell…"),
        ("cm_0123456789abcdef waits", "cm_ID waits"),
        ("out_cm_0123456789abcdef_l0n1 is text", "out_cm_ID_l0n1 is text"),
        ("page scan      not supported: suspending is faster with Linux 6.7 or later", "page scan      supported"),
        (concat!("cellmate ", env!("CARGO_PKG_VERSION"), " (0123456789)\n"), "cellmate VERSION (COMMIT)\n"),
        (concat!("cellmate ", env!("CARGO_PKG_VERSION"), "\n"), "cellmate VERSION (COMMIT)\n"),
        ("backups/1790000000000-config", "backups/N-config"),
        ("started 3 ms ago\nstarted 1 s ago at +0.001 s\n", "started N ago\nstarted N ago at +N s\n"),
        ("timeout of 10000", "timeout of 10000"),
        ("{\"durationMs\":{\"total\":12}}", "{\"durationMs\":{}}"),
        ("{\"timeoutMs\":10000}", "{\"timeoutMs\":10000}"),
        ("\u{1b}[1mNAME", "␛[1mNAME"),
        ("version 0.1.0", "version 0.1.0"),
        ("cm_-123456789-123456789_123456789-123456789-12\n", "cm_SECRET\n"),
        ("tok_0123456789abcdef for", "tok_ID for"),
    ];
    for (text, expected) in cases {
        assert_eq!(normalised(text), expected);
    }
}
