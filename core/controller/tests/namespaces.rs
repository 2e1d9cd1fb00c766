//! Namespace management and attachment, formatting, metadata with protection information, and write protection: every status, what
//! changes with a command, and what becomes of the bytes.

mod common;

use common::{identify, set_feature};
use weir_controller::testing::{Fabric, TestWorld, admin, io};
use weir_controller::{Data, METADATA_SHIFT, Management, NamespaceConfig, Op, Owner, SubsystemConfig};
use weir_spec::nvme::feature::fid;
use weir_spec::nvme::identify::{
    IdentifyController, IdentifyNamespace, NSID_ALL, cns, controller_list, namespace_list,
};
use weir_spec::nvme::log::{AsyncEvent, ErrorEntry, lid};
use weir_spec::nvme::maintenance::{
    FormatEndEvent, FormatStartEvent, NamespaceEvent, PersistentHeader, persistent, persistent_action,
};
use weir_spec::nvme::namespace::{
    FNA_CRYPTO, FormatDw10, GranularityList, HostSoftwareFields, attachment, management, write_protect,
};
use weir_spec::nvme::nvm::{CopyDw12, CopyRange, CopyRangeWide};
use weir_spec::nvme::protection::{self, ExtendedLbaFormat, IdentifyNvmNamespace};
use weir_spec::nvme::register::ams;
use weir_spec::nvme::sanitize::{SanitizeDw10, action};
use weir_spec::nvme::{AdminOpcode, Cqe, Sqe, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const MIB: u64 = 1 << 20;
/// Bytes of the drive: eight granules.
const CAPACITY: u64 = 8 * MIB;

const FLUSH: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;
const COMPARE: u8 = 5;
const WRITE_ZEROES: u8 = 8;
const TRIM: u8 = 9;
const COPY: u8 = 0x19;

const FEATURE: u8 = 0x84;

/// Sections of what a drive remembers: its counters and its namespaces.
const COUNTERS: u16 = 2;
const LAYOUT: u16 = 16;

/// A drive with namespace 1 on its first `mib` MiB, in blocks of 512 bytes, and media.
struct Rig {
    world: TestWorld,
    data: Vec<u8>,
    metadata: Vec<u8>,
}

fn rig(mib: u64) -> Rig {
    let config = common::config(|c: &mut SubsystemConfig| {
        c.namespaces = vec![NamespaceConfig { nsid: 1, start: 0, size: mib * MIB, block_size: 512, uuid: [1; 16] }];
        c.management = Some(Management { capacity: CAPACITY, least_block: 512, metadata: true });
        c.atomic_write = u64::MAX;
    });
    let data = vec![0xee; CAPACITY as usize];
    Rig { world: TestWorld::new(config, 64), metadata: vec![0; (CAPACITY >> METADATA_SHIFT) as usize], data }
}

impl Rig {
    fn host(&mut self, name: &str, base: u32) -> Fabric {
        let mut host = Fabric::ready(&mut self.world, name, base, ams::RR);
        host.add_queue(&mut self.world, 64, 0).expect("the host may have queues");
        host
    }

    /// Carries out what is issued, until nothing is left and no background work rests.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.world.run();
            if !self.world.issued.is_empty() {
                self.step();
            } else if let Some(at) = self.world.drive.next_deadline().filter(|at| *at < Nanos::from_secs(1_000_000)) {
                self.world.pass(at.saturating_sub(self.world.now));
            } else {
                return;
            }
        }
        panic!("it never ends");
    }

    /// Carries out the oldest I/O.
    fn step(&mut self) {
        let io = self.world.issued[0];
        let (at, len) = (io.offset as usize, io.len as usize);
        let (meta_at, meta_len) = (at >> METADATA_SHIFT, len >> METADATA_SHIFT);
        let metadata = self.world.drive.metadata_of(io.slot).copied();
        if io.owner == Owner(u32::MAX) && !matches!(io.op, Op::Read | Op::Verify | Op::Flush) {
            // The drive's own, as its executor does it.
            self.metadata[meta_at..meta_at + meta_len].fill(0);
        }
        let source = self.world.drive.source_of(io.slot).copied();
        let host = &mut self.world.host;
        let status = match (io.op, metadata) {
            (Op::Flush, _) => Ok(()),
            (Op::WriteZeroes { .. } | Op::Deallocate, m) => {
                self.data[at..at + len].fill(0);
                self.metadata[meta_at..meta_at + meta_len].fill(0);
                if let Some(m) = m.filter(|_| io.op != Op::Deallocate) {
                    if let Some(made) = m.zeroed(io.skip, io.len) {
                        m.spread(&made, &mut self.metadata[meta_at..meta_at + meta_len]);
                    }
                }
                Ok(())
            }
            (Op::Write, None) => io.read_data(host, 0, &mut self.data[at..at + len]),
            (Op::Read, None) => {
                use weir_controller::Host;
                host.write_data(io.owner, &io.data, io.skip, &self.data[at..at + len])
            }
            (Op::Copy, m) => {
                let Data::Media(from) = io.data.get() else { panic!("a copy reads the media") };
                let bytes = self.data[from as usize..][..len].to_vec();
                let mut beside = vec![0; source.or(m).map_or(0, |m| m.size(io.len))];
                let mut carried = Ok(());
                if let Some(source) = source {
                    source.gather(&self.metadata[from as usize >> METADATA_SHIFT..][..meta_len], &mut beside);
                    carried = source.verify(0, &bytes, &mut beside);
                }
                if let (Ok(()), Some(m)) = (carried, m) {
                    carried = m.put(0, &bytes, &mut beside).map(|()| {
                        m.spread(&beside, &mut self.metadata[meta_at..meta_at + meta_len]);
                    });
                }
                carried.map(|()| self.data[at..at + len].copy_from_slice(&bytes))
            }
            (op, Some(m)) => {
                let (mut bytes, mut beside) = (self.data[at..at + len].to_vec(), vec![0; m.size(io.len)]);
                m.gather(&self.metadata[meta_at..meta_at + meta_len], &mut beside);
                let to = (host, io.owner, &io.data);
                match op {
                    Op::Write => m.take(to, io.skip, &mut bytes, &mut beside).map(|()| {
                        self.data[at..at + len].copy_from_slice(&bytes);
                        m.spread(&beside, &mut self.metadata[meta_at..meta_at + meta_len]);
                    }),
                    Op::Read => m.give(to, io.skip, &bytes, &mut beside),
                    _ => m.compare(to, io.skip, &bytes, &mut beside),
                }
            }
            _ => Ok(()),
        };
        self.world.done(0, status.err().unwrap_or(Status::SUCCESS));
    }

    /// An admin command with its data, to its end.
    fn admin(&mut self, host: &mut Fabric, sqe: Sqe, data: &[u8]) -> Cqe {
        let tag = self.send_admin(host, sqe, data);
        self.settle();
        host.answer(&mut self.world, 0, tag).expect("the command ends")
    }

    fn send_admin(&mut self, host: &mut Fabric, sqe: Sqe, data: &[u8]) -> u32 {
        let mut all = vec![0; 4096.max(data.len())];
        all[..data.len()].copy_from_slice(data);
        self.world.host.data.insert((host.base, host.tags + 1), all);
        host.send(&mut self.world, 0, sqe)
    }

    /// An I/O command with its data, to its end.
    fn io(&mut self, host: &mut Fabric, sqe: Sqe, data: &mut Vec<u8>) -> Status {
        let tag = self.send(host, sqe, data);
        self.settle();
        let cqe = host.answer(&mut self.world, 1, tag).expect("the command ends");
        *data = self.world.host.data.remove(&(host.base + 1, tag)).unwrap_or_default();
        cqe.status()
    }

    fn send(&mut self, host: &mut Fabric, sqe: Sqe, data: &[u8]) -> u32 {
        self.world.host.data.insert((host.base + 1, host.tags + 1), data.to_vec());
        host.send(&mut self.world, 1, sqe)
    }

    fn controller(&mut self, host: &mut Fabric) -> IdentifyController {
        common::identify_controller(&mut self.world, host)
    }

    fn namespace(&mut self, host: &mut Fabric, which: u8, nsid: u32) -> IdentifyNamespace {
        let (cqe, data) = host.admin_data(&mut self.world, identify(which, nsid));
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        IdentifyNamespace::read_from_prefix(&data).unwrap().0
    }

    fn list(&mut self, host: &mut Fabric, which: u8) -> Vec<u32> {
        let (cqe, data) = host.admin_data(&mut self.world, identify(which, 0));
        assert!(cqe.status().is_success());
        namespace_list(&data).collect()
    }

    fn controllers(&mut self, host: &mut Fabric, which: u8, nsid: u32) -> Vec<u16> {
        let (_, data) = host.admin_data(&mut self.world, identify(which, nsid));
        controller_list(&data).collect()
    }

    fn create(&mut self, host: &mut Fabric, fields: HostSoftwareFields) -> Result<u32, Status> {
        let sqe = admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, management::CREATE, 0);
        let cqe = self.admin(host, sqe, fields.as_bytes());
        if cqe.status().is_success() { Ok(cqe.dw0.get()) } else { Err(cqe.status()) }
    }

    fn delete(&mut self, host: &mut Fabric, nsid: u32) -> Status {
        let sqe = of(admin(AdminOpcode::NAMESPACE_MANAGEMENT, 2, management::DELETE, 0), nsid);
        self.admin(host, sqe, &[]).status()
    }

    fn attach(&mut self, host: &mut Fabric, sel: u32, nsid: u32, ids: &[u16]) -> Status {
        let mut list = vec![ids.len() as u16];
        list.extend(ids);
        let sqe = of(admin(AdminOpcode::NAMESPACE_ATTACHMENT, 3, sel, 0), nsid);
        self.admin(host, sqe, list.as_bytes()).status()
    }

    fn attach_own(&mut self, host: &mut Fabric, nsid: u32) -> Status {
        let own = id(host);
        self.attach(host, attachment::ATTACH, nsid, &[own])
    }

    fn format(&mut self, host: &mut Fabric, nsid: u32, dw10: FormatDw10) -> Status {
        self.admin(host, of(admin(AdminOpcode::FORMAT_NVM, 4, dw10.0, 0), nsid), &[]).status()
    }

    fn protect(&mut self, host: &mut Fabric, nsid: u32, state: u32) -> Status {
        self.admin(host, of(common::set_feature(FEATURE, state), nsid), &[]).status()
    }

    /// The changed namespaces that a controller was told of; reading the list forgets them.
    fn changed(&mut self, host: &mut Fabric) -> Vec<u32> {
        let get = admin(AdminOpcode::GET_LOG_PAGE, 5, u32::from(lid::CHANGED_NAMESPACES) | 1023 << 16, 0);
        let (_, data) = host.admin_data(&mut self.world, get);
        namespace_list(&data).collect()
    }
}

