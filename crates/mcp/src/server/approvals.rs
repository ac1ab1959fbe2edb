//! Approvals: which calls need one, and how a control call waits for one and stores a person's decision.
//!
//! By default every tool that may change something needs approval: all tools except those that a trusted server
//! declares read-only, or additive and idempotent, and those of the client. Patterns can add tools, never remove some.
//! A person can approve a tool permanently, so that it is asked about only once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::policy::{grants, restricts};
use codemode::CodeMode;
use contract::cell::{CellResult, PendingState, WaitingReason};
use contract::config::pattern::Pattern;
use contract::ids::{ApprovalId, RunId};
use contract::tool::{Source, ToolId, ToolSpec};
use executor::clock::now_ms;
use executor::{Hook, HookAnswer, HookFuture, ToolEvent};
use store::{Approval, ApprovalScope, Decision, DecisionError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::principal::{Principal, PrincipalScope};

/// How often approvals are read without a notification: they may expire, and a notification may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Why a tool that may change something needs approval. Trust in what its server declares about it can make it exempt.
pub const MAY_CHANGE: &str = "this tool may change something";

/// Why a tool that a pattern names needs approval, whatever its server declares.
const NAMED: &str = "the configuration requires approval of this tool";

/// Which tools need a person's approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// Every tool that may change something needs approval.
    Changes,
    /// Tools that may change something need approval, and those that match these patterns, whatever their annotations
    /// say. A list of patterns never exempts a tool: `exempt` and `Never` do.
    ChangesAnd(Vec<Pattern>),
    /// No tool needs approval.
    Never,
}

impl ApprovalPolicy {
    /// Returns a policy that requires approval for the tools that match these patterns, too. It never requires less than
    /// the default.
    pub fn and(self, patterns: Vec<Pattern>) -> Self {
        match self {
            Self::Changes | Self::Never => Self::ChangesAnd(patterns),
            Self::ChangesAnd(mut named) => {
                named.extend(patterns);
                Self::ChangesAnd(named)
            }
        }
    }

    /// Returns why a tool needs approval; `None` if it needs none.
    fn reason(&self, tool: &ToolSpec) -> Option<&'static str> {
        // A client carries out the calls of its own tools, and asks its user itself.
        let may_change = || !tool.repeat.is_harmless() && tool.id.source() != Source::Client;
        match self {
            Self::Never => None,
            Self::ChangesAnd(patterns) if patterns.iter().any(|pattern| restricts(pattern, &tool.id)) => Some(NAMED),
            Self::Changes | Self::ChangesAnd(_) => may_change().then_some(MAY_CHANGE),
        }
    }

    /// Returns the hook that requires approval for these tools. Tools that match `exempt`, which the user has
    /// declared harmless, need none.
    pub fn hook_for(&self, exempt: &[Pattern], tools: &[ToolSpec]) -> ApprovalHook {
        let asked = tools.iter().filter(|tool| !exempt.iter().any(|pattern| grants(pattern, &tool.id)));
        let reasons = asked.filter_map(|tool| Some((tool.id.as_str().to_owned(), self.reason(tool)?)));
        ApprovalHook { reasons: Arc::new(reasons.collect()) }
    }
}

/// Requires a person's approval for a set of tools of one catalog.
#[derive(Clone, Debug)]
pub struct ApprovalHook {
    /// Why a tool needs approval, by its id.
    reasons: Arc<HashMap<String, &'static str>>,
}

impl ApprovalHook {
    /// Whether calls of this tool need approval, unless a standing approval covers them.
    pub fn covers(&self, id: &ToolId) -> bool {
        self.reasons.contains_key(id.as_str())
    }
}

impl Hook for ApprovalHook {
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        let reason = event.tool_id.as_ref().and_then(|id| self.reasons.get(id)).map(|&reason| reason.to_owned());
        Box::pin(async move { Ok(HookAnswer { require_approval: reason, ..HookAnswer::default() }) })
    }
}

/// Returns the run's id if all of its pending calls wait for a person.
pub(crate) fn waits_for_people(result: &CellResult) -> Option<&RunId> {
    match result {
        CellResult::Waiting { run_id, reason: WaitingReason::PendingTools, pending_tool_calls, .. } => {
            let only_people = pending_tool_calls.iter().all(|call| call.state == PendingState::Approval);
            (only_people && !pending_tool_calls.is_empty()).then_some(run_id)
        }
        CellResult::Waiting { .. } | CellResult::Completed { .. } | CellResult::Failed { .. } => None,
    }
}

/// Returns the open approvals of a waiting run. If the store cannot be read, there are none.
pub(crate) async fn open_approvals(code_mode: &CodeMode, principal: &Principal, result: &CellResult) -> Vec<Approval> {
    let CellResult::Waiting { run_id, .. } = result else { return Vec::new() };
    open_approvals_of(code_mode, principal, run_id).await
}

