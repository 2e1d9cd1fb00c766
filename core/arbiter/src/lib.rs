#![no_std]
#![forbid(unsafe_code)]
//! Who is next: the arbiter of one drive.
//!
//! Commands wait in submission queues. Whenever the drive has a slot free, [`Arbiter::pick`] names the queue whose
//! head is fetched, and [`Arbiter::charge`] accounts for what was fetched. Depends on `weir-units` only; knows no
//! commands, and no time but what [`Arbiter::pick_at`] and [`Arbiter::charge_at`] are told. Source: NVMe base 2.0, section 3.4.4 (round robin, weighted round robin with urgent priority
//! class); Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin" (1996), here in the surplus form.
//!
//! ```text
//!  drive ─ Classes ─ urgent  strictly first
//!                  ├ high    ─ Ring ─ tenant ─ Ring ─ controller ─ Classes ─ … ─ Ring ─ queue
//!                  ├ medium  ─ Ring ─ …                           (the controller's own settings)
//!                  └ low     ─ Ring ─ …
//! ```
//! The drive's [`ArbiterSettings`] are the operator's: they share the drive among classes, a class among its tenants, and a
//! tenant's part among its controllers (groups), so that sixteen queues or ten controllers win a tenant nothing. A
//! group's settings are its host's (CC.AMS): they order the queues of this group only. A tenant with queues in several
//! classes stands once in each. Under [`Mechanism::Rr`] there is one ring for all classes, and every queue of a tenant has
//! its turn there: those of a controller that is in round robin itself, without a burst of its own, stand in their
//! tenant's ring, any other controller stands there as one. Under [`Mechanism::None`] there is one ring for all queues.
//!
//! **Accounts.** Everybody is served while its balance is positive, and then charged, so the last command of a turn
//! may overdraw; the debt counts against the next rounds. Hence `pick` need not know what the head costs. Who has nothing
//! left to serve loses its credit and keeps its debt until so many rounds have passed; who comes back in a round in
//! which it has had its turn waits for the next. Any two backlogged peers are within a quantum and two of the largest
//! commands of their ideal (`tests` holds that). Weighted round robin is the same with every command costing one.
//!
//! **Floors and ceilings** ([`Arbiter::set_limits`], `limits.rs`) are rates of a tenant, over all its classes, and need the
//! `_at` calls. Who has reached its ceiling is out of the tree until it may go on. Who is behind its floor and has a head
//! goes after urgent and before the round, the one who is owed for longest first. What it gets that way is charged
//! among its own controllers and queues, and not to it or its class, while whatever it gets counts towards its floor: so a
//! tenant gets its share or its floor, whichever is more, and the others share what is left as they would share the drive.
//! `None` knows ceilings only.
//!
//! **Cost.** `pick` and `charge` visit a constant number of nodes, whatever the number of queues, idle or busy, and
//! whatever the size of a command up to 127 times a child's quantum (2 MiB); beyond that a child is looked at once more per
//! 127 rounds of its debt. Neither they nor `backlog` and `withdraw` allocate. `hold` and `release` are O(1) too, except
//! under `None`. A floor or a ceiling costs its tenant's commands some divisions and a place in a heap of the tenants that
//! have a floor and something to serve, or are held; who has neither costs and pays nothing. The rest is configuration and may cost a pass over everything.
//!
//! **Limits.** Tenant weights count where bytes are counted; a turn in commands is what the burst says for everybody.
//! Changing the mechanism starts the accounts anew. `model.rs` is the slow oracle; `check` states the invariants.

extern crate alloc;

mod check;
mod classes;
mod limits;
#[cfg(test)]
mod model;
mod pick_limited;
mod ring;
mod settings;
#[cfg(test)]
mod tests;
mod tree;

pub use settings::{ArbiterSettings, Burst, CHILD_QUANTUM, LEAST_COST, Mechanism, Quanta, Weights};

use alloc::boxed::Box;
use alloc::vec::Vec;
use classes::Classes;
use limits::Limits;
use ring::{NONE, NodeState, PLAIN, Rings};
use weir_units::{Class, Nanos};

