use super::drives::{Earliest, SLICE};
use super::*;
use std::collections::BTreeMap;
use weir_controller::{
    Attach, BlockRequest, ControllerHandle, DataPointer, SqHandle, Tag, TenantConfig, TransportModel,
};
use weir_spec::nvme::Cqe;
use weir_sys::sched::Waits;
use weir_units::Class;

/// What hosts get: every request has a buffer by its tag.
#[derive(Default)]
pub(super) struct Hosts {
    buffers: BTreeMap<u32, Vec<u8>>,
    answers: Vec<(u32, Status)>,
    touched: Vec<u32>,
}

impl Hosts {
    fn range(&mut self, data: &DataPointer, offset: u32, len: usize) -> Result<(u32, &mut [u8]), Status> {
        let tag = data.as_tag().ok_or(Status::INVALID_FIELD)?.0;
        self.touched.push(tag);
        let buffer = self.buffers.get_mut(&tag).ok_or(Status::DATA_TRANSFER_ERROR)?;
        Ok((tag, &mut buffer[offset as usize..offset as usize + len]))
    }
}

impl Host for Hosts {
    fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
        Err(Status::INTERNAL_ERROR)
    }
    fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
        Err(Status::INTERNAL_ERROR)
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, tag: Tag, cqe: &Cqe) {
        self.answers.push((tag.0, cqe.status()));
    }
    fn read_data(&mut self, _: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        let len = into.len();
        into.copy_from_slice(self.range(data, offset, len)?.1);
        Ok(())
    }
    fn write_data(&mut self, _: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        self.range(data, offset, from.len())?.1.copy_from_slice(from);
        Ok(())
    }
}

/// A RAM drive with one queue.
pub(super) struct Bench {
    pub device: Device,
    pub hosts: Hosts,
    pub reactor: Reactor,
    controller: ControllerHandle,
    queue: SqHandle,
}

impl Bench {
    pub fn new(query: &str) -> Bench {
        Self::around(drive(query))
    }

    /// A drive in a file that is gone with the drive.
    fn in_a_file(name: &str, query: &str) -> Bench {
        let path = std::env::temp_dir().join(format!("weir-timed-{name}-{}", std::process::id()));
        let beside = NonvolatileFile::path_of(&path);
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(&beside));
        let bench = Self::around(drive_on(Some(MediaConfig::File(path.clone())), query));
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&beside).unwrap();
        bench
    }

    fn around((device, controller, queue): (Device, ControllerHandle, SqHandle)) -> Bench {
        Bench { device, hosts: Hosts::default(), reactor: Reactor::new().unwrap(), controller, queue }
    }

    pub fn submit(&mut self, now: Nanos, op: Op, offset: u64, buffer: Vec<u8>) -> u32 {
        let tag = self.hosts.buffers.len() as u32;
        let len = buffer.len() as u32;
        self.hosts.buffers.insert(tag, buffer);
        let request = BlockRequest { op, nsid: 1, offset, len, fua: false };
        let event = Event::Submit { queue: self.queue, request, tag: Tag(tag) };
        self.device.apply(now, event, &mut self.hosts);
        tag
    }

    pub fn run(&mut self, now: Nanos, until: Nanos) -> bool {
        self.device.run(now, &mut self.hosts, &mut self.reactor, until)
    }

    /// Waits until the medium has done all that it was given, and tells the drive at `now`.
    fn files_end(&mut self, now: Nanos) {
        let mut ready = Vec::new();
        while self.device.backend.in_flight() > 0 {
            self.reactor.wait(None, &mut ready);
            for event in ready.drain(..) {
                if let weir_sys::reactor::Ready::File(done) = event {
                    self.device.file_done(done, now, &mut self.hosts, &mut self.reactor);
                }
            }
        }
        self.run(now, Nanos::NEVER);
    }

    /// Whether this request has been answered, and well.
    fn answered(&self, tag: u32) -> bool {
        let found = self.hosts.answers.iter().find(|(t, _)| *t == tag);
        found.inspect(|(_, status)| assert!(status.is_success(), "{status:?}")).is_some()
    }
}

fn drive(query: &str) -> (Device, ControllerHandle, SqHandle) {
    drive_on(None, query)
}

fn drive_on(media: Option<MediaConfig>, query: &str) -> (Device, ControllerHandle, SqHandle) {
    let mut config = DeviceConfig::from_query("ram", query).unwrap();
    config.media = media.unwrap_or(config.media);
    let mut machine = weir_drive::machine_config(&config);
    machine.tenants = vec![TenantConfig { hosts: Vec::new(), ..TenantConfig::new("all", Class::High) }];
    let mut device = Device::open(&config, machine, Nanos(0)).unwrap();
    let attach = Attach { tenant: 0, owner: Owner(0), model: TransportModel::Front, host: "test".into() };
    let machine = device.machine_mut();
    let controller = machine.attach(Nanos(0), attach).unwrap();
    let queue = machine.add_message_queue(controller, 256, None, Owner(0)).unwrap();
    (device, controller, queue)
}

