//! Connection slots: which connections are open, from which network, for which principal, and which one is closed to
//! make room.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::limits::{
    MAX_CONNECTIONS, MAX_CONNECTIONS_PER_PRINCIPAL, MAX_UNAUTHENTICATED, MAX_UNAUTHENTICATED_PER_NETWORK,
    UNAUTHENTICATED_LIFETIME,
};
use crate::paced_stream::WritePace;
use crate::principal::Principal;
use crate::refusal::Full;

/// The network that one peer is assumed to control: an IPv4 address, or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerNetwork(u128);

impl PeerNetwork {
    pub(crate) fn of(address: IpAddr) -> Self {
        let bits = |address: Ipv6Addr| u128::from_be_bytes(address.octets());
        match address.to_canonical() {
            IpAddr::V4(address) => Self(bits(address.to_ipv6_mapped())),
            IpAddr::V6(address) => Self(bits(address) >> 64 << 64),
        }
    }
}

/// The open connections, without any I/O. Ids increase, so the first entry is the oldest.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    unauthenticated: BTreeMap<u64, (PeerNetwork, CancellationToken)>,
    authenticated: HashMap<u64, Principal>,
}

impl Table {
    /// Adds a connection. If its network or the server has no slot left, it closes the oldest connection of that
    /// network, or of the network that has most: silent connections cannot lock out a client that shows its token at
    /// once.
    fn open(&mut self, network: PeerNetwork) -> (u64, CancellationToken) {
        if self.count(network) >= MAX_UNAUTHENTICATED_PER_NETWORK {
            self.close_oldest(network);
        } else if self.unauthenticated.len() >= MAX_UNAUTHENTICATED
            && let Some(largest) = self.largest()
        {
            self.close_oldest(largest);
        }
        let closed = CancellationToken::new();
        self.next += 1;
        self.unauthenticated.insert(self.next, (network, closed.clone()));
        (self.next, closed)
    }

    fn authenticate(&mut self, id: u64, principal: &Principal) -> Result<(), Full> {
        let former = self.authenticated.get(&id);
        if former == Some(principal) {
            return Ok(());
        }
        let is_new = former.is_none();
        if is_new && !self.unauthenticated.contains_key(&id) {
            return Err(Full::Closed);
        }
        if self.authenticated.values().filter(|one| *one == principal).count() >= MAX_CONNECTIONS_PER_PRINCIPAL {
            return Err(Full::Principal);
        }
        if is_new && self.authenticated.len() >= MAX_CONNECTIONS - MAX_UNAUTHENTICATED {
            return Err(Full::Total);
        }
        self.unauthenticated.remove(&id);
        self.authenticated.insert(id, principal.clone());
        Ok(())
    }

    fn release(&mut self, id: u64) {
        self.unauthenticated.remove(&id);
        self.authenticated.remove(&id);
    }

    fn count(&self, network: PeerNetwork) -> usize {
        self.unauthenticated.values().filter(|(one, _)| *one == network).count()
    }

    /// Returns the network with most connections; of several, the one with the oldest connection.
    fn largest(&self) -> Option<PeerNetwork> {
        let mut counts: HashMap<PeerNetwork, (usize, u64)> = HashMap::new();
        for (id, (network, _)) in &self.unauthenticated {
            counts.entry(*network).or_insert((0, u64::MAX - id)).0 += 1;
        }
        counts.into_iter().max_by_key(|(_, rank)| *rank).map(|(network, _)| network)
    }

    fn close_oldest(&mut self, network: PeerNetwork) {
        let oldest = self.unauthenticated.iter().find(|(_, (one, _))| *one == network).map(|(id, _)| *id);
        if let Some((_, closed)) = oldest.and_then(|id| self.unauthenticated.remove(&id)) {
            closed.cancel();
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Arc<Mutex<Table>>);

impl Slots {
    pub(crate) fn open(&self, address: IpAddr) -> Slot {
        let network = PeerNetwork::of(address);
        let (id, closed) = self.table().open(network);
        let (slots, revoked) = (self.clone(), Arc::new(watch::channel(None).0));
        let connection = Connection { slots, id, network, revoked, pace: WritePace::default() };
        Slot { connection, closed, deadline: Instant::now() + UNAUTHENTICATED_LIFETIME }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }
}

/// The slot of one open connection, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    connection: Connection,
    closed: CancellationToken,
    deadline: Instant,
}

impl Slot {
    pub(crate) fn connection(&self) -> Connection {
        self.connection.clone()
    }

