//! Which calls need a person's approval.
//!
//! By default every tool that may change something needs approval: all tools except those that a trusted server
//! declares read-only, or additive and idempotent. A person can approve a tool permanently, so that it is asked about
//! only once.

use std::collections::HashSet;
use std::sync::Arc;

use contract::config::pattern::Pattern;
use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{Hook, HookAnswer, HookFuture, ToolEvent};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// Every tool that may change something needs approval.
    Changes,
    /// The tools that match these patterns need approval, whatever their annotations say.
    Named(Vec<Pattern>),
    /// No tool needs approval.
    Nobody,
}

impl ApprovalPolicy {
    fn is_about(&self, tool: &ToolSpec) -> bool {
        match self {
            Self::Changes => tool.repeat != Repeat::Always,
            Self::Named(patterns) => names(patterns, &tool.id),
            Self::Nobody => false,
        }
    }

    /// Returns the hook that requires approval for these tools. Tools that match `pass`, which the user has declared
    /// harmless, are exempt.
    pub fn about(&self, pass: &[Pattern], tools: &[ToolSpec]) -> ApprovalHook {
        let asked = tools.iter().filter(|tool| self.is_about(tool) && !names(pass, &tool.id));
        ApprovalHook(Arc::new(asked.map(|tool| tool.id.as_str().to_owned()).collect()))
    }
}

fn names(patterns: &[Pattern], id: &ToolId) -> bool {
    patterns.iter().any(|pattern| catalog::policy::names(pattern, id))
}

/// Requires a person's approval for a set of tools of one catalog.
#[derive(Clone, Debug)]
pub struct ApprovalHook(Arc<HashSet<String>>);

impl Hook for ApprovalHook {
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        let asked = event.tool_id.as_ref().is_some_and(|id| self.0.contains(id));
        let reason = asked.then(|| "this tool may change something".to_owned());
        Box::pin(async move { Ok(HookAnswer { require_approval: reason, ..HookAnswer::default() }) })
    }
}

#[cfg(test)]
mod tests {
    use contract::config::pattern::Pattern;
    use contract::tool::{Repeat, ToolId, ToolSpec};
    use serde_json::json;

    use super::ApprovalPolicy;

    fn tool(id: &str, repeat: Repeat) -> ToolSpec {
        ToolSpec { repeat, ..ToolSpec::new(ToolId::parse(id).unwrap(), "", json!({})) }
    }

    #[test]
    fn a_read_only_tool_needs_no_approval_unless_a_pattern_names_it() {
        let pattern = |text: &str| Pattern::parse(text).unwrap();
        let tools = [
            tool("mcp:git:log", Repeat::Always),
            tool("mcp:git:push", Repeat::Never),
            tool("mcp:files:write", Repeat::WithKey),
        ];
        let asked = |asking: &ApprovalPolicy, pass: &[Pattern]| {
            let mut ids: Vec<String> = asking.about(pass, &tools).0.iter().cloned().collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(asked(&ApprovalPolicy::Changes, &[]), ["mcp:files:write", "mcp:git:push"]);
        assert_eq!(asked(&ApprovalPolicy::Changes, &[pattern("mcp:files:*")]), ["mcp:git:push"]);
        assert_eq!(asked(&ApprovalPolicy::Named(vec![pattern("mcp:git:*")]), &[]), ["mcp:git:log", "mcp:git:push"]);
        assert!(asked(&ApprovalPolicy::Nobody, &[]).is_empty());
    }
}
