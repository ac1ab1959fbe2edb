//! A server that is reached over the network, by TLS and in no other way.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Server;

/// A server whose certificate one authority vouches for, and only that one.
#[derive(Debug)]
pub struct Secured {
    server: Server,
    port: u16,
}

impl Secured {
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
        server.network = Some(port);
        server.restart_at_once()?;
        Ok(Self { server, port })
    }

    /// The server by the name that its certificate gives it, and how much its client insists on (`sslmode`).
    pub fn url(&self, sslmode: &str) -> String {
        format!("postgres://postgres@localhost:{}/postgres?sslmode={sslmode}", self.port)
    }

    /// The certificate of who vouches for it.
    pub fn authority(&self) -> PathBuf {
        self.server.folder.path().join("authority.crt")
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// An authority, and a certificate of its for `localhost`.
fn certify(folder: &Path) -> io::Result<()> {
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let authority = "-x509 -days 2 -subj /CN=authority -keyout authority.key -out authority.crt";
    let asked = "-subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout server.key -out server.csr";
    let signed = "x509 -req -days 2 -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial \
                  -copy_extensions copy -out server.crt";
    for arguments in [format!("{new} {authority}"), format!("{new} {asked}"), signed.to_owned()] {
        let made = Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output()?;
        if !made.status.success() {
            return Err(io::Error::other(format!("openssl: {}", String::from_utf8_lossy(&made.stderr))));
        }
    }
    Ok(())
}
