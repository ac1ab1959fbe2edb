//! `cellmate gateway`: serves agents over the APIs of OpenAI and Anthropic, and the tools over MCP.

use std::process::ExitCode;

use catalog::EntryPoint;
use gateway::Gateway;
use http_server::{BudgetLimits, HttpError, Permission, RequestGate, RouteRules};
use mcp::server::{CallPolicy, McpService, ToolPrefix, http_endpoint, http_health};
use tokio_util::sync::CancellationToken;

use super::arguments::GatewayArguments;
use super::http_port::{CheckedAddress, HttpPort, HttpPortError};
use super::models::Models;
use super::startup::{RunningHost, Service, StartError, stop_on_signals};
use crate::log::CONSOLE;
use crate::policy::BadSettings;
use crate::render;

#[derive(Debug, thiserror::Error)]
enum GatewayError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Settings(#[from] BadSettings),
    #[error(transparent)]
    HttpPort(#[from] HttpPortError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
}

pub(crate) async fn run(arguments: GatewayArguments) -> ExitCode {
    match serve(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(target: CONSOLE, error = telemetry::error_chain(&error), "cellmate gateway failed");
            render::fatal(&error.to_string())
        }
    }
}

async fn serve(arguments: GatewayArguments) -> Result<(), GatewayError> {
    let address = CheckedAddress::new(arguments.listen, &arguments.http_port)?;
    let service = Service {
        command: "cellmate gateway",
        transport: "http",
        entry: EntryPoint::Contract,
        fixed_sections: &["store", "models", "gateway"],
    };
    let started = RunningHost::new(&arguments.serving, service).await?;
    let frontend = started.mcp_service(&arguments.serving, ToolPrefix::default(), None);
    let (models, gateway, stop) = match prepare(&arguments, &started, &frontend) {
        Ok(prepared) => prepared,
        Err(error) => {
            // Workers and servers may run already.
            frontend.begin_shutdown();
            started.shut_down(|| frontend.is_idle()).await;
            return Err(error);
        }
    };
    announce(&models);
    let served = serve_clients(address, &arguments, &started, &gateway, &frontend, stop).await;
    frontend.begin_shutdown();
    gateway.shut_down().await;
    started.shut_down(|| frontend.is_idle() && gateway.live_turns() == 0).await;
    served
}

/// Reads the models and creates the gateway. The token is cancelled when the process receives a signal to stop.
fn prepare(
    arguments: &GatewayArguments,
    started: &RunningHost,
    frontend: &McpService,
) -> Result<(Models, Gateway, CancellationToken), GatewayError> {
    let models = Models::read(&started.settings, &started.policy.config, &started.places)?;
    let gateway = Gateway::new(
        started.code_mode.clone(),
        settings(arguments, started, &models),
        started.offered.clone(),
        models.providers.clone(),
    )?;
    let (stopping, service) = (gateway.clone(), frontend.clone());
    let stop = stop_on_signals(move || {
        service.begin_shutdown();
        stopping.shutdown().cancel();
    })?;
    Ok((models, gateway, stop))
}

fn settings(arguments: &GatewayArguments, started: &RunningHost, models: &Models) -> gateway::Settings {
    gateway::Settings {
        policy: CallPolicy {
            config: started.policy.config.clone(),
            approval_policy: started.approval_policy(),
            exempt: started.policy.pass.clone(),
        },
        gateway: models.gateway,
        surface: arguments.serving.surface(),
        sandboxed: started.policy.sandboxed,
        runtime_available: started.runtime_available,
    }
}

/// Prints which agents the gateway serves, and what is missing.
fn announce(models: &Models) {
    for line in models.agent_lines() {
        render::note(&format!("cellmate: {line}"));
    }
    for problem in models.problem_lines() {
        tracing::warn!(target: CONSOLE, "{problem}");
        render::note(&format!("cellmate: {problem}"));
    }
}

async fn serve_clients(
    address: CheckedAddress,
    arguments: &GatewayArguments,
    started: &RunningHost,
    gateway: &Gateway,
    frontend: &McpService,
    stop: CancellationToken,
) -> Result<(), GatewayError> {
    let budget = BudgetLimits::large();
    let http_port = HttpPort::open(address, &arguments.http_port, &started.state, &started.tokens, budget).await?;
    let HttpPort { url, token_note, .. } = &http_port;
    eprintln!("cellmate: serving agents at {url}/v1 and MCP at {url}/mcp; {token_note}");
    let front = RequestGate::new(http_port.listener, http_port.gate)?;
    let (mcp, mcp_rules) = http_endpoint(frontend.clone(), stop.clone());
    let turns = RouteRules {
        respond: gateway::http::refusal,
        ..RouteRules::requiring(Permission::Execute).with_large_bodies()
    };
    let routes = front
        .guard(gateway::http::routes(gateway.clone()), turns)
        .merge(front.guard(gateway::api::routes(gateway.clone()), gateway::api::rules()))
        .merge(front.guard(mcp, mcp_rules))
        .merge(gateway::http::open_routes())
        .merge(http_health(frontend.clone()))
        .fallback(gateway::api::unknown_path);
    front.serve(routes, stop).await;
    Ok(())
}
