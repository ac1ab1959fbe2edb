//! TLS with a certificate from files.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

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
    Tls(Arc<ServerConfig>),
}

impl Transport {
    /// Reads the certificate and its key.
    pub fn tls(files: &TlsFiles) -> Result<Self, TlsError> {
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
        Ok(Self::Tls(Arc::new(config)))
    }

    /// Returns the scheme of the server's address.
    pub fn scheme(&self) -> &'static str {
        match self {
            Self::Tls(_) => "https",
            Self::Plain | Self::BehindProxy => "http",
        }
    }
}
