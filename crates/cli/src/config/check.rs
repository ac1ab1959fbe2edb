//! `cellmate config check`: reports all problems in the configuration, each with its place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use client_config::{
    ConfigError, ConfigFile, FileState, KeyPath, Places, Position, Problem, display, listed_files, load, own_files,
};
use contract::spelling::nearest;
use contract::text;
use serde_json::{Value, json};

use super::schema;
use crate::shared_arguments::ConfigArguments;
use crate::style::{Stream, Style, paint};
use crate::{local_tools, policy, render};

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

/// How serious a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// A part of the configuration cannot be used.
    Error,
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A problem and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) file: PathBuf,
    pub(super) at: Option<Position>,
    pub(super) severity: Severity,
    pub(super) message: String,
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
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    if arguments.json {
        let findings: Vec<Value> = findings.iter().map(as_json).collect();
        render::print_json(&json!({"ok": errors == 0, "files": files, "problems": findings}));
    } else {
        for finding in &findings {
            let style = if finding.severity == Severity::Error { Style::Bad } else { Style::Warning };
            render::print_safe(&format!("{}\n", paint(&finding.to_string(), style, Stream::Out)));
        }
        render::print(&summary(files.len(), errors, findings.len() - errors));
    }
    if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) }
}

fn summary(files: usize, errors: usize, warnings: usize) -> String {
    let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let found = match (errors, warnings) {
        (0, 0) => "no problems".to_owned(),
        (_, 0) => many(errors, "error"),
        _ => format!("{}, {}", many(errors, "error"), many(warnings, "warning")),
    };
    format!("{} checked: {found}\n", many(files, "file"))
}

/// Checks every file that is read. Returns the files, and the problems by file and place.
fn check(places: &Places) -> (Vec<PathBuf>, Vec<Finding>) {
    let mut findings = Vec::new();
    for (file, source) in own_files(places) {
        if !source.is_the_users() {
            continue;
        }
        match ConfigFile::open(&file, source) {
            Ok(Some(opened)) => findings.extend(settings_findings(&opened)),
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
        Ok(loaded) => findings.extend(loaded.problems.iter().map(|problem| Finding {
            // A file that is not trusted is not read, which is not a mistake in it.
            severity: if untrusted(&problem.file) { Severity::Warning } else { Severity::Error },
            ..of_problem(problem, opened.get(&problem.file))
        })),
        // Reported above: only a file of the user's own can be the reason.
        Err(_) if !findings.is_empty() => {}
        Err(error) => findings.push(unusable(&error)),
    }
    findings.sort_by(|one, other| (&one.file, one.at).cmp(&(&other.file, other.at)));
    let there = listed.iter().filter(|one| one.state != FileState::Missing).map(|one| one.file.clone());
    (there.collect(), findings)
}

/// Returns the problems of one file, as it is now or after a change.
pub(super) fn file_findings(file: &ConfigFile, places: &Places) -> Vec<Finding> {
    let mut findings = if file.source.is_the_users() { settings_findings(file) } else { Vec::new() };
    findings.extend(file.problems(places).iter().map(|problem| of_problem(problem, Some(file))));
    findings
}

/// Returns the problems of a file's settings.
fn settings_findings(file: &ConfigFile) -> Vec<Finding> {
    let wrong = policy::errors(&file.settings()).into_iter().map(|error| {
        let path = KeyPath::parse(&error.path).ok();
        let at = path.map(|path| file.position(&path));
        Finding { file: file.file.clone(), at, severity: Severity::Error, message: error.to_string() }
    });
    let roots = policy::read(&file.settings()).ok().into_iter().flat_map(|policy| {
        local_tools::roots(policy.config.core_tools(), &Places::here(&[])).1.into_iter().map(|problem| {
            let at = KeyPath::parse(&problem.setting).ok().map(|path| file.position(&path));
            Finding { file: file.file.clone(), at, severity: Severity::Warning, message: problem.to_string() }
        })
    });
    let known = schema::sections();
    let unknown = file.sections().into_iter().filter(|(key, _)| !known.contains(key)).map(|(key, at)| {
        let meant = nearest(&key, known.iter().map(String::as_str));
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        let message = format!("`{}` is not a key of cellmate's configuration{meant}", display::plain(&key));
        Finding { file: file.file.clone(), at: Some(at), severity: Severity::Warning, message }
    });
    wrong.chain(roots).chain(unknown).collect()
}

fn unusable(error: &ConfigError) -> Finding {
    let (file, at, message) = match error {
        ConfigError::Missing(file) => (file, None, "it does not exist".to_owned()),
        ConfigError::File { file, why } => (file, None, why.to_string()),
        ConfigError::Syntax { file, why } => {
            (file, Some(Position { line: why.line, column: why.column }), why.why.clone())
        }
    };
    Finding { file: file.clone(), at, severity: Severity::Error, message }
}

/// Returns the finding for a problem that `load` reports. It names the line; the column is where the line begins.
fn of_problem(problem: &Problem, file: Option<&ConfigFile>) -> Finding {
    let at = problem.line.zip(file).map(|(line, file)| file.start_of_line(line));
    let server = problem.server.as_ref().map(|server| format!("server `{}`: ", display::plain(server)));
    let message = format!("{}{}", server.unwrap_or_default(), problem.message);
    Finding { file: problem.file.clone(), at, severity: Severity::Error, message }
}

fn as_json(finding: &Finding) -> Value {
    json!({
        "file": finding.file,
        "line": finding.at.map(|at| at.line),
        "column": finding.at.map(|at| at.column),
        "severity": finding.severity.as_str(),
        "message": finding.message,
    })
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn the_summary_counts_in_plain_words() {
        assert_eq!(summary(1, 0, 0), "1 file checked: no problems\n");
        assert_eq!(summary(2, 1, 0), "2 files checked: 1 error\n");
        assert_eq!(summary(2, 0, 2), "2 files checked: 0 errors, 2 warnings\n");
    }
}
