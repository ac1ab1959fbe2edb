//! TLS with a certificate from files, which is replaced when the files change.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::limits::TLS_RELOAD_INTERVAL;

/// The files of a server's certificate, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the server's own certificate first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the certificate in `{path}`: {error}; it must be a PEM file")]
    Certificate { path: PathBuf, error: pem::Error },
    #[error("`{0}` contains no certificate; it must be a PEM file with the server's certificate first")]
    NoCertificate(PathBuf),
    #[error("cannot read the private key in `{path}`: {error}; it must be a PEM file")]
    Key { path: PathBuf, error: pem::Error },
    #[error("the certificate and the private key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// How connections are protected.
#[derive(Clone, Debug, Default)]
pub enum Transport {
    /// Not at all, so only on this machine.
    #[default]
    Plain,
    /// By a proxy in front of the server.
    BehindProxy,
    /// By the server itself.
    Tls(TlsServer),
}

/// The certificate of a server, and the files that it comes from. Clones share it.
#[derive(Clone, Debug)]
pub struct TlsServer {
    files: TlsFiles,
    config: Arc<Mutex<Arc<ServerConfig>>>,
}

impl TlsServer {
    /// Returns the configuration for a new connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the certificate whenever the files have changed and can be used. Never returns.
    async fn follow_files(&self) {
        let mut known = self.files.clone().read().await;
        loop {
            tokio::time::sleep(TLS_RELOAD_INTERVAL).await;
            let found = self.files.clone().read().await;
            if found == known || found.is_none() {
                continue;
            }
            known = found;
            let files = self.files.clone();
            let loaded = tokio::task::spawn_blocking(move || load(&files)).await;
            match loaded {
                Ok(Ok(config)) => {
                    *self.config.lock() = Arc::new(config);
                    tracing::info!("the certificate was read again, because its files have changed");
                }
                // Usually only one of the two files has been replaced yet.
                Ok(Err(error)) => tracing::warn!(%error, "the changed certificate cannot be used; the old one stays"),
                Err(error) => tracing::warn!(%error, "the changed certificate cannot be read; the old one stays"),
            }
        }
    }
}

impl TlsFiles {
    /// Returns the contents of both files, if they can be read.
    async fn read(self) -> Option<(Vec<u8>, Vec<u8>)> {
        let read = move || Some((std::fs::read(&self.cert).ok()?, std::fs::read(&self.key).ok()?));
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }
}

impl Transport {
    /// Reads the certificate and its key.
    pub fn tls(files: &TlsFiles) -> Result<Self, TlsError> {
        let config = Arc::new(Mutex::new(Arc::new(load(files)?)));
        Ok(Self::Tls(TlsServer { files: files.clone(), config }))
    }

    /// Replaces the certificate whenever its files have changed. Never returns.
    pub(crate) async fn follow_files(&self) {
        match self {
            Self::Tls(server) => server.follow_files().await,
            Self::Plain | Self::BehindProxy => std::future::pending().await,
        }
    }

    /// Returns the scheme of the server's address.
    pub fn scheme(&self) -> &'static str {
        match self {
            Self::Tls(_) => "https",
            Self::Plain | Self::BehindProxy => "http",
        }
    }
}

fn load(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let bad_certificate = |error| TlsError::Certificate { path: files.cert.clone(), error };
    let chain = CertificateDer::pem_file_iter(&files.cert).map_err(bad_certificate)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(bad_certificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(files.cert.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| TlsError::Key { path: files.key.clone(), error })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
