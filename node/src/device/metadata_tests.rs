//! Namespaces of a drive in a file, with metadata and without: a host's own commands, and what is there after a stop and a kill.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use weir_controller::testing::{TestHost, admin, io};
use weir_controller::{ConnectRequest, SqHandle, Tag};
use weir_spec::nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, Property};
use weir_spec::nvme::identify::{IdentifyNamespace, cns, namespace_list};
use weir_spec::nvme::namespace::{FormatDw10, HostSoftwareFields, attachment, management};
use weir_spec::nvme::nvm::{CopyDw12, CopyRange, FUA};
use weir_spec::nvme::register;
use weir_spec::nvme::{AdminOpcode, Cqe, FabricsType, IoOpcode, Sqe};
use weir_sys::media::MetadataFile;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const NQN: &str = "nqn.2026-01.test.weir:meta0";
const READ: u8 = IoOpcode::READ.0;
const WRITE: u8 = IoOpcode::WRITE.0;

struct Rig {
    config: DeviceConfig,
    file: PathBuf,
    device: Device,
    host: TestHost,
    reactor: Reactor,
    /// The admin queue, and an I/O queue.
    queues: Vec<SqHandle>,
    cntlid: u16,
    tag: u32,
    now: Nanos,
    answers: HashMap<u32, Cqe>,
}

fn remove(file: &Path) {
    for path in [file, &FlashState::path_of(file), &NonvolatileFile::path_of(file), &MetadataFile::path_of(file)] {
        let _ = std::fs::remove_file(path);
    }
}

fn open(config: &DeviceConfig, now: Nanos) -> Result<Device, OpenError> {
    let mut machine = MachineConfig::new(NQN);
    machine.tenants = vec![weir_controller::TenantConfig {
        hosts: vec!["*".into()],
        ..weir_controller::TenantConfig::new("all", weir_units::Class::High)
    }];
    machine.admin_rate = 1_000_000;
    Device::open(config, machine, now)
}

impl Rig {
    fn new(name: &str, toml: &str) -> Rig {
        let file = std::env::temp_dir().join(format!("weir-metadata-{name}-{}", std::process::id()));
        remove(&file);
        let text = format!("[[device]]\nname = \"meta0\"\nmedia = \"file:{}\"\n{toml}\n", file.display());
        let config = weir_config::Config::parse(&text, "weir.toml", Path::new("/etc/weir"));
        let config = config.unwrap_or_else(|e| panic!("{e}")).devices[0].clone();
        let device = open(&config, Nanos(0)).unwrap_or_else(|e| panic!("{e}"));
        let (host, reactor) = (TestHost::default(), Reactor::new().unwrap());
        let (tag, now, answers) = (0, Nanos(1), HashMap::new());
        let mut rig = Rig { config, file, device, host, reactor, queues: Vec::new(), cntlid: 0, tag, now, answers };
        rig.connect();
        rig
    }

    fn connect(&mut self) {
        let data = ConnectData::new(NQN, "nqn.host", [1; 16], CNTLID_DYNAMIC);
        let connect = |qid: u16| Connect {
            opcode: AdminOpcode::FABRICS.0,
            fctype: FabricsType::CONNECT.0,
            qid: U16::new(qid),
            sqsize: U16::new(63),
            ..Connect::default()
        };
        let request = ConnectRequest::new(&Sqe::from(connect(0)), &data, Owner(1));
        let admin = self.device.machine_mut().connect(self.now, &request).unwrap();
        (self.queues, self.cntlid) = (vec![admin.queue], admin.cntlid);
        let cc = register::Cc(0).with_en(1).with_iosqes(6).with_iocqes(4);
        let (ofst, value) = (U32::new(register::CC), U64::new(cc.0.into()));
        let set = Property { opcode: 0x7f, ofst, value, ..Property::default() };
        assert!(self.admin(set.into(), &[]).status().is_success());
        let data = ConnectData { cntlid: U16::new(admin.cntlid), ..data };
        let request = ConnectRequest::new(&Sqe::from(connect(1)), &data, Owner(2));
        self.queues.push(self.device.machine_mut().connect(self.now, &request).unwrap().queue);
    }

