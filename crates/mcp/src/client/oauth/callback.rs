//! The redirect URL of a login: a loopback address to which the browser returns.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::net::TcpListener;
use url::{Host, Url};

const PATH: &str = "/callback";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The host exactly as it was registered: some issuers compare it literally.
    host: String,
    /// `None`: any free port.
    port: Option<u16>,
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a loopback URL such as `http://127.0.0.1:8085/callback`")]
pub struct BadCallback;

impl Default for Callback {
    fn default() -> Self {
        Self { host: Ipv4Addr::LOCALHOST.to_string(), port: None, path: PATH.to_owned() }
    }
}

impl Callback {
    /// Returns a callback at `localhost`, the name that users of other clients register with a fixed port.
    pub fn at_port(port: u16) -> Self {
        Self { host: "localhost".to_owned(), port: Some(port), path: PATH.to_owned() }
    }

    pub fn parse(text: &str) -> Result<Self, BadCallback> {
        let url = Url::parse(text).map_err(|_| BadCallback)?;
        let here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if url.scheme() != "http" || !here || !plain {
            return Err(BadCallback);
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        Ok(Self { host, port: url.port(), path: url.path().to_owned() })
    }

    pub(crate) async fn listen(&self) -> io::Result<TcpListener> {
        let literal = self.host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let address = match literal {
            Ok(IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            Ok(address @ IpAddr::V4(_)) => address,
            Err(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        TcpListener::bind((address, self.port.unwrap_or(0))).await
    }

    /// Returns the redirect URL with the port that is being listened on.
    pub(crate) fn url(&self, port: u16) -> String {
        format!("http://{}:{port}{}", self.host, self.path)
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::Callback;

    #[test]
    fn only_a_plain_loopback_url_is_accepted() {
        let kept = [
            ("http://127.0.0.1/callback", "http://127.0.0.1:7/callback"),
            ("http://localhost:8085/oauth/cb", "http://localhost:7/oauth/cb"),
            ("http://[::1]:9/", "http://[::1]:7/"),
        ];
        for (text, url) in kept {
            assert_eq!(Callback::parse(text).unwrap().url(7), url);
        }
        let others = [
            "https://localhost/callback",
            "http://example.com/callback",
            "http://10.0.0.1/callback",
            "http://localhost/callback?x=1",
            "http://me@localhost/callback",
            "callback",
        ];
        for text in others {
            assert!(Callback::parse(text).is_err(), "{text}");
        }
        assert_eq!(Callback::at_port(80).url(80), "http://localhost:80/callback");
        assert_eq!(Callback::parse("http://localhost:80/x").unwrap().url(80), "http://localhost:80/x");
    }

    #[tokio::test]
    async fn the_configured_port_is_listened_on() {
        let free = Callback::default().listen().await.unwrap().local_addr().unwrap().port();
        let listener = Callback::at_port(free).listen().await.unwrap();
        assert_eq!(listener.local_addr().unwrap().to_string(), format!("127.0.0.1:{free}"));
    }
}
