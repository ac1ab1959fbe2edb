//! `cellmate config check`: reports all problems in the configuration, each with its place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use catalog::policy::KnownTools;
use clap::Args;
use client_config::{
    Client, ConfigError, ConfigFile, FileState, KeyPath, LoadedConfig, Places, Position, Problem, Source, display,
    listed_files, load, own_files,
};
use contract::config::openclaw::{self, UnusedKind, UnusedSetting};
use contract::spelling::nearest;
use contract::text;
use serde_json::{Value, json};

use super::entries::Severity;
use super::ranges::moved_numbers;
use super::{entries, schema};
use crate::shared_arguments::ConfigArguments;
use crate::state::configured_location;
use crate::style::{Stream, Style, paint};
use crate::unmatched::PatternWarning;
use crate::{local_tools, policy, render, unmatched};

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// Files to check instead of the configuration.
    #[arg(value_name = "FILE", conflicts_with = "files")]
    only: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A problem and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) file: PathBuf,
    pub(super) at: Option<Position>,
    pub(super) severity: Severity,
    pub(super) message: String,
    /// The setting that is not used, if the finding is about one.
    pub(super) unused: Option<UnusedSetting>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", display::path(&self.file))?;
        self.at.iter().try_for_each(|at| write!(f, ":{}:{}", at.line, at.column))?;
        write!(f, ": {}: {}", self.severity.as_str(), text::line(&self.message, usize::MAX))
    }
}

pub(super) fn run(arguments: &CheckArguments) -> ExitCode {
    let places = match arguments.only.as_slice() {
        [] => arguments.config.places(),
        only => Places::here(only),
    };
    if let Some(missing) = places.named_files().iter().find(|file| !file.exists()) {
        return render::fatal(&format!("`{}` does not exist", display::path(missing)));
    }
    let (files, findings) = check(&places);
    let ProblemCounts { errors, warnings } = ProblemCounts::of(&findings);
    if arguments.json {
        let (notes, problems): (Vec<&Finding>, Vec<&Finding>) =
            findings.iter().partition(|finding| finding.severity == Severity::Note);
        let values = |findings: Vec<&Finding>| findings.into_iter().map(as_json).collect::<Vec<Value>>();
        let (problems, unused) = (values(problems), values(notes));
        render::print_json(&json!({"ok": errors == 0, "files": files, "problems": problems, "unused": unused}));
    } else {
        for finding in &findings {
            let line = match finding.severity {
                Severity::Error => paint(&finding.to_string(), Style::Bad, Stream::Out),
                Severity::Warning => paint(&finding.to_string(), Style::Warning, Stream::Out),
                Severity::Note => finding.to_string(),
            };
            render::print_safe(&format!("{line}\n"));
        }
        render::print(&summary(files.len(), errors, warnings, count(&findings, Severity::Note)));
    }
    if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) }
}

/// How many problems the files of a configuration have.
pub(crate) struct ProblemCounts {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
}

impl ProblemCounts {
    fn of(findings: &[Finding]) -> Self {
        Self { errors: count(findings, Severity::Error), warnings: count(findings, Severity::Warning) }
    }
}

/// Counts the problems that `cellmate config check` reports.
pub(crate) fn count_problems(places: &Places) -> ProblemCounts {
    ProblemCounts::of(&check(places).1)
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

/// Returns a number with its noun, such as `1 error` or `2 errors`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn summary(files: usize, errors: usize, warnings: usize, notes: usize) -> String {
    let found = match (errors, warnings) {
        (0, 0) => "no problems".to_owned(),
        (_, 0) => counted(errors, "error"),
        _ => format!("{}, {}", counted(errors, "error"), counted(warnings, "warning")),
    };
    let unused = match notes {
        0 => String::new(),
        1 => "; 1 setting does not apply".to_owned(),
        _ => format!("; {notes} settings do not apply"),
    };
    format!("{} checked: {found}{unused}\n", counted(files, "file"))
}

