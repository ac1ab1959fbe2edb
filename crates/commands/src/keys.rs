//! `cellmate keys`: lists, rotates and prunes the keys that seal suspended cells.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use client_config::{Places, display};
use contract::limits::SNAPSHOT_TTL_SECONDS;
use executor::clock::now_ms;
use serde_json::json;
use store::{KeyFile, KeyFileError, Store, StoreError};

use crate::render::{self, OutputFormat};
use crate::state::{
    ConfiguredStore, SecretFile, SecretFileError, StateError, StoreSettings, create_private_file, lock_beside,
    replace_private_file,
};
use crate::table::Table;

/// How long a replaced key is kept. No cell stays suspended longer, so by then every cell that it sealed has expired or
/// was sealed again.
const KEPT_MS: i64 = *SNAPSHOT_TTL_SECONDS.range.end() as i64 * 1000;

#[derive(Debug, Args)]
pub(crate) struct KeysArguments {
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
    /// List keys, and how many suspended cells each one seals.
    List,
    /// Create a key that seals from now on; older keys still open what they sealed. Creates the key file if missing.
    Rotate,
    /// Remove keys that were replaced at least a day ago and seal no suspended cell.
    Prune,
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot use `{path}`: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
}

pub(crate) async fn run(arguments: KeysArguments) -> ExitCode {
    match act(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => render::fatal(&error.to_string()),
    }
}

async fn act(arguments: &KeysArguments) -> Result<(), CommandError> {
    let kept = arguments.store.choose()?;
    match arguments.action {
        Action::List => list(&kept, OutputFormat::from_flag(arguments.json)).await,
        Action::Rotate => rotate(&kept, arguments).await,
        Action::Prune => prune(&kept, arguments).await,
    }
}

async fn list(kept: &StoreSettings, format: OutputFormat) -> Result<(), CommandError> {
    let store = kept.open().await?;
    let keys = KeyFile::read(&kept.key_file)?;
    let (now, newest) = (now_ms(), keys.newest().map(|key| key.id));
    let mut listed = Vec::new();
    for key in keys.keys() {
        listed.push((key, Some(key.id) == newest, store.cells_sealed_with(key.id, now).await?));
    }
    let missing = store.newest_key().await?.filter(|id| newest.is_none_or(|newest| newest < *id));
    if let Some(id) = missing {
        let (file, cells) = (display::path(&kept.key_file), store.cells_sealed_with(id, now).await?);
        render::note(&format!(
            "cellmate: {file} lacks key {id}, the newest of the store, which seals {cells} suspended cells; copy the \
             newest key file to this machine"
        ));
    }
    if format == OutputFormat::Json {
        let keys = listed
            .iter()
            .map(|(key, seals, cells)| json!({"id": key.id, "madeAt": key.since, "seals": seals, "cells": cells}));
        render::print_json(&json!(keys.collect::<Vec<_>>()));
        return Ok(());
    }
    let mut table = Table::new(["KEY", "STATE", "SUSPENDED CELLS"]);
    for (key, seals, cells) in listed {
        let state = if seals { "current" } else { "retired" };
        table.add([key.id.to_string(), state.to_owned(), cells.to_string()]);
    }
    render::print_table(&table);
    Ok(())
}

async fn rotate(kept: &StoreSettings, arguments: &KeysArguments) -> Result<(), CommandError> {
    let _lock = lock_key_file(kept)?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    let at = |error| CommandError::File { path: kept.key_file.clone(), error };
    let new = match KeyFile::read(&kept.key_file) {
        Ok(keys) => {
            let new = keys.rotated(secret, now_ms());
            replace_private_file(&kept.key_file, new.text()).map_err(at)?;
            new
        }
        Err(KeyFileError::Missing(_)) => {
            let text = hex::encode(secret);
            let first = KeyFile::parse(&format!("1 {text} {}", now_ms()), &kept.key_file)?;
            create_private_file(&kept.key_file, first.text()).map_err(at)?;
            first
        }
        Err(error) => return Err(error.into()),
    };
    if let Err(error) = reseal_secrets(kept, &arguments.store.places()) {
        render::note(&format!("note: the secrets are still sealed with an older key: {error}"));
    }
    let id = new.newest().map_or(0, |key| key.id);
    if arguments.json {
        render::print_json(&json!({"seals": id, "file": kept.key_file}));
    } else {
        let file = display::path(&kept.key_file);
        println!("created key {id}, which seals from now on; running processes reload {file}");
        println!("if other machines have copies of the file, copy the new one to all of them");
    }
    Ok(())
}

async fn prune(kept: &StoreSettings, arguments: &KeysArguments) -> Result<(), CommandError> {
    let _lock = lock_key_file(kept)?;
    let store = kept.open().await?;
    let keys = KeyFile::read(&kept.key_file)?;
    let mut removed = unneeded_keys(&store, &keys).await?;
    let places = arguments.store.places();
    if let Err(error) = reseal_secrets(kept, &places) {
        render::note(&format!("note: the secrets could not be sealed with the newest key: {error}"));
    }
    let needed = SecretFile::of(&places).ok().and_then(|secrets| secrets.sealing_key(&kept.key_file));
    removed.retain(|id| Some(*id) != needed);
    if !removed.is_empty() {
        let at = |error| CommandError::File { path: kept.key_file.clone(), error };
        replace_private_file(&kept.key_file, keys.without(&removed).text()).map_err(at)?;
    }
    if arguments.json {
        render::print_json(&json!({"removed": removed}));
    } else if removed.is_empty() {
        println!(
            "no key was removed: a key is kept for a day after it is replaced, and while it seals a suspended cell"
        );
    } else {
        removed.iter().for_each(|id| println!("removed key {id}"));
    }
    Ok(())
}

async fn unneeded_keys(store: &Store, keys: &KeyFile) -> Result<Vec<u32>, StoreError> {
    let now = now_ms();
    let mut unneeded = Vec::new();
    for id in keys.replaced_before(now - KEPT_MS) {
        if store.cells_sealed_with(id, now).await? == 0 {
            unneeded.push(id);
        }
    }
    Ok(unneeded)
}

/// Locks the key file for a change.
fn lock_key_file(kept: &StoreSettings) -> Result<fs::File, CommandError> {
    lock_beside(&kept.key_file).map_err(|error| CommandError::File { path: kept.key_file.clone(), error })
}

/// Seals the user's secrets with the newest key, if this key file seals them. If that fails, the old key still opens
/// them, so it is kept.
fn reseal_secrets(kept: &StoreSettings, places: &Places) -> Result<(), SecretFileError> {
    let secrets = SecretFile::of(places)?;
    if secrets.is_sealed_by(&kept.key_file) { secrets.reseal() } else { Ok(()) }
}
