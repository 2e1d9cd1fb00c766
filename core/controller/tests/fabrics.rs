//! Associations: Connect and its refusals, classes and shares, keep alive, discovery, what Identify and the logs say.

mod common;

use std::net::SocketAddr;

use common::{CC_EN, config, drive, fabric_with_queues, get_feature, identify, identify_controller, set_feature};
use weir_controller::testing::{Fabric, TestRing, TestWorld, admin, io};
use weir_controller::{
    Attach, BlockRequest, ClassFrom, ConnectError, ConnectRequest, DiscoveryRecord, Event, ManagementError, Op, Owner,
    SubsystemConfig, Tag, TenantConfig, TransportModel,
};
use weir_spec::nvme::fabrics::{CATTR_DISABLE_SQ_FLOW, Connect, ConnectData, DISCOVERY_NQN};
use weir_spec::nvme::feature::{Arbitration, Quanta, Queues, async_config, fid, select};
use weir_spec::nvme::identify::{
    IdentifyNamespace, NSID_ALL, cns, controller_list, namespace_descriptors, namespace_list, nidt,
};
use weir_spec::nvme::log::{
    AsyncEvent, DiscoveryEntry, DiscoveryHeader, Effects, ExtendedAttribute, ExtendedDiscoveryEntry, Smart, adrfam,
    discovery_lsp, extended_attribute, lid, subtype,
};
use weir_spec::nvme::register::{self, Cc, ams};
use weir_spec::nvme::{AdminOpcode, Sqe, Status};
use weir_units::{Class, Nanos};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

const READ: u8 = 2;
const WRITE: u8 = 1;

fn connect_command(qid: u16, sqsize: u16) -> Connect {
    Connect { opcode: 0x7f, fctype: 1, qid: U16::new(qid), sqsize: U16::new(sqsize), ..Connect::default() }
}

fn invalid(in_data: bool, offset: u16) -> ConnectError {
    ConnectError { status: Status::CONNECT_INVALID_PARAMETERS.dnr(), in_data, offset }
}

#[test]
fn connect_refuses_with_the_parameter_that_is_wrong() {
    let mut world = drive(|c| c.tenants.truncate(2));
    let good = ConnectData::new("nqn.2026-01.io.weir:test", "nqn.gold", [1; 16], 0xffff);
    let host = |nqn| ConnectData::new("nqn.2026-01.io.weir:test", nqn, [1; 16], 0xffff);
    let refused = |status: Status| ConnectError { status: status.dnr(), in_data: false, offset: 0 };
    // Its host may connect anew.
    let unknown = ConnectError { status: Status::CONNECT_INVALID_PARAMETERS, in_data: true, offset: 16 };
    let mut long = good;
    long.hostnqn = [b'n'; 256];
    let table = [
        (connect_command(0, 31), host("nqn.unknown"), refused(Status::CONNECT_INVALID_HOST)),
        (connect_command(0, 31), host("gold"), invalid(true, 512)),
        (connect_command(0, 31), long, invalid(true, 512)),
        (connect_command(0, 31), ConnectData::new("nqn.other", "nqn.gold", [1; 16], 0xffff), invalid(true, 256)),
        (connect_command(0, 31), ConnectData { cntlid: U16::new(1), ..good }, invalid(true, 16)),
        (connect_command(0, 0), good, invalid(false, 44)),
        (connect_command(0, 4096), good, invalid(false, 44)),
        (Connect { recfmt: U16::new(1), ..connect_command(0, 31) }, good, refused(Status::CONFLICTING_ATTRIBUTES)),
        (connect_command(1, 31), ConnectData { cntlid: U16::new(9), ..good }, unknown),
        (connect_command(1, 31), good, unknown),
    ];
    for (command, data, expected) in table {
        let error = world.connect(&command, &data, Owner(1)).unwrap_err();
        assert_eq!(error, expected);
        let cqe = error.cqe(77);
        let dw0 = if error.status.same_code(Status::CONNECT_INVALID_PARAMETERS) {
            u32::from(expected.in_data) << 16 | u32::from(expected.offset)
        } else {
            0
        };
        assert_eq!((cqe.cid.get(), cqe.status(), cqe.dw0.get()), (77, expected.status, dw0));
    }
    assert!(world.drive.controllers().is_empty(), "nothing is left of a refused Connect");
}

#[test]
fn io_queues_join_their_own_controller_only() {
    let mut world = drive(|c| c.max_io_queues = 2);
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    let status = |r: Result<_, ConnectError>| r.map(|_: weir_controller::Connected| ()).unwrap_err();
    assert!(status(host.add_queue(&mut world, 8, 0)).status.same_code(Status::COMMAND_SEQUENCE_ERROR), "not enabled");
    host.set_cc(&mut world, CC_EN);
    let connected = host.add_queue(&mut world, 8, CATTR_DISABLE_SQ_FLOW).unwrap();
    assert_eq!((connected.depth, connected.cqe.sqhd.get(), connected.flow_control_disabled), (8, 0xffff, true));
    let twice = world.connect(&connect_command(1, 7), &host.data, Owner(1)).unwrap_err();
    assert!(twice.status.same_code(Status::INVALID_QUEUE_ID));
    let third = world.connect(&connect_command(3, 7), &host.data, Owner(1)).unwrap_err();
    assert_eq!(third, invalid(false, 42));
    let stranger = ConnectData::new("nqn.2026-01.io.weir:test", "nqn.silver", host.data.hostid, host.data.cntlid.get());
    assert_eq!(world.connect(&connect_command(2, 7), &stranger, Owner(1)).unwrap_err(), invalid(true, 512));
    let other_id = ConnectData { hostid: [9; 16], ..host.data };
    assert_eq!(world.connect(&connect_command(2, 7), &other_id, Owner(1)).unwrap_err(), invalid(true, 0));
    let plain = host.add_queue(&mut world, 8, 0).unwrap();
    assert_eq!((plain.cqe.sqhd.get(), plain.flow_control_disabled), (1, false), "Connect was the first entry");
    // A second association of the same host is a controller of its own.
    let second = Fabric::connect(&mut world, "nqn.gold", 200, 0).unwrap();
    assert_ne!(second.data.cntlid, host.data.cntlid);
    assert_eq!(world.drive.controllers().len(), 2);
}

/// A host that hears of no such controller may repeat what it had there.
#[test]
fn a_controller_is_missing_only_when_the_media_has_nothing_of_it() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    host.send(&mut world, 1, io(WRITE, 1, 0, 8));
    world.run();
    assert_eq!(world.issued.len(), 1);
    let again = |world: &mut TestWorld| {
        let refused = world.connect(&connect_command(0xffff, 1), &host.data, Owner(9)).unwrap_err();
        (refused.status, refused.in_data, refused.offset)
    };
    let busy = (Status::CONNECT_CONTROLLER_BUSY, false, 0);
    assert_eq!(again(&mut world), (Status::CONNECT_INVALID_PARAMETERS.dnr(), false, 42), "it is there");
    world.disconnect(Owner(100), host.queues[0]);
    assert_eq!(again(&mut world), busy, "its I/O queue is there");
    world.disconnect(Owner(101), host.queues[1]);
    assert_eq!(again(&mut world), busy, "a command of it is at the media");
    world.done(0, Status::SUCCESS);
    assert_eq!(again(&mut world), (Status::CONNECT_INVALID_PARAMETERS, true, 16));
}

