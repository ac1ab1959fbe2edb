//! `cellmate disconnect CLIENT`: removes what `cellmate connect` added to the client's configuration.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use client_config::{Change, Client, Connections, disconnect};
use serde_json::json;
use telemetry::LogIgnored;

use super::{
    CONNECTED, CarriedOut, ConfirmationArguments, ConnectError, NAME, Plan, client_file, exit_code, gateway, restart,
};
use crate::shared_arguments::{ConfigArguments, ScopeArgument};

#[derive(Debug, Args)]
pub(crate) struct DisconnectArguments {
    /// Client to disconnect.
    #[arg(value_parser = PossibleValuesParser::new(CONNECTED.map(Client::name)))]
    client: String,
    /// Configuration to change: the user's, or this project's.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    scope: ScopeArgument,
    /// Remove the settings of `cellmate connect --gateway`.
    #[arg(long)]
    gateway: bool,
    #[command(flatten)]
    confirmation: ConfirmationArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

pub(crate) fn run(arguments: &DisconnectArguments) -> ExitCode {
    exit_code(if arguments.gateway {
        gateway::disconnect(&arguments.client, arguments.scope, &arguments.confirmation, &arguments.config)
    } else {
        remove(arguments)
    })
}

fn remove(arguments: &DisconnectArguments) -> Result<ExitCode, ConnectError> {
    let places = arguments.config.places();
    let client = Client::parse(&arguments.client);
    let client = client.ok_or_else(|| ConnectError::Usage("no such client".to_owned()))?;
    let mut theirs = Change::open(&client_file(client, arguments.scope.into(), &places)?)?;
    let connections = Connections::of(&places);
    let record = connections.record(client, &theirs.file);
    let notes = disconnect(client, NAME, &mut theirs, record.as_ref(), arguments.confirmation.intent())?;
    let mut changes = vec![&theirs];
    changes.retain(|change| !change.is_empty());
    let plan = Plan {
        client,
        changes: &changes,
        notes: &notes,
        nothing_to_do: "is not connected",
        done: format!("disconnected; {}\n", restart(client)),
        report: json!({"next": restart(client)}),
    };
    let carried_out = plan.carry_out(&places, &arguments.confirmation, || Ok(()))?;
    if carried_out == CarriedOut::Yes {
        // With a record that stays, the next `disconnect` puts the same servers back.
        connections.remove(client, &theirs.file).log_ignored("remove the record of a connected client");
    }
    Ok(ExitCode::SUCCESS)
}