/// The persistent events of a drive, oldest first: their types, controllers and data.
fn events(rig: &mut Rig, host: &mut Fabric) -> Vec<(u8, u16, Vec<u8>)> {
    let mut get = |action: u8| {
        let dw10 = u32::from(lid::PERSISTENT_EVENTS) | u32::from(action) << 8 | 2047 << 16;
        let (cqe, data) = host.admin_data(&mut rig.world, admin(AdminOpcode::GET_LOG_PAGE, 6, dw10, 0));
        assert!(cqe.status().is_success(), "{}", cqe.status());
        data
    };
    let page = get(persistent_action::ESTABLISH);
    get(persistent_action::RELEASE);
    let head = PersistentHeader::read_from_bytes(&page[..512]).unwrap();
    let (mut at, mut all) = (512, Vec::new());
    let word = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    for _ in 0..head.tnev.get() {
        let data = &page[at + 24..][..word(at + 22).into()];
        all.push((page[at], word(at + 4), data.to_vec()));
        at += 24 + data.len();
    }
    assert_eq!(at as u64, head.tll.get());
    all.reverse();
    all
}

#[test]
fn what_happens_to_namespaces_is_in_the_persistent_event_log() {
    let mut rig = rig(4);
    let mut a = rig.host("nqn.gold", 100);
    let own = id(&a);
    let before = events(&mut rig, &mut a).len();
    let news = |rig: &mut Rig, a: &mut Fabric, seen: usize| events(rig, a).split_off(before + seen);
    // What is refused has not happened.
    assert!(rig.create(&mut a, fields(0, 0)).is_err() && !rig.delete(&mut a, 9).is_success());
    assert_eq!(news(&mut rig, &mut a, 0), []);
    let asked = HostSoftwareFields { dps: 1, nmic: 1, flbas: 0x12, ..fields(2048, 2) };
    assert_eq!(rig.create(&mut a, asked), Ok(2));
    let created = NamespaceEvent {
        cdw10: U32::new(management::CREATE),
        nsze: U64::new(2048),
        ncap: U64::new(2048),
        flbas: 0x12,
        dps: 1,
        nmic: 1,
        anagrpid: U32::new(1),
        nsid: U32::new(2),
        ..Default::default()
    };
    assert_eq!(news(&mut rig, &mut a, 0), [(persistent::NAMESPACE, own, created.as_bytes().to_vec())]);
    assert_eq!(rig.attach_own(&mut a, 2), Status::SUCCESS);
    let dw10 = FormatDw10(1).with_ses(1);
    assert_eq!(rig.format(&mut a, NSID_ALL, dw10), Status::SUCCESS);
    let nsid = U32::new(NSID_ALL);
    let (started, ended) = (
        FormatStartEvent { nsid, fna: FNA_CRYPTO, cdw10: U32::new(dw10.0), ..Default::default() },
        FormatEndEvent { nsid, ..Default::default() },
    );
    let both = [
        (persistent::FORMAT_START, own, started.as_bytes().to_vec()),
        (persistent::FORMAT_END, own, ended.as_bytes().to_vec()),
    ];
    assert_eq!(news(&mut rig, &mut a, 1), both);
    assert_eq!(rig.delete(&mut a, 2), Status::SUCCESS);
    let deleted = NamespaceEvent {
        cdw10: U32::new(management::DELETE),
        nsze: U64::new(256),
        ncap: U64::new(256),
        flbas: 1,
        dps: 0,
        ..created
    };
    assert_eq!(news(&mut rig, &mut a, 3), [(persistent::NAMESPACE, own, deleted.as_bytes().to_vec())]);
    assert_eq!(rig.delete(&mut a, NSID_ALL), Status::SUCCESS);
    let all = NamespaceEvent { cdw10: U32::new(management::DELETE), nsid, ..Default::default() };
    assert_eq!(news(&mut rig, &mut a, 4), [(persistent::NAMESPACE, own, all.as_bytes().to_vec())]);
    // They outlive the power.
    let blob = rig.world.drive.save();
    let mut again = self::rig(4);
    again.world.drive.restore(&blob).unwrap();
    let mut b = again.host("nqn.gold", 100);
    let kinds: Vec<u8> = events(&mut again, &mut b).iter().map(|(kind, ..)| *kind).collect();
    let changes = [persistent::NAMESPACE, persistent::FORMAT_START, persistent::FORMAT_END];
    assert_eq!(kinds.iter().filter(|kind| changes.contains(kind)).count(), 5);
}

/// It does not look idle in the pauses between the pieces of its work.
#[test]
fn who_formats_is_not_at_rest() {
    let mut rig = rig(4);
    let mut a = rig.host("nqn.gold", 100);
    assert_eq!(rig.create(&mut a, fields(4096, 0)), Ok(2));
    assert!(rig.world.drive.is_at_rest());
    // A piece of each namespace, with a pause between them as long as the first has taken.
    let tag = rig.send_admin(&mut a, of(admin(AdminOpcode::FORMAT_NVM, 4, 0, 0), NSID_ALL), &[]);
    rig.world.run();
    assert_eq!(rig.world.issued.len(), 1);
    assert!(!rig.world.drive.is_at_rest());
    rig.world.pass(Nanos::from_millis(20));
    rig.step();
    rig.world.run();
    assert_eq!((rig.world.issued.len(), rig.world.drive.stats().slots_used), (0, 0), "it pauses");
    assert!(!rig.world.drive.is_at_rest() && a.answer(&mut rig.world, 0, tag).is_none());
    rig.settle();
    assert!(rig.world.drive.is_at_rest() && a.answer(&mut rig.world, 0, tag).is_some());
}

#[test]
fn a_format_that_fails_says_how_far_it_came() {
    let mut rig = rig(4);
    let mut a = rig.host("nqn.gold", 100);
    let tag = rig.send_admin(&mut a, of(admin(AdminOpcode::FORMAT_NVM, 4, 1, 0), 1), &[]);
    rig.world.run();
    assert_eq!(rig.world.issued.len(), 1);
    rig.world.done(0, Status::WRITE_FAULT);
    rig.settle();
    let answer = a.answer(&mut rig.world, 0, tag).map(|cqe| cqe.status()).unwrap();
    assert!(answer.same_code(Status::WRITE_FAULT), "{answer}");
    let (kind, _, data) = events(&mut rig, &mut a).pop().unwrap();
    let end = FormatEndEvent::read_from_bytes(&data).unwrap();
    assert_eq!((kind, end.outcome, end.smallest_fpi, end.nsid.get()), (persistent::FORMAT_END, 3, 100, 1));
    assert_eq!(end.status.get(), u32::from(Status::WRITE_FAULT.field()));
}

fn of(sqe: Sqe, nsid: u32) -> Sqe {
    Sqe { nsid: U32::new(nsid), ..sqe }
}

/// So many blocks in an LBA format; private.
fn fields(blocks: u64, format: u8) -> HostSoftwareFields {
    let blocks = U64::new(blocks);
    HostSoftwareFields { nsze: blocks, ncap: blocks, flbas: format, ..HostSoftwareFields::default() }
}

fn id(host: &Fabric) -> u16 {
    host.data.cntlid.get()
}

/// The bytes of a section of what a drive remembers, if it is there.
fn section(blob: &[u8], id: u16) -> Option<&[u8]> {
    let mut rest = &blob[16..blob.len() - 4];
    while !rest.is_empty() {
        let (head, bytes) = rest.split_at(8);
        let (found, next) = bytes.split_at(u32::from_le_bytes(head[4..].try_into().unwrap()) as usize);
        if head[..2] == id.to_le_bytes() {
            return Some(found);
        }
        rest = next;
    }
    None
}

