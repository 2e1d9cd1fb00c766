//! Zoned namespaces through the controller: discovery, reads, writes, appends, management, reports, limits, events; in virtual time.

mod common;

use common::{CC_EN, config, get_feature, identify, set_feature};
use weir_controller::testing::{Fabric, TestWorld, admin, io};
use weir_controller::{
    Data, Event, ManagementError, NamespaceConfig, Op, SubsystemConfig, ZoneConfig, ZoneState, ZonedConfig,
    ZonedNamespace, Zrwa,
};
use weir_flash::Preset;
use weir_spec::nvme::feature::fid;
use weir_spec::nvme::identify::{IdentifyNamespace, cns, csi, namespace_descriptors, namespace_list, nidt};
use weir_spec::nvme::log::{AsyncEvent, Effects, lid};
use weir_spec::nvme::nvm::CopyRange;
use weir_spec::nvme::register::{self, Cap, Cc, ams, css, css_supported};
use weir_spec::nvme::zns::{
    self, CHANGED_ZONES, ChangedZones, IdentifyZonedNamespace, SendAction, SendDw13, ZoneDescriptor, ZonedOpcode,
    attribute, report,
};
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

const NSID: u32 = 7;
const READ: u8 = 2;
const WRITE: u8 = 1;
const SEND: u8 = ZonedOpcode::ZONE_MANAGEMENT_SEND.0;
const RECEIVE: u8 = ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0;
const APPEND: u8 = ZonedOpcode::ZONE_APPEND.0;
/// Where namespace 7 begins on the media.
const START: u64 = 16 << 30;

const ZONES: ZoneConfig = ZoneConfig {
    zones: 8,
    size: 64,
    capacity: 48,
    max_open: 2,
    max_active: 3,
    zrwa: Some(Zrwa { size: 8, granularity: 4, areas: 1 }),
    read_across: false,
    extension: 0,
};

/// The usual drive, and namespace 7: eight zones of 64 blocks of 4096 bytes.
fn zoned(change: impl FnOnce(&mut SubsystemConfig)) -> SubsystemConfig {
    config(|c| {
        let size = ZONES.blocks() * 4096;
        c.namespaces.push(NamespaceConfig { nsid: NSID, start: START, size, block_size: 4096, uuid: [7; 16] });
        c.zoned.push(ZonedNamespace { nsid: NSID, zones: ZONES, flash: None, volatile: false });
        change(c);
    })
}

struct Host {
    world: TestWorld,
    fabric: Fabric,
}

impl Host {
    fn new(change: impl FnOnce(&mut SubsystemConfig)) -> Host {
        let mut world = TestWorld::new(zoned(change), 64);
        let mut fabric = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
        fabric.add_queue(&mut world, 64, 0).expect("the host may have a queue");
        Host { world, fabric }
    }

    fn send(&mut self, sqe: Sqe) -> u32 {
        let tag = self.fabric.send(&mut self.world, 1, Sqe { nsid: U32::new(NSID), ..sqe });
        self.world.run();
        tag
    }

    fn answer(&mut self, tag: u32) -> Option<Cqe> {
        self.fabric.answer(&mut self.world, 1, tag)
    }

    /// Sends a command, does its I/O, and gives its completion.
    fn command(&mut self, sqe: Sqe) -> Cqe {
        let tag = self.send(sqe);
        self.world.settle();
        self.answer(tag).expect("the command is complete")
    }

    fn status(&mut self, sqe: Sqe) -> Status {
        self.command(sqe).status()
    }

    #[track_caller]
    fn fails(&mut self, sqe: Sqe, status: Status) {
        assert_eq!(self.status(sqe), status.dnr());
    }

    #[track_caller]
    fn works(&mut self, sqe: Sqe) {
        assert_eq!(self.status(sqe), Status::SUCCESS);
    }

    /// A report of so many bytes: how many zones it says, and its descriptors.
    fn report(&mut self, from: u64, filter: u32, partial: bool, bytes: usize) -> (Cqe, u64, Vec<ZoneDescriptor>) {
        let tag = self.fabric.tags + 1;
        self.world.host.data.insert((101, tag), vec![0xee; bytes]);
        let cqe = self.command(receive(from, filter << 8 | u32::from(partial) << 16, bytes));
        let data = self.world.host.data.remove(&(101, tag)).unwrap_or_default();
        let (zones, list) = report(&data, 0).expect("a header");
        let list = list.filter(|z| z.zone_type() != 0).collect();
        (cqe, zones, list)
    }

    fn state(&mut self, zone: u32) -> ZoneState {
        self.world.drive.zones(NSID).and_then(|zones| zones.get(zone)).expect("the zone is there").state
    }
}

