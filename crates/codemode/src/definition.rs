//! The stored definition of a run: enough to run its cell again from the first leg.

use contract::cell::Language;
use contract::config::Languages;
use contract::limits::Limits;
use contract::scope::Scope;
use serde::{Deserialize, Serialize};

use crate::input::ExecInput;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) source: String,
    pub(crate) language: Language,
    /// The languages that the run allows.
    pub(crate) languages: Languages,
    pub(crate) seed: u64,
    pub(crate) limits: Limits,
    pub(crate) ttl_seconds: u64,
    /// Whether the run was started for an agent in a sandbox.
    pub(crate) sandboxed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredDefinition {
    source: String,
    language: String,
    seed: u64,
    timeout_ms: u64,
    max_wait_ms: u64,
    memory_bytes: u64,
    output_bytes: u64,
    snapshot_bytes: u64,
    pending_calls: u64,
    ttl_seconds: u64,
    /// None in definitions of runs that could not store output: these fail at `output_bytes`.
    #[serde(default)]
    stored_output_bytes: Option<u64>,
    #[serde(default)]
    media_blocks: Option<u64>,
    #[serde(default)]
    media_bytes: Option<u64>,
    /// Empty in definitions that were stored before cells could mix languages.
    #[serde(default)]
    languages: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sandboxed: bool,
}

impl Definition {
    /// Creates the definition of a run that allows only the language of its cell.
    pub(crate) fn new(input: ExecInput, seed: u64, limits: Limits, ttl_seconds: u64) -> Self {
        let (language, languages) = (input.language, only(input.language));
        Self { source: input.source, language, languages, seed, limits, ttl_seconds, sandboxed: false }
    }

    pub(crate) fn allowing(self, languages: Languages) -> Self {
        Self { languages, ..self }
    }

    /// Records the scope that starts the run.
    pub(crate) fn started_by(self, scope: &Scope) -> Self {
        Self { sandboxed: scope.sandboxed, ..self }
    }

    /// Whether the run's code may run with the policy of this scope. The code of an agent in a sandbox runs only there:
    /// the policy of an agent without one may allow more.
    pub(crate) fn may_run_with(&self, scope: &Scope) -> bool {
        !self.sandboxed || scope.sandboxed
    }

    /// Returns when a run that has just made progress expires, if it makes no more progress.
    pub(crate) fn expires_at(&self, now: i64) -> i64 {
        now.saturating_add_unsigned(self.ttl_seconds.saturating_mul(1000))
    }

    pub(crate) fn to_json(&self) -> String {
        let stored = StoredDefinition {
            source: self.source.clone(),
            language: self.language.as_str().to_owned(),
            seed: self.seed,
            timeout_ms: self.limits.timeout_ms,
            max_wait_ms: self.limits.max_wait_ms,
            memory_bytes: self.limits.memory_bytes,
            output_bytes: self.limits.output_bytes,
            snapshot_bytes: self.limits.snapshot_bytes,
            pending_calls: self.limits.pending_calls,
            ttl_seconds: self.ttl_seconds,
            stored_output_bytes: Some(self.limits.stored_output_bytes),
            media_blocks: Some(self.limits.media_blocks),
            media_bytes: Some(self.limits.media_bytes),
            languages: LANGUAGES
                .into_iter()
                .filter(|language| self.languages.allow(*language))
                .map(|language| language.as_str().to_owned())
                .collect(),
            sandboxed: self.sandboxed,
        };
        serde_json::to_string(&stored).unwrap_or_default()
    }

    pub(crate) fn from_json(text: &str) -> Option<Self> {
        let stored: StoredDefinition = serde_json::from_str(text).ok()?;
        let language = Language::parse(&stored.language)?;
        let languages: Vec<Language> = stored.languages.iter().filter_map(|name| Language::parse(name)).collect();
        Some(Self {
            limits: limits(&stored),
            source: stored.source,
            language,
            languages: Languages::of(&languages).unwrap_or_else(|| only(language)),
            seed: stored.seed,
            ttl_seconds: stored.ttl_seconds,
            sandboxed: stored.sandboxed,
        })
    }
}

fn limits(stored: &StoredDefinition) -> Limits {
    let limits = Limits {
        timeout_ms: stored.timeout_ms,
        max_wait_ms: stored.max_wait_ms,
        memory_bytes: stored.memory_bytes,
        output_bytes: stored.output_bytes,
        snapshot_bytes: stored.snapshot_bytes,
        pending_calls: stored.pending_calls,
        stored_output_bytes: stored.stored_output_bytes.unwrap_or_default(),
        media_blocks: stored.media_blocks.unwrap_or(Limits::DEFAULT.media_blocks),
        media_bytes: stored.media_bytes.unwrap_or(Limits::DEFAULT.media_bytes),
    }
    .clamped();
    match stored.stored_output_bytes {
        Some(_) => limits,
        // Below the smallest allowed value, so that a replay ends as the run did.
        None => Limits { stored_output_bytes: 0, ..limits },
    }
}

