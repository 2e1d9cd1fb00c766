//! Zones and chunks against an oracle of their blocks: what was completed is there after a stop, a kill and a power cut, and what lies
//! behind a write pointer is not.
// tidy: long because one oracle serves zones and chunks, in every way that a node ends

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc;
use weir_controller::testing::io;
use weir_controller::{
    Attach, ControllerHandle, DataPointer, OpenChannelSet, SqHandle, Tag, TransportModel, ZoneState,
};
use weir_flash::ChunkState;
use weir_spec::nvme::zns::{SendAction, ZonedOpcode};
use weir_spec::nvme::{Cqe, IoOpcode, Sqe};
use weir_sys::keeper_channel::{Channel, ToKeeper, ToWorker};
use zerocopy::little_endian::U32;

const BLOCK: u64 = 4096;

/// A host whose every write writes one value everywhere.
#[derive(Default)]
struct Values {
    of: HashMap<u32, u8>,
    answers: Vec<(u32, Status)>,
}

impl Host for Values {
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
    fn read_data(&mut self, _: Owner, data: &DataPointer, _: u32, into: &mut [u8]) -> Result<(), Status> {
        into.fill(self.of[&data.as_tag().ok_or(Status::INTERNAL_ERROR)?.0]);
        Ok(())
    }
    fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> {
        Ok(())
    }
}

/// What holds what a worker leaves.
struct Keeper {
    channel: Channel,
    keep: Keep,
    held: BTreeMap<String, Vec<OwnedFd>>,
}

impl Keeper {
    /// Beside a worker that begins with what the one before it left.
    fn with(held: BTreeMap<String, Vec<OwnedFd>>) -> Keeper {
        let (channel, theirs) = Channel::pair().unwrap();
        for (name, fds) in &held {
            let fds: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
            channel.tell(&ToWorker::Held(name.clone()), &fds).unwrap();
        }
        channel.tell(&ToWorker::Go(0), &[]).unwrap();
        Keeper { channel, keep: Keep::join(theirs, "", region).unwrap(), held }
    }

    /// The worker has gone, and the next one begins.
    fn next(mut self) -> Keeper {
        while let Some((word, fds)) = self.channel.hear().unwrap() {
            if let ToKeeper::Hold(name) = word {
                self.held.insert(name, fds);
            }
        }
        Keeper::with(self.held)
    }
}

/// What a drive's bytes are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Memory that ends with the process.
    Memory,
    /// Memory that a keeper holds.
    Held,
    File,
}

struct Rig {
    config: DeviceConfig,
    file: PathBuf,
    keeper: Option<Keeper>,
    device: Device,
    host: Values,
    reactor: Reactor,
    queue: SqHandle,
    controller: ControllerHandle,
    tag: u32,
    now: Nanos,
    answers: HashMap<u32, Status>,
}

fn attach(device: &mut Device, now: Nanos) -> (ControllerHandle, SqHandle) {
    let front = Attach { tenant: 0, owner: Owner(1), model: TransportModel::Front, host: "test".into() };
    let controller = device.machine_mut().attach(now, front).unwrap();
    let queue = device.machine_mut().add_message_queue(controller, 256, None, Owner(1)).unwrap();
    (controller, queue)
}

fn open(config: &DeviceConfig, now: Nanos, keeper: Option<&Keeper>) -> Device {
    let keep = keeper.map_or(Keep::none(), |keeper| keeper.keep.clone());
    let begun = std::time::Instant::now();
    loop {
        let machine = MachineConfig::new("nqn.2026-01.test.weir:zns0");
        match Device::open_kept(config, machine, now, &keep).map_err(|e| e.to_string()) {
            // A process that another test starts at that moment has the locks until it is another program.
            Err(e) if e.contains("is in use") && begun.elapsed() < std::time::Duration::from_secs(10) => {
                std::thread::yield_now();
            }
            opened => return opened.unwrap_or_else(|e| panic!("{e}")),
        }
    }
}

