//! A vendor's command of your own in thirty lines: `docs/guides/vendor-commands.md` walks through it.

use weir_controller::testing::{Fabric, TestWorld, admin, io};
use weir_controller::*;
use weir_spec::nvme::{AdminOpcode, Sqe, Status, register::ams};
use weir_units::Nanos;

/// Counts how often each of 16 slots was touched; the host reads all counts at once.
#[derive(Debug, Default)]
struct Touches([u32; 16]);

static COMMANDS: [VendorOpcode; 2] = [
    // No data: the two lowest bits of C0h are 00b. 200 ns of the drive's time.
    VendorOpcode { queue: VendorQueue::Io, opcode: 0xc0, data: VendorData::None, charge: 0, changes: false },
    // To the host: 10b. 64 bytes.
    VendorOpcode { queue: VendorQueue::Admin, opcode: 0xc2, data: VendorData::Bytes(64), charge: 0, changes: false },
];

impl VendorCommand for Touches {
    fn commands(&self) -> &'static [VendorOpcode] {
        &COMMANDS
    }

    fn serve(
        &mut self,
        now: Nanos,
        request: &VendorRequest,
        port: &mut VendorPort<'_>,
    ) -> Result<VendorAnswer, VendorRefusal> {
        if request.queue == VendorQueue::Admin {
            let bytes: Vec<u8> = self.0.iter().flat_map(|count| count.to_le_bytes()).collect();
            port.write(0, &bytes)?;
            return Ok(VendorAnswer { at: now, status: Status::SUCCESS, result: 0 });
        }
        // Every field may be wrong: a host sent it.
        let count = self.0.get_mut(request.cdw[0] as usize).ok_or(Status::INVALID_FIELD.dnr())?;
        *count += 1;
        Ok(VendorAnswer { at: Nanos(now.0 + 200), status: Status::SUCCESS, result: u64::from(*count) })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// A drive with it, and a host that touches slot 3 twice and slot 99 once.
fn touched() -> (Vec<u32>, Vec<Status>) {
    let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:example");
    config.namespaces.push(NamespaceConfig { nsid: 1, start: 0, size: 1 << 20, block_size: 4096, uuid: [1; 16] });
    let mut world = TestWorld::new(config, 64);
    world.drive.set_vendor(1, Box::<Touches>::default()).expect("namespace 1 is there");
    let mut host = Fabric::ready(&mut world, "nqn.2026-01.io.weir:host", 0, ams::RR);
    host.add_queue(&mut world, 16, 0).expect("the host may have a queue");
    let mut statuses = Vec::new();
    for slot in [3, 3, 99] {
        let tag = host.send(&mut world, 1, Sqe { nsid: 1.into(), ..io(0xc0, 1, slot, 1) });
        world.run();
        world.pass(Nanos(200));
        world.run();
        statuses.extend(host.answer(&mut world, 1, tag).map(|cqe| cqe.status()));
    }
    let (_, data) = host.admin_data(&mut world, Sqe { nsid: 1.into(), ..admin(AdminOpcode(0xc2), 2, 0, 0) });
    let counts = data[..64].chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    (counts.collect(), statuses)
}

fn main() {
    let (counts, statuses) = touched();
    println!("counts {counts:?}, answers {statuses:?}");
}

#[test]
fn it_counts() {
    let (counts, statuses) = touched();
    assert_eq!((counts[3], counts.iter().sum::<u32>()), (2, 2));
    assert_eq!(statuses, [Status::SUCCESS, Status::SUCCESS, Status::INVALID_FIELD.dnr()]);
}