    fn submit(&mut self, queue: usize, sqe: Sqe, data: &[u8]) -> u32 {
        self.tag += 1;
        self.host.data.insert((queue as u32 + 1, self.tag), data.to_vec());
        self.host.pending.insert((queue as u32 + 1, self.tag), sqe.cid.get());
        let event = Event::Capsule { queue: self.queues[queue], sqe, tag: Tag(self.tag) };
        self.device.apply(self.now, event, &mut self.host);
        self.step();
        self.tag
    }

    fn step(&mut self) {
        self.device.run(self.now, &mut self.host, &mut self.reactor, Nanos::NEVER);
        self.answers.extend(self.host.answers.drain(..).map(|(_, tag, cqe)| (tag.0, cqe)));
    }

    /// One round of whatever the files have to say.
    fn wait(&mut self) {
        let mut ready = Vec::new();
        if self.device.backend.in_flight() > 0 {
            self.reactor.wait(None, &mut ready);
        }
        for event in ready {
            if let weir_sys::reactor::Ready::File(done) = event {
                self.device.file_done(done, self.now, &mut self.host, &mut self.reactor);
            }
        }
        self.now = self.now.saturating_add(Nanos(1_000_000)).max(self.device.due().min(Nanos(1 << 60)));
        self.step();
    }

    fn finish(&mut self, tag: u32) -> Cqe {
        for _ in 0..100_000 {
            if let Some(cqe) = self.answers.remove(&tag) {
                return cqe;
            }
            self.wait();
        }
        panic!("the command does not end");
    }

    fn admin(&mut self, sqe: Sqe, data: &[u8]) -> Cqe {
        let mut page = vec![0; 4096];
        page[..data.len()].copy_from_slice(data);
        let tag = self.submit(0, sqe, &page);
        self.finish(tag)
    }

    fn page(&mut self, sqe: Sqe) -> Vec<u8> {
        let tag = self.submit(0, sqe, &[0; 4096]);
        assert!(self.finish(tag).status().is_success());
        self.host.data.remove(&(1, tag)).unwrap()
    }

    fn io(&mut self, sqe: Sqe, data: &[u8]) -> (Status, Vec<u8>) {
        let tag = self.submit(1, sqe, data);
        let status = self.finish(tag).status();
        (status, self.host.data.remove(&(2, tag)).unwrap())
    }

    fn format(&mut self, nsid: u32, dw10: FormatDw10) -> Status {
        self.admin(of(admin(AdminOpcode::FORMAT_NVM, 4, dw10.0, 0), nsid), &[]).status()
    }

    fn identify(&mut self, nsid: u32) -> IdentifyNamespace {
        let page = self.page(of(admin(AdminOpcode::IDENTIFY, 5, cns::NAMESPACE.into(), 0), nsid));
        IdentifyNamespace::read_from_bytes(&page).unwrap()
    }

    fn active(&mut self) -> Vec<u32> {
        namespace_list(&self.page(admin(AdminOpcode::IDENTIFY, 5, cns::ACTIVE_NAMESPACES.into(), 0))).collect()
    }

    /// Another process goes on with the drive, which was stopped or killed.
    fn restart(&mut self, stop: bool) {
        while self.device.backend.in_flight() > 0 {
            self.wait();
        }
        if stop {
            self.device.close(self.now);
        }
        self.leave();
        self.device = open(&self.config, self.now).unwrap_or_else(|e| panic!("{e}"));
        (self.host, self.tag) = (TestHost::default(), 0);
        self.answers.clear();
        self.connect();
    }

    /// The drive is gone, and its locks with it.
    fn leave(&mut self) {
        let none = Subsystem::new(MachineConfig::new("nqn.2026-01.test.weir:none"), Nanos(0)).unwrap();
        self.device = Device::discovery(none);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        remove(&self.file);
    }
}

fn of(sqe: Sqe, nsid: u32) -> Sqe {
    Sqe { nsid: U32::new(nsid), ..sqe }
}

