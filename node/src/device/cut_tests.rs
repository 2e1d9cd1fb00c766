//! Power cuts against an oracle of the bytes: what was flushed is there, what was never written is not.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc;
use weir_controller::{Attach, BlockRequest, ControllerHandle, DataPointer, SqHandle, Tag, TransportModel};
use weir_spec::nvme::Cqe;

const SECTOR: u64 = 512;
/// The host's writes go to the first sectors of the drive, so that they meet.
const SECTORS: u32 = 40 * 8;
const NSID: u32 = 1;

/// A host whose every command writes one value everywhere.
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

/// A command on its way.
struct Pending {
    op: Op,
    sectors: std::ops::Range<u32>,
    fua: bool,
    /// Of a flush: by sector, what had been acknowledged when it was submitted.
    covers: Vec<usize>,
}

/// By sector: all values since the last cut, oldest first; how many of them were acknowledged; from which on they must be there.
struct Oracle {
    values: Vec<Vec<u8>>,
    acked: Vec<usize>,
    certain: Vec<usize>,
}

struct Rig {
    device: Device,
    host: Values,
    reactor: Reactor,
    front: (ControllerHandle, SqHandle),
    pending: HashMap<u32, Pending>,
    oracle: Oracle,
    tag: u32,
    now: Nanos,
    /// Of a drive in a file.
    file: Option<PathBuf>,
}

fn attach(device: &mut Device, now: Nanos) -> (ControllerHandle, SqHandle) {
    let front = Attach { tenant: 0, owner: Owner(1), model: TransportModel::Front, host: "test".into() };
    let controller = device.machine_mut().attach(now, front).unwrap();
    let queue = device.machine_mut().add_message_queue(controller, 256, None, Owner(1)).unwrap();
    (controller, queue)
}

impl Rig {
    fn new(keys: &str, media: MediaConfig) -> Rig {
        let keys = format!("capacity=64MiB&power_cut=true&{keys}");
        let mut config = DeviceConfig::from_query("femu-bbssd", &keys).unwrap_or_else(|e| panic!("{e}"));
        let file = match &media {
            MediaConfig::File(path) => Some(path.clone()),
            _ => None,
        };
        config.media = media;
        let mut device = Device::open(&config, MachineConfig::new("nqn.2026-01.test.weir:ssd0"), Nanos(0)).unwrap();
        let front = attach(&mut device, Nanos(0));
        let n = SECTORS as usize;
        let oracle = Oracle { values: vec![vec![0]; n], acked: vec![0; n], certain: vec![0; n] };
        let (host, reactor) = (Values::default(), Reactor::new().unwrap());
        Rig { device, host, reactor, front, pending: HashMap::new(), oracle, tag: 0, now: Nanos(1), file }
    }

    /// Submits, unless a command for one of the sectors is under way: their order would be anybody's.
    fn submit(&mut self, op: Op, sectors: std::ops::Range<u32>, fua: bool) {
        let meets = |p: &Pending| p.sectors.start < sectors.end && sectors.start < p.sectors.end;
        if self.pending.values().any(meets) {
            return;
        }
        self.tag += 1;
        let value = if op == Op::Write { (self.tag % 255 + 1) as u8 } else { 0 };
        self.host.of.insert(self.tag, value);
        if op != Op::Flush {
            sectors.clone().for_each(|s| self.oracle.values[s as usize].push(value));
        }
        let covers = if op == Op::Flush { self.oracle.acked.clone() } else { Vec::new() };
        let (offset, len) = (u64::from(sectors.start) * SECTOR, (sectors.len() as u64 * SECTOR) as u32);
        let request = BlockRequest { op, nsid: NSID, offset, len, fua };
        self.pending.insert(self.tag, Pending { op, sectors, fua, covers });
        let event = Event::Submit { queue: self.front.1, request, tag: Tag(self.tag) };
        self.device.apply(self.now, event, &mut self.host);
        self.step();
    }