#[test]
fn controllers_and_their_identifiers_run_out_and_come_back() {
    let mut world = drive(|c| c.max_controllers = 2);
    let first = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    Fabric::connect(&mut world, "nqn.gold", 200, 0).unwrap();
    let busy = Fabric::connect(&mut world, "nqn.gold", 300, 0).unwrap_err();
    assert_eq!(busy.status, Status::CONNECT_CONTROLLER_BUSY);
    world.disconnect(Owner(100), first.queues[0]);
    Fabric::connect(&mut world, "nqn.gold", 300, 0).unwrap();
}

/// Whoever takes all the controllers it gets leaves the other tenants theirs.
#[test]
fn one_tenant_leaves_the_others_controllers() {
    let mut world = drive(|c| c.max_controllers = 12);
    // Of gold, silver and the rest each has a sixth for itself.
    let rogue: Vec<_> = (0..12u32).map_while(|i| Fabric::connect(&mut world, "nqn.rogue", 100 + i, 0).ok()).collect();
    assert_eq!(rogue.len(), 8);
    for (host, at) in [("nqn.gold", 200), ("nqn.silver", 300)] {
        for i in 0..2 {
            Fabric::connect(&mut world, host, at + i, 0).unwrap_or_else(|e| panic!("{host} {i}: {e}"));
        }
    }
    assert_eq!(Fabric::connect(&mut world, "nqn.gold", 400, 0).unwrap_err().status, Status::CONNECT_CONTROLLER_BUSY);
    world.disconnect(Owner(100), rogue[0].queues[0]);
    Fabric::connect(&mut world, "nqn.gold", 500, 0).unwrap();
}

/// A host without a name is one of those that the tenant of every host takes in; a field that is neither empty nor a name is refused.
#[test]
fn a_host_may_be_without_a_name_where_every_host_may_come() {
    let nameless = |id: u8| ConnectData::new("nqn.2026-01.io.weir:test", "", [id; 16], 0xffff);
    let mut world = drive(|_| {});
    let first = world.connect(&connect_command(0, 31), &nameless(1), Owner(1)).unwrap();
    world.connect(&connect_command(0, 31), &nameless(2), Owner(2)).unwrap();
    let other = ConnectData { cntlid: U16::new(first.cntlid), ..nameless(2) };
    let refused = world.connect(&connect_command(1, 31), &other, Owner(3)).unwrap_err();
    assert_eq!(refused, invalid(true, 0), "the identifier tells them apart");
    let mut behind = nameless(3);
    behind.hostnqn[255] = b'x';
    assert_eq!(world.connect(&connect_command(0, 31), &behind, Owner(3)).unwrap_err(), invalid(true, 512));
    let mut world = drive(|c| c.tenants.truncate(2));
    assert_eq!(world.connect(&connect_command(0, 31), &nameless(1), Owner(1)).unwrap_err(), invalid(true, 512));
}

/// Where a timer is required neither Connect nor Set Features does without.
#[test]
fn a_keep_alive_timer_that_is_required_stays() {
    let mut world = drive(|_| {});
    let data = ConnectData::new("nqn.2026-01.io.weir:test", "nqn.gold", [1; 16], 0xffff);
    let request = |kato: u32| {
        let command = Connect { kato: U32::new(kato), ..connect_command(0, 31) };
        ConnectRequest { command, data, owner: Owner(1), local: None, keep_alive: true }
    };
    let none = world.drive.connect(world.now, &request(0)).unwrap_err();
    assert_eq!(
        (none.status, none.to_string().as_str()),
        (Status::KEEP_ALIVE_INVALID.dnr(), "Keep Alive Timeout Invalid")
    );
    assert!(world.drive.controllers().is_empty());
    world.drive.connect(world.now, &request(1000)).unwrap();
    // As after a hand-over, which does not say whether it is required.
    let mut host = Fabric::connect(&mut world, "nqn.silver", 100, 2000).unwrap();
    host.set_cc(&mut world, CC_EN);
    assert!(host.admin(&mut world, set_feature(fid::KEEP_ALIVE, 0)).status().is_success());
    assert!(host.admin(&mut world, set_feature(fid::KEEP_ALIVE, 5000)).status().is_success());
    world.drive.require_keep_alive(host.queues[0]);
    assert!(host.admin(&mut world, set_feature(fid::KEEP_ALIVE, 0)).status().same_code(Status::KEEP_ALIVE_INVALID));
    assert!(host.admin(&mut world, set_feature(fid::KEEP_ALIVE, 3000)).status().is_success());
}

/// A discovery controller that is not persistent ends when it was two minutes without a command; a persistent one when its timer expires.
#[test]
fn a_discovery_controller_has_its_time() {
    let nearly = Nanos::from_millis(119_900);
    let mut world = TestWorld::new(SubsystemConfig::discovery(), 8);
    let mut host = Fabric::connect(&mut world, "nqn.silver", 100, 0).unwrap();
    host.set_cc(&mut world, CC_EN);
    for _ in 0..3 {
        world.pass(nearly);
        assert!(world.closing.is_empty());
        assert!(host.admin(&mut world, identify(cns::CONTROLLER, 0)).status().is_success());
    }
    world.pass(Nanos::from_secs(121));
    assert_eq!(world.closing.len(), 1);
    world.close();
    assert!(world.drive.controllers().is_empty());
    // One that needs a timer on a drive needs none here.
    let data = ConnectData::new(DISCOVERY_NQN, "nqn.silver", [1; 16], 0xffff);
    let request = ConnectRequest::new(&Sqe::from(connect_command(0, 31)), &data, Owner(100)).with_keep_alive(true);
    world.drive.connect(world.now, &request).unwrap();
}

#[test]
fn an_association_ends_with_its_admin_connection() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 2);
    host.send(&mut world, 1, io(WRITE, 1, 0, 1));
    world.run();
    let slot = world.issued[0].slot;
    world.disconnect(Owner(100), host.queues[0]);
    assert!(!world.drive.is_live(slot), "its I/O is fenced");
    world.run();
    let closing: Vec<Owner> = world.closing.iter().map(|(owner, _)| *owner).collect();
    assert_eq!(closing, [Owner(101), Owner(102)]);
    world.settle();
    world.close();
    assert!(world.drive.controllers().is_empty() && world.host.answers.iter().all(|(o, ..)| *o == Owner(100)));
}

#[test]
fn a_host_that_overruns_its_queue_is_cut_off() {
    let mut world = drive(|c| c.slots = 1);
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    host.add_queue(&mut world, 4, 0).unwrap();
    for cid in 0..5 {
        host.send(&mut world, 1, io(READ, cid, 0, 1));
    }
    world.run();
    assert_eq!(world.closing.len(), 1);
    world.close();
    assert!(host.property(&mut world, register::CSTS).0.is_success(), "its admin queue goes on");
}

