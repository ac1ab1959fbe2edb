//! HTTP clients that contact only the given address: no proxies from the environment, no redirects to another origin.

use std::net::SocketAddr;
use std::sync::Once;
use std::time::Duration;

use contract::address::permitted;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use url::Url;

use super::AddressScope;

/// The timeout for establishing a connection. Everything after that has the deadline of its call.
const CONNECT: Duration = Duration::from_secs(10);

/// How long idle connections are kept. It is shorter than servers keep them (Node's five seconds are the shortest
/// common value): a request on a connection that is being closed would be lost, and its effect would be unknown.
const IDLE: Duration = Duration::from_secs(4);

/// The maximum number of redirects within the server's own origin, including those of a login.
const MAX_REDIRECTS: usize = 3;

/// The timeout of one request of a login.
const LOGIN_REQUEST: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
#[error("cannot create the HTTP client")]
pub struct ClientBuildError(#[from] reqwest::Error);

/// Builds a client for a configured server.
pub(crate) fn build() -> Result<reqwest::Client, ClientBuildError> {
    Ok(base().build()?)
}

/// Builds a client for addresses that the server named.
pub(crate) fn guarded(reach: &AddressScope) -> Result<reqwest::Client, ClientBuildError> {
    Ok(base().timeout(LOGIN_REQUEST).dns_resolver(Guard(reach.clone())).build()?)
}

fn base() -> reqwest::ClientBuilder {
    static CRYPTOGRAPHY: Once = Once::new();
    // An error means that the embedding program has already installed a provider, which is then used.
    CRYPTOGRAPHY.call_once(|| {
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            tracing::debug!("the cryptography provider of the embedding program is used");
        }
    });
    let agent = concat!("cellmate/", env!("CARGO_PKG_VERSION"));
    let client = reqwest::Client::builder().user_agent(agent).no_proxy();
    client.connect_timeout(CONNECT).pool_idle_timeout(IDLE).redirect(Policy::custom(redirect))
}

/// Follows redirects only within the origin: another origin would receive the headers configured for this one.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let origin = attempt.previous().first().map(Url::origin);
    if origin == Some(attempt.url().origin()) && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// A resolver that returns only addresses that the server may name.
#[derive(Debug)]
struct Guard(AddressScope);

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0)).await?;
            let refusal = |address: &SocketAddr| {
                let is_allowed = reach.allows(host, address.ip());
                (!is_allowed).then(|| format!("`{host}` has no address that this server may refer to"))
            };
            Ok(Box::new(permitted(found, refusal)?.into_iter()) as Addrs)
        })
    }
}
