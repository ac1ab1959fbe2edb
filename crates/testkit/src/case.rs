//! A case of the executable contract, as it stands in Markdown.
//!
//! Under each `##` heading: prose, a cell (```` ```js cell ```` or ```` ```ts cell ````), and the
//! expected result (```` ```json result ````). Optional: canned tools (```` ```json tools ````) and
//! configuration (```` ```json config ````), which also hold for the headings after them in the file
//! when they stand above the first.

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
    pub config: Value,
    pub expected: Value,
}

impl Case {
    pub fn name(&self) -> String {
        let file = self.file.file_stem().unwrap_or_default().to_string_lossy();
        format!("{file}: {} (line {})", self.title, self.line)
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
        }
        .clamped()
    }

    /// The case's configuration as a whole, code mode switched on.
    pub fn code_mode(&self) -> Result<CodeMode, String> {
        let mut config = self.config.clone();
        if let Some(fields) = config.as_object_mut() {
            fields.insert("enabled".to_owned(), Value::Bool(true));
        }
        let tools = ToolsConfig::resolve(&json!({ "codeMode": config }));
        tools.map(|tools| tools.code_mode).map_err(|errors| format!("{errors:?}"))
    }

    /// What of the result is not as the case says. Fields the case does not name are not looked at.
    pub fn differences(&self, result: &Value) -> Vec<String> {
        let expected = self.expected.as_object().cloned().unwrap_or_default();
        expected
            .iter()
            .filter_map(|(field, wanted)| {
                let got = result.get(field).unwrap_or(&Value::Null);
                (got != wanted).then(|| format!("{field}: expected {wanted}, got {got}"))
            })
            .collect()
    }
}

/// All cases of a folder, in the order of their files.
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

/// A fenced block: its info words, its text, and the line it starts on.
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
            sections.take(block)?;
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
    config: Option<Value>,
    expected: Option<Value>,
}

impl Sections {
    fn take(&mut self, block: Block) -> Result<(), String> {
        let json = || serde_json::from_str(&block.text).map_err(|error| format!("line {}: {error}", block.line));
        match block.info.as_str() {
            "js cell" => self.cell = Some((block.text.clone(), Language::JavaScript)),
            "ts cell" => self.cell = Some((block.text.clone(), Language::TypeScript)),
            "json tools" => self.tools = Some(json()?),
            "json config" => self.config = Some(json()?),
            "json result" => self.expected = Some(json()?),
            other => return Err(format!("line {}: unknown block `{other}`", block.line)),
        }
        Ok(())
    }

    fn case(self, file: &Path, title: String, line: usize) -> Result<Case, String> {
        let missing = |what: &str| format!("line {line}: `{title}` has no {what}");
        let (source, language) = self.cell.ok_or_else(|| missing("cell"))?;
        Ok(Case {
            file: file.to_owned(),
            line,
            source,
            language,
            tools: self.tools.unwrap_or_else(|| json!([])),
            config: self.config.unwrap_or_else(|| json!({})),
            expected: self.expected.ok_or_else(|| missing("result"))?,
            title,
        })
    }
}