/// How [`StoredDefinition`] begins: its first field is the source.
const SOURCE_FIELD: &str = "{\"source\":\"";

/// Returns the first line of a cell's source that is not blank, from the start of its stored definition.
///
/// A list of many runs reads only the start of each definition, which may end anywhere in the source. `None` if the
/// definition is not one of a cell.
pub fn first_source_line(definition_head: &str) -> Option<String> {
    let mut rest = definition_head.strip_prefix(SOURCE_FIELD)?.chars();
    let (mut line, mut is_escape) = (String::new(), false);
    // Collects one line, still with its escapes. Characters of other scripts are stored as they are.
    loop {
        match rest.next() {
            Some('"') if !is_escape => break,
            Some('n') if is_escape => {
                line.pop();
                if is_blank(&line) {
                    line.clear();
                } else {
                    break;
                }
                is_escape = false;
            }
            Some(letter) => {
                is_escape = letter == '\\' && !is_escape;
                line.push(letter);
            }
            None => {
                let cut = incomplete_escape(&line);
                line.truncate(cut);
                break;
            }
        }
    }
    let line: String = serde_json::from_str(&format!("\"{line}\"")).unwrap_or_default();
    Some(line.trim().to_owned())
}

/// Whether a line of escaped JSON has only spaces, tabs and carriage returns.
fn is_blank(escaped: &str) -> bool {
    escaped.replace("\\t", "").replace("\\r", "").trim().is_empty()
}

/// Returns where an escape begins that is cut off at the end of the text, or the text's length.
fn incomplete_escape(escaped: &str) -> usize {
    let mut letters = escaped.char_indices();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            let wanted = match letters.next() {
                Some((_, 'u')) => 4,
                Some(_) => 0,
                None => return at,
            };
            if letters.by_ref().take(wanted).count() < wanted {
                return at;
            }
        }
    }
    escaped.len()
}

const LANGUAGES: [Language; 2] = [Language::JavaScript, Language::TypeScript];

fn only(language: Language) -> Languages {
    Languages::of(&[language]).unwrap_or(Languages::ALL)
}

#[cfg(test)]
mod tests {
    use contract::cell::Language;
    use contract::config::Languages;
    use contract::limits::Limits;

    use super::{Definition, first_source_line, only};
    use crate::input::ExecInput;

    #[test]
    fn the_first_line_of_a_source_is_read_from_any_start_of_its_definition() {
        let cases = [
            ("return 1", "return 1"),
            ("\n \t\r\n  const n = \"\\n\"; // ä\nreturn n", "const n = \"\\n\"; // ä"),
            ("", ""),
            ("\u{1}\u{7f}日本\nx", "\u{1}\u{7f}日本"),
        ];
        for (source, expected) in cases {
            let whole = Definition::new(ExecInput::javascript(source), 1, Limits::DEFAULT, 7).to_json();
            assert_eq!(first_source_line(&whole).as_deref(), Some(expected), "{source:?}");
            // However short the start is, it gives a part of that line.
            for (at, _) in whole.char_indices().filter(|(at, _)| *at >= "{\"source\":\"".len()) {
                let line = first_source_line(&whole[..at]).unwrap();
                assert!(expected.starts_with(line.as_str()), "{source:?} cut at {at}: {line:?}");
            }
        }
        assert_eq!(first_source_line("{\"kind\":\"call\"}"), None);
    }

    #[test]
    fn a_definition_survives_a_json_round_trip() {
        let definition = Definition {
            source: "return `\u{1F600}`".to_owned(),
            language: Language::TypeScript,
            languages: Languages::ALL,
            seed: u64::MAX,
            limits: Limits { timeout_ms: 1234, ..Limits::DEFAULT },
            ttl_seconds: 7,
            sandboxed: true,
        };
        assert_eq!(Definition::from_json(&definition.to_json()), Some(definition));
        assert_eq!(Definition::from_json("{}"), None);
    }

    #[test]
    fn a_definition_without_languages_allows_only_its_own() {
        let definition = Definition::new(ExecInput::javascript("return 1"), 1, Limits::DEFAULT, 7);
        let stored = definition.clone().allowing(Languages::ALL).to_json();
        let older = stored.replace(",\"languages\":[\"javascript\",\"typescript\"]", "");
        assert!(older.len() < stored.len(), "{stored}");
        assert_eq!(Definition::from_json(&older), Some(definition));
        let older = stored.replace(",\"storedOutputBytes\":16777216,\"mediaBlocks\":8,\"mediaBytes\":5242880", "");
        assert!(older.len() < stored.len(), "{stored}");
        let limits = Definition::from_json(&older).unwrap().limits;
        assert_eq!(limits.output_budget(0), Limits::DEFAULT.output_bytes, "an older run fails where it failed");
        assert!(!only(Language::JavaScript).allow(Language::TypeScript));
    }
}