fn pattern(len: usize, salt: u32) -> Vec<u8> {
    (0..len as u32).map(|i| ((i + salt).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn capacity(field: [u8; 16]) -> u64 {
    u128::from_le_bytes(field) as u64
}

#[test]
fn a_namespace_is_created_attached_used_and_deleted() {
    let mut rig = rig(4);
    let (mut a, mut b) = (rig.host("nqn.gold", 100), rig.host("nqn.silver", 200));
    let before = rig.controller(&mut a);
    assert_eq!((capacity(before.tnvmcap), capacity(before.unvmcap)), (CAPACITY, 4 * MIB));
    assert_eq!((before.nn.get(), before.mnan.get(), before.oacs.get() & 0b1010), (256, 256, 0b1010));
    let shared = HostSoftwareFields { nmic: 1, ..fields(500, 1) };
    assert_eq!(rig.create(&mut a, shared), Ok(2));
    assert_eq!(rig.list(&mut a, cns::ACTIVE_NAMESPACES), [1]);
    assert_eq!(rig.list(&mut a, cns::ALLOCATED_NAMESPACES), [1, 2]);
    assert_eq!(rig.namespace(&mut a, cns::NAMESPACE, 2), IdentifyNamespace::default(), "inactive here");
    let page = rig.namespace(&mut a, cns::ALLOCATED_NAMESPACE, 2);
    assert_eq!((page.nsze.get(), page.nlbaf, page.flbas, page.block_shift()), (500, 7, 1, Some(12)));
    assert_eq!((capacity(page.nvmcap), page.nmic, page.fpi), (2 * MIB, 1, 0x80));
    assert_eq!(capacity(rig.controller(&mut a).unvmcap), 2 * MIB);
    assert_eq!(rig.controllers(&mut a, cns::NAMESPACE_CONTROLLERS, 2), []);
    let read = |lba| of(io(READ, 9, lba, 1), 2);
    assert_eq!(rig.io(&mut a, read(0), &mut vec![0; 4096]), Status::INVALID_FIELD.dnr());
    assert_eq!(rig.attach(&mut b, attachment::ATTACH, 2, &[id(&a)]), Status::SUCCESS);
    assert_eq!(rig.controllers(&mut a, cns::NAMESPACE_CONTROLLERS, 2), [id(&a)]);
    assert_eq!(rig.controllers(&mut a, cns::CONTROLLERS, 0), [id(&a), id(&b)]);
    assert_eq!((rig.changed(&mut a), rig.changed(&mut b)), (vec![2], vec![]));
    // A new namespace reads as zeroes, whatever was on the media.
    let mut bytes = vec![7; 4096];
    assert_eq!(rig.io(&mut a, read(499), &mut bytes), Status::SUCCESS);
    assert_eq!(bytes, [0; 4096]);
    let mut bytes = pattern(4096, 1);
    assert_eq!(rig.io(&mut a, of(io(WRITE, 9, 3, 1), 2), &mut bytes), Status::SUCCESS);
    assert_eq!(rig.data[4 * MIB as usize + 3 * 4096..][..4096], pattern(4096, 1));
    for (opcode, blocks) in [(READ, 1), (WRITE, 1), (COMPARE, 1), (WRITE_ZEROES, 1), (FLUSH, 1), (READ, 600)] {
        let sqe = of(io(opcode, 9, 0, blocks), 2);
        assert_eq!(rig.io(&mut b, sqe, &mut vec![0; 4096]), Status::INVALID_FIELD.dnr(), "{opcode}");
    }
    assert_eq!(rig.io(&mut a, read(500), &mut vec![0; 4096]), Status::LBA_OUT_OF_RANGE.dnr());
    // The host comes back: what was attached to it is.
    let queues = a.queues.clone();
    for (n, queue) in queues.into_iter().enumerate().rev() {
        rig.world.disconnect(Owner(a.base + n as u32), queue);
    }
    let mut a = rig.host("nqn.gold", 300);
    assert_eq!(rig.list(&mut a, cns::ACTIVE_NAMESPACES), [1, 2]);
    assert_eq!(rig.list(&mut b, cns::ACTIVE_NAMESPACES), [1]);
    let own = id(&a);
    assert_eq!(rig.attach(&mut a, attachment::DETACH, 1, &[own]), Status::SUCCESS);
    assert_eq!(
        (rig.list(&mut a, cns::ACTIVE_NAMESPACES), rig.list(&mut b, cns::ACTIVE_NAMESPACES)),
        (vec![2], vec![1])
    );
    assert_eq!(rig.delete(&mut b, 2), Status::SUCCESS);
    assert_eq!(rig.changed(&mut a), [1, 2]);
    assert_eq!(rig.list(&mut a, cns::ALLOCATED_NAMESPACES), [1]);
    assert_eq!(rig.io(&mut a, read(0), &mut vec![0; 4096]), Status::INVALID_FIELD.dnr());
    assert_eq!(capacity(rig.controller(&mut a).unvmcap), 4 * MIB);
    // The next one of that number is another namespace.
    let old = page.nguid;
    assert_eq!(rig.create(&mut a, shared), Ok(2));
    assert_ne!(rig.namespace(&mut a, cns::ALLOCATED_NAMESPACE, 2).nguid, old);
    assert_eq!(rig.delete(&mut b, NSID_ALL), Status::SUCCESS);
    assert_eq!(rig.list(&mut b, cns::ALLOCATED_NAMESPACES), []);
    assert_eq!(capacity(rig.controller(&mut b).unvmcap), CAPACITY);
    let (cqe, data) = a.admin_data(&mut rig.world, identify(cns::NAMESPACE_GRANULARITY, 0));
    let granularities = GranularityList::read_from_prefix(&data).unwrap().0.granularities;
    assert_eq!((cqe.status(), granularities[0].nszegran.get()), (Status::SUCCESS, MIB));
}

#[test]
fn controllers_are_attached_in_any_order() {
    let mut rig = rig(4);
    let (mut a, b) = (rig.host("nqn.gold", 100), rig.host("nqn.silver", 200));
    assert_eq!(rig.create(&mut a, HostSoftwareFields { nmic: 1, ..fields(9, 0) }), Ok(2));
    let descending = [id(&b), id(&a)];
    assert!(descending[0] > descending[1]);
    for operation in [attachment::ATTACH, attachment::DETACH, attachment::ATTACH] {
        assert_eq!(rig.attach(&mut a, operation, 2, &descending), Status::SUCCESS);
    }
    assert!(rig.namespace(&mut a, cns::NAMESPACE, 2).nsze.get() > 0, "it is active for the first of them");
}

#[test]
fn what_cannot_be_is_refused_in_the_standards_words() {
    let mut rig = rig(4);
    let (mut a, b) = (rig.host("nqn.gold", 100), rig.host("nqn.silver", 200));
    let whole = fields(4 * MIB / 512, 0);
    let table = [
        (fields(0, 0), Status::INVALID_FIELD),
        (fields(9, 8), Status::INVALID_FORMAT),
        (HostSoftwareFields { dps: 1, ..fields(9, 0) }, Status::INVALID_FORMAT),
        (HostSoftwareFields { dps: 4, ..fields(9, 2) }, Status::INVALID_FORMAT),
        (HostSoftwareFields { nsze: U64::new(10), ..fields(9, 0) }, Status::THIN_PROVISIONING_NOT_SUPPORTED),
        (HostSoftwareFields { ncap: U64::new(10), ..fields(9, 0) }, Status::INVALID_FIELD),
        (HostSoftwareFields { nvmsetid: U16::new(1), ..fields(9, 0) }, Status::INVALID_FIELD),
        (HostSoftwareFields { endgid: U16::new(2), ..fields(9, 0) }, Status::INVALID_FIELD),
        (HostSoftwareFields { anagrpid: U32::new(2), ..fields(9, 0) }, Status::ANA_GROUP_ID_INVALID),
        (HostSoftwareFields { nphndls: U16::new(1), ..fields(9, 0) }, Status::INVALID_PLACEMENT_HANDLE_LIST),
        (fields(4 * MIB / 512 + 1, 0), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (fields(u64::MAX, 0), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
    ];
    for (fields, status) in table {
        assert_eq!(rig.create(&mut a, fields), Err(status.dnr()), "{fields:?}");
    }
    // The groups that the drive has may be named.
    let page = rig.controller(&mut a);
    assert_eq!((page.endgidmax.get(), page.anagrpmax.get(), page.anacap >> 7), (1, 1, 1));
    let named = HostSoftwareFields { endgid: U16::new(1), anagrpid: U32::new(1), ..fields(9, 0) };
    assert_eq!(rig.create(&mut a, named), Ok(2));
    let page = rig.namespace(&mut a, cns::ALLOCATED_NAMESPACE, 2);
    assert_eq!((page.endgid.get(), page.anagrpid.get()), (1, 1));
    assert_eq!(rig.delete(&mut a, 2), Status::SUCCESS);
    let wrong = |sel, csi: u32| admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, sel, csi << 24);
    let status = |rig: &mut Rig, host: &mut Fabric, sqe| rig.admin(host, sqe, whole.as_bytes()).status();
    assert_eq!(status(&mut rig, &mut a, wrong(2, 0)), Status::INVALID_FIELD.dnr());
    assert_eq!(status(&mut rig, &mut a, wrong(0, 2)), Status::COMMAND_SET_NOT_SUPPORTED.dnr());
    // What it would have needed is in the error log.
    assert_eq!(rig.create(&mut a, fields(4 * MIB / 512 + 1, 0)), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY.dnr()));
    let get = admin(AdminOpcode::GET_LOG_PAGE, 5, u32::from(lid::ERROR) | 15 << 16, 0);
    let (_, data) = a.admin_data(&mut rig.world, get);
    let entry = ErrorEntry::read_from_prefix(&data).unwrap().0;
    assert_eq!(entry.command_specific.get(), 4 * MIB + 512);
    assert_eq!(capacity(rig.controller(&mut a).unvmcap), 4 * MIB, "nothing is left of what was refused");
    assert_eq!(rig.create(&mut a, whole), Ok(2));
    let (attach, detach) = (attachment::ATTACH, attachment::DETACH);
    let (ia, ib) = (id(&a), id(&b));
    assert_eq!(rig.attach(&mut a, attach, 2, &[ia, ib]), Status::NAMESPACE_IS_PRIVATE.dnr());
    assert_eq!(rig.attach(&mut a, detach, 2, &[ia]), Status::NAMESPACE_NOT_ATTACHED.dnr());
    assert_eq!(rig.attach(&mut a, attach, 2, &[ib]), Status::SUCCESS);
    assert_eq!(rig.attach(&mut a, attach, 2, &[ib]), Status::NAMESPACE_ALREADY_ATTACHED.dnr());
    assert_eq!(rig.attach(&mut a, attach, 2, &[ia]), Status::NAMESPACE_IS_PRIVATE.dnr());
    for list in [&[][..], &[ib, ib], &[ia, 77]] {
        assert_eq!(rig.attach(&mut a, attach, 2, list), Status::CONTROLLER_LIST_INVALID.dnr(), "{list:?}");
    }
    assert_eq!(rig.attach(&mut a, attach, 3, &[ia]), Status::INVALID_FIELD.dnr());
    assert_eq!(rig.attach(&mut a, 7, 2, &[ia]), Status::INVALID_FIELD.dnr());
    for nsid in [0, NSID_ALL, 300] {
        assert_eq!(rig.attach(&mut a, attach, nsid, &[ia]), Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    }
    assert_eq!(rig.delete(&mut a, 3), Status::INVALID_FIELD.dnr());
    assert_eq!(rig.delete(&mut a, 300), Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    // A drive without management has none of it.
    let mut plain = TestWorld::new(common::config(|_| ()), 64);
    let mut host = Fabric::ready(&mut plain, "nqn.gold", 100, ams::RR);
    for opcode in [AdminOpcode::NAMESPACE_MANAGEMENT, AdminOpcode::NAMESPACE_ATTACHMENT, AdminOpcode::FORMAT_NVM] {
        assert_eq!(host.admin(&mut plain, admin(opcode, 1, 0, 0)).status(), Status::INVALID_OPCODE.dnr());
    }
}

#[test]
fn commands_that_cross_extents_are_one_command() {
    let mut rig = rig(1);
    let mut a = rig.host("nqn.gold", 100);
    let mib = 1u64 << 11;
    for nsid in 2..=6 {
        assert_eq!(rig.create(&mut a, fields(mib, 0)), Ok(nsid));
    }
    for nsid in [2, 4] {
        assert_eq!(rig.delete(&mut a, nsid), Status::SUCCESS);
    }
    // Of four free granules no three lie together: 1, 3, 6 and 7.
    assert_eq!(rig.create(&mut a, fields(3 * mib, 0)), Ok(2));
    assert_eq!(rig.attach_own(&mut a, 2), Status::SUCCESS);
    let mut bytes = pattern(64 << 10, 3);
    let across = |opcode, lba| of(io(opcode, 9, lba, 128), 2);
    let tag = rig.send(&mut a, across(WRITE, mib - 64), &bytes);
    rig.world.run();
    assert_eq!(rig.world.issued.len(), 1, "one piece after the other");
    assert_eq!((rig.world.issued[0].offset, rig.world.issued[0].len), (2 * MIB - (32 << 10), 32 << 10));
    rig.step();
    rig.world.run();
    assert_eq!((rig.world.issued[0].offset, rig.world.issued[0].skip), (3 * MIB, 32 << 10));
    assert!(a.answer(&mut rig.world, 1, tag).is_none(), "half of a command");
    rig.settle();
    assert!(a.answer(&mut rig.world, 1, tag).is_some_and(|cqe| cqe.status().is_success()));
    assert_eq!(rig.data[2 * MIB as usize - (32 << 10)..][..32 << 10], bytes[..32 << 10]);
    assert_eq!(rig.data[3 * MIB as usize..][..32 << 10], bytes[32 << 10..]);
    let mut read = vec![0; 64 << 10];
    assert_eq!(rig.io(&mut a, across(READ, mib - 64), &mut read), Status::SUCCESS);
    assert_eq!(read, bytes);
    // A piece that fails fails the command, and the rest is not begun.
    rig.send(&mut a, across(READ, mib - 64), &read);
    rig.world.run();
    rig.world.done(0, Status::UNRECOVERED_READ_ERROR);
    rig.world.run();
    assert!(rig.world.issued.is_empty());
    // Ranges of a deallocation and zeroes cross as well.
    let mut ranges = [0u32, 128, (mib - 64) as u32, 0].as_bytes().to_vec();
    let trim = Sqe { cdw10: U32::new(0), cdw11: U32::new(4), ..of(io(TRIM, 9, 0, 1), 2) };
    assert_eq!(rig.io(&mut a, trim, &mut ranges), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, across(READ, mib - 64), &mut read), Status::SUCCESS);
    assert!(read.iter().all(|b| *b == 0));
    assert_eq!(rig.io(&mut a, across(WRITE, mib - 64), &mut bytes), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, across(WRITE_ZEROES, mib - 64), &mut vec![]), Status::SUCCESS);
    assert!(rig.data[3 * MIB as usize..][..32 << 10].iter().all(|b| *b == 0));
    assert_eq!(rig.io(&mut a, of(io(FLUSH, 9, 0, 1), 2), &mut vec![]), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, across(READ, 3 * mib - 127), &mut read), Status::LBA_OUT_OF_RANGE.dnr());
}

#[test]
fn sanitizing_leaves_nothing_in_any_piece_nor_of_metadata() {
    let mut rig = rig(1);
    let mut a = rig.host("nqn.gold", 100);
    let mib = 1u64 << 11;
    for nsid in 2..=6 {
        assert_eq!(rig.create(&mut a, fields(mib, 0)), Ok(nsid));
    }
    for nsid in [2, 4] {
        assert_eq!(rig.delete(&mut a, nsid), Status::SUCCESS);
    }
    // In several pieces, with protection information.
    assert_eq!(rig.create(&mut a, fields(3 * mib, 2)), Ok(2));
    assert_eq!(rig.attach_own(&mut a, 2), Status::SUCCESS);
    assert_eq!(rig.format(&mut a, 2, FormatDw10(3).with_mset(1).with_pi(1)), Status::SUCCESS);
    let blocks = 3 * mib / 8;
    let put = |rig: &mut Rig, a: &mut Fabric| {
        for lba in (0..blocks).step_by(64) {
            let bytes = pattern(64 * 4096, lba as u32);
            let write = checked(of(io(WRITE, 9, lba, 64), 2), PRACT, lba as u32, (0xbeef, 0));
            assert_eq!(rig.io(a, write, &mut bytes.clone()), Status::SUCCESS);
        }
        assert!(rig.metadata.iter().any(|byte| *byte != 0));
    };
    let sanitize = |rig: &mut Rig, a: &mut Fabric, dw10: SanitizeDw10| {
        let started = rig.admin(a, admin(AdminOpcode::SANITIZE, 3, dw10.0, 0x5a5a_5a5a), &[]);
        assert!(started.status().is_success(), "{}", started.status());
        rig.settle();
    };
    for (dw10, byte) in [
        (SanitizeDw10(0).with_sanact(action::BLOCK_ERASE), 0),
        (SanitizeDw10(0).with_sanact(action::CRYPTO_ERASE), 0),
        (SanitizeDw10(0).with_sanact(action::OVERWRITE).with_owpass(1).with_ndas(1), 0x5a),
    ] {
        put(&mut rig, &mut a);
        sanitize(&mut rig, &mut a, dw10);
        assert!(rig.data.iter().all(|b| *b == byte), "{dw10:?}");
        assert!(rig.metadata.iter().all(|b| *b == 0), "{dw10:?}");
        // What is read is checked by nobody: it is that of deallocated blocks.
        let mut seen = vec![1; 64 * 4104];
        let read = checked(of(io(READ, 9, 64, 64), 2), ALL, 64, (1, 0xffff));
        assert_eq!(rig.io(&mut a, read, &mut seen), Status::SUCCESS);
        assert!(seen.chunks(4104).all(|b| b[..4096] == [byte; 4096] && b[4096..] == [0xff; 8]), "{dw10:?}");
    }
}

#[test]
fn deleting_waits_for_what_is_in_flight() {
    let mut rig = rig(2);
    let mut a = rig.host("nqn.gold", 100);
    let written = rig.send(&mut a, io(WRITE, 9, 0, 8), &pattern(4096, 1));
    rig.world.run();
    let deleted =
        rig.send_admin(&mut a, of(admin(AdminOpcode::NAMESPACE_MANAGEMENT, 2, management::DELETE, 0), 1), &[]);
    rig.world.run();
    let refused = rig.send(&mut a, io(WRITE, 10, 0, 8), &pattern(4096, 2));
    rig.world.run();
    let status = |rig: &mut Rig, a: &Fabric, qid, tag| a.answer(&mut rig.world, qid, tag).map(|cqe| cqe.status());
    assert_eq!(status(&mut rig, &a, 1, refused), Some(Status::INVALID_FIELD.dnr()), "it is detached already");
    assert_eq!(status(&mut rig, &a, 0, deleted), None);
    assert_eq!(rig.create(&mut a, fields(7 * 2048, 0)), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY.dnr()));
    assert_eq!(status(&mut rig, &a, 1, written), Some(Status::SUCCESS));
    assert_eq!(status(&mut rig, &a, 0, deleted), Some(Status::SUCCESS));
    assert_eq!(rig.list(&mut a, cns::ALLOCATED_NAMESPACES), []);
}

#[test]
fn formatting_erases_in_steps_and_tells_everybody() {
    let mut rig = rig(4);
    let (mut a, mut b) = (rig.host("nqn.gold", 100), rig.host("nqn.silver", 200));
    let mut bytes = pattern(4096, 5);
    assert_eq!(rig.io(&mut a, io(WRITE, 9, 8, 8), &mut bytes), Status::SUCCESS);
    let late = rig.send(&mut a, io(READ, 9, 8, 8), &bytes);
    rig.world.run();
    assert_eq!(rig.world.issued.len(), 1);
    let dw10 = FormatDw10(1).with_ses(1);
    let formatted = rig.send_admin(&mut b, of(admin(AdminOpcode::FORMAT_NVM, 4, dw10.0, 0), 1), &[]);
    rig.world.run();
    assert_eq!(rig.world.issued.len(), 1, "nothing is erased under a command in flight");
    let refused = rig.send(&mut a, io(READ, 10, 8, 8), &bytes);
    rig.world.run();
    let status = |rig: &mut Rig, host: &Fabric, qid, tag| host.answer(&mut rig.world, qid, tag).map(|cqe| cqe.status());
    let meanwhile = status(&mut rig, &a, 1, refused).unwrap();
    assert!(meanwhile.same_code(Status::FORMAT_IN_PROGRESS), "{meanwhile:?}");
    assert_eq!(rig.namespace(&mut a, cns::NAMESPACE, 1).fpi, 0x80 | 100);
    assert!(rig.format(&mut a, 1, dw10).same_code(Status::FORMAT_IN_PROGRESS));
    assert_eq!(status(&mut rig, &a, 1, late), Some(Status::SUCCESS));
    assert_eq!(status(&mut rig, &b, 0, formatted), Some(Status::SUCCESS));
    assert!(rig.data[..4 * MIB as usize].iter().all(|byte| *byte == 0) && rig.data[4 * MIB as usize] == 0xee);
    let page = rig.namespace(&mut a, cns::NAMESPACE, 1);
    assert_eq!((page.flbas, page.block_shift(), page.nsze.get(), page.fpi), (1, Some(12), 1024, 0x80));
    assert_eq!((rig.changed(&mut a), rig.changed(&mut b)), (vec![1], vec![1]));
    let mut block = vec![1; 4096];
    assert_eq!(rig.io(&mut a, io(READ, 9, 1023, 1), &mut block), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, io(READ, 9, 1024, 1), &mut block), Status::LBA_OUT_OF_RANGE.dnr());
    for (dw10, status) in [
        (FormatDw10(8), Status::INVALID_FORMAT),
        (FormatDw10(2).with_mset(1).with_pi(4), Status::INVALID_FORMAT),
        (FormatDw10(1).with_pi(1), Status::INVALID_FORMAT),
        (FormatDw10(2), Status::INVALID_FORMAT),
        (FormatDw10(1).with_ses(3), Status::INVALID_FIELD),
    ] {
        assert_eq!(rig.format(&mut a, 1, dw10), status.dnr(), "{dw10:?}");
    }
    assert_eq!(rig.format(&mut a, 2, dw10), Status::INVALID_FIELD.dnr());
    // All of them at once.
    assert_eq!(rig.create(&mut a, fields(4096, 0)), Ok(2));
    assert_eq!(rig.attach_own(&mut a, 2), Status::SUCCESS);
    assert_eq!(rig.format(&mut a, NSID_ALL, FormatDw10(3).with_mset(1).with_ses(2)), Status::SUCCESS);
    for nsid in [1, 2] {
        assert_eq!(rig.namespace(&mut a, cns::ALLOCATED_NAMESPACE, nsid).flbas, 0x13);
    }
}

