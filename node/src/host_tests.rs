//! Queue pairs of an application on drives here and over NVMe/TCP: classes asked for, changed in the middle, and shared in front.

use super::*;
use crate::node::Node;
use std::time::{Duration, Instant};
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_config::Config;
use weir_driver::IoKind;

/// Keeps a queue pair full of 4 KiB requests that write and read back what only this run writes.
struct Load {
    pair: HostQueue,
    done: Vec<Done>,
    finished: u64,
    writing: Vec<bool>,
    /// Its part of the drive, in blocks of 4 KiB.
    base: u64,
}

impl Load {
    fn new(pair: HostQueue, base: u64) -> Self {
        let depth = pair.depth();
        let mut load = Load { pair, done: Vec::new(), finished: 0, writing: vec![false; depth as usize], base };
        (0..depth).for_each(|slot| load.next(slot));
        load
    }

    /// A slot's own block, written and read in turns.
    fn next(&mut self, slot: u32) {
        let writing = !self.writing[slot as usize];
        self.writing[slot as usize] = writing;
        let content = slot as u8 ^ (self.finished >> 8) as u8;
        let kind = if writing { IoKind::Write } else { IoKind::Read };
        if writing {
            self.pair.buffer(slot)[..4096].fill(content);
        } else {
            let written = self.pair.buffer(slot)[0];
            self.pair.buffer(slot)[..4096].fill(!written);
            self.pair.buffer(slot)[4096] = written;
        }
        self.pair.submit(Io { kind, offset: (self.base + u64::from(slot)) * 4096, len: 4096, slot }).unwrap();
    }

    fn turn(&mut self) {
        self.pair.poll(&mut self.done).unwrap();
        for d in std::mem::take(&mut self.done) {
            assert!(d.status.is_success(), "{}", d.status);
            if !self.writing[d.slot as usize] {
                let written = self.pair.buffer(d.slot)[4096];
                assert!(self.pair.buffer(d.slot)[..4096].iter().all(|b| *b == written), "what was written is read");
            }
            self.finished += 1;
            self.next(d.slot);
        }
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            (0..32).for_each(|_| self.turn());
        }
    }
}

fn options(depth: u32) -> Options {
    Options { depth, max_io: 8192, ..Options::default() }
}

#[test]
fn a_local_queue_is_made_anew_in_another_class_and_loses_nothing() {
    let config = DeviceConfig::from_query("ram", "capacity=16MiB&latency=20us").unwrap();
    let tenant = LocalTenant { name: "t".into(), class: Class::High };
    let drive = LocalDrive::open(&config, &[tenant]).unwrap();
    // Between two queues there is none.
    let class = |drive: &LocalDrive| drive.lock().controllers()[0].queues.first().map(|q| q.class);
    let mut controller = Controller::on(&drive, 0, options(16));
    let mut load = Load::new(controller.queue_pair(QueueClass::Fixed(Class::Low)).unwrap(), 0);
    assert_eq!(class(&drive), Some(Class::Low));
    for wish in [Class::Medium, Class::High, Class::Low, Class::Urgent] {
        let before = load.finished;
        load.pair.set_class(Some(wish));
        // Nobody rises above the tenant's class.
        load.until("its queue follows", || class(&drive) == Some(wish.max(Class::High)));
        load.until("it goes on", || drive.lock().stats().work.reads > 0);
        (0..10_000).for_each(|_| load.turn());
        assert!(load.finished > before + 32, "{} after {before}", load.finished);
    }
    assert!(controller.queue_pair(QueueClass::Tenant).is_err(), "one was asked for");
}

