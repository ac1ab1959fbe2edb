//! `cellmate config set`: changes a setting in place, if the result is valid.

use std::path::PathBuf;
use std::process::ExitCode;

use catalog::policy::KnownTools;
use clap::Args;
use client_config::{
    Change, ConfigFile, EditError, KeyPath, Places, Source, display, load, own_files, parse_value, trust_note,
};
use serde_json::{Value, json};

use super::check::{self, Finding, file_findings, unmatched_patterns_of};
use super::entries::Severity;
use super::schema;
use crate::render;
use crate::servers::{ChangeArguments, carry_out};
use crate::shared_arguments::{ConfigArguments, ScopeArgument};

/// The longest key that is repeated in a message.
const MAX_SHOWN_CHARS: usize = 200;

#[derive(Debug, Args)]
pub(super) struct SetArguments {
    /// Key with dots, such as `tools.codeMode.timeoutMs`, `mcpServers["my.server"].enabled` or `agents.list[0].tools.deny`.
    #[arg(value_name = "KEY")]
    key: String,
    /// New value: JSON5, such as `30000`, `true` or `['mcp:files:*']`; anything else is a string.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
    /// Fail if the value is not JSON5, instead of using it as a string.
    #[arg(long)]
    strict_json: bool,
    #[command(flatten)]
    edit: EditArguments,
}

/// Which configuration a command changes, and how it shows the change.
#[derive(Debug, Args)]
pub(super) struct EditArguments {
    /// Configuration to change: the user's, or this folder's `.cellmate.json5`.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    pub(super) scope: ScopeArgument,
    #[command(flatten)]
    pub(super) change: ChangeArguments,
    #[command(flatten)]
    pub(super) config: ConfigArguments,
}

pub(super) fn run(arguments: &SetArguments) -> ExitCode {
    let places = arguments.edit.config.places();
    match prepare(arguments, &places) {
        Ok((change, notes)) => carry_out(&change, &places, &arguments.edit.change, &notes),
        Err(message) => render::fatal(&message),
    }
}

/// Returns the change, and notes for the user. Fails if the change would add a problem to the file.
fn prepare(arguments: &SetArguments, places: &Places) -> Result<(Change, Vec<String>), String> {
    let path = KeyPath::parse(&arguments.key).map_err(|error| error.to_string())?;
    if let Some(meant) = schema::misspelt_section(&path) {
        let typed = contract::text::line(&arguments.key, MAX_SHOWN_CHARS);
        return Err(format!("nothing was written: `{typed}` is not a setting of cellmate; did you mean `{meant}`?"));
    }
    let edited = EditedFile::open(arguments.edit.scope, places)?;
    let values = if arguments.strict_json {
        vec![
            parse_value(&arguments.value)
                .map_err(|why| format!("nothing was written: the value is not JSON5: {why}"))?,
        ]
    } else {
        candidates(&arguments.value)
    };
    let list = values.first().filter(|value| schema::is_list(&path) && !value.is_array()).map(|value| {
        let item = if value.is_object() { value.clone() } else { Value::from(arguments.value.as_str()) };
        display::for_shell(&display::plain(&json!([item]).to_string()))
    });
    let mut refused = None;
    for value in values {
        match edited.change(AcceptedErrors::Same, |change| set(change, edited.source, &path, &value))? {
            Ok(changed) => return Ok(changed),
            Err(why) => {
                refused.get_or_insert(why);
            }
        }
    }
    let hint = list.map(|list| format!("; write a list, such as {list}")).unwrap_or_default();
    Err(format!("nothing was written: {}{hint}", refused.unwrap_or_default()))
}

/// Sets the value. A setting that is a switch or an object, such as `tools.codeMode`, keeps what it has: a switch becomes
/// the `enabled` of an object before a key is added to it, and the switch of an object is its `enabled`.
fn set(change: &mut Change, source: Source, path: &KeyPath, value: &Value) -> Result<(), EditError> {
    let now = |change: &Change, path: &KeyPath| -> Result<Option<Value>, EditError> {
        Ok(ConfigFile::after(change, source)?.shown(path))
    };
    for around in path.around().filter(schema::is_switch_or_object) {
        if let Some(switch @ (Value::Bool(_) | Value::String(_))) = now(change, &around)? {
            change.set_at(&around, &json!({"enabled": switch}))?;
        }
    }
    let is_switch = matches!(value, Value::Bool(_) | Value::String(_)) && schema::is_switch_or_object(path);
    match now(change, path)? {
        Some(Value::Object(_)) if is_switch => change.set_at(&path.child("enabled"), value),
        _ => change.set_at(path, value),
    }
}