macro_rules! key {
    ($(#[$m:meta])* $name:ident) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// A small number, unique among the live keys of this kind and reused after removal.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

key!(
    /// A tenant of the drive.
    TenantKey
);
key!(
    /// A group of one tenant's queues: a controller.
    GroupKey
);
key!(
    /// A submission queue.
    QueueKey
);

/// The drive's own scheduler in `Arbiter::classes`.
const ROOT: u32 = 0;

#[derive(Clone, Debug)]
struct Tenant {
    weight: u16,
    held: bool,
    /// Its node in each of the drive's rings, made when first needed.
    nodes: [u32; 4],
}

#[derive(Clone, Debug)]
struct Group {
    tenant: u32,
    settings: ArbiterSettings,
    /// Its node in each of its tenant's rings, made when first needed.
    nodes: [u32; 4],
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    group: u32,
    class: Class,
    local: Class,
}

/// The arbiter of one drive. Keys must be live: a removed one panics or means another that took its place.
#[derive(Clone, Debug)]
pub struct Arbiter {
    settings: ArbiterSettings,
    /// What `pick` answers while nothing has changed; `NONE` when it has to look.
    next: u32,
    /// A queue that was the only one with a head and has none now, but has not left the tree yet: alone on the drive,
    /// with one command at a time, it need not climb out and in for each. Whatever happens to anybody else, it leaves first.
    lingers: u32,
    /// Queues with a head, held or not.
    ready: u32,
    /// The queue that was picked because its tenant is behind its floor; `NONE` if it was picked in the round.
    by_floor: u32,
    /// While anybody has a floor or a ceiling.
    limits: Option<Box<Limits>>,
    rings: Rings,
    /// Entry `ROOT`, then one per group and class of the drive.
    classes: Vec<Classes>,
    free_classes: Vec<u32>,
    tenants: Vec<Option<Tenant>>,
    free_tenants: Vec<u32>,
    groups: Vec<Option<Group>>,
    free_groups: Vec<u32>,
    /// By node index.
    queues: Vec<Option<Queue>>,
}

impl Arbiter {
    /// An arbiter without tenants.
    pub fn new(settings: ArbiterSettings) -> Arbiter {
        Arbiter {
            settings,
            next: NONE,
            lingers: NONE,
            ready: 0,
            by_floor: NONE,
            limits: None,
            rings: Rings::default(),
            classes: alloc::vec![Classes::new(NONE, &settings)],
            free_classes: Vec::new(),
            tenants: Vec::new(),
            free_tenants: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            queues: Vec::new(),
        }
    }

    /// The drive's settings.
    pub fn settings(&self) -> &ArbiterSettings {
        &self.settings
    }

    /// The queue has a head now. Idempotent.
    #[inline]
    pub fn backlog(&mut self, queue: QueueKey) {
        if self.limits.is_some() {
            self.wake(queue.0);
        }
        if self.lingers == queue.0 {
            (self.lingers, self.ready) = (NONE, 1);
            return;
        }
        self.let_go();
        match self.rings.nodes[queue.index()].state {
            NodeState::Out => self.rise(queue.0),
            NodeState::Held => self.rings.nodes[queue.index()].state = NodeState::HeldReady,
            NodeState::Waiting | NodeState::Current | NodeState::HeldReady => return,
        }
        self.ready += 1;
    }

    /// The queue has no head any more, without having been served. Idempotent.
    pub fn withdraw(&mut self, queue: QueueKey) {
        if self.is_backlogged(queue) {
            self.let_go();
            self.ready -= 1;
            self.sink(queue.0);
        }
    }

    /// Whether the queue has a head, as far as the arbiter was told.
    pub fn is_backlogged(&self, queue: QueueKey) -> bool {
        let state = self.rings.nodes[queue.index()].state;
        !matches!(state, NodeState::Out | NodeState::Held) && self.lingers != queue.0
    }

    /// Whether any queue has a head, held or not.
    #[inline]
    pub fn has_heads(&self) -> bool {
        self.ready > 0
    }

    /// Who is next, or `None` when nobody who is not held has a head. The answer stays the same until something is
    /// charged or changed.
    #[inline]
    pub fn pick(&mut self) -> Option<QueueKey> {
        if self.lingers != NONE {
            return None;
        }
        if self.next == NONE {
            self.next = self.find()?;
        }
        Some(QueueKey(self.next))
    }

    /// [`pick`](Self::pick), with floors and ceilings as they are at `now`; later the answer may be another. To be
    /// followed by [`charge_at`](Self::charge_at) if the queue is served.
    #[inline]
    pub fn pick_at(&mut self, now: Nanos) -> Option<QueueKey> {
        if self.limits.is_some() { self.pick_limited(now) } else { self.pick() }
    }

    /// [`charge`](Self::charge) of a command that moves `bytes`, for floors and ceilings.
    #[inline]
    pub fn charge_at(&mut self, now: Nanos, queue: QueueKey, cost: u32, bytes: u32, still_backlogged: bool) {
        if self.limits.is_some() {
            self.charge_limited(now, queue, (cost, bytes), still_backlogged);
        } else {
            self.charge(queue, cost, still_backlogged);
        }
    }

    /// Lets the tenants go on whom their ceilings held until now; [`pick_at`](Self::pick_at) does so too.
    #[inline]
    pub fn release_due(&mut self, now: Nanos) {
        if self.limits.is_some() {
            self.release_held(now);
        }
    }

    /// When the next tenant that its ceiling holds back may go on.
    #[inline]
    pub fn next_release(&self) -> Option<Nanos> {
        self.limits.as_ref()?.held.peek().map(|(time, _)| Nanos(time))
    }

    /// The queue that lingers leaves.
    #[inline]
    fn let_go(&mut self) {
        if self.lingers != NONE {
            let q = core::mem::replace(&mut self.lingers, NONE);
            self.sink(q);
        }
    }

    fn find(&self) -> Option<u32> {
        let mut classes = &self.classes[ROOT as usize];
        if classes.active == 0 {
            return None;
        }
        loop {
            let ring = classes.rings[usize::from(classes.current)];
            let n = self.rings.rings[ring as usize].current;
            let inner = self.rings.nodes[n as usize].inner;
            if inner == NONE {
                return Some(n);
            }
            let child = self.rings.rings[inner as usize].current;
            let inner = self.rings.nodes[child as usize].inner;
            if inner == NONE {
                return Some(child);
            }
            classes = &self.classes[inner as usize];
        }
    }

    /// The queue whose turn it is in a tenant's ring.
    fn head_in(&self, ring: u32) -> u32 {
        let child = self.rings.rings[ring as usize].current;
        let inner = self.rings.nodes[child as usize].inner;
        if inner == NONE {
            return child;
        }
        let classes = &self.classes[inner as usize];
        self.rings.rings[classes.rings[usize::from(classes.current)] as usize].current
    }

    /// One command of the queue (the one picked, usually) was served; `cost` is in bytes, at least 1. Says whether
    /// the queue has a next head.
    #[inline]
    pub fn charge(&mut self, queue: QueueKey, cost: u32, still_backlogged: bool) {
        let in_turn = self.next == queue.0 && self.lingers == NONE;
        let mut keep = still_backlogged;
        if !(in_turn && keep) {
            keep = self.stays(queue, in_turn, keep);
        }
        let r = self.rings.nodes[queue.index()].ring;
        let moved = self.rings.charge(queue.0, cost, keep);
        let after = self.rings.rings[r as usize].current;
        let moved_above = self.charge_above(r, cost, after != NONE);
        if moved_above || (moved && !in_turn) {
            self.next = NONE;
        } else if moved {
            // A controller that takes turns beside queues has to be looked into.
            let is_queue = after == NONE || self.rings.nodes[after as usize].inner == NONE;
            self.next = if is_queue { after } else { NONE };
        }
    }

    /// Before a charge that is not in turn, or ends a backlog: who lingers, and whether `queue` stays in the tree.
    fn stays(&mut self, queue: QueueKey, in_turn: bool, still_backlogged: bool) -> bool {
        if !in_turn {
            self.let_go();
        }
        if !still_backlogged && self.is_backlogged(queue) {
            self.ready -= 1;
            if in_turn && self.ready == 0 {
                self.lingers = queue.0;
                return true;
            }
        }
        still_backlogged
    }

    /// Charges what the ring is inside; true when somebody else has the turn now, somewhere.
    #[inline]
    fn charge_above(&mut self, mut r: u32, cost: u32, mut keep: bool) -> bool {
        let mut moved = false;
        loop {
            let ring = &self.rings.rings[r as usize];
            let mut n = ring.up;
            if ring.class != PLAIN {
                let classes = &mut self.classes[ring.up as usize];
                moved |= classes.charge(ring.class, cost, keep);
                if ring.up == ROOT {
                    return moved;
                }
                keep = classes.active != 0;
                n = classes.up;
            }
            r = self.rings.nodes[n as usize].ring;
            moved |= self.rings.charge(n, cost, keep);
            keep = self.rings.rings[r as usize].current != NONE;
        }
    }

    /// Takes the tenant's backlog out of arbitration, until `release`, as a ceiling does it; not for a tenant that has
    /// one. What is left of its turn is lost, its debt stays. Idempotent.
    pub fn hold(&mut self, tenant: TenantKey) {
        self.let_go();
        let held = &mut self.tenant_mut(tenant.0).held;
        if core::mem::replace(held, true) {
            return;
        }
        if self.settings.mechanism == Mechanism::None {
            for q in self.queues_of_tenant(tenant.0) {
                let ready = self.is_backlogged(QueueKey(q));
                if ready {
                    self.sink(q);
                }
                self.rings.nodes[q as usize].state = if ready { NodeState::HeldReady } else { NodeState::Held };
            }
            return;
        }
        for n in self.tenant(tenant.0).nodes {
            if n != NONE {
                if self.rings.nodes[n as usize].state != NodeState::Out {
                    self.sink(n);
                }
                self.rings.nodes[n as usize].state = NodeState::Held;
            }
        }
    }

    /// Whether the tenant is held back, by its ceiling or by `hold`.
    pub fn is_held(&self, tenant: TenantKey) -> bool {
        self.tenant(tenant.0).held
    }

    /// Undoes `hold`. Idempotent.
    pub fn release(&mut self, tenant: TenantKey) {
        self.let_go();
        let held = &mut self.tenant_mut(tenant.0).held;
        if !core::mem::replace(held, false) {
            return;
        }
        self.wake_tenant(tenant.0);
        if self.settings.mechanism == Mechanism::None {
            for q in self.queues_of_tenant(tenant.0) {
                let state = &mut self.rings.nodes[q as usize].state;
                if core::mem::replace(state, NodeState::Out) == NodeState::HeldReady {
                    self.rise(q);
                }
            }
            return;
        }
        for n in self.tenant(tenant.0).nodes {
            if n != NONE {
                let node = &mut self.rings.nodes[n as usize];
                node.state = NodeState::Out;
                if self.rings.rings[node.inner as usize].current != NONE {
                    self.rise(n);
                }
            }
        }
    }

    /// A node has something to serve: it joins its ring, and so do those it is inside that had nothing so far.
    fn rise(&mut self, mut n: u32) {
        while self.rings.nodes[n as usize].state == NodeState::Out && self.rings.join(n) {
            self.next = NONE;
            let ring = &self.rings.rings[self.rings.nodes[n as usize].ring as usize];
            if ring.class == PLAIN {
                n = ring.up;
                continue;
            }
            let classes = &mut self.classes[ring.up as usize];
            let woken = classes.active == 0;
            classes.join(ring.class);
            if !woken || ring.up == ROOT {
                return;
            }
            n = classes.up;
        }
    }

    /// A node has nothing to serve any more: it leaves its ring, and so do those it is inside that are now empty.
    fn sink(&mut self, mut n: u32) {
        while self.rings.leave(n) {
            self.next = NONE;
            let ring = &self.rings.rings[self.rings.nodes[n as usize].ring as usize];
            if ring.current != NONE {
                return;
            }
            if ring.class == PLAIN {
                n = ring.up;
                continue;
            }
            let classes = &mut self.classes[ring.up as usize];
            classes.leave(ring.class);
            if classes.active != 0 || ring.up == ROOT {
                return;
            }
            n = classes.up;
        }
    }
}
