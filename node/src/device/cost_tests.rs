//! Arbitration by what the flash spends.

use super::*;
use weir_controller::{Attach, BlockRequest, DataPointer, SqHandle, Tag, TenantConfig, TransportModel};
use weir_flash::FlashOp;
use weir_spec::nvme::Cqe;
use weir_units::Class;

/// Hosts without memory of their own: what they read is dropped, what they write is zeroes.
#[derive(Default)]
struct Hosts {
    answered: Vec<u32>,
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
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        self.answered.push(tag.0);
    }
    fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, into: &mut [u8]) -> Result<(), Status> {
        into.fill(0);
        Ok(())
    }
    fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> {
        Ok(())
    }
}

const BLOCKS: u64 = (128 << 20) / 4096;

/// A reader and a writer of one class, each with 32 requests of 4 KiB in flight at random places, for a second of the drive's own
/// time and then eight: what each of them got in those, and the drive.
fn share(cost: &str) -> ([u64; 2], Device) {
    let query = format!(
        "capacity=128MiB&over_provisioning=0.4&channels=2&ways=2&pages=64&precondition=steady&slots=4&block_size=4096&cost={cost}"
    );
    let config = DeviceConfig::from_query("femu-bbssd", &query).unwrap_or_else(|e| panic!("{e}"));
    let mut machine = weir_drive::machine_config(&config);
    machine.tenants = ["reader", "writer"]
        .map(|name| TenantConfig { hosts: Vec::new(), ..TenantConfig::new(name, Class::High) })
        .into();
    let mut device = Device::open(&config, machine, Nanos(0)).unwrap();
    let queues: [SqHandle; 2] = [0, 1].map(|tenant: u16| {
        let attach = Attach { tenant, owner: Owner(tenant.into()), model: TransportModel::Front, host: "test".into() };
        let machine = device.machine_mut();
        let controller = machine.attach(Nanos(0), attach).unwrap();
        machine.add_message_queue(controller, 64, None, Owner(tenant.into())).unwrap()
    });
    let (mut hosts, mut reactor) = (Hosts::default(), Reactor::new().unwrap());
    let (mut now, mut seed, mut served) = (Nanos(0), 1u64, [0; 2]);
    hosts.answered = (0..64).collect();
    let mut counting = false;
    while now < Nanos::from_secs(9) {
        if now >= Nanos::from_secs(1) && !counting {
            (counting, served) = (true, [0; 2]);
            inside::flash_of(&mut device.machine).expect("flash").reset(now);
        }
        for tag in std::mem::take(&mut hosts.answered) {
            let who = usize::from(tag >= 32);
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (seed >> 33) % BLOCKS * 4096;
            let request = BlockRequest { op: [Op::Read, Op::Write][who], nsid: 1, offset, len: 4096, fua: false };
            device.apply(now, Event::Submit { queue: queues[who], request, tag: Tag(tag) }, &mut hosts);
        }
        device.run(now, &mut hosts, &mut reactor, Nanos::NEVER);
        for tag in &hosts.answered {
            served[usize::from(*tag >= 32)] += 1;
        }
        if hosts.answered.is_empty() {
            now = now.max(device.due());
        }
    }
    device.machine().check();
    (served, device)
}

#[test]
fn a_reader_keeps_its_share_of_the_flash_beside_a_writer() {
    let ([reads, writes], _) = share("bytes");
    assert!(reads.abs_diff(writes) * 20 < reads, "as many bytes for each: {reads} {writes}");
    let ([more, fewer], mut device) = share("device-time");
    let flash = inside::flash_of(&mut device.machine).expect("flash").flash();
    let moved = flash.stats().gc_moves * 1000 / flash.stats().host_writes;
    assert!(moved > 20, "collection is at work: {moved}");
    let spent =
        [more * flash.cost(FlashOp::Read, 1, moved).0, fewer * flash.cost(FlashOp::Write { fua: false }, 1, moved).0];
    let ratio = spent[0] as f64 / spent[1] as f64;
    assert!((0.9..1.1).contains(&ratio), "as much time for each: {spent:?}");
    assert!(more > 2 * reads, "{more} reads instead of {reads}");
}
