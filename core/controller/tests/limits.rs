//! Floors, ceilings and promises in a drive: the arbiter's tests have the rates, these that commands of all kinds of queues
//! are held, released, counted and judged.

mod common;

use common::{config, drive, fabric_with_queues};
use weir_controller::testing::{Fabric, TestRing, TestWorld, io};
use weir_controller::{Attainment, Owner, SubsystemConfig};
use weir_spec::nvme::register::ams;
use weir_units::{Bytes, Ceiling, Floor, Nanos, Rates, Sla};

const READ: u8 = 2;
const MS: u64 = 1_000_000;
const GOLD: u16 = 0;
const SILVER: u16 = 1;

fn iops(n: u64) -> Rates {
    Rates { iops: Some(n), bandwidth: None }
}

/// Commands of `blocks` of 512 bytes that always wait: a host that sends one for each that is answered.
struct Load {
    fabric: Fabric,
    blocks: u32,
    depth: u32,
    open: u32,
    answers: u64,
}

impl Load {
    fn new(world: &mut TestWorld, host: &str, base: u32, blocks: u32, depth: u32) -> Load {
        Load { fabric: fabric_with_queues(world, host, base, 1), blocks, depth, open: 0, answers: 0 }
    }

    fn turn(&mut self, world: &mut TestWorld) {
        let owner = self.fabric.base + 1;
        let before = world.host.answers.len();
        world.host.answers.retain(|(o, ..)| o.0 != owner);
        let done = (before - world.host.answers.len()) as u32;
        self.open -= done;
        self.answers += u64::from(done);
        while self.open < self.depth {
            self.fabric.send(world, 1, io(READ, self.fabric.tags as u16, 0, self.blocks));
            self.open += 1;
        }
    }
}

/// Lets the loads run for so long, in steps of what the drive does next.
fn run(world: &mut TestWorld, loads: &mut [&mut Load], length: u64) {
    let end = Nanos(world.now.0 + length);
    while world.now < end {
        loads.iter_mut().for_each(|load| load.turn(world));
        world.settle();
        world.now = world.drive.next_deadline().map_or(end, |at| at.clamp(Nanos(world.now.0 + 1), end));
    }
    world.settle();
    loads.iter_mut().for_each(|load| load.turn(world));
}

fn limited(change: impl FnOnce(&mut SubsystemConfig)) -> TestWorld {
    drive(|c| {
        c.latency = Nanos(100_000);
        c.slots = 10;
        change(c);
    })
}

fn attained(world: &mut TestWorld, tenant: u16) -> Attainment {
    world.drive.attainment(world.now, tenant).expect("something was promised")
}

/// 100,000 commands a second is what this drive does.
#[test]
fn a_ceiling_holds_to_the_command() {
    let mut world = limited(|c| {
        c.tenants[1].ceiling = Ceiling { burst: Some(10), ..Ceiling::new(iops(1_000)) };
    });
    let mut silver = Load::new(&mut world, "nqn.silver", 100, 8, 32);
    run(&mut world, &mut [&mut silver], 1_000 * MS);
    // Ten at once, and one each millisecond from the first on; the last one is in flight.
    assert_eq!(silver.answers, 10 + 999);
    assert!(world.drive.stats().tenants[usize::from(SILVER)].held);
    // Without it, all of the drive; with another, that.
    let none = (Floor::default(), Ceiling::default(), Sla::default());
    world.drive.set_limits(world.now, SILVER, none.0, none.1, none.2).unwrap();
    let before = silver.answers;
    run(&mut world, &mut [&mut silver], 100 * MS);
    assert!((9_990..=10_010).contains(&(silver.answers - before)), "{}", silver.answers - before);
    let rates = Rates { iops: None, bandwidth: Some(Bytes(4_096_000)) };
    let ceiling = Ceiling { burst_bytes: Some(Bytes(4096)), ..Ceiling::new(rates) };
    world.drive.set_limits(world.now, SILVER, Floor::default(), ceiling, Sla::default()).unwrap();
    let before = silver.answers;
    run(&mut world, &mut [&mut silver], 500 * MS);
    assert!((499..=511).contains(&(silver.answers - before)), "{}", silver.answers - before);
}