    fn step(&mut self) {
        self.device.run(self.now, &mut self.host, &mut self.reactor, Nanos::NEVER);
        for (tag, status) in std::mem::take(&mut self.host.answers) {
            assert!(status.is_success(), "{status:?}");
            let Some(p) = self.pending.remove(&tag) else { panic!("{tag} is answered twice") };
            let oracle = &mut self.oracle;
            for s in p.sectors.map(|s| s as usize) {
                oracle.acked[s] = oracle.values[s].len() - 1;
                // A trim that covers less than a unit zeroes what the media has of it, which is durable as well.
                if p.fua || p.op == Op::Deallocate {
                    oracle.certain[s] = oracle.acked[s];
                }
            }
            for (certain, covers) in oracle.certain.iter_mut().zip(p.covers) {
                *certain = (*certain).max(covers);
            }
        }
    }

    /// Lets the time pass.
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

    fn sectors(&mut self) -> Vec<u8> {
        let mut found = Vec::new();
        match &mut self.device.backend {
            Backend::Store(store) => {
                let len = (u64::from(SECTORS) * SECTOR) as u32;
                let mut bytes = vec![0; len as usize];
                let put = |at: u32, from: &[u8]| {
                    bytes[at as usize..][..from.len()].copy_from_slice(from);
                    Ok(())
                };
                store.read(0, len, put).unwrap();
                for sector in bytes.chunks(SECTOR as usize) {
                    assert!(sector.iter().all(|b| *b == sector[0]), "a sector is torn: {sector:?}");
                    found.push(sector[0]);
                }
            }
            _ => {
                let mut bytes = vec![0; SECTORS as usize * SECTOR as usize];
                let file = std::fs::File::open(self.file.as_ref().unwrap()).unwrap();
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
                for sector in bytes.chunks(SECTOR as usize) {
                    assert!(sector.iter().all(|b| *b == sector[0]), "a sector is torn: {sector:?}");
                    found.push(sector[0]);
                }
            }
        }
        found
    }

    fn cut(&mut self) -> PowerCut {
        let (reply, answer) = mpsc::sync_channel(1);
        self.device.power_cut(self.now, reply, &mut self.host, &mut self.reactor);
        self.settle();
        let cut = answer.recv().unwrap().unwrap();
        assert_eq!(self.device.disconnects.pop(), Some(Owner(1)), "its host is told");
        self.device.machine_mut().detach(self.now, self.front.0);
        self.pending.clear();
        self.front = attach(&mut self.device, self.now);
        self.pass(cut.rebuild.0);
        assert!(self.device.down.is_none());
        cut
    }

    /// Judges what a cut has left, and goes on from it.
    fn judge(&mut self, found: &[u8]) {
        for (s, found) in found.iter().enumerate() {
            let (values, certain) = (&self.oracle.values[s], self.oracle.certain[s]);
            assert!(values[certain..].contains(found), "sector {s} has {found}, of {values:?} from {certain} on");
            self.oracle.values[s] = vec![*found];
        }
        self.oracle.acked.fill(0);
        self.oracle.certain.fill(0);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit(Op, u32, u32, bool),
    Pass(u64),
    /// Files answer.
    Settle,
    Cut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || (0..SECTORS, prop_oneof![Just(8u32), 1..30u32]);
    let at = |op: Op| move |(first, len): (u32, u32)| Step::Submit(op, first, len, false);
    let aligned = |(first, len): (u32, u32)| Step::Submit(Op::Write, first / 8 * 8, len.next_multiple_of(8), false);
    let step = prop_oneof![
        12 => place().prop_map(aligned),
        6 => place().prop_map(at(Op::Write)),
        2 => place().prop_map(|(first, len)| Step::Submit(Op::Write, first, len, true)),
        2 => place().prop_map(at(Op::Deallocate)),
        2 => Just(Step::Submit(Op::Flush, 0, 0, false)),
        6 => prop_oneof![0..30_000u64, 0..3_000_000u64].prop_map(Step::Pass),
        3 => Just(Step::Settle),
        1 => Just(Step::Cut),
    ];
    proptest::collection::vec(step, 1..200)
}

fn run(rig: &mut Rig, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Submit(op, first, len, fua) => rig.submit(op, first..(first + len).min(SECTORS).max(first), fua),
            Step::Pass(nanos) => rig.pass(nanos),
            Step::Settle => rig.settle(),
            Step::Cut => {
                rig.cut();
                let found = rig.sectors();
                rig.judge(&found);
            }
        }
    }
}