/// Returns what the text may mean: JSON5 if it is that, and a string.
fn candidates(text: &str) -> Vec<Value> {
    let parsed = parse_value(text).ok().filter(|_| !text.trim().is_empty());
    let string = Value::from(text);
    parsed.into_iter().filter(|parsed| *parsed != string).chain([string.clone()]).collect()
}

/// The file that a command changes, and the problems that it has already.
pub(super) struct EditedFile<'p> {
    pub(super) file: PathBuf,
    source: Source,
    places: &'p Places,
    before: Vec<Finding>,
    /// The tools that patterns of the user's own file can match, if they are known.
    known_tools: Option<KnownTools>,
}

impl<'p> EditedFile<'p> {
    pub(super) fn open(scope: ScopeArgument, places: &'p Places) -> Result<Self, String> {
        let file = places.file_to_edit(scope.into());
        let file = file.ok_or("cannot find a folder for configuration; set HOME, or pass --config")?;
        let own = own_files(places).into_iter().find(|(own, _)| *own == file);
        let source = own.map_or(Source::User, |(_, source)| source);
        let known_tools = load(places).ok().filter(|_| source.is_the_users());
        let known_tools = known_tools.and_then(|loaded| check::known_tools(&loaded, places));
        let mut opened = Self { file, source, places, before: Vec::new(), known_tools };
        let before = Change::open(&opened.file).map_err(|error| error.to_string())?;
        opened.before = opened.findings(&before)?;
        Ok(opened)
    }

    /// Returns the problems that the file has after a change.
    fn findings(&self, change: &Change) -> Result<Vec<Finding>, String> {
        let file = ConfigFile::after(change, self.source).map_err(|error| error.to_string())?;
        let mut findings = file_findings(&file, self.places);
        findings.extend(self.known_tools.iter().flat_map(|known| unmatched_patterns_of(&file, known)));
        Ok(findings)
    }

    /// Returns the changed file and notes for the user, or why the result would be invalid. Fails if the file cannot be
    /// edited.
    pub(super) fn change(
        &self,
        accepted: AcceptedErrors,
        edit: impl FnOnce(&mut Change) -> Result<(), EditError>,
    ) -> Result<Result<(Change, Vec<String>), String>, String> {
        let mut change = Change::open(&self.file).map_err(|error| error.to_string())?;
        edit(&mut change).map_err(|error| error.to_string())?;
        let now = self.findings(&change)?;
        let accepts_all = accepted == AcceptedErrors::AsMany && errors(&now) <= errors(&self.before);
        let new: Vec<Finding> = now.into_iter().filter(|one| !is_known(&self.before, one)).collect();
        let (wrong, new): (Vec<Finding>, Vec<Finding>) =
            new.into_iter().partition(|finding| finding.severity == Severity::Error);
        if let Some(wrong) = wrong.first().filter(|_| !accepts_all) {
            return Ok(Err(wrong.message.clone()));
        }
        let mut notes: Vec<String> = new.into_iter().map(|finding| finding.message).collect();
        notes.extend(trust_note(&self.file, self.places));
        Ok(Ok((change, notes)))
    }
}

/// Which errors a file may have after a change, if it had some before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedErrors {
    /// Only the errors that the file had before.
    Same,
    /// As many errors as the file had before. If an item of a list is removed, the errors of later items have other paths.
    AsMany,
}

fn errors(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.severity == Severity::Error).count()
}

/// Whether the file had this problem before, perhaps in another line.
fn is_known(before: &[Finding], finding: &Finding) -> bool {
    before.iter().any(|one| one.message == finding.message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::candidates;

    #[test]
    fn a_value_is_json5_if_it_can_be_and_otherwise_a_string() {
        let cases = [
            ("30000", vec![json!(30000), json!("30000")]),
            ("['a', 'b']", vec![json!(["a", "b"]), json!("['a', 'b']")]),
            ("true", vec![json!(true), json!("true")]),
            ("'quoted'", vec![json!("quoted"), json!("'quoted'")]),
            ("never", vec![json!("never")]),
            ("mcp:files:*", vec![json!("mcp:files:*")]),
            ("", vec![json!("")]),
        ];
        for (text, expected) in cases {
            assert_eq!(candidates(text), expected, "{text}");
        }
    }
}
