//! Decides which addresses a server may direct this client to, against server-side request forgery.
//!
//! A user may configure any address, even on this machine. The addresses that the server itself names (where to log in,
//! where to get tokens) are not trusted: they must not reach hosts that only this machine or its network can reach.

use std::net::IpAddr;

use contract::address::AddressClass as Class;
use url::{Host, Url};

/// The addresses that a server with this configured address may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressScope {
    host: String,
    class: Class,
    /// Whether the configured URL is `http`, without encryption.
    is_http: bool,
}

impl AddressScope {
    pub(crate) fn new(configured: &Url) -> Self {
        let class = match configured.host() {
            Some(Host::Ipv4(address)) => Class::of(address.into()),
            Some(Host::Ipv6(address)) => Class::of(address.into()),
            Some(Host::Domain("localhost")) => Class::Loopback,
            Some(Host::Domain(_)) | None => Class::Global,
        };
        let host = configured.host_str().unwrap_or_default().to_owned();
        Self { host, class, is_http: configured.scheme() == "http" }
    }

    /// Returns true if the server may name this address. The configured host itself is the user's choice, whatever it
    /// resolves to.
    pub(crate) fn allows(&self, host: &str, address: IpAddr) -> bool {
        let class = Class::of(address);
        host == self.host || class == Class::Global || (class == self.class && class != Class::Reserved)
    }

    /// Returns true if the server may name this URL. Unencrypted HTTP is allowed only if the configured URL uses it, or
    /// on this machine.
    pub(crate) fn allows_url(&self, url: &Url) -> bool {
        let literal = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::from(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::from(address)),
            Some(Host::Domain(_)) | None => None,
        };
        let host = url.host_str().unwrap_or_default();
        let is_reachable = literal.is_none_or(|address| self.allows(host, address));
        let is_this_machine =
            host == "localhost" || literal.is_some_and(|address| Class::of(address) == Class::Loopback);
        let may_use_http = self.is_http || is_this_machine;
        is_reachable && (url.scheme() == "https" || (url.scheme() == "http" && may_use_http))
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::AddressScope;

    #[test]
    fn a_server_may_name_only_addresses_that_its_own_address_allows() {
        let scope = |configured: &str| AddressScope::new(&Url::parse(configured).unwrap());
        let cases = [
            ("https://mcp.example/mcp", "https://auth.example/token", true),
            ("https://mcp.example/mcp", "http://auth.example/token", false),
            ("https://mcp.example/mcp", "https://10.0.0.1/token", false),
            ("https://mcp.example/mcp", "https://127.0.0.1/token", false),
            ("https://mcp.example/mcp", "https://169.254.169.254/token", false),
            ("https://mcp.example/mcp", "ftp://mcp.example/token", false),
            ("http://127.0.0.1:1/mcp", "http://127.0.0.1:2/token", true),
            ("http://127.0.0.1:1/mcp", "http://10.0.0.1/token", false),
            ("http://10.0.0.1/mcp", "http://10.0.0.2/token", true),
            ("http://10.0.0.1/mcp", "http://127.0.0.1/token", false),
            ("http://169.254.1.1/mcp", "http://169.254.1.2/token", false),
        ];
        for (configured, named, allowed) in cases {
            assert_eq!(scope(configured).allows_url(&Url::parse(named).unwrap()), allowed, "{configured} {named}");
        }
        let inner = scope("https://mcp.corp/mcp");
        assert!(inner.allows("mcp.corp", "10.0.0.9".parse().unwrap()));
        assert!(!inner.allows("sso.corp", "10.0.0.9".parse().unwrap()));
    }
}
