//! A store on a Postgres server that accepts only TLS connections.

use std::sync::Arc;

use contract::scope::Scope;
use store::{Change, Durability, FencedRun, Keys, Location, NewRun, RunChange, RunState, Store, StoreError};
use testkit::postgres::TlsServer;

async fn open(url: String) -> Result<Store, StoreError> {
    Store::open(&Location::Postgres(url), Keys::ephemeral().unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_store_uses_tls_and_verifies_the_server_certificate() {
    let server = TlsServer::start().unwrap();
    let root_certificate = format!("&sslrootcert={}", server.ca_certificate().display());

    let store = open(server.url("verify-full") + &root_certificate).await.unwrap();
    assert!(store.server_clock().await.unwrap().is_some());
    // The connection for notifications uses TLS, too. Only a notification from the server names the changed run.
    let mut watch = store.watch();
    assert_eq!(watch.next().await, RunChange::Unknown);
    let mut run = FencedRun::new(NewRun {
        run_id: "cm_1".into(),
        scope: Scope::default(),
        tool_call_id: "exec-1".to_owned(),
        holder: "one".to_owned(),
        lease_until: 1_000,
        expires_at: 10_000,
        catalog: "catalog".to_owned(),
        tables: Arc::from(*b"tables"),
        definition: "{}".to_owned(),
    });
    let waits = Change { state: Some(RunState::Waiting), release: true, ..Change::default() };
    store.commit(&mut run, &waits, Durability::Synced, 1).await.unwrap();
    assert_eq!(watch.next().await, RunChange::Run("cm_1".into()));

    open(server.url("require")).await.unwrap();

    let unknown = open(server.url("verify-full")).await.unwrap_err().to_string();
    assert!(unknown.contains("certificate"), "{unknown}");
    let elsewhere = server.url("verify-full").replace("localhost", "127.0.0.1") + &root_certificate;
    let misnamed = open(elsewhere).await.unwrap_err().to_string();
    assert!(misnamed.contains("certificate"), "{misnamed}");
    let clear = open(server.url("disable")).await.unwrap_err().to_string();
    assert!(clear.contains("no encryption") || clear.contains("rejects connection"), "{clear}");
}