/// A drive's bytes, what its zones or chunks are, and what it remembers.
fn remove(file: &Path) {
    for path in [file, &FlashState::path_of(file), &NonvolatileFile::path_of(file)] {
        let _ = std::fs::remove_file(path);
    }
}

impl Rig {
    fn new(name: &str, toml: &str, on: On) -> Rig {
        let file = std::env::temp_dir().join(format!("weir-regions-{name}-{}", std::process::id()));
        remove(&file);
        let media = if on == On::File { format!("media = \"file:{}\"\n", file.display()) } else { String::new() };
        let text = format!("[[device]]\nname = \"zns0\"\nblock_size = 4096\n{media}{toml}\n");
        let config = weir_config::Config::parse(&text, "weir.toml", Path::new("/etc/weir"));
        let config = config.unwrap_or_else(|e| panic!("{e}")).devices[0].clone();
        let keeper = (on == On::Held).then(|| Keeper::with(BTreeMap::new()));
        let mut device = open(&config, Nanos(0), keeper.as_ref());
        let (controller, queue) = attach(&mut device, Nanos(0));
        let (host, reactor, now, answers) = (Values::default(), Reactor::new().unwrap(), Nanos(1), HashMap::new());
        Rig { config, file, keeper, device, host, reactor, queue, controller, tag: 0, now, answers }
    }

    fn submit(&mut self, sqe: Sqe) -> u32 {
        self.tag += 1;
        self.host.of.insert(self.tag, (self.tag % 255 + 1) as u8);
        let event = Event::Capsule { queue: self.queue, sqe, tag: Tag(self.tag) };
        self.device.apply(self.now, event, &mut self.host);
        self.step();
        self.tag
    }

    fn step(&mut self) {
        self.device.run(self.now, &mut self.host, &mut self.reactor, Nanos::NEVER);
        self.answers.extend(self.host.answers.drain(..));
    }

    fn pass(&mut self, nanos: u64) {
        let end = self.now.saturating_add(Nanos(nanos));
        while self.device.due() <= end {
            self.now = self.now.max(self.device.due());
            self.step();
        }
        self.now = end;
    }

    /// Files answer when they have.
    fn settle(&mut self) {
        let mut ready = Vec::new();
        while self.device.backend.in_flight() > 0 {
            self.reactor.wait(None, &mut ready);
            for event in ready.drain(..) {
                if let weir_sys::reactor::Ready::File(done) = event {
                    self.device.file_done(done, self.now, &mut self.host, &mut self.reactor);
                }
            }
            self.step();
        }
    }

    /// Everything that was submitted is over.
    fn finish(&mut self) {
        for _ in 0..64 {
            self.settle();
            self.pass(100_000_000);
        }
    }

    fn command(&mut self, sqe: Sqe) -> Status {
        let tag = self.submit(sqe);
        self.finish();
        self.answers.remove(&tag).expect("the command is complete")
    }

    fn cut(&mut self) -> PowerCut {
        let (reply, answer) = mpsc::sync_channel(1);
        self.device.power_cut(self.now, reply, &mut self.host, &mut self.reactor);
        self.settle();
        let cut = answer.recv().unwrap().unwrap();
        self.answers.extend(self.host.answers.drain(..));
        self.device.machine_mut().detach(self.now, self.controller);
        (self.controller, self.queue) = attach(&mut self.device, self.now);
        self.pass(cut.rebuild.0);
        cut
    }

    /// Another process goes on with the drive, which was stopped or was not.
    fn restart(&mut self, stop: bool) {
        if stop {
            self.finish();
            self.device.close(self.now);
        }
        self.settle();
        self.leave();
        self.keeper = self.keeper.take().map(Keeper::next);
        self.device = open(&self.config, self.now, self.keeper.as_ref());
        (self.controller, self.queue) = attach(&mut self.device, self.now);
    }

    /// The drive is gone, and its locks with it.
    fn leave(&mut self) {
        let none = Subsystem::new(MachineConfig::new("nqn.2026-01.test.weir:none"), Nanos(0)).unwrap();
        self.device = Device::discovery(none);
    }

