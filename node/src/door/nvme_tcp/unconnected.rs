//! Sockets that are no queue yet: they cost a host nothing but a TCP connection, so there is a bound on all of them and on those of one
//! address. Beyond it the oldest is closed for the new one, one that has not said ICReq first: a host that means it needs one round trip for
//! ICReq and one for Connect.
//!
//! The address counts until Connect only; from then on tenant and host do ([`super::limits`]).

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// An IPv4 host, or what is usually one IPv6 host's: its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Address(u128);

impl Address {
    fn of(peer: SocketAddr) -> Self {
        match peer.ip().to_canonical() {
            IpAddr::V4(ip) => Self(u32::from(ip).into()),
            // No IPv4 address is so large.
            IpAddr::V6(ip) => Self(u128::from(ip) >> 64 | 1 << 127),
        }
    }
}

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Socket {
    /// Its place in the door's table.
    at: u32,
    address: Address,
    /// ICReq has come.
    began: bool,
}

/// See the [module](self).
pub(super) struct Unconnected {
    most: usize,
    most_of_address: usize,
    /// In the order in which they came.
    list: VecDeque<Socket>,
    addresses: BTreeMap<Address, usize>,
    closed: u64,
}

impl Unconnected {
    pub(super) fn new(most: usize, most_of_address: usize) -> Self {
        Self { most, most_of_address, list: VecDeque::new(), addresses: BTreeMap::new(), closed: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Sockets that were closed for others.
    pub(super) fn closed(&self) -> u64 {
        self.closed
    }

    /// The place of the one to be closed before another one of this address is taken in, if there is no room for both.
    pub(super) fn in_the_way(&mut self, peer: SocketAddr) -> Option<u32> {
        let address = Address::of(peer);
        let has = |a: &Address| self.addresses.get(a).copied().unwrap_or(0);
        let loser = if has(&address) >= self.most_of_address {
            address
        } else if self.list.len() >= self.most {
            // The oldest of whoever has the most.
            self.list.iter().map(|s| s.address).rev().max_by_key(has)?
        } else {
            return None;
        };
        let mut of_loser = self.list.iter().filter(|s| s.address == loser);
        let oldest = of_loser.clone().find(|s| !s.began).or_else(|| of_loser.next())?;
        self.closed += 1;
        Some(oldest.at)
    }

    /// The place of the one to be closed where there is room for none.
    pub(super) fn oldest(&mut self) -> Option<u32> {
        let oldest = self.list.iter().find(|s| !s.began).or_else(|| self.list.front())?;
        self.closed += 1;
        Some(oldest.at)
    }

    /// Its ICReq has come.
    pub(super) fn began(&mut self, at: u32) {
        if let Some(socket) = self.list.iter_mut().rev().find(|s| s.at == at) {
            socket.began = true;
        }
    }

    pub(super) fn add(&mut self, at: u32, peer: SocketAddr) {
        let address = Address::of(peer);
        self.list.push_back(Socket { at, address, began: false });
        *self.addresses.entry(address).or_default() += 1;
    }

    /// It has become a queue, or has gone.
    pub(super) fn remove(&mut self, at: u32) {
        let Some(i) = self.list.iter().position(|s| s.at == at) else { return };
        let Some(Socket { address, .. }) = self.list.remove(i) else { return };
        if let Some(has) = self.addresses.get_mut(&address) {
            *has -= 1;
            if *has == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    /// Takes one in at that place; who was closed for it.
    fn take(all: &mut Unconnected, at: u32, from: &str) -> Option<u32> {
        let closed = all.in_the_way(peer(from));
        closed.into_iter().for_each(|at| all.remove(at));
        all.add(at, peer(from));
        closed
    }

    #[test]
    fn an_address_pushes_out_its_own() {
        let mut all = Unconnected::new(10, 2);
        assert_eq!([0, 1, 2].map(|at| take(&mut all, at, "10.0.0.1")), [None, None, Some(0)]);
        assert_eq!(take(&mut all, 3, "10.0.0.2"), None);
        all.remove(1);
        assert_eq!((take(&mut all, 4, "10.0.0.1"), all.len(), all.closed()), (None, 3, 1));
    }

    #[test]
    fn who_has_begun_is_closed_last() {
        let mut all = Unconnected::new(10, 3);
        assert_eq!([0, 1, 2].map(|at| take(&mut all, at, "10.0.0.1")), [None, None, None]);
        all.began(0);
        assert_eq!(take(&mut all, 3, "10.0.0.1"), Some(1));
        all.began(3);
        assert_eq!(all.oldest(), Some(2));
        all.began(2);
        assert_eq!(take(&mut all, 4, "10.0.0.1"), Some(0), "all have begun: the oldest");
    }

    #[test]
    fn who_has_the_most_loses_where_all_is_taken() {
        let mut all = Unconnected::new(4, 4);
        for (at, from) in (0..).zip(["10.0.0.9", "10.0.0.1", "10.0.0.1", "10.0.0.1"]) {
            assert_eq!(take(&mut all, at, from), None);
        }
        assert_eq!(take(&mut all, 4, "10.0.0.2"), Some(1), "the oldest of the one that has the most");
        assert_eq!(take(&mut all, 5, "10.0.0.3"), Some(2));
        assert_eq!(take(&mut all, 6, "10.0.0.4"), Some(0), "each has one: the oldest");
    }

    #[test]
    fn addresses_of_a_host_count_as_one() {
        let mut all = Unconnected::new(10, 1);
        assert_eq!(take(&mut all, 0, "2001:db8::1"), None);
        assert_eq!(take(&mut all, 1, "2001:db8::2:3"), Some(0));
        assert_eq!(take(&mut all, 2, "2001:db8:0:1::1"), None);
        assert_eq!(take(&mut all, 3, "10.0.0.1"), None);
        assert_eq!(take(&mut all, 4, "::ffff:10.0.0.1"), Some(3));
        all.remove(77);
        assert_eq!(all.len(), 3);
    }
}