#[test]
fn a_single_queue_can_be_disconnected_by_command() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    let disconnect = Sqe { nsid: U32::new(8), ..admin(AdminOpcode::FABRICS, 5, 0, 0) };
    let cqe = host.admin(&mut world, disconnect);
    assert!(cqe.status().same_code(Status::DISCONNECT_INVALID_QUEUE_TYPE), "not the admin queue");
    // SPDK's bdevio takes this opcode for one that no controller knows; with this NSID it is a second Connect.
    let tag = host.send(&mut world, 1, Sqe { nsid: U32::new(1), ..disconnect });
    assert!(host.answer(&mut world, 1, tag).unwrap().status().same_code(Status::INVALID_OPCODE));
    let tag = host.send(&mut world, 1, disconnect);
    assert!(host.answer(&mut world, 1, tag).unwrap().status().is_success());
    world.run();
    assert_eq!(world.closing.len(), 1);
}

#[test]
fn properties_are_the_registers_that_messages_have() {
    let mut world = drive(|_| {});
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 0).unwrap();
    assert_eq!(host.property(&mut world, register::VS), (Status::SUCCESS, 0x2_0000));
    assert_eq!(host.property(&mut world, register::CAP).1 & 0xffff, 4095);
    for missing in [register::AQA, register::ASQ, 0x2, 0x1000, 0xffff_fffc] {
        assert!(host.property(&mut world, missing).0.same_code(Status::INVALID_FIELD));
    }
    let early = host.admin(&mut world, identify(1, 0)).status();
    assert!(early.same_code(Status::COMMAND_SEQUENCE_ERROR), "not enabled");
    assert!(host.set_cc(&mut world, Cc(CC_EN).with_css(6).0).is_success());
    assert_eq!(host.property(&mut world, register::CSTS).1, 2, "a bad CC is fatal, and can be read");
    let again = host.admin(&mut world, Sqe { nsid: U32::new(1), ..admin(AdminOpcode::FABRICS, 5, 0, 0) });
    assert!(again.status().same_code(Status::COMMAND_SEQUENCE_ERROR), "one Connect for each queue");
}

// Classes.

/// What a tenant's queue gets, whatever its host says: `(class_from, urgent)` for hosts that say nothing (CATTR 0,
/// QPRIO 0), that claim urgent, and that ask for low.
#[test]
fn silence_and_claims_get_the_tenants_class() {
    for from in [ClassFrom::Tenant, ClassFrom::Qprio, ClassFrom::Cattr, ClassFrom::Peer] {
        for urgent in [false, true] {
            let mut world = drive(|c| {
                for t in &mut c.tenants {
                    (t.class_from, t.urgent) = (from, urgent);
                }
            });
            let mut host = Fabric::ready(&mut world, "nqn.silver", 100, ams::WRR);
            for cattr in [0, 1, 3] {
                host.add_queue(&mut world, 8, cattr).unwrap();
            }
            let classes: Vec<Class> = world.drive.controllers()[0].queues.iter().map(|q| q.class).collect();
            let claims = if from == ClassFrom::Cattr && urgent { Class::Urgent } else { Class::Medium };
            let low = if from == ClassFrom::Cattr { Class::Low } else { Class::Medium };
            assert_eq!(classes, [claims, Class::Medium, low], "{from:?} {urgent}");
        }
    }
}

#[test]
fn qprio_counts_only_where_cc_ams_is_weighted() {
    for (selected, expected) in [(ams::RR, Class::High), (ams::WRR, Class::Low)] {
        let mut world = drive(|c| c.tenants[0].class_from = ClassFrom::Qprio);
        let mut ring = TestRing::ready(&mut world, 0, Owner(7), selected);
        ring.add_queue(&mut world, 1, 8, 3);
        ring.add_queue(&mut world, 2, 8, 0);
        let classes: Vec<Class> = world.drive.controllers()[0].queues.iter().map(|q| q.class).collect();
        assert_eq!(classes, [expected, Class::High]);
    }
}

#[test]
fn a_peers_wish_and_the_operators_class_can_change() {
    let mut world = drive(|c| c.tenants[1].class_from = ClassFrom::Peer);
    let attach = Attach { tenant: 1, owner: Owner(3), model: TransportModel::Front, host: "vm".into() };
    let front = world.drive.attach(Nanos(0), attach).unwrap();
    let queue = world.drive.add_message_queue(front, 8, Some(Class::High), Owner(3)).unwrap();
    let class = |world: &TestWorld| world.drive.controllers()[0].queues[0].class;
    assert_eq!(class(&world), Class::Medium, "not above the tenant");
    world.drive.set_queue_wish(queue, Some(Class::Low));
    assert_eq!(class(&world), Class::Low);
    world.drive.set_queue_wish(queue, None);
    world.drive.set_tenant(1, Class::High, false, 1).unwrap();
    assert_eq!(class(&world), Class::High);
    assert_eq!(world.drive.set_tenant(9, Class::High, false, 1), Err(ManagementError::NoTenant));
}

/// One drive and tenant, several doors: what one takes wishes from is not what the other does.
#[test]
fn a_controllers_own_class_from_goes_before_the_tenants() {
    let mut world = drive(|c| c.tenants[1].class_from = ClassFrom::Cattr);
    let mut host = Fabric::ready(&mut world, "nqn.silver", 100, ams::RR);
    host.add_queue(&mut world, 8, 3).unwrap();
    let attach = Attach { tenant: 1, owner: Owner(3), model: TransportModel::Front, host: "vm".into() };
    let front = world.drive.attach(Nanos(0), attach).unwrap();
    world.drive.add_message_queue(front, 8, Some(Class::Low), Owner(3)).unwrap();
    let classes = |world: &TestWorld| -> Vec<Class> {
        world.drive.controllers().iter().flat_map(|c| c.queues.iter().map(|q| q.class)).collect()
    };
    assert_eq!(classes(&world), [Class::Low, Class::Medium], "the tenant's is cattr");
    for (from, class) in [
        (Some(ClassFrom::Peer), Class::Low),
        (Some(ClassFrom::Tenant), Class::Medium),
        (Some(ClassFrom::Peer), Class::Low),
        (None, Class::Medium),
    ] {
        world.drive.set_controller_class_from(front, from).unwrap();
        assert_eq!(classes(&world), [Class::Low, class], "{from:?}");
    }
    world.drive.set_controller_class_from(front, Some(ClassFrom::Peer)).unwrap();
    world.drive.add_message_queue(front, 8, Some(Class::Low), Owner(3)).unwrap();
    assert_eq!(classes(&world), [Class::Low, Class::Low, Class::Low], "a new queue has it from the start");
    world.drive.detach(Nanos(0), front);
    assert_eq!(world.drive.set_controller_class_from(front, None), Err(ManagementError::NoController));
}

/// Keeps every queue full in virtual time and answers the bytes each tenant got: 100 µs service time, 8 slots.
fn shares(hosts: &[(&str, u16, u8, u32)], turns: u32) -> Vec<u64> {
    let mut world = TestWorld::new(config(|c| (c.latency, c.slots) = (Nanos(100_000), 8)), 64);
    let mut fabrics: Vec<(Fabric, u16, u32)> = Vec::new();
    for (n, (host, queues, cattr, blocks)) in hosts.iter().enumerate() {
        let mut fabric = Fabric::ready(&mut world, host, 1000 * (n as u32 + 1), ams::RR);
        for _ in 0..*queues {
            fabric.add_queue(&mut world, 32, *cattr).unwrap();
        }
        fabrics.push((fabric, *queues, *blocks));
    }
    let fill = |world: &mut TestWorld, fabrics: &mut Vec<(Fabric, u16, u32)>| {
        for (fabric, queues, blocks) in fabrics {
            for qid in 1..=*queues {
                while world.drive.outstanding(fabric.queues[usize::from(qid)]) < 16 {
                    fabric.send(world, qid, io(READ, 1, 0, *blocks));
                }
            }
        }
    };
    for _ in 0..turns {
        fill(&mut world, &mut fabrics);
        world.event(Event::Run);
        world.pass(Nanos(100_000));
        while !world.issued.is_empty() {
            world.done(0, Status::SUCCESS);
        }
        world.host.answers.clear();
    }
    world.drive.stats().tenants.iter().map(|t| t.work.read_bytes).collect()
}