/// Checks every file that is read. Returns the files, and the problems by file and place.
fn check(places: &Places) -> (Vec<PathBuf>, Vec<Finding>) {
    let mut findings = Vec::new();
    for (file, source) in own_files(places) {
        if !source.is_the_users() {
            continue;
        }
        match ConfigFile::open(&file, source) {
            Ok(Some(opened)) => findings.extend(settings_findings(&opened, places)),
            Ok(None) => {}
            Err(error) => findings.push(unusable(&error)),
        }
    }
    let listed = listed_files(places);
    let opened: BTreeMap<&PathBuf, ConfigFile> = listed
        .iter()
        .filter(|one| one.state == FileState::Used)
        .filter_map(|one| Some((&one.file, ConfigFile::open(&one.file, one.source).ok()??)))
        .collect();
    let untrusted = |file: &PathBuf| {
        let is = |state: &FileState| matches!(state, FileState::Untrusted | FileState::Changed);
        listed.iter().any(|one| one.file == *file && is(&one.state))
    };
    match load(places) {
        Ok(loaded) => {
            findings.extend(loaded.problems.iter().map(|problem| Finding {
                // A file that is not trusted is not read, which is not a mistake in it.
                severity: if untrusted(&problem.file) { Severity::Warning } else { Severity::Error },
                ..of_problem(problem, opened.get(&problem.file))
            }));
            findings.extend(unmatched_patterns(&loaded, places));
        }
        // Reported above: only a file of the user's own can be the reason.
        Err(_) if !findings.is_empty() => {}
        // The shape of the file is reported below, with its place.
        Err(ConfigError::NoObject { .. }) => {}
        Err(error) => findings.push(unusable(&error)),
    }
    for file in opened.values() {
        findings.extend(not_imported(file));
        findings.extend(shape_findings(file, entries::unmasked(file).as_ref()));
    }
    findings.sort_by(|one, other| (&one.file, one.at).cmp(&(&other.file, other.at)));
    let there = listed.iter().filter(|one| one.state != FileState::Missing).map(|one| one.file.clone());
    (there.collect(), findings)
}

/// Returns a warning for each pattern of the user's files that matches no tool, if the tools are known.
fn unmatched_patterns(loaded: &LoadedConfig, places: &Places) -> Vec<Finding> {
    let Some(known) = known_tools(loaded, places) else { return Vec::new() };
    let own = own_files(places).into_iter().filter(|(_, source)| source.is_the_users());
    let files = own.filter_map(|(file, source)| ConfigFile::open(&file, source).ok().flatten());
    files.flat_map(|file| unmatched_patterns_of(&file, &known)).collect()
}

/// Returns the tools that are known without starting a server; `None` if the configuration is invalid.
pub(super) fn known_tools(loaded: &LoadedConfig, places: &Places) -> Option<KnownTools> {
    let policy = policy::read(&loaded.settings).ok()?;
    Some(unmatched::known_tools(loaded, &policy, places, places.state().as_deref(), places.tool_lists()))
}

/// Returns a warning for each pattern of a file of the user that matches no tool.
pub(super) fn unmatched_patterns_of(file: &ConfigFile, known: &KnownTools) -> Vec<Finding> {
    let finding = |warning: PatternWarning| Finding {
        file: file.file.clone(),
        at: KeyPath::parse(&warning.path).ok().map(|path| file.position(&path)),
        severity: Severity::Warning,
        message: warning.message,
        unused: None,
    };
    unmatched::warnings(&file.settings(), known).into_iter().map(finding).collect()
}

/// Returns the problems of one file, as it is now or after a change.
pub(super) fn file_findings(file: &ConfigFile, places: &Places) -> Vec<Finding> {
    let mut findings = if file.source.is_the_users() { settings_findings(file, places) } else { Vec::new() };
    findings.extend(file.problems(places).iter().map(|problem| of_problem(problem, Some(file))));
    findings.extend(shape_findings(file, None));
    findings
}

/// Returns what is wrong with the shape of one of our files: it is no object, or entries of servers have wrong keys or
/// values. Without `unmasked`, hidden values are not checked. Files of other clients have other shapes.
fn shape_findings(file: &ConfigFile, unmasked: Option<&Value>) -> Vec<Finding> {
    let Some(shown) = file.shown_whole().filter(|_| !matches!(file.source, Source::Import(_))) else {
        return Vec::new();
    };
    if !shown.is_object() {
        let message = format!("expected an object, found {}", sort(&shown));
        let at = Some(file.position(&KeyPath::root()));
        return vec![Finding { file: file.file.clone(), at, severity: Severity::Error, message, unused: None }];
    }
    let mistakes = entries::mistakes(unmasked.unwrap_or(&shown)).into_iter();
    let finding = |mistake: entries::EntryMistake| Finding {
        file: file.file.clone(),
        at: Some(file.position(&mistake.path)),
        severity: mistake.severity,
        message: mistake.message,
        unused: mistake.unused,
    };
    mistakes.map(finding).collect()
}

