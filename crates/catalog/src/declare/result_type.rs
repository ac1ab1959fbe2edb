//! MCP's own result types, for operations whose result has no schema.

use contract::tool::Operation;

const RESOURCE_LIST: &str = "type McpResourceList = {
  resources: { uri: string; name: string; title?: string; description?: string; mimeType?: string; size?: number }[];
  nextCursor?: string;
  [key: string]: unknown;
};

";

const RESOURCE_CONTENTS: &str = "type McpResourceContents = {
  contents: { uri: string; mimeType?: string; text?: string; blob?: string }[]; // blob is base64
  [key: string]: unknown;
};

";

const PROMPT_LIST: &str = "type McpPromptList = {
  prompts: {
    name: string;
    title?: string;
    description?: string;
    arguments?: { name: string; description?: string; required?: boolean }[];
  }[];
  nextCursor?: string;
  [key: string]: unknown;
};

";

const PROMPT: &str = "type McpPrompt = {
  description?: string;
  messages: { role: \"user\" | \"assistant\"; content: unknown }[];
  [key: string]: unknown;
};

";

pub(super) fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Tool => "McpToolResult",
        Operation::ListResources => "McpResourceList",
        Operation::ReadResource => "McpResourceContents",
        Operation::ListPrompts => "McpPromptList",
        Operation::GetPrompt => "McpPrompt",
    }
}

/// Returns the declaration of an operation's result. That of tools is part of every file's header.
pub(super) fn declaration(operation: Operation) -> &'static str {
    match operation {
        Operation::Tool => "",
        Operation::ListResources => RESOURCE_LIST,
        Operation::ReadResource => RESOURCE_CONTENTS,
        Operation::ListPrompts => PROMPT_LIST,
        Operation::GetPrompt => PROMPT,
    }
}
