//! Which calls wait for a person.
//!
//! Where nothing is configured, every tool is asked about that may change something: all but those of which a trusted
//! server says that they only read, or that they only add and do so once. An answer can be given for good, so a tool
//! is asked about once by those who want that.

use std::collections::HashSet;
use std::sync::Arc;

use contract::config::pattern::Pattern;
use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{Hook, HookAnswer, HookFuture, ToolEvent};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// About every tool that may change something.
    Changes,
    /// About tools that these name, whatever they say of themselves.
    Named(Vec<Pattern>),
    /// Never.
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

    /// What is said beside this, by whoever knows a tool to be harmless.
    pub fn about(&self, pass: &[Pattern], tools: &[ToolSpec]) -> ApprovalHook {
        let asked = tools.iter().filter(|tool| self.is_about(tool) && !names(pass, &tool.id));
        ApprovalHook(Arc::new(asked.map(|tool| tool.id.as_str().to_owned()).collect()))
    }
}

fn names(patterns: &[Pattern], id: &ToolId) -> bool {
    patterns.iter().any(|pattern| catalog::policy::names(pattern, id))
}

/// The tools of one catalog that are called only when a person agrees.
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
    fn read_only_tools_pass_unless_they_are_named() {
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
