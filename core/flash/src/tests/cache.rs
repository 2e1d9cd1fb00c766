//! The buffer as a data cache.

use crate::model::{geometry, small};
use crate::*;
use weir_units::{Bytes, Nanos};

const WRITE: FlashOp = FlashOp::Write { fua: false };

/// Four planes, a page of 8 KiB; MQSim's memory: 100 MT/s, bursts of a byte, tRCD and tCL of 13 ns.
fn drive(cache: Cache, size: u64, arbitration: Arbitration) -> Flash {
    let mut config = small(geometry(2, 2, 32, 16, 2), 0.5);
    config.timing.arbitration = arbitration;
    let dram = Dram { access: Nanos(26), wire: Wire::units(2, 10) };
    config.buffer = BufferConfig { size: Bytes(size), cache, dram, ..BufferConfig::NONE };
    Flash::new(&config, Nanos(0)).unwrap()
}

/// Submits, and when it is complete.
fn took(flash: &mut Flash, now: Nanos, op: FlashOp, lpn: u32, units: u32) -> Nanos {
    let end = flash.begin(now, When::at(now), op, lpn, units, 0);
    flash.tell(end, 7);
    let mut until = now;
    loop {
        if let Some((_, at)) = flash.told() {
            return at.saturating_sub(now);
        }
        until = flash.next_event().unwrap_or(until);
        flash.advance(until);
    }
}

const BUSES: [Arbitration; 2] = [Arbitration::Booked, Arbitration::DataOutFirst];

#[test]
fn one_access_to_the_memory_follows_the_other() {
    for bus in BUSES {
        let mut flash = drive(Cache::Write, 1 << 20, bus);
        for i in 1..=4 {
            // 26 ns and 8 KiB at 10 ns for two bytes.
            assert_eq!(took(&mut flash, Nanos(0), WRITE, 2 * i as u32, 2), Nanos(i * 40_986), "{bus}");
        }
        // A read of what is there takes an access as well, whatever the array does.
        let now = Nanos(400_000);
        assert_eq!(took(&mut flash, now, WRITE, 2, 1), Nanos(26 + 20_480));
        assert_eq!(took(&mut flash, now, FlashOp::Read, 2, 1), Nanos(2 * (26 + 20_480)));
        flash.check();
    }
}

#[test]
fn what_is_written_again_stays_until_its_room_is_needed() {
    for bus in BUSES {
        // Eight pages of two units.
        let mut flash = drive(Cache::Write, 64 << 10, bus);
        let mut now = Nanos(1);
        let mut write = |flash: &mut Flash, page: u32| {
            now = now.saturating_add(Nanos(10_000_000));
            took(flash, now, WRITE, 2 * page, 2);
            flash.stats().page_programs
        };
        // All is forgotten with the first write, and begins with the next.
        write(&mut flash, 0);
        assert_eq!((1..9).map(|page| write(&mut flash, page)).last(), Some(9), "each is programmed at once");
        assert_eq!((1..9).map(|page| write(&mut flash, page)).last(), Some(9), "{bus}: all of them stay");
        assert_eq!((1..9).map(|page| write(&mut flash, page)).last(), Some(9));
        assert_eq!(flash.stats().buffer_write_hits, 16);
        // Page 1 was used last, by a read: page 2 makes room.
        took(&mut flash, Nanos(900_000_000), FlashOp::Read, 2, 2);
        assert_eq!(write(&mut flash, 9), 11, "page 2, and the new one");
        assert_eq!(write(&mut flash, 9), 11, "which stays");
        let hits = flash.stats().buffer_read_hits;
        took(&mut flash, Nanos(901_000_000), FlashOp::Read, 4, 2);
        assert_eq!(flash.stats().buffer_read_hits, hits, "page 2 is in flash");
        took(&mut flash, Nanos(902_000_000), FlashOp::Read, 2, 2);
        assert_eq!(flash.stats().buffer_read_hits, hits + 2, "page 1 stays");
        // Flush writes all of it, and a trimmed page is not written.
        took(&mut flash, Nanos(903_000_000), FlashOp::Trim, 6, 2);
        took(&mut flash, Nanos(904_000_000), FlashOp::Flush, 0, 0);
        assert_eq!(flash.stats().page_programs, 11 + 7);
        flash.check();
        // After its time it is new again.
        now = Nanos(3_000_000_000);
        took(&mut flash, now, WRITE, 2, 2);
        took(&mut flash, now.saturating_add(Nanos(1)), WRITE, 4, 2);
        assert_eq!(flash.stats().page_programs, 19, "the first one still counts, the second one is new");
        took(&mut flash, Nanos(5_000_000_000), WRITE, 0, 2);
        took(&mut flash, Nanos(5_100_000_000), WRITE, 2, 2);
        assert_eq!(flash.stats().page_programs, 21, "{bus}: what has stayed is new again as well");
        flash.check();
    }
}

#[test]
fn what_was_read_stays_until_it_is_written_or_the_least_used() {
    for bus in BUSES {
        let mut flash = drive(Cache::Read, 16 << 10, bus);
        flash.precondition(Precondition::Sequential);
        let at = |i: u64| Nanos(1_000_000 * (i + 1));
        let array = took(&mut flash, at(0), FlashOp::Read, 0, 2);
        let access = Nanos(40_986);
        assert!(array > access);
        assert_eq!(took(&mut flash, at(1), FlashOp::Read, 0, 2), access, "{bus}");
        // Two pages fit: the third drops the one that was not read again.
        took(&mut flash, at(2), FlashOp::Read, 2, 2);
        assert_eq!(took(&mut flash, at(3), FlashOp::Read, 0, 2), access);
        took(&mut flash, at(4), FlashOp::Read, 4, 2);
        assert_eq!(took(&mut flash, at(5), FlashOp::Read, 2, 2), array);
        assert_eq!(took(&mut flash, at(6), FlashOp::Read, 4, 2), access);
        // A write goes to the flash and takes its place there.
        assert!(took(&mut flash, at(7), WRITE, 4, 2) > Nanos(200_000));
        assert!(took(&mut flash, at(8), FlashOp::Read, 4, 2) > access);
        assert_eq!(flash.stats().buffer_write_hits, 0);
        flash.check();
    }
}

#[test]
fn no_more_than_pending_is_on_its_way() {
    for bus in BUSES {
        // A page of each of four planes, all of them new: the fifth waits for a program.
        let mut flash = drive(Cache::Write, 1 << 20, bus);
        let ends: alloc::vec::Vec<Nanos> = (0..5).map(|i| took(&mut flash, Nanos(0), WRITE, 2 * i, 2)).collect();
        assert!(ends[3] < Nanos(200_000) && ends[4] > Nanos(200_000), "{bus}: {ends:?}");
    }
}

#[test]
fn a_cache_without_a_buffer_is_refused() {
    let mut config = small(geometry(2, 2, 32, 16, 2), 0.5);
    config.buffer.cache = Cache::Write;
    let refused = |config: &FlashDriveConfig| alloc::format!("{}", Flash::new(config, Nanos(0)).unwrap_err());
    assert_eq!(refused(&config), "buffer.cache = \"write\" needs buffer.size, which is 0");
    config.buffer.size = Bytes(1 << 20);
    config.buffer.flush = Flush::Watermark;
    assert!(refused(&config).ends_with("buffer.flush is \"eager\" with it"));
    (config.buffer.flush, config.ftl.streams) = (Flush::Eager, 2);
    assert!(refused(&config).contains("ftl.streams is 1 with it"));
}
