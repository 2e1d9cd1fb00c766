//! A medium that is overwritten where it lies.

use crate::model::{geometry, small, timing};
use crate::*;
use alloc::string::ToString;
use weir_units::{Bytes, Nanos};

fn config() -> FlashDriveConfig {
    let mut config = small(geometry(2, 2, 8, 16, 1), 0.0);
    config.timing = FlashTiming { read: uniform(5_000), program: uniform(7_000), channel: Wire::INSTANT, ..timing() };
    config.host = HostTiming::INSTANT;
    config.ftl.mapping = Mapping::InPlace;
    config.ftl.capacity = None;
    config
}

#[test]
fn all_of_it_is_offered_and_overwriting_costs_no_more_than_writing() {
    let mut flash = Flash::new(&config(), Nanos(0)).unwrap();
    assert_eq!(flash.units(), flash.shape().units());
    flash.precondition(Precondition::Steady);
    let mut now = Nanos(0);
    for round in 0..3 {
        for lpn in 0..flash.units() {
            let done = flash.submit(now, FlashOp::Write { fua: false }, lpn, 1);
            assert_eq!(done.0 - now.0, 7_000, "unit {lpn} in round {round}");
            now = done;
        }
    }
    assert_eq!(flash.submit(now, FlashOp::Read, 3, 1).0 - now.0, 5_000);
    flash.check();
    let stats = flash.stats();
    assert_eq!((stats.erases, stats.gc_moves, stats.unmapped_reads), (0, 0, 0));
    assert_eq!(flash.write_amplification(), 1.0);
}

#[test]
fn consecutive_units_lie_on_planes_of_their_own() {
    let mut flash = Flash::new(&config(), Nanos(0)).unwrap();
    let planes = flash.shape().planes();
    assert_eq!(flash.submit(Nanos(0), FlashOp::Write { fua: true }, 0, planes), Nanos(7_000));
    assert_eq!(flash.submit(Nanos(0), FlashOp::Write { fua: true }, planes, 1), Nanos(14_000), "the first plane again");
}

#[test]
fn there_is_nothing_to_buffer_and_nothing_to_wear_out() {
    let mut buffered = config();
    buffered.buffer.size = Bytes(1 << 20);
    assert_eq!(
        buffered.validate().unwrap_err().to_string(),
        "buffer.size is not 0; ftl.mapping = \"in-place\" has none"
    );
    let mut worn = config();
    worn.ftl.wear.endurance = 10;
    assert!(worn.validate().unwrap_err().to_string().starts_with("ftl.wear.endurance is not 0"));
}