    fn bytes(&mut self, offset: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        match &mut self.device.backend {
            Backend::Store(store) => {
                let put = |at: u32, from: &[u8]| {
                    bytes[at as usize..][..from.len()].copy_from_slice(from);
                    Ok(())
                };
                store.read(offset, len, put).unwrap();
            }
            _ => {
                let file = std::fs::File::open(&self.file).unwrap();
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, offset).unwrap();
            }
        }
        bytes
    }

    /// The value of each block from `first` on; none is torn within.
    fn blocks(&mut self, first: u64, count: u32) -> Vec<u8> {
        let bytes = self.bytes(first * BLOCK, count * BLOCK as u32);
        let blocks = bytes.chunks(BLOCK as usize);
        blocks.map(|b| if b.iter().all(|x| *x == b[0]) { b[0] } else { panic!("a block is torn") }).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        remove(&self.file);
    }
}

const ZONES: u32 = 6;
const SIZE: u64 = 32;
const CAPACITY: u32 = 24;

fn zns(more: &str) -> String {
    format!(
        "capacity = \"768KiB\"\nzoned = {{ zone_size = \"128KiB\", zone_capacity = \"96KiB\", max_open = 3, max_active = 4{more} }}"
    )
}

fn send(action: SendAction, zone: u32) -> Sqe {
    let opcode = ZonedOpcode::ZONE_MANAGEMENT_SEND.0;
    Sqe { cdw13: U32::new(action.0.into()), ..io(opcode, 1, u64::from(zone) * SIZE, 1) }
}

/// What is known of a zone.
#[derive(Clone, Debug, Default)]
struct Known {
    /// By block: what it must be, and whether the write was completed.
    blocks: BTreeMap<u32, (u8, bool)>,
    /// Blocks that must be there, from the front.
    certain: u32,
    finished: bool,
    /// A reset or finish is under way.
    unsure: bool,
}

enum Pending {
    Write { zone: u32, at: u32, blocks: u32, fua: bool },
    Reset(u32),
    Finish(u32),
    Flush(Vec<u32>),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u32, u32, bool),
    Append(u32, u32),
    Reset(u32),
    Finish(u32),
    Flush,
    Pass(u64),
    Settle,
    Cut,
    Kill,
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let zone = || 0..ZONES;
    let step = prop_oneof![
        10 => (zone(), 1..9u32, proptest::bool::weighted(0.1)).prop_map(|(z, n, fua)| Step::Write(z, n, fua)),
        6 => (zone(), 1..9u32).prop_map(|(z, n)| Step::Append(z, n)),
        2 => zone().prop_map(Step::Reset),
        1 => zone().prop_map(Step::Finish),
        2 => Just(Step::Flush),
        6 => prop_oneof![0..30_000u64, 0..3_000_000u64].prop_map(Step::Pass),
        4 => Just(Step::Settle),
        1 => Just(Step::Cut),
        1 => Just(Step::Kill),
        1 => Just(Step::Stop),
    ];
    proptest::collection::vec(step, 1..100)
}

struct World {
    rig: Rig,
    known: Vec<Known>,
    pending: HashMap<u32, Pending>,
    volatile: bool,
    /// It goes on in another process.
    outlives: bool,
}

impl World {
    fn zone(&self, zone: u32) -> (ZoneState, u32) {
        let zone = self.rig.device.machine().zones(1).and_then(|zones| zones.get(zone)).unwrap();
        (zone.state, zone.wp)
    }

    fn start(&mut self, sqe: Sqe, pending: Pending) {
        let before = self.zones();
        let tag = self.rig.submit(sqe);
        let value = (tag % 255 + 1) as u8;
        let after = self.zones();
        match &pending {
            Pending::Write { zone, at, blocks, .. } if before[*zone as usize] != after[*zone as usize] => {
                let known = &mut self.known[*zone as usize];
                known.blocks.extend((*at..at + blocks).map(|b| (b, (value, false))));
            }
            Pending::Reset(zone) | Pending::Finish(zone) => self.known[*zone as usize].unsure = true,
            _ => {}
        }
        self.pending.insert(tag, pending);
        self.answered();
    }

