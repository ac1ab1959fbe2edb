//! A gateway on a loopback port, with a scripted model, canned tools, a store and workers.

use std::sync::Arc;
use std::time::Duration;

use catalog::SurfaceChoice;
use codemode::CodeMode;
use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use contract::config::{AgentsConfig, GatewayConfig, ModelsConfig};
use executor::{CannedTools, ToolSource};
use gateway::debug::DebugSettings;
use gateway::provider::Providers;
use gateway::{Gateway, Settings};
use http_server::{
    Access, BudgetLimits, Gate, Permission, Permissions, Principal, RequestGate, RouteRules, Token, Transport,
};
use mcp::server::{ApprovalPolicy, CallPolicy, OfferedSources};
use serde_json::{Value, json};
use store::{Keys, Location, Store};
use tempfile::TempDir;
use testkit::model::{Api, RecordedRequest, Reply, ScriptedModel};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::Wire;

use crate::answer::Answer;

/// The token of the principal `ada`.
pub(crate) const ADA: &str = "ada-0123456789abcdef";

/// The token of another principal.
pub(crate) const BOB: &str = "bob-0123456789abcdef";

/// The token of a principal that sees and may do everything.
pub(crate) const ROOT: &str = "root-0123456789abcdef";

/// The token of `ada` with which approvals are decided, and nothing else.
pub(crate) const APPROVER: &str = "approver-0123456789abcdef";

/// The token of `ada` with which turns and tools are run, and nothing else.
pub(crate) const RUNNER: &str = "runner-0123456789abcdef";

/// The client wires, each with the path of its requests.
pub(crate) const WIRES: [Wire; 3] = [Wire::Chat, Wire::Responses, Wire::Messages];

/// The APIs of providers.
pub(crate) const APIS: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];

/// How long a test waits for anything before it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// What a world is started with.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The API of the provider `scripted`, which serves the default agent.
    pub(crate) api: Api,
    /// The tools of the server, as [`CannedTools`] reads them.
    pub(crate) tools: Value,
    /// The values of `tools`, `agents` and `gateway` in the configuration.
    pub(crate) tools_config: Value,
    pub(crate) agents: Value,
    pub(crate) gateway: Value,
    /// Further members of `models.providers.scripted`.
    pub(crate) provider: Value,
    pub(crate) surface: Option<SurfaceChoice>,
    pub(crate) approvals: ApprovalPolicy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            api: Api::Chat,
            tools: json!([{"id": "openclaw:core:add", "description": "Adds.", "answers": [{"returns": 42}]}]),
            tools_config: Value::Null,
            agents: json!({"defaults": {"model": "scripted/m-1"}, "list": [{"id": "main"}, {"id": "other"}]}),
            gateway: Value::Null,
            provider: json!({}),
            surface: Some(SurfaceChoice::Code),
            approvals: ApprovalPolicy::Never,
        }
    }
}

/// Opens a store. All nodes have the same key.
pub(crate) async fn open(location: &Location) -> Store {
    Store::open(location, Keys::new(1, [7; 32])).await.unwrap()
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    pub(crate) model: ScriptedModel,
    pub(crate) client: reqwest::Client,
    /// The gateway's address, without a path.
    pub(crate) base: String,
    pub(crate) store: Store,
    stop: CancellationToken,
    /// Deleted when the last world over the store is dropped.
    folder: Arc<TempDir>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// Starts a gateway whose model answers as the script says.
    pub(crate) async fn start(options: Options, script: Vec<Reply>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&location(&folder).await).await;
        Self::start_over((store, Arc::new(folder)), options, script).await
    }

    /// Starts another gateway over the store of a world: another node.
    pub(crate) async fn start_beside(other: &Self, options: Options, script: Vec<Reply>) -> Self {
        // It has its own connections, which belong to the runtime that it is started in.
        let store = open(other.store.location()).await;
        Self::start_over((store, Arc::clone(&other.folder)), options, script).await
    }

    pub(crate) async fn start_over(
        (store, folder): (Store, Arc<TempDir>),
        options: Options,
        script: Vec<Reply>,
    ) -> Self {
        let model = ScriptedModel::start(script.into()).unwrap();
        let canned = CannedTools::parse(&json!({"tools": options.tools}).to_string()).unwrap();
        let gateway = start_gateway(&store, Arc::new(canned), &options, &model.url()).await;
        let stop = CancellationToken::new();
        let base = serve(gateway.clone(), stop.clone()).await;
        let client = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
        Self { gateway, model, client, base, store, stop, folder }
    }

    /// Sends a request of `ada`, and returns the response's head.
    pub(crate) async fn send(&self, path: &str, body: &Value) -> reqwest::Response {
        self.request(path, body).send().await.unwrap()
    }

    pub(crate) fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client.post(format!("{}{path}", self.base)).bearer_auth(ADA).json(body)
    }

    /// Sends a request of `ada`, and reads the whole answer.
    pub(crate) async fn ask(&self, wire: Wire, body: &Value) -> Answer {
        Answer::read(wire, self.send(path(wire), body).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let response = self.client.get(format!("{}{path}", self.base)).bearer_auth(ADA).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap_or_default())
    }

    /// Waits until the model has received this many requests, and returns all.
    pub(crate) async fn model_requests(&self, count: usize) -> Vec<RecordedRequest> {
        wait_until(|| (self.model.requests().len() >= count).then(|| self.model.requests())).await
    }
}

