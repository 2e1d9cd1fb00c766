//! The machine's invariants, for tests, simulation and fuzzing.

use crate::controller::{Transport, UNCLAIMED};
use crate::io::slots::SlotState;
use crate::queues::queue::{NONE, Sq, SqState};
use crate::subsystem::Subsystem;
use crate::zns::ZonedOp;
use weir_units::Nanos;

impl Subsystem {
    /// Panics unless the invariants hold.
    pub fn check(&self) {
        self.slots.check();
        let quiet = self.slots.quiet_until;
        assert!(
            quiet == Nanos(0) || quiet == self.next_of_service(),
            "the drive's inside may know more before {quiet:?}"
        );
        assert_eq!(self.tenants.is_judged, self.tenants.list.iter().any(|t| t.judge.is_some()));
        self.arbiter.check();
        for (q, sq) in self.queues.sqs.iter().enumerate() {
            if let Some(sq) = sq {
                self.check_queue(q as u32, sq);
            }
        }
        self.check_in_flight();
        self.check_completion_queues();
        self.check_zones();
        self.check_namespaces();
        self.check_controllers();
        self.check_slow_path();
        self.check_faults();
        if !self.config.is_eager() {
            assert!(
                self.fetched.len() <= 1 || self.fetched.len() as u32 <= self.slots.limit * 4096,
                "nobody overtakes"
            );
        }
    }

    fn check_queue(&self, q: u32, sq: &Sq) {
        assert_eq!(sq.key.index() as u32, q);
        assert!(sq.head < sq.size && sq.waiting <= sq.size, "queue {q}: head {} of {}", sq.head, sq.size);
        let ctrl = self.ctrl(sq.controller).expect("a queue's controller exists");
        assert_eq!(ctrl.tenant, sq.tenant);
        let open = sq.state == SqState::Open && sq.owner != UNCLAIMED;
        let serves = sq.qid != 0 && sq.waiting > 0 && open && !sq.paused && !sq.stuck && !sq.starved && !sq.awaits;
        assert_eq!(
            self.arbiter.is_backlogged(sq.key),
            serves,
            "queue {q} is backlogged exactly if it can be served: {sq:?}"
        );
        if sq.state == SqState::Condemned {
            assert!(sq.waiting == 0 && sq.in_flight == 0, "a condemned queue holds nothing");
        } else {
            assert_eq!(ctrl.sq(sq.qid), q, "a live queue is in its controller's table");
        }
        if sq.qid == 0 && !sq.ring {
            assert_eq!(ctrl.admin.len(), sq.waiting as usize, "every waiting admin command is there");
        }
        assert_eq!(sq.arrived.len(), sq.size as usize, "queue {q}: every place has an arrival");
        let tenant = &self.tenants.list[usize::from(sq.tenant)].config;
        assert!(sq.class >= tenant.class || tenant.urgent, "nobody rises above the tenant's class");
    }

    fn check_in_flight(&self) {
        let mut counted = alloc::vec![0u32; self.queues.sqs.len()];
        for slot in &self.slots.slots {
            if slot.queue == NONE {
                continue;
            }
            assert!(slot.state != SlotState::Free && !slot.internal, "a free slot belongs to nobody");
            let sq =
                self.queues.sqs[slot.queue as usize].as_ref().expect("a command in flight belongs to a live queue");
            assert!(sq.state != SqState::Condemned);
            counted[slot.queue as usize] += 1;
        }
        for id in 0..self.slots.slots.len() as u32 {
            let queue = self.slots.slots[id as usize].queue;
            if queue != NONE && self.slots.is_pair(id) {
                counted[queue as usize] += 1;
            }
        }
        let waiting = self.slow_path.waits.iter().filter_map(|w| w.partner.as_ref().map(|_| w.slot));
        for slot in waiting {
            let queue = self.slots.slots[slot as usize].queue;
            if queue != NONE {
                counted[queue as usize] += 1;
            }
        }
        for p in &self.slow_path.partners {
            counted[p.queue as usize] += 1;
        }
        for f in &self.fetched {
            assert!(self.queues.sqs[f.queue as usize].is_some(), "a fetched command belongs to a live queue");
            counted[f.queue as usize] += 1;
        }
        for held in self.faults.iter().flat_map(|faults| &faults.held) {
            counted[held.starting.queue as usize] += 1;
        }
        for (q, sq) in self.queues.sqs.iter().enumerate() {
            let Some(sq) = sq else { continue };
            if sq.qid != 0 {
                assert_eq!(counted[q], sq.in_flight, "queue {q}: what is in flight is in a slot or fetched");
                continue;
            }
            let ctrl = self.ctrl(sq.controller).expect("a queue's controller exists");
            let deleting =
                self.queues.sqs.iter().flatten().filter(|s| s.controller == sq.controller && s.deleter.is_some());
            assert_eq!(
                sq.in_flight as usize,
                ctrl.aer.waiting.len() + deleting.count() + self.kept_for(q as u32) + self.held_admin_of(q as u32),
                "admin commands that are kept"
            );
        }
    }

