//! Whether a request was meant for us: a web page can make a browser send requests here, under a name of its own.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

/// Names under which we answer, without ports.
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

    /// Every request names us, and a page that made it is one of ours.
    pub(crate) fn admit(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()),
            (None, _) => uri.authority().cloned(),
            (Some(_), Some(_)) => None,
        };
        let named = host.is_some_and(|host| self.has(host.host()));
        named
            && headers
                .get_all(header::ORIGIN)
                .iter()
                .all(|origin| origin.to_str().is_ok_and(|origin| self.is_ours(origin)))
    }

    fn is_ours(&self, origin: &str) -> bool {
        let Ok(origin) = origin.parse::<Uri>() else { return false };
        let web = matches!(origin.scheme_str(), Some("http" | "https"));
        web && origin.host().is_some_and(|host| self.has(host))
    }

    fn has(&self, host: &str) -> bool {
        self.0.contains(&plain(host))
    }
}

/// Addresses have several spellings, names have two cases.
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
    fn only_requests_that_name_us_and_pages_of_ours_are_let_in() {
        let hosts = Hosts::new("192.0.2.7:80".parse().unwrap(), &["Cells.example".to_owned()]);
        let host = header::HOST;
        let admit = |given: &[(HeaderName, &str)]| hosts.admit(&headers(given), &Uri::from_static("/mcp"));
        for good in ["localhost", "LOCALHOST:8620", "127.0.0.1:1", "[::1]:8620", "192.0.2.7", "cells.example:443"] {
            assert!(admit(&[(host.clone(), good)]), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example", "", "127.0.0.2", "a b"] {
            assert!(!admit(&[(host.clone(), bad)]), "{bad}");
        }
        assert!(!admit(&[]));
        let from = |origin: &'static str| admit(&[(host.clone(), "localhost:8620"), (header::ORIGIN, origin)]);
        assert!(from("http://localhost:3000") && from("https://cells.example"));
        for bad in ["http://evil.example", "null", "file:///etc", "", "http://localhost.evil.example:8620"] {
            assert!(!from(bad), "{bad}");
        }
    }

    #[test]
    fn two_hosts_are_none() {
        let hosts = Hosts::new("127.0.0.1:1".parse().unwrap(), &[]);
        let mut both = headers(&[(header::HOST, "localhost")]);
        both.append(header::HOST, "localhost".parse().unwrap());
        assert!(!hosts.admit(&both, &Uri::from_static("/")));
    }
}
