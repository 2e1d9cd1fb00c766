//! Every sequence of events, up to a length, over a drive as small as it can be: two slots, a ring controller whose two
//! submission queues of two commands share a completion queue of two entries, and a fabrics host with a queue of two. After
//! every event the invariants hold; after every sequence everything that is still served completes.

use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_controller::testing::{Fabric, TestRing, TestWorld, admin, io};
use weir_controller::{Event, NamespaceConfig, Op, Owner, SubsystemConfig, TenantConfig};
use weir_spec::nvme::{AdminOpcode, Status, register};
use weir_units::{Class, Nanos};

const LATENCY: Nanos = Nanos(10_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Ring, submission queue 1 or 2.
    Submit(u16),
    Send,
    Run,
    /// The oldest I/O succeeds, the newest fails.
    Done,
    Fail,
    Reap,
    /// Of the oldest command of submission queue 1 that is not complete.
    Abort,
    /// Of submission queue 2.
    Delete,
    Disconnect,
    /// CC.EN = 0 on the ring controller.
    Disable,
    /// CC.SHN = normal.
    Shutdown,
    Tick,
}

const STEPS: [Step; 13] = [
    Step::Submit(1),
    Step::Submit(2),
    Step::Send,
    Step::Run,
    Step::Done,
    Step::Fail,
    Step::Reap,
    Step::Abort,
    Step::Delete,
    Step::Disconnect,
    Step::Disable,
    Step::Shutdown,
    Step::Tick,
];

/// The drive, its hosts, and what happened to them for good.
#[derive(Clone)]
struct Small {
    world: TestWorld,
    ring: TestRing,
    fabric: Fabric,
    first: Option<u16>,
    deleting: Option<u16>,
    deleted: bool,
    connected: bool,
    enabled: bool,
    down: bool,
    /// The flush of the shutdown failed.
    unflushed: bool,
    sent: u32,
}

impl Small {
    fn new(mechanism: Mechanism, latency: Nanos) -> Self {
        let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:small");
        config.arbitration = ArbiterSettings::new(mechanism);
        (config.slots, config.slot_bytes, config.latency) = (2, 8192, latency);
        (config.max_queue_entries, config.max_io_queues, config.admin_rate) = (32, 2, u32::MAX);
        let tenant = |name: &str, class, host: &str| TenantConfig {
            hosts: vec![host.to_string()],
            ..TenantConfig::new(name, class)
        };
        config.tenants = vec![tenant("gold", Class::High, "nqn.gold"), tenant("silver", Class::Low, "nqn.silver")];
        let namespace = NamespaceConfig { nsid: 1, start: 0, size: 1 << 20, block_size: 512, uuid: [1; 16] };
        config.namespaces = vec![namespace];
        let mut world = TestWorld::new(config, 2);
        let mut ring = TestRing::ready(&mut world, 0, Owner(700), 7);
        assert!(ring.create_cq(&mut world, 1, 3).is_success());
        for qid in [1, 2] {
            assert!(ring.create_sq(&mut world, qid, 3, 1, 1).is_success());
        }
        let mut fabric = Fabric::ready(&mut world, "nqn.silver", 100, 0);
        fabric.add_queue(&mut world, 3, 0).expect("the host may have a queue");
        let (first, deleting) = (None, None);
        let (deleted, connected, enabled, down, unflushed, sent) = (false, true, true, false, false, 0);
        Small { world, ring, fabric, first, deleting, deleted, connected, enabled, down, unflushed, sent }
    }

    /// Whether the step can do anything here that another order of steps does not show.
    fn allows(&self, step: Step) -> bool {
        match step {
            Step::Submit(2) if self.deleted || self.deleting.is_some() => false,
            Step::Submit(_) => self.enabled && !self.down,
            Step::Send => self.connected && self.sent < 2,
            Step::Run => self.world.drive.has_work(),
            Step::Done => !self.world.issued.is_empty(),
            Step::Fail => self.world.issued.len() > 1,
            Step::Reap => self.enabled,
            Step::Abort => self.enabled && !self.down && self.first.is_some(),
            Step::Delete => self.enabled && !self.down && !self.deleted && self.deleting.is_none(),
            Step::Disconnect => self.connected,
            Step::Disable => self.enabled,
            Step::Shutdown => self.enabled && !self.down,
            Step::Tick => self.world.drive.next_deadline().is_some(),
        }
    }

