//! Flexible data placement through the controller: what hosts find, where writes go, handle status and update, events.

mod common;

use common::{config, fabric_with_queues, get_feature, identify, identify_controller, set_feature};
use weir_controller::testing::{Fabric, TestWorld, admin, io};
use weir_controller::{Op, Operation, TimingModel};
use weir_flash::{BufferConfig, FdpConfig, Flash, FlashDriveConfig, FlashOp, Preset, UNIT, When};
use weir_spec::nvme::fdp::{
    DirectiveDw11, EventsDw11, ManagementDw10, Mode, directive, event_flag, event_type, handle_type, usage,
};
use weir_spec::nvme::feature::fid;
use weir_spec::nvme::identify::{IdentifyIndependentNamespace, IdentifyNamespace, cns, oacs};
use weir_spec::nvme::log::{Effects, SupportedLogPages, lid};
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use weir_units::{Bytes, Nanos};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

const WRITE: u8 = 1;

#[derive(Debug)]
struct Inside(Flash);

impl TimingModel for Inside {
    fn begin(&mut self, now: Nanos, operation: Operation) -> When {
        let Operation { op, offset, len, placement, .. } = operation;
        let (first, units) = ((offset / u64::from(UNIT)) as u32, len.div_ceil(UNIT));
        let op = match op {
            Op::Write => FlashOp::Write { fua: false },
            Op::Read => FlashOp::Read,
            _ => FlashOp::Flush,
        };
        self.0.begin(now, When::at(now), op, first, units, placement)
    }
    fn placement(&self) -> Option<&Flash> {
        Some(&self.0)
    }
    fn placement_mut(&mut self) -> Option<&mut Flash> {
        Some(&mut self.0)
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Four dies in two reclaim groups, three handles of which the last is persistently isolated: reclaim units of 32 units.
fn flash() -> Flash {
    let mut config = FlashDriveConfig::preset(Preset::FemuBasic, false);
    let geometry = &mut config.geometry;
    (geometry.channels, geometry.ways, geometry.planes, geometry.blocks, geometry.pages) = (4, 1, 1, 64, 16);
    geometry.page_bytes = UNIT;
    geometry.spare_bytes = 64;
    config.buffer = BufferConfig::NONE;
    config.ftl.multi_plane = false;
    config.ftl.capacity = Some(Bytes(3000 * u64::from(UNIT)));
    config.ftl.fdp = Some(FdpConfig { groups: 2, handles: 3, persistent: 0b100, blocks: 1 });
    Flash::new(&config, Nanos(0)).expect("a small drive")
}

struct Host {
    world: TestWorld,
    fabric: Fabric,
}

impl Host {
    fn new(default: Option<u8>) -> Host {
        let config = config(|c| {
            for ns in &mut c.namespaces {
                (ns.start, ns.size) = (u64::from(ns.nsid / 3) * 1000 * u64::from(UNIT), 1000 * u64::from(UNIT));
            }
            c.tenants[0].placement = default;
        });
        let mut world = TestWorld::new(config, 64);
        world.drive.set_service(Box::new(Inside(flash())));
        let fabric = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
        Host { world, fabric }
    }

    fn flash(&mut self) -> &mut Flash {
        let inside = self.world.drive.service_mut().and_then(|s| s.as_any_mut().downcast_mut::<Inside>());
        &mut inside.expect("ours").0
    }

    /// Programmed units, by group and handle.
    fn written(&mut self) -> Vec<u64> {
        let fdp = self.flash().fdp().expect("handles");
        let work = |i: u16| fdp.work(i / 3, (i % 3) as u8).expect("there").written;
        (0..6).map(work).collect()
    }

    /// An I/O command with so many bytes for its data, which are answered.
    fn command(&mut self, sqe: Sqe, data: &[u8]) -> (Cqe, Vec<u8>) {
        let tag = self.fabric.tags + 1;
        self.world.host.data.insert((101, tag), data.to_vec());
        let tag = self.fabric.send(&mut self.world, 1, sqe);
        self.world.run();
        for _ in 0..8 {
            self.world.pass(Nanos(10_000_000));
            self.world.settle();
        }
        let cqe = self.fabric.answer(&mut self.world, 1, tag).expect("the command is complete");
        (cqe, self.world.host.data.remove(&(101, tag)).unwrap_or_default())
    }

    #[track_caller]
    fn write(&mut self, lba: u64, pid: Option<u16>) {
        let mut sqe = Sqe { nsid: U32::new(3), ..io(WRITE, 1, lba, 1) };
        if let Some(pid) = pid {
            sqe.cdw12 |= U32::new(2 << 20);
            sqe.cdw13 = U32::new(u32::from(pid) << 16);
        }
        assert_eq!(self.command(sqe, &[0; 4096]).0.status(), Status::SUCCESS);
    }

    fn log(&mut self, lid: u8, lsp: u32, bytes: u32) -> (Status, Vec<u8>) {
        let cdw10 = (bytes / 4 - 1) << 16 | lsp << 8 | u32::from(lid);
        let (cqe, data) = self.fabric.admin_data(&mut self.world, admin(AdminOpcode::GET_LOG_PAGE, 1, cdw10, 1 << 16));
        (cqe.status(), data[..bytes as usize].to_vec())
    }

    /// Type, flags, PID, NSID, group and handle of each event.
    fn events(&mut self, host: bool) -> Vec<(u8, u8, u16, u32, u16, u8)> {
        let (status, page) = self.log(lid::FDP_EVENTS, u32::from(host), 64 * 64);
        assert_eq!(status, Status::SUCCESS);
        let short = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
        let event = |e: &[u8]| (e[0], e[1], short(&e[2..]), u32::from(e[12]), short(&e[32..]), e[34]);
        page[64..].chunks(64).take(page[0].into()).map(event).collect()
    }

    fn enable(&mut self, handle: u32, events: &[u8], on: u32) -> Status {
        let cdw11 = EventsDw11(0).with_phndl(handle).with_noet(events.len() as u32).0;
        let tag = self.fabric.tags + 1;
        self.world.host.data.insert((100, tag), events.to_vec());
        let set = Sqe { nsid: U32::new(3), cdw12: U32::new(on), ..set_feature(fid::FDP_EVENTS, cdw11) };
        self.fabric.admin(&mut self.world, set).status()
    }

    /// PID, handle and RUAMW of each descriptor.
    fn status(&mut self, bytes: usize) -> (Status, u16, Vec<(u16, u16, u64)>) {
        let mut sqe = manage(IoOpcode::IO_MANAGEMENT_RECEIVE, 1, 0);
        sqe.cdw11 = U32::new(bytes as u32 / 4 - 1);
        let (cqe, page) = self.command(sqe, &vec![0xee; bytes]);
        let short = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
        let long = |b: &[u8]| u64::from_le_bytes(b[..8].try_into().expect("8 bytes"));
        let one = |d: &[u8]| (short(d), short(&d[2..]), long(&d[8..]));
        (cqe.status(), short(&page[14..]), page[16..].chunks_exact(32).map(one).collect())
    }

    fn update(&mut self, pids: &[u16]) -> Status {
        let list: Vec<u8> = pids.iter().flat_map(|p| p.to_le_bytes()).collect();
        self.command(manage(IoOpcode::IO_MANAGEMENT_SEND, 1, pids.len() as u32 - 1), &list).0.status()
    }
}

fn manage(opcode: IoOpcode, mo: u32, mos: u32) -> Sqe {
    let dw10 = ManagementDw10(0).with_mo(mo).with_mos(mos);
    Sqe { nsid: U32::new(3), cdw10: U32::new(dw10.0), cdw12: U32::ZERO, ..io(opcode.0, 3, 0, 1) }
}

#[test]
fn a_host_finds_the_handles() {
    let mut h = Host::new(None);
    let id = identify_controller(&mut h.world, &mut h.fabric);
    let directives = id.oacs.get() & oacs::DIRECTIVES;
    assert_eq!((id.ctratt.get(), id.endgidmax.get(), directives), (1 | 1 << 4 | 1 << 19, 1, 1 << 5));
    let mut ask = |sqe| h.fabric.admin_data(&mut h.world, sqe).1;
    let ns = IdentifyNamespace::read_from_prefix(&ask(identify(cns::NAMESPACE, 3))).expect("4096").0;
    let other = ask(identify(cns::CS_INDEPENDENT_NAMESPACE, 3));
    let other = IdentifyIndependentNamespace::read_from_prefix(&other).expect("4096").0;
    assert_eq!((ns.endgid.get(), other.endgid.get()), (1, 1));
    assert_eq!(ask(identify(cns::ENDURANCE_GROUPS, 0))[..6], [1, 0, 1, 0, 0, 0]);
    let from = Sqe { cdw11: U32::new(2), ..identify(cns::ENDURANCE_GROUPS, 0) };
    assert_eq!(ask(from)[..4], [0; 4]);
    let (status, page) = h.log(lid::FDP_CONFIGURATIONS, 0, 96);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(page[..16], [0, 0, 0, 0, 92, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let runs = 32 * 4096u64;
    assert_eq!(page[16..32], [76, 0, 0x81, 0, 2, 0, 0, 0, 3, 0, 5, 0, 2, 0, 0, 0]);
    assert_eq!(page[32..40], runs.to_le_bytes());
    let (initially, persistently) = (handle_type::INITIALLY_ISOLATED, handle_type::PERSISTENTLY_ISOLATED);
    assert_eq!(page[80..92], [initially, 0, 0, 0, initially, 0, 0, 0, persistently, 0, 0, 0]);
    let (_, page) = h.log(lid::FDP_USAGE, 0, 32);
    assert_eq!((page[0], page[8], page[16], page[24]), (3, usage::CONTROLLER_SPECIFIED, 2, 2));
    let page = h.log(lid::SUPPORTED, 0, 1024).1;
    let pages = SupportedLogPages::read_from_bytes(&page).expect("1024").pages;
    assert!([0x09, 0x20, 0x21, 0x22, 0x23].iter().all(|l: &usize| pages[*l].get() == 1));
    let page = h.log(lid::EFFECTS, 0, 4096).1;
    let effects = Effects::read_from_bytes(&page).expect("4096");
    assert!([0x19, 0x1a].iter().all(|o: &usize| effects.admin[*o].get() == 1));
    assert!([0x12, 0x1d].iter().all(|o: &usize| effects.io[*o].get() == 1));
    let elsewhere = admin(AdminOpcode::GET_LOG_PAGE, 1, 15 << 16 | 0x20, 2 << 16);
    assert_eq!(h.fabric.admin(&mut h.world, elsewhere).status(), Status::INVALID_FIELD.dnr());
}

#[test]
fn writes_go_where_their_identifier_says() {
    let mut h = Host::new(None);
    h.write(0, Some(0x8001));
    h.write(1, Some(0x8001));
    h.write(2, Some(0x0002));
    assert_eq!(h.written(), [0, 0, 1, 0, 2, 0]);
    h.write(3, None);
    assert_eq!(h.written()[0] + h.written()[3], 1, "placement handle 0, in whichever group");
    let (status, count, list) = h.status(16 + 6 * 32);
    assert_eq!((status, count), (Status::SUCCESS, 6));
    let rest: Vec<_> = list.iter().filter(|(.., ruamw)| *ruamw != 32).collect();
    assert!(rest.contains(&&(0x8001, 1, 30)) && rest.contains(&&(0x0002, 2, 31)), "{list:?}");
    assert_eq!(list.iter().map(|l| l.0).collect::<Vec<_>>(), [0, 0x8000, 1, 0x8001, 2, 0x8002]);
    let (_, page) = h.log(lid::FDP_STATISTICS, 0, 64);
    let wide = |at: usize| u128::from_le_bytes(page[at..at + 16].try_into().expect("16 bytes"));
    assert_eq!((wide(0), wide(16), wide(32)), (4 * 4096, 4 * 4096, 0));
    assert_eq!(h.status(16 + 32).2, [(0, 0, 32 - h.written()[0])]);
    assert_eq!(h.status(16 + 8 * 32).2[6..], [(0, 0, 0); 2], "zeroes behind the last one");
}

#[test]
fn a_write_beside_unreadable_blocks_goes_where_its_identifier_says() {
    let mut h = Host::new(None);
    let mark = Sqe { nsid: U32::new(3), ..io(IoOpcode::WRITE_UNCORRECTABLE.0, 1, 10, 1) };
    assert_eq!(h.command(mark, &[]).0.status(), Status::SUCCESS);
    h.write(0, Some(0x8001));
    h.write(10, Some(0x0002));
    assert_eq!(h.written(), [0, 0, 1, 0, 1, 0]);
}

#[test]
fn a_handle_is_moved_on_and_told() {
    let mut h = Host::new(None);
    let not_full = event_type::NOT_FULLY_WRITTEN;
    h.write(0, Some(1));
    assert_eq!(h.update(&[1]), Status::SUCCESS);
    assert!(h.events(true).is_empty(), "nobody has asked for them");
    assert_eq!(h.enable(1, &[not_full, event_type::MEDIA_REALLOCATED], 1), Status::SUCCESS);
    h.write(1, Some(0x8001));
    assert_eq!(h.update(&[0x8001, 2, 1]), Status::SUCCESS);
    let flags = event_flag::PLACEMENT_IDENTIFIER | event_flag::NAMESPACE | event_flag::LOCATION;
    assert_eq!(h.events(true), [(not_full, flags, 0x8001, 3, 1, 1)]);
    assert!(h.events(false).is_empty());
    assert_eq!(h.status(16 + 6 * 32).2[3], (0x8001, 1, 32));
    for bad in [&[3][..], &[1, 0x4000], &[0; 7]] {
        assert_eq!(h.update(bad), Status::INVALID_FIELD.dnr(), "{bad:?}");
    }
    assert_eq!(h.enable(1, &[not_full], 0), Status::SUCCESS);
    h.write(1, Some(1));
    assert_eq!(h.update(&[1]), Status::SUCCESS);
    assert_eq!(h.events(true).len(), 1, "no more");
}

#[test]
fn an_identifier_that_is_none_is_an_event() {
    let mut h = Host::new(None);
    assert_eq!(h.enable(0, &[event_type::INVALID_PLACEMENT_IDENTIFIER], 1), Status::SUCCESS);
    h.write(0, Some(3));
    h.write(1, Some(0x4001));
    let written = h.written();
    assert_eq!((written[0] + written[3], written.iter().sum::<u64>()), (2, 2));
    let event = |pid| (3, event_flag::PLACEMENT_IDENTIFIER | event_flag::NAMESPACE, pid, 3, 0, 0);
    assert_eq!(h.events(true), [event(3), event(0x4001)]);
    for lba in 0..100 {
        h.write(lba, Some(5));
    }
    let events = h.events(true);
    assert_eq!((events.len(), events[0], events[62]), (63, event(5), event(5)), "the oldest are gone");
}

#[test]
fn a_group_that_is_full_is_told() {
    let mut h = Host::new(None);
    assert_eq!(h.enable(2, &[event_type::IMPLICITLY_MODIFIED], 1), Status::SUCCESS);
    // Two dies have 2048 units, of which 1000 of namespace 3 and 1000 of namespace 1 are too many to work with.
    let now = Nanos(1 << 40);
    let hint = h.flash().fdp().expect("handles").hint(Some(1), 2);
    for lpn in 0..3000 {
        h.flash().submit_hinted(now, FlashOp::Write { fua: false }, lpn, 1, hint);
    }
    let events = h.events(false);
    let flags = event_flag::PLACEMENT_IDENTIFIER | event_flag::LOCATION;
    assert_eq!(events, [(event_type::IMPLICITLY_MODIFIED, flags, 0x8002, 0, 1, 2)]);
}

#[test]
fn features_and_directives() {
    let mut h = Host::new(None);
    let mut ask = |sqe: Sqe| {
        let (cqe, data) = h.fabric.admin_data(&mut h.world, sqe);
        (cqe.status(), cqe.dw0.get(), data)
    };
    let invalid = Status::INVALID_FIELD.dnr();
    let mode = |endgid: u32| Sqe { cdw11: U32::new(endgid), ..get_feature(fid::FDP, 0) };
    assert_eq!(ask(mode(1)).1, Mode(0).with_fdpe(1).0);
    assert_eq!(ask(mode(2)).0, invalid);
    assert_eq!(ask(set_feature(fid::FDP, 1)).0, Status::COMMAND_SEQUENCE_ERROR.dnr());
    let get =
        |nsid: u32, cdw11: u32| Sqe { nsid: U32::new(nsid), cdw11: U32::new(cdw11), ..get_feature(fid::FDP_EVENTS, 0) };
    let (status, count, data) = ask(get(3, 4 << 16 | 1));
    assert_eq!((status, count, &data[..8]), (Status::SUCCESS, 4, &[0, 0, 3, 0, 0x80, 0, 0x81, 0][..]));
    assert_eq!((ask(get(3, 4 << 16 | 3)).0, ask(get(2, 1 << 16)).0), (invalid, invalid));
    let supported = Sqe { nsid: U32::new(3), ..get_feature(fid::FDP_EVENTS, 3) };
    assert_eq!(ask(supported).1, 0b110);
    let directive = |opcode, nsid: u32, cdw10: u32, dw11: DirectiveDw11, cdw12: u32| Sqe {
        nsid: U32::new(nsid),
        cdw12: U32::new(cdw12),
        ..admin(opcode, 1, cdw10, dw11.0)
    };
    let parameters = DirectiveDw11(0).with_doper(directive::IDENTIFY_PARAMETERS.into());
    let (receive, send) = (AdminOpcode::DIRECTIVE_RECEIVE, AdminOpcode::DIRECTIVE_SEND);
    let (status, _, data) = ask(directive(receive, 3, 1023, parameters, 0));
    assert_eq!((status, data[0], data[32], data[64]), (Status::SUCCESS, 0b101, 0b101, 0b100));
    assert_eq!(ask(directive(receive, u32::MAX, 1023, parameters, 0)).0, invalid);
    assert_eq!(ask(directive(receive, 3, 1023, parameters.with_dtype(1), 0)).0, invalid);
    assert_eq!(ask(directive(send, 3, 0, parameters, 0x201)).0, Status::SUCCESS);
    assert_eq!(ask(directive(send, 3, 0, parameters, 0x200)).0, invalid);
    assert_eq!(ask(directive(send, 3, 0, parameters, 0x101)).0, invalid);
    assert_eq!(h.enable(1, &[0x42], 1), invalid, "no such event");
    assert_eq!(h.enable(3, &[0], 1), invalid, "no such handle");
    assert_eq!(h.command(manage(IoOpcode::IO_MANAGEMENT_SEND, 0, 0), &[]).0.status(), Status::SUCCESS);
    assert_eq!(h.command(manage(IoOpcode::IO_MANAGEMENT_SEND, 2, 0), &[]).0.status(), invalid);
    let (status, page) = h.log(lid::ENDURANCE_GROUP, 0, 512);
    let capacity = u64::from_le_bytes(page[160..168].try_into().expect("8 bytes"));
    assert_eq!((status, capacity), (Status::SUCCESS, 2000 * 4096));
}

#[test]
fn a_tenant_has_a_handle_of_its_own() {
    let mut h = Host::new(Some(2));
    h.write(0, None);
    h.write(1, Some(1));
    let written = h.written();
    assert_eq!((written[2] + written[5], written[1]), (1, 1), "{written:?}");
}

#[test]
fn a_drive_without_handles_has_none_of_it() {
    let mut world = TestWorld::new(config(|_| {}), 64);
    let mut fabric = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    let id = identify_controller(&mut world, &mut fabric);
    assert_eq!((id.ctratt.get(), id.endgidmax.get()), (1 | 1 << 4, 1), "an endurance group, and nothing else");
    let log = admin(AdminOpcode::GET_LOG_PAGE, 1, 15 << 16 | 0x20, 1 << 16);
    assert_eq!(fabric.admin(&mut world, log).status(), Status::INVALID_LOG_PAGE.dnr());
    let invalid = Status::INVALID_FIELD.dnr();
    assert_eq!(fabric.admin(&mut world, set_feature(fid::FDP, 1)).status(), invalid);
    let receive = Sqe { nsid: U32::new(1), ..admin(AdminOpcode::DIRECTIVE_RECEIVE, 1, 23, 1) };
    let (cqe, page) = fabric.admin_data(&mut world, receive);
    assert!(cqe.status().is_success());
    assert_eq!((page[0], page[32]), (1, 1), "the identify directive");
    let mut command = |sqe: Sqe| {
        let tag = fabric.send(&mut world, 1, sqe);
        world.settle();
        fabric.answer(&mut world, 1, tag).expect("complete").status()
    };
    for opcode in [IoOpcode::IO_MANAGEMENT_RECEIVE, IoOpcode::IO_MANAGEMENT_SEND] {
        assert_eq!(command(manage(opcode, 1, 0)), Status::INVALID_OPCODE.dnr());
        assert_eq!(command(manage(opcode, 0, 0)), Status::INVALID_OPCODE.dnr());
    }
    let mut placed = io(WRITE, 1, 0, 1);
    placed.cdw12 |= U32::new(2 << 20);
    assert_eq!(command(placed), invalid, "the directive is not enabled");
}

/// Whatever hosts write into the fields of these commands: each is answered, and the drive stays whole.
#[test]
fn any_fields_will_do() {
    let mut h = Host::new(Some(200));
    let mut seed = 0x1234_5678_9abc_def0u64;
    let mut draw = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Small numbers are the ones that mean something.
        let bits = (seed >> 58) as u32 % 33;
        (seed >> 16) as u32 & u32::MAX.checked_shr(32 - bits).unwrap_or(0)
    };
    for i in 0..3000 {
        let fields = [draw(), draw(), draw(), draw(), draw()];
        let nsid = if i % 7 == 0 { draw() } else { 3 };
        let [cdw10, cdw11, cdw12, cdw13, cdw14] = fields.map(U32::new);
        let sqe = |opcode: u8| Sqe { nsid: U32::new(nsid), cdw10, cdw11, cdw12, cdw13, cdw14, ..io(opcode, 1, 0, 1) };
        let data = vec![i as u8; 1 << 12];
        match i % 8 {
            0 | 1 => drop(h.command(sqe(IoOpcode::IO_MANAGEMENT_RECEIVE.0), &data)),
            2 | 3 => drop(h.command(sqe(IoOpcode::IO_MANAGEMENT_SEND.0), &data)),
            4 => {
                let lba = u64::from(fields[0] % 1000);
                let placed = Sqe { cdw12: U32::new(2 << 20), ..Sqe { cdw13, ..io(WRITE, 1, lba, 1) } };
                drop(h.command(Sqe { nsid: U32::new(3), ..placed }, &data));
            }
            5 => drop(h.fabric.admin_data(&mut h.world, sqe(AdminOpcode::DIRECTIVE_RECEIVE.0))),
            6 => drop(h.fabric.admin_data(&mut h.world, sqe(AdminOpcode::DIRECTIVE_SEND.0))),
            _ => {
                let feature = if fields[4] % 2 == 0 { AdminOpcode::SET_FEATURES } else { AdminOpcode::GET_FEATURES };
                let fid = U32::new([0x1d, 0x1e][fields[3] as usize % 2]);
                drop(h.fabric.admin_data(&mut h.world, Sqe { cdw10: fid, ..sqe(feature.0) }));
            }
        }
        h.flash().check();
        h.world.drive.check();
    }
    assert!(h.events(true).len() <= 63);
}