fn sort(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns the problems of a file's settings, and those that are not used.
fn settings_findings(file: &ConfigFile, places: &Places) -> Vec<Finding> {
    let settings = file.settings();
    let at = |path: &str| KeyPath::parse(path).ok().map(|path| file.position(&path));
    let finding = |at, severity, message| Finding { file: file.file.clone(), at, severity, message, unused: None };
    let errors = policy::errors(&settings);
    let is_reported = |key: &str| errors.iter().any(|error| error.path == key);
    let wrong = errors.iter().map(|error| finding(at(&error.path), Severity::Error, error.to_string()));
    let url = settings.pointer("/store/url").and_then(Value::as_str).filter(|url| !url.trim().is_empty());
    let store = url.and_then(|url| configured_location(url, places).err()).map(|error| {
        let severity = if error.depends_on_environment() { Severity::Warning } else { Severity::Error };
        finding(at("store.url"), severity, error.to_string())
    });
    let roots = policy::read(&settings).ok().into_iter().flat_map(|policy| {
        let (_, problems) = local_tools::roots(&policy.config, places, None);
        problems.into_iter().map(|problem| finding(at(&problem.setting), Severity::Warning, problem.to_string()))
    });
    let known = schema::sections();
    let unknown = file.sections().into_iter().filter(|(key, _)| !known.contains(key) && !is_reported(key));
    let unknown = unknown.map(|(key, at)| {
        let meant = nearest(&key, known.iter().map(String::as_str));
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        let message = format!("`{}` is not a key of cellmate's configuration{meant}", display::plain(&key));
        finding(Some(at), Severity::Warning, message)
    });
    let unused = openclaw::unused(&settings).into_iter().map(|unused| {
        let severity = match unused.kind {
            UnusedKind::NotEnforced | UnusedKind::Unknown => Severity::Warning,
            UnusedKind::NotApplicable => Severity::Note,
        };
        Finding { unused: Some(unused.clone()), ..finding(at(&unused.path), severity, unused.to_string()) }
    });
    let moved = file.shown_whole().map(|whole| moved_numbers(&whole)).unwrap_or_default().into_iter();
    let moved = moved.map(|moved| finding(Some(file.position(&moved.path)), Severity::Warning, moved.message));
    wrong.chain(store).chain(roots).chain(unknown).chain(unused).chain(moved).collect()
}

/// Returns a warning for each section of an imported OpenClaw file that contains policy: only its servers are imported.
fn not_imported(file: &ConfigFile) -> Vec<Finding> {
    if file.source != Source::Import(Client::OpenClaw) {
        return Vec::new();
    }
    let policy = file.sections().into_iter().filter(|(key, _)| ["tools", "agents"].contains(&key.as_str()));
    let warning = |(key, at): (String, Position)| Finding {
        file: file.file.clone(),
        at: Some(at),
        severity: Severity::Warning,
        message: format!(
            "`{key}` is not applied, because only servers are imported from this file; to apply its restrictions, \
             use the file as a configuration with --config, or copy them to your own"
        ),
        unused: None,
    };
    policy.map(warning).collect()
}

fn unusable(error: &ConfigError) -> Finding {
    let (file, at, message) = match error {
        ConfigError::Missing(file) => (file, None, "it does not exist".to_owned()),
        ConfigError::File { file, why } => (file, None, why.to_string()),
        ConfigError::Syntax { file, why } => {
            (file, Some(Position { line: why.line, column: why.column }), why.why.clone())
        }
        ConfigError::NoObject { file, found } => (file, None, format!("expected an object, found {found}")),
    };
    Finding { file: file.clone(), at, severity: Severity::Error, message, unused: None }
}

/// Returns the finding for a problem that `load` reports. It names the line; the column is where the line begins.
fn of_problem(problem: &Problem, file: Option<&ConfigFile>) -> Finding {
    let at = problem.line.zip(file).map(|(line, file)| file.start_of_line(line));
    let server = problem.server.as_ref().map(|server| format!("server `{}`: ", display::plain(server)));
    let message = format!("{}{}", server.unwrap_or_default(), problem.message);
    Finding { file: problem.file.clone(), at, severity: Severity::Error, message, unused: None }
}

fn as_json(finding: &Finding) -> Value {
    let mut value = json!({
        "file": finding.file,
        "line": finding.at.map(|at| at.line),
        "column": finding.at.map(|at| at.column),
        "severity": finding.severity.as_str(),
        "message": finding.message,
    });
    if let (Some(fields), Some(unused)) = (value.as_object_mut(), &finding.unused) {
        fields.insert("setting".to_owned(), json!(unused.path));
        fields.insert("kind".to_owned(), json!(unused.kind.as_str()));
        fields.insert("reason".to_owned(), json!(unused.reason));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn the_summary_counts_in_plain_words() {
        assert_eq!(summary(1, 0, 0, 0), "1 file checked: no problems\n");
        assert_eq!(summary(2, 1, 0, 0), "2 files checked: 1 error\n");
        assert_eq!(summary(2, 0, 2, 1), "2 files checked: 0 errors, 2 warnings; 1 setting does not apply\n");
        assert_eq!(summary(1, 0, 0, 9), "1 file checked: no problems; 9 settings do not apply\n");
    }
}
