//! Decides which addresses a server may refer to, against server-side request forgery.
//!
//! A user may configure any address, even on this machine. The addresses that the server itself names (where to log in,
//! where to get tokens) are not trusted: they must not reach hosts that only this machine or its network can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Loopback,
    /// An address of a private network.
    Private,
    Global,
    /// Link-local (where cloud providers serve credentials), multicast and unassigned addresses.
    Reserved,
}

impl Class {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match address.to_ipv4_mapped() {
                Some(inner) => Self::of_v4(inner),
                None => Self::of_v6(address),
            },
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [first, second, ..] = address.octets();
        match (first, second) {
            (127, _) => Self::Loopback,
            (10, _) | (172, 16..=31) | (192, 168) | (100, 64..=127) => Self::Private,
            (0, _) | (169, 254) | (192, 0) | (198, 18..=19) | (224.., _) => Self::Reserved,
            _ => Self::Global,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let [first, ..] = address.segments();
        match first {
            _ if address.is_loopback() => Self::Loopback,
            _ if address.is_unspecified() || address.is_multicast() => Self::Reserved,
            0xfc00..=0xfdff => Self::Private,
            // 6to4 addresses embed an arbitrary IPv4 address.
            0x2002 => Self::Reserved,
            // The only block from which global addresses are assigned.
            0x2000..=0x3fff => Self::Global,
            _ => Self::Reserved,
        }
    }
}

/// The addresses that a server with this configured address may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressScope {
    host: String,
    class: Class,
    plain: bool,
}

impl AddressScope {
    pub(crate) fn of(configured: &Url) -> Self {
        let class = match configured.host() {
            Some(Host::Ipv4(address)) => Class::of(address.into()),
            Some(Host::Ipv6(address)) => Class::of(address.into()),
            Some(Host::Domain("localhost")) => Class::Loopback,
            Some(Host::Domain(_)) | None => Class::Global,
        };
        let host = configured.host_str().unwrap_or_default().to_owned();
        Self { host, class, plain: configured.scheme() == "http" }
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
        let reachable = literal.is_none_or(|address| self.allows(host, address));
        let here = host == "localhost" || literal.is_some_and(|address| Class::of(address) == Class::Loopback);
        reachable && (url.scheme() == "https" || (url.scheme() == "http" && (self.plain || here)))
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{AddressScope, Class};

    #[test]
    fn addresses_have_a_class() {
        let cases = [
            ("127.1.2.3", Class::Loopback),
            ("::1", Class::Loopback),
            ("::ffff:127.0.0.1", Class::Loopback),
            ("10.0.0.1", Class::Private),
            ("172.31.0.1", Class::Private),
            ("172.32.0.1", Class::Global),
            ("192.168.0.1", Class::Private),
            ("100.64.0.1", Class::Private),
            ("fd00::1", Class::Private),
            ("169.254.169.254", Class::Reserved),
            ("::ffff:169.254.169.254", Class::Reserved),
            ("fe80::1", Class::Reserved),
            ("0.0.0.0", Class::Reserved),
            ("::", Class::Reserved),
            ("255.255.255.255", Class::Reserved),
            ("2002:7f00:1::", Class::Reserved),
            ("64:ff9b::7f00:1", Class::Reserved),
            ("93.184.216.34", Class::Global),
            ("2606:2800:220:1::1", Class::Global),
        ];
        for (address, class) in cases {
            assert_eq!(Class::of(address.parse().unwrap()), class, "{address}");
        }
    }

    #[test]
    fn a_server_may_name_only_addresses_that_its_own_address_allows() {
        let reach = |configured: &str| AddressScope::of(&Url::parse(configured).unwrap());
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
            assert_eq!(reach(configured).allows_url(&Url::parse(named).unwrap()), allowed, "{configured} {named}");
        }
        let inner = reach("https://mcp.corp/mcp");
        assert!(inner.allows("mcp.corp", "10.0.0.9".parse().unwrap()));
        assert!(!inner.allows("sso.corp", "10.0.0.9".parse().unwrap()));
    }
}
