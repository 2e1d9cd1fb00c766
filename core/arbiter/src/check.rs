//! The invariants of the whole tree.

use crate::classes::{Classes, IDLE};
use crate::ring::{NONE, NodeState, PLAIN, ROUNDS, Ring};
use crate::{Arbiter, Mechanism, QueueKey, ROOT};

impl Arbiter {
    /// Panics where an invariant is broken. For tests, simulation and fuzzing; a pass over everything.
    pub fn check(&self) {
        for q in (0..self.queues.len() as u32).filter(|&q| self.queues[q as usize].is_some()) {
            self.check_path(q);
        }
        for (t, tenant) in self.tenants.iter().enumerate() {
            let Some(tenant) = tenant else { continue };
            for n in tenant.nodes.into_iter().filter(|&n| n != NONE) {
                let node = &self.rings.nodes[n as usize];
                assert_eq!(node.state == NodeState::Held, tenant.held, "tenant {t} and its node disagree");
                assert_eq!(node.weight, if self.counts_bytes(node.ring) { tenant.weight } else { 1 });
                self.check_node(n, self.rings.rings[node.inner as usize].current != NONE);
            }
        }
        for group in self.groups.iter().flatten() {
            assert!(self.tenants[group.tenant as usize].is_some(), "a group without its tenant");
            for n in group.nodes.into_iter().filter(|&n| n != NONE) {
                let classes = &self.classes[self.rings.nodes[n as usize].inner as usize];
                assert_eq!(classes.up, n);
                self.check_node(n, classes.active != 0);
                self.check_classes(classes);
            }
        }
        self.check_limits();
        self.check_classes(&self.classes[ROOT as usize]);
        self.check_rings();
        let live = (0..self.queues.len() as u32).filter(|&q| self.queues[q as usize].is_some());
        let ready = live.filter(|&q| self.is_backlogged(QueueKey(q))).count();
        assert_eq!(ready, self.ready as usize, "queues with a head");
        assert!(self.lingers == NONE || (ready == 0 && self.find() == Some(self.lingers)), "who lingers is not alone");
        assert!(self.next == NONE || self.find() == Some(self.next), "the remembered choice is stale");
    }

    fn counts_bytes(&self, r: u32) -> bool {
        self.rings.rings[r as usize].turn.price == crate::ring::Price::Bytes
    }

    /// A queue is inside its group, inside its tenant, under the drive.
    fn check_path(&self, q: u32) {
        let queue = self.queues[q as usize].expect("a live queue");
        let node = &self.rings.nodes[q as usize];
        let group = self.group(queue.group);
        let ring = &self.rings.rings[node.ring as usize];
        let held = matches!(node.state, NodeState::Held | NodeState::HeldReady);
        self.check_node(q, node.state != NodeState::Out && !held);
        if self.settings.mechanism == Mechanism::None {
            assert_eq!((ring.up, ring.class), (ROOT, 0));
            assert_eq!(held, self.tenant(group.tenant).held);
            return;
        }
        let slot = self.settings.slot(queue.class);
        if self.settings.gives_queues_turns(&group.settings) {
            assert!(!held && ring.class == PLAIN);
            assert_eq!(ring.up, self.tenant(group.tenant).nodes[slot]);
            assert_eq!(group.nodes, [NONE; 4], "a group without a scheduler has no nodes");
            return;
        }
        assert!(!held && usize::from(ring.class) == group.settings.slot(queue.local));
        let in_group = self.classes[ring.up as usize].up;
        assert_eq!(in_group, group.nodes[slot]);
        let tenant_ring = &self.rings.rings[self.rings.nodes[in_group as usize].ring as usize];
        assert_eq!(tenant_ring.up, self.tenant(group.tenant).nodes[slot]);
        let root_ring = &self.rings.rings[self.rings.nodes[tenant_ring.up as usize].ring as usize];
        assert_eq!((root_ring.up, usize::from(root_ring.class)), (ROOT, slot));
    }

