//! Where requests to a provider go: the URL of its API, and the addresses that its name may have.
//!
//! A provider is configured by the user, so it may be on this machine or in a private network. But a public name that
//! suddenly has a private address is refused: the owner of the name could otherwise direct requests, and the key in them,
//! to any service in the network. Names are resolved once, by the connection itself, so the address that is checked is the
//! one that is connected to.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use contract::address::{AddressClass, permitted};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};
use wire::Wire;

/// Which addresses a provider's host may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Global addresses only.
    Public,
    /// Global addresses, and those of this machine and of private networks.
    Private,
}

/// Domains that are never registered on the internet.
const PRIVATE_DOMAINS: [&str; 5] = ["localhost", "local", "internal", "home.arpa", "lan"];

/// The URL of a provider's API and what its host may resolve to.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    pub(super) reach: Reach,
}

impl Endpoint {
    /// Returns the URL of requests of a wire, from the configured base URL.
    ///
    /// `allowed` is what the configuration permits; a host that is private by its name or address needs no permission.
    pub(super) fn new(base: &str, wire: Wire, allowed: Reach) -> Result<Self, String> {
        let mut url = Url::parse(base.trim()).map_err(|error| format!("it is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("only http and https are supported".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it contains a user name or password; write credentials as `apiKey` or in `headers`".to_owned());
        }
        let reach = match url.host() {
            None => return Err("it has no host".to_owned()),
            Some(Host::Domain(name)) if is_private_name(name) => Reach::Private,
            Some(Host::Domain(_)) => Reach::Public,
            Some(Host::Ipv4(address)) => literal(IpAddr::from(address))?,
            Some(Host::Ipv6(address)) => literal(IpAddr::from(address))?,
        };
        let reach = if allowed == Reach::Private { Reach::Private } else { reach };
        if url.scheme() == "http" && reach == Reach::Public {
            return Err("prompts and keys would be sent unencrypted to a public host; use https".to_owned());
        }
        url.set_fragment(None);
        let path = path(url.path(), wire);
        url.set_path(&path);
        Ok(Self { url, reach })
    }
}

/// Returns the path of requests. A base may end with `/`, with `/v1`, or already with the path of the wire.
fn path(base: &str, wire: Wire) -> String {
    let base = base.trim_end_matches('/');
    let end = match wire {
        Wire::Chat => "/chat/completions",
        Wire::Responses => "/responses",
        Wire::Messages if base.ends_with("/v1") => "/messages",
        Wire::Messages => "/v1/messages",
    };
    if base.ends_with(end) { base.to_owned() } else { format!("{base}{end}") }
}

/// Returns what an address in the URL itself implies. Reserved addresses are refused: cloud providers serve credentials
/// there.
fn literal(address: IpAddr) -> Result<Reach, String> {
    match AddressClass::of(address) {
        AddressClass::Global => Ok(Reach::Public),
        AddressClass::Loopback | AddressClass::Private => Ok(Reach::Private),
        AddressClass::Reserved => Err(format!("{address} is a reserved address")),
    }
}

/// Whether a name cannot be one of the internet: `localhost`, a name without a dot, or one of a private domain.
fn is_private_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_in = |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    !name.contains('.') || PRIVATE_DOMAINS.iter().any(|domain| is_in(domain))
}

pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Finds the addresses of a name.
pub trait Lookup: fmt::Debug + Send + Sync {
    fn lookup(&self, name: &str) -> LookupFuture;
}

/// Asks the system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: &str) -> LookupFuture {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The resolver of a provider's HTTP client, which returns only addresses that the host may have.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    reach: Reach,
    lookup: Arc<dyn Lookup>,
}

impl Guard {
    pub(super) fn new(reach: Reach, lookup: Arc<dyn Lookup>) -> Self {
        Self { reach, lookup }
    }

