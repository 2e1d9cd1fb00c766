//! Garbage collection, and what it leaves free; pages moved; planes together.

use crate::*;
use weir_units::Nanos;

const READ: u64 = 50_000;
const PROGRAM: u64 = 600_000;
const ERASE: u64 = 3_000_000;
const TRANSFER: u64 = 10_000;

fn array(registers: Registers, gate: OperationUnit) -> Array {
    let parts = Preset::FemuOc.parts(false);
    let timing = FlashTiming {
        gate,
        registers,
        read: uniform(READ),
        program: uniform(PROGRAM),
        erase: Nanos(ERASE),
        channel: Wire::proportional(16384, TRANSFER),
        ..parts.timing
    };
    // Planes 0 and 1 are one die, on channel 0 with 4 and 5; 2, 3, 6, 7 are on channel 1.
    let shape = Geometry { channels: 2, ways: 2, planes: 2, blocks: 4, pages: 8, ..parts.geometry }.shape().unwrap();
    Array::new(&shape, &timing, &parts.variability)
}

fn at(plane: u32) -> PageAddress {
    PageAddress { plane, block: 0, page: 0 }
}

/// Ten pages moved and a block erased.
const WORK: Relocation = Relocation {
    read: Nanos(10 * READ),
    program: Nanos(10 * PROGRAM),
    bytes: 10 * 16384,
    erase: Some(1),
    erase_yields: false,
};
const COPIED: u64 = 10 * (READ + PROGRAM);
const MOVED: u64 = COPIED + 20 * TRANSFER;

fn read(a: &mut Array, now: u64, plane: u32) -> u64 {
    a.read(Nanos(now), at(plane), 16384).0 - now
}

#[test]
fn copy_back_blocks_the_plane_only() {
    let mut a = array(Registers::Double, OperationUnit::Plane);
    assert_eq!(a.relocate(Nanos(0), 0, &WORK, Scope::Plane), Nanos(COPIED + ERASE));
    for plane in 1..8 {
        assert!(read(&mut a, 1_000_000, plane) <= READ + 4 * TRANSFER, "plane {plane}");
    }
    assert_eq!(read(&mut a, 2_000_000, 0), COPIED + ERASE - 2_000_000 + READ + TRANSFER);
    assert_eq!(a.locked_until(), Nanos(0));
}

#[test]
fn channel_blocking_blocks_the_channel_until_the_last_page() {
    let mut a = array(Registers::Double, OperationUnit::Plane);
    assert_eq!(a.relocate(Nanos(0), 0, &WORK, Scope::Channel), Nanos(MOVED + ERASE));
    assert_eq!(read(&mut a, 1_000_000, 4), MOVED - 1_000_000 + TRANSFER, "the array works, the channel does not");
    assert_eq!(read(&mut a, 1_000_000, 2), READ + TRANSFER, "the other channel");
    assert_eq!(read(&mut a, MOVED + TRANSFER, 5), READ + TRANSFER, "the erase is the plane's own");
    // What was booked before stays: the pages move behind it.
    let mut a = array(Registers::Double, OperationUnit::Plane);
    assert_eq!(read(&mut a, 0, 4), READ + TRANSFER);
    assert_eq!(a.relocate(Nanos(0), 0, &WORK, Scope::Channel), Nanos(READ + TRANSFER + MOVED + ERASE));
}

#[test]
fn controller_blocking_blocks_everything_until_the_end() {
    let mut a = array(Registers::Double, OperationUnit::Plane);
    let end = a.relocate(Nanos(0), 0, &WORK, Scope::Controller);
    assert_eq!(end, Nanos(MOVED + ERASE));
    assert_eq!(a.locked_until(), end);
    for plane in 0..8 {
        assert_eq!(a.plane_free_at(plane), end);
    }
    assert_eq!(read(&mut a, 5, 6), end.0 - 5 + READ + TRANSFER);
    assert_eq!(a.program(Nanos(7), at(3), 16384).loaded, Nanos(end.0 + TRANSFER));
}

#[test]
fn scopes_are_read_as_they_are_written() {
    for scope in Scope::ALL {
        assert_eq!(scope.name().parse::<Scope>().as_ref(), Ok(scope));
    }
}

#[test]
fn an_empty_victim_costs_its_erase_only() {
    let work = Relocation { erase: Some(0), ..Relocation::default() };
    for scope in Scope::ALL {
        let mut a = array(Registers::Double, OperationUnit::Plane);
        assert_eq!(a.relocate(Nanos(100), 0, &work, *scope), Nanos(100 + ERASE));
        assert_eq!(a.utilisation(Nanos(100 + ERASE)).channels, [Nanos(0); 2]);
    }
    let mut a = array(Registers::Double, OperationUnit::Plane);
    let pages = Relocation { erase: None, ..WORK };
    assert_eq!(a.relocate(Nanos(0), 0, &pages, Scope::Plane), Nanos(COPIED));
    assert_eq!(a.relocate(Nanos(0), 1, &Relocation::default(), Scope::Plane), Nanos(0));
}