#[test]
fn a_stock_host_and_one_that_claims_urgent_get_their_tenants_share() {
    // Gold (high) is stock, silver (medium) claims urgent (CATTR 00b is both), the rest asks for high.
    let got = shares(&[("nqn.gold", 1, 0, 8), ("nqn.silver", 1, 0, 8), ("nqn.any", 1, 1, 8)], 3500);
    let (gold, silver, rest) = (got[0] as f64, got[1] as f64, got[2] as f64);
    assert!((gold / silver - 2.0).abs() < 0.01 && (silver / rest - 2.0).abs() < 0.01, "128:64:32 KiB: {got:?}");
}

#[test]
fn sixteen_queues_win_a_tenant_nothing() {
    let got = shares(&[("nqn.gold", 1, 0, 8), ("nqn.silver", 16, 0, 8)], 1500);
    let ratio = got[0] as f64 / got[1] as f64;
    assert!((ratio - 2.0).abs() < 0.02, "{ratio}");
}

#[test]
fn weights_and_mechanism_change_while_it_runs() {
    let mut world = drive(|_| {});
    let mut settings = world.drive.config().arbitration;
    settings.quanta.high = 1 << 20;
    world.drive.set_arbitration(settings).unwrap();
    assert_eq!(world.drive.config().arbitration.quanta.high, 1 << 20);
    settings.quanta.low = 0;
    assert_eq!(world.drive.set_arbitration(settings), Err(ManagementError::Range));
    settings.quanta.low = 1;
    settings.weights.low = 257;
    assert_eq!(world.drive.set_arbitration(settings), Err(ManagementError::Range));
}

#[test]
fn admin_commands_are_limited_for_each_tenant() {
    let mut world = drive(|_| {});
    let mut gold = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    let mut silver = Fabric::ready(&mut world, "nqn.silver", 200, ams::RR);
    let mut served = 0;
    let mut tags = Vec::new();
    for _ in 0..3000 {
        while tags.len() < 16 {
            tags.push(gold.send(&mut world, 0, admin(AdminOpcode::KEEP_ALIVE, 1, 0, 0)));
        }
        world.run();
        tags.retain(|tag| gold.answer(&mut world, 0, *tag).map(|_| served += 1).is_none());
        world.pass(Nanos::from_millis(1));
    }
    assert!((2990..=3101).contains(&served), "{served} in 3 s, {} waiting", tags.len());
    assert!(silver.admin(&mut world, identify(1, 0)).status().is_success(), "another tenant does not notice");
}

// Keep alive.

#[test]
fn a_silent_host_is_cut_off_and_its_io_fenced() {
    let mut world = drive(|_| {});
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 1500).unwrap();
    let wait = world.drive.next_deadline();
    assert_eq!(
        wait,
        Some(Nanos::from_secs(120)),
        "the timer starts when the controller is ready, for which there is time"
    );
    host.set_cc(&mut world, CC_EN);
    host.add_queue(&mut world, 8, 0).unwrap();
    let tag = host.send(&mut world, 1, io(WRITE, 1, 0, 1));
    world.run();
    assert_eq!(identify_controller(&mut world, &mut host).kas.get(), 10);
    assert_eq!(world.drive.next_deadline(), Some(Nanos::from_secs(2)), "1.5 s rounded up to the granularity");
    world.pass(Nanos::from_millis(1999));
    assert!(host.admin(&mut world, admin(AdminOpcode::KEEP_ALIVE, 1, 0, 0)).status().is_success());
    world.pass(Nanos::from_millis(1999));
    assert!(world.closing.is_empty());
    let slot = world.issued[0].slot;
    world.pass(Nanos::from_millis(1));
    let mut closing: Vec<u32> = world.closing.iter().map(|(owner, _)| owner.0).collect();
    closing.sort_unstable();
    assert_eq!(closing, [100, 101], "both connections");
    assert!(!world.drive.is_live(slot), "a late write must not touch the host's data");
    world.settle();
    assert_eq!(host.answer(&mut world, 1, tag), None);
    world.close();
    assert!(world.drive.controllers().is_empty(), "the controller is gone");
}

#[test]
fn io_alone_does_not_keep_alive_and_keep_alive_does_not_wait_for_io() {
    let mut world = drive(|c| c.slots = 1);
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 1000).unwrap();
    host.set_cc(&mut world, CC_EN);
    host.add_queue(&mut world, 32, 0).unwrap();
    for cid in 0..20 {
        host.send(&mut world, 1, io(READ, cid, 0, 8));
    }
    world.run();
    world.pass(Nanos::from_millis(900));
    let cqe = host.admin(&mut world, admin(AdminOpcode::KEEP_ALIVE, 1, 0, 0));
    assert!(cqe.status().is_success(), "behind twenty reads and a full drive");
    world.pass(Nanos::from_millis(900));
    world.settle();
    world.pass(Nanos::from_millis(100));
    assert_eq!(world.closing.len(), 2, "reads are no keep alive (no TBKAS)");
}

#[test]
fn set_features_changes_and_stops_the_timer() {
    let mut world = drive(|_| {});
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 1000).unwrap();
    host.set_cc(&mut world, CC_EN);
    assert!(host.admin(&mut world, set_feature(fid::KEEP_ALIVE, 5001)).status().is_success());
    assert_eq!(host.admin(&mut world, get_feature(fid::KEEP_ALIVE, select::CURRENT)).dw0.get(), 5001);
    world.pass(Nanos::from_millis(5999));
    assert!(world.closing.is_empty());
    host.admin(&mut world, set_feature(fid::KEEP_ALIVE, 0));
    world.pass(Nanos::from_secs(1000));
    assert!(world.closing.is_empty(), "0 disables");
}

// The association after a reset, a shutdown, or nothing at all.

/// Just under two minutes, and what is missing to just over them.
const NEARLY: Nanos = Nanos::from_millis(119_900);
const REST: Nanos = Nanos::from_millis(200);

#[test]
fn a_reset_keeps_the_association_for_two_minutes() {
    let mut world = drive(|_| {});
    let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 1000).unwrap();
    for _ in 0..3 {
        assert!(host.set_cc(&mut world, CC_EN).is_success());
        host.add_queue(&mut world, 8, 0).unwrap();
        assert!(host.set_cc(&mut world, 0).is_success());
        world.run();
        assert_eq!(world.closing.len(), 1, "the I/O queue goes, the admin queue stays");
        world.close();
        world.pass(NEARLY);
        assert_eq!(host.property(&mut world, register::CSTS), (Status::SUCCESS, 0), "no keep alive is asked for");
        assert!(world.closing.is_empty());
        host.queues.truncate(1);
    }
    // Properties that are read are no enable.
    world.pass(REST);
    assert_eq!(world.closing.len(), 1);
    world.close();
    assert!(world.drive.controllers().is_empty());
    assert_eq!(world.drive.next_deadline(), None);
}