/// Starts a gateway without its HTTP server, whose server tools are those of one source.
pub(crate) async fn start_gateway(
    store: &Store,
    source: Arc<dyn ToolSource>,
    options: &Options,
    model_url: &str,
) -> Gateway {
    let pool = PoolOptions {
        jail: JailPolicy::Off,
        workers: 1,
        slots: 16,
        threads: 4,
        ..PoolOptions::new(Launch::InProcess(sandbox::serve_attached))
    };
    let code_mode = CodeMode::new(Pool::start(pool).await.unwrap(), store.clone()).unwrap();
    let offered = OfferedSources { sources: vec![source], settled: true, ..OfferedSources::default() };
    let config = AgentsConfig::resolve(&options.tools_config, &options.agents).unwrap();
    let policy = CallPolicy { config, approval_policy: options.approvals.clone(), exempt: Vec::new() };
    let settings = Settings {
        policy,
        gateway: GatewayConfig::resolve(&options.gateway).unwrap(),
        surface: options.surface,
        sandboxed: false,
        runtime_available: true,
    };
    let providers = providers(options, model_url);
    Gateway::new(code_mode, settings, watch::channel(offered).1, providers).unwrap()
}

/// Waits until something has happened.
pub(crate) async fn wait_until<T>(mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "it did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns a new location of a store: on the Postgres server in `CELLMATE_TEST_POSTGRES` if it is set, else a file.
pub(crate) async fn location(folder: &TempDir) -> Location {
    match std::env::var("CELLMATE_TEST_POSTGRES") {
        Ok(server) => {
            let schema = format!("gateway_{}", executor::random_name().unwrap().to_lowercase().replace('-', "_"));
            let made = std::process::Command::new("psql")
                .args([&server, "-q", "-v", "ON_ERROR_STOP=1", "-c", &format!("CREATE SCHEMA {schema}")])
                .status();
            assert!(made.unwrap().success());
            Location::Postgres(format!("{server}&options=-c%20search_path%3D{schema}"))
        }
        Err(_) => Location::File(folder.path().join("store.db")),
    }
}

fn providers(options: &Options, model_url: &str) -> Providers {
    let api = match options.api {
        Api::Chat => "openai-completions",
        Api::Responses => "openai-responses",
        Api::Messages => "anthropic-messages",
    };
    let mut scripted = json!({"baseUrl": model_url, "api": api, "apiKey": "sk-provider-key", "models": []});
    let more = options.provider.as_object().unwrap().clone();
    scripted.as_object_mut().unwrap().extend(more);
    let models = json!({"providers": {"scripted": scripted}});
    let config = ModelsConfig::resolve(&models).unwrap();
    Providers::new(&config, &|text: &str| Ok(text.to_owned()), DebugSettings::default()).unwrap()
}

pub(crate) async fn serve(gateway: Gateway, stop: CancellationToken) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let token = |name: &str, secret: &str, permissions: Permissions| {
        Token::new(Principal::named(name).unwrap(), secret, permissions).unwrap()
    };
    let only = |permission: Permission| [permission].into_iter().collect();
    let access = Access::tokens(vec![
        token("ada", ADA, Permissions::for_agents()),
        token("bob", BOB, Permissions::for_agents()),
        token("root", ROOT, Permissions::all()),
        token("ada", APPROVER, only(Permission::Approve)),
        token("ada", RUNNER, only(Permission::Execute)),
    ]);
    let gate = Gate { access, hosts: Vec::new(), budget: BudgetLimits::default(), transport: Transport::Plain };
    let request_gate = RequestGate::new(listener, gate).unwrap();
    let wires = RouteRules {
        respond: gateway::http::refusal,
        ..RouteRules::requiring(Permission::Execute).with_large_bodies()
    };
    let routes = request_gate
        .guard(gateway::http::routes(gateway.clone()), wires)
        .merge(request_gate.guard(gateway::api::routes(gateway.clone()), gateway::api::rules()))
        .merge(gateway::http::open_routes())
        .merge(gateway::api::health(gateway));
    tokio::spawn(request_gate.serve(routes, stop));
    base
}

/// Returns the path of a wire's requests.
pub(crate) fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Chat => "/v1/chat/completions",
        Wire::Responses => "/v1/responses",
        Wire::Messages => "/v1/messages",
    }
}

/// Whether an answer is requested as a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Stream,
    Whole,
}

pub(crate) const FORMS: [Form; 2] = [Form::Stream, Form::Whole];

/// Returns a request with one message of the user.
pub(crate) fn question(wire: Wire, form: Form, text: &str) -> Value {
    conversation(wire, form, vec![json!({"role": "user", "content": text})])
}

/// Returns a request with these messages.
pub(crate) fn conversation(wire: Wire, form: Form, messages: Vec<Value>) -> Value {
    let stream = form == Form::Stream;
    match wire {
        Wire::Chat => json!({"model": "openclaw", "messages": messages, "stream": stream,
            "stream_options": {"include_usage": true}}),
        Wire::Responses => json!({"model": "openclaw", "input": messages, "stream": stream}),
        Wire::Messages => json!({"model": "openclaw", "messages": messages, "stream": stream, "max_tokens": 1000}),
    }
}

/// Returns a model's response that runs a cell.
pub(crate) fn exec(code: &str) -> Reply {
    Reply::call("exec", json!({"code": code}))
}
