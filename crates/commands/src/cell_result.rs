//! Prints the result of a cell and, if it has not ended, what the user can do next.

use std::process::ExitCode;

use client_config::display;
use codemode::CodeMode;
use contract::cell::CellResult;
use contract::ids::RunId;
use serde_json::{Value, json};
use store::{Approval, StoreError};

use crate::hint;
use crate::render::{self, OutputFormat};
use crate::turns::open_approvals;

/// How many tools that need approval are named.
const MAX_NAMED_TOOLS: usize = 3;

/// Returns what the user can do to let a waiting cell continue; `None` if it has ended.
pub(crate) async fn advice(code_mode: &CodeMode, result: &CellResult) -> Result<Option<String>, StoreError> {
    match result {
        CellResult::Waiting { run_id, .. } => Ok(Some(advice_for(run_id, &open_approvals(code_mode, run_id).await?))),
        CellResult::Completed { .. } | CellResult::Failed { .. } => Ok(None),
    }
}

/// Returns what to do next about a cell that has not ended. The advice contains no command that approves, because a model
/// with a shell reads it, too.
fn advice_for(run_id: &RunId, approvals: &[Approval]) -> String {
    let wait = format!("`{}`", hint::command(&format!("wait {run_id}")));
    let Some(first) = approvals.first() else {
        return format!("the cell has not ended; run {wait} to continue it");
    };
    let mut tools: Vec<String> = approvals.iter().map(|approval| display::plain(&approval.tool_id)).collect();
    tools.dedup();
    let more = tools.len().saturating_sub(MAX_NAMED_TOOLS);
    tools.truncate(MAX_NAMED_TOOLS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let tools = format!("`{}`{more}", tools.join("`, `"));
    let what = match (approvals.len(), &first.question) {
        (1, Some(_)) => format!("{tools} asks a question"),
        (1, None) => format!("a call of {tools} needs approval"),
        (count, _) => format!("{count} calls need approval or an answer: {tools}"),
    };
    let approvals = hint::command("approvals");
    format!("{what}; run `{approvals}` in a terminal to decide, then {wait} to continue the cell")
}

/// Prints a result, and the advice if there is one: for programs in the JSON, for people on standard error. People also
/// see the id of the run, if the store has it.
pub(crate) fn print(result: &CellResult, run: Option<&RunId>, advice: Option<&str>, format: OutputFormat) -> ExitCode {
    let code = match (format, advice) {
        (OutputFormat::Text, _) => render::readable(result, run),
        (OutputFormat::Json, None) => render::json(result),
        (OutputFormat::Json, Some(advice)) => {
            let mut value = json!(result);
            if let Some(fields) = value.as_object_mut() {
                fields.insert("message".to_owned(), Value::from(advice));
            }
            render::print_json(&value);
            render::exit_code(result)
        }
    };
    if let Some(advice) = advice {
        render::note(&format!("cellmate: {advice}"));
    }
    code
}

/// Says that a cell returned no value and wrote no output, and how a cell returns one.
pub(crate) fn note_empty(result: &CellResult) {
    if result.is_empty() {
        render::note(
            "cellmate: the cell returned no value and wrote no output; write `return` before the value, as in `return 1 + 1`",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::Approval;

    use super::advice_for;

    #[test]
    fn advice_names_the_run_and_a_few_of_the_tools_that_need_a_person() {
        let approval = |tool: &str| Approval { tool_id: tool.to_owned(), ..Approval::default() };
        let run = "cm_1".into();
        assert_eq!(advice_for(&run, &[]), "the cell has not ended; run `cellmate wait cm_1` to continue it");
        let next = "; run `cellmate approvals` in a terminal to decide, then `cellmate wait cm_1` to continue the cell";
        let one = advice_for(&run, &[approval("mcp:s:push")]);
        assert_eq!(one, format!("a call of `mcp:s:push` needs approval{next}"));
        let asks = Approval { question: Some(json!({"message": "m"})), ..approval("mcp:s:ask") };
        assert_eq!(advice_for(&run, &[asks]), format!("`mcp:s:ask` asks a question{next}"));
        let many: Vec<Approval> = ["a", "a", "b", "c", "d", "e"].map(approval).to_vec();
        let expected = format!("6 calls need approval or an answer: `a`, `b`, `c` and 2 more{next}");
        assert_eq!(advice_for(&run, &many), expected);
    }
}
