//! Decides which addresses may be fetched, against server-side request forgery.
//!
//! Scheme, port, user name and literal addresses are checked in the URL ([`Target`]); the addresses of a name are checked
//! by the resolver that the connection uses ([`Guard`]). So a name that changes its address between check and connection
//! gains nothing: there is only one resolution, and its result is what is connected to.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use contract::address::{AddressClass, permitted};
use contract::limits::MAX_FETCH_URL_BYTES;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::shown;

/// Ports above 1023 on which other services than web servers are usual. Browsers refuse them too.
const NON_WEB_PORTS: [u16; 12] = [1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 10080];

/// Ports of Internet Relay Chat.
const IRC_PORTS: std::ops::RangeInclusive<u16> = 6665..=6697;

/// Whether a host may be on this machine or in a private network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrivateAddresses {
    /// The user allows them for this host.
    Allowed,
    Refused,
}

impl PrivateAddresses {
    fn of(host: &str, private_hosts: &BTreeSet<String>) -> Self {
        if private_hosts.contains(host) { Self::Allowed } else { Self::Refused }
    }
}

/// A URL that may be fetched, as far as the URL alone shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    url: Url,
    private_addresses: PrivateAddresses,
}

impl Target {
    /// Checks the URL of a call.
    pub(super) fn start(url: Url, private_hosts: &BTreeSet<String>) -> Result<Self, String> {
        Self::check(url, private_hosts)
    }

    /// Checks where a response of this target redirects to.
    pub(super) fn redirect(&self, location: &str, private_hosts: &BTreeSet<String>) -> Result<Self, String> {
        let from = shown(&self.url);
        if location.len() > MAX_FETCH_URL_BYTES {
            return Err(format!("`{from}` redirects to a URL of {} bytes, which is too long", location.len()));
        }
        let url = self.url.join(location).map_err(|error| format!("`{from}` redirects to an invalid URL: {error}"))?;
        let next = Self::check(url, private_hosts).map_err(|why| format!("`{from}` redirects: {why}"))?;
        // Otherwise any page on the internet could make requests in the private network.
        let (from_private, to_private) = (self.private_addresses, next.private_addresses);
        if to_private == PrivateAddresses::Allowed && from_private == PrivateAddresses::Refused {
            let to = shown(&next.url);
            return Err(format!(
                "`{from}` redirects to `{to}`, a host that the user allows only to be fetched directly; fetch that URL \
                 itself if it is the right one"
            ));
        }
        Ok(next)
    }

    fn check(url: Url, private_hosts: &BTreeSet<String>) -> Result<Self, String> {
        let name = shown(&url);
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`{name}` cannot be fetched: only http and https are supported"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!("`{name}` contains a user name or password; remove it, logins are not supported"));
        }
        let host = url.host().ok_or_else(|| format!("`{name}` has no host"))?;
        let plain = plain_host(&host);
        let private_addresses = PrivateAddresses::of(&plain, private_hosts);
        let literal = match host {
            Host::Ipv4(address) => Some(IpAddr::from(address)),
            Host::Ipv6(address) => Some(IpAddr::from(address)),
            Host::Domain(_) => None,
        };
        if let Some(refused) = literal.and_then(|address| refusal(&plain, address, private_addresses)) {
            return Err(refused);
        }
        let port = url.port_or_known_default().unwrap_or(0);
        if !is_web_port(port) {
            return Err(format!("`{name}` cannot be fetched: port {port} is not a web server port"));
        }
        Ok(Self { url, private_addresses })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn into_url(self) -> Url {
        self.url
    }
}

