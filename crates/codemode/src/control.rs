//! `exec` and `wait` as the model calls them.

use contract::cell::{CellResult, Language};
use contract::config;
use contract::error::ErrorCode;
use executor::Executor;
use serde_json::Value;

use crate::driver::{failed, failed_with};
use crate::input::{ExecInput, wait_input};
use crate::recorded;
use crate::runs::CodeMode;

impl CodeMode {
    /// Runs `exec` with JSON input. Hooks see the source as both `code` and `command`; rewriting one rewrites both.
    pub async fn exec_json(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        input: &Value,
    ) -> CellResult {
        self.exec_json_begun(executor, config, tool_call_id, input, |_| {}).await
    }

    /// Runs `exec` with JSON input, and calls `began` with the run's id as soon as there is one. A caller that may have
    /// to abort the run needs the id before the result.
    pub async fn exec_json_begun(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        input: &Value,
        began: impl FnOnce(&str) + Send,
    ) -> CellResult {
        if !executor.has_hooks() {
            return match ExecInput::parse(input) {
                Ok(input) => self.exec_begun(executor, config, tool_call_id, input, began).await,
                Err(failure) => failed_with(&failure),
            };
        }
        let given = both_names(input);
        let (rewritten, mut event) = match executor.before_cell(tool_call_id, given.clone(), language(&given)).await {
            Ok(judged) => judged,
            Err(reason) => return failed(ErrorCode::InvalidInput, &reason),
        };
        // Hooks that run afterwards see the source that was run.
        event.params = sync_names(&given, rewritten);
        event.tool_input_kind = language(&event.params);
        let result = match ExecInput::parse(&event.params) {
            Ok(input) => self.exec_begun(executor, config, tool_call_id, input, began).await,
            Err(failure) => failed_with(&failure),
        };
        executor.after_cell(&event, recorded::to_value(&result)).await;
        result
    }

    /// Runs `wait` with JSON input, `{ runId }`.
    pub async fn wait_json(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        input: &Value,
    ) -> CellResult {
        match wait_input(input) {
            Ok(run_id) => self.wait(executor, config, tool_call_id, run_id).await,
            Err(failure) => failed_with(&failure),
        }
    }
}

/// Returns the language of the input. `None` if it is unknown.
fn language(input: &Value) -> Option<Language> {
    match input.get("language") {
        None | Some(Value::Null) => Some(Language::JavaScript),
        Some(language) => language.as_str().and_then(Language::parse),
    }
}

/// Copies the source to both names. Malformed input stays unchanged and is refused later.
fn both_names(input: &Value) -> Value {
    let mut input = input.clone();
    if let Some(fields) = input.as_object_mut() {
        let given = |fields: &serde_json::Map<String, Value>, name: &str| {
            fields.get(name).filter(|value| value.as_str().is_none_or(|text| !text.trim().is_empty())).cloned()
        };
        match (given(fields, "code"), given(fields, "command")) {
            (Some(code), None) => drop(fields.insert("command".to_owned(), code)),
            (None, Some(command)) => drop(fields.insert("code".to_owned(), command)),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    input
}

/// If a hook rewrote the source under one name, copies it to the other name.
fn sync_names(before: &Value, mut after: Value) -> Value {
    let changed = |name: &str| before.get(name) != after.get(name);
    let follow = match (changed("code"), changed("command")) {
        (true, false) => Some(("command", after.get("code").cloned())),
        (false, true) => Some(("code", after.get("command").cloned())),
        (true, true) | (false, false) => None,
    };
    if let (Some((name, Some(value))), Some(fields)) = (follow, after.as_object_mut()) {
        fields.insert(name.to_owned(), value);
    }
    after
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{both_names, sync_names};

    #[test]
    fn both_names_hold_the_source() {
        let both = json!({"code": "a", "command": "a"});
        for input in [json!({"code": "a"}), json!({"command": "a"}), json!({"code": "a", "command": " "}), both.clone()]
        {
            assert_eq!(both_names(&input), both, "{input}");
        }
        assert_eq!(both_names(&json!({"code": "a", "command": "b"})), json!({"code": "a", "command": "b"}));
        assert_eq!(both_names(&json!("a")), json!("a"));
    }

    #[test]
    fn a_source_rewritten_under_one_name_is_copied_to_the_other() {
        let before = json!({"code": "a", "command": "a"});
        let after = json!({"code": "b", "command": "b"});
        for rewritten in [json!({"code": "b", "command": "a"}), json!({"code": "a", "command": "b"}), after.clone()] {
            assert_eq!(sync_names(&before, rewritten.clone()), after, "{rewritten}");
        }
        // Two different rewrites stay different, and are refused because both must match.
        let differ = json!({"code": "b", "command": "c"});
        assert_eq!(sync_names(&before, differ.clone()), differ);
    }
}