#[test]
fn an_enabled_controller_stays_and_its_keep_alive_runs_again() {
    let mut world = drive(|_| {});
    for (kato, after, gone) in [(0, Nanos::from_secs(10_000), 0), (2000, Nanos::from_millis(1_900), 0), (2000, REST, 1)]
    {
        let mut host = Fabric::connect(&mut world, "nqn.gold", 100, kato).unwrap();
        host.set_cc(&mut world, CC_EN);
        host.set_cc(&mut world, 0);
        world.pass(NEARLY);
        host.set_cc(&mut world, CC_EN);
        world.pass(if gone == 1 { Nanos::from_millis(2_000) } else { after });
        assert_eq!(world.closing.len(), gone, "kato {kato} ms");
        world.disconnect(Owner(100), host.queues[0]);
        world.closing.clear();
    }
}

#[test]
fn a_host_that_shut_down_or_never_enabled_is_disconnected_in_the_end() {
    for cc in [None, Some(Cc(CC_EN).with_shn(1).0), Some(Cc(CC_EN).with_shn(2).0), Some(Cc(CC_EN).with_css(6).0)] {
        let mut world = drive(|_| {});
        let mut host = Fabric::connect(&mut world, "nqn.gold", 100, 1000).unwrap();
        if let Some(cc) = cc {
            if Cc(cc).shn() != 0 {
                host.set_cc(&mut world, CC_EN);
                host.add_queue(&mut world, 8, 0).unwrap();
            }
            host.set_cc(&mut world, cc);
        }
        let refused = host.admin(&mut world, identify(1, 0)).status();
        assert!(refused.same_code(Status::COMMAND_SEQUENCE_ERROR), "{cc:x?}: only fabrics commands");
        world.settle();
        world.pass(NEARLY);
        assert!(world.closing.is_empty(), "{cc:x?}");
        assert!(host.property(&mut world, register::CSTS).0.is_success());
        world.pass(REST);
        assert_eq!(world.closing.len(), host.queues.len(), "{cc:x?}");
        world.close();
        assert!(world.drive.controllers().is_empty());
    }
}

/// A shutdown whose flush takes longer than the host's time: nothing is cut off before it has ended.
#[test]
fn a_shutdown_under_way_is_waited_for() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    host.set_cc(&mut world, Cc(CC_EN).with_shn(1).0);
    world.run();
    assert_eq!(world.issued.len(), 1, "the flush");
    world.pass(Nanos::from_secs(1000));
    assert!(world.closing.is_empty());
    world.settle();
    world.pass(Nanos::from_secs(121));
    assert_eq!(world.closing.len(), 2);
}

// Discovery.

#[test]
fn the_discovery_log_has_generations_and_announces_changes() {
    let mut world = TestWorld::new(SubsystemConfig::discovery(), 8);
    let record = |nqn: &str, hosts: &[&str]| DiscoveryRecord {
        hosts: hosts.iter().map(|h| h.to_string()).collect(),
        ..DiscoveryRecord::new(DiscoveryEntry::tcp(subtype::NVM, nqn, adrfam::IPV4, "127.0.0.1", 4420))
    };
    world.drive.set_discovery(vec![record("nqn.a", &[]), record("nqn.b", &["nqn.gold"])]);
    let mut host = Fabric::connect(&mut world, "nqn.silver", 100, 120_000).unwrap();
    host.set_cc(&mut world, CC_EN);
    let id = identify_controller(&mut world, &mut host);
    assert_eq!((id.cntrltype, id.subnqn()), (2, Some(DISCOVERY_NQN)));
    assert_eq!(id.oaes.get(), 1 << 31);
    assert!(host.admin(&mut world, identify(cns::ACTIVE_NAMESPACES, 0)).status().same_code(Status::INVALID_FIELD));
    host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, 1 << 31));
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 40, 0, 0));
    let read = |world: &mut TestWorld, host: &mut Fabric, offset: u32, bytes: u32| {
        let sqe =
            Sqe { cdw12: U32::new(offset), ..admin(AdminOpcode::GET_LOG_PAGE, 1, (bytes / 4 - 1) << 16 | 0x70, 0) };
        host.admin_data(world, sqe).1
    };
    let log = read(&mut world, &mut host, 0, 4096);
    let header = DiscoveryHeader::read_from_bytes(&log[..1024]).unwrap();
    assert_eq!((header.genctr.get(), header.numrec.get()), (1, 1), "a host sees what it may connect to");
    let entry = DiscoveryEntry::read_from_bytes(&log[1024..2048]).unwrap();
    assert_eq!(entry.subnqn(), Some("nqn.a"));
    assert_eq!(read(&mut world, &mut host, 1024, 1024)[..1024], log[1024..2048], "by offset");
    world.drive.set_discovery(vec![record("nqn.a", &[]), record("nqn.c", &[])]);
    world.run();
    let cqe = host.answer(&mut world, 0, event).expect("a persistent discovery controller hears of changes");
    assert_eq!(AsyncEvent::from_dw0(cqe.dw0.get()), AsyncEvent::DISCOVERY_CHANGE);
    let log = read(&mut world, &mut host, 0, 1024);
    assert_eq!(DiscoveryHeader::read_from_bytes(&log[..1024]).unwrap().numrec.get(), 2);
    assert!(matches!(host.add_queue(&mut world, 8, 0), Err(e) if e == invalid(false, 42)), "no I/O queues");
}

/// A discovery controller whose host has come by this address, with records for these ports.
fn discovery(local: Option<&str>, listening: &[(&str, &str)]) -> (TestWorld, Fabric) {
    let mut world = TestWorld::new(SubsystemConfig::discovery(), 8);
    let records = listening.iter().map(|(listen, hosts)| {
        let listen: SocketAddr = listen.parse().unwrap();
        let family = if listen.is_ipv4() { adrfam::IPV4 } else { adrfam::IPV6 };
        let (ip, nqn) = (listen.ip().to_string(), format!("nqn.{listen}"));
        let hosts = hosts.split_whitespace().map(str::to_string).collect();
        let entry = DiscoveryEntry::tcp(subtype::NVM, &nqn, family, &ip, listen.port());
        DiscoveryRecord { entry, hosts, listen: Some(listen), label: "ssd0!".into() }
    });
    world.drive.set_discovery(records.collect());
    let data = ConnectData::new(DISCOVERY_NQN, "nqn.silver", [1; 16], 0xffff);
    let request = ConnectRequest::new(&Sqe::from(connect_command(0, 31)), &data, Owner(100));
    let request = local.map_or(request, |l| request.at(l.parse().unwrap()));
    let queue = world.drive.connect(Nanos(0), &request).unwrap().queue;
    let mut host = Fabric { data, base: 100, queues: vec![queue], tags: 0 };
    host.set_cc(&mut world, CC_EN);
    (world, host)
}

/// The page with this LSP: its header and the rest.
fn discovery_page(world: &mut TestWorld, host: &mut Fabric, lsp: u8) -> (DiscoveryHeader, Vec<u8>) {
    let sqe = admin(AdminOpcode::GET_LOG_PAGE, 1, (16384 / 4 - 1) << 16 | u32::from(lsp) << 8 | 0x70, 0);
    let (cqe, data) = host.admin_data(world, sqe);
    assert!(cqe.status().is_success());
    (DiscoveryHeader::read_from_bytes(&data[..1024]).unwrap(), data[1024..].to_vec())
}

