//! Keys of OpenClaw's configuration that Cellmate accepts but does not use, by the object that they are in.
//!
//! The tables contain the keys of OpenClaw's published schemas, old and new. A key that is missing here is an error in
//! `tools` and its parts, and is reported as unknown elsewhere.

use serde_json::Value;

use super::UnusedKind;

/// A key that is accepted but not used.
#[derive(Debug)]
pub(crate) struct ForeignKey {
    pub(crate) name: &'static str,
    /// Why it is not used; completes "`key` is not used: …".
    pub(crate) reason: &'static str,
    /// Decides what to report for a value; `None` if the value asks for nothing that is missing.
    pub(super) judge: fn(&Value) -> Option<UnusedKind>,
}

const fn inapplicable(name: &'static str, reason: &'static str) -> ForeignKey {
    ForeignKey { name, reason, judge: |_| Some(UnusedKind::NotApplicable) }
}

const fn restriction(name: &'static str, reason: &'static str) -> ForeignKey {
    ForeignKey { name, reason, judge: |_| Some(UnusedKind::NotEnforced) }
}

const fn judged(name: &'static str, reason: &'static str, judge: fn(&Value) -> Option<UnusedKind>) -> ForeignKey {
    ForeignKey { name, reason, judge }
}

const NO_GATEWAY: &str = "this is a part of OpenClaw's gateway that cellmate does not have";
const NO_CHANNELS: &str = "cellmate has no channels";
const NO_MODELS: &str = "only turns of cellmate's gateway call models";
const OWN_SERVER: &str = "the command line of `cellmate gateway` decides this";
const PROVIDER_SETTING: &str = "cellmate's client of model providers has no such setting";
const NO_SESSIONS: &str = "cellmate has no chat sessions";
const NO_SUCH_TOOL: &str = "cellmate has no such tool";
const OWN_LOG: &str = "cellmate has its own log";
const OWN_RECORD: &str = "this is OpenClaw's own record";
const AGENT_RUNTIME: &str = "this is a setting of OpenClaw's agent runtime";
const NO_CONTAINER: &str = "cellmate starts no containers";
const PLUGIN_LOADER: &str = "cellmate loads no OpenClaw plugins; see `cellmate plugins`";
const SHELL: &str = "the shell of cellmate has no such setting";
const EARLY: &str = "early versions of OpenClaw wrote this; `openclaw doctor --fix` replaces it";

/// Sections of a configuration.
pub(crate) static SECTIONS: &[ForeignKey] = &[
    inapplicable("accessGroups", NO_CHANNELS),
    inapplicable("acp", "cellmate does not speak ACP"),
    inapplicable("agent", EARLY),
    inapplicable("audio", NO_CHANNELS),
    inapplicable("auth", "cellmate has no auth profiles; write `apiKey` under `models.providers`"),
    inapplicable("bindings", NO_CHANNELS),
    inapplicable("broadcast", NO_CHANNELS),
    inapplicable("browser", "cellmate has no browser tool"),
    inapplicable("canvas", NO_GATEWAY),
    inapplicable("canvasHost", NO_GATEWAY),
    inapplicable("channels", NO_CHANNELS),
    inapplicable("cli", "this is a setting of OpenClaw's command line"),
    inapplicable("cloudWorkers", NO_GATEWAY),
    inapplicable("commands", NO_CHANNELS),
    inapplicable("crestodian", NO_GATEWAY),
    inapplicable("cron", "cellmate starts no runs by itself"),
    inapplicable("desktop", NO_GATEWAY),
    inapplicable("diagnostics", OWN_LOG),
    inapplicable("discord", EARLY),
    inapplicable("discovery", NO_GATEWAY),
    inapplicable(
        "env",
        "cellmate sets no variables; set them where cellmate is started, or use `cellmate secrets` and `env` of a server",
    ),
    inapplicable("heartbeat", EARLY),
    inapplicable("hooks", "cellmate receives no webhooks"),
    inapplicable("identity", EARLY),
    inapplicable("imessage", EARLY),
    inapplicable("logging", OWN_LOG),
    inapplicable("media", NO_CHANNELS),
    inapplicable("memory", "cellmate has no memory tools"),
    inapplicable("messages", NO_CHANNELS),
    inapplicable("meta", OWN_RECORD),
    inapplicable("nodeHost", NO_GATEWAY),
    inapplicable("proxy", NO_GATEWAY),
    inapplicable("routing", EARLY),
    inapplicable("secrets", "cellmate keeps secrets itself; see `cellmate secrets`"),
    inapplicable("session", NO_SESSIONS),
    inapplicable("signal", EARLY),
    inapplicable("skills", "cellmate has no skills"),
    inapplicable("slack", EARLY),
    inapplicable("surfaces", NO_CHANNELS),
    inapplicable("talk", NO_CHANNELS),
    inapplicable("telegram", EARLY),
    inapplicable("transcripts", NO_SESSIONS),
    inapplicable("tts", NO_CHANNELS),
    inapplicable("ui", NO_GATEWAY),
    inapplicable("update", "cellmate does not update itself"),
    inapplicable("vault", NO_GATEWAY),
    inapplicable("web", NO_CHANNELS),
    inapplicable("whatsapp", EARLY),
    inapplicable("wizard", OWN_RECORD),
];