fn pattern(len: usize, salt: u32) -> Vec<u8> {
    (0..len as u32).map(|i| ((i + salt).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// PRINFO, and the reference tag of the first block.
fn checked(sqe: Sqe, prinfo: u32, reference: u32) -> Sqe {
    Sqe { cdw12: U32::new(sqe.cdw12.get() | prinfo << 26), cdw14: U32::new(reference), ..sqe }
}

const PRACT: u32 = 0b1000;
const ALL: u32 = 0b0101;

/// Created, attached, formatted and written; then stopped or killed: the same namespaces with the same bytes.
#[test]
fn namespaces_in_a_file_are_there_again() {
    for stop in [true, false] {
        let mut rig = Rig::new(if stop { "stopped" } else { "killed" }, "capacity = \"64MiB\"\nblock_size = 4096");
        let delete = of(admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, management::DELETE, 0), 1);
        assert!(rig.admin(delete, &[]).status().is_success());
        let blocks = U64::new(4096);
        let fields = HostSoftwareFields { nsze: blocks, ncap: blocks, ..HostSoftwareFields::default() };
        for nsid in [1u32, 2, 3] {
            let create = admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, management::CREATE, 0);
            let cqe = rig.admin(create, fields.as_bytes());
            assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, nsid));
            let list = [1, rig.cntlid];
            let attach = of(admin(AdminOpcode::NAMESPACE_ATTACHMENT, 2, attachment::ATTACH, 0), nsid);
            assert!(rig.admin(attach, list.as_bytes()).status().is_success());
        }
        assert!(!MetadataFile::path_of(&rig.file).exists(), "nobody has metadata yet");
        // The second with protection information, the third with metadata of the host's own.
        let delete = of(admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, management::DELETE, 0), 1);
        assert!(rig.admin(delete, &[]).status().is_success());
        assert!(rig.format(2, FormatDw10(1).with_mset(1).with_pi(1)).is_success());
        assert!(rig.format(3, FormatDw10(2).with_mset(1)).is_success());
        let (plain, own) = (pattern(3 * 4096, 1), pattern(3 * 4160, 2));
        assert!(rig.io(of(checked(io(WRITE, 1, 7, 3), PRACT, 7), 2), &plain).0.is_success());
        assert!(rig.io(of(io(WRITE, 1, 9, 3), 3), &own).0.is_success());
        rig.restart(stop);
        assert_eq!(rig.active(), [2, 3]);
        let (two, three) = (rig.identify(2), rig.identify(3));
        assert_eq!((two.nsze.get(), two.flbas, two.dps, three.flbas, three.dps), (4096, 0x11, 1, 0x12, 0));
        let (status, seen) = rig.io(of(checked(io(READ, 1, 7, 3), PRACT | ALL, 7), 2), &[0; 3 * 4096]);
        assert!(status.is_success() && seen == plain, "{status}");
        let (status, seen) = rig.io(of(checked(io(READ, 1, 8, 2), ALL, 8), 2), &[0; 2 * 4104]);
        assert!(status.is_success() && seen[4100..4104] == [0, 0, 0, 8] && seen[8204..] == [0, 0, 0, 9], "{status}");
        assert_eq!(rig.io(of(io(READ, 1, 9, 3), 3), &[0; 3 * 4160]), (Status::SUCCESS, own));
        // What lies on the media is what is checked.
        let (at, file) = (two_at(&rig, 7), std::fs::OpenOptions::new().read(true).write(true).open(&rig.file).unwrap());
        std::os::unix::fs::FileExt::write_all_at(&file, &[plain[0] ^ 1; 512], at).unwrap();
        let (status, _) = rig.io(of(checked(io(READ, 1, 7, 1), 0b100, 7), 2), &[0; 4104]);
        assert!(status.same_code(Status::GUARD_CHECK_ERROR), "{status}");
        // Without its metadata a drive is not opened, and what belongs to another one is not taken for it.
        rig.leave();
        let path = MetadataFile::path_of(&rig.file);
        let away = rig.file.with_extension("away");
        std::fs::rename(&path, &away).unwrap();
        let e = open(&rig.config, rig.now).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.contains("has namespaces with metadata") && e.contains(".meta"), "{e}");
        std::fs::rename(&away, &path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
        let e = open(&rig.config, rig.now).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.contains(".meta") && e.contains("cut short"), "{e}");
    }
}