const KIB: usize = 1024;
const US: u64 = 1000;

/// A read returns what is there when it completes: not what was there when it came, nor what comes later.
#[test]
fn data_is_copied_when_the_command_completes() {
    let mut bench = Bench::new("capacity=16MiB&latency=1ms");
    let at = |us| Nanos(us * US);
    bench.submit(at(0), Op::Write, 0, vec![1; 4 * KIB]);
    bench.run(at(0), Nanos::NEVER);
    bench.run(at(1000), Nanos::NEVER);
    let before = bench.submit(at(2000), Op::Read, 0, vec![0; 4 * KIB]);
    bench.run(at(2000), Nanos::NEVER);
    bench.submit(at(2300), Op::Write, 0, vec![2; 4 * KIB]);
    bench.run(at(2300), Nanos::NEVER);
    let after = bench.submit(at(2600), Op::Read, 0, vec![0; 4 * KIB]);
    bench.run(at(2600), Nanos::NEVER);
    for us in [2999, 3000, 3299, 3300, 3599] {
        bench.run(at(us), Nanos::NEVER);
        assert_eq!((bench.answered(before), bench.answered(after)), (us >= 3000, false), "{us}");
    }
    assert_eq!(bench.hosts.buffers[&after], vec![0; 4 * KIB], "not before its time");
    bench.run(at(3600), Nanos::NEVER);
    assert!(bench.answered(after));
    assert_eq!(bench.hosts.buffers[&before], vec![1; 4 * KIB]);
    assert_eq!(bench.hosts.buffers[&after], vec![2; 4 * KIB]);
}

/// A file's own time passes within the modelled time, not after it.
#[test]
fn io_of_a_file_begins_with_its_command() {
    let mut bench = Bench::in_a_file("begins", "capacity=16MiB&latency=100us&slots=4");
    let at = |us| Nanos(us * US);
    let write = bench.submit(at(0), Op::Write, 0, vec![1; 4 * KIB]);
    bench.run(at(0), Nanos::NEVER);
    assert_eq!(bench.device.backend.in_flight(), 1, "begun in the turn in which it came");
    bench.files_end(at(30));
    assert!(!bench.answered(write) && bench.device.due() == at(100));
    bench.run(at(99), Nanos::NEVER);
    assert!(!bench.answered(write));
    bench.run(at(100), Nanos::NEVER);
    assert!(bench.answered(write));
    // The host gets its bytes when the command completes.
    let read = bench.submit(at(200), Op::Read, 0, vec![0; 4 * KIB]);
    bench.run(at(200), Nanos::NEVER);
    bench.files_end(at(250));
    bench.run(at(299), Nanos::NEVER);
    assert_eq!((bench.answered(read), bench.hosts.buffers[&read][0]), (false, 0));
    bench.run(at(300), Nanos::NEVER);
    assert_eq!((bench.answered(read), &bench.hosts.buffers[&read]), (true, &vec![1; 4 * KIB]));
    // A file that takes longer than the model: complete when it is done.
    let late = bench.submit(at(400), Op::Read, 0, vec![0; 64 * KIB]);
    bench.run(at(400), Nanos::NEVER);
    bench.run(at(600), Nanos::NEVER);
    assert!(!bench.answered(late));
    bench.files_end(at(700));
    assert!(bench.answered(late) && bench.device.is_quiet());
    bench.device.machine().check();
}

/// What has completed is seen by every read that comes afterwards, and a read on its way has what was there or what came.
#[test]
fn a_completed_write_is_seen_by_the_reads_after_it() {
    let mut bench = Bench::in_a_file("order", "capacity=16MiB&latency=100us&slots=8");
    let at = |us| Nanos(us * US);
    for value in 0..20 {
        let begin = u64::from(value) * 1000;
        let before = bench.submit(at(begin), Op::Read, 4096, vec![255; 16 * KIB]);
        bench.run(at(begin), Nanos::NEVER);
        let write = bench.submit(at(begin + 10), Op::Write, 4096, vec![value + 1; 16 * KIB]);
        bench.run(at(begin + 10), Nanos::NEVER);
        bench.files_end(at(begin + 60));
        bench.run(at(begin + 110), Nanos::NEVER);
        assert!(bench.answered(before) && bench.answered(write));
        let found = &bench.hosts.buffers[&before];
        assert!(found.iter().all(|b| *b == value || *b == value + 1), "{value}: {found:?}");
        let after = bench.submit(at(begin + 111), Op::Read, 4096, vec![255; 16 * KIB]);
        bench.run(at(begin + 111), Nanos::NEVER);
        bench.files_end(at(begin + 120));
        bench.run(at(begin + 211), Nanos::NEVER);
        assert!(bench.answered(after) && bench.hosts.buffers[&after].iter().all(|b| *b == value + 1));
    }
}

