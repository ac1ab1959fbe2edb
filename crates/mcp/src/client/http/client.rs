//! HTTP clients that go where they were told to and nowhere else: no proxies from the environment, no redirects to
//! another origin.

use std::net::SocketAddr;
use std::sync::Once;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use url::Url;

use super::AddressScope;

/// Until a server has taken a connection. Everything after that has the deadline of the call it is for.
const CONNECT: Duration = Duration::from_secs(10);

/// Shorter than servers keep idle connections (Node's five seconds are the least that is common): a request on one that
/// is being closed would be lost, and nobody could say whether it had taken effect.
const IDLE: Duration = Duration::from_secs(4);

/// Redirects within the server's own origin; a login's, too.
const MAX_REDIRECTS: usize = 3;

/// For what a login asks of one address.
const LOGIN_REQUEST: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
#[error("cannot create the HTTP client")]
pub struct NotBuilt(#[from] reqwest::Error);

/// For a server that somebody configured.
pub(crate) fn build() -> Result<reqwest::Client, NotBuilt> {
    Ok(base().build()?)
}

/// For addresses that the server named.
pub(crate) fn guarded(reach: &AddressScope) -> Result<reqwest::Client, NotBuilt> {
    Ok(base().timeout(LOGIN_REQUEST).dns_resolver(Guard(reach.clone())).build()?)
}

fn base() -> reqwest::ClientBuilder {
    static CRYPTOGRAPHY: Once = Once::new();
    // An error says that the program which embeds us has chosen one; then that counts.
    CRYPTOGRAPHY.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let agent = concat!("cellmate/", env!("CARGO_PKG_VERSION"));
    let client = reqwest::Client::builder().user_agent(agent).no_proxy();
    client.connect_timeout(CONNECT).pool_idle_timeout(IDLE).redirect(Policy::custom(redirect))
}

/// Another origin would get the headers that somebody configured for this one.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let origin = attempt.previous().first().map(Url::origin);
    if origin == Some(attempt.url().origin()) && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// Resolves names to those addresses alone that the server may name.
#[derive(Debug)]
struct Guard(AddressScope);

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|address| reach.allows(host, address.ip())).collect();
            match allowed.is_empty() {
                true => Err(format!("`{host}` has no address that this server may refer to").into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}