#[test]
fn a_format_outlives_the_association_that_asked_for_it() {
    let mut rig = rig(4);
    let (mut a, mut b) = (rig.host("nqn.gold", 100), rig.host("nqn.silver", 200));
    rig.send_admin(&mut a, of(admin(AdminOpcode::FORMAT_NVM, 4, 1, 0), 1), &[]);
    rig.world.run();
    for (n, queue) in a.queues.clone().into_iter().enumerate().rev() {
        rig.world.disconnect(Owner(a.base + n as u32), queue);
    }
    rig.settle();
    assert_eq!(rig.namespace(&mut b, cns::NAMESPACE, 1).flbas, 1);
    let mut block = vec![1; 4096];
    assert_eq!(rig.io(&mut b, io(READ, 9, 0, 1), &mut block), Status::SUCCESS);
}

#[test]
fn protection_information_is_checked_end_to_end() {
    let mut rig = rig(4);
    let mut a = rig.host("nqn.gold", 100);
    assert_eq!(rig.format(&mut a, 1, FormatDw10(3).with_mset(1).with_pi(1)), Status::SUCCESS);
    let page = rig.namespace(&mut a, cns::NAMESPACE, 1);
    assert_eq!((page.flbas, page.dps, page.mc, page.dpc & 0x1f, page.nsze.get()), (0x13, 1, 1, 0x1f, 1024));
    let with = |sqe: Sqe, prinfo: u32, reference: u32, tag: u16, mask: u16| Sqe {
        cdw12: U32::new(sqe.cdw12.get() | prinfo << 26),
        cdw14: U32::new(reference),
        cdw15: U32::new(u32::from(tag) | u32::from(mask) << 16),
        ..sqe
    };
    let (pract, all, guard, app, reference) = (0b1000, 0b0111, 0b0100, 0b0010, 0b0001);
    // Inserted by the drive, then seen by the host.
    let data = pattern(8192, 2);
    assert_eq!(rig.io(&mut a, with(io(WRITE, 9, 5, 2), pract, 5, 0xbeef, 0), &mut data.clone()), Status::SUCCESS);
    let mut seen = vec![0; 2 * 4104];
    assert_eq!(rig.io(&mut a, with(io(READ, 9, 5, 2), all, 5, 0xbeef, 0xffff), &mut seen), Status::SUCCESS);
    for (i, block) in seen.chunks(4104).enumerate() {
        assert_eq!(block[..4096], data[i * 4096..][..4096]);
        let crc = protection::guard(0, &block[..4096]).to_be_bytes();
        assert_eq!(block[4096..], [crc[0], crc[1], 0xbe, 0xef, 0, 0, 0, 5 + i as u8]);
    }
    let mut stripped = vec![0; 8192];
    assert_eq!(rig.io(&mut a, with(io(READ, 9, 5, 2), pract | all, 5, 0xbeef, 0xffff), &mut stripped), Status::SUCCESS);
    assert_eq!(stripped, data);
    // Reads that expect something else, each by its own status.
    let table = [
        (5, app, 5, 0xbeee, 0xffff, Status::APPLICATION_TAG_CHECK_ERROR),
        (5, app, 5, 0xbe00, 0xff00, Status::SUCCESS),
        (5, reference, 6, 0, 0, Status::INVALID_PROTECTION_INFORMATION),
        (6, reference, 6, 0, 0, Status::SUCCESS),
        (100, all, 100, 1, 0xffff, Status::SUCCESS),
    ];
    for (lba, checks, reference, tag, mask, status) in table {
        let got = rig.io(&mut a, with(io(READ, 9, lba, 1), checks, reference, tag, mask), &mut seen);
        assert!(got.same_code(status), "{lba} {checks:b}: {got:?}");
    }
    // Writes that bring wrong information change nothing.
    assert_eq!(rig.io(&mut a, io(READ, 9, 5, 2), &mut seen), Status::SUCCESS);
    let mut wrong = seen.clone();
    wrong[..4096].copy_from_slice(&pattern(4096, 9));
    for (checks, status) in [(guard, Status::GUARD_CHECK_ERROR), (app, Status::APPLICATION_TAG_CHECK_ERROR)] {
        let got = rig.io(&mut a, with(io(WRITE, 9, 5, 1), checks, 5, 1, 0xffff), &mut wrong[..4104].to_vec());
        assert!(got.same_code(status), "{got:?}");
    }
    assert_eq!(
        rig.io(&mut a, with(io(READ, 9, 5, 1), pract | all, 5, 0xbeef, 0xffff), &mut stripped[..4096].to_vec()),
        Status::SUCCESS
    );
    // A comparison looks at the data; damage on the media is found.
    let mut same = vec![0; 2 * 4104];
    assert_eq!(rig.io(&mut a, io(READ, 9, 5, 2), &mut same), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, with(io(COMPARE, 9, 5, 2), all, 5, 0xbeef, 0xffff), &mut same.clone()), Status::SUCCESS);
    rig.data[6 * 4096 + 1] ^= 1;
    assert!(rig.io(&mut a, io(COMPARE, 9, 5, 2), &mut same).same_code(Status::COMPARE_FAILURE));
    let got = rig.io(&mut a, with(io(READ, 9, 5, 2), guard, 5, 0, 0), &mut seen);
    assert!(got.same_code(Status::GUARD_CHECK_ERROR), "{got:?}");
    assert_eq!(rig.io(&mut a, io(READ, 9, 5, 2), &mut seen), Status::SUCCESS, "nobody asked");
    // Zeroes with information of their own, and without.
    assert_eq!(rig.io(&mut a, with(io(WRITE_ZEROES, 9, 5, 2), pract, 5, 7, 0), &mut vec![]), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, with(io(READ, 9, 5, 2), all, 5, 7, 0xffff), &mut seen), Status::SUCCESS);
    assert_eq!(seen[4096..4104], [0, 0, 0, 7, 0, 0, 0, 5]);
    assert_eq!(rig.io(&mut a, io(WRITE_ZEROES, 9, 5, 2), &mut vec![]), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, with(io(READ, 9, 5, 2), all, 5, 1, 0xffff), &mut seen), Status::SUCCESS);
    assert_eq!(seen[4096..4104], [0xff; 8]);
    // Back to plain blocks: none of it is left.
    assert_eq!(rig.format(&mut a, 1, FormatDw10(0)), Status::SUCCESS);
    let mut plain = vec![1; 512];
    assert_eq!(rig.io(&mut a, io(READ, 9, 40, 1), &mut plain), Status::SUCCESS);
    assert!(plain.iter().all(|b| *b == 0) && rig.metadata.iter().all(|b| *b == 0));
}