    fn zones(&self) -> Vec<(ZoneState, u32)> {
        (0..ZONES).map(|zone| self.zone(zone)).collect()
    }

    fn answered(&mut self) {
        for (tag, status) in self.rig.answers.drain().collect::<Vec<_>>() {
            let Some(pending) = self.pending.remove(&tag) else { continue };
            let ok = status.is_success();
            match pending {
                Pending::Write { zone, at, blocks, fua } if ok => {
                    let known = &mut self.known[zone as usize];
                    known.blocks.range_mut(at..at + blocks).for_each(|(_, k)| k.1 = true);
                    if fua || !self.volatile {
                        known.certain = known.certain.max(at + blocks);
                    }
                }
                Pending::Reset(zone) if ok => self.known[zone as usize] = Known::default(),
                Pending::Finish(zone) => {
                    let known = &mut self.known[zone as usize];
                    known.unsure = false;
                    known.finished |= ok;
                    if ok {
                        known.certain = known.blocks.iter().filter(|(_, k)| k.1).map(|(b, _)| b + 1).max().unwrap_or(0);
                    }
                }
                Pending::Reset(zone) => self.known[zone as usize].unsure = false,
                Pending::Flush(ends) if ok => {
                    for (known, end) in self.known.iter_mut().zip(ends) {
                        known.certain = known.certain.max(end);
                    }
                }
                _ => {}
            }
        }
    }

