//! What one program leaves for the next: a keeper's state, connections of NVMe/TCP, associations, what drives have begun. Whoever forged the bytes made their length
//! and checksum right, so that what is behind these is reached.

use weir_controller::{Begun, NamespaceConfig, Subsystem, SubsystemConfig, Tag, TenantConfig};
use weir_keeper::saved::{Saved, VERSION};
use weir_session::nvme_tcp::{Budget, Connection};
use weir_spec::nvme::tcp::{Digest, TableDigest};
use weir_units::{Class, Nanos};

/// Magic, version, length: sixteen bytes.
const LENGTH_AT: usize = 12;
const HEAD: usize = 16;
const VERSION_AT: core::ops::Range<usize> = 8..12;

/// The input with its length and checksum made right.
fn forged(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let length = (bytes.len() + 4) as u32;
    if bytes.len() >= HEAD {
        bytes[LENGTH_AT..HEAD].copy_from_slice(&length.to_le_bytes());
    }
    let crc = TableDigest::append(0, &bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

/// Lines of digits, two a byte; where a line begins with its offset, what is left out before it is zero.
fn dumped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let (at, digits) = line.split_once(' ').unwrap_or(("", line));
        if let Ok(at) = usize::from_str_radix(at, 16) {
            bytes.resize(at, 0);
        }
        bytes.extend((0..digits.len()).step_by(2).filter_map(|i| u8::from_str_radix(digits.get(i..i + 2)?, 16).ok()));
    }
    // The checksum is made for every input.
    bytes.truncate(bytes.len().saturating_sub(4));
    bytes
}

/// A keeper's state: what is read is what is written, where it is of this layout, and is read again.
pub fn keeper(data: &[u8]) {
    let bytes = forged(data);
    if let Ok(saved) = Saved::parse::<TableDigest>(&bytes) {
        saved.machine.check();
        assert!(saved.machine.is_at_rest());
        let written = saved.to_bytes::<TableDigest>();
        if bytes[VERSION_AT] == VERSION.to_le_bytes() {
            assert_eq!(written, bytes);
        } else {
            let again = Saved::parse::<TableDigest>(&written).expect("its own bytes");
            assert_eq!(again.to_bytes::<TableDigest>(), written);
        }
    }
}

/// The golden ones.
pub fn keeper_seeds() -> Vec<Vec<u8>> {
    let golden = [include_str!("../../core/keeper/src/saved_1.txt"), include_str!("../../core/keeper/src/saved_2.txt")];
    golden.into_iter().map(dumped).collect()
}

/// A connection: it holds what it must hold, takes whatever comes next, and can be saved again.
pub fn connection(data: &[u8]) {
    let now = Nanos(7);
    let mut budget = Budget::new(1 << 20);
    let Ok(mut connection) = Connection::<TableDigest>::restore(now, &forged(data), &mut budget) else { return };
    connection.check();
    if let Some(bytes) = connection.save(now) {
        let again = Connection::<TableDigest>::restore(now, &bytes, &mut Budget::new(1 << 20)).expect("its own bytes");
        assert_eq!(again.save(now), Some(bytes));
    }
    for piece in data.chunks(40).take(8) {
        connection.receive(now, piece, &mut budget);
        connection.check();
    }
    while connection.next_command().is_some() {}
    connection.check();
    crate::checked(2);
}

/// The golden one: half of a write has come.
pub fn connection_seeds() -> Vec<Vec<u8>> {
    vec![dumped(include_str!("../../core/session/src/nvme_tcp/saved_1.txt"))]
}

fn drive() -> Subsystem {
    let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:test");
    config.namespaces = vec![NamespaceConfig { nsid: 1, start: 0, size: 1 << 30, block_size: 512, uuid: [1; 16] }];
    for (name, class, host) in [("gold", Class::High, "nqn.gold"), ("rest", Class::Low, "*")] {
        config.tenants.push(TenantConfig { hosts: vec![host.into()], ..TenantConfig::new(name, class) });
    }
    Subsystem::new(config, Nanos(0)).expect("a drive")
}

/// Associations: a drive that takes them holds what it must hold, also once nobody has claimed them.
pub fn associations(data: &[u8]) {
    let mut drive = drive();
    if drive.resume_associations(Nanos(9), &forged(data)).is_ok() {
        drive.check();
        let bytes = drive.associations(Nanos(9));
        let mut again = self::drive();
        again.resume_associations(Nanos(9), &bytes).expect("its own bytes");
        drive.drop_unclaimed(Nanos(9));
        drive.check();
        crate::checked(2);
    }
}

/// What drives had begun: what is read is what is written.
pub fn begun(data: &[u8]) {
    let bytes = forged(data);
    if let Ok(list) = Begun::from_bytes(&bytes) {
        assert_eq!(Begun::to_bytes(&list), bytes);
        crate::checked(1);
    }
}

/// None, and two commands.
pub fn begun_seeds() -> Vec<Vec<u8>> {
    let list = [(1, Some(Nanos(7_000_000_000))), (2, None)];
    let list = list.map(|(qid, due)| Begun { qid, tag: Tag(5), due });
    let mut seeds = vec![Begun::to_bytes(&[]), Begun::to_bytes(&list)];
    seeds.iter_mut().for_each(|bytes| bytes.truncate(bytes.len() - 4));
    seeds
}

/// None, and those of one host with a queue.
pub fn association_seeds() -> Vec<Vec<u8>> {
    let mut world =
        weir_controller::testing::TestWorld::new(weir_controller::SubsystemConfig::new("nqn.2026-01.io.weir:test"), 4);
    let without = world.drive.associations(world.now);
    let mut seeds = vec![without];
    world.drive = drive();
    if let Ok(mut host) = weir_controller::testing::Fabric::connect(&mut world, "nqn.gold", 100, 5000) {
        host.set_cc(&mut world, 0x0046_0001);
        let _ = host.add_queue(&mut world, 8, 0);
        seeds.push(world.drive.associations(world.now));
    }
    seeds.iter_mut().for_each(|bytes| bytes.truncate(bytes.len() - 4));
    seeds
}
