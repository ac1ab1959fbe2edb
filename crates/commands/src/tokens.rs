//! `cellmate tokens`: creates, lists and revokes named tokens for HTTP clients.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use executor::clock::now_ms;
use http_server::{GeneratedSecret, Permission, Permissions, Principal};
use mcp::server::plain;
use serde_json::{Value, json};
use store::{Millis, NewToken, Store, StoreError, StoredToken};
use telemetry::Redactor;

use crate::age::{Age, ago, span};
use crate::render::{self, OutputFormat};
use crate::state::{ConfiguredStore, StateError};
use crate::table::Table;

/// The random bytes of a token's id.
const ID_BYTES: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct TokensArguments {
    #[command(subcommand)]
    action: Action,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    store: ConfiguredStore,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a token and print its secret, which is shown only once.
    Create {
        /// Name of the application or person that the token is for. Its runs belong to this name; at `/mcp`, the name
        /// also chooses the policy and the standing approvals.
        #[arg(value_parser = name)]
        name: String,
        /// Permissions, separated by commas or in several options: `execute` runs turns and tools, `approve` decides
        /// approvals, `read` shows runs and transcripts, `admin` extends the other permissions to all principals.
        #[arg(long, value_name = "SCOPES", value_parser = permissions, default_values_t = [Permissions::for_agents()])]
        scope: Vec<Permissions>,
        /// How long the token is valid, for example 12h or 30d; without it, until it is revoked.
        #[arg(long, value_name = "TIME", value_parser = Age::parse)]
        expires: Option<Age>,
    },
    /// List tokens, without their secrets.
    List {
        /// Also list tokens that were revoked or have expired.
        #[arg(long)]
        all: bool,
    },
    /// Revoke tokens: running servers refuse them, and close their connections, within a second.
    Revoke {
        /// Ids of the tokens, from `cellmate tokens list`.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
}

fn name(text: &str) -> Result<String, String> {
    Principal::named(text).map(|principal| principal.name().to_owned()).map_err(|error| error.to_string())
}

fn permissions(text: &str) -> Result<Permissions, String> {
    Permissions::parse(text).map_err(|error| error.to_string())
}

pub(crate) async fn run(arguments: TokensArguments) -> ExitCode {
    act(arguments).await.unwrap_or_else(|error| render::fatal(&error.to_string()))
}

async fn act(arguments: TokensArguments) -> Result<ExitCode, CommandError> {
    let format = OutputFormat::from_flag(arguments.json);
    let store = arguments.store.choose()?.open().await?;
    match arguments.action {
        Action::Create { name, scope, expires } => {
            let permissions = scope.into_iter().flat_map(Permissions::iter).collect();
            create(&store, name, permissions, expires, format).await
        }
        Action::List { all } => {
            let now = now_ms();
            let mut tokens = store.tokens().await?;
            tokens.retain(|token| all || token.is_in_force(now));
            list(&tokens, now, format);
            Ok(ExitCode::SUCCESS)
        }
        Action::Revoke { ids } => revoke(&store, &ids, format).await,
    }
}

async fn create(
    store: &Store,
    name: String,
    permissions: Permissions,
    expires: Option<Age>,
    format: OutputFormat,
) -> Result<ExitCode, CommandError> {
    let generated = GeneratedSecret::new()?;
    Redactor::global().register(&generated.secret);
    let mut id = [0; ID_BYTES];
    getrandom::fill(&mut id)?;
    let created_at = now_ms();
    let token = NewToken {
        token_id: format!("tok_{}", hex::encode(id)),
        name,
        hash: generated.hash,
        scopes: permissions.to_string(),
        created_at,
        expires_at: expires.map(|age| created_at.saturating_add(age.0)),
    };
    store.create_token(&token).await?;
    if format == OutputFormat::Json {
        render::print_json(&json!({
            "tokenId": token.token_id, "name": token.name, "scopes": names(permissions), "createdAt": created_at,
            "expiresAt": token.expires_at, "secret": generated.secret,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    render::print(&format!("{}\n", generated.secret));
    let valid = expires.map_or_else(String::new, |age| format!(" for {}", span(age.0)));
    render::note(&format!(
        "created token {} for `{}` with {permissions}{valid}; its secret is shown only now; clients send it as \
         `Authorization: Bearer …` or `x-api-key`",
        token.token_id, token.name
    ));
    if permissions.has(Permission::Execute) && permissions.has(Permission::Approve) {
        render::note("note: an agent with this token can approve its own calls");
    }
    Ok(ExitCode::SUCCESS)
}

fn names(permissions: Permissions) -> Vec<&'static str> {
    permissions.iter().map(Permission::as_str).collect()
}

/// Returns a token's state as printed in JSON.
fn state(token: &StoredToken, now: Millis) -> &'static str {
    if token.revoked_at.is_some() {
        "revoked"
    } else if token.is_in_force(now) {
        "inForce"
    } else {
        "expired"
    }
}

fn list(tokens: &[StoredToken], now: Millis, format: OutputFormat) {
    if format == OutputFormat::Json {
        let listed: Vec<Value> = tokens.iter().map(|token| token_json(token, now)).collect();
        render::print_json(&json!(listed));
        return;
    }
    if tokens.is_empty() {
        render::note("no tokens; create one with `cellmate tokens create NAME`");
        return;
    }
    let table = Table::new(["ID", "NAME", "SCOPES", "STATE", "CREATED", "EXPIRES", "LAST USED"]);
    // On a narrow terminal, `CREATED` is left out first, then `LAST USED`, then `SCOPES`.
    let mut table = table.with_whole(&[0, 3]).with_least(&[4, 6, 2]);
    for token in tokens {
        let since = |at: Millis| ago(now.saturating_sub(at));
        let expires = token.expires_at.map_or_else(
            || "never".to_owned(),
            |at| if at <= now { since(at) } else { format!("in {}", span(at.saturating_sub(now))) },
        );
        table.add([
            token.token_id.clone(),
            token.name.clone(),
            token.scopes.clone(),
            state(token, now).replace("inForce", "in force"),
            since(token.created_at),
            expires,
            token.last_used_at.map_or_else(|| "never".to_owned(), since),
        ]);
    }
    render::print_table(&table);
}

fn token_json(token: &StoredToken, now: Millis) -> Value {
    let mut value = json!(token);
    if let Some(fields) = value.as_object_mut() {
        let permissions = Permissions::parse(&token.scopes).map(names).unwrap_or_default();
        fields.insert("scopes".to_owned(), json!(permissions));
        fields.insert("state".to_owned(), json!(state(token, now)));
    }
    value
}

async fn revoke(store: &Store, ids: &[String], format: OutputFormat) -> Result<ExitCode, CommandError> {
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        let shown = plain(id, 200);
        if !store.revoke_token(id, now_ms()).await? {
            code = render::failed(&format!("no token `{shown}` is in force; `cellmate tokens list` lists them"));
        } else if format == OutputFormat::Json {
            render::print_json(&json!({"tokenId": id, "revoked": true}));
        } else {
            render::print(&format!("revoked {shown}; running servers refuse it within a second\n"));
        }
    }
    Ok(code)
}