/// Where a block of the second namespace lies: behind the room that the first one had.
fn two_at(rig: &Rig, lba: u64) -> u64 {
    let data = std::fs::read(&rig.file).unwrap();
    let first = pattern(64, 1);
    let at = data.windows(64).position(|bytes| bytes == first).unwrap() as u64;
    assert_eq!(at % 4096, 0, "block {lba} begins there");
    at
}

/// Namespaces of a flash drive with placement handles, in a file, one with metadata: the same after a kill, and the flash knows.
#[test]
fn namespaces_with_placement_handles_are_there_again() {
    let fdp = "capacity = \"64MiB\"\nblock_size = 4096\nprofile = \"femu-bbssd\"\n[device.fdp]\nhandles = 2";
    let mut rig = Rig::new("placed", fdp);
    let delete = of(admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, management::DELETE, 0), 1);
    assert!(rig.admin(delete, &[]).status().is_success());
    let blocks = U64::new(2048);
    let fields =
        HostSoftwareFields { nsze: blocks, ncap: blocks, endgid: U16::new(1), ..HostSoftwareFields::default() };
    for nsid in [1u32, 2] {
        let cqe = rig.admin(admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, management::CREATE, 0), fields.as_bytes());
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, nsid));
        let attach = of(admin(AdminOpcode::NAMESPACE_ATTACHMENT, 2, attachment::ATTACH, 0), nsid);
        let list = [1, rig.cntlid];
        assert!(rig.admin(attach, list.as_bytes()).status().is_success());
    }
    assert!(rig.format(2, FormatDw10(1).with_mset(1).with_pi(1)).is_success());
    // A write with a placement identifier (directive type 2): handle 1.
    let placed = |sqe: Sqe| Sqe { cdw12: U32::new(sqe.cdw12.get() | 2 << 20), cdw13: U32::new(1 << 16), ..sqe };
    let (one, two) = (pattern(8 * 4096, 1), pattern(8 * 4096, 2));
    assert_eq!(rig.io(placed(io(WRITE, 1, 16, 8)), &one).0, Status::SUCCESS);
    assert_eq!(rig.io(placed(of(checked(io(WRITE, 1, 32, 8), PRACT, 32), 2)), &two).0, Status::SUCCESS);
    let mapped = |rig: &mut Rig| {
        let flash = inside::flash_of(&mut rig.device.machine).unwrap().flash();
        (0..flash.units()).filter(|i| flash.is_mapped(*i)).count()
    };
    assert_eq!(mapped(&mut rig), 16);
    rig.restart(false);
    assert_eq!((rig.active(), mapped(&mut rig)), (vec![1, 2], 16));
    assert_eq!(rig.io(io(READ, 1, 16, 8), &[0; 8 * 4096]), (Status::SUCCESS, one));
    let (status, seen) = rig.io(of(checked(io(READ, 1, 32, 8), PRACT | ALL, 32), 2), &[0; 8 * 4096]);
    assert!(status.is_success() && seen == two, "{status}");
}

#[test]
fn a_block_device_has_no_place_for_metadata_and_a_lone_file_is_refused() {
    let mut rig = Rig::new("lone", "capacity = \"16MiB\"\nblock_size = 512");
    assert_eq!(rig.identify(1).nlbaf, 7, "all eight formats");
    assert!(rig.format(1, FormatDw10(2).with_mset(1).with_pi(2)).is_success());
    rig.leave();
    std::fs::remove_file(NonvolatileFile::path_of(&rig.file)).unwrap();
    std::fs::remove_file(&rig.file).unwrap();
    let e = open(&rig.config, rig.now).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(e.contains(".meta") && e.contains("is missing or empty"), "{e}");
    assert!(!rig.file.exists(), "nothing half made stays");
}