/// A host says which LBA formats (LBAFEE) and copy descriptor formats (CDFE) it knows.
fn knows(rig: &mut Rig, host: &mut Fabric, formats: u8, copies: u8) {
    let behavior = [0, 0, formats, 0, copies, 0];
    assert_eq!(rig.admin(host, set_feature(fid::HOST_BEHAVIOR, 0), &behavior).status(), Status::SUCCESS);
}

#[test]
fn guards_of_64_bits_are_for_hosts_that_know_of_them() {
    let mut rig = rig(4);
    let (mut a, mut b) = (rig.host("nqn.gold", 100), rig.host("nqn.silver", 200));
    assert_eq!(rig.controller(&mut a).ctratt.get() >> 15 & 1, 1);
    let extended = |rig: &mut Rig, host: &mut Fabric, nsid: u32| {
        let (cqe, page) = host.admin_data(&mut rig.world, identify(cns::CS_NAMESPACE, nsid));
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        IdentifyNvmNamespace::read_from_prefix(&page).unwrap().0
    };
    for nsid in [1, NSID_ALL] {
        let page = extended(&mut rig, &mut a, nsid);
        let formats = page.elbaf.map(|f| (ExtendedLbaFormat(f.get()).pif(), ExtendedLbaFormat(f.get()).storage_bits()));
        assert_eq!(formats[..9], [(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (2, 0), (2, 16), (2, 0), (0, 0)]);
        assert_eq!((page.lbstm.get(), page.pic, page.pifa), (0, 4, 2));
    }
    let page = rig.namespace(&mut a, cns::NAMESPACE, 1);
    let format = |i: usize| (page.lbaf[i].ms.get(), page.lbaf[i].lbads);
    assert_eq!((page.nlbaf, format(5), format(6), format(7)), (7, (16, 12), (16, 12), (64, 12)));
    // Who has not said that it knows of them has no protection with them; blocks with so much metadata are not that.
    let with = |index: u32, pi: u32| FormatDw10(index).with_mset(1).with_pi(pi);
    let unknown = Status::INVALID_NAMESPACE_OR_FORMAT;
    assert!(rig.format(&mut a, 1, with(5, 1)).same_code(unknown));
    assert_eq!(rig.format(&mut a, 1, with(5, 0)), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, io(READ, 9, 5, 1), &mut vec![0; 4112]), Status::SUCCESS);
    let asked =
        |flbas: u8, dps: u8, lbstm: u64| HostSoftwareFields { dps, lbstm: U64::new(lbstm), ..fields(256, flbas) };
    assert!(rig.create(&mut a, asked(0x15, 1, 0)).is_err_and(|status| status.same_code(unknown)));
    knows(&mut rig, &mut a, 1, 0);
    assert_eq!(rig.format(&mut a, 1, with(5, 1)), Status::SUCCESS);
    assert_eq!(extended(&mut rig, &mut a, 1).lbstm.get(), 0);
    // A host that does not know of it has no I/O and no say.
    assert!(rig.io(&mut b, io(READ, 9, 5, 1), &mut vec![0; 4112]).same_code(unknown));
    assert!(rig.io(&mut b, io(WRITE_ZEROES, 9, 5, 1), &mut vec![]).same_code(unknown));
    assert!(rig.format(&mut b, 1, FormatDw10(0)).same_code(unknown));
    // Inserted by the drive: the reference tag has 48 bits.
    let (data, tag) = (pattern(8192, 2), (0xbeef, 0xffff));
    assert_eq!(rig.io(&mut a, checked(io(WRITE, 9, 5, 2), PRACT, 5, tag), &mut data.clone()), Status::SUCCESS);
    let mut seen = vec![0; 2 * 4112];
    assert_eq!(rig.io(&mut a, checked(io(READ, 9, 5, 2), ALL, 5, tag), &mut seen), Status::SUCCESS);
    for (i, block) in seen.chunks(4112).enumerate() {
        assert_eq!(block[..4096], data[i * 4096..][..4096]);
        assert_eq!(block[4096..4104], protection::guard64(0, &block[..4096]).to_be_bytes());
        assert_eq!(block[4104..], [0xbe, 0xef, 0, 0, 0, 0, 0, 5 + i as u8]);
    }
    let above = Sqe { cdw3: U32::new(1), ..checked(io(READ, 9, 5, 2), ALL, 5, tag) };
    assert!(rig.io(&mut a, above, &mut seen).same_code(Status::INVALID_PROTECTION_INFORMATION), "bit 32 counts");
    let beyond = Sqe { cdw2: U32::new(u32::MAX), cdw3: U32::new(0xffff_0000), ..above };
    assert_eq!(rig.io(&mut a, beyond, &mut seen), Status::SUCCESS, "what the format has no bits for does not");
    // Written by the host, which has made a mistake; compared, verified, zeroed, paired.
    let mut wrong = seen.clone();
    wrong[4103] ^= 1;
    for opcode in [WRITE, COMPARE] {
        let got = rig.io(&mut a, checked(io(opcode, 9, 5, 2), ALL, 5, tag), &mut wrong.clone());
        assert!(got.same_code(Status::GUARD_CHECK_ERROR), "{opcode}: {got}");
        assert_eq!(rig.io(&mut a, checked(io(opcode, 9, 5, 2), ALL, 5, tag), &mut seen.clone()), Status::SUCCESS);
    }
    let half = |opcode, cid, fuse, prinfo| {
        let sqe = io(opcode, cid, 5, 1);
        checked(Sqe { flags: sqe.flags | fuse, ..sqe }, prinfo, 5, tag)
    };
    let first = rig.send(&mut a, half(COMPARE, 20, 1, ALL), &seen[..4112]);
    let second = rig.send(&mut a, half(WRITE, 21, 2, PRACT), &pattern(4096, 8));
    rig.settle();
    for half in [first, second] {
        assert_eq!(a.answer(&mut rig.world, 1, half).expect("both are answered").status(), Status::SUCCESS);
    }
    assert_eq!(rig.io(&mut a, checked(io(WRITE_ZEROES, 9, 6, 1), PRACT, 6, tag), &mut vec![]), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, checked(io(READ, 9, 5, 2), ALL, 5, tag), &mut seen), Status::SUCCESS);
    assert_eq!((&seen[..4096], seen[4112..8208].iter().all(|b| *b == 0)), (&pattern(4096, 8)[..], true));
    assert_eq!(seen[8208..8216], 0x6482_d367_eb22_b64e_u64.to_be_bytes());
    rig.data[5 * 4096] ^= 1;
    let got = rig.io(&mut a, checked(io(READ, 9, 5, 1), PRACT | GUARD, 5, tag), &mut vec![0; 4096]);
    assert!(got.same_code(Status::GUARD_CHECK_ERROR), "{got}");
    // A drive that is made with this state has the same format.
    let blob = rig.world.drive.save();
    let mut again = Rig { data: rig.data.clone(), metadata: rig.metadata.clone(), ..self::rig(4) };
    again.world.drive.restore(&blob).expect("its own state");
    let mut a = again.host("nqn.gold", 100);
    knows(&mut again, &mut a, 1, 0);
    assert_eq!(again.io(&mut a, checked(io(READ, 9, 6, 1), ALL, 6, tag), &mut vec![0; 4112]), Status::SUCCESS);
}

