//! A drive of volumes loses its power: which of their hosts are told, and how often.

use super::volumes::FRONT;
use super::*;
use crate::directory::Place;
use crate::pool::drive_queue::{LayoutTime, Piece, Reach};
use std::collections::HashMap;
use std::sync::mpsc;
use weir_controller::{
    Attach, BlockRequest, ControllerHandle, DataPointer, NamespaceConfig, SqHandle, Tag, TransportModel,
};
use weir_pool::{CHUNK, VolumeId, VolumeSegment};
use weir_spec::nvme::Cqe;

#[derive(Default)]
struct Hosts(HashMap<u32, Status>);

impl Host for Hosts {
    fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
        Err(Status::INTERNAL_ERROR)
    }
    fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
        Err(Status::INTERNAL_ERROR)
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, tag: Tag, cqe: &Cqe) {
        self.0.insert(tag.0, cqe.status());
    }
    fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, into: &mut [u8]) -> Result<(), Status> {
        into.fill(7);
        Ok(())
    }
    fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> {
        Ok(())
    }
}

struct Bench {
    drives: Drives,
    hosts: Hosts,
    reactor: Reactor,
    now: Nanos,
    tag: u32,
}

/// A host's way to a volume.
#[derive(Clone, Copy)]
struct Client {
    front: u32,
    controller: ControllerHandle,
    queue: SqHandle,
}

impl Bench {
    /// Drives of one shard with equal histories, and a volume on each.
    fn new(drives: u32) -> (Bench, Vec<u32>) {
        let (reactor, hosts) = (Reactor::new().unwrap(), Hosts::default());
        let mut bench = Bench { drives: Drives::default(), hosts, reactor, now: Nanos(1), tag: 0 };
        let keys = "capacity=64MiB&power_cut=true&buffer=1MiB&early_completion=true&flush=watermark";
        for _ in 0..drives {
            let mut config = DeviceConfig::from_query("femu-bbssd", keys).unwrap();
            config.media = MediaConfig::Ram;
            let machine =
                MachineConfig { volatile_write_cache: true, ..MachineConfig::new("nqn.2026-01.test.weir:ssd0") };
            bench.drives.push(Device::open(&config, machine, Nanos(0)).unwrap());
        }
        let fronts = (0..drives).map(|drive| bench.front(&[drive])).collect();
        (bench, fronts)
    }

    fn front(&mut self, on: &[u32]) -> u32 {
        let block_size = self.drives.get(on[0]).config().namespaces[0].block_size;
        let size = 4 * CHUNK * on.len() as u64;
        let namespaces = vec![NamespaceConfig { nsid: 1, start: 0, size, block_size, uuid: [1; 16] }];
        let machine =
            MachineConfig { namespaces, volatile_write_cache: true, ..MachineConfig::new("nqn.2026-01.test.weir:v") };
        let front = self.drives.add_front((0, VolumeId(1)), (0, machine, None, None), self.now).unwrap();
        let piece = |(i, drive): (usize, &u32)| {
            let segment = VolumeSegment {
                logical: 4 * i as u32,
                drive: i,
                start: 4,
                len: 4,
                lost: false,
                shared: false,
                second: None,
            };
            let first = Some(Reach { place: Place { shard: 0, drive: *drive }, guest: None });
            Piece { first, second: None, segment }
        };
        let pieces: Vec<_> = on.iter().enumerate().map(piece).collect();
        let time = LayoutTime { changes: 0, returning: Vec::new() };
        self.drives.lay_out(front, (&pieces, &time), self.now).unwrap();
        assert_ne!(front & FRONT, 0);
        front
    }

    fn connect(&mut self, front: u32, host: &str) -> Client {
        let attach = Attach { tenant: 0, owner: Owner(1), model: TransportModel::Front, host: host.into() };
        let machine = self.drives.get(front);
        let controller = machine.attach(self.now, attach).unwrap();
        Client { front, controller, queue: machine.add_message_queue(controller, 16, None, Owner(1)).unwrap() }
    }

    fn gone(&mut self, client: Client) {
        self.drives.get(client.front).detach(self.now, client.controller);
    }

