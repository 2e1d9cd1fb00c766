//! What the tests of the controller share.
#![allow(dead_code)]

pub mod sparse;

use weir_controller::testing::{Fabric, TestRing, TestWorld, admin};
use weir_controller::{NamespaceConfig, SubsystemConfig, TenantConfig};
use weir_spec::nvme::identify::IdentifyController;
use weir_spec::nvme::register::{self, Csts, ams};
use weir_spec::nvme::{AdminOpcode, Sqe};
use weir_units::Class;
use zerocopy::FromBytes;

/// CC.EN with the usual entry sizes.
pub const CC_EN: u32 = 0x0046_0001;

/// Namespaces 1 (512-byte blocks) and 3 (4096), 1 GiB each; tenants gold (high), silver (medium), and the rest (low).
pub fn config(change: impl FnOnce(&mut SubsystemConfig)) -> SubsystemConfig {
    let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:test");
    for (nsid, block_size) in [(1, 512), (3, 4096)] {
        let start = u64::from(nsid - 1) << 30;
        config.namespaces.push(NamespaceConfig { nsid, start, size: 1 << 30, block_size, uuid: [nsid as u8; 16] });
    }
    for (name, class, host) in
        [("gold", Class::High, "nqn.gold"), ("silver", Class::Medium, "nqn.silver"), ("rest", Class::Low, "*")]
    {
        config.tenants.push(TenantConfig { hosts: vec![host.into()], ..TenantConfig::new(name, class) });
    }
    change(&mut config);
    config
}

/// A drive with that configuration.
pub fn drive(change: impl FnOnce(&mut SubsystemConfig)) -> TestWorld {
    TestWorld::new(config(change), 64)
}

/// A host that is connected and has I/O queues of 64 entries.
pub fn fabric_with_queues(world: &mut TestWorld, host: &str, base: u32, queues: u16) -> Fabric {
    let mut fabric = Fabric::ready(world, host, base, ams::RR);
    for _ in 0..queues {
        fabric.add_queue(world, 64, 0).expect("the host may have queues");
    }
    fabric
}

/// CSTS.
pub fn csts(ring: &TestRing, world: &TestWorld) -> Csts {
    Csts(ring.read(world, register::CSTS) as u32)
}

/// Set Features with CDW11.
pub fn set_feature(fid: u8, cdw11: u32) -> Sqe {
    admin(AdminOpcode::SET_FEATURES, 60, fid.into(), cdw11)
}

/// Get Features with SEL.
pub fn get_feature(fid: u8, sel: u32) -> Sqe {
    admin(AdminOpcode::GET_FEATURES, 61, u32::from(fid) | sel << 8, 0)
}

/// Identify with CNS.
pub fn identify(cns: u8, nsid: u32) -> Sqe {
    Sqe { nsid: nsid.into(), ..admin(AdminOpcode::IDENTIFY, 62, cns.into(), 0) }
}

/// Identify Controller.
pub fn identify_controller(world: &mut TestWorld, host: &mut Fabric) -> IdentifyController {
    let (cqe, data) = host.admin_data(world, identify(1, 0));
    assert!(cqe.status().is_success());
    IdentifyController::read_from_bytes(&data[..4096]).expect("4096 bytes")
}