/// `tools`, and the `tools` of an agent.
pub(crate) static TOOLS: &[ForeignKey] = &[
    inapplicable("agentToAgent", NO_SUCH_TOOL),
    restriction("bash", EARLY),
    inapplicable("codeExecution", NO_SUCH_TOOL),
    inapplicable("code_execution", NO_SUCH_TOOL),
    restriction("elevated", "cellmate does not know who sent a message, so its shell is the same for all"),
    inapplicable("experimental", NO_SUCH_TOOL),
    inapplicable("github", "the shell has the identity of the user who started cellmate"),
    inapplicable("links", NO_SUCH_TOOL),
    judged("loopDetection", "cellmate does not stop repeated calls", |value| {
        let is_on = value.get("enabled").and_then(Value::as_bool) == Some(true);
        Some(if is_on { UnusedKind::NotEnforced } else { UnusedKind::NotApplicable })
    }),
    inapplicable("media", NO_SUCH_TOOL),
    inapplicable("message", NO_SUCH_TOOL),
    inapplicable("sessions", NO_SUCH_TOOL),
    inapplicable("sessions_spawn", NO_SUCH_TOOL),
    restriction("subagents", "cellmate cannot tell a subagent from its agent"),
    inapplicable("swarm", NO_SUCH_TOOL),
    restriction("toolsBySender", "cellmate does not know who sent a message"),
    inapplicable("updatePlan", NO_SUCH_TOOL),
];

/// `tools.exec`.
pub(crate) static EXEC: &[ForeignKey] = &[
    inapplicable("approvalRunningNoticeMs", SHELL),
    judged("ask", "`approvals` decides which calls need approval", |value| unless(value, &["off"])),
    inapplicable("backgroundMs", SHELL),
    inapplicable("cleanupMs", SHELL),
    inapplicable("commandHighlighting", SHELL),
    inapplicable("grantExpiryDays", SHELL),
    judged("host", "commands run on this machine, under Landlock", |value| unless(value, &["auto", "gateway"])),
    judged(
        "mode",
        "cellmate compares no commands with a list; `approvals` decides which calls need approval",
        |value| unless_denied(value, &["full"]),
    ),
    inapplicable("node", NO_GATEWAY),
    inapplicable("notifyOnExit", SHELL),
    inapplicable("notifyOnExitEmptySuccess", SHELL),
    inapplicable("pathPrepend", "commands have the `PATH` that cellmate was started with"),
    inapplicable("reviewer", NO_MODELS),
    inapplicable("safeBinProfiles", SHELL),
    inapplicable("safeBinTrustedDirs", SHELL),
    inapplicable("safeBins", SHELL),
    judged(
        "security",
        "cellmate compares no commands with an allowlist; `approvals` decides which calls need approval",
        |value| unless_denied(value, &["full"]),
    ),
    judged("strictInlineEval", "cellmate does not look into commands", |value| {
        Some(if value.as_bool() == Some(true) { UnusedKind::NotEnforced } else { UnusedKind::NotApplicable })
    }),
];

/// `tools.exec.applyPatch`.
pub(crate) static APPLY_PATCH: &[ForeignKey] = &[
    restriction("allowModels", "cellmate does not choose tools by model here; use `tools.byProvider`"),
    judged("workspaceOnly", "file tools are always confined to `tools.fs.roots`", |value| {
        (value.as_bool() == Some(false)).then_some(UnusedKind::NotApplicable)
    }),
];