    pub(super) async fn addresses(self, name: String) -> Result<Vec<SocketAddr>, String> {
        let found = self.lookup.lookup(&name).await.map_err(|error| format!("the name cannot be resolved: {error}"))?;
        let permitted = permitted(found, |address| refusal(*address, self.reach).map(str::to_owned))?;
        Ok(permitted.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
    }
}

/// Says why an address of a provider's name must not be connected to, if so.
fn refusal(address: IpAddr, reach: Reach) -> Option<&'static str> {
    match (AddressClass::of(address), reach) {
        (AddressClass::Global, _) | (AddressClass::Loopback | AddressClass::Private, Reach::Private) => None,
        (AddressClass::Loopback | AddressClass::Private, Reach::Public) => Some(
            "its public name has an address in a private network; if that is right, set `allowPrivate` of the provider",
        ),
        (AddressClass::Reserved, _) => Some("its name has a reserved address"),
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses = self.clone().addresses(name.as_str().to_owned());
        Box::pin(async move {
            let addresses = addresses.await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use wire::Wire;

    use super::{Endpoint, Guard, Lookup, LookupFuture, Reach};

    #[test]
    fn the_path_of_the_wire_is_added_to_every_form_of_a_base() {
        let cases = [
            ("https://api.example/v1", Wire::Chat, "https://api.example/v1/chat/completions"),
            ("https://api.example/v1/", Wire::Chat, "https://api.example/v1/chat/completions"),
            ("https://api.example", Wire::Chat, "https://api.example/chat/completions"),
            ("https://api.example/v1/chat/completions", Wire::Chat, "https://api.example/v1/chat/completions"),
            ("https://api.example/v1//", Wire::Responses, "https://api.example/v1/responses"),
            ("https://api.example", Wire::Messages, "https://api.example/v1/messages"),
            ("https://api.example/v1/", Wire::Messages, "https://api.example/v1/messages"),
            ("https://api.example/proxy/", Wire::Messages, "https://api.example/proxy/v1/messages"),
            ("https://a.example/x?api-version=1#f", Wire::Chat, "https://a.example/x/chat/completions?api-version=1"),
        ];
        for (base, wire, expected) in cases {
            assert_eq!(Endpoint::new(base, wire, Reach::Public).unwrap().url.as_str(), expected, "{base}");
        }
    }

    #[test]
    fn the_configured_host_decides_which_addresses_it_may_have() {
        let reach = |base: &str| Endpoint::new(base, Wire::Chat, Reach::Public).map(|endpoint| endpoint.reach);
        for base in [
            "http://localhost:11434",
            "http://a.localhost",
            "http://127.0.0.1:1/v1",
            "http://[::1]:1",
            "http://10.0.0.7",
            "http://ollama:11434",
            "http://models.internal.",
            "http://box.local",
        ] {
            assert_eq!(reach(base), Ok(Reach::Private), "{base}");
        }
        for base in
            ["https://api.openai.com/v1", "https://93.184.216.34/", "https://notlocal.example", "https://xlocal.io"]
        {
            assert_eq!(reach(base), Ok(Reach::Public), "{base}");
        }
        for base in [
            "http://api.openai.com/v1",
            "ftp://localhost",
            "https://me:pass@api.example",
            "https://me@api.example",
            "http://169.254.169.254/latest",
            "http://[::ffff:169.254.169.254]/",
            "https://",
            "api.example/v1",
        ] {
            assert!(reach(base).is_err(), "{base}");
        }
        assert_eq!(Endpoint::new("http://nas.example", Wire::Chat, Reach::Private).unwrap().reach, Reach::Private);
    }

    #[derive(Debug)]
    struct Fixed(&'static [&'static str]);

    impl Lookup for Fixed {
        fn lookup(&self, _name: &str) -> LookupFuture {
            let addresses = self.0.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect();
            Box::pin(async move { Ok(addresses) })
        }
    }

    #[tokio::test]
    async fn a_public_name_is_not_connected_to_at_a_private_address() {
        let resolve = async |reach: Reach, found: &'static [&'static str]| {
            let found = Guard::new(reach, Arc::new(Fixed(found))).addresses("a.example".to_owned()).await?;
            Ok::<Vec<String>, String>(found.iter().map(|address| address.ip().to_string()).collect())
        };
        assert_eq!(resolve(Reach::Public, &["10.0.0.1", "93.184.216.34", "::1"]).await.unwrap(), ["93.184.216.34"]);
        assert_eq!(resolve(Reach::Private, &["10.0.0.1", "169.254.169.254"]).await.unwrap(), ["10.0.0.1"]);
        for found in
            [&["127.0.0.1"] as &[&str], &["::1"], &["192.168.0.1"], &["169.254.169.254"], &["::ffff:10.0.0.1"], &[]]
        {
            assert!(resolve(Reach::Public, found).await.is_err(), "{found:?}");
        }
        assert!(resolve(Reach::Private, &["169.254.169.254"]).await.is_err());
    }
}
