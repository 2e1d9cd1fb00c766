//! Who exists: tenants, their groups and queues come, change and go. Nothing here is on a command's path.

use crate::classes::Classes;
use crate::ring::{NONE, NodeState, PLAIN, Price, place};
use crate::{Arbiter, ArbiterSettings, Group, GroupKey, Mechanism, Queue, QueueKey, ROOT, Tenant, TenantKey};
use alloc::vec::Vec;
use weir_units::Class;

impl Arbiter {
    /// Adds a tenant. Where bytes are counted it gets `weight` (at least 1) times what a tenant of weight 1 gets.
    pub fn add_tenant(&mut self, weight: u16) -> TenantKey {
        let tenant = Tenant { weight: weight.max(1), held: false, nodes: [NONE; 4] };
        TenantKey(place(&mut self.tenants, &mut self.free_tenants, Some(tenant)))
    }

    /// Changes a tenant's weight.
    pub fn set_tenant(&mut self, tenant: TenantKey, weight: u16) {
        self.let_go();
        self.tenant_mut(tenant.0).weight = weight.max(1);
        for n in self.tenant(tenant.0).nodes {
            if n != NONE {
                self.rings.nodes[n as usize].weight = self.weight_in(tenant.0, self.rings.nodes[n as usize].ring);
            }
        }
        self.rings.cut();
    }

    /// Removes a tenant with its groups and queues.
    pub fn remove_tenant(&mut self, tenant: TenantKey) {
        self.let_go();
        for g in 0..self.groups.len() as u32 {
            if self.groups[g as usize].as_ref().is_some_and(|group| group.tenant == tenant.0) {
                self.remove_group(GroupKey(g));
            }
        }
        if let Some(limits) = &mut self.limits {
            limits.forget(tenant.0);
        }
        self.drop_tenant_nodes(tenant.0);
        self.tenants[tenant.index()] = None;
        self.free_tenants.push(tenant.0);
    }

    /// Adds a controller of a tenant. Its settings order its own queues only.
    pub fn add_group(&mut self, tenant: TenantKey, settings: ArbiterSettings) -> GroupKey {
        assert!(self.tenants[tenant.index()].is_some(), "no such tenant: {tenant:?}");
        let group = Group { tenant: tenant.0, settings, nodes: [NONE; 4] };
        GroupKey(place(&mut self.groups, &mut self.free_groups, Some(group)))
    }

    /// Changes a group's settings, also in the middle of a round.
    pub fn set_group(&mut self, group: GroupKey, settings: ArbiterSettings) {
        self.let_go();
        let before = self.group(group.0).settings;
        if self.settings.gives_queues_turns(&before) != self.settings.gives_queues_turns(&settings) {
            return self.move_group(group.0, settings);
        }
        self.group_mut(group.0).settings = settings;
        if self.settings.mechanism == Mechanism::None {
            return;
        }
        let schedulers = self.schedulers_of(group.0);
        if before.mechanism == settings.mechanism {
            for s in schedulers {
                self.retune(s, &settings);
            }
            self.rings.cut();
            return;
        }
        let queues = self.queues_of_group(group.0);
        let ready = self.detach(&queues);
        for s in schedulers {
            self.drop_class_rings(s);
            let classes = &mut self.classes[s as usize];
            *classes = Classes::new(classes.up, &settings);
        }
        self.reattach(&queues, &ready);
    }

    /// Its queues go from their tenant's ring into the group's own scheduler, or back.
    fn move_group(&mut self, g: u32, settings: ArbiterSettings) {
        let queues = self.queues_of_group(g);
        let ready = self.detach(&queues);
        self.drop_group_nodes(g);
        self.group_mut(g).settings = settings;
        self.reattach(&queues, &ready);
    }

    /// Removes a group with its queues.
    pub fn remove_group(&mut self, group: GroupKey) {
        self.let_go();
        for q in self.queues_of_group(group.0) {
            self.remove_queue(QueueKey(q));
        }
        self.drop_group_nodes(group.0);
        self.groups[group.index()] = None;
        self.free_groups.push(group.0);
    }

    /// Adds a queue without a head. `class` counts at the drive (it is the caller's to hold it to the tenant's), `local`
    /// is the queue's own QPRIO and counts inside its group.
    pub fn add_queue(&mut self, group: GroupKey, class: Class, local: Class) -> QueueKey {
        assert!(self.groups[group.index()].is_some(), "no such group: {group:?}");
        self.let_go();
        let q = self.rings.add_node(NONE);
        let nodes = self.rings.nodes.len();
        self.queues.resize_with(nodes, || None);
        self.queues[q as usize] = Some(Queue { group: group.0, class, local });
        self.attach(q);
        QueueKey(q)
    }

