//! The arbiter in front of a drive that has none, or none that tells these clients apart.
//!
//! ```text
//!   client ─ submit ─► backlog ─┐
//!   client ─ submit ─► backlog ─┼─ Arbiter ─ grant while a slot is free ─► granted ─ take ─► the client's queue pair
//!   client ─ submit ─► backlog ─┘                  ▲                                              │
//!                                                  └──────────────── done ◄───────────────────────┘
//! ```
//! Every client keeps its own queue pair and its own buffers; only the right to submit passes through here, so nothing is
//! copied. At most `slots` requests and `slot_bytes` are at the drive at once: a backlog waits in front of it, where arbitration
//! sees it, and what little the drive holds it may serve in any order. With fewer slots than the drive has parallel units
//! some of those are idle; with many more, the order is the drive's again. `p` of a calibration is the number to use.
//!
//! A client that does not poll (its thread sleeps, or it never reaps) holds slots that nobody else can use. Whoever is
//! blocked calls [`HostArbiter::sweep`]; a client that has not polled between two sweeps is *away*: what it holds is lent to
//! the others, and what it has waiting waits until it polls again. So the bound may be passed by what such a client had in
//! flight, once, when it comes back.
//!
//! Clocks, threads and queue pairs belong to the caller: `FrontArbiter` of `weir-node` has them.

use crate::{Io, IoKind, TransportError};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use weir_arbiter::{Arbiter, ArbiterSettings, GroupKey, LEAST_COST, QueueKey, TenantKey};
use weir_units::{Class, Nanos};

/// How long a client may go without a poll, while others are blocked, before its slots are lent.
pub const AWAY_AFTER: Nanos = Nanos::from_millis(10);

/// What a front is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostArbiterConfig {
    /// Who is next. In `drr` a request costs its bytes, 4 KiB at the least.
    pub arbitration: ArbiterSettings,
    /// Requests at the drive at once, at least 1.
    pub slots: u32,
    /// Bytes at the drive at once; a larger request goes alone.
    pub slot_bytes: u64,
}

impl HostArbiterConfig {
    /// As a drive has them by default: 64 slots, 4 MiB.
    pub fn new(arbitration: ArbiterSettings) -> Self {
        HostArbiterConfig { arbitration, slots: 64, slot_bytes: 4 << 20 }
    }
}

/// Whose clients they are; a tenant's share does not grow with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArbitratedTenant {
    tenant: TenantKey,
    group: GroupKey,
}

/// One queue pair behind the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArbitratedClient(u32);

/// Where the request of a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Waiting,
    /// Granted and not taken.
    Granted,
    /// Taken and not done, with its bytes.
    Out(u32),
}

#[derive(Debug)]
struct Client {
    queue: QueueKey,
    waiting: VecDeque<Io>,
    granted: VecDeque<Io>,
    slots: Vec<Slot>,
    in_flight: u32,
    bytes: u64,
    /// Has polled since the last sweep.
    polled: bool,
    away: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct HostArbiter {
    config: HostArbiterConfig,
    arbiter: Arbiter,
    clients: Vec<Option<Client>>,
    /// By [`QueueKey::index`].
    client_of: Vec<u32>,
    /// Requests and bytes granted and not done, of clients that are not away.
    in_flight: u32,
    bytes: u64,
    swept: Nanos,
}

impl HostArbiter {
    /// A front without clients.
    pub fn new(config: HostArbiterConfig) -> Self {
        let config = HostArbiterConfig { slots: config.slots.max(1), ..config };
        let arbiter = Arbiter::new(config.arbitration);
        let (clients, client_of) = (Vec::new(), Vec::new());
        HostArbiter { config, arbiter, clients, client_of, in_flight: 0, bytes: 0, swept: Nanos(0) }
    }

    /// What it was made with.
    pub fn config(&self) -> &HostArbiterConfig {
        &self.config
    }

    /// Adds a tenant; among those of its class it gets `weight` times what a tenant of weight 1 gets, where bytes are shared.
    pub fn add_tenant(&mut self, weight: u16) -> ArbitratedTenant {
        let tenant = self.arbiter.add_tenant(weight);
        ArbitratedTenant { tenant, group: self.arbiter.add_group(tenant, self.config.arbitration) }
    }