#[test]
fn dies_are_blocked_whole_where_they_work_as_one() {
    let mut a = array(Registers::Single, OperationUnit::Die);
    let end = a.relocate(Nanos(0), 0, &WORK, Scope::Plane);
    assert_eq!(a.plane_free_at(1), end);
    assert_eq!(a.plane_free_at(4), Nanos(0));
}

#[test]
fn pages_move_inside_a_plane_and_between_planes() {
    let mut a = array(Registers::Double, OperationUnit::Plane);
    let within = a.move_page(Nanos(0), at(0), PageAddress { block: 1, ..at(0) }, 16384, Promise::Told);
    assert_eq!(within.done, Nanos(READ + PROGRAM));
    let across = a.move_page(Nanos(0), at(2), at(6), 16384, Promise::Told);
    assert_eq!(across.done, Nanos(READ + 2 * TRANSFER + PROGRAM));
    assert_eq!(a.utilisation(across.done).channels, [Nanos(0), Nanos(2 * TRANSFER)]);
}

#[test]
fn planes_of_a_die_work_together() {
    for (gate, registers) in [
        (OperationUnit::Die, Registers::Single),
        (OperationUnit::Plane, Registers::Single),
        (OperationUnit::Plane, Registers::Double),
    ] {
        let mut a = array(registers, gate);
        let both = a.program_planes(Nanos(0), at(0), 2, 16384);
        assert_eq!(both, Programmed { loaded: Nanos(2 * TRANSFER), done: Nanos(2 * TRANSFER + PROGRAM) }, "{gate}");
        assert_eq!((a.plane_free_at(0), a.plane_free_at(1)), (both.done, both.done));
        let mut a = array(registers, gate);
        assert_eq!(a.read_planes(Nanos(0), at(0), 2, 16384), Nanos(READ + 2 * TRANSFER), "{gate}");
        // They begin together: the busier plane decides.
        let mut a = array(registers, gate);
        a.erase(Nanos(0), 1, 0);
        assert_eq!(a.read_planes(Nanos(0), at(0), 2, 16384), Nanos(ERASE + READ + 2 * TRANSFER), "{gate}");
        a.check();
    }
}

#[test]
fn what_was_busy_is_counted_once() {
    let mut a = array(Registers::Double, OperationUnit::Plane);
    a.read(Nanos(0), at(0), 16384);
    a.program(Nanos(0), at(2), 16384);
    a.erase(Nanos(0), 7, 0);
    let end = Nanos(10_000_000);
    let u = a.utilisation(end);
    // A die is the mean of its two planes.
    assert_eq!(u.dies, [Nanos(READ / 2), Nanos(PROGRAM / 2), Nanos(0), Nanos(ERASE / 2)]);
    assert_eq!(u.channels, [Nanos(TRANSFER); 2]);
    // Half way through the erase, half of it.
    assert_eq!(a.utilisation(Nanos(ERASE / 2)).dies[3], Nanos(ERASE / 4));
    assert_eq!(a.utilisation(Nanos(TRANSFER / 2)).channels[1], Nanos(TRANSFER / 2));
}

#[test]
fn cache_reads_overlap_and_plain_reads_do_not() {
    let parts = Preset::FemuOc.parts(false);
    let shape = parts.geometry.shape().unwrap();
    let ends = |cache_read, transfer: u64| {
        let channel = Wire::proportional(16384, transfer);
        let timing = FlashTiming { read: uniform(READ), channel, cache_read, cache_busy: Nanos(100), ..parts.timing };
        let mut a = Array::new(&shape, &timing, &parts.variability);
        [0, 1, 2].map(|page| a.read(Nanos(0), PageAddress { page, ..at(0) }, 16384).0)
    };
    // Transfers shorter than the array read hide behind it, but for the last.
    assert_eq!(ends(true, TRANSFER), [1, 2, 3].map(|n| n * (READ + 100) + TRANSFER));
    assert_eq!(ends(false, TRANSFER), [1, 2, 3].map(|n| n * (READ + TRANSFER)));
    // Longer ones hide the array reads: the next page waits for the cache register, then moves there.
    let long = 2 * READ;
    assert_eq!(ends(true, long), [1, 2, 3].map(|n| READ + n * (long + 100)));
}