    /// Changes a queue's classes; it stays backlogged if it was.
    pub fn set_queue_class(&mut self, queue: QueueKey, class: Class, local: Class) {
        let place = self.queue_mut(queue.0);
        if (place.class, place.local) == (class, local) {
            return;
        }
        let ready = self.detach(&[queue.0]);
        (self.queue_mut(queue.0).class, self.queue_mut(queue.0).local) = (class, local);
        self.reattach(&[queue.0], &ready);
    }

    /// Removes a queue, backlogged or not.
    pub fn remove_queue(&mut self, queue: QueueKey) {
        assert!(self.queues[queue.index()].is_some(), "no such queue: {queue:?}");
        self.detach(&[queue.0]);
        self.rings.remove_node(queue.0);
        self.queues[queue.index()] = None;
    }

    /// Changes the drive's settings, also in the middle of a round. With the mechanism unchanged all debts stay.
    pub fn configure(&mut self, settings: ArbiterSettings) {
        self.let_go();
        let before = core::mem::replace(&mut self.settings, settings);
        if before.mechanism != settings.mechanism {
            return self.rebuild(before);
        }
        self.retune(ROOT, &settings);
        for tenant in self.tenants.iter().flatten() {
            for (slot, n) in tenant.nodes.into_iter().enumerate() {
                if n != NONE {
                    let inner = self.rings.nodes[n as usize].inner;
                    self.rings.rings[inner as usize].turn = settings.turn(slot);
                }
            }
        }
        self.rings.cut();
    }

    /// Puts everybody into the tree that the mechanism asks for.
    fn rebuild(&mut self, before: ArbiterSettings) {
        let after = core::mem::replace(&mut self.settings, before);
        let queues: Vec<u32> = (0..self.queues.len() as u32).filter(|&q| self.queues[q as usize].is_some()).collect();
        let ready = self.detach(&queues);
        for g in 0..self.groups.len() as u32 {
            if self.groups[g as usize].is_some() {
                self.drop_group_nodes(g);
            }
        }
        for t in 0..self.tenants.len() as u32 {
            if self.tenants[t as usize].is_some() {
                self.drop_tenant_nodes(t);
            }
        }
        self.drop_class_rings(ROOT);
        self.settings = after;
        self.classes[ROOT as usize] = Classes::new(NONE, &after);
        self.reattach(&queues, &ready);
    }

    /// New weights, quanta or burst for one scheduler and the rings of its classes.
    fn retune(&mut self, s: u32, settings: &ArbiterSettings) {
        let classes = &mut self.classes[s as usize];
        classes.set_credit(settings.class_credit());
        for (slot, r) in classes.rings.into_iter().enumerate() {
            if r != NONE {
                self.rings.rings[r as usize].turn = settings.turn(slot);
            }
        }
    }

    /// Takes queues out of the tree; says which were backlogged.
    fn detach(&mut self, queues: &[u32]) -> Vec<bool> {
        self.let_go();
        self.next = NONE;
        let mut ready = Vec::with_capacity(queues.len());
        for &q in queues {
            ready.push(self.is_backlogged(QueueKey(q)));
            self.withdraw(QueueKey(q));
            self.rings.disown(q);
        }
        ready
    }

    fn reattach(&mut self, queues: &[u32], ready: &[bool]) {
        for (&q, &ready) in queues.iter().zip(ready) {
            self.attach(q);
            if ready {
                self.backlog(QueueKey(q));
            }
        }
    }

    /// Puts a queue where its classes say.
    fn attach(&mut self, q: u32) {
        let Queue { group, class, local } = *self.queue_mut(q);
        let group_settings = self.group(group).settings;
        if self.settings.mechanism == Mechanism::None {
            let ring = self.class_ring(ROOT, 0, self.settings);
            self.rings.adopt(ring, q, 1);
            if self.tenant(self.group(group).tenant).held {
                self.rings.nodes[q as usize].state = NodeState::Held;
            }
            return;
        }
        let slot = self.settings.slot(class);
        if self.settings.gives_queues_turns(&group_settings) {
            let tenant = self.tenant_node(self.group(group).tenant, slot);
            return self.rings.adopt(self.rings.nodes[tenant as usize].inner, q, 1);
        }
        let node = self.group_node(group, slot);
        let scheduler = self.rings.nodes[node as usize].inner;
        let ring = self.class_ring(scheduler, group_settings.slot(local), group_settings);
        self.rings.adopt(ring, q, 1);
    }