/// `tools.web`.
pub(crate) static WEB: &[ForeignKey] = &[
    inapplicable("search", "cellmate has no tool that searches the web"),
    inapplicable("x_search", "cellmate has no tool that searches the web"),
];

/// `tools.web.fetch`.
pub(crate) static FETCH: &[ForeignKey] = &[
    inapplicable("cacheTtlMinutes", "cellmate caches no pages"),
    inapplicable("firecrawl", "cellmate uses no fetch provider"),
    inapplicable("provider", "cellmate uses no fetch provider"),
    inapplicable("readability", "cellmate converts pages in its own way"),
    inapplicable("ssrfPolicy", "`allowPrivate` lists the private hosts that may be fetched"),
    inapplicable("useTrustedEnvProxy", "cellmate uses no proxy"),
    inapplicable("userAgent", "cellmate has its own user agent"),
];

/// `agents`, beside `list`, `entries` and `defaults`. An agent of Cellmate's own shape cannot have these names.
pub(crate) static AGENTS: &[ForeignKey] = &[inapplicable("ownership", NO_CHANNELS)];

/// `agents.defaults`, an item of `agents.list`, or an entry of `agents.entries`.
pub(crate) static AGENT: &[ForeignKey] = &[
    inapplicable("additionalSystemPrompt", AGENT_RUNTIME),
    inapplicable("agentDir", AGENT_RUNTIME),
    inapplicable("agentRuntime", AGENT_RUNTIME),
    inapplicable("blockStreamingBreak", AGENT_RUNTIME),
    inapplicable("blockStreamingChunk", AGENT_RUNTIME),
    inapplicable("blockStreamingCoalesce", AGENT_RUNTIME),
    inapplicable("blockStreamingDefault", AGENT_RUNTIME),
    inapplicable("bootstrapMaxChars", AGENT_RUNTIME),
    inapplicable("bootstrapPromptTruncationWarning", AGENT_RUNTIME),
    inapplicable("bootstrapTotalMaxChars", AGENT_RUNTIME),
    inapplicable("cliBackends", AGENT_RUNTIME),
    inapplicable("compaction", AGENT_RUNTIME),
    inapplicable("contextInjection", AGENT_RUNTIME),
    inapplicable("contextLimits", AGENT_RUNTIME),
    inapplicable("contextPruning", AGENT_RUNTIME),
    inapplicable("contextTokens", AGENT_RUNTIME),
    inapplicable("cwd", AGENT_RUNTIME),
    inapplicable("description", AGENT_RUNTIME),
    inapplicable("elevatedDefault", AGENT_RUNTIME),
    inapplicable("embeddedAgent", AGENT_RUNTIME),
    inapplicable("embeddedHarness", AGENT_RUNTIME),
    inapplicable("embeddedPi", AGENT_RUNTIME),
    inapplicable("envelopeElapsed", AGENT_RUNTIME),
    inapplicable("envelopeTimestamp", AGENT_RUNTIME),
    inapplicable("envelopeTimezone", AGENT_RUNTIME),
    inapplicable("experimental", AGENT_RUNTIME),
    inapplicable("fastModeDefault", AGENT_RUNTIME),
    inapplicable("groupChat", AGENT_RUNTIME),
    inapplicable("heartbeat", AGENT_RUNTIME),
    inapplicable("humanDelay", AGENT_RUNTIME),
    inapplicable("identity", AGENT_RUNTIME),
    inapplicable("imageGenerationModel", AGENT_RUNTIME),
    inapplicable("imageMaxDimensionPx", AGENT_RUNTIME),
    inapplicable("imageModel", AGENT_RUNTIME),
    inapplicable("maxConcurrent", AGENT_RUNTIME),
    inapplicable("mediaMaxMb", AGENT_RUNTIME),
    inapplicable("memory", AGENT_RUNTIME),
    inapplicable("memorySearch", AGENT_RUNTIME),
    inapplicable("modelPolicy", AGENT_RUNTIME),
    inapplicable("models", AGENT_RUNTIME),
    inapplicable("name", AGENT_RUNTIME),
    inapplicable("params", AGENT_RUNTIME),
    inapplicable("pdfMaxBytesMb", AGENT_RUNTIME),
    inapplicable("pdfMaxPages", AGENT_RUNTIME),
    inapplicable("pdfModel", AGENT_RUNTIME),
    inapplicable("plugins", AGENT_RUNTIME),
    inapplicable("reasoningDefault", AGENT_RUNTIME),
    inapplicable("repoRoot", AGENT_RUNTIME),
    inapplicable("runtime", AGENT_RUNTIME),
    inapplicable("skills", AGENT_RUNTIME),
    inapplicable("skillsLimits", AGENT_RUNTIME),
    inapplicable("skipBootstrap", AGENT_RUNTIME),
    inapplicable("subagents", AGENT_RUNTIME),
    inapplicable("systemAgent", AGENT_RUNTIME),
    inapplicable("systemPromptOverride", AGENT_RUNTIME),
    inapplicable("thinkingDefault", AGENT_RUNTIME),
    inapplicable("timeFormat", AGENT_RUNTIME),
    inapplicable("timeoutSeconds", AGENT_RUNTIME),
    inapplicable("toolProgressDetail", AGENT_RUNTIME),
    inapplicable("tts", AGENT_RUNTIME),
    inapplicable("typingIntervalSeconds", AGENT_RUNTIME),
    inapplicable("typingMode", AGENT_RUNTIME),
    inapplicable("userTimezone", AGENT_RUNTIME),
    inapplicable("utilityModel", AGENT_RUNTIME),
    inapplicable("verboseDefault", AGENT_RUNTIME),
];

