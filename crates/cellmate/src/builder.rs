//! Builds the host from tools, store and configuration.

use std::sync::Arc;

use catalog::{EntryPoint, SurfaceChoice, SurfaceOptions};
use codemode::CodeMode;
use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use contract::config::pattern::Pattern;
use contract::config::{AgentsConfig, StoreConfig};
use executor::ToolSource;
use executor::run::{Host, LocalTools};
use serde_json::{Map, Value};

use crate::entry::{can_be_worker, had_threads};
use crate::error::{self, Error, ErrorKind, Result};
use crate::host::Cellmate;
#[cfg(feature = "mcp")]
use crate::mcp_server::McpServer;
use crate::storage::Store;
use crate::tool::{Tool, Tools};

/// Sets up a [`Cellmate`]. Every setting has a default.
///
/// ```no_run
/// # use cellmate::{Cellmate, KeyFile, Store, json};
/// # async fn example() -> cellmate::Result<()> {
/// let host = Cellmate::builder()
///     .store(Store::file("runs.db", KeyFile::open("key")?))
///     .limits(json!({"timeoutMs": 5_000, "memoryLimitBytes": 32 << 20}))
///     .workers(4)
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
#[derive(Debug)]
pub struct Builder {
    store: Store,
    config: Map<String, Value>,
    limits: Value,
    tools: Vec<Tool>,
    sources: Vec<Arc<dyn ToolSource>>,
    #[cfg(feature = "mcp")]
    servers: Vec<McpServer>,
    ask: Vec<String>,
    surface: Option<SurfaceChoice>,
    pool: PoolOptions,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            store: Store::memory(),
            config: Map::new(),
            limits: Value::Null,
            tools: Vec::new(),
            sources: Vec::new(),
            #[cfg(feature = "mcp")]
            servers: Vec::new(),
            ask: Vec::new(),
            surface: None,
            pool: PoolOptions::new(Launch::ThisProgram),
        }
    }
}

impl Cellmate {
    /// Returns a builder with a store in memory, no tools, and code mode for every agent.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// The sections of the configuration that apply to programs that embed Cellmate.
const SECTIONS: [&str; 3] = ["tools", "agents", "store"];

impl Builder {
    /// Adds a tool of this program.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a source of tools that are not known in advance; see [`source`](crate::source).
    ///
    /// If two sources have a tool with the same id, the first one keeps it. Tools of [`tool`](Self::tool) come first.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Adds an MCP server as a source of tools, with the ids `mcp:<server>:<tool>`.
    #[cfg(feature = "mcp")]
    pub fn mcp_server(mut self, server: McpServer) -> Self {
        self.servers.push(server);
        self
    }

    /// Requires that a person approves each call of the tools that match a pattern, such as `mcp:github:*`.
    pub fn ask_first(mut self, pattern: impl Into<String>) -> Self {
        self.ask.push(pattern.into());
        self
    }

