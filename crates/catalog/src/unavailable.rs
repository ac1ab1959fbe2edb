//! MCP servers that are configured but cannot be called now, and why.

use std::collections::BTreeMap;

use crate::names::mcp_identifier;
use crate::server::Server;
use crate::text::clean;

/// The maximum number of such servers in one catalog, and the maximum length of a name and of a reason.
const MAX_SERVERS: usize = 512;
const NAME_BYTES: usize = 80;
const REASON_BYTES: usize = 240;

/// A configured MCP server that offers no tools now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnavailableServer {
    /// The name of the server.
    pub name: String,
    /// A short phrase, such as `needs login`. Models read it.
    pub reason: String,
}

impl UnavailableServer {
    /// The start of the reason of a server that has not returned its tools yet.
    pub const STARTING: &str = "still starting";

    /// Whether the server is expected to be available soon.
    pub(crate) fn is_starting(&self) -> bool {
        self.reason.starts_with(Self::STARTING)
    }
}

/// Returns the servers under the identifiers that cells would use for them, without those that are available.
pub(crate) fn by_identifier(
    mut unavailable: Vec<UnavailableServer>,
    servers: &BTreeMap<String, Server>,
) -> BTreeMap<String, UnavailableServer> {
    unavailable.sort();
    let mut named = BTreeMap::new();
    for UnavailableServer { name, reason } in unavailable {
        let identifier = mcp_identifier(&name, "server");
        if named.len() == MAX_SERVERS || servers.contains_key(&identifier) {
            continue;
        }
        let (name, reason) = (clean(&name, NAME_BYTES), clean(&reason, REASON_BYTES));
        named.entry(identifier).or_insert(UnavailableServer { name, reason });
    }
    named
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{MAX_SERVERS, UnavailableServer, by_identifier};
    use crate::server::Server;

    fn missing(name: &str, reason: &str) -> UnavailableServer {
        UnavailableServer { name: name.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn an_available_server_is_not_listed_and_texts_are_cleaned_and_bounded() {
        let servers = BTreeMap::from([("gitHub".to_owned(), Server::default())]);
        let long = "long\n\u{202e}".repeat(1000);
        let found = by_identifier(vec![missing("git-hub", "x"), missing("my-files", &long)], &servers);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["myFiles"]);
        let files = &found["myFiles"];
        assert_eq!(files.name, "my-files");
        assert!(files.reason.len() <= 240 && files.reason.starts_with("long long"), "{}", files.reason);
    }

    #[test]
    fn the_number_is_bounded_and_the_order_does_not_matter() {
        let mut many: Vec<UnavailableServer> = (0..2000).map(|number| missing(&format!("s{number}"), "r")).collect();
        let found = by_identifier(many.clone(), &BTreeMap::new());
        assert_eq!(found.len(), MAX_SERVERS);
        many.reverse();
        assert_eq!(by_identifier(many, &BTreeMap::new()), found);
    }
}