/// What a host does at once, on blocks whose data and metadata have one value everywhere.
#[derive(Clone, Debug)]
enum Do {
    Write(u64, u16, bool),
    Read(u64, u16),
    Zero(u64, u16, bool),
    Copy(u64, u64, u16),
    Wait,
    Restart,
}

const BLOCKS: u64 = 12;

fn steps() -> impl Strategy<Value = Vec<Do>> {
    let place = || (0..BLOCKS, 1u16..5).prop_map(|(at, n)| (at, n.min((BLOCKS - at) as u16)));
    let step = prop_oneof![
        6 => (place(), any::<bool>()).prop_map(|((at, n), fua)| Do::Write(at, n, fua)),
        6 => place().prop_map(|(at, n)| Do::Read(at, n)),
        2 => (place(), any::<bool>()).prop_map(|((at, n), fua)| Do::Zero(at, n, fua)),
        2 => (place(), 0..BLOCKS / 2).prop_map(|((at, n), to)| Do::Copy(at, BLOCKS + to, n)),
        4 => Just(Do::Wait),
        1 => Just(Do::Restart),
    ];
    proptest::collection::vec(step, 1..50)
}

fn whole(value: u8, blocks: u16) -> Vec<u8> {
    vec![value; usize::from(blocks) * 4160]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(10))
    })]

    /// However writes, reads, copies and zeroes of the same blocks meet, nobody sees a block's data with another's metadata, and
    /// what was completed is there after a restart.
    #[test]
    fn data_and_metadata_stay_together(steps in steps()) {
        let mut rig = Rig::new("together", "capacity = \"4MiB\"\nblock_size = 4096");
        assert!(rig.format(1, FormatDw10(2).with_mset(1)).is_success());
        let mut value = 0u8;
        let mut pending: Vec<u32> = Vec::new();
        let mut reads: Vec<u32> = Vec::new();
        let settle = |rig: &mut Rig, pending: &mut Vec<u32>, reads: &mut Vec<u32>| {
            for tag in pending.drain(..) {
                assert!(rig.finish(tag).status().is_success());
                let read = rig.host.data.remove(&(2, tag)).unwrap();
                if let Some(at) = reads.iter().position(|r| *r == tag) {
                    reads.remove(at);
                    for block in read.chunks(4160) {
                        assert!(block.iter().all(|b| *b == block[0]), "data {} with metadata {}", block[0], block[4159]);
                    }
                }
            }
        };
        for step in steps {
            let fua = |sqe: Sqe, fua: bool| Sqe { cdw12: U32::new(sqe.cdw12.get() | if fua { FUA } else { 0 }), ..sqe };
            match step {
                Do::Write(at, n, through) => {
                    value = value % 255 + 1;
                    let sqe = fua(io(WRITE, 1, at, n.into()), through);
                    pending.push(rig.submit(1, sqe, &whole(value, n)));
                }
                Do::Read(at, n) => {
                    let tag = rig.submit(1, io(READ, 1, at, n.into()), &whole(0, n));
                    pending.push(tag);
                    reads.push(tag);
                }
                Do::Zero(at, n, through) => {
                    let sqe = fua(io(IoOpcode::WRITE_ZEROES.0, 1, at, n.into()), through);
                    pending.push(rig.submit(1, sqe, &[]));
                }
                Do::Copy(from, to, n) => {
                    let range = CopyRange { slba: U64::new(from), nlb: U16::new(n - 1), ..Default::default() };
                    let sqe = Sqe { cdw12: U32::new(CopyDw12(0).0), ..io(IoOpcode::COPY.0, 1, to, 1) };
                    pending.push(rig.submit(1, sqe, range.as_bytes()));
                }
                Do::Wait => rig.wait(),
                Do::Restart => {
                    settle(&mut rig, &mut pending, &mut reads);
                    let before = rig.io(io(READ, 1, 0, 24), &whole(0, 24)).1;
                    rig.restart(value % 2 == 0);
                    assert_eq!(rig.io(io(READ, 1, 0, 24), &whole(0, 24)), (Status::SUCCESS, before));
                }
            }
        }
        settle(&mut rig, &mut pending, &mut reads);
        rig.device.machine().check();
    }
}