proptest! {
    #[test]
    fn flushed_bytes_survive_and_others_are_old_or_new(
        buffer in prop_oneof![Just("64KiB"), Just("1MiB")],
        flush in prop_oneof![Just("eager"), Just("watermark")],
        steps in steps(),
    ) {
        let keys = format!("buffer={buffer}&early_completion=true&flush={flush}&buffer_latency=1us");
        run(&mut Rig::new(&keys, MediaConfig::Ram), steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(10)))]
    /// The same where I/O begins before its time: a cut meets commands whose bytes are in the file and whose time has not come.
    #[test]
    fn a_file_keeps_the_same_promises(
        flush in prop_oneof![Just("eager"), Just("watermark")],
        latency in prop_oneof![Just("1us"), Just("500us")],
        steps in steps(),
    ) {
        let file = std::env::temp_dir().join(format!("weir-cuts-{}", std::process::id()));
        let keys = format!("buffer=64KiB&early_completion=true&flush={flush}&buffer_latency={latency}");
        let mut rig = Rig::new(&keys, MediaConfig::File(file.clone()));
        run(&mut rig, steps);
        drop(rig);
        for path in [FlashState::path_of(&file), NonvolatileFile::path_of(&file), file] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn what_is_only_in_the_buffer_is_gone() {
    let mut rig = Rig::new("buffer=1MiB&early_completion=true&flush=watermark", MediaConfig::Ram);
    let write = |rig: &mut Rig| (0..10).for_each(|i| rig.submit(Op::Write, i * 8..i * 8 + 8, false));
    write(&mut rig);
    rig.pass(1_000_000);
    let cut = rig.cut();
    assert_eq!((cut.lost_units, cut.lost_writes, cut.power_cycles, cut.unsafe_shutdowns), (10, 10, 2, 1));
    assert!(rig.sectors().iter().all(|s| *s == 0));
    rig.judge(&[0; SECTORS as usize]);
    write(&mut rig);
    rig.submit(Op::Flush, 0..0, false);
    rig.pass(10_000_000);
    let cut = rig.cut();
    assert_eq!((cut.lost_units, cut.unsafe_shutdowns), (0, 2));
    assert!(rig.sectors()[..80].iter().all(|s| *s != 0));
    // A drive that keeps nothing says so.
    let mut config =
        DeviceConfig::from_query("femu-bbssd", "capacity=64MiB&buffer=1MiB&early_completion=true").unwrap();
    config.media = MediaConfig::Ram;
    let mut device = Device::open(&config, MachineConfig::new("nqn.2026-01.test.weir:ssd0"), Nanos(0)).unwrap();
    let (reply, answer) = mpsc::sync_channel(1);
    device.power_cut(Nanos(0), reply, &mut rig.host, &mut rig.reactor);
    let why = answer.recv().unwrap().unwrap_err();
    assert!(why.contains("write power_cut = true"), "{why}");
}

#[test]
fn a_file_is_put_back_as_well() {
    let dir = std::env::temp_dir().join(format!("weir-cut-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("ssd");
    let keys = "buffer=1MiB&early_completion=true&flush=watermark";
    let mut rig = Rig::new(keys, MediaConfig::File(file.clone()));
    let sector = |s: usize| std::fs::read(&file).unwrap()[s * 512];
    rig.submit(Op::Write, 0..16, false);
    rig.pass(1_000);
    rig.settle();
    rig.submit(Op::Flush, 0..0, false);
    rig.pass(10_000_000);
    rig.settle();
    assert!(rig.pending.is_empty());
    let flushed = sector(0);
    assert_eq!((flushed != 0, sector(15)), (true, flushed));
    rig.submit(Op::Write, 8..20, false);
    rig.pass(1_000_000);
    rig.settle();
    let newer = sector(8);
    assert!(newer != flushed && sector(19) == newer && rig.pending.is_empty());
    let cut = rig.cut();
    assert_eq!(cut.lost_units, 2);
    assert_eq!([sector(0), sector(8), sector(15), sector(16), sector(19)], [flushed, flushed, flushed, 0, 0]);
    drop(rig);
    std::fs::remove_dir_all(dir).unwrap();
}