    fn begin(&mut self, client: Client, op: Op) -> u32 {
        self.tag += 1;
        let len = if op == Op::Write { 4096 } else { 0 };
        let request = BlockRequest { op, nsid: 1, offset: 0, len, fua: false };
        let event = Event::Submit { queue: client.queue, request, tag: Tag(self.tag) };
        self.drives.apply(client.front, self.now, event, &mut self.hosts);
        self.tag
    }

    fn until(&mut self, tag: u32) -> Status {
        for _ in 0..100_000 {
            self.drives.run(self.now, &mut self.hosts, &mut self.reactor);
            self.drives.take_disconnects(self.now, &mut Vec::new());
            if let Some(status) = self.hosts.0.remove(&tag) {
                return status;
            }
            self.now = self.now.saturating_add(Nanos(10_000));
        }
        panic!("no answer");
    }

    fn io(&mut self, client: Client, op: Op) -> Status {
        let tag = self.begin(client, op);
        self.until(tag)
    }

    fn flushes(&mut self, client: Client) -> [bool; 2] {
        [(); 2].map(|()| {
            let status = self.io(client, Op::Flush);
            assert!(status.is_success() || status == Status::WRITE_FAULT.dnr(), "{status:?}");
            status.is_success()
        })
    }

    fn write(&mut self, client: Client) {
        assert!(self.io(client, Op::Write).is_success());
    }

    fn cut(&mut self, drive: u32) {
        let (reply, answer) = mpsc::sync_channel(1);
        self.drives.power_cut(drive, self.now, reply, &mut self.hosts, &mut self.reactor);
        self.drives.take_disconnects(self.now, &mut Vec::new());
        let cut = answer.recv().unwrap().unwrap();
        let up = self.now.saturating_add(cut.rebuild).saturating_add(Nanos(1_000_000));
        while self.now < up {
            self.drives.run(self.now, &mut self.hosts, &mut self.reactor);
            self.now = self.now.saturating_add(Nanos(100_000));
        }
    }
}

const TOLD: [bool; 2] = [false, true];
const FINE: [bool; 2] = [true, true];

#[test]
fn each_volume_hears_of_its_own_drive() {
    let (mut bench, fronts) = Bench::new(2);
    let [a, b] = [0, 1].map(|i: usize| bench.connect(fronts[i], "a"));
    bench.write(a);
    bench.write(b);
    bench.cut(0);
    // Then the other one: the queues of both have been made again alike.
    bench.cut(1);
    assert_eq!((bench.flushes(a), bench.flushes(b)), (TOLD, TOLD));
    bench.cut(0);
    assert_eq!((bench.flushes(b), bench.flushes(a)), (FINE, TOLD));
}

#[test]
fn each_host_is_told_once() {
    let (mut bench, fronts) = Bench::new(1);
    let [a, b] = ["a", "b"].map(|host| bench.connect(fronts[0], host));
    bench.write(a);
    bench.cut(0);
    bench.cut(0);
    assert_eq!((bench.flushes(b), bench.flushes(a)), (TOLD, TOLD), "whoever flushes first");
    // Who comes later has lost nothing.
    let c = bench.connect(fronts[0], "c");
    assert_eq!(bench.flushes(c), FINE);
    // Who comes again has, even before the drive has forgotten the other connection.
    bench.write(b);
    bench.cut(0);
    let again = bench.connect(fronts[0], "b");
    assert_eq!(bench.flushes(again), FINE);
    bench.gone(b);
    assert_eq!((bench.flushes(again), bench.flushes(a), bench.flushes(c)), (TOLD, TOLD, TOLD));
    // With nobody there, whoever comes.
    for client in [a, again, c] {
        bench.gone(client);
    }
    bench.cut(0);
    let d = bench.connect(fronts[0], "d");
    assert_eq!(bench.flushes(d), TOLD);
    bench.drives.machine(fronts[0]).check();
}

#[test]
fn a_volume_on_two_drives_hears_of_either() {
    let (mut bench, _) = Bench::new(2);
    let wide = bench.front(&[0, 1]);
    let a = bench.connect(wide, "a");
    for drive in [0, 1, 0] {
        bench.write(a);
        bench.cut(drive);
        assert_eq!(bench.flushes(a), TOLD, "{drive}");
    }
    bench.write(a);
    bench.cut(0);
    bench.cut(1);
    assert_eq!(bench.flushes(a), TOLD);
}
