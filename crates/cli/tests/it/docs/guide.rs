//! The documentation is true: its links lead somewhere, its commands exist, and those of the guide are executed.
//!
//! Code blocks of the pages in [`EXECUTED`] are run in a folder of a test user:
//!
//! - `sh`: one command per line, without a terminal. Each must exit with 0, or as [`EXITS`] says.
//! - `console`: lines that begin with `$ ` are commands, and the lines after each are what it prints. `…` stands for any
//!   text, and a line of it for any lines. `console terminal` runs them on a terminal.
//!
//! Words such as `RUN` stand for ids of the test user's runs. Commands that need the network are executed by the scripts
//! in [`ELSEWHERE`].

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::person::{Person, exec_over_streams};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Pages whose code blocks this test executes, beside those in `docs/guide/clients`.
const EXECUTED: [&str; 13] = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/README.md",
    "docs/guide/clients.md",
    "docs/guide/core-tools.md",
    "docs/guide/durability.md",
    "docs/guide/mcp.md",
    "docs/guide/operations.md",
    "docs/guide/plugins.md",
    "docs/guide/security.md",
    "docs/guide/surfaces.md",
    "docs/internals/search.md",
    "docs/reference/configuration.md",
];

/// Pages whose commands a script executes, with the script. Their lines may be repeated on other pages.
const ELSEWHERE: [(&str, &str); 4] = [
    ("docs/guide/embedding.md", "scripts/peers/embedding_guide.py"),
    ("docs/guide/gateway.md", "scripts/peers/gateway_guide.py"),
    ("docs/guide/install.md", "scripts/dist-check"),
    ("docs/guide/start.md", "scripts/peers/start.py"),
];

/// Exit codes other than 0, by the beginning of the command.
const EXITS: [(&str, i32); 2] = [("cellmate wait RUN", 3), ("cellmate runs fork RUN", 3)];

/// Commands that run until they are ended, by their beginning, and what they print first.
const ENDLESS: [(&str, &str); 2] = [("cellmate mcp --http", "/mcp"), ("cellmate logs --follow", "")];

/// Commands that use up an approval or a run, by their beginning: each has a test user of its own.
const CONSUMING: [&str; 6] = [
    "cellmate approvals approve ",
    "cellmate approvals deny ",
    "cellmate approvals rules revoke ",
    "cellmate runs cancel ",
    "cellmate runs rm ",
    "cellmate runs fork ",
];

/// What replaces parts of a command that name other machines, files of the system or a terminal.
const REPLACED: [(&str, &str); 7] = [
    ("postgres://cellmate:secret@db.example/cellmate?sslmode=verify-full", "{root}/shared.db"),
    ("/etc/cellmate/keys", "{root}/keys"),
    ("cellmate mcp --http", "cellmate mcp --http 127.0.0.1:0"),
    ("cellmate secrets set", "printf not-a-secret | cellmate secrets set"),
    ("cellmate tools rank", r#"echo '{"qid": "1", "query": "issue"}' | cellmate tools rank"#),
    ("cellmate runs rm RUN", "cellmate runs rm STORED --yes"),
    ("cellmate runs output RUN", "cellmate runs output STORED"),
];

/// What stands for ids and names of the test user.
const PLACEHOLDERS: [&str; 12] = [
    "rule_apr_…",
    "apr_…",
    "cm_…",
    "tok_0123456789abcdef",
    "RUN",
    "STORED",
    "OUTPUT",
    "SESSION",
    "KEY",
    "FILE",
    " --at N",
    "{root}",
];

/// Commands that are not run here. That their targets and files exist is checked by another test.
const NOT_RUN: [&str; 5] = ["make ", "cargo ", "scripts/", "git ", "target/debug/with-postgres "];

/// An MCP server that finds and closes issues.
const ISSUES: &str = r#"reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) reply '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"issues","version":"1"}}' ;;
    *'"method":"tools/list"'*) reply '{"tools":[{"name":"find","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}},{"name":"close","inputSchema":{"type":"object"}},{"name":"comment","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"find"'*) reply '{"content":[],"structuredContent":{"open":[17,21]}}' ;;
    *'"name":"close"'*) reply '{"content":[],"structuredContent":{"closed":true}}' ;;
  esac
