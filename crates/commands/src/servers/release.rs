//! Approves calls that wait only because their server was not trusted when they were made.

use client_config::{LoadedConfig, Places, ServerEntry};
use contract::tool::{ToolHash, ToolId};
use store::{Approval, ApprovalScope, Decision, DecisionError};

use super::declared::Declaration;
use super::report::existing_store;
use crate::approvals::decided_by;
use crate::state::StoreArguments;

/// Approves the waiting calls of tools that these servers declare harmless, and returns them. A call of another
/// definition of the tool or of another server with this name, and one that asks for another reason, still waits.
pub(super) async fn approve_waiting(
    trusted: &[(&ServerEntry, &Declaration)],
    loaded: &LoadedConfig,
    places: &Places,
    store: &StoreArguments,
) -> Result<Vec<Approval>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("calls that wait cannot be approved: {error}");
    let Some(store) = existing_store(loaded, places, store).await.map_err(|error| failed(&error))? else {
        return Ok(Vec::new());
    };
    let mut approved = Vec::new();
    for approval in store.pending_approvals().await.map_err(|error| failed(&error))? {
        if !trusted.iter().any(|(server, declared)| covers(server, declared, &approval)) {
            continue;
        }
        let decision = Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
        match codemode::decide(&store, &approval.approval_id, &decision, &decided_by("servers trust-tools")).await {
            Ok(recorded) => approved.push(recorded.approval),
            // Another process has decided the approval, or its run has ended.
            Err(DecisionError::NotPending) => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(approved)
}

fn covers(server: &ServerEntry, declared: &Declaration, approval: &Approval) -> bool {
    let is_about_changes = approval.question.is_none() && approval.reason == mcp::server::MAY_CHANGE;
    let is_declared =
        |(id, hash): &(ToolId, ToolHash)| approval.tool_id == id.as_str() && approval.tool_hash == hash.to_string();
    is_about_changes
        && approval.source_identity == Some(server.spec().identity())
        && declared.definitions.iter().any(is_declared)
}