    /// Every namespace lies in granules of its own, and the common path serves only what is plain.
    fn check_namespaces(&self) {
        let Some(allocator) = &self.namespaces.allocator else { return };
        allocator.check();
        for (nsid, ns) in (1u32..).zip(&self.namespaces.list) {
            let Some(ns) = ns else { continue };
            let (extents, record) = (allocator.extents(nsid), &self.namespaces.records[&nsid]);
            assert!(
                extents.iter().map(|e| e.1).sum::<u64>() >= ns.blocks << ns.shift
                    && (ns.blocks == record.bytes >> ns.shift
                        || self.faults.is_some() && ns.blocks < record.bytes >> ns.shift)
            );
            assert!(extents.first().is_some_and(|e| e.0 == ns.start) && ns.fragmented == (extents.len() > 1));
            let all = self.controllers.list.iter().flatten().all(|ctrl| ctrl.namespaces.has(nsid));
            let plain =
                all && !self.hides_namespace(nsid) && !ns.fragmented && ns.protect == 0 && ns.format.metadata == 0;
            assert_eq!(
                ns.why & crate::namespace::why::GUARDED == 0,
                plain,
                "namespace {nsid} is guarded if it has to be"
            );
            assert!(!record.private || self.attached_to(nsid).count() <= 1, "a private namespace is one controller's");
        }
    }

    /// Every write in flight is counted in its zone, every reset under way has its zones locked.
    fn check_zones(&self) {
        if let Some(set) = self.vendor() {
            set.check();
        }
        for (i, space) in self.zoned.iter().enumerate() {
            space.check();
            let mut expected = alloc::vec![(0u32, false); space.zones().config().zones as usize];
            for id in 0..self.slots.slots.len() as u32 {
                match self.slots.owed(id) {
                    Some(ZonedOp::Write { space, zone, .. }) if *space == i => expected[*zone as usize].0 += 1,
                    Some(ZonedOp::Reset { space, zones }) if *space == i => {
                        zones.iter().for_each(|zone| expected[*zone as usize].1 = true);
                    }
                    _ => {}
                }
            }
            assert!(space.busy().eq(expected), "namespace {}: writes and resets in flight are counted", space.nsid);
            let held = |id: &u32| self.slots.slots[*id as usize].state == SlotState::Held;
            assert!(space.held().iter().all(held), "what is held waits");
        }
        assert!(self.slots.released.is_empty(), "nothing is owed any more");
    }

    fn check_completion_queues(&self) {
        for (i, cq) in self.queues.cqs.iter().enumerate() {
            let Some(cq) = cq else { continue };
            let users = || self.queues.sqs.iter().flatten().filter(|sq| sq.cq == i as u32);
            assert_eq!(users().count() as u32, cq.users, "completion queue {i}: users");
            assert_eq!(users().filter(|sq| sq.starved).count() as u32, cq.starved, "completion queue {i}: starved");
            let parked = match cq.qid {
                0 => self.ctrl(cq.controller).map_or(0, |ctrl| ctrl.aer.waiting.len() as u32),
                _ => 0,
            };
            let reserved: u32 = users().map(|sq| sq.in_flight).sum::<u32>() - parked;
            assert_eq!(
                cq.credit + cq.used() + reserved,
                cq.size - 1,
                "completion queue {i}: every entry is accounted for"
            );
        }
    }

    fn check_controllers(&self) {
        for (c, ctrl) in self.controllers.list.iter().enumerate() {
            let Some(ctrl) = ctrl else { continue };
            let own = self.queues.sqs.iter().flatten().filter(|sq| sq.controller == c as u32);
            if ctrl.transport != Transport::Rings {
                assert_eq!(own.count() as u32, ctrl.attached, "controller {c}: queues");
            }
            let listed = self.admin.ready.iter().chain(&self.admin.held).filter(|r| **r == c as u32).count();
            assert_eq!(listed, usize::from(ctrl.admin_listed), "controller {c} is listed once");
            assert!(
                ctrl.expires == Nanos::NEVER || ctrl.expires >= self.admin.next_expiry,
                "its timer is seen in time"
            );
        }
    }
}