/// NQN and address of every record.
fn records(page: &(DiscoveryHeader, Vec<u8>)) -> Vec<(String, String, u8)> {
    let entries = page.1.chunks_exact(1024).take(page.0.numrec.get() as usize);
    entries
        .map(|bytes| {
            let e = DiscoveryEntry::read_from_bytes(bytes).unwrap();
            let address = format!("{} {}", e.traddr().unwrap(), e.trsvcid().unwrap());
            (e.subnqn().unwrap()["nqn.".len()..].to_string(), address, e.adrfam)
        })
        .collect()
}

#[test]
fn a_wildcard_is_advertised_by_the_address_that_the_host_has_reached() {
    let ports = [("0.0.0.0:4420", ""), ("[::]:4421", ""), ("10.0.0.7:8009", "")];
    let fixed = ("10.0.0.7:8009", "10.0.0.7 8009", adrfam::IPV4);
    let table = [
        (
            Some("192.0.2.1:4420"),
            vec![("0.0.0.0:4420", "192.0.2.1 4420", 1), ("[::]:4421", "192.0.2.1 4421", 1), fixed],
        ),
        (
            Some("[::ffff:192.0.2.1]:4421"),
            vec![("0.0.0.0:4420", "192.0.2.1 4420", 1), ("[::]:4421", "192.0.2.1 4421", 1), fixed],
        ),
        (Some("[2001:db8::5]:4421"), vec![("[::]:4421", "2001:db8::5 4421", 2), fixed]),
        (None, vec![fixed]),
    ];
    for (local, expected) in table {
        let (mut world, mut host) = discovery(local, &ports);
        let got = records(&discovery_page(&mut world, &mut host, 0));
        let expected: Vec<_> = expected.iter().map(|(n, a, f)| (n.to_string(), a.to_string(), *f)).collect();
        assert_eq!(got, expected, "{local:?}");
    }
}

#[test]
fn the_log_specific_field_chooses_what_the_discovery_log_has() {
    let ports = [("0.0.0.0:4420", ""), ("192.0.2.1:4420", "nqn.gold"), ("192.0.2.1:8009", "")];
    let (mut world, mut host) = discovery(Some("192.0.2.1:4420"), &ports);
    let sqe = admin(AdminOpcode::GET_LOG_PAGE, 1, 255 << 16, 0);
    let supported = host.admin_data(&mut world, sqe).1;
    assert_eq!(supported[4 * 0x70..4 * 0x70 + 4], [1, 0, 7, 0], "EXTDLPES, PLEOS, ALLSUBES");
    let names = |page: &(DiscoveryHeader, Vec<u8>)| records(page).into_iter().map(|r| r.0).collect::<Vec<_>>();
    for (lsp, flags, expected) in [
        (0, 0, vec!["0.0.0.0:4420", "192.0.2.1:8009"]),
        (discovery_lsp::PORT_LOCAL, 2, vec!["0.0.0.0:4420"]),
        (discovery_lsp::ALL, 4, vec!["0.0.0.0:4420", "192.0.2.1:4420", "192.0.2.1:8009"]),
        (discovery_lsp::ALL | discovery_lsp::PORT_LOCAL | 0x78, 6, vec!["0.0.0.0:4420", "192.0.2.1:4420"]),
    ] {
        let page = discovery_page(&mut world, &mut host, lsp);
        assert_eq!((page.0.dlpf, page.0.tdlpl.get()), (flags, 0), "{lsp:#x}");
        assert_eq!(names(&page), expected, "{lsp:#x}");
    }
}

#[test]
fn extended_entries_say_their_length_and_carry_attributes() {
    let (mut world, mut host) = discovery(Some("192.0.2.1:4420"), &[("0.0.0.0:4420", ""), ("192.0.2.1:8009", "")]);
    let (header, page) = discovery_page(&mut world, &mut host, discovery_lsp::EXTENDED);
    assert_eq!((header.dlpf, header.numrec.get()), (1, 2));
    let mut at = 0;
    for address in ["192.0.2.1 4420", "192.0.2.1 8009"] {
        let head = ExtendedDiscoveryEntry::read_from_bytes(&page[at..at + 1032]).unwrap();
        assert_eq!(format!("{} {}", head.entry.traddr().unwrap(), head.entry.trsvcid().unwrap()), address);
        assert_eq!((head.tel.get(), head.numexat.get()), (1032 + 4 + 8, 1));
        let attribute = ExtendedAttribute::read_from_bytes(&page[at + 1032..at + 1036]).unwrap();
        assert_eq!((attribute.exattype.get(), attribute.exatlen.get()), (extended_attribute::LABEL, 8));
        assert_eq!(&page[at + 1036..at + 1044], b"ssd0!\0\0\0");
        at += head.tel.get() as usize;
    }
    assert_eq!(header.tdlpl.get() as usize, 1024 + at);
    assert!(page[at..].iter().all(|b| *b == 0));
    for (label, length) in [("", 1032), ("é", 1032), ("abcd", 1040), (&"x".repeat(256), 1292), (&"x".repeat(257), 1032)]
    {
        let entry = DiscoveryEntry::tcp(subtype::NVM, "nqn.a", adrfam::IPV4, "192.0.2.1", 4420);
        world.drive.set_discovery(vec![DiscoveryRecord { label: label.into(), ..DiscoveryRecord::new(entry) }]);
        let (header, page) = discovery_page(&mut world, &mut host, discovery_lsp::EXTENDED);
        let head = ExtendedDiscoveryEntry::read_from_bytes(&page[..1032]).unwrap();
        assert_eq!((head.tel.get(), u32::from(head.numexat.get())), (length, u32::from(length > 1032)), "{label}");
        assert_eq!(header.tdlpl.get(), 1024 + length);
    }
}

// Identify, features, logs.

#[test]
fn a_namespace_that_is_another_one_is_announced_and_has_other_identifiers() {
    let mut world = drive(|_| {});
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, async_config::NAMESPACE));
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 0, 0, 0));
    world.drive.renew_namespace(3, [0x5a; 16]).unwrap();
    assert_eq!(world.drive.renew_namespace(2, [0x5a; 16]), Err(ManagementError::NoNamespace));
    world.run();
    let cqe = host.answer(&mut world, 0, event).expect("an event");
    assert_eq!(AsyncEvent::from_dw0(cqe.dw0.get()), AsyncEvent::NAMESPACE_ATTRIBUTE);
    let (_, data) = host.admin_data(&mut world, identify(cns::NAMESPACE, 3));
    assert_eq!(IdentifyNamespace::read_from_bytes(&data[..4096]).unwrap().nguid, [0x5a; 16]);
    let (_, data) = host.admin_data(&mut world, identify(cns::NAMESPACE_DESCRIPTORS, 3));
    let both = namespace_descriptors(&data[..4096]).filter(|d| matches!(d.kind, nidt::UUID | nidt::NGUID));
    assert!(both.inspect(|d| assert_eq!(d.id, [0x5a; 16])).count() == 2);
    let (_, data) = host.admin_data(&mut world, identify(cns::NAMESPACE, 1));
    assert_ne!(IdentifyNamespace::read_from_bytes(&data[..4096]).unwrap().nguid, [0x5a; 16], "another one stays");
}