#[test]
fn over_tcp_a_queue_is_made_anew_with_another_cattr() {
    let text = "[node]\ncores = [0]\napi = \"127.0.0.1:0\"\n[[device]]\nname = \"d\"\nkind = \"ram\"\n\
        capacity = \"16MiB\"\n[[tenant]]\nname = \"gold\"\nclass = \"high\"\nhosts = [\"*\"]\n\
        [[export]]\ndevice = \"d\"\ndoor = \"nvme-tcp\"\nclass_from = \"cattr\"\n[door.nvme-tcp]\nlisten = \"127.0.0.1:0\"\n";
    let node = Node::start(Config::parse(text, "test.toml", std::path::Path::new("/")).unwrap()).unwrap();
    let port = node.listening()[0].port();
    let target: Target = format!("nvme-tcp://127.0.0.1:{port}/nqn.2026-11.io.weir:n1:d?ns=1").parse().unwrap();
    let class = || {
        let look = |s: &mut crate::Shard| {
            let all = s.drives.device(0).machine().controllers();
            all.iter().flat_map(|c| c.queues.iter().map(|q| q.class)).collect::<Vec<_>>()
        };
        node.shards()[0].call(look).unwrap()
    };
    let mut controller = Controller::open(&target, Options { queues: 2, ..options(16) }).unwrap();
    let mut load = Load::new(controller.queue_pair(QueueClass::Fixed(Class::Medium)).unwrap(), 0);
    let _other = controller.queue_pair(QueueClass::Tenant).unwrap();
    assert_eq!(class(), [Class::Medium, Class::High]);
    for wish in [Class::Low, Class::Medium, Class::High, Class::Low] {
        let before = load.finished;
        load.pair.set_class(Some(wish));
        load.until("its queue follows", || {
            let mut both = class();
            both.sort();
            let mut wanted = [wish, Class::High];
            wanted.sort();
            both == wanted
        });
        (0..1_000).for_each(|_| load.turn());
        assert!(load.finished > before);
    }
    drop((load, _other, controller));
    // Weighted: silence would be urgent among the controller's own queues.
    let weighted = Options { weighted: true, unniced: Class::Low, ..options(16) };
    let mut controller = Controller::open(&target, weighted).unwrap();
    let _said = controller.queue_pair(QueueClass::Tenant).unwrap();
    let start = Instant::now();
    while class() != [Class::Low] {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", class());
    }
    drop(controller);
    node.stop();
}

/// What two clients of class high and low get of a drive that knows no classes, and of one client's share when a third stops
/// polling.
#[test]
fn a_gate_shares_a_drive_that_does_not() {
    let config = DeviceConfig::from_query("ram", "capacity=16MiB&latency=50us&slots=8&arbitration=none").unwrap();
    let tenants = ["a", "b", "c"].map(|name| LocalTenant { name: name.into(), class: Class::High });
    let drive = LocalDrive::open(&config, &tenants).unwrap();
    let front = HostArbiterConfig { slots: 8, ..HostArbiterConfig::new(ArbiterSettings::new(Mechanism::Drr)) };
    let gate = FrontArbiter::new(front);
    let mut loads: Vec<Load> = [(0, Class::High), (1, Class::Low), (2, Class::Medium)]
        .map(|(tenant, class)| {
            let options = Options { gate: Some((gate.clone(), gate.tenant())), ..options(64) };
            Load::new(
                Controller::on(&drive, tenant, options).queue_pair(QueueClass::Fixed(class)).unwrap(),
                u64::from(tenant) * 64,
            )
        })
        .into();
    let share = |loads: &mut Vec<Load>, who: &[usize], turns: u32| {
        let before: Vec<u64> = loads.iter().map(|l| l.finished).collect();
        for _ in 0..turns {
            who.iter().for_each(|i| loads[*i].turn());
        }
        loads.iter().zip(before).map(|(l, b)| l.finished - b).collect::<Vec<_>>()
    };
    share(&mut loads, &[0, 1, 2], 2_000);
    let start = Instant::now();
    let mut got = [0; 3];
    while got.iter().sum::<u64>() < 7_000 {
        assert!(start.elapsed() < Duration::from_secs(20));
        for (sum, n) in got.iter_mut().zip(share(&mut loads, &[0, 1, 2], 100)) {
            *sum += n;
        }
    }
    let ratio = |a: u64, b: u64| a as f64 / b as f64;
    assert!((3.8..4.2).contains(&ratio(got[0], got[1])) && (1.9..2.1).contains(&ratio(got[2], got[1])), "{got:?}");
    // The third one's thread does something else.
    let before = loads[0].finished;
    while loads[0].finished < before + 2_000 {
        assert!(start.elapsed() < Duration::from_secs(40), "who sleeps holds the slots");
        share(&mut loads, &[0, 1], 100);
    }
}

#[test]
fn a_queue_pair_is_handed_over_and_asks_as_its_new_user() {
    let target = "local:ram?capacity=16MiB".parse().unwrap();
    let mut controller = Controller::open(&target, Options::default()).unwrap();
    let mut pair = controller.queue_pair(QueueClass::Fixed(Class::Low)).unwrap();
    let namespace = Namespace { nsid: 1, block_size: pair.block_size(), capacity: 16 << 20 };
    assert_eq!(controller.namespace(), namespace);
    let mut done = Vec::new();
    for (class, asks) in [
        (QueueClass::Fixed(Class::High), Some(Class::High)),
        (QueueClass::Tenant, None),
        (QueueClass::Thread, weir_sys::sched::io_class(0).unwrap()),
    ] {
        pair.hand_over(class);
        assert_eq!(pair.class(), asks);
        pair.submit(Io { kind: IoKind::Write, offset: 0, len: 4096, slot: 0 }).unwrap();
        let start = Instant::now();
        while done.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20), "{class:?}: the request does not end");
            pair.poll(&mut done).unwrap();
        }
        assert!(done.drain(..).all(|d| d.status.is_success()));
    }
}