/// A command that its ceiling holds is due when the drive has no slot free: that is no reason to turn in circles.
#[test]
fn a_release_does_not_wait_for_a_slot() {
    let mut world = limited(|c| {
        c.slots = 1;
        c.latency = Nanos(10 * MS);
        c.tenants[1].ceiling = Ceiling { burst: Some(1), ..Ceiling::new(iops(1_000)) };
    });
    let mut silver = fabric_with_queues(&mut world, "nqn.silver", 100, 1);
    for _ in 0..3 {
        silver.send(&mut world, 1, io(READ, silver.tags as u16, 0, 1));
    }
    world.run();
    assert_eq!(world.drive.next_deadline(), Some(Nanos(MS)), "the ceiling's");
    world.pass(Nanos(MS));
    assert_eq!(world.drive.next_deadline(), Some(Nanos(10 * MS)), "the slot's");
}

/// Low has a floor of half the drive and gets it beside a tenant of class high with four times its depth; everybody's
/// verdict is what was sent.
#[test]
fn a_floor_holds_and_is_judged() {
    let mut world = limited(|c| {
        c.tenants[2].floor = Floor::new(iops(50_000));
        c.tenants[0].sla = Sla { rates: iops(90_000), p99: Some(Nanos(2 * MS)), ..Sla::default() };
    });
    let mut gold = Load::new(&mut world, "nqn.gold", 100, 8, 64);
    let mut rest = Load::new(&mut world, "nqn.somebody", 200, 8, 16);
    run(&mut world, &mut [&mut gold, &mut rest], 2_000 * MS);
    let part = rest.answers as f64 / (rest.answers + gold.answers) as f64;
    assert!((part - 0.5).abs() < 0.01, "{part}");
    let rest = attained(&mut world, 2);
    assert_eq!((rest.periods, rest.missed, rest.met()), (2, 0, Some(true)));
    assert!(world.drive.attainment(world.now, SILVER).is_none(), "nothing was promised");
    // Half of the drive is less than gold bought; its commands wait for 64 of 50,000 a second.
    let gold = attained(&mut world, GOLD);
    assert_eq!((gold.periods, gold.missed_rate, gold.missed_latency, gold.since), (2, 2, 0, Nanos(0)));
    let (start, last) = gold.last.unwrap();
    assert_eq!(start, Nanos(1_000 * MS));
    assert!((49_000..51_000).contains(&last.iops) && last.bandwidth == Bytes(last.iops * 4096), "{last:?}");
    assert!((1_150_000..1_250_000).contains(&last.p50.0), "{last:?}");
}

/// Rings are judged from the doorbell on; what waits because its host does not consume completions is not late.
#[test]
fn rings_are_judged_from_the_doorbell() {
    let mut world = TestWorld::new(
        config(|c| {
            c.tenants[0].sla = Sla { rates: iops(1_000), p99: Some(Nanos(50_000)), ..Sla::default() };
        }),
        64,
    );
    let mut ring = TestRing::ready(&mut world, GOLD, Owner(7), ams::RR);
    assert!(ring.create_cq(&mut world, 1, 3).is_success());
    assert!(ring.create_sq(&mut world, 1, 16, 1, 0).is_success());
    for lba in 0..6 {
        ring.submit(&mut world, 1, io(READ, 0, lba, 1));
    }
    world.settle();
    // Two are complete; the others wait for their host for two seconds.
    world.now = Nanos(2_000 * MS);
    assert_eq!(ring.reap(&mut world, 1).len(), 2);
    world.run();
    assert_eq!(world.issued.len(), 2);
    world.now = Nanos(2_000 * MS + 40_000);
    world.settle();
    let gold = attained(&mut world, GOLD);
    assert_eq!((gold.periods, gold.missed), (1, 0), "of the second period nothing is asked");
    world.now = Nanos(3_000 * MS);
    let (start, last) = attained(&mut world, GOLD).last.unwrap();
    assert_eq!((start, last.commands, last.max), (Nanos(2_000 * MS), 2, Nanos(40_000)));
}