#[test]
fn identify_says_what_hosts_read() {
    let mut world = drive(|c| c.volatile_write_cache = true);
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    let id = identify_controller(&mut world, &mut host);
    assert_eq!((id.ver.get(), id.mdts, id.sqes, id.cqes, id.nn.get()), (0x2_0000, 8, 0x66, 0x44, 3));
    assert_eq!((id.oncs.get(), id.fuses.get(), id.vwc, id.cntrltype, id.cntlid.get()), (0x3ff, 1, 7, 1, 1));
    assert_eq!((id.ioccsz.get(), id.iorcsz.get(), id.kas.get() > 0), (516, 1, true));
    assert_eq!((id.sgls.get() & 3, id.cmic & 2, id.lpa & 6), (1, 2, 6));
    assert_eq!((id.subnqn(), id.serial()), (Some("nqn.2026-01.io.weir:test"), "WEIR0001"));
    // docs/reference/formats.md, "The class of a controller": version 1, class high, wishes count for nothing.
    assert_eq!(id.vs[..8], *b"WEIR\x01\x01\x00\x00");
    let page = |world: &mut TestWorld, host: &mut Fabric, sqe: Sqe| {
        let (cqe, data) = host.admin_data(world, sqe);
        (cqe.status(), data)
    };
    let (status, data) = page(&mut world, &mut host, identify(cns::NAMESPACE, 3));
    let ns = IdentifyNamespace::read_from_bytes(&data[..4096]).unwrap();
    assert!(status.is_success());
    assert_eq!((ns.nsze.get(), ns.block_shift(), ns.dlfeat, ns.nmic), ((1 << 30) / 4096, Some(12), 9, 1));
    let (status, data) = page(&mut world, &mut host, identify(cns::NAMESPACE, 2));
    assert!(status.is_success() && data[..4096].iter().all(|b| *b == 0), "inactive");
    for (nsid, which) in
        [(4, cns::NAMESPACE), (0, cns::NAMESPACE), (NSID_ALL, cns::NAMESPACE), (NSID_ALL, cns::ACTIVE_NAMESPACES)]
    {
        let status = page(&mut world, &mut host, identify(which, nsid)).0;
        assert!(status.same_code(Status::INVALID_NAMESPACE_OR_FORMAT), "{nsid:#x}");
    }
    let (_, data) = page(&mut world, &mut host, identify(cns::ACTIVE_NAMESPACES, 0));
    assert_eq!(namespace_list(&data).collect::<Vec<_>>(), [1, 3]);
    let (_, data) = page(&mut world, &mut host, identify(cns::ACTIVE_NAMESPACES, 1));
    assert_eq!(namespace_list(&data).collect::<Vec<_>>(), [3]);
    let (_, data) = page(&mut world, &mut host, identify(cns::NAMESPACE_DESCRIPTORS, 1));
    let kinds: Vec<u8> = namespace_descriptors(&data[..4096]).map(|d| d.kind).collect();
    assert_eq!(kinds, [nidt::UUID, nidt::NGUID, nidt::CSI]);
    let (_, data) = page(&mut world, &mut host, identify(cns::CONTROLLERS, 0));
    assert_eq!(controller_list(&data).collect::<Vec<_>>(), [1]);
    for which in [
        cns::CS_NAMESPACE,
        cns::CS_CONTROLLER,
        cns::CS_ACTIVE_NAMESPACES,
        cns::CS_INDEPENDENT_NAMESPACE,
        cns::COMMAND_SETS,
    ] {
        assert!(page(&mut world, &mut host, identify(which, 1)).0.is_success(), "CNS {which:#x}");
        if which != cns::CS_INDEPENDENT_NAMESPACE && which != cns::COMMAND_SETS {
            let zoned = Sqe { cdw11: U32::new(2 << 24), ..identify(which, 1) };
            assert!(page(&mut world, &mut host, zoned).0.same_code(Status::INVALID_FIELD), "no zones");
        }
    }
    assert!(page(&mut world, &mut host, identify(0x77, 1)).0.same_code(Status::INVALID_FIELD));
}

#[test]
fn features_have_values_defaults_and_capabilities() {
    let mut world = drive(|c| (c.max_io_queues, c.volatile_write_cache) = (8, true));
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    let mut get = |world: &mut TestWorld, fid, sel| {
        let (cqe, data) = host.admin_data(world, get_feature(fid, sel));
        (cqe.status(), cqe.dw0.get(), data)
    };
    let arbitration = Arbitration(0).with_ab(7).with_hpw(31).with_mpw(15).with_lpw(7);
    assert_eq!(get(&mut world, fid::ARBITRATION, select::CURRENT).1, arbitration.0, "32:16:8, no limit");
    for fid in
        [fid::ARBITRATION, fid::POWER, fid::TEMPERATURE, fid::WRITE_CACHE, fid::QUEUES, fid::ASYNC_EVENTS, fid::QUANTA]
    {
        let saves = u32::from(fid != fid::QUEUES);
        assert_eq!(get(&mut world, fid, select::SUPPORTED).1, 4 | saves, "changeable, and saveable: {fid:#x}");
        assert!(
            get(&mut world, fid, select::DEFAULT).0.is_success() && get(&mut world, fid, select::SAVED).0.is_success()
        );
        assert!(get(&mut world, fid, 4).0.same_code(Status::INVALID_FIELD));
    }
    assert!(get(&mut world, fid::COALESCING, 0).0.same_code(Status::INVALID_FIELD), "no interrupts over fabrics");
    assert!(get(&mut world, 0x7f, 0).0.same_code(Status::INVALID_FIELD));
    let (_, high, data) = get(&mut world, fid::QUANTA, select::CURRENT);
    let quanta = Quanta::read_from_bytes(&data[..16]).unwrap();
    assert_eq!((high, quanta.medium.get(), quanta.low.get()), (128 << 10, 64 << 10, 32 << 10));
    assert_eq!(Queues(get(&mut world, fid::QUEUES, 0).1).nsq(), 7);
    let mut set = |world: &mut TestWorld, sqe: Sqe| host.admin(world, sqe);
    let quanta = Sqe { cdw12: U32::new(8192), cdw13: U32::new(4096), ..set_feature(fid::QUANTA, 16384) };
    assert!(set(&mut world, quanta).status().is_success());
    assert!(set(&mut world, set_feature(fid::QUANTA, 1)).status().same_code(Status::INVALID_FIELD), "a quantum of 0");
    let queues = set(&mut world, set_feature(fid::QUEUES, Queues(0).with_nsq(3).with_ncq(99).0));
    assert_eq!((Queues(queues.dw0.get()).nsq(), Queues(queues.dw0.get()).ncq()), (3, 7));
    let mut save = set_feature(fid::QUEUES, 0);
    save.cdw10 = U32::new(1 << 31 | u32::from(fid::QUEUES));
    assert!(set(&mut world, save).status().same_code(Status::FEATURE_NOT_SAVEABLE));
    assert!(set(&mut world, set_feature(fid::HOST_ID, 1)).status().same_code(Status::COMMAND_SEQUENCE_ERROR));
    assert!(set(&mut world, set_feature(fid::POWER, 5)).status().same_code(Status::INVALID_FIELD));
    host.add_queue(&mut world, 8, 0).unwrap();
    let late = host.admin(&mut world, set_feature(fid::QUEUES, 0));
    assert!(late.status().same_code(Status::COMMAND_SEQUENCE_ERROR), "after a queue was created");
}