    fn apply(&mut self, step: Step) {
        let Small { world, ring, fabric, .. } = self;
        match step {
            Step::Submit(qid) => {
                let cid = ring.submit(world, qid, io(if qid == 1 { 2 } else { 1 }, 0, 0, 8));
                if qid == 1 && self.first.is_none() {
                    self.first = cid;
                }
            }
            Step::Send => {
                self.sent += 1;
                fabric.send(world, 1, io(2, self.sent as u16, 8, 8));
            }
            Step::Run => world.event(Event::Run),
            Step::Done => world.done(0, Status::SUCCESS),
            Step::Fail => {
                let last = world.issued.len() - 1;
                self.unflushed |= world.issued[last].op == Op::Flush;
                world.done(last, Status::WRITE_FAULT);
            }
            Step::Reap => self.reap(),
            Step::Abort => {
                let cid = self.first.take().expect("allowed");
                ring.submit(world, 0, admin(AdminOpcode::ABORT, 0, u32::from(cid) << 16 | 1, 0));
            }
            Step::Delete => self.deleting = ring.submit(world, 0, admin(AdminOpcode::DELETE_IO_SQ, 0, 2, 0)),
            Step::Disconnect => {
                self.connected = false;
                world.disconnect(Owner(fabric.base + 1), fabric.queues[1]);
            }
            Step::Disable => {
                self.enabled = false;
                ring.write(world, register::CC, 0);
            }
            Step::Shutdown => {
                self.down = true;
                let cc = register::Cc(ring.read(world, register::CC) as u32).with_shn(1);
                ring.write(world, register::CC, cc.0.into());
            }
            Step::Tick => {
                world.now = world.drive.next_deadline().expect("allowed").max(world.now);
                world.event(Event::Tick);
            }
        }
    }

    fn reap(&mut self) {
        let admin = self.ring.reap(&mut self.world, 0);
        self.ring.reap(&mut self.world, 1);
        if admin.iter().any(|cqe| Some(cqe.cid.get()) == self.deleting && cqe.status().is_success()) {
            self.ring.forget_sq(2);
            (self.deleting, self.deleted) = (None, true);
        }
    }

    /// Nothing is lost: what is still served completes once the media has done its work and time has passed.
    fn finish(mut self, path: &[Step]) {
        for _ in 0..8 {
            self.world.settle();
            if self.enabled {
                self.reap();
            }
            self.world.pass(LATENCY);
        }
        assert!(self.world.issued.is_empty() && self.world.drive.stats().slots_used == 0, "{path:?}");
        if self.connected {
            let answers = self.world.host.answers.iter().filter(|(owner, ..)| owner.0 == self.fabric.base + 1);
            assert_eq!(answers.count() as u32, self.sent, "{path:?}: the fabrics host has its answers");
        }
        if self.enabled && !self.down {
            assert_eq!(self.deleting, None, "{path:?}: the deletion has ended");
            let left = self.ring.pending(1) + self.ring.pending(2);
            assert_eq!(left, 0, "{path:?}: the ring host has its completions");
        }
        if self.down && self.enabled {
            let csts = register::Csts(self.ring.read(&self.world, register::CSTS) as u32);
            // A media that cannot flush is fatal: the host must not believe its data safe.
            let ended = if self.unflushed { csts.cfs() == 1 } else { csts.shst() == 2 };
            assert!(ended, "{path:?}: the shutdown has ended: {csts:?}");
        }
    }
}

fn walk(small: &Small, path: &mut Vec<Step>, left: usize, visited: &mut u64) {
    *visited += 1;
    if left == 0 {
        return small.clone().finish(path);
    }
    for step in STEPS {
        if small.allows(step) {
            let mut next = small.clone();
            path.push(step);
            next.apply(step);
            walk(&next, path, left - 1, visited);
            path.pop();
        }
    }
}

/// Longer where property tests are asked for more cases, as `./test --full` does.
fn length() -> usize {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse::<u32>().ok());
    if cases.unwrap_or(0) >= 1000 { 6 } else { 5 }
}

#[test]
fn every_sequence_without_latency() {
    let mut visited = 0;
    walk(&Small::new(Mechanism::Drr, Nanos(0)), &mut Vec::new(), length(), &mut visited);
    assert!(visited > 10_000, "{visited}");
}

#[test]
fn every_sequence_with_latency() {
    let mut visited = 0;
    walk(&Small::new(Mechanism::Wrr, LATENCY), &mut Vec::new(), length(), &mut visited);
    assert!(visited > 10_000, "{visited}");
}

#[test]
fn every_sequence_without_arbitration() {
    let mut visited = 0;
    walk(&Small::new(Mechanism::None, Nanos(0)), &mut Vec::new(), length() - 1, &mut visited);
    assert!(visited > 2_000, "{visited}");
}