fn manage(action: SendAction, lba: u64) -> Sqe {
    Sqe { cdw13: U32::new(action.0.into()), ..io(SEND, 1, lba, 1) }
}

fn manage_all(action: SendAction) -> Sqe {
    Sqe { cdw13: U32::new(SendDw13(0).with_zsa(action.0.into()).with_all(1).0), ..io(SEND, 1, 999_999, 1) }
}

fn receive(lba: u64, cdw13: u32, bytes: usize) -> Sqe {
    Sqe { cdw12: U32::new((bytes / 4 - 1) as u32), cdw13: U32::new(cdw13), ..io(RECEIVE, 2, lba, 1) }
}

fn result(cqe: &Cqe) -> u64 {
    u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32
}

/// Copy writes at the write pointer of one zone, from wherever can be read; Verify reads; what is unreadable has no place here.
#[test]
fn copies_go_to_the_write_pointer() {
    let mut host = Host::new(|_| {});
    let copy = |host: &mut Host, to: u64, ranges: &[(u64, u16)]| {
        let mut list = Vec::new();
        for (slba, blocks) in ranges {
            let (slba, nlb) = ((*slba).into(), (blocks - 1).into());
            list.extend_from_slice(CopyRange { slba, nlb, ..CopyRange::default() }.as_bytes());
        }
        host.world.host.data.insert((101, host.fabric.tags + 1), list);
        Sqe { cdw12: U32::new(ranges.len() as u32 - 1), ..io(IoOpcode::COPY.0, 1, to, 1) }
    };
    host.works(io(WRITE, 1, 0, 8));
    let sqe = copy(&mut host, 64, &[(2, 4), (0, 2)]);
    let tag = host.send(sqe);
    host.world.run();
    let moved: Vec<_> = host.world.issued.iter().map(|io| (io.op, io.offset, io.len, io.data.get())).collect();
    assert_eq!(moved, [(Op::Copy, START + 64 * 4096, 16384, Data::Media(START + 2 * 4096))]);
    host.world.settle();
    assert_eq!(host.answer(tag).map(|cqe| cqe.status()), Some(Status::SUCCESS));
    let sqe = copy(&mut host, 64, &[(0, 1)]);
    host.fails(sqe, Status::ZONE_INVALID_WRITE);
    let sqe = copy(&mut host, 70, &[(0, 2), (64, 2)]);
    host.works(sqe);
    // Beyond the zone's capacity, and more than one zone has.
    let sqe = copy(&mut host, 74, &[(0, 8); 5]);
    host.fails(sqe, Status::ZONE_BOUNDARY_ERROR);
    let sqe = copy(&mut host, 72, &[(0, 8); 5]);
    host.fails(sqe, Status::ZONE_INVALID_WRITE);
    let sqe = copy(&mut host, 74, &[(0, 8), (0, 8), (0, 8), (0, 8), (0, 6)]);
    host.works(sqe);
    assert_eq!(host.state(1), ZoneState::Full);
    host.works(io(IoOpcode::VERIFY.0, 1, 64, 40));
    host.fails(io(IoOpcode::WRITE_UNCORRECTABLE.0, 1, 0, 1), Status::INVALID_OPCODE);
    let sqe = io(5, 1, 0, 1);
    host.fails(Sqe { flags: sqe.flags | 2, ..sqe }, Status::INVALID_FIELD);
}

