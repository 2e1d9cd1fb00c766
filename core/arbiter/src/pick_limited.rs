//! Arbitration while somebody has a floor or a ceiling: [`Limits`] says who is behind and who has had enough, this
//! finds their queues in the tree.

use crate::limits::Limits;
use crate::ring::{NONE, PLAIN};
use crate::{Arbiter, Mechanism, QueueKey, ROOT, TenantKey};
use alloc::boxed::Box;
use weir_units::{Ceiling, Floor, Nanos};

impl Arbiter {
    /// Sets what a tenant gets at least and at the most, also while it is served; a floor or ceiling without rates is none.
    /// Where both are set the ceiling holds. A rate that stays what it was keeps its account.
    pub fn set_limits(&mut self, tenant: TenantKey, floor: &Floor, ceiling: &Ceiling) {
        let t = tenant.0;
        let mut limits = match self.limits.take() {
            Some(limits) => limits,
            None if floor.is_none() && ceiling.is_none() => return,
            None => Box::default(),
        };
        limits.set(t, floor, ceiling);
        limits.floors.remove(t);
        let freed = limits.held.contains(t) && ceiling.is_none();
        if freed {
            limits.held.remove(t);
        } else if limits.held.contains(t) {
            let free = limits.free(t);
            limits.held.set(t, free);
        }
        if !limits.is_empty() {
            self.limits = Some(limits);
        }
        if freed {
            self.release(tenant);
        }
        self.wake_tenant(t);
    }

    /// The queue has a head, or is about to: its tenant may be owed something.
    pub(crate) fn wake(&mut self, q: u32) {
        let Some(queue) = &self.queues[q as usize] else { return };
        self.wake_tenant(self.group(queue.group).tenant);
    }

    /// Looked at once too often costs nothing: who has no head is taken out when its time has come.
    pub(crate) fn wake_tenant(&mut self, t: u32) {
        let held = self.tenant(t).held;
        if let Some(limits) = self.limits.as_mut().filter(|_| !held) {
            limits.wake(t);
        }
    }

    /// Lets those go on whom their ceiling held until now.
    pub(crate) fn release_held(&mut self, now: Nanos) {
        while let Some((_, t)) = self.limits().held.peek().filter(|(free, _)| *free <= now.0) {
            self.limits().held.remove(t);
            self.release(TenantKey(t));
        }
    }

    pub(crate) fn pick_limited(&mut self, now: Nanos) -> Option<QueueKey> {
        self.release_held(now);
        self.by_floor = NONE;
        let floors = self.settings.mechanism != Mechanism::None && !self.urgent_waits();
        while let Some((_, t)) = self.limits().floors.peek().filter(|(owed, _)| floors && *owed <= now.0) {
            if let Some(q) = self.head_of(t) {
                self.by_floor = q;
                return Some(QueueKey(q));
            }
            self.limits().floors.remove(t);
        }
        self.pick()
    }

    pub(crate) fn charge_limited(&mut self, now: Nanos, queue: QueueKey, (cost, bytes): (u32, u32), more: bool) {
        let by_floor = core::mem::replace(&mut self.by_floor, NONE) == queue.0;
        if by_floor {
            self.charge_within(queue, cost, more);
        } else {
            self.charge(queue, cost, more);
        }
        let group = self.queues[queue.index()].as_ref().expect("a live queue").group;
        let t = self.group(group).tenant;
        if let Some(free) = self.limits().serve(now, t, bytes) {
            self.limits().held.set(t, free);
            self.limits().floors.remove(t);
            self.hold(TenantKey(t));
        }
    }

    fn limits(&mut self) -> &mut Limits {
        self.limits.as_mut().expect("somebody has a floor or a ceiling")
    }

    /// Somebody is served before all others.
    fn urgent_waits(&self) -> bool {
        let has_urgent = matches!(self.settings.mechanism, Mechanism::Wrr | Mechanism::Drr);
        has_urgent && self.classes[ROOT as usize].active & 1 != 0
    }

    /// Whom of its queues a tenant would serve first, by itself.
    fn head_of(&self, t: u32) -> Option<u32> {
        if self.lingers != NONE || self.tenant(t).held {
            return None;
        }
        let nodes = self.tenant(t).nodes.into_iter().filter(|&n| n != NONE);
        let ring = nodes.map(|n| self.rings.nodes[n as usize].inner);
        let ring = ring.into_iter().find(|&r| self.rings.rings[r as usize].current != NONE)?;
        Some(self.head_in(ring))
    }

    /// `charge` of what a tenant got by its floor: its own controllers and queues account for it, it and its class do not.
    fn charge_within(&mut self, queue: QueueKey, cost: u32, more: bool) {
        self.let_go();
        if !more && self.is_backlogged(queue) {
            self.ready -= 1;
        }
        self.next = NONE;
        let mut r = self.rings.nodes[queue.index()].ring;
        self.rings.charge(queue.0, cost, more);
        loop {
            let ring = &self.rings.rings[r as usize];
            let (up, class, keep) = (ring.up, ring.class, ring.current != NONE);
            if class == PLAIN {
                if !keep {
                    self.sink(up);
                }
                return;
            }
            let classes = &mut self.classes[up as usize];
            classes.charge(class, cost, keep);
            let (group, keep) = (classes.up, classes.active != 0);
            r = self.rings.nodes[group as usize].ring;
            self.rings.charge(group, cost, keep);
        }
    }

    /// Who is backlogged and has a floor is seen to; who is held comes back.
    pub(crate) fn check_limits(&self) {
        let Some(limits) = &self.limits else { return };
        limits.floors.check();
        limits.held.check();
        for t in (0..self.tenants.len() as u32).filter(|&t| self.tenants[t as usize].is_some()) {
            let held = self.tenant(t).held;
            assert!(held || !limits.held.contains(t), "tenant {t} is to be released and is not held");
            let waits = !held && self.queues_of_tenant(t).into_iter().any(|q| self.is_backlogged(QueueKey(q)));
            let seen = limits.floors.contains(t);
            assert!(!waits || !limits.has_floor(t) || seen, "tenant {t} has a floor and is not looked at");
            assert!(!seen || limits.has_floor(t), "tenant {t} is looked at and has no floor");
        }
    }
}
