//! Sockets that are no queue yet: they cost a host nothing but a TCP connection, so there is a bound on all of them and on those of one
//! address. Beyond it one is closed for the new one: the oldest of those that have said ICReq where they are more than half, else of those
//! that have not. So neither kind pushes the other one out: a host that means it needs one round trip for ICReq and one for Connect. One on
//! which the door has not read yet what its host has said is passed over: it may be its Connect.
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

/// Sockets that are asked whether something on them was not read, for one that is closed: each costs a system call.
const LOOKED_AT: usize = 32;

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

    /// The place of the one to be closed before another one of this address is taken in, if there is no room for both. `is_unread` tells
    /// whether something of the host has not been read at a place.
    pub(super) fn in_the_way(&mut self, peer: SocketAddr, is_unread: impl Fn(u32) -> bool) -> Option<u32> {
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
        let of_loser = self.list.iter().filter(|s| s.address == loser);
        let oldest = to_close(of_loser, is_unread)?;
        self.closed += 1;
        Some(oldest.at)
    }

    /// The place of the one to be closed where there is room for none.
    pub(super) fn oldest(&mut self, is_unread: impl Fn(u32) -> bool) -> Option<u32> {
        let oldest = to_close(self.list.iter(), is_unread)?;
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

/// The one of them to be closed: the oldest of the kind that has more than half, one of which all was read if there is one among the first.
fn to_close<'a>(list: impl Iterator<Item = &'a Socket> + Clone, is_unread: impl Fn(u32) -> bool) -> Option<&'a Socket> {
    let has_begun = 2 * list.clone().filter(|s| s.began).count() > list.clone().count();
    let mut kind = list.filter(|s| s.began == has_begun);
    let read = kind.clone().take(LOOKED_AT).find(|s| !is_unread(s.at));
    read.or_else(|| kind.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    /// Takes one in at that place; who was closed for it.
    fn take(all: &mut Unconnected, at: u32, from: &str) -> Option<u32> {
        let closed = all.in_the_way(peer(from), |_| false);
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
    fn the_kind_that_has_more_than_half_loses() {
        let mut all = Unconnected::new(10, 4);
        assert_eq!([0, 1, 2, 3].map(|at| take(&mut all, at, "10.0.0.1")), [None; 4]);
        [0, 1].into_iter().for_each(|at| all.began(at));
        assert_eq!(take(&mut all, 4, "10.0.0.1"), Some(2), "half have begun: the oldest that has not");
        assert_eq!(take(&mut all, 5, "10.0.0.1"), Some(3));
        all.began(4);
        assert_eq!(all.oldest(|_| false), Some(0));
        assert_eq!(take(&mut all, 6, "10.0.0.1"), Some(0), "a flood of them leaves those that have not");
        assert_eq!(take(&mut all, 7, "10.0.0.1"), Some(5));
    }

    #[test]
    fn one_whose_connect_may_have_come_is_passed_over() {
        let mut all = Unconnected::new(100, 3);
        assert_eq!([0, 1, 2].map(|at| take(&mut all, at, "10.0.0.1")), [None, None, None]);
        let closed =
            |all: &mut Unconnected, unread: &[u32]| all.in_the_way(peer("10.0.0.1"), |at| unread.contains(&at));
        assert_eq!(closed(&mut all, &[0]), Some(1), "its ICReq may have come");
        [0, 1, 2].into_iter().for_each(|at| all.began(at));
        assert_eq!(closed(&mut all, &[0]), Some(1));
        assert_eq!(closed(&mut all, &[0, 1, 2]), Some(0), "all are unread: the oldest");
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
