//! A Postgres server that accepts network connections only with TLS.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Server;

/// A Postgres server whose certificate is signed by a new certificate authority.
#[derive(Debug)]
pub struct TlsServer {
    server: Server,
    port: u16,
}

impl TlsServer {
    pub fn start() -> io::Result<Self> {
        let mut server = Server::start()?;
        let (folder, port) = (server.folder.path(), free_port()?);
        certify(folder)?;
        let key = folder.join("server.key");
        if let Some((uid, gid)) = server.user {
            chown(&key, Some(uid), Some(gid))?;
        }
        let data = folder.join("data");
        fs::write(
            data.join("pg_hba.conf"),
            "local all all trust\nhostssl all all 127.0.0.1/32 trust\nhostnossl all all 127.0.0.1/32 reject\n",
        )?;
        let settings = fs::read_to_string(data.join("postgresql.conf"))?;
        let (certificate, key) = (folder.join("server.crt"), key.display());
        let tls = format!("ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{key}'\n", certificate.display());
        fs::write(data.join("postgresql.conf"), settings + &tls)?;
        server.tcp_port = Some(port);
        server.restart_immediately()?;
        Ok(Self { server, port })
    }

    /// Returns the server's URL with the host name of its certificate and this `sslmode`.
    pub fn url(&self, sslmode: &str) -> String {
        format!("postgres://postgres@localhost:{}/postgres?sslmode={sslmode}", self.port)
    }

    /// Returns the path of the certificate authority's certificate.
    pub fn ca_certificate(&self) -> PathBuf {
        self.server.folder.path().join("authority.crt")
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Creates a certificate authority and a certificate for `localhost` signed by it.
fn certify(folder: &Path) -> io::Result<()> {
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let authority = "-x509 -days 2 -subj /CN=authority -keyout authority.key -out authority.crt";
    let request = "-subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout server.key -out server.csr";
    let signed = "x509 -req -days 2 -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial \
                  -copy_extensions copy -out server.crt";
    for arguments in [format!("{new} {authority}"), format!("{new} {request}"), signed.to_owned()] {
        let made = Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output()?;
        if !made.status.success() {
            return Err(io::Error::other(format!("openssl: {}", String::from_utf8_lossy(&made.stderr))));
        }
    }
    Ok(())
}