/// Its host goes while its bytes wait for their time.
#[test]
fn what_was_read_early_is_not_given_to_a_host_that_is_gone() {
    let mut bench = Bench::in_a_file("gone", "capacity=16MiB&latency=100us");
    bench.submit(Nanos(0), Op::Read, 0, vec![0; 4 * KIB]);
    bench.run(Nanos(0), Nanos::NEVER);
    bench.files_end(Nanos(10 * US));
    let controller = bench.controller;
    bench.device.machine_mut().detach(Nanos(20 * US), controller);
    bench.run(Nanos(100 * US), Nanos::NEVER);
    assert!(bench.hosts.touched.is_empty() && bench.hosts.answers.is_empty());
    assert!(bench.device.is_quiet());
    bench.device.machine().check();
}

/// Large ones are moved before they are due and completed when they are.
#[test]
fn large_commands_are_moved_early_and_completed_in_time() {
    let mut bench = Bench::new("capacity=16MiB&latency=2ms");
    bench.device.real_time = true;
    let mut early = 0;
    for _ in 0..50 {
        let begun = bench.reactor.now();
        let tag = bench.submit(begun, Op::Write, 0, vec![7; KIB * KIB]);
        let due = begun.saturating_add(Nanos::from_millis(2));
        while !bench.answered(tag) {
            let now = bench.reactor.now();
            bench.run(now, Nanos::NEVER);
            assert!(!bench.answered(tag) || now >= due || bench.reactor.now() >= due, "{now} before {due}");
            early += u32::from(!bench.answered(tag) && bench.hosts.touched.contains(&tag));
            assert!(now.saturating_sub(begun) < Nanos::from_secs(20), "it is never completed");
        }
        assert!(bench.device.is_quiet());
    }
    assert!(early > 0, "none of 50 was moved before it was due");
}

/// Another drive is due: one command more, and the rest in the next run. Nothing is lost, nothing is done twice.
#[test]
fn a_drive_leaves_off_where_another_is_due_and_goes_on() {
    let mut bench = Bench::new("capacity=64MiB&latency=10us&slots=64&slot_bytes=64MiB");
    let tags: Vec<u32> = (0..64).map(|i| bench.submit(Nanos(0), Op::Write, i << 16, vec![i as u8; 64 * KIB])).collect();
    bench.run(Nanos(0), Nanos::NEVER);
    let mut runs = 0;
    while bench.hosts.answers.len() < tags.len() {
        let before = bench.hosts.answers.len();
        assert!(bench.run(Nanos(10 * US), Nanos(1)));
        assert_eq!(bench.hosts.answers.len(), before + 1);
        assert_eq!(bench.device.due() == Nanos(0), !bench.device.deferred.is_empty() || bench.device.dirty);
        runs += 1;
    }
    assert_eq!(runs, 64);
    bench.run(Nanos(11 * US), Nanos::NEVER);
    assert!(tags.iter().all(|t| bench.answered(*t)) && bench.device.is_quiet());
    assert_eq!(bench.hosts.touched.len(), 64);
    bench.device.machine().check();
}

/// Commands that are due together: the first are shown to their hosts without waiting for the last, and when it is too late
/// for that the rest is done without pauses.
#[test]
fn commands_that_are_due_together_are_shown_in_pieces() {
    let mut drives = Drives::default();
    let (mut hosts, mut reactor) = (Hosts::default(), Reactor::new().unwrap());
    let (device, _, queue) = drive("capacity=64MiB&latency=10us&slots=64&slot_bytes=64MiB");
    drives.push(device);
    let start = reactor.now();
    for tag in 0..64 {
        hosts.buffers.insert(tag, vec![1; 16 * KIB]);
        let request = BlockRequest { op: Op::Write, nsid: 1, offset: u64::from(tag) << 16, len: 16 << 10, fua: false };
        drives.apply(0, start, Event::Submit { queue, request, tag: Tag(tag) }, &mut hosts);
    }
    drives.run(start, &mut hosts, &mut reactor);
    let due = start.saturating_add(Nanos::from_micros(10));
    while reactor.now() < due.saturating_add(SHOWN) {}
    // The real clock is past the end of the first piece, whatever the machine does; the turn's own has just come to it.
    assert!(drives.run(due, &mut hosts, &mut reactor));
    assert_eq!(hosts.answers.len(), 1, "shown before the second is begun");
    assert!(drives.run(due, &mut hosts, &mut reactor));
    assert_eq!((hosts.answers.len(), drives.must_poll()), (2, true));
    drives.run(due.saturating_add(LATE), &mut hosts, &mut reactor);
    assert_eq!((hosts.answers.len(), drives.is_quiet()), (64, true), "late anyway");
}

