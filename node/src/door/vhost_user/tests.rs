//! A node with this door, our own front end at the other end: front ends that come, wait, go in the middle, and are niced.

use crate::node::Node;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_driver::vhost_user::FrontEndOptions;
use weir_driver::{Done, Io, IoKind, QueuePair};
use weir_sys::transport::vhost_user::{VhostUserQueue, connect};
use weir_units::Class;

/// A node on one core with a RAM drive, a tenant of class high, and a folder of its own.
struct Rig {
    node: Option<Node>,
    dir: PathBuf,
}

impl Rig {
    fn new(device: &str, exports: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("weir-door-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let text = format!(
            "[node]\ncores = [0]\napi = \"127.0.0.1:0\"\n[[device]]\nname = \"d\"\nkind = \"ram\"\ncapacity = \"16MiB\"\n\
             {device}\n[[tenant]]\nname = \"gold\"\nclass = \"high\"\nhosts = [\"*\"]\n{exports}"
        );
        let config = Config::parse(&text, "test.toml", &dir).unwrap_or_else(|e| panic!("{e}"));
        Self { node: Some(Node::start(config).unwrap_or_else(|e| panic!("{e}"))), dir }
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    fn front(&self, socket: &str) -> VhostUserQueue {
        front(&self.dir.join(socket))
    }

    fn stop(mut self) {
        self.node.take().expect("it runs").stop();
    }

    /// The classes of a front end's queues, by its socket.
    fn classes(&self, socket: &str) -> Vec<Class> {
        let path = self.dir.join(socket).display().to_string();
        let look = move |s: &mut crate::Shard| {
            let mut all = s.drives.device(0).machine().controllers();
            all.retain(|c| c.host.starts_with(&path));
            all.iter().flat_map(|c| c.queues.iter().map(|q| q.class)).collect()
        };
        self.node().shards()[0].call(look).unwrap()
    }

    fn controllers(&self) -> usize {
        let look = |s: &mut crate::Shard| s.drives.device(0).machine().controllers().len();
        self.node().shards()[0].call(look).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn front(path: &Path) -> VhostUserQueue {
    connect(path, FrontEndOptions::default(), 8, 4096).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn complete(q: &mut VhostUserQueue, io: Io) {
    q.submit(io).unwrap();
    let mut done: Vec<Done> = Vec::new();
    until("a request completes", || {
        q.poll(&mut done).unwrap();
        !done.is_empty()
    });
    assert!(done[0].status.is_success(), "{io:?}");
}

fn write_and_read(q: &mut VhostUserQueue, seed: u8) {
    q.buffer(0).fill(seed);
    complete(q, Io { kind: IoKind::Write, offset: 4096 * u64::from(seed), len: 4096, slot: 0 });
    q.buffer(0).fill(!seed);
    complete(q, Io { kind: IoKind::Read, offset: 4096 * u64::from(seed), len: 4096, slot: 0 });
    assert!(q.buffer(0).iter().all(|b| *b == seed));
}

fn export(socket: &str, more: &str) -> String {
    format!("[[export]]\ndevice = \"d\"\ndoor = \"vhost-user:{socket}\"\ntenant = \"gold\"\n{more}\n")
}

#[test]
fn it_listens_again_when_a_front_end_has_gone() {
    let rig = Rig::new("", &export("a.sock", ""));
    for seed in 0..10 {
        let mut q = rig.front("a.sock");
        write_and_read(&mut q, seed);
        assert_eq!(rig.controllers(), 1);
        drop(q);
    }
    until("the last one's controller goes", || rig.controllers() == 0);
    let path = rig.dir.join("a.sock");
    assert!(path.exists());
    rig.stop();
    assert!(!path.exists(), "a node that stops removes its socket");
}

#[test]
fn a_second_front_end_waits_for_the_first_to_go() {
    let rig = Rig::new("", &export("a.sock", ""));
    let mut first = rig.front("a.sock");
    let path = rig.dir.join("a.sock");
    let second = std::thread::spawn(move || {
        let mut q = front(&path);
        write_and_read(&mut q, 2);
    });
    for seed in 10..60 {
        write_and_read(&mut first, seed);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!second.is_finished(), "one front end at a time");
    assert_eq!(rig.controllers(), 1);
    drop(first);
    second.join().unwrap();
    rig.stop();
}

#[test]
fn what_a_front_end_leaves_in_flight_dies_with_it() {
    let rig = Rig::new("latency = \"300ms\"\nslots = 4", &[export("a.sock", ""), export("b.sock", "")].concat());
    let (mut q, mut other) = (rig.front("a.sock"), rig.front("b.sock"));
    for slot in 0..8 {
        q.buffer(slot).fill(0xee);
        q.submit(Io { kind: IoKind::Write, offset: 1 << 20, len: 4096, slot }).unwrap();
    }
    q.poll(&mut Vec::new()).unwrap();
    let busy = |rig: &Rig| {
        let look = |s: &mut crate::Shard| s.drives.device(0).machine().stats().slots_used;
        rig.node().shards()[0].call(look).unwrap()
    };
    until("all slots are taken", || busy(&rig) == 4);
    drop(q);
    until("its controller goes", || rig.controllers() == 1);
    // The slots come back, and neither the neighbour nor the next front end finds anything of the one before.
    write_and_read(&mut other, 7);
    until("the slots are free", || busy(&rig) == 0);
    let mut next = rig.front("a.sock");
    write_and_read(&mut next, 9);
    assert!(next.poll(&mut Vec::new()).is_ok());
    rig.stop();
}

/// `ionice` on this process, as an operator would; its main thread is whom the kernel names at the other end.
fn ionice(class: &str) {
    let pid = std::process::id().to_string();
    let status = Command::new("ionice").args(["-c", class, "-p", &pid]).status().expect("ionice (util-linux) runs");
    assert!(status.success(), "ionice -c {class}: {status}");
}

#[test]
fn a_niced_front_end_gets_its_class_where_the_export_says_so() {
    // The drive's NVMe/TCP export takes wishes from elsewhere: each export's own counts.
    let tcp = "[[export]]\ndevice = \"d\"\ndoor = \"nvme-tcp\"\nclass_from = \"cattr\"\n[door.nvme-tcp]\nlisten = \"127.0.0.1:0\"\n";
    let exports = [export("peer.sock", "class_from = \"peer\""), export("tenant.sock", "class_from = \"tenant\"")];
    let rig = Rig::new("", &[&exports.concat(), tcp].concat());
    ionice("3");
    let (mut peer, mut plain) = (rig.front("peer.sock"), rig.front("tenant.sock"));
    write_and_read(&mut peer, 1);
    write_and_read(&mut plain, 2);
    assert_eq!((rig.classes("peer.sock"), rig.classes("tenant.sock")), (vec![Class::Low], vec![Class::High]));
    for (priority, class, works) in [("2", Class::Medium, true), ("3", Class::Low, false), ("0", Class::High, true)] {
        ionice(priority);
        // Also while the front end has nothing to ask for.
        until("a change of the priority is followed", || {
            if works {
                write_and_read(&mut peer, 3);
                write_and_read(&mut plain, 4);
            }
            assert_eq!(rig.classes("tenant.sock"), [Class::High]);
            rig.classes("peer.sock") == [class]
        });
    }
    rig.stop();
}