    /// Sets where runs are stored. The default is memory.
    pub fn store(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// Sets the configuration, as in the configuration file of the command line: an object with `tools` (policy, code
    /// mode, Tool Search), `agents`, and `store` (retention and quotas).
    ///
    /// ```no_run
    /// # use cellmate::{Cellmate, json};
    /// let builder = Cellmate::builder().config(json!({"tools": {"deny": ["plugin:post:*"]}}));
    /// ```
    pub fn config(mut self, config: Value) -> Self {
        self.config = match config {
            Value::Object(config) => config,
            // `build` refuses it with the path of the value.
            other => Map::from_iter([("tools".to_owned(), other)]),
        };
        self
    }

    /// Sets limits of cells, as in `tools.codeMode` of the configuration: `timeoutMs`, `memoryLimitBytes`,
    /// `maxOutputBytes` and others. They replace those of [`config`](Self::config).
    pub fn limits(self, limits: Value) -> Self {
        Self { limits, ..self }
    }

    /// Sets how tools are shown to models, instead of the configured way. The default is code mode.
    pub fn surface(self, surface: SurfaceChoice) -> Self {
        Self { surface: Some(surface), ..self }
    }

    /// Sets the number of worker processes. The default is the number of processors, from 2 to 8.
    pub fn workers(mut self, workers: usize) -> Self {
        self.pool.workers = workers;
        self
    }

    /// Sets which parts of the jail must be in force for a worker to start. By default all parts must be.
    pub fn jail(mut self, jail: JailPolicy) -> Self {
        self.pool.jail = jail;
        self
    }

    /// Runs cells on threads of this process, without a jail: for tests, whose `main` cannot call
    /// [`worker_main`](crate::worker_main). Never run the cells of a model this way.
    pub fn workers_in_this_process(mut self) -> Self {
        self.pool.launch = Launch::InProcess(sandbox::serve_attached);
        self
    }

    /// Starts the workers and MCP servers, and opens the store. Must be called in a Tokio runtime, such as
    /// [`block_on`](crate::block_on).
    pub async fn build(self) -> Result<Cellmate> {
        if matches!(self.pool.launch, Launch::ThisProgram) && !can_be_worker() {
            return Err(Error::new(
                ErrorKind::WorkerMainMissing,
                "cannot start workers, because they are this program, started again; call `cellmate::worker_main()` \
                 first in `main`, or in a test use `workers_in_this_process`",
            ));
        }
        if matches!(self.pool.launch, Launch::ThisProgram) && had_threads() {
            return Err(Error::new(
                ErrorKind::WorkerMainMissing,
                "cannot start workers, because `cellmate::worker_main()` was called after a thread had been started, for \
                 example by `#[tokio::main]`; call it first in `main`, then `cellmate::block_on`, or start a runtime of \
                 your own",
            ));
        }
        let (config, store_config) = resolve(self.config, &self.limits)?;
        let patterns = self.tools.iter().filter(|tool| tool.asks_first).filter_map(Tool::id);
        let patterns: Vec<String> = patterns.map(|id| id.as_str().to_owned()).chain(self.ask).collect();
        let approval_patterns: Vec<Pattern> =
            patterns.iter().map(|pattern| parse_pattern(pattern)).collect::<Result<_>>()?;
        let tools: Arc<dyn ToolSource> = Arc::new(Tools::new(self.tools)?);
        let local =
            LocalTools { sources: std::iter::once(tools).chain(self.sources).collect(), ..LocalTools::default() };
        #[cfg(feature = "mcp")]
        let servers = Arc::new(crate::mcp_server::start(self.servers).await?);
        #[cfg(feature = "mcp")]
        let sources = servers.sources();
        #[cfg(not(feature = "mcp"))]
        let sources = Vec::new();

        let store = self.store.open(&store_config).await?;
        let options = PoolOptions { memory_limit_bytes: config.largest_memory_limit(), ..self.pool };
        let pool = Pool::start(options).await.map_err(|error| error::pool(&error))?;
        let code_mode = CodeMode::new(pool.clone(), store).map_err(error::randomness)?;
        // As for clients of the MCP server, the model gets code mode unless a setting says otherwise.
        let surface = SurfaceOptions { entry: EntryPoint::Mcp, wanted: self.surface, ..SurfaceOptions::default() };
        let host = Arc::new(Host { local, approval_patterns, surface, ..Host::new(config, sources) });
        Ok(Cellmate {
            code_mode,
            pool,
            host,
            #[cfg(feature = "mcp")]
            servers,
        })
    }
}

/// Resolves the sections of the configuration, with the limits in their place.
fn resolve(mut config: Map<String, Value>, limits: &Value) -> Result<(AgentsConfig, StoreConfig)> {
    if let Some(unknown) = config.keys().find(|key| !SECTIONS.contains(&key.as_str())) {
        let message = format!(
            "the configuration is invalid: `{unknown}` does not apply to a program that embeds Cellmate; known \
             sections are `{}`",
            SECTIONS.join("`, `")
        );
        return Err(Error::new(ErrorKind::InvalidConfig, message));
    }
    let mut section = |name: &str| config.remove(name).unwrap_or_default();
    let (tools, agents, store) = (section("tools"), section("agents"), section("store"));
    let tools = with_limits(tools, limits)?;
    let agents = AgentsConfig::resolve(&tools, &agents).map_err(|errors| Error::config(&errors))?;
    let store = StoreConfig::resolve(&store).map_err(|errors| Error::config(&errors))?;
    if store.url.is_some() || store.key_file.is_some() {
        let message = "the configuration is invalid: a program that embeds Cellmate names its store with \
                       `Builder::store`, not with `store.url` and `store.keyFile`";
        return Err(Error::new(ErrorKind::InvalidConfig, message));
    }
    Ok((agents, store))
}

/// Puts limits into `tools.codeMode`.
fn with_limits(tools: Value, limits: &Value) -> Result<Value> {
    let limits = match limits {
        Value::Null => return Ok(tools),
        Value::Object(limits) => limits.clone(),
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                "limits must be an object, such as {\"timeoutMs\": 5000}",
            ));
        }
    };
    let mut tools = match tools {
        Value::Null => Map::new(),
        Value::Object(tools) => tools,
        // `AgentsConfig::resolve` refuses it.
        other => return Ok(other),
    };
    let mut code_mode = match tools.remove("codeMode") {
        Some(Value::Object(code_mode)) => code_mode,
        Some(switch @ Value::Bool(_)) => Map::from_iter([("enabled".to_owned(), switch)]),
        _ => Map::new(),
    };
    code_mode.extend(limits);
    tools.insert("codeMode".to_owned(), Value::Object(code_mode));
    Ok(Value::Object(tools))
}

fn parse_pattern(pattern: &str) -> Result<Pattern> {
    let refuse = |why| format!("invalid pattern `{pattern}` in `ask_first`: expected {why}");
    Pattern::parse(pattern).map_err(|why| Error::new(ErrorKind::InvalidTool, refuse(why)))
}
