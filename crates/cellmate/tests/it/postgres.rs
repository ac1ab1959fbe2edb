//! Hosts that share a Postgres store. `with-postgres` starts the server; without it, these tests are ignored.

use std::path::Path;
use std::process::Command;

use cellmate::{Builder, KeyFile, RunState, Scope, Store, json};

use super::{Result, builder, letters};

/// The environment variable in which `with-postgres` passes the address of the server.
pub(super) const SERVER_VARIABLE: &str = "CELLMATE_TEST_POSTGRES";

/// Creates an empty schema on the server, and returns the address of a store in it.
fn new_store(name: &str) -> String {
    let server = std::env::var(SERVER_VARIABLE).unwrap();
    let schema = format!("embedding_{name}_{}", std::process::id());
    let create = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}");
    let created = Command::new("psql").args([&server, "-q", "-v", "ON_ERROR_STOP=1", "-c", &create]).status();
    assert!(created.unwrap().success());
    let separator = if server.contains('?') { '&' } else { '?' };
    format!("{server}{separator}options=-c%20search_path%3D{schema}")
}

/// Returns the builder of a host with the store at this address and the key file in this folder.
fn host_with_store(address: &str, folder: &Path) -> Result<Builder> {
    let store = Store::postgres(address, KeyFile::open(folder.join("key"))?);
    Ok(builder().tool(letters().ask_first()).store(store))
}

pub(super) async fn a_run_of_one_host_is_approved_resumed_and_forked_by_another() -> Result {
    let (folder, address) = (tempfile::tempdir()?, new_store("shared"));
    let scope = || Scope::agent("writer").session("letters");
    let first = host_with_store(&address, folder.path())?.build().await?;
    let second = host_with_store(&address, folder.path())?.build().await?;
    let mut requests = second.approval_requests();

    let run = first.run(scope())?;
    let result = run.exec("1", r#"const n = 41; await tools.send_letter({to: "Ada"}); return n + 1"#).await;
    let run_id = result.run_id().unwrap_or_else(|| panic!("{result:?}")).clone();
    let request = requests.next().await?;
    assert_eq!((&request.run_id, &request.input), (&run_id, &json!({"to": "Ada"})));
    first.shut_down().await?;
    drop(first);

    let run = second.run(scope())?;
    let forked = run.fork("2", &run_id, 1).await?;
    second.approve(&request.id, "the operator").await?;
    assert_eq!(run.wait("3", &run_id).await.value(), Some(json!(42)));
    assert!(second.replay(&run_id).await?.matches());
    assert!(run.cancel(&forked).await?);
    let mut states: Vec<(bool, RunState)> =
        second.runs(10).await?.into_iter().map(|row| (row.run_id == run_id, row.state)).collect();
    states.sort_by_key(|(original, _)| *original);
    assert_eq!(states, [(false, RunState::Aborted), (true, RunState::Completed)]);
    assert!(second.export("letters").await?.contains("the operator"));
    second.shut_down().await
}

pub(super) async fn another_key_is_refused_while_a_cell_is_suspended() -> Result {
    let (folder, address) = (tempfile::tempdir()?, new_store("keys"));
    let first = host_with_store(&address, folder.path())?.build().await?;
    let result = first.run(Scope::agent("a"))?.exec("1", r#"return tools.send_letter({to: "Ada"})"#).await;
    assert!(result.run_id().is_some(), "{result:?}");
    first.shut_down().await?;
    let other = tempfile::tempdir()?;
    let error = host_with_store(&address, other.path())?.build().await.unwrap_err();
    assert_eq!(error.code(), "key_unavailable", "{error}");
    Ok(())
}

pub(super) async fn a_server_that_cannot_be_reached_is_named_without_its_password() -> Result {
    let folder = tempfile::tempdir()?;
    let address = "postgres://writer:not-a-secret@127.0.0.1:1/runs";
    let error = host_with_store(address, folder.path())?.build().await.unwrap_err();
    assert_eq!(error.code(), "store_unavailable", "{error}");
    assert!(error.to_string().contains("127.0.0.1:1") && !error.to_string().contains("not-a-secret"), "{error}");
    Ok(())
}
