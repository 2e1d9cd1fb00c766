//! A drive whose inside does not know in advance when a command is complete: it tells, and the command completes then.

mod common;

use common::{config, fabric_with_queues};
use weir_controller::testing::{Fabric, TestWorld, io};
use weir_controller::{Op, Operation, TimingModel};
use weir_flash::{
    Arbitration, BufferConfig, CellType, Flash, FlashDriveConfig, FlashOp, FlashTiming, Order, Preset, UNIT, When,
};
use weir_spec::nvme::{AdminOpcode, Cqe, Sqe, Status};
use weir_units::{Bytes, Nanos};
use zerocopy::little_endian::U32;

const WRITE: u8 = 1;
const READ: u8 = 2;

#[derive(Debug)]
struct Inside(Flash);

impl TimingModel for Inside {
    fn begin(&mut self, now: Nanos, operation: Operation) -> When {
        let (first, units) = ((operation.offset / u64::from(UNIT)) as u32, operation.len.div_ceil(UNIT));
        let op = match operation.op {
            Op::Write => FlashOp::Write { fua: false },
            Op::Read => FlashOp::Read,
            Op::Deallocate => FlashOp::Trim,
            _ => FlashOp::Flush,
        };
        self.0.begin(now, When::at(now), op, first, units, 0)
    }
    fn later_of(&mut self, a: When, b: When) -> When {
        self.0.later_of(a, b)
    }
    fn tell(&mut self, when: When, tag: u64) {
        self.0.tell(when, tag);
    }
    fn told(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        self.0.advance(now);
        self.0.told()
    }
    fn next_event(&self) -> Option<Nanos> {
        self.0.next_event()
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// One channel of two dies, pages of 4 KiB.
fn flash() -> Flash {
    let mut config = FlashDriveConfig::preset(Preset::FemuBasic, false);
    let geometry = &mut config.geometry;
    (geometry.channels, geometry.ways, geometry.planes, geometry.blocks, geometry.pages) = (1, 2, 1, 64, 16);
    (geometry.page_bytes, geometry.spare_bytes, geometry.cell) = (UNIT, 64, CellType::Slc);
    let (arbitration, order) = (Arbitration::Fifo, Order::InOrder);
    config.timing = FlashTiming { arbitration, order, ..config.timing };
    config.buffer = BufferConfig::NONE;
    config.ftl.capacity = Some(Bytes(1000 * u64::from(UNIT)));
    Flash::new(&config, Nanos(0)).expect("a small drive")
}

fn host(slots: u32) -> (TestWorld, Fabric) {
    let config = config(|c| {
        c.slots = slots;
        for ns in &mut c.namespaces {
            (ns.start, ns.size) = (u64::from(ns.nsid / 3) * 500 * u64::from(UNIT), 500 * u64::from(UNIT));
        }
    });
    let mut world = TestWorld::new(config, 64);
    world.drive.set_service(Box::new(Inside(flash())));
    let fabric = fabric_with_queues(&mut world, "nqn.gold", 100, 1);
    (world, fabric)
}

fn command(opcode: u8, cid: u16, lba: u64) -> Sqe {
    Sqe { nsid: U32::new(3), ..io(opcode, cid, lba, 1) }
}

/// Lets time pass until all of the commands are complete: when each is, in their order.
fn ends(world: &mut TestWorld, fabric: &Fabric, tags: &[u32]) -> Vec<(Nanos, Cqe)> {
    let mut ends: Vec<Option<(Nanos, Cqe)>> = vec![None; tags.len()];
    world.settle();
    for _ in 0..10_000 {
        for (end, tag) in ends.iter_mut().zip(tags).filter(|(end, _)| end.is_none()) {
            *end = fabric.answer(world, 1, *tag).map(|cqe| (world.now, cqe));
        }
        if ends.iter().all(Option::is_some) {
            return ends.into_iter().flatten().collect();
        }
        let next = world.drive.next_deadline().expect("something is under way");
        world.pass(next.saturating_sub(world.now));
        world.settle();
    }
    panic!("not complete: {ends:?}");
}

/// What the flash says of the same commands, all at once.
fn alone(commands: &[(FlashOp, u32)], from: Nanos) -> Vec<Nanos> {
    let mut flash = flash();
    for (tag, (op, lpn)) in commands.iter().enumerate() {
        let when = flash.begin(from, When::at(from), *op, *lpn, 1, 0);
        flash.tell(when, tag as u64);
    }
    while let Some(at) = flash.next_event() {
        flash.advance(at);
    }
    let mut told: Vec<(u64, Nanos)> = std::iter::from_fn(|| flash.told()).collect();
    told.sort_unstable();
    told.into_iter().map(|(_, at)| at).collect()
}

#[test]
fn commands_complete_when_the_flash_says() {
    let (mut world, mut fabric) = host(64);
    let begun = world.now;
    let commands: Vec<(u8, u64)> = (0..12).map(|i| (if i % 3 == 0 { WRITE } else { READ }, i * 5 % 7)).collect();
    let sqe = |cid: usize, (opcode, lba): (u8, u64)| command(opcode, cid as u16, lba);
    let tags: Vec<u32> = commands.iter().enumerate().map(|(i, c)| fabric.send(&mut world, 1, sqe(i, *c))).collect();
    let told = ends(&mut world, &fabric, &tags);
    let op = |(opcode, lba): &(u8, u64)| {
        (if *opcode == WRITE { FlashOp::Write { fua: false } } else { FlashOp::Read }, 500 + *lba as u32)
    };
    let expected = alone(&commands.iter().map(op).collect::<Vec<_>>(), begun);
    assert!(told.iter().all(|(_, cqe)| cqe.status() == Status::SUCCESS));
    assert_eq!(told.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected);
}

#[test]
fn what_waits_to_be_told_can_be_aborted() {
    let (mut world, mut fabric) = host(2);
    let first = fabric.send(&mut world, 1, command(READ, 1, 0));
    let second = fabric.send(&mut world, 1, command(READ, 2, 2));
    world.run();
    let abort = weir_controller::testing::admin(AdminOpcode::ABORT, 9, 2 << 16 | 1, 0);
    assert_eq!(fabric.admin(&mut world, abort).status(), Status::SUCCESS);
    assert_eq!(fabric.answer(&mut world, 1, second).map(|cqe| cqe.status()), Some(Status::ABORT_REQUESTED));
    // Its slot is free when the flash is done with it: the next commands find both.
    let others: Vec<u32> = (3..9).map(|cid| fabric.send(&mut world, 1, command(READ, cid, 4))).collect();
    let told = ends(&mut world, &fabric, &[&[first], &others[..]].concat());
    assert!(told.iter().all(|(_, cqe)| cqe.status() == Status::SUCCESS), "{told:?}");
    let next = world.drive.next_deadline().unwrap_or(Nanos::NEVER);
    assert!(next > world.now.saturating_add(Nanos::from_secs(1)), "only keep alive is left, not {next}");
}
