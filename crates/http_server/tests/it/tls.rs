//! TLS with a certificate from files, and the addresses that need it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use http_server::{HttpError, TlsError, TlsFiles, Transport, check_address};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::served::{AGENT, Served, head};

/// Creates a self-signed certificate for `localhost`; `None` if there is no `openssl` on this machine.
fn certificate(folder: &Path) -> Option<TlsFiles> {
    let files = TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(&files.key).arg("-out").arg(&files.cert);
    openssl.output().ok().filter(|output| output.status.success()).map(|_| files)
}

#[tokio::test]
async fn a_client_that_knows_the_certificate_is_served_over_tls_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let Some(files) = certificate(folder.path()) else {
        eprintln!("skipped: there is no openssl");
        return;
    };
    let served = Served::with(Transport::tls(&files).unwrap()).await;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = |trusted: bool| {
        let mut roots = RootCertStore::empty();
        if trusted {
            roots.add(CertificateDer::from_pem_file(&files.cert).unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        Arc::new(
            builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth(),
        )
    };
    let name = ServerName::try_from("localhost").unwrap();
    let stranger = TlsConnector::from(config(false)).connect(name.clone(), served.connect().await).await;
    assert!(stranger.is_err());
    for (token, expected) in [(AGENT, "HTTP/1.1 200"), ("nonsense-nonsense-nonsense", "HTTP/1.1 401")] {
        let mut stream = TlsConnector::from(config(true)).connect(name.clone(), served.connect().await).await.unwrap();
        stream.write_all(head("POST", "/execute", &[("x-api-key", token)], 2).as_bytes()).await.unwrap();
        stream.write_all(b"{}").await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        assert!(response.starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&response));
    }
    // A client that speaks plain HTTP is answered with nothing that HTTP can parse.
    let mut plain = served.connect().await;
    plain.write_all(head("POST", "/execute", &[("x-api-key", AGENT)], 0).as_bytes()).await.unwrap();
    let mut response = Vec::new();
    drop(plain.read_to_end(&mut response).await);
    assert!(!response.starts_with(b"HTTP"), "{response:?}");
}

#[tokio::test]
async fn a_certificate_that_is_replaced_on_disk_is_used_for_new_connections() {
    let (folder, next) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (Some(files), Some(newer)) = (certificate(folder.path()), certificate(next.path())) else {
        eprintln!("skipped: there is no openssl");
        return;
    };
    let served = Served::with(Transport::tls(&files).unwrap()).await;
    let connects = async |trusted: &Path| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(config).connect(name, served.connect().await).await.is_ok()
    };
    assert!(connects(&files.cert).await && !connects(&newer.cert).await);
    let first = folder.path().join("first.pem");
    std::fs::copy(&files.cert, &first).unwrap();
    // Between the two, the files do not fit, and the old certificate stays.
    std::fs::copy(&newer.cert, &files.cert).unwrap();
    tokio::time::sleep(http_server::limits::TLS_RELOAD_INTERVAL + std::time::Duration::from_secs(1)).await;
    assert!(connects(&first).await);
    std::fs::copy(&newer.key, &files.key).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !connects(&newer.cert).await {
        assert!(std::time::Instant::now() < deadline, "the new certificate is not used");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(!connects(&first).await);
}

#[test]
fn files_that_hold_no_certificate_or_key_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    assert!(matches!(Transport::tls(&files), Err(TlsError::Certificate { .. })));
    std::fs::write(&files.cert, "nonsense").unwrap();
    let error = Transport::tls(&files).unwrap_err();
    assert!(matches!(error, TlsError::NoCertificate(_)) && error.to_string().contains("cert.pem"), "{error}");
    if certificate(folder.path()).is_some() {
        std::fs::write(&files.key, "nonsense").unwrap();
        let error = Transport::tls(&files).unwrap_err();
        assert!(matches!(error, TlsError::Key { .. }) && error.to_string().contains("key.pem"), "{error}");
    }
}

#[test]
fn an_address_that_other_machines_reach_needs_a_token_and_tls_or_a_proxy() {
    let reachable = ["0.0.0.0:80", "192.0.2.7:80", "[::]:80", "[2001:db8::1]:80"].map(|one| one.parse().unwrap());
    let local = ["127.0.0.1:80", "127.1.2.3:80", "[::1]:80"].map(|one| one.parse().unwrap());
    for address in reachable {
        let unencrypted = check_address(address, true, &Transport::Plain);
        assert!(matches!(unencrypted, Err(HttpError::Unencrypted(_))), "{address}");
        assert!(check_address(address, true, &Transport::BehindProxy).is_ok(), "{address}");
        let open = check_address(address, false, &Transport::BehindProxy);
        assert!(matches!(open, Err(HttpError::OpenToOthers(_))), "{address}");
    }
    for address in local {
        for requires_token in [true, false] {
            assert!(check_address(address, requires_token, &Transport::Plain).is_ok(), "{address}");
        }
    }
}
