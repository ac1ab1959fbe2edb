//! Chooses whether a Postgres connection uses verified TLS, from the server's host and the address's `sslmode`.
//!
//! The driver's default, `prefer`, falls back to plain text if the server, or an attacker in between, claims not to
//! support TLS. Here a server on another machine is verified unless its address says otherwise.

use std::net::IpAddr;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use url::Url;

/// The `sslmode` of a remote server's address does not verify the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`sslmode={mode}` does not verify the server, and `{host}` is another machine; write `sslmode=verify-full` (or leave it out), `sslmode=verify-ca` if the certificate has another host name, or `sslmode=disable` for plain text"
)]
pub struct WeakTls {
    pub host: String,
    pub mode: String,
}

/// Where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostKind {
    /// On this machine.
    Local,
    Remote,
}

/// How an address's own `sslmode` is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeDecision {
    AsWritten,
    VerifyFull,
    Refused,
}

/// Returns the address with the `sslmode` to connect with: unchanged for a local server, and with
/// `sslmode=verify-full` added for a remote server whose address has no `sslmode`.
pub(crate) fn verified(address: &str) -> Result<String, AddressError> {
    let options = PgConnectOptions::from_str(address)?;
    // Cannot fail: an address that the driver accepts is a URL.
    let Ok(mut url) = Url::parse(address) else { return Ok(address.to_owned()) };
    let mode = |(name, _): &(_, _)| matches!(AsRef::<str>::as_ref(name), "sslmode" | "ssl-mode");
    let written: Option<String> = url.query_pairs().filter(mode).last().map(|(_, mode)| mode.to_ascii_lowercase());
    let is_local = options.get_socket().is_some() || is_this_machine(options.get_host());
    let host = if is_local { HostKind::Local } else { HostKind::Remote };
    match decide(host, written.as_deref()) {
        ModeDecision::AsWritten => Ok(address.to_owned()),
        ModeDecision::VerifyFull => {
            url.query_pairs_mut().append_pair("sslmode", "verify-full");
            Ok(url.into())
        }
        ModeDecision::Refused => {
            let (host, mode) = (options.get_host().to_owned(), written.unwrap_or_default());
            Err(AddressError::Weak(WeakTls { host, mode }))
        }
    }
}

/// Why an address cannot be used.
#[derive(Debug)]
pub(crate) enum AddressError {
    Weak(WeakTls),
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for AddressError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

fn decide(host: HostKind, written: Option<&str>) -> ModeDecision {
    match written {
        _ if host == HostKind::Local => ModeDecision::AsWritten,
        None => ModeDecision::VerifyFull,
        Some("disable" | "verify-ca" | "verify-full") => ModeDecision::AsWritten,
        Some(_) => ModeDecision::Refused,
    }
}

/// Whether the host is a socket directory, `localhost` or a loopback address.
fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.starts_with('/')
        || bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{AddressError, verified};

    /// Returns how an address is used: `as written`, `verify-full` if that is added, or `refused`.
    fn used(address: &str) -> String {
        match verified(address) {
            Ok(url) if url == address => "as written".to_owned(),
            Ok(url) => {
                assert!(url.ends_with("sslmode=verify-full"), "{url}");
                "verify-full".to_owned()
            }
            Err(AddressError::Weak(weak)) => {
                assert!(weak.to_string().contains("write `sslmode=verify-full`"), "{weak}");
                assert!(!weak.to_string().contains("hunter2"), "{weak}");
                "refused".to_owned()
            }
            Err(AddressError::Sql(error)) => error.to_string(),
        }
    }

    #[test]
    fn a_server_on_another_machine_is_verified_unless_its_address_says_otherwise() {
        let cases = [
            ("postgres://app:hunter2@db.example/x", "verify-full"),
            ("postgres://app:hunter2@db.example:6432/x?application_name=a", "verify-full"),
            ("postgres://app:hunter2@10.0.0.7/x", "verify-full"),
            ("postgres://app:hunter2@128.0.0.1/x", "verify-full"),
            ("postgres://app:hunter2@[2001:db8::1]/x", "verify-full"),
            ("postgres://app:hunter2@localhost.example/x", "verify-full"),
            ("postgres://app@localhost/x?host=db.example", "verify-full"),
            ("postgres://app@localhost/x?hostaddr=10.0.0.7", "verify-full"),
            ("postgres://db.example/x?sslmode=disable", "as written"),
            ("postgres://db.example/x?ssl-mode=disable", "as written"),
            ("postgres://db.example/x?sslmode=verify-ca", "as written"),
            ("postgres://db.example/x?sslmode=verify-full&sslrootcert=/ca", "as written"),
            ("postgres://app:hunter2@db.example/x?sslmode=require", "refused"),
            ("postgres://app:hunter2@db.example/x?sslmode=prefer", "refused"),
            ("postgres://app:hunter2@db.example/x?sslmode=PREFER", "refused"),
            ("postgres://app:hunter2@db.example/x?ssl-mode=allow", "refused"),
            ("postgres://app:hunter2@db.example/x?sslmode=disable&sslmode=prefer", "refused"),
        ];
        for (address, expected) in cases {
            assert_eq!(used(address), expected, "{address}");
        }
    }

    #[test]
    fn a_server_on_this_machine_is_used_as_written() {
        for address in [
            "postgres://app@localhost/x",
            "postgres://app@LOCALHOST/x?sslmode=prefer",
            "postgres://app@127.0.0.1:6432/x",
            "postgres://app@127.8.9.10/x?sslmode=require",
            "postgres://app@[::1]/x",
            "postgres://app@localhost/x?host=/run/pg",
            "postgres://app@db.example/x?host=/run/pg",
            "postgres://app@%2Frun%2Fpg/x?sslmode=allow",
        ] {
            assert_eq!(used(address), "as written", "{address}");
        }
    }
}