/// A connection goes while its commands wait for another drive: its memory is not touched any more.
#[test]
fn what_was_left_is_not_done_for_a_host_that_is_gone() {
    let mut bench = Bench::new("capacity=64MiB&latency=10us");
    for i in 0..8 {
        bench.submit(Nanos(0), Op::Write, i << 16, vec![1; 64 * KIB]);
    }
    bench.run(Nanos(0), Nanos::NEVER);
    bench.run(Nanos(10 * US), Nanos(1));
    assert_eq!(bench.device.deferred.len(), 7);
    let controller = bench.controller;
    bench.device.machine_mut().detach(Nanos(10 * US), controller);
    bench.hosts.buffers.clear();
    bench.run(Nanos(11 * US), Nanos::NEVER);
    assert!(bench.device.is_quiet() && bench.device.deferred.is_empty());
    assert_eq!((bench.hosts.touched.len(), bench.hosts.answers.len()), (1, 1));
    bench.device.machine().check();
}

/// Two drives of a shard: that one of them has far too much to do costs the other at most what is begun.
#[test]
fn drives_of_a_shard_take_turns_by_their_deadlines() {
    let mut drives = Drives::default();
    let mut hosts = Hosts::default();
    let mut reactor = Reactor::new().unwrap();
    let mut queues = Vec::new();
    for query in ["capacity=64MiB&latency=10us&slots=128&slot_bytes=64MiB", "capacity=1MiB&latency=20us"] {
        let (device, _, queue) = drive(query);
        drives.push(device);
        queues.push(queue);
    }
    let start = reactor.now();
    let submit = |drives: &mut Drives, hosts: &mut Hosts, drive: usize, len: usize| {
        let tag = hosts.buffers.len() as u32;
        hosts.buffers.insert(tag, vec![1; len]);
        let request = BlockRequest { op: Op::Write, nsid: 1, offset: 0, len: len as u32, fua: false };
        let event = Event::Submit { queue: queues[drive], request, tag: Tag(tag) };
        drives.apply(drive as u32, start, event, hosts);
        tag
    };
    // 32 MiB at once: milliseconds of copying, due before the one command of the other drive.
    let busy: Vec<u32> = (0..64).map(|_| submit(&mut drives, &mut hosts, 0, 512 * KIB)).collect();
    let other = submit(&mut drives, &mut hosts, 1, 4 * KIB);
    drives.run(start, &mut hosts, &mut reactor);
    let due = start.saturating_add(Nanos::from_micros(20));
    while hosts.answers.len() < busy.len() + 1 {
        drives.run(reactor.now().max(due), &mut hosts, &mut reactor);
    }
    let place = hosts.answers.iter().position(|(tag, _)| *tag == other).unwrap();
    assert!(place <= 2, "{place} commands of the busy drive were completed before the other drive's");
    assert!(drives.is_quiet());
    let mut waits = Waits::of_this_thread(start);
    drives.measure(&reactor, &mut waits, |_| Nanos(0));
    for (drive, n) in [(0, 64), (1, 1)] {
        let measured = drives.device_mut(drive).deadlines().summary(reactor.now()).unwrap();
        assert_eq!(measured.total.completions, n);
    }
}

#[test]
fn who_is_due_limits_the_others() {
    let mut list: Vec<Device> = (0..3).map(|_| drive("capacity=1MiB").0).collect();
    let now = Nanos::from_secs(1);
    let slices = |list: &[Device]| {
        let all: Vec<u32> = (0..list.len() as u32).collect();
        let due = Earliest::of(list, &all);
        (0..3).map(|i| due.slice(i, now)).collect::<Vec<_>>()
    };
    assert_eq!(slices(&list), [Nanos::NEVER; 3]);
    let soon = now.saturating_add(Nanos::from_micros(30));
    list[1].due = soon;
    assert_eq!(slices(&list), [soon, Nanos::NEVER, soon]);
    list[2].due = Nanos(1);
    let slice = now.saturating_add(SLICE);
    assert_eq!(slices(&list), [slice, slice, soon]);
    list[1].due = now.saturating_add(Nanos::from_secs(1));
    assert_eq!(slices(&list), [slice, slice, Nanos::NEVER], "far away");
}