    /// Removes a tenant whose clients are gone.
    pub fn remove_tenant(&mut self, tenant: ArbitratedTenant) {
        self.arbiter.remove_tenant(tenant.tenant);
    }

    /// Adds a queue pair of `depth` slots in a class.
    pub fn add_client(&mut self, tenant: ArbitratedTenant, class: Class, depth: u32) -> ArbitratedClient {
        let queue = self.arbiter.add_queue(tenant.group, class, class);
        let client = Client {
            queue,
            waiting: VecDeque::with_capacity(depth as usize),
            granted: VecDeque::with_capacity(depth as usize),
            slots: vec![Slot::Free; depth as usize],
            in_flight: 0,
            bytes: 0,
            polled: true,
            away: false,
        };
        let place = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if place == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[place] = Some(client);
        self.client_of.resize(self.client_of.len().max(queue.index() + 1), u32::MAX);
        self.client_of[queue.index()] = place as u32;
        ArbitratedClient(place as u32)
    }

    /// The client goes, with all that it has waiting; its slots are free.
    pub fn remove_client(&mut self, client: ArbitratedClient) {
        let Some(gone) = self.clients.get_mut(client.0 as usize).and_then(Option::take) else { return };
        if !gone.away {
            self.in_flight -= gone.in_flight;
            self.bytes -= gone.bytes;
        }
        self.client_of[gone.queue.index()] = u32::MAX;
        self.arbiter.remove_queue(gone.queue);
        self.grant();
    }

    /// The client's class from now on, of what waits as well.
    pub fn set_class(&mut self, client: ArbitratedClient, class: Class) {
        let queue = self.client(client).queue;
        self.arbiter.set_queue_class(queue, class, class);
    }

    /// Puts a request behind the client's others.
    ///
    /// # Errors
    /// Its slot is in use, or there is none.
    #[inline]
    pub fn submit(&mut self, client: ArbitratedClient, io: Io) -> Result<(), TransportError> {
        let c = self.clients[client.0 as usize].as_mut().expect("a live client");
        match c.slots.get_mut(io.slot as usize) {
            Some(slot) if *slot == Slot::Free => *slot = Slot::Waiting,
            _ => return Err(io.refusal()),
        }
        c.waiting.push_back(io);
        if c.waiting.len() == 1 && !c.away {
            self.arbiter.backlog(c.queue);
        }
        Ok(())
    }

    /// A poll of the client: appends the requests that it is to hand to its queue pair now, in the order of submission.
    #[inline]
    pub fn take(&mut self, client: ArbitratedClient, out: &mut Vec<Io>) {
        let c = self.clients[client.0 as usize].as_mut().expect("a live client");
        c.polled = true;
        if c.away {
            self.returned(client);
        }
        self.grant();
        let c = self.client_mut(client);
        for io in c.granted.drain(..) {
            c.slots[io.slot as usize] = Slot::Out(io.bytes());
            out.push(io);
        }
    }

    /// A request that was taken is done: its slot is free. Call [`HostArbiter::take`] for what may follow it.
    #[inline]
    pub fn done(&mut self, client: ArbitratedClient, slot: u32) {
        let c = self.clients[client.0 as usize].as_mut().expect("a live client");
        let Some(place) = c.slots.get_mut(slot as usize) else { return };
        let Slot::Out(len) = *place else { return };
        *place = Slot::Free;
        c.in_flight -= 1;
        c.bytes -= u64::from(len);
        if !c.away {
            self.in_flight -= 1;
            self.bytes -= u64::from(len);
        }
    }

    /// Hands out what may be handed out; takers find it at their next poll.
    #[inline]
    pub fn grant(&mut self) {
        while self.in_flight < self.config.slots {
            let Some(queue) = self.arbiter.pick() else { return };
            let place = self.client_of[queue.index()];
            let c = self.clients[place as usize].as_mut().expect("a backlogged client");
            let len = c.waiting.front().map_or(0, Io::bytes);
            if self.in_flight > 0 && self.bytes + u64::from(len) > self.config.slot_bytes {
                return;
            }
            let Some(io) = c.waiting.pop_front() else { return };
            c.slots[io.slot as usize] = Slot::Granted;
            c.in_flight += 1;
            c.bytes += u64::from(len);
            c.granted.push_back(io);
            self.in_flight += 1;
            self.bytes += u64::from(len);
            self.arbiter.charge(queue, len.max(LEAST_COST), !c.waiting.is_empty());
        }
    }