done
"#;
const CONFIG: &str = "{
  mcpServers: { issues: { command: 'sh', args: ['{root}/issues.sh'], trusted: true } },
  approvals: { nonInteractive: true },
}
";
/// The cell whose record docs/guide/durability.md shows. It waits for an approval.
const WAITING: &str = r#"const { structuredContent: { open } } = await MCP.issues.find({ label: "stale" });
text(`${open.length} stale`);
const done = await MCP.issues.close({ number: open[0] });
return done.structuredContent;"#;
/// A cell that stores an output and a value of its session.
const STORED: &str = "await store('seen', [17]); return 'x'.repeat(100000)";

#[test]
fn every_link_of_the_documentation_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let mut problems = Vec::new();
    for (name, text) in &pages {
        for (line, target) in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = Path::new(name).parent().unwrap();
            let file = if path.is_empty() { PathBuf::from(name) } else { normal(&folder.join(path)) };
            let found = Path::new(ROOT).join(&file);
            if !found.exists() {
                problems.push(format!("{name}:{line}: no file {}", file.display()));
            } else if !anchor.is_empty()
                && let Some(page) = pages.get(&file.display().to_string())
                && !anchors(page).contains(anchor)
            {
                problems.push(format!("{name}:{line}: {} has no heading #{anchor}", file.display()));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_command_that_the_documentation_names_exists() {
    let help = Help::default();
    let makefile = std::fs::read_to_string(Path::new(ROOT).join("Makefile")).unwrap();
    let mut problems = Vec::new();
    for (name, text) in &pages() {
        for (line, command) in named_commands(text) {
            let words = words(&command);
            let problem = match words.first().map(String::as_str) {
                Some("cellmate" | "target/debug/cellmate" | "target/release/cellmate") => help.problem(&words[1..]),
                Some("make") => words.get(1).and_then(|target| {
                    let known = target.contains(|letter: char| !letter.is_ascii_lowercase() && letter != '-')
                        || makefile.contains(&format!("\n{target}:"));
                    (!known).then(|| format!("the Makefile has no target `{target}`"))
                }),
                Some(script) if script.starts_with("scripts/") && !script.contains(['*', '…']) => {
                    (!Path::new(ROOT).join(script).exists()).then(|| "no such file".to_owned())
                }
                _ => None,
            };
            if let Some(problem) = problem {
                problems.push(format!("{name}:{line}: `{command}`: {problem}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_command_of_the_guide_works() {
    let pages = pages();
    let mut elsewhere = BTreeSet::new();
    for (page, script) in ELSEWHERE {
        let Some(text) = pages.get(page) else { continue };
        assert!(Path::new(ROOT).join(script).exists(), "{script} is missing");
        let blocks = fences(text).filter(|fence| fence.is("sh"));
        elsewhere.extend(blocks.flat_map(|fence| fence.lines).map(without_comment));
    }
    let mut problems = Vec::new();
    for (name, text) in &pages {
        let is_guide = name.starts_with("docs/guide/") || EXECUTED.contains(&name.as_str());
        if !is_guide || ELSEWHERE.iter().any(|(page, _)| page == name) {
            continue;
        }
        let blocks: Vec<_> = fences(text).filter(|fence| fence.is("sh") || fence.is("console")).collect();
        if blocks.is_empty() {
            continue;
        }
        let is_executed = EXECUTED.contains(&name.as_str()) || name.starts_with("docs/guide/clients/");
        if !is_executed {
            problems.push(format!("{name} has commands that nothing executes; add it to EXECUTED or ELSEWHERE"));
            continue;
        }
        let session = Session::new();
        for fence in blocks {
            let found =
                if fence.is("sh") { session.run_lines(&fence, &elsewhere) } else { session.run_console(&fence) };
            problems.extend(found.into_iter().map(|problem| format!("{name}:{}: {problem}", fence.line)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn the_picture_of_a_terminal_shows_what_the_commands_print() {
    let mut script = Command::new(Path::new(ROOT).join("scripts/terminal-picture"));
    let output = script.arg("--check").env("CELLMATE_PROGRAM", env!("CARGO_BIN_EXE_cellmate")).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
}

/// What a command's standard streams are.
#[derive(Clone, Copy)]
enum Streams {
    Pipes,
    Terminal,
}

/// A test user with a server.
struct Session {
    person: Person,
    /// The answer of the run that waits for an approval, if a command needed it.
    waiting: OnceCell<String>,
    /// The answer of the run that stored an output, if a command needed it.
    stored: OnceCell<String>,
}

impl Session {
    fn new() -> Self {
        let session = Self { person: Person::new(), waiting: OnceCell::new(), stored: OnceCell::new() };
        session.person.write("issues.sh", ISSUES);
        session.person.write("project/tools.jsonl", "{\"id\": \"mcp:issues:find\", \"name\": \"find\"}\n");
        session.person.write("home/.config/cellmate/config.json5", &CONFIG.replace("{root}", &session.root()));
        for folder in ["examples", "plugins"] {
            let link = session.person.path("project").join(folder);
            std::os::unix::fs::symlink(Path::new(ROOT).join(folder), link).unwrap();
        }
        session
    }

    fn root(&self) -> String {
        self.person.path("").display().to_string().trim_end_matches('/').to_owned()
    }

    /// Returns what a placeholder stands for.
    fn value(&self, placeholder: &str) -> String {
        let waiting = || self.waiting.get_or_init(|| self.cell(WAITING));
        let output = || find(self.stored.get_or_init(|| self.cell(STORED)), "out_cm_");
        match placeholder {
            "rule_apr_…" => self.standing_approval(),
            "apr_…" => find(waiting(), "apr_"),
            "cm_…" | "RUN" => find(waiting(), "cm_"),
            "tok_0123456789abcdef" => find(&self.person.run(&["tokens", "create", "old", "--json"]).out, "tok_"),
            "STORED" => output().trim_start_matches("out_").split("_l").next().unwrap_or_default().to_owned(),
            "OUTPUT" => output(),
            "SESSION" => "mcp:local".to_owned(),
            "KEY" => "seen".to_owned(),
            "FILE" => "written.txt".to_owned(),
            " --at N" => " --at 1".to_owned(),
            "{root}" => self.root(),
            other => panic!("nothing stands for {other}"),
        }
    }

    /// Approves a call of another run for good, and returns the id of the rule.
    fn standing_approval(&self) -> String {
        let run = self.cell("return await MCP.issues.comment({ number: 1 })");
        let approved = self.person.run(&["approvals", "approve", &find(&run, "apr_"), "--always"]);
        assert_eq!(approved.code, 0, "{}", approved.err);
        let ended = self.person.run(&["runs", "cancel", &find(&run, "cm_")]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let rules = self.person.run(&["approvals", "rules", "list", "--json"]);
        find(&rules.out, "rule_apr_")
    }

    /// Runs a cell in `cellmate mcp` and returns the answer.
    fn cell(&self, code: &str) -> String {
        let mut command = self.person.command(&["mcp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let answer: Value = exec_over_streams(&mut child, code);
        child.wait().unwrap();
        answer.to_string()
    }

    /// Returns a shell that runs this line of the documentation.
    fn shell(&self, line: &str, variables: &[(String, String)], streams: Streams) -> Command {
        let line = self.expanded(line);
        let mut path = std::ffi::OsString::from(Path::new(env!("CARGO_BIN_EXE_cellmate")).parent().unwrap());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let mut shell = match streams {
            Streams::Terminal => Command::new("script"),
            Streams::Pipes => Command::new("sh"),
        };
        match streams {
            Streams::Terminal => shell.args(["-qefc", &format!("stty cols 100; {line}"), "/dev/null"]),
            Streams::Pipes => shell.args(["-c", &line]),
        };
        shell
            .env_clear()
            .env("HOME", self.person.path("home"))
            .env("PATH", path)
            .env("NO_COLOR", "1")
            .env("TERM", "dumb");
        shell.current_dir(self.person.path("project"));
        shell.envs(variables.iter().map(|(name, value)| (name, value)));
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell
    }

    /// Returns a line with what its placeholders stand for.
    fn expanded(&self, line: &str) -> String {
        let line = REPLACED.iter().fold(line.to_owned(), |line, (text, other)| line.replace(text, other));
        PLACEHOLDERS.iter().fold(line, |line, name| match line.contains(name) {
            true => line.replace(name, &self.value(name)),
            false => line,
        })
    }

    /// Runs the commands of an `sh` block and returns the problems.
    fn run_lines(&self, fence: &Fence<'_>, elsewhere: &BTreeSet<&str>) -> Vec<String> {
        let (mut problems, mut variables) = (Vec::new(), Vec::new());
        for line in fence.lines.iter().map(|line| without_comment(line)).filter(|line| !line.is_empty()) {
            if let Some((name, value)) = line.strip_prefix("export ").and_then(|rest| rest.split_once('=')) {
                variables.push((name.to_owned(), self.expanded(value)));
                continue;
            }
            if elsewhere.contains(line) || NOT_RUN.iter().any(|start| line.starts_with(start)) {
                continue;
            }
            let own = CONSUMING.iter().any(|start| line.starts_with(start)).then(Self::new);
            let mut shell = own.as_ref().unwrap_or(self).shell(&with_confirmation(line), &variables, Streams::Pipes);
            if let Some((_, shown)) = ENDLESS.iter().find(|(start, _)| line.starts_with(start)) {
                problems.extend(run_until(&mut shell, shown).map(|problem| format!("`{line}`: {problem}")));
                continue;
            }
            let output = shell.output().unwrap();
            let expected = EXITS.iter().find(|(start, _)| line.starts_with(start)).map_or(0, |(_, code)| *code);
            if output.status.code() != Some(expected) {
                problems.push(format!("`{line}` exits with {:?}:\n{}", output.status.code(), shown(&output)));
            }
        }
        problems
    }

    /// Runs the commands of a `console` block, compares what they print, and returns the problems.
    fn run_console(&self, fence: &Fence<'_>) -> Vec<String> {
        let mut problems = Vec::new();
        let streams = if fence.info.contains("terminal") { Streams::Terminal } else { Streams::Pipes };
        let mut lines = fence.lines.iter().peekable();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("$ ") else { continue };
            let mut expected = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                expected.push(*line);
            }
            let command = without_comment(command);
            let merged = format!("{{ {command}; }} 2>&1");
            let printed = shown(&self.shell(&merged, &[], streams).output().unwrap());
            let printed: Vec<&str> = printed.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
            expected.retain(|line| !line.is_empty());
            if !matches(&expected, &printed) {
                problems.push(format!("`{command}` prints\n{}\nand not\n{}", printed.join("\n"), expected.join("\n")));
            }
        }
        problems
    }
}

/// Returns a command with the flag that confirms it, because there is no terminal.
fn with_confirmation(line: &str) -> String {
    // Flags in brackets are optional; they are tried, too.
    let line = if line.contains("[--") { line.replace("[--", "--").replace(']', "") } else { line.to_owned() };
    let asks = ["cellmate connect ", "cellmate disconnect ", "cellmate plugins add ", "cellmate plugins remove "];
    let confirmed =
        asks.iter().any(|start| line.starts_with(start)) && !line.contains("--dry-run") && !line.contains("--yes");
    if confirmed { format!("{line} --yes") } else { line }
}

/// Starts a command, ends it when it has printed this text, and returns a problem if it ends before.
fn run_until(shell: &mut Command, text: &str) -> Option<String> {
    // A group of its own: the shell does not pass a signal on to the command.
    let mut child = shell.process_group(0).spawn().unwrap();
    let mut printed = String::new();
    if !text.is_empty() {
        for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
            printed += &line;
            if line.contains(text) {
                break;
            }
        }
    }
    let ended = child.try_wait().unwrap();
    let group = Pid::from_child(&child);
    // The command may have ended.
    let _gone = kill_process_group(group, Signal::KILL);
    child.wait().unwrap();
    match ended {
        None if printed.contains(text) => None,
        _ => Some(format!("ends, or does not print {text}: {printed}")),
    }
}

fn shown(output: &std::process::Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let text = text(&output.stdout) + &text(&output.stderr);
    text.lines().map(|line| line.rsplit('\r').next().unwrap_or(line).to_owned() + "\n").collect()
}

/// Whether lines are as expected. `…` stands for any text, and a line of it for any lines.
fn matches(expected: &[&str], printed: &[&str]) -> bool {
    match (expected, printed) {
        ([], printed) => printed.is_empty(),
        (["…"], _) => true,
        (["…", rest @ ..], printed) => (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..])),
        ([line, rest @ ..], [other, others @ ..]) => line_matches(line, other) && matches(rest, others),
        (_, []) => false,
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns the first word of a text that begins with this prefix.
fn find(text: &str, prefix: &str) -> String {
    let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.find(|word| word.starts_with(prefix)).unwrap_or_else(|| panic!("no {prefix} in {text}")).to_owned()
}

/// What `--help` lists, by command.
#[derive(Default)]
struct Help {
    known: RefCell<BTreeMap<Vec<String>, Listed>>,
}

#[derive(Clone, Default)]
struct Listed {
    commands: BTreeSet<String>,
    flags: BTreeSet<String>,
}

impl Help {
    /// Returns what is wrong with the arguments of `cellmate`.
    fn problem(&self, arguments: &[String]) -> Option<String> {
        let mut path: Vec<String> = Vec::new();
        let mut is_command_expected = true;
        for word in arguments {
            let word = word.trim_start_matches('[').trim_end_matches(']');
            if word == "--" || word.contains('…') {
                return None;
            }
            let listed = self.listed(&path);
            if word.starts_with('-') {
                let flag = word.split('=').next().unwrap_or(word);
                if !listed.flags.contains(flag) {
                    return Some(format!("`cellmate {}` has no flag `{flag}`", path.join(" ")));
                }
            } else if is_command_expected && !listed.commands.is_empty() {
                let names: Vec<&str> = word.split('|').map(|name| name.trim_end_matches('\\')).collect();
                // A word in capitals stands for any command.
                if names.iter().any(|name| name.chars().all(|letter| letter.is_ascii_uppercase())) {
                    return None;
                }
                if let Some(unknown) = names.iter().find(|name| !listed.commands.contains(**name)) {
                    return Some(format!("`cellmate {}` has no command `{unknown}`", path.join(" ")));
                }
                if names.len() > 1 {
                    return None;
                }
                path.push(word.to_owned());
            } else {
                is_command_expected = false;
            }
        }
        None
    }

    fn listed(&self, path: &[String]) -> Listed {
        self.known.borrow_mut().entry(path.to_vec()).or_insert_with(|| read_help(path)).clone()
    }
}

fn read_help(path: &[String]) -> Listed {
    let output = Command::new(env!("CARGO_BIN_EXE_cellmate")).args(path).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let mut listed = Listed::default();
    if let Some((_, text)) = help.split_once("Commands:\n") {
        let lines = text.lines().take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
        listed.commands = lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    }
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        let flags = line.split([' ', ',']).take_while(|word| word.is_empty() || word.starts_with('-'));
        listed.flags.extend(flags.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    listed
}

/// A code block: what follows its fence, the number of its first line, and its lines.
struct Fence<'a> {
    info: &'a str,
    line: usize,
    lines: Vec<&'a str>,
}

impl Fence<'_> {
    fn is(&self, language: &str) -> bool {
        self.info.split(' ').next() == Some(language)
    }
}

fn fences(text: &str) -> impl Iterator<Item = Fence<'_>> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (line, info) = lines.find_map(|(line, text)| Some((line, text.trim_start().strip_prefix("```")?)))?;
        let inside = lines.by_ref().map(|(_, text)| text).take_while(|text| text.trim_start() != "```").collect();
        Some(Fence { info, line: line + 2, lines: inside })
    })
}

/// Returns the lines outside code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((number + 1, line))
    })
}

/// Returns the code spans of a line, and the text without them.
fn spans(line: &str) -> (Vec<&str>, String) {
    let (mut found, mut text, mut rest) = (Vec::new(), String::new(), line);
    while let Some(start) = rest.find('`') {
        text += &rest[..start];
        let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
        let inside = &rest[start + ticks..];
        let Some(end) = inside.find(&"`".repeat(ticks)) else { break };
        found.push(inside[..end].trim());
        text.push_str("code");
        rest = &inside[end + ticks..];
    }
    text += rest;
    (found, text)
}

/// Returns the targets of links and pictures, with their lines.
pub(super) fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let (_, line) = spans(line);
        for (start, end) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
            for part in line.split(start).skip(1) {
                let target = part.split(end).next().unwrap_or_default();
                found.push((number, target.split(' ').next().unwrap_or_default().to_owned()));
            }
        }
    }
    found
}

/// Returns the anchors of a page's headings, as GitHub names them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()) else { continue };
        let is_kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
        let slug: String =
            heading.to_lowercase().chars().filter(is_kept).map(|l| if l == ' ' { '-' } else { l }).collect();
        let mut name = slug.clone();
        let mut number = 0;
        while !found.insert(name.clone()) {
            number += 1;
            name = format!("{slug}-{number}");
        }
    }
    found
}