    fn class_ring(&mut self, s: u32, slot: usize, settings: ArbiterSettings) -> u32 {
        if self.classes[s as usize].rings[slot] == NONE {
            let ring = self.rings.add_ring(s, slot as u8, settings.turn(slot));
            self.classes[s as usize].add_ring(slot, ring);
        }
        self.classes[s as usize].rings[slot]
    }

    fn group_node(&mut self, g: u32, slot: usize) -> u32 {
        let Group { tenant, settings, nodes } = *self.group(g);
        if nodes[slot] != NONE {
            return nodes[slot];
        }
        let above = self.tenant_node(tenant, slot);
        let n = self.rings.add_node(NONE);
        let s = place(&mut self.classes, &mut self.free_classes, Classes::new(n, &settings));
        self.rings.nodes[n as usize].inner = s;
        self.rings.adopt(self.rings.nodes[above as usize].inner, n, 1);
        self.group_mut(g).nodes[slot] = n;
        n
    }

    fn tenant_node(&mut self, t: u32, slot: usize) -> u32 {
        let Tenant { held, nodes, .. } = *self.tenant(t);
        if nodes[slot] != NONE {
            return nodes[slot];
        }
        let above = self.class_ring(ROOT, slot, self.settings);
        let n = self.rings.add_node(NONE);
        self.rings.nodes[n as usize].inner = self.rings.add_ring(n, PLAIN, self.settings.turn(slot));
        self.rings.adopt(above, n, self.weight_in(t, above));
        if held {
            self.rings.nodes[n as usize].state = NodeState::Held;
        }
        self.tenant_mut(t).nodes[slot] = n;
        n
    }

    fn weight_in(&self, t: u32, ring: u32) -> u16 {
        if self.rings.rings[ring as usize].turn.price == Price::Bytes { self.tenant(t).weight } else { 1 }
    }

    fn drop_tenant_nodes(&mut self, t: u32) {
        for n in core::mem::replace(&mut self.tenant_mut(t).nodes, [NONE; 4]) {
            if n != NONE {
                self.rings.disown(n);
                self.rings.remove_ring(self.rings.nodes[n as usize].inner);
                self.rings.remove_node(n);
            }
        }
    }

    fn drop_group_nodes(&mut self, g: u32) {
        for n in core::mem::replace(&mut self.group_mut(g).nodes, [NONE; 4]) {
            if n != NONE {
                let s = self.rings.nodes[n as usize].inner;
                self.drop_class_rings(s);
                self.free_classes.push(s);
                self.rings.disown(n);
                self.rings.remove_node(n);
            }
        }
    }

    fn drop_class_rings(&mut self, s: u32) {
        for r in core::mem::replace(&mut self.classes[s as usize].rings, [NONE; 4]) {
            if r != NONE {
                self.rings.remove_ring(r);
            }
        }
    }

    fn schedulers_of(&self, g: u32) -> Vec<u32> {
        let nodes = self.group(g).nodes.into_iter().filter(|&n| n != NONE);
        nodes.map(|n| self.rings.nodes[n as usize].inner).collect()
    }

    fn queues_of_group(&self, g: u32) -> Vec<u32> {
        self.queues_where(|queue| queue.group == g)
    }

    pub(crate) fn queues_of_tenant(&self, t: u32) -> Vec<u32> {
        self.queues_where(|queue| self.group(queue.group).tenant == t)
    }

    fn queues_where(&self, wanted: impl Fn(&Queue) -> bool) -> Vec<u32> {
        let numbered = (0u32..).zip(&self.queues);
        numbered.filter_map(|(q, queue)| queue.as_ref().is_some_and(&wanted).then_some(q)).collect()
    }

    pub(crate) fn tenant(&self, t: u32) -> &Tenant {
        self.tenants[t as usize].as_ref().expect("a live tenant")
    }

    pub(crate) fn tenant_mut(&mut self, t: u32) -> &mut Tenant {
        self.tenants[t as usize].as_mut().expect("a live tenant")
    }

    pub(crate) fn group(&self, g: u32) -> &Group {
        self.groups[g as usize].as_ref().expect("a live group")
    }

    fn group_mut(&mut self, g: u32) -> &mut Group {
        self.groups[g as usize].as_mut().expect("a live group")
    }

    fn queue_mut(&mut self, q: u32) -> &mut Queue {
        self.queues[q as usize].as_mut().expect("a live queue")
    }
}
