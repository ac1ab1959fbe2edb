//! `cellmate connect CLIENT --gateway`: adds the address of a gateway to a client's configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use client_config::{Change, Client, Connections, GatewayAddress, Places, connect_gateway, disconnect_gateway};
use serde_json::json;
use telemetry::LogIgnored;

use super::{
    CarriedOut, ConfirmationArguments, ConnectArguments, ConnectError, Plan, existing_or_first, no_home, restart,
};
use crate::servers::TrustChoice;
use crate::shared_arguments::{ConfigArguments, ScopeArgument};

/// The address of a gateway on this machine that was started without `--listen`.
pub(super) const DEFAULT_ADDRESS: &str = "http://127.0.0.1:18789";

/// The name of the file in the state folder that contains the token of the gateway.
const TOKEN_FILE: &str = "token";

/// Configures a client to send its model requests to the gateway.
pub(super) fn connect(address: &str, arguments: &ConnectArguments) -> Result<ExitCode, ConnectError> {
    if arguments.trust.choice() != TrustChoice::Ask {
        let message = "--trusted and --no-trusted are about MCP servers; omit them with --gateway";
        return Err(ConnectError::Usage(message.to_owned()));
    }
    let places = arguments.config.places();
    let client = parse_client(&arguments.client, arguments.scope)?;
    let token_file = match &arguments.token_file {
        Some(file) => std::path::absolute(file).map_err(|error| {
            ConnectError::Usage(format!("--token-file: cannot find the current folder: {error}; name an absolute path"))
        })?,
        None => places.state().ok_or_else(no_home)?.join(TOKEN_FILE),
    };
    let mut gateway = GatewayAddress::parse(address, token_file)?;
    if let Some(name) = &arguments.agent {
        gateway = gateway.for_agent(name).map_err(|error| ConnectError::Usage(format!("--agent: {error}")))?;
    }
    if !gateway.is_local() && arguments.token_file.is_none() {
        let message = "the gateway is not on this machine, so it has another token; name its file with --token-file";
        return Err(ConnectError::Usage(message.to_owned()));
    }
    let mut theirs = Change::open(&gateway_file(client, &places)?)?;
    let connections = Connections::of(&places);
    let earlier = connections.gateway_record(client, &theirs.file);
    let (record, notes) = connect_gateway(client, &gateway, &mut theirs, &places, earlier)?;
    let mut changes = vec![&theirs];
    changes.retain(|change| !change.is_empty());
    let (undo, next) = (format!("cellmate disconnect {} --gateway", client.name()), client.gateway_step(&gateway));
    let plan = Plan {
        client,
        changes: &changes,
        notes: &notes,
        nothing_to_do: "is already connected",
        done: format!("connected; {next}\nto undo: {undo}\n"),
        report: json!({"next": next, "undo": undo}),
    };
    plan.carry_out(&places, &arguments.confirmation, || {
        connections.write_gateway(&record).map_err(ConnectError::Record)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Removes the settings that `connect` added.
pub(super) fn disconnect(
    client: &str,
    scope: ScopeArgument,
    confirmation: &ConfirmationArguments,
    config: &ConfigArguments,
) -> Result<ExitCode, ConnectError> {
    let places = config.places();
    let client = parse_client(client, scope)?;
    let mut theirs = Change::open(&gateway_file(client, &places)?)?;
    let connections = Connections::of(&places);
    let notes = match connections.gateway_record(client, &theirs.file) {
        Some(record) => disconnect_gateway(&mut theirs, &record, confirmation.intent())?,
        None => Vec::new(),
    };
    let mut changes = vec![&theirs];
    changes.retain(|change| !change.is_empty());
    let plan = Plan {
        client,
        changes: &changes,
        notes: &notes,
        nothing_to_do: "is not connected to a gateway",
        done: format!("disconnected; {}\n", restart(client)),
        report: json!({"next": restart(client)}),
    };
    if plan.carry_out(&places, confirmation, || Ok(()))? == CarriedOut::Yes {
        // If the record cannot be removed, it does no harm: the next `disconnect` finds nothing to remove.
        connections.remove_gateway(client, &theirs.file).log_ignored("remove the record of a connected agent");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the client with this name. Fails if it cannot use a gateway, or if the scope is not the user.
fn parse_client(name: &str, scope: ScopeArgument) -> Result<Client, ConnectError> {
    if scope != ScopeArgument::User {
        let message = "--gateway changes the user's configuration only; omit --scope project";
        return Err(ConnectError::Usage(message.to_owned()));
    }
    let client = Client::parse(name).filter(|client| Client::WITH_GATEWAY.contains(client));
    client.ok_or_else(|| {
        let names = Client::WITH_GATEWAY.map(Client::name).join(", ");
        ConnectError::Usage(format!("{name} cannot use a gateway; those that can: {names}"))
    })
}

/// Returns the client's file that contains the address of a gateway, or that would.
fn gateway_file(client: Client, places: &Places) -> Result<PathBuf, ConnectError> {
    existing_or_first(client.gateway_files(places)).ok_or_else(no_home)
}