/// The `sandbox` of an agent.
pub(crate) static SANDBOX: &[ForeignKey] = &[
    inapplicable("backend", NO_CONTAINER),
    inapplicable("browser", NO_CONTAINER),
    inapplicable("docker", NO_CONTAINER),
    inapplicable("perSession", NO_CONTAINER),
    inapplicable("prune", NO_CONTAINER),
    inapplicable("scope", NO_CONTAINER),
    inapplicable("sessionToolsVisibility", NO_SUCH_TOOL),
    inapplicable("ssh", NO_CONTAINER),
    inapplicable("workspaceRoot", NO_CONTAINER),
];

/// `plugins`.
pub(crate) static PLUGINS: &[ForeignKey] = &[
    inapplicable("bundledDiscovery", PLUGIN_LOADER),
    inapplicable("installs", PLUGIN_LOADER),
    inapplicable("load", PLUGIN_LOADER),
    inapplicable("slots", PLUGIN_LOADER),
];

/// `plugins.entries.<id>`.
pub(crate) static PLUGIN_ENTRY: &[ForeignKey] = &[
    inapplicable("apiKey", "cellmate passes only `config` and `env` to a plugin"),
    inapplicable("hooks", "plugins see tool calls, and neither prompts nor conversations"),
    inapplicable("llm", NO_MODELS),
    inapplicable("subagent", NO_MODELS),
];

/// `approvals`.
pub(crate) static APPROVALS: &[ForeignKey] = &[
    inapplicable("exec", "cellmate forwards no approvals to channels; see `cellmate approvals`"),
    inapplicable("plugin", "cellmate forwards no approvals to channels; see `cellmate approvals`"),
    inapplicable("tool", "cellmate forwards no approvals to channels; see `cellmate approvals`"),
    restriction("toolPolicy", "`approvals.ask` decides which calls need approval"),
];

/// `mcp`, beside `servers`.
pub(crate) static MCP: &[ForeignKey] = &[
    inapplicable("apps", "cellmate shows no apps"),
    inapplicable("sessionIdleTtlMs", "`cellmate mcp --idle-stop` decides when idle servers are stopped"),
];

/// `models`, beside `providers`.
pub(crate) static MODELS: &[ForeignKey] = &[
    inapplicable("bedrockDiscovery", PROVIDER_SETTING),
    inapplicable("copilotDiscovery", PROVIDER_SETTING),
    inapplicable("huggingfaceDiscovery", PROVIDER_SETTING),
    inapplicable("mode", PROVIDER_SETTING),
    inapplicable("ollamaDiscovery", PROVIDER_SETTING),
    inapplicable("pricing", PROVIDER_SETTING),
];