#[test]
fn storage_tags_are_kept_and_checked() {
    let mut rig = rig(4);
    let mut a = rig.host("nqn.gold", 100);
    knows(&mut rig, &mut a, 1, 0);
    // At its creation a host may name a mask; no bit can be left out.
    let asked = |lbstm: u64| HostSoftwareFields { dps: 1, lbstm: U64::new(lbstm), ..fields(256, 0x16) };
    assert!(rig.create(&mut a, asked(0xfffe)).is_err_and(|status| status.same_code(Status::INVALID_FIELD)));
    let nsid = rig.create(&mut a, asked(0xffff)).expect("room");
    assert_eq!(rig.delete(&mut a, nsid), Status::SUCCESS);
    assert_eq!(rig.format(&mut a, 1, FormatDw10(6).with_mset(1).with_pi(1)), Status::SUCCESS);
    let (cqe, page) = a.admin_data(&mut rig.world, identify(cns::CS_NAMESPACE, 1));
    assert!(cqe.status().is_success());
    assert_eq!(IdentifyNvmNamespace::read_from_prefix(&page).unwrap().0.lbstm.get(), 0xffff);
    let stored = |sqe: Sqe, prinfo: u32, tag: u32, check: u32| {
        let sqe = checked(sqe, prinfo, 5, (0, 0));
        Sqe { cdw3: U32::new(tag), cdw12: U32::new(sqe.cdw12.get() | check << 24), ..sqe }
    };
    assert_eq!(rig.io(&mut a, stored(io(WRITE, 9, 5, 2), PRACT, 0xa5c3, 0), &mut pattern(8192, 2)), Status::SUCCESS);
    let mut seen = vec![0; 2 * 4112];
    assert_eq!(rig.io(&mut a, stored(io(READ, 9, 5, 2), ALL, 0xa5c3, 1), &mut seen), Status::SUCCESS);
    for (i, block) in seen.chunks(4112).enumerate() {
        assert_eq!(block[4104..], [0, 0, 0xa5, 0xc3, 0, 0, 0, 5 + i as u8]);
    }
    for (opcode, tag, check, status) in [
        (READ, 0xa5c2, 1, Status::STORAGE_TAG_CHECK_ERROR),
        (READ, 0xa5c2, 0, Status::SUCCESS),
        (COMPARE, 0xa5c2, 1, Status::STORAGE_TAG_CHECK_ERROR),
        (WRITE, 0xa5c2, 1, Status::STORAGE_TAG_CHECK_ERROR),
        (WRITE, 0xa5c3, 1, Status::SUCCESS),
    ] {
        let got = rig.io(&mut a, stored(io(opcode, 9, 5, 2), ALL, tag, check), &mut seen.clone());
        assert!(got.same_code(status), "{opcode} {tag:#x} {check}: {got}");
    }
}

/// PRINFO, a reference tag, and an application tag with its mask.
fn checked(sqe: Sqe, prinfo: u32, reference: u32, (tag, mask): (u16, u16)) -> Sqe {
    Sqe {
        cdw12: U32::new(sqe.cdw12.get() | prinfo << 26),
        cdw14: U32::new(reference),
        cdw15: U32::new(u32::from(tag) | u32::from(mask) << 16),
        ..sqe
    }
}

const PRACT: u32 = 0b1000;
const ALL: u32 = 0b0111;
const GUARD: u32 = 0b0100;
const REFERENCE: u32 = 0b0001;

/// Copies ranges of (first block, blocks, EILBRT), whose application tag is BEEFh, to a place; PRINFOR, and PRINFOW with a
/// reference and an application tag.
fn copied(
    rig: &mut Rig,
    host: &mut Fabric,
    to: u64,
    ranges: &[(u64, u16, u32)],
    (read, write, reference, tag): (u32, u32, u32, u16),
) -> Status {
    let dw12 = CopyDw12(0).with_nr(ranges.len() as u32 - 1).with_prinfor(read).with_prinfow(write);
    let list: Vec<CopyRange> = ranges
        .iter()
        .map(|(slba, blocks, eilbrt)| CopyRange {
            slba: U64::new(*slba),
            nlb: U16::new(blocks - 1),
            eilbrt: U32::new(*eilbrt),
            elbat: U16::new(0xbeef),
            elbatm: U16::new(0xffff),
            ..Default::default()
        })
        .collect();
    let sqe = Sqe { cdw12: U32::new(dw12.0), ..io(COPY, 9, to, 1) };
    rig.io(host, checked(sqe, 0, reference, (tag, 0xffff)), &mut list.as_bytes().to_vec())
}

#[test]
fn a_copy_takes_metadata_along_and_checks_both_ends() {
    let mut rig = rig(4);
    let mut a = rig.host("nqn.gold", 100);
    assert_eq!(rig.format(&mut a, 1, FormatDw10(3).with_mset(1).with_pi(1)), Status::SUCCESS);
    let (bytes, mut seen) = (pattern(3 * 4096, 2), vec![0; 2 * 4104]);
    let write = checked(io(WRITE, 9, 5, 3), PRACT, 5, (0xbeef, 0));
    assert_eq!(rig.io(&mut a, write, &mut bytes.clone()), Status::SUCCESS);
    let read = |rig: &mut Rig, a: &mut Fabric, lba: u64, reference: u32, tag: u16, seen: &mut Vec<u8>| {
        rig.io(a, checked(io(READ, 9, lba, 2), ALL, reference, (tag, 0xffff)), seen)
    };
    // Made anew for where it goes, of two ranges.
    let got = copied(&mut rig, &mut a, 100, &[(7, 1, 7), (5, 1, 5)], (PRACT | ALL, PRACT, 100, 0x1234));
    assert_eq!(got, Status::SUCCESS);
    assert_eq!(read(&mut rig, &mut a, 100, 100, 0x1234, &mut seen), Status::SUCCESS);
    assert_eq!((&seen[..4096], &seen[4104..8200]), (&bytes[8192..], &bytes[..4096]));
    // Taken along as it is: it says where it comes from.
    assert_eq!(copied(&mut rig, &mut a, 200, &[(5, 2, 5)], (ALL, GUARD, 0, 0)), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, io(READ, 9, 200, 2), &mut seen), Status::SUCCESS);
    assert_eq!((&seen[4098..4104], &seen[8202..]), (&[0xbe, 0xef, 0, 0, 0, 5][..], &[0xbe, 0xef, 0, 0, 0, 6][..]));
    let got = read(&mut rig, &mut a, 200, 200, 0xbeef, &mut seen);
    assert!(got.same_code(Status::REFERENCE_TAG_CHECK_ERROR), "{got}");
    // What is wrong at either end, and nothing is written.
    rig.data[5 * 4096] ^= 1;
    for (ranges, checks, status) in [
        (&[(5, 2, 5)][..], (PRACT | ALL, PRACT, 300, 0), Status::GUARD_CHECK_ERROR),
        (&[(6, 1, 6)][..], (ALL, REFERENCE, 300, 0), Status::REFERENCE_TAG_CHECK_ERROR),
        (&[(6, 1, 6)][..], (ALL, 0b0010, 0, 0x1234), Status::APPLICATION_TAG_CHECK_ERROR),
        (&[(6, 1, 5)][..], (REFERENCE, 0, 300, 0), Status::INVALID_PROTECTION_INFORMATION),
        (&[(6, 1, 6)][..], (0, REFERENCE, 301, 0), Status::INVALID_PROTECTION_INFORMATION),
        (&[(6, 1, 6)][..], (PRACT, 0, 300, 0), Status::INVALID_FIELD),
    ] {
        let got = copied(&mut rig, &mut a, 300, ranges, checks);
        assert!(got.same_code(status), "{ranges:?} {checks:?}: {got}");
    }
    assert_eq!(rig.io(&mut a, io(READ, 9, 300, 2), &mut seen), Status::SUCCESS);
    assert!(seen.chunks(4104).all(|block| block[..4096] == [0; 4096] && block[4096..] == [0xff; 8]));
    let wide = Sqe { cdw12: U32::new(CopyDw12(0).with_desfmt(1).0), ..io(COPY, 9, 300, 1) };
    let got = rig.io(&mut a, wide, &mut vec![0; 40]);
    assert!(got.same_code(Status::INVALID_NAMESPACE_OR_FORMAT), "larger guards' tags: {got}");
    // Metadata without protection information.
    assert_eq!(rig.format(&mut a, 1, FormatDw10(4).with_mset(1)), Status::SUCCESS);
    let blocks = pattern(2 * 4160, 3);
    assert_eq!(rig.io(&mut a, io(WRITE, 9, 1, 2), &mut blocks.clone()), Status::SUCCESS);
    assert_eq!(copied(&mut rig, &mut a, 50, &[(1, 2, 0)], (0, 0, 0, 0)), Status::SUCCESS);
    let mut seen = vec![0; 2 * 4160];
    assert_eq!(rig.io(&mut a, io(READ, 9, 50, 2), &mut seen), Status::SUCCESS);
    assert_eq!(seen, blocks);
}

/// Copies ranges of (namespace, first block, blocks) to a place of a namespace in descriptor format 2h or 3h; PRINFOR and PRINFOW.
/// Reference tags are the blocks' numbers, application tags BEEFh.
fn copied_between(
    rig: &mut Rig,
    host: &mut Fabric,
    (nsid, to): (u32, u64),
    sources: &[(u32, u64, u16)],
    (desfmt, read, write): (u32, u32, u32),
) -> Status {
    let (sqe, mut list) = copy_between((nsid, to), sources, (desfmt, read, write));
    rig.io(host, sqe, &mut list)
}

fn copy_between(
    (nsid, to): (u32, u64),
    sources: &[(u32, u64, u16)],
    (desfmt, read, write): (u32, u32, u32),
) -> (Sqe, Vec<u8>) {
    let dw12 = CopyDw12(0).with_nr(sources.len() as u32 - 1).with_desfmt(desfmt);
    let dw12 = dw12.with_prinfor(read).with_prinfow(write);
    let mut list = Vec::new();
    for (from, slba, blocks) in sources {
        let (snsid, elbat, elbatm) = (U32::new(*from), U16::new(0xbeef), U16::new(0xffff));
        let (nlb, tag) = (U16::new(blocks - 1), *slba);
        let slba = U64::new(tag);
        if desfmt & 1 == 0 {
            let eilbrt = U32::new(tag as u32);
            let range = CopyRange { snsid, slba, nlb, eilbrt, elbat, elbatm, ..Default::default() };
            list.extend_from_slice(range.as_bytes());
        } else {
            let mut elbt = [0; 10];
            elbt[2..].copy_from_slice(&tag.to_be_bytes());
            let range = CopyRangeWide { snsid, slba, nlb, elbt, elbat, elbatm, ..Default::default() };
            list.extend_from_slice(range.as_bytes());
        }
    }
    let sqe = Sqe { cdw12: U32::new(dw12.0), ..of(io(COPY, 9, to, 1), nsid) };
    (checked(sqe, 0, to as u32, (0xbeef, 0xffff)), list)
}

/// Namespaces 1 and 2 of 2 MiB each, both attached to the host, which knows of everything.
fn two_namespaces() -> (Rig, Fabric) {
    let mut rig = rig(2);
    let mut a = rig.host("nqn.gold", 100);
    assert_eq!(rig.create(&mut a, HostSoftwareFields { nmic: 1, ..fields(4096, 0) }), Ok(2));
    assert_eq!(rig.attach_own(&mut a, 2), Status::SUCCESS);
    knows(&mut rig, &mut a, 1, 0b1100);
    (rig, a)
}