    /// Whether the client has requests that wait for others' slots.
    #[inline]
    pub fn is_blocked(&self, client: ArbitratedClient) -> bool {
        !self.client(client).waiting.is_empty()
    }

    /// Requests granted and not done, of clients that are not away.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests of the client that have not been granted.
    pub fn waiting(&self, client: ArbitratedClient) -> u32 {
        self.client(client).waiting.len() as u32
    }

    /// Lends the slots of clients that have not polled since a sweep at least [`AWAY_AFTER`] ago. To be called by whoever is
    /// blocked; cheap when called too often.
    pub fn sweep(&mut self, now: Nanos) {
        if now.saturating_sub(self.swept) < AWAY_AFTER {
            return;
        }
        self.swept = now;
        for c in self.clients.iter_mut().flatten() {
            if !core::mem::replace(&mut c.polled, false) && c.in_flight > 0 && !c.away {
                c.away = true;
                self.in_flight -= c.in_flight;
                self.bytes -= c.bytes;
                self.arbiter.withdraw(c.queue);
            }
        }
        self.grant();
    }

    #[cold]
    fn returned(&mut self, client: ArbitratedClient) {
        let c = self.clients[client.0 as usize].as_mut().expect("a live client");
        c.away = false;
        self.in_flight += c.in_flight;
        self.bytes += c.bytes;
        if !c.waiting.is_empty() {
            self.arbiter.backlog(c.queue);
        }
    }

    fn client(&self, client: ArbitratedClient) -> &Client {
        self.clients[client.0 as usize].as_ref().expect("a live client")
    }

    fn client_mut(&mut self, client: ArbitratedClient) -> &mut Client {
        self.clients[client.0 as usize].as_mut().expect("a live client")
    }

    /// States the invariants.
    ///
    /// # Panics
    /// One does not hold.
    pub fn check(&self) {
        self.arbiter.check();
        let (mut in_flight, mut bytes) = (0, 0);
        for (place, c) in self.clients.iter().enumerate() {
            let Some(c) = c else { continue };
            assert_eq!(self.client_of[c.queue.index()] as usize, place, "a queue leads to its client");
            assert_eq!(
                self.arbiter.is_backlogged(c.queue),
                !c.waiting.is_empty() && !c.away,
                "who waits is in the arbiter"
            );
            let taken = |s: &Slot| if let Slot::Out(len) = s { Some(*len) } else { None };
            let granted = c.granted.iter().inspect(|io| {
                assert_eq!(c.slots[io.slot as usize], Slot::Granted, "what is granted has a slot");
            });
            let flights: Vec<u32> = c.slots.iter().filter_map(taken).chain(granted.map(Io::bytes)).collect();
            assert_eq!(flights.len() as u32, c.in_flight, "a flight has a slot");
            assert_eq!(flights.into_iter().map(u64::from).sum::<u64>(), c.bytes, "flights have their bytes");
            let waiting = c.slots.iter().filter(|s| **s == Slot::Waiting).count();
            assert_eq!(waiting, c.waiting.len(), "what waits has a slot");
            if !c.away {
                (in_flight, bytes) = (in_flight + c.in_flight, bytes + c.bytes);
            }
        }
        assert_eq!((in_flight, bytes), (self.in_flight, self.bytes), "slots and bytes are those of who is here");
    }
}

impl Io {
    /// Bytes that the request moves.
    #[inline]
    fn bytes(&self) -> u32 {
        match self.kind {
            IoKind::Read | IoKind::Write => self.len,
            IoKind::WriteZeroes | IoKind::Trim | IoKind::Flush => 0,
        }
    }
}

#[cfg(test)]
#[path = "host_arbiter_tests.rs"]
mod tests;