    /// Completes when the connection must be closed: another connection took its slot, it showed no valid token in time,
    /// or the token of its last request was revoked.
    pub(crate) async fn must_close(&self) {
        let mut revoked = self.connection.revoked.subscribe();
        loop {
            let current = revoked.borrow_and_update().clone();
            let ended = async {
                match current {
                    Some(revoked) => revoked.cancelled().await,
                    None => tokio::time::sleep_until(self.deadline).await,
                }
            };
            tokio::select! {
                () = self.closed.cancelled() => return,
                () = ended => return,
                // Another request arrived. The sender is this slot's own, so it is never dropped before.
                _ = revoked.changed() => {}
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connection.slots.table().release(self.connection.id);
    }
}

/// A connection as its requests see it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    slots: Slots,
    id: u64,
    /// Cancelled when the token of the last request is revoked; `None` before the first valid token.
    revoked: Arc<watch::Sender<Option<CancellationToken>>>,
    pub(crate) network: PeerNetwork,
    /// How long its writes may make no progress.
    pub(crate) pace: WritePace,
}

impl Connection {
    /// Records that the connection showed a valid token of this caller.
    pub(crate) fn authenticate(&self, caller: &Caller) -> Result<(), Full> {
        self.slots.table().authenticate(self.id, &caller.principal)?;
        self.revoked.send_replace(Some(caller.revoked.clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Full, PeerNetwork, Table};
    use crate::Principal;
    use crate::limits::{
        MAX_CONNECTIONS, MAX_CONNECTIONS_PER_PRINCIPAL, MAX_UNAUTHENTICATED, MAX_UNAUTHENTICATED_PER_NETWORK,
    };

    fn network(address: &str) -> PeerNetwork {
        PeerNetwork::of(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn ipv4_peers_count_by_address_and_ipv6_peers_by_their_64_bit_network() {
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::2"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
    }

    #[test]
    fn a_network_without_free_slots_loses_its_oldest_connection() {
        let mut table = Table::default();
        let (_, others) = table.open(network("192.0.2.2"));
        let opened: Vec<_> = (0..=MAX_UNAUTHENTICATED_PER_NETWORK).map(|_| table.open(network("192.0.2.1"))).collect();
        let closed: Vec<bool> = opened.iter().map(|(_, closed)| closed.is_cancelled()).collect();
        assert!(closed[0] && !closed[1..].contains(&true), "{closed:?}");
        assert!(!others.is_cancelled());
    }

    #[test]
    fn a_full_server_closes_a_connection_of_the_network_that_has_most() {
        let mut table = Table::default();
        let (_, single) = table.open(network("203.0.113.1"));
        let mut opened = Vec::new();
        for number in 0..200 {
            opened.push(table.open(network(&format!("2001:db8:0:{}::1", number % 10))));
        }
        assert_eq!(table.unauthenticated.len(), MAX_UNAUTHENTICATED);
        assert!(!single.is_cancelled());
        let closed = opened.iter().filter(|(_, closed)| closed.is_cancelled()).count();
        assert_eq!(closed, 201 - MAX_UNAUTHENTICATED);
    }

    #[test]
    fn connections_with_a_token_are_limited_by_principal_and_in_total_and_never_closed_for_others() {
        let mut table = Table::default();
        let (ada, bob) = (Principal::named("ada").unwrap(), Principal::named("bob").unwrap());
        let mut opened = Vec::new();
        let mut add = |table: &mut Table, principal: &Principal| {
            let (id, closed) = table.open(network("127.0.0.1"));
            opened.push(closed);
            let result = table.authenticate(id, principal);
            if result.is_err() {
                table.release(id);
            }
            result
        };
        for _ in 0..MAX_CONNECTIONS_PER_PRINCIPAL {
            assert_eq!(add(&mut table, &ada), Ok(()));
        }
        assert_eq!(add(&mut table, &ada), Err(Full::Principal));
        for _ in MAX_CONNECTIONS_PER_PRINCIPAL..(MAX_CONNECTIONS - MAX_UNAUTHENTICATED) {
            assert_eq!(add(&mut table, &bob), Ok(()));
        }
        assert_eq!(add(&mut table, &bob), Err(Full::Total));
        for _ in 0..1000 {
            table.open(network("127.0.0.1"));
        }
        assert!(opened.iter().all(|closed| !closed.is_cancelled()));
        assert_eq!(table.unauthenticated.len(), MAX_UNAUTHENTICATED_PER_NETWORK);
    }

    #[test]
    fn a_connection_that_was_closed_cannot_take_a_slot() {
        let mut table = Table::default();
        let (id, _) = table.open(network("127.0.0.1"));
        table.release(id);
        assert_eq!(table.authenticate(id, &Principal::local()), Err(Full::Closed));
        assert!(table.authenticated.is_empty());
    }
}
