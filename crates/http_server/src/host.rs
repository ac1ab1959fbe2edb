//! Host and origin checks against DNS rebinding: a web page can make a browser send requests to this server under the
//! page's own host name.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

/// The host names that the server accepts, without ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(address: SocketAddr, more: &[String]) -> Self {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        if !address.ip().is_unspecified() {
            names.push(address.ip().to_string());
        }
        names.extend(more.iter().map(|name| plain(name)));
        Self(names)
    }

    /// Returns true if a request names this server everywhere it names a host: in `Host`, in a target in absolute form,
    /// and in the `Origin` of the page that made it.
    pub(crate) fn admit(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().is_ok_and(|host| self.is_authority(host)),
            (None, _) => uri.authority().is_some(),
            (Some(_), Some(_)) => false,
        };
        let mut origins = headers.get_all(header::ORIGIN).iter();
        host && self.is_target(uri) && origins.all(|origin| origin.to_str().is_ok_and(|origin| self.is_origin(origin)))
    }

    /// Returns true for `/path`, and for `http://…` at this server.
    fn is_target(&self, uri: &Uri) -> bool {
        match (uri.scheme_str(), uri.authority()) {
            (None, None) => true,
            (Some("http" | "https"), Some(authority)) => self.is_authority(authority.as_str()),
            _ => false,
        }
    }

    fn is_origin(&self, origin: &str) -> bool {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| self.is_authority(authority))
    }

    /// Returns true for an accepted host with or without a port, and nothing else: no user, no path.
    fn is_authority(&self, text: &str) -> bool {
        let Ok(authority) = text.parse::<Authority>() else { return false };
        let Some(port) = authority.as_str().strip_prefix(authority.host()) else { return false };
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        is_port && self.0.contains(&plain(authority.host()))
    }
}

/// Normalizes a host: addresses have several spellings, and names are case-insensitive.
fn plain(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    host.parse::<IpAddr>().map_or(host, |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, Uri, header};

    use super::Hosts;

    fn headers(all: &[(HeaderName, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_accepted_hosts_and_origins_are_admitted() {
        let hosts = Hosts::new("192.0.2.7:80".parse().unwrap(), &["Cells.example".to_owned()]);
        let host = header::HOST;
        let admit = |given: &[(HeaderName, &str)]| hosts.admit(&headers(given), &Uri::from_static("/mcp"));
        for good in ["localhost", "LOCALHOST:8620", "127.0.0.1:1", "[::1]:8620", "192.0.2.7", "cells.example:443"] {
            assert!(admit(&[(host.clone(), good)]), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "",
            "127.0.0.2",
            "a b",
            "evil@127.0.0.1",
            "evil:secret@localhost:8620",
            "@localhost",
            "localhost@evil.example",
            "localhost:",
            "localhost:x",
            "localhost:99999",
            "localhost:1:2",
            "localhost/evil.example",
            "localhost, evil.example",
            "http://localhost",
        ] {
            assert!(!admit(&[(host.clone(), bad)]), "{bad}");
        }
        assert!(!admit(&[]));
        let from = |origin: &'static str| admit(&[(host.clone(), "localhost:8620"), (header::ORIGIN, origin)]);
        assert!(from("http://localhost:3000") && from("https://cells.example"));
        for bad in [
            "http://evil.example",
            "null",
            "file:///etc",
            "",
            "http://localhost.evil.example:8620",
            "http://evil@localhost",
            "http://localhost/path",
            "localhost",
        ] {
            assert!(!from(bad), "{bad}");
        }
    }

    #[test]
    fn a_target_in_absolute_form_must_name_this_server_too() {
        let hosts = Hosts::new("127.0.0.1:8620".parse().unwrap(), &[]);
        let host = headers(&[(header::HOST, "127.0.0.1:8620")]);
        let admit = |headers: &HeaderMap, target: &str| hosts.admit(headers, &target.parse::<Uri>().unwrap());
        assert!(admit(&host, "http://127.0.0.1:8620/mcp") && admit(&host, "http://localhost/mcp"));
        for bad in [
            "http://evil.example/mcp",
            "http://evil@127.0.0.1/mcp",
            "ftp://127.0.0.1/mcp",
            "evil.example:443",
            "127.0.0.1:8620",
        ] {
            assert!(!admit(&host, bad), "{bad}");
        }
        assert!(admit(&HeaderMap::new(), "http://127.0.0.1:8620/mcp"));
        assert!(!admit(&HeaderMap::new(), "http://evil.example/mcp"));
        assert!(!admit(&headers(&[(header::HOST, "evil.example")]), "http://127.0.0.1:8620/mcp"));
    }

    #[test]
    fn two_host_headers_are_rejected() {
        let hosts = Hosts::new("127.0.0.1:1".parse().unwrap(), &[]);
        let mut both = headers(&[(header::HOST, "localhost")]);
        both.append(header::HOST, "localhost".parse().unwrap());
        assert!(!hosts.admit(&both, &Uri::from_static("/")));
    }
}
