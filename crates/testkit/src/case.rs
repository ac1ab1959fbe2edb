//! Parses the cases of the executable contract from Markdown: cells in `spec/cells`, each with the result that it must
//! have.
//!
//! Under each `##` heading: prose, a cell (```` ```js cell ```` or ```` ```ts cell ````), and the
//! expected result (```` ```json result ````). Optional: what `exec` answers before the first `wait`
//! (```` ```json first ````), canned tools (```` ```json tools ````), their namespaces (```` ```json namespaces ````)
//! and configuration (```` ```json config ````). A block above the first heading applies to every case of the file that
//! does not replace it.
//!
//! Fields that a case does not name are ignored, except those in `ABSENT_UNLESS_NAMED`: they must be absent then.

use std::path::{Path, PathBuf};

use contract::cell::Language;
use contract::config::{CodeMode, ToolsConfig};
use contract::limits::Limits;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct Case {
    pub file: PathBuf,
    pub line: usize,
    pub title: String,
    pub source: String,
    pub language: Language,
    pub tools: Value,
    pub namespaces: Value,
    pub config: Value,
    pub expected: Value,
    /// What `exec` answers before the first `wait`, if the case names it.
    pub expected_first: Option<Value>,
}

/// The results of `exec` and of the last `wait`.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The result of `exec`; `None` if only the last one is known.
    pub first: Option<Value>,
    /// The last result, with the output of all of them.
    pub last: Value,
}

impl Case {
    pub fn name(&self) -> String {
        let file = self.file.file_stem().unwrap_or_default().to_string_lossy();
        format!("{file}: {} (line {})", self.title, self.line)
    }

    /// Returns the case's tools and namespaces in the format of `cellmate exec --catalog`.
    pub fn catalog(&self) -> Value {
        json!({ "tools": self.tools, "namespaces": self.namespaces })
    }

    /// Returns the languages the case allows, separated by commas; `None` if the case does not restrict them.
    pub fn languages(&self) -> Option<String> {
        let languages = self.config.get("languages")?.as_array()?;
        Some(languages.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
    }

    pub fn limits(&self) -> Limits {
        let field = |name: &str, default: u64| self.config.get(name).and_then(Value::as_u64).unwrap_or(default);
        let d = Limits::DEFAULT;
        Limits {
            timeout_ms: field("timeoutMs", d.timeout_ms),
            max_wait_ms: field("maxWaitMs", d.max_wait_ms),
            memory_bytes: field("memoryLimitBytes", d.memory_bytes),
            output_bytes: field("maxOutputBytes", d.output_bytes),
            snapshot_bytes: field("maxSnapshotBytes", d.snapshot_bytes),
            pending_calls: field("maxPendingToolCalls", d.pending_calls),
            stored_output_bytes: field("maxStoredOutputBytes", d.stored_output_bytes),
            media_blocks: field("maxMediaBlocks", d.media_blocks),
            media_bytes: field("maxMediaBytes", d.media_bytes),
        }
        .clamped()
    }

    /// Resolves the case's configuration with code mode enabled.
    pub fn code_mode(&self) -> Result<CodeMode, String> {
        let mut config = self.config.clone();
        if let Some(fields) = config.as_object_mut() {
            fields.insert("enabled".to_owned(), Value::Bool(true));
        }
        let tools = ToolsConfig::resolve(&json!({ "codeMode": config }));
        tools.map(|tools| tools.code_mode).map_err(|errors| format!("{errors:?}"))
    }

    /// Describes each field of the answers that differs from the expected one.
    pub fn differences(&self, answers: &Answers) -> Vec<String> {
        let mut found = differences(&self.expected, &answers.last);
        if let Some(wanted) = &self.expected_first {
            let got = answers.first.as_ref().unwrap_or(&Value::Null);
            found.extend(differences(wanted, got).into_iter().map(|difference| format!("first answer: {difference}")));
        }
        found
    }

    /// Whether the case ends with a suspended cell, so the test must not call `wait` again.
    pub fn ends_waiting(&self) -> bool {
        self.expected.get("status") == Some(&json!("waiting"))
    }
}

/// Fields that contain values which differ from run to run: only the parts that the case names are compared.
const PARTIAL: [&str; 2] = ["telemetry", "pendingToolCalls"];

/// Fields that must be absent from a result if the case does not name them.
const ABSENT_UNLESS_NAMED: [&str; 3] = ["code", "value", "reason"];

fn differences(expected: &Value, result: &Value) -> Vec<String> {
    let expected = expected.as_object().cloned().unwrap_or_default();
    let named = expected.iter().filter_map(|(field, wanted)| {
        let got = result.get(field).unwrap_or(&Value::Null);
        // A preview has a handle, which differs in every run.
        let is_preview = wanted.get("type").is_some_and(|kind| kind == "stored");
        let partial = is_preview || PARTIAL.contains(&field.as_str());
        let fits = if partial { covers(got, wanted) } else { got == wanted };
        (!fits).then(|| format!("{field}: expected {wanted}, got {got}"))
    });
    let unnamed = ABSENT_UNLESS_NAMED.iter().filter(|field| !expected.contains_key(**field)).filter_map(|field| {
        let got = result.get(*field)?;
        Some(format!("{field}: expected nothing, got {got}"))
    });
    named.chain(unnamed).collect()
}

fn covers(got: &Value, wanted: &Value) -> bool {
    match (got, wanted) {
        (Value::Object(got), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| got.get(key).is_some_and(|got| covers(got, wanted)))
        }
        (Value::Array(got), Value::Array(wanted)) => {
            got.len() == wanted.len() && got.iter().zip(wanted).all(|(got, wanted)| covers(got, wanted))
        }
        _ => got == wanted,
    }
}