/// Returns the commands of code blocks and code spans, with their lines.
fn named_commands(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for fence in fences(text).filter(|fence| fence.is("sh") || fence.is("console") || fence.is("bash")) {
        for (number, line) in fence.lines.iter().enumerate() {
            found.push((fence.line + number, line.strip_prefix("$ ").unwrap_or(line).to_owned()));
        }
    }
    for (number, line) in prose(text) {
        found.extend(spans(line).0.into_iter().map(|span| (number, span.to_owned())));
    }
    found
}

fn without_comment(line: &str) -> &str {
    line.split_once(" #").map_or(line, |(command, _)| command).trim()
}

/// Splits the first command of a line at blanks outside quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for letter in without_comment(line).chars().chain([' ']) {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => word.push('q'),
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) if word.is_empty() => {}
            (' ', None) if ["|", ">", "&&", "&"].contains(&word.as_str()) => return words,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (letter, None) => word.push(letter),
        }
    }
    words
}

/// Returns a path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(clean.pop()),
            std::path::Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}

/// Returns the Markdown pages of the repository by their paths.
fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![PathBuf::from(ROOT)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_hidden = name.starts_with('.') && name != ".github";
            if path.is_dir() && !is_hidden && !["target", "node_modules"].contains(&name.as_str()) && !path.is_symlink()
            {
                folders.push(path);
            } else if name.ends_with(".md") {
                let below = path.strip_prefix(ROOT).unwrap().display().to_string();
                pages.insert(below, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(pages.len() > 30, "the pages are missing: {}", pages.len());
    pages
}