    fn busy(&self, zone: u32) -> bool {
        self.pending.values().any(|p| match p {
            Pending::Write { zone: z, .. } | Pending::Reset(z) | Pending::Finish(z) => *z == zone,
            Pending::Flush(_) => false,
        })
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write(zone, blocks, fua) => {
                let (_, at) = self.zone(zone);
                let mut sqe = io(IoOpcode::WRITE.0, 1, u64::from(zone) * SIZE + u64::from(at), blocks);
                if fua {
                    sqe.cdw12 = U32::new(sqe.cdw12.get() | 1 << 30);
                }
                self.start(sqe, Pending::Write { zone, at, blocks, fua });
            }
            Step::Append(zone, blocks) => {
                let (_, at) = self.zone(zone);
                let sqe = io(ZonedOpcode::ZONE_APPEND.0, 1, u64::from(zone) * SIZE, blocks);
                self.start(sqe, Pending::Write { zone, at, blocks, fua: false });
            }
            // A host waits for what it has sent to the zone; flushes are of what was complete.
            Step::Reset(zone) | Step::Finish(zone) if self.busy(zone) => {}
            Step::Reset(zone) => {
                if !self.pending.values().any(|p| matches!(p, Pending::Flush(_))) {
                    self.start(send(SendAction::RESET, zone), Pending::Reset(zone));
                }
            }
            Step::Finish(zone) => self.start(send(SendAction::FINISH, zone), Pending::Finish(zone)),
            Step::Flush => {
                let end = |k: &Known| k.blocks.iter().filter(|(_, k)| k.1).map(|(b, _)| b + 1).max().unwrap_or(0);
                // What is being reset promises nothing.
                let ends = self.known.iter().map(|k| if k.unsure { 0 } else { end(k) }).collect();
                let flush = Sqe { opcode: IoOpcode::FLUSH.0, ..io(0, 1, 0, 1) };
                self.start(flush, Pending::Flush(ends));
            }
            Step::Pass(nanos) => self.rig.pass(nanos),
            Step::Settle => self.rig.settle(),
            Step::Cut => {
                self.rig.cut();
                self.judge(true);
            }
            Step::Kill if self.outlives => {
                self.rig.restart(false);
                self.judge(false);
            }
            Step::Stop if self.outlives => {
                self.rig.finish();
                self.answered();
                self.rig.restart(true);
                assert!(self.pending.is_empty());
                self.judge(false);
            }
            Step::Kill | Step::Stop => {}
        }
        self.answered();
    }

    /// What is there of every zone after it lost its power, or its process. `cut`: a volatile buffer is gone.
    fn judge(&mut self, cut: bool) {
        self.answered();
        for zone in 0..ZONES {
            let (state, wp) = self.zone(zone);
            let found = self.rig.blocks(u64::from(zone) * SIZE, SIZE as u32);
            let known = &self.known[zone as usize];
            let acked = known.blocks.iter().filter(|(_, k)| k.1).map(|(b, _)| b + 1).max().unwrap_or(0);
            let certain = if cut { known.certain } else { acked };
            let context = format!("zone {zone} is {state:?} up to {wp}, has {found:?}; {known:?}");
            assert!(!state.is_open(), "{context}");
            if known.unsure && state == ZoneState::Empty {
                assert!(found.iter().all(|b| *b == 0), "{context}");
            } else {
                assert!(wp >= certain && wp <= CAPACITY, "{context}");
                assert!(!known.finished || state == ZoneState::Full, "{context}");
                let mut gone = false;
                for (b, found) in found.iter().enumerate() {
                    match known.blocks.get(&(b as u32)) {
                        Some((value, true)) if !gone => {
                            gone = found != value;
                            assert!(!gone || b as u32 >= certain && *found == 0, "block {b}: {context}");
                        }
                        Some((value, false)) => assert!(*found == 0 || found == value, "block {b}: {context}"),
                        _ => assert_eq!(*found, 0, "block {b}: {context}"),
                    }
                    assert!(*found == 0 || (b as u32) < wp, "block {b} lies behind the write pointer: {context}");
                }
            }
            let there = |b: u32| found.get(b as usize).copied().filter(|_| b < wp);
            let kept = (0..CAPACITY).filter_map(|b| Some((b, (there(b).filter(|v| *v != 0)?, true))));
            let blocks: BTreeMap<u32, (u8, bool)> = kept.collect();
            let certain = blocks.keys().map(|b| b + 1).max().unwrap_or(0);
            let finished = state == ZoneState::Full;
            self.known[zone as usize] = Known { blocks, certain, finished, unsure: false };
        }
        self.pending.clear();
        self.rig.device.machine().zones(1).unwrap().check();
    }
}

fn run(name: &str, (more, volatile): (&str, bool), on: On, steps: Vec<Step>) {
    let rig = Rig::new(name, &zns(more), on);
    let (known, outlives) = (vec![Known::default(); ZONES as usize], on != On::Memory);
    let mut world = World { rig, known, pending: HashMap::new(), volatile, outlives };
    steps.into_iter().for_each(|step| world.step(step));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(6)))]
    #[test]
    fn zones_in_memory_survive_power_cuts(
        flash in prop_oneof![Just(""), Just(", flash = \"femu-bbssd\", dies = 1")],
        volatile: bool,
        steps in steps(),
    ) {
        run("ram", (&format!("{flash}, power_protected = {}", !volatile), volatile), On::Memory, steps);
    }

    #[test]
    fn zones_in_memory_that_is_held_survive_everything(
        flash in prop_oneof![Just(""), Just(", flash = \"femu-bbssd\", dies = 1")],
        volatile: bool,
        steps in steps(),
    ) {
        run("held", (&format!("{flash}, power_protected = {}", !volatile), volatile), On::Held, steps);
    }

    #[test]
    fn zones_in_a_file_survive_everything(
        flash in prop_oneof![Just(""), Just(", flash = \"femu-bbssd\", dies = 1")],
        volatile: bool,
        steps in steps(),
    ) {
        run("file", (&format!("{flash}, power_protected = {}", !volatile), volatile), On::File, steps);
    }
}

/// By hand: states, extension, random write area and wear of zones that another process finds.
#[test]
fn another_process_finds_the_zones() {
    [On::File, On::Held].into_iter().for_each(finds_the_zones);
}

