//! The gateway of a node. Requests reach its router without a socket; only its requests to the model use one.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use catalog::SurfaceChoice;
use codemode::CodeMode;
use contract::config::{AgentsConfig, GatewayConfig, ModelsConfig};
use executor::ToolSource;
use gateway::debug::DebugSettings;
use gateway::provider::Providers;
use gateway::{Gateway, Settings};
use http_server::{Caller, Permissions, Principal};
use mcp::server::{ApprovalPolicy, CallPolicy, OfferedSources};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::requests::{EXEC_MS, HttpRequest, WAIT_MS};

/// The principal of all clients.
pub(super) const PRINCIPAL: &str = "ada";

/// How long a turn continues without a client: short, so that histories contain turns that no client continues.
const ABANDONED_SECONDS: u64 = 4;

#[derive(Debug)]
pub(super) struct GatewayNode {
    gateway: Gateway,
    router: Router,
}

impl GatewayNode {
    pub(super) fn start(code_mode: CodeMode, tools: Arc<dyn ToolSource>, model: &str) -> Self {
        let offered = OfferedSources { sources: vec![tools], settled: true, ..OfferedSources::default() };
        let limits = json!({"codeMode": {"enabled": true, "timeoutMs": EXEC_MS, "maxWaitMs": WAIT_MS}});
        let agents = json!({"defaults": {"model": "scripted/m-1"}, "list": [{"id": "main"}]});
        let config = AgentsConfig::resolve(&limits, &agents).unwrap();
        let policy = CallPolicy { config, approval_policy: ApprovalPolicy::Never, exempt: Vec::new() };
        let settings = Settings {
            policy,
            gateway: GatewayConfig::resolve(&json!({"abandonedSeconds": ABANDONED_SECONDS})).unwrap(),
            surface: Some(SurfaceChoice::Code),
            sandboxed: false,
            runtime_available: true,
        };
        let scripted = json!({"baseUrl": model, "api": "openai-completions", "apiKey": "sk-key", "models": []});
        let models = ModelsConfig::resolve(&json!({"providers": {"scripted": scripted}})).unwrap();
        let providers = Providers::new(&models, &|text: &str| Ok(text.to_owned()), DebugSettings::default()).unwrap();
        let gateway = Gateway::new(code_mode, settings, watch::channel(offered).1, providers).unwrap();
        let router = gateway::http::routes(gateway.clone()).merge(gateway::api::routes(gateway.clone()));
        Self { gateway, router }
    }

    /// Returns the response to a request; `None` if the client closes its connection before.
    pub(super) async fn answer(&self, request: HttpRequest) -> Option<(u16, Value)> {
        let HttpRequest { path, body, retries, patience } = request;
        let principal = Principal::named(PRINCIPAL).unwrap();
        let caller = Caller {
            principal: principal.clone(),
            token: "test".to_owned(),
            permissions: Permissions::all(),
            revoked: CancellationToken::new(),
        };
        let request = Request::post(path)
            .header("content-type", "application/json")
            .header("x-stainless-retry-count", retries)
            .extension(principal)
            .extension(caller)
            .body(Body::from(body.to_string()))
            .unwrap();
        let mut router = self.router.clone();
        let answer = async move {
            let response = router.call(request).await.unwrap();
            let status = response.status().as_u16();
            let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, serde_json::from_slice(&bytes).unwrap_or_default())
        };
        tokio::time::timeout(patience, answer).await.ok()
    }

    pub(super) async fn shut_down(&self) {
        self.gateway.shut_down().await;
    }
}