    /// A node is in its ring exactly if it has something to serve and is not held, and its account is in bounds.
    fn check_node(&self, n: u32, ready: bool) {
        let node = &self.rings.nodes[n as usize];
        let ring = &self.rings.rings[node.ring as usize];
        let quantum = self.rings.quantum(n);
        assert!((1..=quantum).contains(&node.balance), "node {n}: balance {} of {quantum}", node.balance);
        match node.state {
            NodeState::Current => assert!(ready && ring.current == n && node.due == ring.round),
            NodeState::Waiting => assert!(ready && ring.waiting & 1 << node.bucket != 0 && node.due >= ring.round),
            NodeState::Out => assert!(!ready, "node {n} is out and should be in"),
            NodeState::Held | NodeState::HeldReady => {}
        }
    }

    fn check_classes(&self, classes: &Classes) {
        let active = (0..4u8).filter(|&c| classes.active & 1 << c != 0);
        let served = |c: u8| if c == 0 { (0, 0) } else { (classes.due[usize::from(c) - 1], c) };
        assert_eq!(classes.current, active.clone().min_by_key(|&c| served(c)).unwrap_or(IDLE));
        for i in 0..3 {
            assert!((1..=classes.credit[i]).contains(&classes.balance[i]), "class {i}: {:?}", classes.balance);
            assert!(classes.active & 2 << i == 0 || classes.due[i] >= classes.round);
        }
        for (c, r) in classes.rings.into_iter().enumerate() {
            let busy = r != NONE && self.rings.rings[r as usize].current != NONE;
            assert_eq!(busy, classes.active & 1 << c != 0, "class {c} and its ring disagree");
            assert!(r == NONE || usize::from(self.rings.rings[r as usize].class) == c);
        }
    }

    /// The calendars' lists, their bits and the children's states tell the same story.
    fn check_rings(&self) {
        let mut counts = alloc::vec![[0u32; 3]; self.rings.rings.len()];
        for node in self.rings.nodes.iter().filter(|node| node.ring != NONE) {
            let [children, current, waiting] = &mut counts[node.ring as usize];
            *children += 1;
            *current += u32::from(node.state == NodeState::Current);
            *waiting += u32::from(node.state == NodeState::Waiting);
        }
        for (r, ring) in self.rings.rings.iter().enumerate() {
            let [children, current, waiting] = counts[r];
            assert_eq!(children, ring.children, "ring {r}: children");
            assert_eq!(current, u32::from(ring.current != NONE), "ring {r}: turns");
            assert!(ring.current != NONE || ring.waiting == 0, "ring {r}: somebody waits and nobody is served");
            assert!(ring.class == PLAIN || ring.class < 4);
            let listed: u32 = (0..ROUNDS).map(|ahead| self.check_bucket(r as u32, ring, ahead)).sum();
            assert_eq!(listed, waiting, "ring {r}: somebody waits outside the calendar");
        }
    }

    /// How many wait in a bucket.
    fn check_bucket(&self, r: u32, ring: &Ring, ahead: u64) -> u32 {
        let bucket = (ring.round + ahead) % ROUNDS;
        if ring.waiting & 1 << bucket == 0 {
            return 0;
        }
        let list = self.rings.calendars[ring.calendar as usize][bucket as usize];
        let (mut n, mut listed) = (list.first, 1);
        loop {
            let node = &self.rings.nodes[n as usize];
            assert_eq!((node.ring, u64::from(node.bucket)), (r, bucket), "ring {r}: node {n} is in the wrong list");
            assert_eq!(node.state, NodeState::Waiting, "ring {r}: node {n}");
            // Beyond the calendar a node waits where the calendar ended when it came.
            assert!(node.due == ring.round + ahead || (node.due > ring.round + ahead && node.due >= ROUNDS - 1));
            if n == list.last {
                return listed;
            }
            assert_eq!(self.rings.nodes[node.next as usize].prev, n, "ring {r}: links");
            (n, listed) = (node.next, listed + 1);
        }
    }
}