fn finds_the_zones(on: On) {
    let more = ", zrwa = \"16KiB\", descriptor_extension = 64, flash = \"femu-bbssd\", dies = 1";
    let mut rig = Rig::new("again", &zns(more), on);
    assert_eq!(rig.device.machine().config().management, None, "hosts neither make nor delete zoned namespaces");
    let write = |rig: &mut Rig, lba: u64, blocks| assert_eq!(rig.command(io(1, 1, lba, blocks)), Status::SUCCESS);
    write(&mut rig, 0, 5);
    write(&mut rig, SIZE, 24);
    assert_eq!(rig.command(send(SendAction::FINISH, 2)), Status::SUCCESS);
    write(&mut rig, 3 * SIZE, 8);
    assert_eq!(rig.command(send(SendAction::RESET, 3)), Status::SUCCESS);
    // A random write area of four blocks, of which the third is written; the explicit opening says so by bit 9 of dword 13.
    let zrwa = |zone| Sqe { cdw13: U32::new(u32::from(SendAction::OPEN.0) | 1 << 9), ..send(SendAction::OPEN, zone) };
    assert_eq!(rig.command(zrwa(4)), Status::SUCCESS);
    write(&mut rig, 4 * SIZE, 1);
    assert_eq!(rig.command(send(SendAction::FLUSH_ZRWA, 4)), Status::SUCCESS);
    write(&mut rig, 4 * SIZE + 3, 1);
    let extend = send(SendAction::SET_DESCRIPTOR_EXTENSION, 5);
    assert_eq!(rig.command(extend), Status::SUCCESS);
    let extension = rig.device.machine().zones(1).unwrap().extension(5).to_vec();
    assert!(extension.len() == 64 && extension[0] != 0);
    for stop in [true, false] {
        rig.restart(stop);
        let zones = rig.device.machine().zones(1).unwrap();
        zones.check();
        let found: Vec<_> = zones.iter().map(|z| (z.state, z.wp, z.zrwa, z.extended)).collect();
        let (closed, full) = (ZoneState::Closed, ZoneState::Full);
        let expected = [
            (closed, 5, false, false),
            (full, 24, false, false),
            (full, 24, false, false),
            (ZoneState::Empty, 0, false, false),
            (closed, 1, true, false),
            (closed, 0, false, true),
        ];
        assert_eq!(found, expected, "stopped: {stop}");
        assert_eq!(zones.extension(5), &extension[..]);
        let blocks = rig.blocks(4 * SIZE, 8);
        assert!(blocks[0] != 0 && blocks[3] != 0 && blocks[1..3] == [0; 2] && blocks[4..] == [0; 4], "{blocks:?}");
        assert_eq!(rig.blocks(3 * SIZE, 8), [0; 8]);
    }
    assert_eq!(rig.device.machine().power_history(), (3, 1));
    // The area is still there: its blocks may be written in any order.
    write(&mut rig, 4 * SIZE + 2, 1);
    write(&mut rig, 5, 3);
    assert_eq!(rig.command(io(1, 1, 7, 1)), Status::ZONE_INVALID_WRITE.dnr());
}