/// Returns the host in lower case, without the dot at the end that makes a name absolute, and without the brackets of
/// an address.
fn plain_host(host: &Host<&str>) -> String {
    match host {
        Host::Domain(name) => name.trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

fn is_web_port(port: u16) -> bool {
    matches!(port, 80 | 443) || (port > 1023 && !NON_WEB_PORTS.contains(&port) && !IRC_PORTS.contains(&port))
}

/// Says why an address must not be connected to, if so. Reserved addresses are refused even if the user allows the host:
/// cloud providers serve credentials there.
fn refusal(host: &str, address: IpAddr, private: PrivateAddresses) -> Option<String> {
    let what = match AddressClass::of(address) {
        AddressClass::Global => return None,
        AddressClass::Loopback | AddressClass::Private if private == PrivateAddresses::Allowed => return None,
        AddressClass::Loopback => "this machine",
        AddressClass::Private => "a private network",
        AddressClass::Reserved => {
            return Some(format!("`{host}` is at {address}, a reserved address, which is never fetched"));
        }
    };
    let host = contract::text::line(host, super::MAX_SHOWN_CHARS);
    Some(format!(
        "`{host}` is at {address}, in {what}; only the user can allow that, by adding `{host}` to \
         `tools.web.fetch.allowPrivate`"
    ))
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

/// The resolver of the HTTP client, which returns only addresses that may be connected to.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    private_hosts: Arc<BTreeSet<String>>,
    lookup: Arc<dyn Lookup>,
}

impl Guard {
    pub(super) fn new(private_hosts: Arc<BTreeSet<String>>, lookup: impl Lookup + 'static) -> Self {
        Self { private_hosts, lookup: Arc::new(lookup) }
    }

    async fn addresses(self, name: String) -> Result<Vec<SocketAddr>, String> {
        let host = plain_host(&Host::Domain(name.as_str()));
        let found = self.lookup.lookup(&name).await.map_err(|error| format!("the name cannot be resolved: {error}"))?;
        let private = PrivateAddresses::of(&host, &self.private_hosts);
        let permitted = permitted(found, |address| refusal(&host, *address, private))?;
        Ok(permitted.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
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
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::sync::Arc;

    use url::Url;

    use super::{Guard, Lookup, LookupFuture, Target};

    fn hosts(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn check(url: &str, private: &[&str]) -> Result<Target, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        Target::start(url, &hosts(private))
    }

    #[test]
    fn every_spelling_of_an_address_that_is_not_global_is_refused() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://127.0.0.1./",
            "http://①②⑦.⓪.⓪.①/",
            "http://%31%32%37.0.0.1/",
            "http://0/",
            "http://0.0.0.0/",
            "http://10.1.2.3/",
            "http://172.16.0.1/",
            "http://192.168.1.1/",
            "http://100.100.100.200/",
            "http://169.254.169.254/latest/meta-data",
            "http://2852039166/",
            "http://0251.0376.0251.0376/",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://198.18.0.1/",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://[2001:0:7f00:1::]/",
            "http://[fe80::1]/",
            "http://[fe80::1%25eth0]/",
            "http://[fd00::1]/",
            "http://[ff02::1]/",
            "https://[0:0:0:0:0:0:0:1]/",
            "http://example.com\\@127.0.0.1/",
            "http://127.0.0.1#@example.com/",
        ] {
            // The one with a backslash has the host `example.com` in a browser, and here.
            let refused = check(url, &[]);
            let is_other_host =
                url.contains('\\') && refused.as_ref().is_ok_and(|ok| ok.url().host_str() == Some("example.com"));
            assert!(refused.is_err() || is_other_host, "{url}: {refused:?}");
        }
    }

    #[test]
    fn schemes_ports_and_user_names_are_checked() {
        for url in
            ["http://93.184.216.34/", "https://example.com/", "https://example.com:8443/", "http://example.com:443/"]
        {
            assert!(check(url, &[]).is_ok(), "{url}");
        }
        for url in [
            "ftp://example.com/",
            "file:///etc/passwd",
            "data:text/plain,x",
            "gopher://example.com/",
            "javascript:alert(1)",
            "http://me@example.com/",
            "http://me:pass@example.com/",
            "http://:pass@example.com/",
            "http://example.com:22/",
            "http://example.com:25/",
            "http://example.com:0/",
            "http://example.com:6667/",
            "http://example.com:6000/",
        ] {
            assert!(check(url, &[]).is_err(), "{url}");
        }
        let refused = check("http://me:secret@example.com/", &[]).unwrap_err();
        assert!(!refused.contains("secret"), "{refused}");
    }

    #[test]
    fn an_allowed_host_may_be_private_but_never_reserved() {
        assert!(check("http://127.0.0.1:8080/", &["127.0.0.1"]).is_ok());
        assert!(check("http://[::1]:8080/", &["::1"]).is_ok());
        assert!(check("http://127.0.0.2:8080/", &["127.0.0.1"]).is_err());
        assert!(check("http://169.254.169.254/", &["169.254.169.254"]).is_err());
        let refused = check("http://10.0.0.1/", &[]).unwrap_err();
        assert!(refused.contains("tools.web.fetch.allowPrivate"), "{refused}");
    }

    #[test]
    fn a_redirect_from_a_public_host_cannot_enter_a_private_host() {
        let private = hosts(&["wiki.corp", "10.0.0.1"]);
        let public = Target::start(Url::parse("https://example.com/a/b").unwrap(), &private).unwrap();
        assert_eq!(public.redirect("../c?d", &private).unwrap().url().as_str(), "https://example.com/c?d");
        assert_eq!(public.redirect("//other.example/x", &private).unwrap().url().host_str(), Some("other.example"));
        for location in [
            "http://127.0.0.1/",
            "//127.0.0.1/",
            "http://10.0.0.1/",
            "http://wiki.corp/",
            "http://WIKI.corp./",
            "file:///etc/passwd",
            "http://me:p@example.com/",
            "http://[::1]/",
            "http://",
        ] {
            assert!(public.redirect(location, &private).is_err(), "{location}");
        }
        assert!(public.redirect(&format!("/{}", "x".repeat(10_000)), &private).is_err());
        let inner = Target::start(Url::parse("http://wiki.corp/").unwrap(), &private).unwrap();
        assert!(inner.redirect("/login", &private).is_ok() && inner.redirect("http://10.0.0.1/", &private).is_ok());
        assert!(inner.redirect("http://10.0.0.2/", &private).is_err());
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
    async fn the_resolver_returns_only_permitted_addresses() {
        let resolve = async |name: &str, private: &[&str], found: &'static [&'static str]| {
            let guard = Guard::new(Arc::new(hosts(private)), Fixed(found));
            let addresses = guard.addresses(name.to_owned()).await?;
            Ok::<Vec<String>, String>(addresses.iter().map(|address| address.ip().to_string()).collect())
        };
        assert_eq!(resolve("a.example", &[], &["93.184.216.34"]).await.unwrap(), ["93.184.216.34"]);
        assert_eq!(resolve("a.example", &[], &["10.0.0.1", "93.184.216.34", "::1"]).await.unwrap(), ["93.184.216.34"]);
        for found in
            [&["127.0.0.1"] as &[&str], &["::1"], &["169.254.169.254"], &["::ffff:10.0.0.1"], &["64:ff9b::1"], &[]]
        {
            assert!(resolve("a.example", &[], found).await.is_err(), "{found:?}");
        }
        assert_eq!(resolve("Wiki.Corp.", &["wiki.corp"], &["10.0.0.1"]).await.unwrap(), ["10.0.0.1"]);
        assert!(resolve("wiki.corp", &["wiki.corp"], &["169.254.169.254"]).await.is_err());
        assert!(resolve("localhost", &[], &["127.0.0.1"]).await.is_err());
    }
}
