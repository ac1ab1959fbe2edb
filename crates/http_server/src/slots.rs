//! Connection slots: which connections are open, from which network, for which principal, and which one is closed to
//! make room.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::limits::{
    MAX_CONNECTIONS, MAX_CONNECTIONS_PER_PRINCIPAL, MAX_UNAUTHENTICATED_PER_NETWORK, RESERVED_UNAUTHENTICATED,
    UNAUTHENTICATED_GRACE, UNAUTHENTICATED_LIFETIME,
};
use crate::paced_stream::WritePace;
use crate::principal::Principal;
use crate::refusal::ConnectionRefusal;

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

/// A connection that has not shown a valid token.
#[derive(Debug)]
struct UnauthenticatedConnection {
    network: PeerNetwork,
    opened: Instant,
    closed: CancellationToken,
}

/// What happens to a new connection.
#[derive(Debug)]
enum Admission {
    /// The connection has the slot with this id. The token is cancelled when another connection takes the slot.
    Opened(u64, CancellationToken),
    /// No slot is free. Unless one is released before, the connection can take one at this time.
    Wait(Instant),
}

/// The open connections, without any I/O. Ids increase, so the first entry is the oldest.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    unauthenticated: BTreeMap<u64, UnauthenticatedConnection>,
    authenticated: HashMap<u64, Principal>,
}

impl Table {
    /// Adds a connection. If its network or the server has no slot left, it closes the oldest connection of that
    /// network, or of the network that has most: silent connections cannot lock out a client that shows its token at
    /// once. A connection younger than [`UNAUTHENTICATED_GRACE`] is not closed, so that a burst of clients loses none.
    fn open(&mut self, network: PeerNetwork, now: Instant) -> Admission {
        let full = if self.count(network) >= MAX_UNAUTHENTICATED_PER_NETWORK {
            Some(network)
        } else if self.unauthenticated.len() + self.authenticated.len() >= MAX_CONNECTIONS {
            self.largest()
        } else {
            None
        };
        if let Some((id, oldest)) = full.and_then(|network| self.oldest(network)) {
            let evictable = oldest.opened + UNAUTHENTICATED_GRACE;
            if now < evictable {
                return Admission::Wait(evictable);
            }
            oldest.closed.cancel();
            self.unauthenticated.remove(&id);
        }
        let closed = CancellationToken::new();
        self.next += 1;
        self.unauthenticated
            .insert(self.next, UnauthenticatedConnection { network, opened: now, closed: closed.clone() });
        Admission::Opened(self.next, closed)
    }