#[test]
fn what_cannot_be_gone_on_from_is_said() {
    let mut rig = Rig::new("refused", &zns(""), On::File);
    assert_eq!(rig.command(io(1, 1, 0, 5)), Status::SUCCESS);
    rig.restart(true);
    let refused = |rig: &mut Rig, toml: String| {
        rig.device.close(Nanos(0));
        rig.leave();
        let text =
            format!("[[device]]\nname = \"zns0\"\nblock_size = 4096\nmedia = \"file:{}\"\n{toml}", rig.file.display());
        let config = weir_config::Config::parse(&text, "weir.toml", Path::new("/etc/weir")).unwrap();
        let machine = MachineConfig::new("nqn.2026-01.test.weir:zns0");
        Device::open(&config.devices[0], machine, Nanos(0)).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let other = zns("").replace("96KiB", "64KiB");
    let e = refused(&mut rig, other);
    assert!(e.contains("zone_capacity = 98304, the configuration says 65536"), "{e}");
    let e = refused(&mut rig, "capacity = \"768KiB\"\nprofile = \"femu-bbssd\"\n".into());
    assert!(!e.is_empty());
    std::fs::remove_file(FlashState::path_of(&rig.file)).unwrap();
    let e = refused(&mut rig, zns(""));
    assert!(e.contains("holds data, but"), "{e}");
}

/// An Open-Channel drive: chunks and their wear.
#[test]
fn another_process_finds_the_chunks() {
    [On::File, On::Held].into_iter().for_each(finds_the_chunks);
}

/// A drive in memory that was of another kind when it was left: neither its bytes nor what its zones were.
#[test]
fn a_drive_that_is_not_zoned_any_more_is_new() {
    let mut rig = Rig::new("other", &zns(""), On::Held);
    let zoned = rig.config.clone();
    assert_eq!(rig.command(io(1, 1, 0, 5)), Status::SUCCESS);
    let value = (rig.tag % 255 + 1) as u8;
    rig.config.zoned = None;
    rig.restart(true);
    assert_eq!(rig.blocks(0, 5), [0; 5]);
    assert_eq!(rig.command(io(1, 1, 3, 5)), Status::SUCCESS);
    rig.config = zoned;
    rig.restart(true);
    let zone = *rig.device.machine().zones(1).unwrap().get(0).as_ref().unwrap();
    assert_eq!((zone.state, zone.wp), (ZoneState::Closed, 5));
    assert_eq!(rig.blocks(0, 8), [value, value, value, value, value, 0, 0, 0]);
}

fn finds_the_chunks(on: On) {
    let toml = "profile = \"femu-oc\"\nopen_channel = { max_open = 8 }\nchannels = 2\nways = 1\nplanes = 2\nblocks = 4\npages = 8\n\
                page_size = 4096\n";
    let mut rig = Rig::new("oc", toml, on);
    let set = |rig: &Rig| -> (u64, u32, Vec<(ChunkState, u32, u32)>) {
        let set = rig.device.machine().vendor().and_then(|v| v.as_any().downcast_ref::<OpenChannelSet>()).unwrap();
        let chunks = set.drive().chunks();
        let address = set.drive().format().encode(weir_flash::Ppa { chunk: 1, block: 0 });
        (address, chunks.config().ws_min, chunks.iter().map(|c| (c.state, c.wp, c.resets)).collect())
    };
    let (second, unit, _) = set(&rig);
    let blocks = 16;
    let write = |rig: &mut Rig, at: u64| assert_eq!(rig.command(io(1, 1, at, unit)), Status::SUCCESS);
    // The first chunk full, reset, and written anew; the second closed.
    for at in 0..u64::from(blocks / unit) {
        write(&mut rig, at * u64::from(unit));
        write(&mut rig, second + at * u64::from(unit));
    }
    assert_eq!(rig.command(io(0x90, 1, 0, 1)), Status::SUCCESS);
    write(&mut rig, 0);
    let value = (rig.tag % 255 + 1) as u8;
    let before = set(&rig).2;
    assert_eq!(before[..2], [(ChunkState::Open, unit, 1), (ChunkState::Closed, blocks, 0)]);
    for stop in [true, false] {
        rig.restart(stop);
        assert_eq!(set(&rig).2, before, "stopped: {stop}");
        let found = rig.blocks(0, blocks);
        assert!(found[..unit as usize].iter().all(|v| *v == value) && found[unit as usize..].iter().all(|v| *v == 0));
    }
    // A write that has not come to its end when the power goes is not there.
    rig.submit(io(1, 1, unit.into(), unit));
    rig.cut();
    assert_eq!(set(&rig).2, before);
    assert_eq!(rig.blocks(0, blocks)[unit as usize..], vec![0; (blocks - unit) as usize]);
    assert_eq!(rig.device.machine().power_history(), (4, 2));
}