/// `models.providers.<id>`.
pub(crate) static MODEL_PROVIDER: &[ForeignKey] = &[
    inapplicable("agentRuntime", PROVIDER_SETTING),
    inapplicable("auth", PROVIDER_SETTING),
    inapplicable("authHeader", PROVIDER_SETTING),
    inapplicable("contextTokens", PROVIDER_SETTING),
    inapplicable("contextWindow", PROVIDER_SETTING),
    inapplicable("injectNumCtxForOpenAICompat", PROVIDER_SETTING),
    inapplicable("localService", PROVIDER_SETTING),
    inapplicable("maxTokens", PROVIDER_SETTING),
    inapplicable("params", PROVIDER_SETTING),
    inapplicable("region", PROVIDER_SETTING),
    inapplicable("request", PROVIDER_SETTING),
];

/// An item of `models.providers.<id>.models`.
pub(crate) static MODEL: &[ForeignKey] = &[
    inapplicable("agentRuntime", PROVIDER_SETTING),
    inapplicable("api", PROVIDER_SETTING),
    inapplicable("baseUrl", PROVIDER_SETTING),
    inapplicable("compat", PROVIDER_SETTING),
    inapplicable("contextTokens", PROVIDER_SETTING),
    inapplicable("cost", PROVIDER_SETTING),
    inapplicable("headers", PROVIDER_SETTING),
    inapplicable("input", PROVIDER_SETTING),
    inapplicable("mediaInput", PROVIDER_SETTING),
    inapplicable("metadataSource", PROVIDER_SETTING),
    inapplicable("params", PROVIDER_SETTING),
    inapplicable("reasoning", PROVIDER_SETTING),
    inapplicable("thinkingLevelMap", PROVIDER_SETTING),
];

/// `gateway`, beside the settings of turns.
pub(crate) static GATEWAY: &[ForeignKey] = &[
    inapplicable("allowRealIpFallback", OWN_SERVER),
    inapplicable("auth", "cellmate has its own tokens; see `cellmate tokens`"),
    inapplicable("bind", OWN_SERVER),
    inapplicable("channelHealthCheckMinutes", NO_CHANNELS),
    inapplicable("channelMaxRestartsPerHour", NO_CHANNELS),
    inapplicable("channelStaleEventThresholdMinutes", NO_CHANNELS),
    inapplicable("controlUi", NO_GATEWAY),
    inapplicable("customBindHost", OWN_SERVER),
    inapplicable("handshakeTimeoutMs", NO_GATEWAY),
    inapplicable("http", OWN_SERVER),
    inapplicable("mode", OWN_SERVER),
    inapplicable("nodes", NO_GATEWAY),
    inapplicable("port", OWN_SERVER),
    inapplicable("push", NO_GATEWAY),
    inapplicable("reload", OWN_SERVER),
    inapplicable("remote", NO_GATEWAY),
    inapplicable("securityAuditSuppressions", NO_GATEWAY),
    inapplicable("tailscale", NO_GATEWAY),
    inapplicable("terminal", NO_GATEWAY),
    inapplicable("tls", OWN_SERVER),
    restriction("tools", "`tools` and `approvals` decide which tools can be called"),
    inapplicable("trustedProxies", OWN_SERVER),
    inapplicable("webchat", NO_GATEWAY),
];

/// Reports a restriction unless the value is one of these words, which restrict nothing.
fn unless(value: &Value, harmless: &[&str]) -> Option<UnusedKind> {
    let is_harmless = value.as_str().is_some_and(|word| harmless.contains(&word));
    Some(if is_harmless { UnusedKind::NotApplicable } else { UnusedKind::NotEnforced })
}

/// Reports a value as [`unless`] does, except `deny`: the shell is then off.
fn unless_denied(value: &Value, harmless: &[&str]) -> Option<UnusedKind> {
    if value.as_str() == Some("deny") { None } else { unless(value, harmless) }
}

/// OpenClaw's names of APIs that the gateway does not speak.
pub(crate) const FOREIGN_APIS: [&str; 9] = [
    "azure-openai-responses",
    "bedrock-converse-stream",
    "github-copilot",
    "google-generative-ai",
    "google-vertex",
    "ollama",
    "openai-chatgpt-responses",
    "openai-codex-responses",
    "pi-messages",
];

/// Whether a provider has an API that the gateway does not speak.
pub(crate) fn has_foreign_api(provider: &Value) -> bool {
    provider.get("api").and_then(Value::as_str).is_some_and(|api| FOREIGN_APIS.contains(&api))
}