#[test]
fn smart_counts_truly() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    for n in 0..10 {
        host.send(&mut world, 1, io(READ, n, 0, 200));
        host.send(&mut world, 1, io(WRITE, 100 + n, 0, 1));
    }
    world.settle();
    host.send(&mut world, 1, io(READ, 50, 0, 1));
    world.run();
    world.done(0, Status::UNRECOVERED_READ_ERROR);
    world.pass(Nanos::from_secs(2 * 3600 + 5));
    let smart = Sqe { nsid: U32::new(NSID_ALL), ..admin(AdminOpcode::GET_LOG_PAGE, 1, 127 << 16 | 2, 0) };
    let (cqe, data) = host.admin_data(&mut world, smart);
    assert!(cqe.status().is_success());
    let smart = Smart::read_from_bytes(&data[..512]).unwrap();
    assert_eq!((smart.host_reads.get(), smart.host_writes.get()), (10, 10));
    // 2000 units of 512 bytes and 10: thousands, rounded up.
    assert_eq!((smart.data_units_read.get(), smart.data_units_written.get()), (2, 1));
    assert_eq!((smart.power_on_hours.get(), smart.media_errors.get(), smart.error_entries.get()), (2, 1, 1));
    let stats = world.drive.stats();
    assert_eq!((stats.work.reads, stats.work.read_bytes, stats.work.errors), (10, 10 * 200 * 512, 1));
    assert_eq!((stats.tenants[0].queues, stats.tenants[0].controllers, stats.tenants[1].queues), (1, 1, 0));
}

#[test]
fn log_pages_are_what_they_claim() {
    let mut world = drive(|_| {});
    let mut host = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    let mut read = |world: &mut TestWorld, lid: u8, bytes: u32, offset: u32| {
        let cdw10 = (bytes / 4 - 1) << 16 | u32::from(lid);
        let sqe = Sqe { cdw12: U32::new(offset), ..admin(AdminOpcode::GET_LOG_PAGE, 1, cdw10, 0) };
        let (cqe, data) = host.admin_data(world, sqe);
        (cqe.status(), data)
    };
    let (_, supported) = read(&mut world, lid::SUPPORTED, 1024, 0);
    for id in 0..=255u8 {
        let listed = supported[usize::from(id) * 4] & 1 == 1;
        // Some want more than a page's identifier: a context, a group, whole blocks.
        assert_eq!(!read(&mut world, id, 4, 0).0.same_code(Status::INVALID_LOG_PAGE), listed, "log page {id:#x}");
        world.pass(Nanos::from_millis(1));
    }
    let (_, effects) = read(&mut world, lid::EFFECTS, 4096, 0);
    let effects = Effects::read_from_bytes(&effects[..4096]).unwrap();
    assert_eq!(
        (effects.admin[6].get(), effects.io[1].get(), effects.io[2].get(), effects.io[0x19].get()),
        (1, 3, 1, 3)
    );
    assert_eq!(effects.admin[usize::from(AdminOpcode::CREATE_IO_SQ.0)].get(), 0, "not over fabrics");
    assert!(read(&mut world, lid::SMART, 512, 2).0.same_code(Status::INVALID_FIELD), "offsets are in dwords");
    assert!(read(&mut world, lid::SMART, 512, 516).0.same_code(Status::INVALID_FIELD), "beyond the page");
    let (status, data) = read(&mut world, lid::FIRMWARE, 1024, 0);
    assert!(status.is_success() && data[0] == 1 && data[512..1024].iter().all(|b| *b == 0), "padded with zeroes");
}

// The front controller of the virtio door.

#[test]
fn a_front_queue_takes_requests_in_bytes() {
    // What NVMe hosts are limited to, a door of this process is not.
    let mut world = drive(|c| (c.mdts, c.max_io_queues) = (1, 1));
    let attach = Attach { tenant: 0, owner: Owner(3), model: TransportModel::Front, host: "vm".into() };
    let front = world.drive.attach(Nanos(0), attach).unwrap();
    assert_eq!(world.drive.add_message_queue(front, 0, None, Owner(3)), Err(ManagementError::QueueSize));
    let queue = world.drive.add_message_queue(front, 8, None, Owner(3)).unwrap();
    let request = |op, offset, len| BlockRequest { op, nsid: 3, offset, len, fua: false };
    let (start, wide) = (2u64 << 30, 1 << 20);
    let table = [
        (request(Op::Read, 4096, wide), Ok((Op::Read, start + 4096, wide))),
        (request(Op::Flush, 0, 0), Ok((Op::Flush, start, 0))),
        (request(Op::Deallocate, 8192, 1 << 29), Ok((Op::Deallocate, start + 8192, 1 << 29))),
        (request(Op::Write, 512, 4096), Err(Status::INVALID_FIELD)),
        (request(Op::Write, 0, 0), Err(Status::INVALID_FIELD)),
        (request(Op::Write, 1 << 30, 4096), Err(Status::LBA_OUT_OF_RANGE)),
        (request(Op::Write, u64::MAX - 4095, 4096), Err(Status::LBA_OUT_OF_RANGE)),
        (BlockRequest { nsid: 9, ..request(Op::Read, 0, 4096) }, Err(Status::INVALID_NAMESPACE_OR_FORMAT)),
    ];
    for (tag, (request, expected)) in table.into_iter().enumerate() {
        let tag = tag as u32;
        world.host.pending.insert((3, tag), tag as u16);
        world.event(Event::Submit { queue, request, tag: Tag(tag) });
        world.run();
        let got = world.issued.first().map(|io| (io.op, io.offset, io.len));
        world.settle();
        let status = world.answer(Owner(3), tag).unwrap().status();
        match expected {
            Ok(io) => assert!(got == Some(io) && status.is_success(), "{request:?}: {got:?}"),
            Err(e) => assert!(got.is_none() && status.same_code(e), "{request:?}: {status}"),
        }
    }
    let full = (0..9).map(|_| world.drive.add_message_queue(front, 8, None, Owner(4))).filter(Result::is_ok).count();
    assert_eq!(full, 9);
    world.drive.detach(Nanos(0), front);
    world.drive.check();
    assert!(world.drive.controllers().is_empty());
    world.event(Event::Submit { queue, request: request(Op::Flush, 0, 0), tag: Tag(99) });
}

#[test]
fn hosts_find_their_tenants() {
    let mut world = drive(|c| {
        let named = TenantConfig { hosts: vec!["nqn.x".into(), "*".into()], ..TenantConfig::new("late", Class::Low) };
        c.tenants.push(named);
    });
    assert_eq!(world.drive.tenant_of_host("nqn.gold"), Some(0));
    assert_eq!(world.drive.tenant_of_host("nqn.x"), Some(3), "a name goes before any wildcard");
    assert_eq!(world.drive.tenant_of_host("nqn.y"), Some(2), "the first wildcard");
    Fabric::connect(&mut world, "nqn.x", 100, 0).unwrap();
    assert_eq!(world.drive.controllers()[0].tenant, 3);
    assert_eq!(world.drive.tenant_by_name("late"), Some(3));
}