    fn authenticate(&mut self, id: u64, principal: &Principal) -> Result<(), ConnectionRefusal> {
        let former = self.authenticated.get(&id);
        if former == Some(principal) {
            return Ok(());
        }
        let is_new = former.is_none();
        if is_new && !self.unauthenticated.contains_key(&id) {
            return Err(ConnectionRefusal::Closed);
        }
        if self.authenticated.values().filter(|one| *one == principal).count() >= MAX_CONNECTIONS_PER_PRINCIPAL {
            return Err(ConnectionRefusal::Principal);
        }
        if is_new && self.authenticated.len() >= MAX_CONNECTIONS - RESERVED_UNAUTHENTICATED {
            return Err(ConnectionRefusal::Total);
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
        self.unauthenticated.values().filter(|one| one.network == network).count()
    }

    /// Returns the network with most connections; of several, the one with the oldest connection.
    fn largest(&self) -> Option<PeerNetwork> {
        let mut counts: HashMap<PeerNetwork, (usize, u64)> = HashMap::new();
        for (id, one) in &self.unauthenticated {
            counts.entry(one.network).or_insert((0, u64::MAX - id)).0 += 1;
        }
        counts.into_iter().max_by_key(|(_, rank)| *rank).map(|(network, _)| network)
    }

    fn oldest(&self, network: PeerNetwork) -> Option<(u64, &UnauthenticatedConnection)> {
        self.unauthenticated.iter().find(|(_, one)| one.network == network).map(|(id, one)| (*id, one))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    table: Arc<Mutex<Table>>,
    /// Notified when a connection gives up its slot, or shows its token.
    freed: Arc<Notify>,
}

impl Slots {
    /// Returns a slot for a connection from this address, once one is free or can be taken from another connection.
    pub(crate) async fn open(&self, address: IpAddr) -> Slot {
        let network = PeerNetwork::of(address);
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            let now = Instant::now();
            let admission = self.table.lock().open(network, now);
            match admission {
                Admission::Opened(id, closed) => {
                    let (slots, revoked) = (self.clone(), Arc::new(watch::channel(None).0));
                    let connection = Connection { slots, id, network, revoked, pace: WritePace::default() };
                    return Slot { connection, closed, deadline: now + UNAUTHENTICATED_LIFETIME };
                }
                Admission::Wait(until) => tokio::select! {
                    () = freed => {}
                    () = tokio::time::sleep_until(until) => {}
                },
            }
        }
    }

    fn authenticate(&self, id: u64, principal: &Principal) -> Result<(), ConnectionRefusal> {
        self.table.lock().authenticate(id, principal)?;
        self.freed.notify_waiters();
        Ok(())
    }

    fn release(&self, id: u64) {
        self.table.lock().release(id);
        self.freed.notify_waiters();
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
        self.connection.slots.release(self.connection.id);
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
    pub(crate) fn authenticate(&self, caller: &Caller) -> Result<(), ConnectionRefusal> {
        self.slots.authenticate(self.id, &caller.principal)?;
        self.revoked.send_replace(Some(caller.revoked.clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::{Admission, ConnectionRefusal, PeerNetwork, Table};
    use crate::Principal;
    use crate::limits::{
        MAX_CONNECTIONS, MAX_CONNECTIONS_PER_PRINCIPAL, MAX_UNAUTHENTICATED_PER_NETWORK, RESERVED_UNAUTHENTICATED,
        UNAUTHENTICATED_GRACE,
    };

    fn network(address: &str) -> PeerNetwork {
        PeerNetwork::of(address.parse::<IpAddr>().unwrap())
    }

    impl Table {
        /// Opens a connection that must not wait.
        fn opened(&mut self, network: PeerNetwork, now: Instant) -> (u64, CancellationToken) {
            match self.open(network, now) {
                Admission::Opened(id, closed) => (id, closed),
                Admission::Wait(until) => panic!("it waits for {:?}", until - now),
            }
        }
    }

    fn closed(opened: &[(u64, CancellationToken)]) -> usize {
        opened.iter().filter(|(_, closed)| closed.is_cancelled()).count()
    }

    #[test]
    fn ipv4_peers_count_by_address_and_ipv6_peers_by_their_64_bit_network() {
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::2"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
    }

    #[test]
    fn a_network_without_free_slots_loses_its_oldest_connection_after_the_grace_period_only() {
        let mut table = Table::default();
        let (start, full) = (Instant::now(), network("192.0.2.1"));
        let (_, others) = table.opened(network("192.0.2.2"), start);
        let opened: Vec<_> = (0..MAX_UNAUTHENTICATED_PER_NETWORK).map(|_| table.opened(full, start)).collect();
        let evictable = start + UNAUTHENTICATED_GRACE;
        for now in [start, evictable - std::time::Duration::from_millis(1)] {
            assert!(matches!(table.open(full, now), Admission::Wait(until) if until == evictable));
        }
        assert_eq!(closed(&opened), 0);
        table.opened(full, evictable);
        assert!(opened[0].1.is_cancelled() && closed(&opened) == 1);
        assert!(!others.is_cancelled());
    }

    #[test]
    fn a_connection_that_waits_takes_the_slot_of_one_that_shows_its_token_or_ends() {
        let mut table = Table::default();
        let (now, full) = (Instant::now(), network("192.0.2.1"));
        let opened: Vec<_> = (0..MAX_UNAUTHENTICATED_PER_NETWORK).map(|_| table.opened(full, now)).collect();
        assert!(matches!(table.open(full, now), Admission::Wait(_)));
        assert_eq!(table.authenticate(opened[5].0, &Principal::local()), Ok(()));
        table.opened(full, now);
        assert!(matches!(table.open(full, now), Admission::Wait(_)));
        table.release(opened[7].0);
        table.opened(full, now);
        assert_eq!(closed(&opened), 0);
    }

    #[test]
    fn a_full_server_closes_a_connection_of_the_network_that_has_most() {
        let mut table = Table::default();
        let start = Instant::now();
        let (_, single) = table.opened(network("203.0.113.1"), start);
        let of = |number: usize| network(&format!("2001:db8:0:{}::1", number % 10));
        let opened: Vec<_> = (1..MAX_CONNECTIONS).map(|number| table.opened(of(number), start)).collect();
        assert!(matches!(table.open(network("203.0.113.2"), start), Admission::Wait(_)));
        let later = start + UNAUTHENTICATED_GRACE;
        for number in 0..80 {
            table.opened(of(number), later);
        }
        assert_eq!(table.unauthenticated.len(), MAX_CONNECTIONS);
        assert!(!single.is_cancelled());
        assert_eq!(closed(&opened), 80);
    }

    #[test]
    fn connections_with_a_token_are_limited_by_principal_and_in_total_and_never_closed_for_others() {
        let mut table = Table::default();
        let (ada, bob) = (Principal::named("ada").unwrap(), Principal::named("bob").unwrap());
        let mut now = Instant::now();
        let mut opened = Vec::new();
        let mut add = |table: &mut Table, principal: &Principal| {
            let (id, closed) = table.opened(network("127.0.0.1"), now);
            opened.push((id, closed));
            let result = table.authenticate(id, principal);
            if result.is_err() {
                table.release(id);
            }
            result
        };
        for _ in 0..MAX_CONNECTIONS_PER_PRINCIPAL {
            assert_eq!(add(&mut table, &ada), Ok(()));
        }
        assert_eq!(add(&mut table, &ada), Err(ConnectionRefusal::Principal));
        for _ in MAX_CONNECTIONS_PER_PRINCIPAL..(MAX_CONNECTIONS - RESERVED_UNAUTHENTICATED) {
            assert_eq!(add(&mut table, &bob), Ok(()));
        }
        assert_eq!(add(&mut table, &bob), Err(ConnectionRefusal::Total));
        for _ in 0..8 {
            for _ in 0..RESERVED_UNAUTHENTICATED {
                table.opened(network("127.0.0.1"), now);
            }
            assert!(matches!(table.open(network("192.0.2.1"), now), Admission::Wait(_)));
            now += UNAUTHENTICATED_GRACE;
        }
        assert_eq!(closed(&opened), 0);
        assert_eq!(table.unauthenticated.len(), RESERVED_UNAUTHENTICATED);
    }

    #[test]
    fn a_connection_that_was_closed_cannot_take_a_slot() {
        let mut table = Table::default();
        let (id, _) = table.opened(network("127.0.0.1"), Instant::now());
        table.release(id);
        assert_eq!(table.authenticate(id, &Principal::local()), Err(ConnectionRefusal::Closed));
        assert!(table.authenticated.is_empty());
    }
}