/// Returns the open approvals of a run. If the store cannot be read, there are none.
pub(crate) async fn open_approvals_of(code_mode: &CodeMode, principal: &Principal, run_id: &RunId) -> Vec<Approval> {
    let scope = principal.scope();
    let mut approvals = match code_mode.store().approvals_of_run(run_id).await {
        Ok(approvals) => approvals,
        Err(error) => {
            tracing::warn!(run_id = run_id.as_str(), %error, "the approvals of a run cannot be read");
            return Vec::new();
        }
    };
    let now = now_ms();
    approvals.retain(|approval| {
        approval.is_open(now) && approval.agent_id == scope.agent_id && approval.session_id == scope.session_id
    });
    approvals
}

/// Waits until one of these approvals is decided, in this process or in another, or expires. Returns false if that does
/// not happen before `until` or before the shutdown.
pub(crate) async fn wait_for_decision(
    code_mode: &CodeMode,
    approvals: &[Approval],
    until: Instant,
    shutdown: &CancellationToken,
) -> bool {
    let Some(run_id) = approvals.first().map(|approval| approval.run_id.clone()) else { return false };
    let mut changes = code_mode.run_changes();
    loop {
        // If the store cannot be read now, it is read again after the interval.
        if let Ok(current) = code_mode.store().approvals_of_run(&run_id).await {
            let now = now_ms();
            let is_open = |id: &ApprovalId| current.iter().any(|found| found.approval_id == *id && found.is_open(now));
            if approvals.iter().any(|approval| !is_open(&approval.approval_id)) {
                return true;
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        tokio::select! {
            () = changes.wait(&run_id, POLL_INTERVAL.min(left)) => {}
            () = shutdown.cancelled() => return false,
        }
    }
}

/// Stores a decision that a person made through the client. Returns true if the approval is now decided, by this
/// decision or by an earlier one.
pub(crate) async fn decide(
    code_mode: &CodeMode,
    principal: &Principal,
    approval_id: &ApprovalId,
    decision: &Decision,
) -> bool {
    let by = format!("{} (through the client)", principal.name());
    let decided = match code_mode.decide(approval_id, decision, &by).await {
        Err(DecisionError::TooManyRules) => {
            // No permanent approval can be stored, but the person also approved this one call.
            let once = Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
            code_mode.decide(approval_id, &once, &by).await
        }
        decided => decided,
    };
    match decided {
        Ok(_) | Err(DecisionError::NotPending) => true,
        Err(error) => {
            tracing::warn!(approval_id = approval_id.as_str(), %error, "a decision cannot be stored");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::config::pattern::Pattern;
    use contract::tool::{Repeat, ToolId, ToolSpec};
    use serde_json::json;

    use super::{ApprovalPolicy, MAY_CHANGE, NAMED};

    fn tool(id: &str, repeat: Repeat) -> ToolSpec {
        ToolSpec { repeat, ..ToolSpec::new(ToolId::parse(id).unwrap(), "", json!({})) }
    }

    #[test]
    fn patterns_add_tools_to_those_that_may_change_something_and_remove_none() {
        let pattern = |text: &str| Pattern::parse(text).unwrap();
        let tools = [
            tool("mcp:git:log", Repeat::Always),
            tool("mcp:git:push", Repeat::Never),
            tool("mcp:files:create_directory", Repeat::Additive),
            tool("mcp:files:write", Repeat::WithKey),
            tool("client:app:push", Repeat::Never),
        ];
        let asked = |policy: &ApprovalPolicy, exempt: &[Pattern]| {
            let reasons = policy.hook_for(exempt, &tools).reasons;
            let mut asked: Vec<_> = reasons.iter().map(|(id, reason)| (id.clone(), *reason)).collect();
            asked.sort_unstable();
            asked
        };
        let expected = |asked: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
            asked.iter().map(|(id, reason)| ((*id).to_owned(), *reason)).collect()
        };
        let (write, push) = (("mcp:files:write", MAY_CHANGE), ("mcp:git:push", MAY_CHANGE));
        assert_eq!(asked(&ApprovalPolicy::Changes, &[]), expected(&[write, push]));
        assert_eq!(asked(&ApprovalPolicy::Changes, &[pattern("mcp:files:*")]), expected(&[push]));
        let also = |text: &str| ApprovalPolicy::Changes.and(vec![pattern(text)]);
        let named = [write, ("mcp:git:log", NAMED), ("mcp:git:push", NAMED)];
        assert_eq!(asked(&also("mcp:git:*"), &[]), expected(&named));
        assert_eq!(asked(&also("mcp:git:*"), &[pattern("mcp:git:push")]), expected(&named[..2]));
        assert_eq!(asked(&also("client:*"), &[]), expected(&[("client:app:push", NAMED), write, push]));
        assert_eq!(asked(&also("nothing"), &[]), expected(&[write, push]));
        assert_eq!(asked(&also("client:*").and(vec![pattern("nothing")]), &[]).len(), 3);
        assert_eq!(asked(&ApprovalPolicy::Never.and(vec![pattern("nothing")]), &[]), expected(&[write, push]));
        assert!(asked(&ApprovalPolicy::Never, &[]).is_empty());
    }
}