/// Loads all cases of a folder, ordered by file name.
pub fn load(folder: &Path) -> std::io::Result<Vec<Case>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let parsed =
            parse(&file, &text).map_err(|reason| std::io::Error::other(format!("{}: {reason}", file.display())))?;
        cases.extend(parsed);
    }
    Ok(cases)
}

/// A fenced code block: its info string, its text, and the line it starts on.
struct Block {
    info: String,
    text: String,
    line: usize,
}

pub fn parse(file: &Path, text: &str) -> Result<Vec<Case>, String> {
    let mut shared = Sections::default();
    let mut cases = Vec::new();
    let mut current: Option<(String, usize, Sections)> = None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            if let Some((title, line, sections)) = current.take() {
                cases.push(sections.case(file, title, line)?);
            }
            current = Some((title.trim().to_owned(), number + 1, shared.clone()));
        } else if let Some(info) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            let block = Block { info: info.trim().to_owned(), text: body.join("\n"), line: number + 1 };
            let sections = current.as_mut().map_or(&mut shared, |(_, _, sections)| sections);
            sections.add(block)?;
        }
    }
    if let Some((title, line, sections)) = current {
        cases.push(sections.case(file, title, line)?);
    }
    Ok(cases)
}

#[derive(Clone, Default)]
struct Sections {
    cell: Option<(String, Language)>,
    tools: Option<Value>,
    namespaces: Option<Value>,
    config: Option<Value>,
    expected: Option<Value>,
    first: Option<Value>,
}

impl Sections {
    fn add(&mut self, block: Block) -> Result<(), String> {
        let json = || serde_json::from_str(&block.text).map_err(|error| format!("line {}: {error}", block.line));
        match block.info.as_str() {
            "js cell" => self.cell = Some((block.text.clone(), Language::JavaScript)),
            "ts cell" => self.cell = Some((block.text.clone(), Language::TypeScript)),
            "json tools" => self.tools = Some(json()?),
            "json namespaces" => self.namespaces = Some(json()?),
            "json config" => self.config = Some(json()?),
            "json result" => self.expected = Some(json()?),
            "json first" => self.first = Some(json()?),
            other => return Err(format!("line {}: unknown block `{other}`", block.line)),
        }
        Ok(())
    }

    fn case(self, file: &Path, title: String, line: usize) -> Result<Case, String> {
        let missing = |what: &str| format!("line {line}: `{title}` has no {what}");
        let (source, language) = self.cell.ok_or_else(|| missing("cell"))?;
        let expected = self.expected.filter(Value::is_object).ok_or_else(|| missing("result"))?;
        Ok(Case {
            file: file.to_owned(),
            line,
            source,
            language,
            tools: self.tools.unwrap_or_else(|| json!([])),
            config: self.config.unwrap_or_else(|| json!({})),
            namespaces: self.namespaces.unwrap_or_else(|| json!([])),
            expected,
            expected_first: self.first,
            title,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::{Answers, parse};

    const TEXT: &str = "\
## One
```js cell
throw 1
```
```json first
{\"status\": \"waiting\", \"reason\": \"yield\"}
```
```json result
{\"status\": \"failed\", \"telemetry\": {\"waitCount\": 1}}
```
";

    fn differences(first: Option<Value>, last: Value) -> Vec<String> {
        let case = parse(Path::new("one.md"), TEXT).unwrap().remove(0);
        case.differences(&Answers { first, last })
    }

    fn first() -> Value {
        json!({"status": "waiting", "reason": "yield", "runId": "cm_1"})
    }

    fn last() -> Value {
        json!({"status": "failed", "error": "1", "telemetry": {"waitCount": 1, "execCount": 1}})
    }

    /// Returns the differences if the last result has this field.
    fn differences_with(field: &str, value: Value) -> Vec<String> {
        let mut changed = last();
        changed[field] = value;
        differences(Some(first()), changed)
    }

    #[test]
    fn fields_that_the_case_does_not_name_are_no_differences() {
        assert_eq!(differences(Some(first()), last()), [""; 0]);
    }

    #[test]
    fn a_code_or_value_that_the_case_does_not_name_is_a_difference() {
        assert_eq!(differences_with("code", json!("timeout")), ["code: expected nothing, got \"timeout\""]);
        assert_eq!(differences_with("value", json!(null)), ["value: expected nothing, got null"]);
    }

    #[test]
    fn a_wrong_part_of_a_partial_field_is_a_difference() {
        assert_eq!(differences_with("telemetry", json!({"waitCount": 2})).len(), 1);
    }

    #[test]
    fn without_a_first_result_each_of_its_named_fields_is_a_difference() {
        assert_eq!(differences(None, last()).len(), 2);
    }

    #[test]
    fn a_wrong_first_result_is_a_difference_that_says_so() {
        let found = differences(Some(json!({"status": "completed", "value": 1})), last());
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|difference| difference.starts_with("first answer: ")), "{found:?}");
    }
}