#[test]
fn a_host_finds_the_namespace() {
    let mut h = Host::new(|_| {});
    let (world, fabric) = (&mut h.world, &mut h.fabric);
    let cap = Cap(fabric.property(world, register::CAP).1);
    assert_eq!(cap.css(), css_supported::NVM | css_supported::ALL);
    let mut ask = |cns, nsid, set: u32| {
        let (cqe, data) = fabric.admin_data(world, Sqe { cdw11: U32::new(set << 24), ..identify(cns, nsid) });
        (cqe.status(), data)
    };
    let list = |data: &[u8]| namespace_list(data).collect::<Vec<_>>();
    assert_eq!(list(&ask(cns::ACTIVE_NAMESPACES, 0, 0).1), [1, 3, 7]);
    assert_eq!(list(&ask(cns::CS_ACTIVE_NAMESPACES, 0, 0).1), [1, 3]);
    assert_eq!(list(&ask(cns::CS_ACTIVE_NAMESPACES, 0, 2).1), [7]);
    assert_eq!(list(&ask(cns::CS_ALLOCATED_NAMESPACES, 7, 2).1), []);
    assert_eq!(ask(cns::CS_ACTIVE_NAMESPACES, 0, 3).0, Status::INVALID_FIELD.dnr());
    assert_eq!(ask(cns::COMMAND_SETS, 0, 0).1[..16], [0b101, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (_, data) = ask(cns::NAMESPACE_DESCRIPTORS, NSID, 0);
    let set = namespace_descriptors(&data).find(|d| d.kind == nidt::CSI).map(|d| d.id.to_vec());
    assert_eq!(set, Some(vec![csi::ZNS]));
    let id = IdentifyNamespace::read_from_prefix(&ask(cns::NAMESPACE, NSID, 0).1).unwrap().0;
    assert_eq!((id.nsze.get(), id.ncap.get(), id.block_shift()), (8 * 64, 8 * 48, Some(12)));
    let id = IdentifyZonedNamespace::read_from_prefix(&ask(cns::CS_NAMESPACE, NSID, 2).1).unwrap().0;
    assert_eq!((id.zoc.get(), id.mar.get(), id.mor.get(), id.lbafe[0].zsze.get()), (0, 2, 1, 64));
    assert_eq!((id.ozcs.get(), id.numzrwa.get(), id.zrwafg.get(), id.zrwasz.get()), (zns::ozcs::ZRWA, 1, 4, 8));
    assert_eq!(ask(cns::CS_CONTROLLER, 0, 2), (Status::SUCCESS, vec![0; 1 << 16]), "appends are as long as MDTS says");
    assert_eq!(ask(cns::CS_NAMESPACE, 1, 2).0, Status::INVALID_FIELD.dnr(), "not zoned");
    // Commands by set; the profile has one combination.
    let mut effects = |set: u32| {
        let sqe = Sqe {
            cdw14: U32::new(set << 24),
            ..admin(AdminOpcode::GET_LOG_PAGE, 1, u32::from(lid::EFFECTS) | 1023 << 16, 0)
        };
        let (cqe, data) = fabric.admin_data(world, sqe);
        (cqe.status(), Effects::read_from_prefix(&data).unwrap().0.io[usize::from(APPEND)].get())
    };
    assert_eq!(effects(0), (Status::SUCCESS, 0));
    assert_eq!(effects(2), (Status::SUCCESS, 0b11));
    assert_eq!(effects(1).0, Status::INVALID_FIELD.dnr());
    assert_eq!(fabric.admin(world, get_feature(fid::COMMAND_SET_PROFILE, 0)).dw0.get(), 0);
    let set = fabric.admin(world, set_feature(fid::COMMAND_SET_PROFILE, 1));
    assert_eq!(set.status(), Status::COMMAND_SET_COMBINATION_REJECTED.dnr());
}

#[test]
fn without_the_command_set_the_namespace_is_not_there() {
    let mut world = TestWorld::new(zoned(|_| {}), 64);
    let mut fabric = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    assert!(fabric.set_cc(&mut world, CC_EN).is_success());
    fabric.add_queue(&mut world, 8, 0).unwrap();
    let (_, data) = fabric.admin_data(&mut world, identify(cns::ACTIVE_NAMESPACES, 0));
    assert!(namespace_list(&data).eq([1, 3]));
    let (cqe, data) = fabric.admin_data(&mut world, identify(cns::NAMESPACE, NSID));
    assert_eq!((cqe.status(), &data[..4096]), (Status::SUCCESS, &[0; 4096][..]));
    for sqe in [io(WRITE, 1, 0, 1), io(READ, 1, 0, 1), receive(0, 0, 4096)] {
        let tag = fabric.send(&mut world, 1, Sqe { nsid: U32::new(NSID), ..sqe });
        world.settle();
        assert_eq!(fabric.answer(&mut world, 1, tag).unwrap().status(), Status::COMMAND_SET_NOT_ENABLED.dnr());
    }
    // A drive without zones knows neither the selection nor the opcodes.
    let mut world = TestWorld::new(config(|_| {}), 64);
    let mut fabric = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    fabric.set_cc(&mut world, Cc(CC_EN).with_css(css::ALL).0);
    assert_eq!(fabric.property(&mut world, register::CSTS).1 & 2, 2, "CSTS.CFS");
    let mut fabric = Fabric::ready(&mut world, "nqn.gold", 200, ams::RR);
    fabric.add_queue(&mut world, 8, 0).unwrap();
    let tag = fabric.send(&mut world, 1, io(APPEND, 1, 0, 1));
    world.settle();
    assert_eq!(fabric.answer(&mut world, 1, tag).unwrap().status(), Status::INVALID_OPCODE.dnr());
}

#[test]
fn writes_follow_the_write_pointer() {
    let mut h = Host::new(|_| {});
    h.fails(io(WRITE, 1, 1, 1), Status::ZONE_INVALID_WRITE);
    h.works(io(WRITE, 1, 0, 8));
    h.fails(io(WRITE, 1, 0, 8), Status::ZONE_INVALID_WRITE);
    let tag = h.send(io(WRITE, 1, 8, 4));
    let moved = h.world.issued[0];
    assert_eq!((moved.op, moved.offset, moved.len), (Op::Write, START + 8 * 4096, 4 * 4096));
    h.world.settle();
    assert!(h.answer(tag).unwrap().status().is_success());
    h.works(Sqe { ..io(0x08, 1, 12, 4) });
    h.fails(io(WRITE, 1, 16, 33), Status::ZONE_BOUNDARY_ERROR);
    h.works(io(WRITE, 1, 16, 32));
    assert_eq!(h.state(0), ZoneState::Full);
    h.fails(io(WRITE, 1, 48, 1), Status::ZONE_IS_FULL);
    h.fails(io(APPEND, 1, 0, 1), Status::ZONE_IS_FULL);
    // Reads: anywhere in a zone, written or not, but in one zone.
    h.works(io(READ, 1, 0, 48));
    h.works(io(READ, 1, 64 * 3 + 60, 4));
    h.works(io(0x05, 1, 0, 1));
    h.fails(io(READ, 1, 60, 8), Status::ZONE_BOUNDARY_ERROR);
    h.fails(io(READ, 1, 8 * 64 - 1, 2), Status::LBA_OUT_OF_RANGE);
    h.fails(io(WRITE, 1, 8 * 64, 1), Status::LBA_OUT_OF_RANGE);
    h.fails(io(APPEND, 1, 1 << 60, 1), Status::LBA_OUT_OF_RANGE);
    // Dataset management is a hint, and does not make room.
    h.works(Sqe { cdw10: U32::new(0), cdw11: U32::new(4), ..io(0x09, 1, 0, 1) });
    assert_eq!(h.state(0), ZoneState::Full);
}

#[test]
fn an_append_says_where_it_went() {
    let mut h = Host::new(|_| {});
    let tags = [h.send(io(APPEND, 1, 64, 4)), h.send(io(APPEND, 2, 64, 8)), h.send(io(APPEND, 3, 64, 1))];
    assert!(h.world.issued.iter().map(|io| io.offset).eq([64, 68, 76].map(|lba| START + lba * 4096)));
    // The media is done in another order.
    while !h.world.issued.is_empty() {
        h.world.done(h.world.issued.len() - 1, Status::SUCCESS);
    }
    let results = tags.map(|tag| result(&h.answer(tag).unwrap()));
    assert_eq!(results, [64, 68, 76]);
    assert_eq!(result(&h.command(io(WRITE, 1, 77, 1))), 0);
    h.fails(io(APPEND, 1, 65, 1), Status::INVALID_FIELD);
    h.fails(io(APPEND, 1, 64, 35), Status::ZONE_BOUNDARY_ERROR);
    let work = h.world.drive.stats().work;
    assert_eq!((work.writes, work.write_bytes), (4, 14 * 4096), "appends are writes");
    let huge = 4096 << 8;
    assert_eq!(h.world.drive.config().mdts, 8);
    h.fails(io(APPEND, 1, 64, huge / 4096 + 1), Status::INVALID_FIELD);
}

#[test]
fn open_and_active_zones_are_limited() {
    let mut h = Host::new(|_| {});
    h.works(manage(SendAction::OPEN, 0));
    h.works(manage(SendAction::OPEN, 64));
    h.fails(manage(SendAction::OPEN, 128), Status::TOO_MANY_OPEN_ZONES);
    h.fails(io(WRITE, 1, 128, 1), Status::TOO_MANY_OPEN_ZONES);
    h.works(manage(SendAction::CLOSE, 64));
    h.works(io(WRITE, 1, 128, 1));
    // The implicitly opened one is closed for another.
    h.works(io(WRITE, 1, 64, 1));
    assert_eq!((h.state(1), h.state(2)), (ZoneState::ImplicitlyOpened, ZoneState::Closed));
    h.fails(io(APPEND, 1, 192, 1), Status::TOO_MANY_ACTIVE_ZONES);
    h.works(manage(SendAction::FINISH, 128));
    h.works(io(APPEND, 1, 192, 1));
    h.fails(manage(SendAction::OPEN, 128), Status::INVALID_ZONE_STATE_TRANSITION);
    h.fails(manage(SendAction::CLOSE, 256), Status::INVALID_ZONE_STATE_TRANSITION);
    h.fails(manage(SendAction::OFFLINE, 0), Status::INVALID_ZONE_STATE_TRANSITION);
    h.fails(manage(SendAction::OPEN, 1), Status::INVALID_FIELD);
    h.fails(manage(SendAction(0x20), 0), Status::INVALID_FIELD);
    h.fails(manage(SendAction::SET_DESCRIPTOR_EXTENSION, 0), Status::INVALID_FIELD);
    h.fails(manage(SendAction::OPEN, 512), Status::LBA_OUT_OF_RANGE);
    h.works(manage_all(SendAction::CLOSE));
    assert_eq!(h.world.drive.zones(NSID).unwrap().in_use(), (0, 3, 0));
    h.fails(manage_all(SendAction::OPEN), Status::TOO_MANY_OPEN_ZONES);
    h.works(manage_all(SendAction::FINISH));
    h.works(manage_all(SendAction::RESET));
    assert!(h.world.drive.zones(NSID).unwrap().iter().all(|z| z.state == ZoneState::Empty));
}

#[test]
fn a_reset_deallocates_and_waits_for_writes() {
    let mut h = Host::new(|_| {});
    h.works(io(WRITE, 1, 64, 4));
    let write = h.send(io(APPEND, 1, 64, 4));
    let reset = h.send(manage(SendAction::RESET, 64));
    assert_eq!(h.world.issued.len(), 1, "the write is in flight");
    assert_eq!(h.state(1), ZoneState::ImplicitlyOpened);
    // In the meantime the zone takes nothing, others do.
    for refused in
        [io(WRITE, 1, 72, 1), io(APPEND, 1, 64, 1), manage(SendAction::FINISH, 64), manage_all(SendAction::CLOSE)]
    {
        let tag = h.send(refused);
        assert_eq!(h.answer(tag).unwrap().status(), Status::COMMAND_INTERRUPTED, "to be tried again");
    }
    let (other, read) = (h.send(io(WRITE, 1, 0, 1)), h.send(io(READ, 1, 64, 1)));
    assert_eq!(h.world.issued.len(), 3);
    h.world.done(0, Status::SUCCESS);
    h.world.run();
    assert!(h.answer(write).unwrap().status().is_success());
    let last = *h.world.issued.last().unwrap();
    assert_eq!((last.op, last.offset, last.len), (Op::Deallocate, START + 64 * 4096, 64 * 4096));
    assert!(h.answer(reset).is_none());
    h.world.settle();
    for tag in [reset, other, read] {
        assert!(h.answer(tag).unwrap().status().is_success());
    }
    assert_eq!(h.state(1), ZoneState::Empty);
    // An empty zone has nothing to deallocate.
    let again = h.send(manage(SendAction::RESET, 64));
    assert!(h.world.issued.is_empty() && h.answer(again).unwrap().status().is_success());
    // All of them: one range where zones are neighbours.
    for lba in [0, 64, 192] {
        h.works(manage(SendAction::FINISH, lba));
    }
    let all = h.send(manage_all(SendAction::RESET));
    let mut ranges = Vec::new();
    while let Some(io) = h.world.issued.first().copied() {
        assert_eq!(io.op, Op::Deallocate);
        ranges.push(((io.offset - START) / 4096, io.len / 4096));
        h.world.done(0, Status::SUCCESS);
        h.world.run();
    }
    assert_eq!(ranges, [(0, 128), (192, 64)]);
    assert!(h.answer(all).unwrap().status().is_success());
}

#[test]
fn a_reset_goes_on_without_its_host() {
    let mut h = Host::new(|_| {});
    h.works(io(WRITE, 1, 0, 48));
    let write = h.send(io(WRITE, 1, 64, 1));
    h.send(manage_all(SendAction::RESET));
    let queue = h.fabric.queues[1];
    h.world.disconnect(weir_controller::Owner(101), queue);
    // The write, whose bytes may already be on their way, then the zones.
    h.world.done(0, Status::SUCCESS);
    h.world.run();
    assert!(h.answer(write).is_none());
    let ops: Vec<_> = h.world.issued.iter().map(|io| (io.op, io.len)).collect();
    assert_eq!(ops, [(Op::Deallocate, 128 * 4096)]);
    h.world.settle();
    assert_eq!(h.world.drive.stats().slots_used, 0);
    assert!(h.world.drive.zones(NSID).unwrap().iter().all(|z| z.state == ZoneState::Empty));
}

#[test]
fn what_the_media_fails_is_read_only_and_hosts_are_told() {
    let mut h = Host::new(|_| {});
    let (world, fabric) = (&mut h.world, &mut h.fabric);
    assert!(fabric.admin(world, set_feature(fid::ASYNC_EVENTS, zns::NOTICES)).status().is_success());
    let event = fabric.send(world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    world.run();
    let write = h.send(io(WRITE, 1, 64, 1));
    h.world.done(0, Status::WRITE_FAULT);
    h.world.run();
    assert_eq!(h.answer(write).unwrap().status(), Status::WRITE_FAULT);
    let cqe = h.fabric.answer(&mut h.world, 0, event).expect("an event");
    assert_eq!((cqe.dw0.get(), cqe.dw1.get()), (AsyncEvent::ZONE_DESCRIPTOR_CHANGED.dw0(), NSID));
    h.world.drive.degrade_zone(NSID, 0, true).unwrap();
    let log = |h: &mut Host, nsid: u32| {
        let sqe = admin(AdminOpcode::GET_LOG_PAGE, 1, u32::from(CHANGED_ZONES) | 1023 << 16, 0);
        let (cqe, data) = h.fabric.admin_data(&mut h.world, Sqe { nsid: U32::new(nsid), ..sqe });
        let page = ChangedZones::read_from_prefix(&data).unwrap().0;
        (cqe.status(), page.zones().collect::<Vec<_>>())
    };
    assert_eq!(log(&mut h, 1).0, Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    assert_eq!(log(&mut h, NSID), (Status::SUCCESS, vec![0, 64]));
    assert_eq!(log(&mut h, NSID), (Status::SUCCESS, vec![]), "it was read");
    h.fails(io(WRITE, 1, 65, 1), Status::ZONE_IS_READ_ONLY);
    h.fails(manage(SendAction::RESET, 64), Status::INVALID_ZONE_STATE_TRANSITION);
    h.works(io(READ, 1, 64, 1));
    h.fails(io(READ, 1, 0, 1), Status::ZONE_IS_OFFLINE);
    h.fails(io(APPEND, 1, 0, 1), Status::ZONE_IS_OFFLINE);
    h.works(manage(SendAction::OFFLINE, 64));
    assert_eq!(h.state(1), ZoneState::Offline);
    // A zone that cannot be reset keeps what it holds and takes nothing new.
    h.works(io(WRITE, 1, 128, 1));
    let reset = h.send(manage(SendAction::RESET, 128));
    h.world.done(0, Status::WRITE_FAULT);
    assert_eq!(h.answer(reset).unwrap().status(), Status::WRITE_FAULT);
    assert_eq!(h.state(2), ZoneState::ReadOnly);
    // The host's own failure is not the zone's.
    let write = h.send(io(WRITE, 1, 192, 1));
    h.world.done(0, Status::DATA_TRANSFER_ERROR);
    assert_eq!(h.answer(write).unwrap().status(), Status::DATA_TRANSFER_ERROR);
    assert_eq!(h.state(3), ZoneState::ImplicitlyOpened);
    assert_eq!(h.world.drive.degrade_zone(NSID, 0, false), Err(ManagementError::Zones));
    assert_eq!(h.world.drive.degrade_zone(1, 0, false), Err(ManagementError::NoNamespace));
}

#[test]
fn reports_list_zones() {
    let mut h = Host::new(|_| {});
    h.works(io(WRITE, 1, 64, 5));
    h.works(manage(SendAction::OPEN, 128));
    h.works(manage(SendAction::FINISH, 192));
    let (cqe, zones, list) = h.report(0, 0, false, 4096);
    assert_eq!((cqe.status(), zones, list.len()), (Status::SUCCESS, 8, 8));
    let seen: Vec<_> = list.iter().map(|z| (z.state().0, z.zslba.get(), z.wp.get(), z.zcap.get())).collect();
    let full = u64::MAX;
    assert_eq!(seen[..5], [(1, 0, 0, 48), (2, 64, 69, 48), (3, 128, 128, 48), (14, 192, full, 48), (1, 256, 256, 48)]);
    let (_, zones, list) = h.report(64 + 3, 1, false, 64 + 2 * 64);
    assert_eq!((zones, list.len()), (4, 2), "empty zones from the second on, as many as fit");
    assert_eq!(list[0].zslba.get(), 256);
    let (_, zones, list) = h.report(0, 1, true, 64 + 2 * 64 + 60);
    assert_eq!((zones, list.len()), (2, 2), "those that are there");
    let (_, zones, list) = h.report(0, 4, false, 8192);
    assert_eq!((zones, list.len()), (0, 0));
    let (_, zones, list) = h.report(0, 0, false, 64);
    assert_eq!((zones, list.len()), (8, 0), "how many there are");
    h.fails(receive(0, 8 << 8, 4096), Status::INVALID_FIELD);
    h.fails(receive(0, 1, 4096), Status::INVALID_FIELD);
    h.fails(receive(0, 0, 60), Status::INVALID_FIELD);
    h.fails(receive(512, 0, 4096), Status::LBA_OUT_OF_RANGE);
    h.fails(receive(0, 0, (4096 << 8) + 4), Status::INVALID_FIELD);
    let endless = Sqe { cdw12: U32::new(u32::MAX), ..receive(0, 0, 4) };
    h.fails(endless, Status::INVALID_FIELD);
}

#[test]
fn random_write_areas() {
    let mut h = Host::new(|_| {});
    let open = |lba| Sqe { cdw13: U32::new(SendDw13(3).with_zsaso(1).0), ..io(SEND, 1, lba, 1) };
    let flush = |lba| manage(SendAction::FLUSH_ZRWA, lba);
    h.works(open(0));
    h.fails(open(64), Status::ZRWA_RESOURCES_UNAVAILABLE);
    h.fails(io(APPEND, 1, 0, 1), Status::INVALID_ZONE_OPERATION);
    // Anywhere within twice the area, and again.
    h.works(io(WRITE, 1, 5, 2));
    h.works(io(WRITE, 1, 5, 2));
    h.works(io(WRITE, 1, 0, 8));
    assert_eq!(h.report(0, 3, false, 4096).2[0].wp.get(), 0);
    assert_eq!(h.report(0, 3, false, 4096).2[0].za, attribute::ZRWA_VALID);
    // Beyond the area: what is in front is committed, in granules of four.
    h.works(io(WRITE, 1, 8, 1));
    assert_eq!(h.report(0, 3, false, 4096).2[0].wp.get(), 4);
    h.fails(io(WRITE, 1, 3, 1), Status::ZONE_INVALID_WRITE);
    h.fails(io(WRITE, 1, 20, 1), Status::ZONE_INVALID_WRITE);
    h.fails(flush(8), Status::INVALID_FIELD);
    h.fails(flush(12), Status::ZONE_BOUNDARY_ERROR);
    h.fails(flush(64), Status::INVALID_ZONE_OPERATION);
    h.works(flush(11));
    assert_eq!(h.report(0, 3, false, 4096).2[0].wp.get(), 12);
    h.works(manage(SendAction::FINISH, 0));
    h.works(open(64));
    h.works(manage(SendAction::RESET, 64));
    assert_eq!(h.world.drive.zones(NSID).unwrap().in_use(), (0, 0, 0));
}

#[test]
fn times_are_those_of_the_flash() {
    // FEMU's black-box flash: 64 dies, pages of 4 KiB, 40 us, 200 us, 2 ms; a zone's first page is the first die's.
    let mut h = Host::new(|c| {
        c.zoned[0].flash = Some(ZonedConfig::of(&Preset::FemuBbssd.parts(false), ZONES, 12));
    });
    let timed = |h: &mut Host, sqe: Sqe| {
        let (begun, tag) = (h.world.now, h.send(sqe));
        loop {
            h.world.settle();
            if let Some(cqe) = h.answer(tag) {
                assert!(cqe.status().is_success());
                return h.world.now.0 - begun.0;
            }
            let due = h.world.drive.next_deadline().expect("something is due");
            h.world.now = due;
            h.world.event(Event::Tick);
        }
    };
    assert_eq!(timed(&mut h, io(WRITE, 1, 0, 1)), 200_000);
    assert_eq!(timed(&mut h, io(WRITE, 1, 1, 40)), 200_000, "on so many dies");
    assert_eq!(timed(&mut h, io(READ, 1, 0, 41)), 40_000);
    assert_eq!(timed(&mut h, manage(SendAction::OPEN, 64)), 0);
    assert_eq!(timed(&mut h, manage(SendAction::RESET, 0)), 2_000_000);
    assert_eq!(timed(&mut h, manage(SendAction::RESET, 0)), 0);
    // Two writes of one die.
    let begun = h.world.now;
    assert!(h.world.drive.zones(NSID).is_some());
    let tags = [h.send(io(APPEND, 1, 64, 1)), h.send(io(APPEND, 2, 128, 1))];
    h.world.pass(Nanos(200_000));
    h.world.settle();
    assert!(h.answer(tags[0]).is_some() && h.answer(tags[1]).is_none(), "zones begin on the same die");
    h.world.pass(Nanos(200_000));
    h.world.settle();
    assert!(h.answer(tags[1]).is_some() && h.world.now.0 == begun.0 + 400_000);
    // One that has begun cannot be aborted: its block is taken.
    let tag = h.send(io(APPEND, 77, 64, 1));
    let abort = h.fabric.admin(&mut h.world, admin(AdminOpcode::ABORT, 1, 77 << 16 | 1, 0));
    assert_eq!(abort.dw0.get(), 1);
    h.world.pass(Nanos(200_000));
    h.world.settle();
    assert_eq!(result(&h.answer(tag).unwrap()), 65);
}

#[test]
fn zones_that_do_not_go_with_their_namespace() {
    let fails = |change: fn(&mut ZonedNamespace)| {
        weir_controller::Subsystem::new(zoned(|c| change(&mut c.zoned[0])), Nanos(0)).err()
    };
    assert_eq!(fails(|_| {}), None);
    assert_eq!(fails(|z| z.nsid = 9), Some(ManagementError::NoNamespace));
    assert_eq!(fails(|z| z.nsid = 1), Some(ManagementError::Zones));
    assert_eq!(fails(|z| z.zones.zones = 7), Some(ManagementError::Zones));
    assert_eq!(fails(|z| z.zones.max_active = 1), Some(ManagementError::Zones));
    let other = |z: &mut ZonedNamespace| {
        let zones = ZoneConfig { capacity: 40, ..ZONES };
        z.flash = Some(ZonedConfig::of(&Preset::FemuBbssd.parts(false), zones, 12));
    };
    assert_eq!(fails(other), Some(ManagementError::Zones), "flash for other zones");
    let mut h = Host::new(|_| {});
    assert_eq!(h.world.drive.resize_namespace(NSID, 4096), Err(ManagementError::Zones));
    assert!(h.world.drive.zones(1).is_none());
    h.works(io(READ, 1, 0, 1));
}

/// Two extensions of 128 bytes, one of which is set.
#[test]
fn a_zone_carries_its_hosts_bytes() {
    let mut h = Host::new(|c| c.zoned[0].zones.extension = 2);
    let (_, page) =
        h.fabric.admin_data(&mut h.world, Sqe { cdw11: U32::new(2 << 24), ..identify(cns::CS_NAMESPACE, NSID) });
    let id = IdentifyZonedNamespace::read_from_prefix(&page).expect("4096 bytes").0;
    assert_eq!(id.lbafe[0].zdes, 2);
    let set = |h: &mut Host, lba: u64, fill: u8| {
        let tag = h.fabric.tags + 1;
        h.world.host.data.insert((101, tag), vec![fill; 128]);
        h.status(manage(SendAction::SET_DESCRIPTOR_EXTENSION, lba))
    };
    assert_eq!(set(&mut h, 64, 7), Status::SUCCESS);
    assert_eq!(h.state(1), ZoneState::Closed);
    assert_eq!(set(&mut h, 64, 8), Status::INVALID_ZONE_STATE_TRANSITION.dnr());
    assert_eq!(set(&mut h, 65, 8), Status::INVALID_FIELD.dnr(), "no beginning of a zone");
    assert_eq!(set(&mut h, 1 << 40, 8), Status::LBA_OUT_OF_RANGE.dnr());
    let extended = |h: &mut Host, bytes: usize| {
        let tag = h.fabric.tags + 1;
        h.world.host.data.insert((101, tag), vec![0xee; bytes]);
        assert_eq!(h.status(receive(0, 1, bytes)), Status::SUCCESS);
        h.world.host.data.remove(&(101, tag)).unwrap_or_default()
    };
    let report = extended(&mut h, 64 + 3 * 192 + 64);
    let (zones, list) = zns::report(&report, 128).expect("a header");
    let valid: Vec<bool> = list.map(|z| z.za & attribute::EXTENSION_VALID != 0).collect();
    assert_eq!((zones, valid), (8, vec![false, true, false]));
    assert_eq!(report[64 + 192 + 64..64 + 2 * 192], [7; 128]);
    assert_eq!(report[64 + 64..64 + 192], [0; 128]);
    assert_eq!(report[64 + 3 * 192..], [0; 64], "half a descriptor is none");
    let long = extended(&mut h, 32768);
    assert_eq!((&long[64 + 192 + 64..64 + 2 * 192], long[32767]), (&[7; 128][..], 0));
    h.works(manage(SendAction::RESET, 64));
    let gone = zns::report(&extended(&mut h, 64 + 3 * 192), 128).expect("a header").1.all(|z| z.za == 0);
    assert!(gone && set(&mut h, 64, 9) == Status::SUCCESS, "an empty zone can be given others");
    for (lba, status) in [(0, Status::SUCCESS), (128, Status::SUCCESS), (192, Status::TOO_MANY_ACTIVE_ZONES.dnr())] {
        assert_eq!(set(&mut h, lba, 1), status, "three active zones");
    }
}