#[test]
fn copies_go_from_one_namespace_to_another() {
    let (mut rig, mut a) = two_namespaces();
    let bytes = pattern(16 * 512, 5);
    assert_eq!(rig.io(&mut a, io(WRITE, 9, 10, 16), &mut bytes.clone()), Status::SUCCESS);
    let read = |rig: &mut Rig, a: &mut Fabric, nsid: u32, slba: u64, blocks: u32| {
        let mut seen = vec![0xcc; blocks as usize * 512];
        assert_eq!(rig.io(a, of(io(READ, 9, slba, blocks), nsid), &mut seen), Status::SUCCESS);
        seen
    };
    // To another one, in two ranges; back, behind a range of its own.
    for desfmt in [2, 3] {
        let got = copied_between(&mut rig, &mut a, (2, 100), &[(1, 18, 8), (1, 10, 8)], (desfmt, 0, 0));
        assert_eq!(got, Status::SUCCESS);
        assert_eq!(read(&mut rig, &mut a, 2, 100, 16), [&bytes[4096..], &bytes[..4096]].concat());
        let got = copied_between(&mut rig, &mut a, (1, 200), &[(1, 10, 1), (2, 100, 16)], (desfmt, 0, 0));
        assert_eq!(got, Status::SUCCESS);
        assert_eq!(read(&mut rig, &mut a, 1, 201, 16), [&bytes[4096..], &bytes[..4096]].concat());
    }
    let refused = |rig: &mut Rig, host: &mut Fabric, to: (u32, u64), from: (u32, u64, u16), expected: Status| {
        let got = copied_between(rig, host, to, &[from], (2, 0, 0));
        assert!(got.same_code(expected), "{from:?} to {to:?}: {got}, not {expected}");
    };
    for nsid in [0, 257, u32::MAX] {
        refused(&mut rig, &mut a, (1, 0), (nsid, 0, 1), Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    refused(&mut rig, &mut a, (1, 0), (77, 0, 1), Status::INVALID_FIELD);
    refused(&mut rig, &mut a, (1, 0), (2, 4090, 8), Status::LBA_OUT_OF_RANGE);
    refused(&mut rig, &mut a, (2, 100), (2, 99, 2), Status::OVERLAPPING_IO_RANGE);
    // The same blocks of another namespace are others.
    assert_eq!(copied_between(&mut rig, &mut a, (2, 10), &[(1, 10, 16)], (2, 0, 0)), Status::SUCCESS);
    assert_eq!(read(&mut rig, &mut a, 2, 10, 16), bytes);
    // Blocks that cannot be read, there.
    assert_eq!(rig.io(&mut a, of(io(0x04, 9, 300, 1), 2), &mut vec![]), Status::SUCCESS);
    refused(&mut rig, &mut a, (1, 0), (2, 299, 2), Status::UNRECOVERED_READ_ERROR);
    assert_eq!(copied_between(&mut rig, &mut a, (2, 299), &[(1, 300, 2)], (2, 0, 0)), Status::SUCCESS);
    assert_eq!(read(&mut rig, &mut a, 2, 299, 2), read(&mut rig, &mut a, 1, 300, 2));
    // A source may be write protected, a destination not.
    assert_eq!(rig.protect(&mut a, 1, write_protect::PROTECTED), Status::SUCCESS);
    assert_eq!(copied_between(&mut rig, &mut a, (2, 0), &[(1, 10, 1)], (2, 0, 0)), Status::SUCCESS);
    refused(&mut rig, &mut a, (1, 0), (2, 0, 1), Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(rig.protect(&mut a, 1, write_protect::NONE), Status::SUCCESS);
    // Other blocks.
    assert_eq!(rig.format(&mut a, 2, FormatDw10(1)), Status::SUCCESS);
    refused(&mut rig, &mut a, (1, 0), (2, 0, 1), Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT);
}

#[test]
fn a_copy_reads_nothing_that_its_host_may_not() {
    let (mut rig, mut a) = two_namespaces();
    let mut b = rig.host("nqn.silver", 200);
    let secret = vec![0x5e; 4096];
    assert_eq!(rig.io(&mut a, of(io(WRITE, 9, 0, 8), 2), &mut secret.clone()), Status::SUCCESS);
    let copy =
        |rig: &mut Rig, host: &mut Fabric| copied_between(rig, host, (1, 50), &[(1, 0, 1), (2, 0, 8)], (2, 0, 0));
    // Who has not asked for the format has it not; whom the namespace is not attached to does not reach it by it.
    let got = copy(&mut rig, &mut b);
    assert!(got.same_code(Status::INVALID_FIELD), "{got}");
    knows(&mut rig, &mut b, 0, 0b1100);
    let (got, inactive) = (copy(&mut rig, &mut b), copied_between(&mut rig, &mut b, (1, 50), &[(9, 0, 8)], (2, 0, 0)));
    assert!(got == inactive && got.same_code(Status::INVALID_FIELD), "{got}: not as one that there is not");
    assert!(!rig.data[..2 << 20].windows(16).any(|w| w == [0x5e; 16]));
    // A reservation keeps readers out.
    let idb = id(&b);
    assert_eq!(rig.attach(&mut a, attachment::ATTACH, 2, &[idb]), Status::SUCCESS);
    let reserve = |opcode: u8, dw10: u32| Sqe { cdw10: U32::new(dw10), cdw11: U32::ZERO, ..of(io(opcode, 9, 0, 1), 2) };
    let keys = [0u64.to_le_bytes(), 7u64.to_le_bytes()].concat();
    assert_eq!(rig.io(&mut a, reserve(0x0d, 0), &mut keys.clone()), Status::SUCCESS);
    let keys = [7u64.to_le_bytes(), 0u64.to_le_bytes()].concat();
    assert_eq!(rig.io(&mut a, reserve(0x11, 2 << 8), &mut keys.clone()), Status::SUCCESS);
    let got = copy(&mut rig, &mut b);
    assert!(got.same_code(Status::RESERVATION_CONFLICT), "{got}");
    assert_eq!(copy(&mut rig, &mut a), Status::SUCCESS);
    // Deleted while it is being read: what comes into its place is not copied, for it waits.
    let (sqe, list) = copy_between((1, 0), &[(2, 0, 1024), (2, 1024, 1024)], (2, 0, 0));
    let tag = rig.send(&mut a, sqe, &list);
    rig.world.run();
    assert!(rig.world.issued.iter().all(|io| io.op == Op::Copy) && !rig.world.issued.is_empty());
    let gone = of(admin(AdminOpcode::NAMESPACE_MANAGEMENT, 2, management::DELETE, 0), 2);
    let gone = rig.send_admin(&mut a, gone, &[]);
    while a.answer(&mut rig.world, 1, tag).is_none() {
        rig.world.run();
        assert!(rig.world.issued.iter().all(|io| io.op == Op::Copy), "{:?}", rig.world.issued);
        rig.step();
    }
    rig.settle();
    assert_eq!(a.answer(&mut rig.world, 0, gone).expect("deleted").status(), Status::SUCCESS);
}

#[test]
fn copies_insert_strip_and_keep_protection_information() {
    let (mut rig, mut a) = two_namespaces();
    let tag = (0xbeef, 0xffff);
    let incompatible = Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT;
    // Guards of 16 and of 64 bits: LBA format, descriptor format, bytes of an extended block.
    for (index, desfmt, size) in [(3, 2, 4104), (5, 3, 4112)] {
        let protected = |pi: u32| FormatDw10(index).with_mset(1).with_pi(pi);
        assert_eq!(rig.format(&mut a, 1, FormatDw10(1)), Status::SUCCESS);
        assert_eq!(rig.format(&mut a, 2, protected(1)), Status::SUCCESS);
        let bytes = pattern(2 * 4096, index);
        assert_eq!(rig.io(&mut a, io(WRITE, 9, 7, 2), &mut bytes.clone()), Status::SUCCESS);
        let copy = |rig: &mut Rig, a: &mut Fabric, to: (u32, u64), from: (u32, u64, u16), read: u32, write: u32| {
            copied_between(rig, a, to, &[from], (desfmt, read, write))
        };
        // Inserted.
        assert_eq!(copy(&mut rig, &mut a, (2, 20), (1, 7, 2), 0, PRACT), Status::SUCCESS);
        let mut seen = vec![0; 2 * size];
        let read = |slba: u64| of(checked(io(READ, 9, slba, 2), ALL, slba as u32, tag), 2);
        assert_eq!(rig.io(&mut a, read(20), &mut seen), Status::SUCCESS, "format {index}");
        assert_eq!((&seen[..4096], &seen[size..size + 4096]), (&bytes[..4096], &bytes[4096..]));
        assert!(copy(&mut rig, &mut a, (2, 30), (1, 7, 2), 0, 0).same_code(incompatible));
        // Stripped, and checked before.
        assert_eq!(copy(&mut rig, &mut a, (1, 40), (2, 20, 2), PRACT | ALL, 0), Status::SUCCESS);
        let mut plain = vec![0; 8192];
        assert_eq!(rig.io(&mut a, io(READ, 9, 40, 2), &mut plain), Status::SUCCESS);
        assert_eq!(plain, bytes);
        assert!(copy(&mut rig, &mut a, (1, 50), (2, 20, 2), ALL, 0).same_code(incompatible));
        let at = rig.data.windows(4096).rposition(|w| w == &bytes[..4096]).expect("in namespace 2");
        rig.data[at] ^= 1;
        let got = copy(&mut rig, &mut a, (1, 60), (2, 20, 2), PRACT | GUARD, 0);
        assert!(got.same_code(Status::GUARD_CHECK_ERROR), "{got}");
        rig.data[at] ^= 1;
        // Kept, and made anew, between two of a kind.
        assert_eq!(rig.format(&mut a, 1, protected(1)), Status::SUCCESS);
        assert_eq!(copy(&mut rig, &mut a, (1, 20), (2, 20, 2), ALL, ALL), Status::SUCCESS);
        let mut kept = vec![0; 2 * size];
        assert_eq!(rig.io(&mut a, of(read(20), 1), &mut kept), Status::SUCCESS);
        assert_eq!(kept, seen);
        assert_eq!(copy(&mut rig, &mut a, (1, 70), (2, 20, 2), PRACT | ALL, PRACT), Status::SUCCESS);
        assert_eq!(rig.io(&mut a, of(read(70), 1), &mut kept), Status::SUCCESS);
        assert!(copy(&mut rig, &mut a, (1, 80), (2, 20, 2), PRACT, 0).same_code(Status::INVALID_FIELD));
        let got = copied_between(&mut rig, &mut a, (1, 80), &[(2, 20, 2)], (desfmt ^ 1, PRACT, PRACT));
        assert!(got.same_code(Status::INVALID_NAMESPACE_OR_FORMAT), "the other guards' descriptors: {got}");
        // Another type of protection information, and more metadata.
        assert_eq!(rig.format(&mut a, 1, protected(2)), Status::SUCCESS);
        assert!(copy(&mut rig, &mut a, (1, 20), (2, 20, 2), ALL, ALL).same_code(incompatible));
        assert_eq!(
            rig.format(&mut a, 1, FormatDw10(index + if index == 3 { 1 } else { 2 }).with_mset(1)),
            Status::SUCCESS
        );
        assert!(copy(&mut rig, &mut a, (1, 20), (2, 20, 2), PRACT, 0).same_code(incompatible));
    }
}

#[test]
fn compare_and_write_are_one_with_metadata_too() {
    let mut rig = rig(4);
    let mut a = rig.host("nqn.gold", 100);
    assert_eq!(rig.format(&mut a, 1, FormatDw10(2).with_mset(1).with_pi(1)), Status::SUCCESS);
    let write = checked(io(WRITE, 9, 5, 2), PRACT, 5, (0xbeef, 0));
    assert_eq!(rig.io(&mut a, write, &mut pattern(1024, 2)), Status::SUCCESS);
    let mut old = vec![0; 2 * 520];
    assert_eq!(rig.io(&mut a, io(READ, 9, 5, 2), &mut old), Status::SUCCESS);
    let pair = |rig: &mut Rig, a: &mut Fabric, old: &[u8], new: &[u8], prinfo: u32| {
        let half = |opcode, cid, fuse, prinfo| {
            let sqe = io(opcode, cid, 5, 2);
            checked(Sqe { flags: sqe.flags | fuse, ..sqe }, prinfo, 5, (0xbeef, 0xffff))
        };
        let first = rig.send(a, half(COMPARE, 20, 1, ALL), old);
        let second = rig.send(a, half(WRITE, 21, 2, prinfo), new);
        rig.settle();
        let mut status = |tag| a.answer(&mut rig.world, 1, tag).expect("both are answered").status();
        (status(first), status(second))
    };
    // The drive makes the information of what is written; of eight bytes none is transferred then.
    let new = pattern(1024, 7);
    assert_eq!(pair(&mut rig, &mut a, &old, &new, PRACT), (Status::SUCCESS, Status::SUCCESS));
    let mut seen = vec![0; 2 * 520];
    let all = checked(io(READ, 9, 5, 2), ALL, 5, (0xbeef, 0xffff));
    assert_eq!(rig.io(&mut a, all, &mut seen), Status::SUCCESS);
    assert_eq!((&seen[..512], &seen[520..1032]), (&new[..512], &new[512..]));
    // What is not there any more.
    let (one, two) = pair(&mut rig, &mut a, &old, &new, PRACT);
    assert!(one.same_code(Status::COMPARE_FAILURE) && two.same_code(Status::ABORTED_FAILED_FUSED), "{one} {two}");
    // A second command that brings wrong information: the comparison was right, and nothing is written.
    let mut wrong = seen.clone();
    wrong[521] ^= 1;
    let (one, two) = pair(&mut rig, &mut a, &seen, &wrong, GUARD);
    assert!(one.is_success() && two.same_code(Status::GUARD_CHECK_ERROR), "{one} {two}");
    let mut still = vec![0; 2 * 520];
    assert_eq!(rig.io(&mut a, all, &mut still), Status::SUCCESS);
    assert_eq!(still, seen);
}

#[test]
fn write_protection_keeps_what_is_there() {
    let mut rig = rig(4);
    let (mut a, mut b) = (rig.host("nqn.gold", 100), rig.host("nqn.silver", 200));
    let bytes = pattern(512, 4);
    assert_eq!(rig.io(&mut a, io(WRITE, 9, 1, 1), &mut bytes.clone()), Status::SUCCESS);
    assert_eq!(rig.controller(&mut a).nwpc, 0b111);
    let state =
        |rig: &mut Rig, host: &mut Fabric| rig.admin(host, of(common::get_feature(FEATURE, 0), 1), &[]).dw0.get();
    assert_eq!(state(&mut rig, &mut a), write_protect::NONE);
    assert_eq!(rig.protect(&mut a, 1, 4), Status::INVALID_FIELD.dnr());
    assert_eq!(rig.protect(&mut a, 1, write_protect::PROTECTED), Status::SUCCESS);
    assert_eq!((state(&mut rig, &mut b), rig.namespace(&mut b, cns::NAMESPACE, 1).nsattr), (1, 1));
    assert_eq!(rig.changed(&mut b), [1]);
    let protected = Status::NAMESPACE_WRITE_PROTECTED.dnr();
    let trim = Sqe { cdw10: U32::new(0), cdw11: U32::new(4), ..io(TRIM, 9, 0, 1) };
    for sqe in [io(WRITE, 9, 1, 1), io(WRITE_ZEROES, 9, 1, 1), trim] {
        assert_eq!(rig.io(&mut b, sqe, &mut vec![0; 512]), protected);
    }
    assert_eq!(rig.format(&mut b, 1, FormatDw10(0)), protected);
    assert_eq!(rig.delete(&mut b, NSID_ALL), protected);
    for sqe in [io(FLUSH, 9, 1, 1), io(COMPARE, 9, 1, 1)] {
        assert_eq!(rig.io(&mut b, sqe, &mut bytes.clone()), Status::SUCCESS);
    }
    let mut read = vec![0; 512];
    assert_eq!(rig.io(&mut b, io(READ, 9, 1, 1), &mut read), Status::SUCCESS);
    assert_eq!(read, bytes);
    assert_eq!(rig.protect(&mut b, 1, write_protect::NONE), Status::SUCCESS);
    assert_eq!(rig.io(&mut a, io(WRITE, 9, 1, 1), &mut vec![0; 512]), Status::SUCCESS);
    assert_eq!(rig.protect(&mut b, NSID_ALL, write_protect::PERMANENT), Status::SUCCESS);
    for state in [write_protect::NONE, write_protect::PROTECTED, write_protect::UNTIL_POWER_CYCLE] {
        assert_eq!(rig.protect(&mut b, 1, state), Status::FEATURE_NOT_CHANGEABLE.dnr());
    }
}

#[test]
fn hosts_that_wait_for_events_are_told_of_attachments() {
    let mut rig = rig(4);
    let (mut a, mut b) = (rig.host("nqn.gold", 100), rig.host("nqn.silver", 200));
    assert!(rig.admin(&mut a, common::set_feature(0x0b, 1 << 8), &[]).status().is_success());
    let event = a.send(&mut rig.world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 50, 0, 0));
    rig.settle();
    assert_eq!(rig.create(&mut b, fields(8, 0)), Ok(2));
    assert!(a.answer(&mut rig.world, 0, event).is_none(), "what it has not attached does not concern it");
    assert_eq!(rig.attach(&mut b, attachment::ATTACH, 2, &[id(&a)]), Status::SUCCESS);
    let told = a.answer(&mut rig.world, 0, event).expect("an event");
    assert_eq!(AsyncEvent::from_dw0(told.dw0.get()), AsyncEvent::NAMESPACE_ATTRIBUTE);
    assert_eq!(rig.changed(&mut a), [2]);
}

#[test]
fn a_drive_remembers_its_namespaces() {
    let mut before = rig(1);
    let mut a = before.host("nqn.gold", 100);
    assert_eq!(section(&before.world.drive.save(), LAYOUT), None, "nothing is written of the configuration's");
    for nsid in 2..=5 {
        assert_eq!(before.create(&mut a, fields(2048, 0)), Ok(nsid));
    }
    assert_eq!(before.delete(&mut a, 3), Status::SUCCESS);
    assert_eq!(before.create(&mut a, HostSoftwareFields { nmic: 1, dps: 0b1010, ..fields(900, 0x14) }), Ok(3));
    assert_eq!(before.attach_own(&mut a, 3), Status::SUCCESS);
    assert_eq!(before.attach_own(&mut a, 5), Status::SUCCESS);
    let own = id(&a);
    assert_eq!(before.attach(&mut a, attachment::DETACH, 1, &[own]), Status::SUCCESS);
    assert_eq!(before.protect(&mut a, 3, write_protect::PROTECTED), Status::SUCCESS);
    assert_eq!(before.protect(&mut a, 5, write_protect::UNTIL_POWER_CYCLE), Status::SUCCESS);
    let page = before.namespace(&mut a, cns::NAMESPACE, 3);
    let blob = before.world.drive.save();
    let mut after = rig(1);
    after.world.drive.restore(&blob).expect("its own state");
    after.world.drive.check();
    assert_eq!(before.world.drive.save(), blob, "saving changes nothing");
    assert!(section(&blob, LAYOUT).is_some());
    // All is as it was but the counters: the power was cycled.
    let restored = after.world.drive.save();
    for id in (1..64).filter(|id| *id != COUNTERS) {
        assert_eq!(section(&restored, id), section(&blob, id), "section {id}");
    }
    let (mut a, mut b) = (after.host("nqn.gold", 100), after.host("nqn.silver", 200));
    assert_eq!(after.list(&mut a, cns::ACTIVE_NAMESPACES), [3, 5]);
    assert_eq!(after.list(&mut b, cns::ACTIVE_NAMESPACES), [1]);
    assert_eq!(after.list(&mut b, cns::ALLOCATED_NAMESPACES), [1, 2, 3, 4, 5]);
    let again = after.namespace(&mut a, cns::NAMESPACE, 3);
    assert_eq!((again.flbas, again.dps, again.nsattr, again.nmic), (0x14, 0b1010, 1, 1));
    assert_eq!(again, page);
    assert_eq!(after.namespace(&mut a, cns::NAMESPACE, 5).nsattr, 0);
    assert_eq!(after.io(&mut a, of(io(WRITE, 9, 0, 1), 5), &mut vec![1; 512]), Status::SUCCESS);
    assert_eq!(after.protect(&mut a, 3, write_protect::NONE), Status::SUCCESS);
    // A drive of another size is not this one; nor is one whose state is cut short or changed.
    let other = common::config(|c: &mut SubsystemConfig| {
        c.namespaces = vec![];
        c.management = Some(Management { capacity: CAPACITY / 2, least_block: 512, metadata: true });
    });
    assert!(TestWorld::new(other, 64).drive.restore(&blob).is_err());
    for at in 0..blob.len() {
        let mut wrong = blob.clone();
        wrong[at] ^= 0x10;
        assert!(rig(1).world.drive.restore(&wrong).is_err(), "byte {at}");
    }
}

/// Golden bytes of section 16, version 1 (`docs/reference/formats.md`).
#[test]
fn the_section_of_namespaces_lies_as_it_always_has() {
    let mut rig = rig(1);
    let mut a = rig.host("nqn.gold", 100);
    assert_eq!(rig.create(&mut a, HostSoftwareFields { dps: 0b1010, ..fields(300, 0x13) }), Ok(2));
    assert_eq!(rig.attach_own(&mut a, 2), Status::SUCCESS);
    assert_eq!(rig.delete(&mut a, 1), Status::SUCCESS);
    let blob = rig.world.drive.save();
    let found = section(&blob, LAYOUT).unwrap();
    let mut golden = Vec::new();
    golden.extend_from_slice(b"\0\0\x80\0\0\0\0\0\0\0\x10\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0");
    golden.extend_from_slice(b"\x02\0\0\0\0\xc0\x12\0\0\0\0\0");
    // Its UUID, of version 8.
    golden.extend_from_slice(&found[40..56]);
    assert_eq!((found[46] >> 4, found[48] >> 6), (8, 2));
    golden.extend_from_slice(b"\x03\x02\x0d\0\x01\0\0\0\x08\0\0\0nqn.gold");
    golden.extend_from_slice(b"\x02\0\0\0\x01\0\0\0\x02\0\0\0");
    assert_eq!(found, golden);
}
