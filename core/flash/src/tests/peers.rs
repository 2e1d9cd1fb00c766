//! The published models' numbers, exact to the nanosecond.

use crate::*;
use alloc::vec::Vec;
use weir_units::Nanos;

const UNIT4K: u32 = 4096;

/// An idle drive of a preset.
fn drive(preset: Preset, quirks: bool) -> (Array, Host, Shape) {
    let parts = preset.parts(quirks);
    let shape = parts.geometry.shape().unwrap();
    parts.timing.validate().unwrap();
    (Array::new(&shape, &parts.timing, &parts.variability), Host::new(&parts.host), shape)
}

fn page(plane: u32, page: u32) -> PageAddress {
    PageAddress { plane, block: 0, page }
}

/// A read as the host sees it.
fn host_read(array: &mut Array, host: &mut Host, now: Nanos, at: PageAddress, bytes: u32) -> Nanos {
    let begin = host.fetch(now, HostOp::Read, bytes);
    let ready = array.read(begin, at, bytes);
    host.deliver(ready, bytes)
}

#[test]
fn femu_bbssd_idle_vectors() {
    for quirks in [false, true] {
        let (mut a, _, shape) = drive(Preset::FemuBbssd, quirks);
        assert_eq!(shape.bytes().0, 16 << 30);
        assert_eq!(a.read(Nanos(0), page(0, 0), UNIT4K), Nanos(40_000), "4K read");
        assert_eq!(a.read(Nanos(0), page(0, 1), UNIT4K), Nanos(80_000), "a second one on the same LUN");
        assert_eq!(a.program(Nanos(0), page(1, 0), UNIT4K).done, Nanos(200_000), "4K write");
        assert_eq!(a.erase(Nanos(0), 2, 0), Nanos(2_000_000));
        // 64 KiB striped over sixteen LUNs.
        let ends: Vec<_> = (16..32).map(|lun| a.read(Nanos(0), page(lun, 0), UNIT4K)).collect();
        assert_eq!(ends, [Nanos(40_000); 16]);
    }
}

#[test]
fn femu_bbssd_ceilings() {
    // 64 / 40 us = 1.60 M reads a second, 64 / 200 us = 320 k writes a second.
    let (mut a, _, _) = drive(Preset::FemuBbssd, false);
    let reads = (0..1_600_000).map(|i| a.read(Nanos(0), page(i % 64, 0), UNIT4K)).max();
    assert_eq!(reads, Some(Nanos::from_secs(1)));
    let (mut a, _, _) = drive(Preset::FemuBbssd, false);
    let writes = (0..320_000).map(|i| a.program(Nanos(0), page(i % 64, 0), UNIT4K).done).max();
    assert_eq!(writes, Some(Nanos::from_secs(1)));
}

#[test]
fn femu_page_types_and_cells() {
    assert_eq!(page_type_factors(CellType::Tlc)[..3], [600, 1000, 1400]);
    assert_eq!(page_type_factors(CellType::Plc), [400, 750, 1000, 1250, 1600]);
    // Multiplied onto bbssd's 40 us the factors are times of their own.
    for (cell, expected) in [(CellType::Mlc, &[24_000, 56_000][..]), (CellType::Qlc, &[20_000, 34_000, 46_000, 60_000])]
    {
        let factors = page_type_factors(cell);
        let times: Vec<u64> = factors[..cell.levels()].iter().map(|f| 40_000 * u64::from(*f) / 1000).collect();
        assert_eq!(times, expected);
    }
    // QLC is TLC's table with the factors 1.05, 1.1, 1.2 and 1.6 on lower, centre, upper, upper.
    let (tlc, qlc) = (cell_times(CellType::Tlc), cell_times(CellType::Qlc));
    for (times, of) in [(qlc.read, tlc.read), (qlc.program, tlc.program)] {
        let by = |level: usize, percent: u64| Nanos(of[level].0 * percent / 100);
        assert_eq!(times[..4], [by(0, 105), by(1, 110), by(2, 120), by(2, 160)]);
    }
}

#[test]
fn femu_firmware_and_link() {
    // start = max(core free, expire) + fw; then max(link, expire) + bytes * 1000 / MB/s; then the propagation.
    let timing = HostTiming {
        firmware: Firmware { core: Nanos(3_000), ..HostTiming::INSTANT.firmware },
        propagation: Nanos(500),
        ..HostTiming::link(Wire::bytes_per_second(2_000_000_000))
    };
    let mut host = Host::new(&timing);
    assert_eq!(host.fetch(Nanos(100), HostOp::Read, UNIT4K), Nanos(3_100));
    assert_eq!(host.fetch(Nanos(100), HostOp::Other, 0), Nanos(6_100), "one core");
    assert_eq!(host.fetch(Nanos(100), HostOp::Write, UNIT4K), Nanos(9_100 + 2_048 + 500));
    assert_eq!(host.deliver(Nanos(50_000), UNIT4K), Nanos(52_548));
    assert_eq!(host.deliver(Nanos(50_000), UNIT4K), Nanos(54_596), "behind it");
    assert_eq!(host.deliver(Nanos(40_000), UNIT4K), Nanos(42_548), "before both: the link is booked in intervals");
    assert_eq!(host.busy_until(Nanos(60_000)), (Nanos(3 * 2_048), Nanos(2_048)));
}

#[test]
fn femu_oc_pages_pair_and_registers_double() {
    let (mut a, _, _) = drive(Preset::FemuOc, false);
    let lower = a.read(Nanos(0), page(0, 0), 16384);
    let upper = a.read(Nanos(0), page(1, 6), 16384);
    assert_eq!((lower, upper), (Nanos(48_000 + 52_433), Nanos(64_000 + 52_433)));
    // Pages 2 and 3 of a plane: the array reads the second while the first crosses the channel.
    let second = a.read(Nanos(0), page(0, 1), 16384);
    assert_eq!(second, Nanos(48_000 + 2 * 52_433));
    let (w_lower, w_upper) = (a.program(Nanos(0), page(2, 0), 16384), a.program(Nanos(0), page(3, 9), 16384));
    assert_eq!(w_lower, Programmed { loaded: Nanos(52_433), done: Nanos(952_433) });
    assert_eq!(w_upper.done, Nanos(2_452_433));
    // The next page is loaded while the first is programmed; the one after waits for the cache register.
    let next = a.program(Nanos(0), page(2, 1), 16384);
    assert_eq!(next, Programmed { loaded: Nanos(2 * 52_433), done: Nanos(952_433 + 900_000) });
    assert_eq!(a.program(Nanos(0), page(2, 2), 16384).loaded, Nanos(952_433 + 52_433));
    // As coded: chips only.
    let (mut a, _, _) = drive(Preset::FemuOc, true);
    assert_eq!(a.read(Nanos(0), page(0, 6), 16384), Nanos(64_000));
    assert_eq!(a.program(Nanos(0), page(0, 6), 16384).done, Nanos(64_000 + 2_300_000));
}

#[test]
fn femu_basic_has_one_register_a_plane() {
    let (mut a, _, _) = drive(Preset::FemuBasic, false);
    let (tr, tw, tx) = (56_000, 1_650_000, 52_433);
    // The second page is sensed when the first one has left the register.
    let first = a.read(Nanos(0), page(0, 0), 16384);
    let second = a.read(Nanos(0), page(0, 1), 16384);
    assert_eq!((first, second), (Nanos(tr + tx), Nanos(2 * (tr + tx))));
    // Data enters the register when the page before is in the cells.
    let first = a.program(Nanos(0), page(1, 0), 16384);
    let second = a.program(Nanos(0), page(1, 1), 16384);
    assert_eq!((first.done, second.done), (Nanos(tx + tw), Nanos(2 * (tx + tw))));
}

#[test]
fn femu_basic_s_formulas_are_two_next_free_times() {
    let (mut a, _, _) = drive(Preset::FemuBasic, true);
    let (tr, tw, tx) = (56_000, 1_650_000, 52_433);
    let write = a.program(Nanos(0), page(0, 0), 16384);
    assert_eq!(write, Programmed { loaded: Nanos(tx), done: Nanos(tx + tw) });
    // A read to the same plane while the write is ongoing: the plane, then the channel.
    assert_eq!(a.read(Nanos(10), page(0, 6), 16384), Nanos(tx + tw + tr + tx));
    // A write on the other hand takes the channel at once.
    assert_eq!(
        a.program(Nanos(10), page(0, 7), 16384),
        Programmed { loaded: Nanos(2 * tx), done: Nanos(tx + 2 * tw + tr) }
    );
}

/// 16 readers on one plane and channel, and on sixteen: figure 4 of papers/002 (flash-models says which readings hold).
#[test]
fn femu_readers_on_a_plane_and_on_sixteen_channels() {
    let parts = Preset::FemuOc.parts(false);
    let mean_of_16 = |channels, registers, transfer: u64| {
        let shape = Geometry { channels, ..parts.geometry }.shape().unwrap();
        let timing = FlashTiming { registers, channel: Wire::proportional(16384, transfer), ..parts.timing };
        let mut a = Array::new(&shape, &timing, &parts.variability);
        let mut done = [Nanos(0); 16];
        let mut sum = 0;
        for round in 0..200 {
            for (reader, free) in done.iter_mut().enumerate() {
                let at = page(reader as u32 % channels, (round * 7 + reader as u32) % 512);
                let end = a.read(*free, at, 16384);
                sum += (end.0 - free.0) * u64::from(round >= 100);
                *free = end;
            }
        }
        sum / 1600
    };
    assert!(mean_of_16(1, Registers::Single, 52_433) > 1_550_000);
    assert!(mean_of_16(16, Registers::Single, 52_433) < 130_000);
    let double = mean_of_16(1, Registers::Double, 52_433);
    assert!((900_000..960_000).contains(&double), "{double}");
}

#[test]
fn eight_reads_on_a_channel_take_the_channel_eight_times_and_the_array_once() {
    // FEMU's pull request 201: 8 * 65 + 25 us, not 8 * 90.
    let parts = Preset::FemuOc.parts(false);
    let shape = Geometry { channels: 1, ways: 8, ..parts.geometry }.shape().unwrap();
    let timing = FlashTiming { read: uniform(25_000), channel: Wire::proportional(16384, 65_000), ..parts.timing };
    for registers in [Registers::Unbounded, Registers::Single, Registers::Double] {
        let mut a = Array::new(&shape, &FlashTiming { registers, ..timing }, &parts.variability);
        let ends: Vec<_> = (0..8).map(|die| a.read(Nanos(0), page(die, 0), 16384)).collect();
        assert_eq!(ends.last(), Some(&Nanos(25_000 + 8 * 65_000)));
        // A command that fits before the first transfer is not held up by transfers that have not begun.
        let mut a = Array::new(&shape, &FlashTiming { registers, ..timing }, &parts.variability);
        a.read(Nanos(0), page(0, 0), 16384);
        assert_eq!(a.program(Nanos(0), page(1, 0), 4096).loaded, Nanos(16_250));
    }
}

#[test]
fn femu_staged_bus() {
    // READ bus(cmd), array + ecc, bus(xfer), bus(status); PROGRAM bus(cmd) + bus(xfer), array; ERASE bus(cmd), array.
    let parts = Preset::FemuBbssd.parts(false);
    let overheads = Overheads {
        read: Nanos(100),
        program: Nanos(200),
        erase: Nanos(300),
        status: Nanos(50),
        ..Overheads::default()
    };
    let timing = FlashTiming {
        registers: Registers::Single,
        channel: Wire::proportional(4096, 5_000),
        overheads,
        ..parts.timing
    };
    let ecc_steps = Some(EccSteps { step: Nanos(1_000), cycles: 750, most: 4 });
    let shape = parts.geometry.shape().unwrap();
    let mut a = Array::new(&shape, &timing, &Variability { ecc_steps, ..parts.variability });
    assert_eq!(a.read(Nanos(0), page(0, 0), UNIT4K), Nanos(100 + 40_000 + 5_000 + 50));
    assert_eq!(a.program(Nanos(0), page(1, 0), UNIT4K), Programmed { loaded: Nanos(5_200), done: Nanos(205_200) });
    assert_eq!(a.erase(Nanos(0), 2, 0), Nanos(300 + 2_000_000));
    for (cycles, steps) in [(749, 0), (750, 1), (2_999, 3), (3_000, 4), (100_000, 4)] {
        a.set_cycles(3, 0, cycles);
        let begin = Nanos::from_secs(u64::from(cycles) + 1);
        let end = a.read(begin, page(3, 0), UNIT4K);
        assert_eq!(end.0 - begin.0, 45_150 + 1_000 * steps, "{cycles} cycles");
    }
}

#[test]
fn nvmevirt_970_pro_idle_vectors() {
    let (mut a, mut host, _) = drive(Preset::Nvmevirt970Pro, true);
    let lsb = host_read(&mut a, &mut host, Nanos(0), page(0, 0), UNIT4K);
    let msb = host_read(&mut a, &mut host, Nanos(1_000_000), page(1, 1), UNIT4K);
    assert_eq!(lsb, Nanos(57_276));
    assert_eq!(msb, Nanos(1_069_276));
    let write = host.fetch(Nanos(2_000_000), HostOp::Write, UNIT4K);
    assert_eq!(write, Nanos(2_005_612));
    // A whole flash page: two pieces cross the channel, the first one the link meanwhile.
    let begin = host.fetch(Nanos(3_000_000), HostOp::Read, 32768);
    let ready = a.read(begin, page(2, 0), 32768);
    let end = host.deliver_each(a.pieces(), 32768, 16384);
    // The second piece begins 19,456 ns after the first: in its fifth slot of 4 us, where 2 credits of 26 are left. The other 126 need
    // five slots more, one more than on a free channel.
    assert_eq!(ready.0 - 3_000_000, 30_490 + 30_013 + 256 * 152 + 4_000);
    assert_eq!(end.0, ready.0 + 128 * 36);
    // A microsecond later it would begin in the slot after that.
    let begin = host.fetch(Nanos(3_501_000), HostOp::Read, 32768);
    let ready = a.read(begin, page(2, 0), 32768);
    assert_eq!(host.deliver_each(a.pieces(), 32768, 16384).0 - 3_501_000, 30_490 + 30_013 + 256 * 152 + 128 * 36);
    assert_eq!(ready.0 - 3_501_000, 30_490 + 30_013 + 256 * 152);
    assert_eq!(a.erase(Nanos(4_000_000), 3, 0), Nanos(4_000_000), "no erase time in the code");
    assert_eq!(drive(Preset::Nvmevirt970Pro, false).0.erase(Nanos(0), 3, 0), Nanos(3_000_000));
}

#[test]
fn nvmevirt_970_pro_ceilings() {
    // Random 4 KiB reads: 16 LUNs / (35.76 + 4.864 us) = 394 k a second. Two LUNs share a channel: one lags by two slots of 4 us.
    let (mut a, _, _) = drive(Preset::Nvmevirt970Pro, false);
    let rounds = 4_000;
    let end = (0..2 * rounds * 16).map(|i| a.read(Nanos(0), page(i % 16, i / 16 % 2), UNIT4K)).max().unwrap();
    let steady = u64::from(rounds) * (29_760 + 41_760 + 2 * 4_864);
    assert!(end.0 >= steady && end.0 <= steady + 8_000, "{end} against {steady}");
    let rate = f64::from(2 * rounds * 16) / end.as_secs_f64();
    assert!((rate / 394e3 - 1.0).abs() < 1e-3, "{rate}");
    // Sustained writes: 16 * 32 KiB / (185 + 38.9 us) = 2.34 GB/s.
    let (mut a, _, _) = drive(Preset::Nvmevirt970Pro, false);
    let rounds = 1_700;
    let end = (0..16 * rounds).map(|i| a.program(Nanos(0), page(i % 16, 0), 32768).done).max().unwrap();
    // The other LUN's credits come first once; from then on they keep out of each other's way.
    let steady = u64::from(rounds) * (185_000 + 38_912);
    assert!(end.0 >= steady && end.0 <= steady + 40_000, "{end} against {steady}");
    let rate = f64::from(16 * rounds) * 32768.0 / end.as_secs_f64();
    assert!((rate / 2.34e9 - 1.0).abs() < 2e-3, "{rate}");
}

#[test]
fn nvmevirt_zoned_idle_vectors() {
    let (mut a, mut host, _) = drive(Preset::NvmevirtZn540, true);
    assert_eq!(host_read(&mut a, &mut host, Nanos(0), page(0, 0), UNIT4K), Nanos(79_952));
    let write = host.fetch(Nanos(1_000_000), HostOp::Write, UNIT4K);
    assert_eq!(write, Nanos(1_000_000 + 5_600 + 600 + 32 * 40));
    // The ZNS prototype, ssd_config.h:111-176: the same model with other numbers.
    let parts = Preset::NvmevirtZn540.parts(true);
    let timing = FlashTiming {
        read: uniform(40_950),
        read_small: Some(uniform(25_485)),
        program: uniform(1_913_640),
        sense_bytes: 65536,
        burst_bytes: 65536,
        channel: Wire::mib_units(800, 413 * 128 / 4096),
        ..parts.timing
    };
    let firmware = Firmware { read_small: Nanos(32_150), read: Nanos(32_150), ..parts.host.firmware };
    let link = HostTiming { firmware, ..HostTiming::link(Wire::mib_units(3200, 0)) };
    let shape =
        Geometry { ways: 16, page_bytes: 196_608, spare_bytes: 6_144, pages: 43, ..parts.geometry }.shape().unwrap();
    let (mut a, mut host) = (Array::new(&shape, &timing, &parts.variability), Host::new(&link));
    assert_eq!(host_read(&mut a, &mut host, Nanos(0), page(0, 0), UNIT4K), Nanos(64_099));
    // More than a sense holds takes as many senses.
    assert_eq!(a.read_time(page(0, 0), 196_608), Nanos(3 * 40_950));
}

#[test]
fn mqsim_commands_and_transfers() {
    let (mut a, mut host, shape) = drive(Preset::MqsimDefault, true);
    assert_eq!(shape.bytes().0, 512 << 30);
    // Read command 290 ns, array 75 us + 20 ns, 8 KiB in 24,576 ns.
    assert_eq!(a.read(Nanos(0), page(0, 0), 8192), Nanos(290 + 75_020 + 24_576));
    // Two planes: 650 ns more of command, one array time, both pages one after the other.
    assert_eq!(a.read_planes(Nanos(0), page(2, 0), 2, 8192), Nanos(290 + 650 + 75_020 + 2 * 24_576));
    assert_eq!(a.program(Nanos(0), page(4, 0), 8192).done, Nanos(361 + 24_576 + 750_000));
    let both = a.program_planes(Nanos(0), page(6, 0), 2, 8192);
    assert_eq!(
        both,
        Programmed { loaded: Nanos(361 + 816 + 2 * 24_576), done: Nanos(361 + 816 + 2 * 24_576 + 750_000) }
    );
    assert_eq!(a.erase(Nanos(0), 8, 0), Nanos(220 + 3_800_000));
    // The second plane of a die waits for the first.
    assert_eq!(a.erase(Nanos(0), 9, 0), Nanos(2 * (220 + 3_800_000)));
    // 4 KiB for the host: four lanes of 0.4 GB/s; with 1 GB/s (ssdconfig.xml) 1,248 ns.
    assert_eq!(host.deliver(Nanos(0), UNIT4K), Nanos(3_120));
    let one = HostTiming::link(Wire::bytes_per_second(1_000_000_000).packets(Packet::pcie(4)));
    assert_eq!(Host::new(&one).deliver(Nanos(0), UNIT4K), Nanos(1_248));
    // A 4 KiB read end to end, and as the bus really is: 300 MT/s, not 333.
    let end = host_read(&mut a, &mut host, Nanos(1_000_000), page(12, 0), UNIT4K);
    assert_eq!(end.0 - 1_000_000, 290 + 75_020 + 12_288 + 3_120);
    let (mut a, _, _) = drive(Preset::MqsimDefault, false);
    assert_eq!(a.read(Nanos(0), page(0, 0), 8192), Nanos(290 + 75_020 + 27_306));
    // A buffered write: 26 ns + 640 ns of DRAM.
    let (_, mut host, _) = drive(Preset::MqsimDefault, false);
    assert_eq!(host.fetch(Nanos(0), HostOp::Write, UNIT4K), Nanos(666 + 3_120));
}

#[test]
fn presets_are_valid_and_named() {
    for preset in Preset::ALL {
        assert_eq!(preset.name().parse::<Preset>().as_ref(), Ok(preset));
        for quirks in [false, true] {
            let parts = preset.parts(quirks);
            let shape = parts.geometry.shape().unwrap();
            parts.timing.validate().unwrap();
            parts.variability.validate().unwrap();
            assert!(parts.capacity.0 < parts.capacity.1, "{preset} has no over-provisioning");
            let mut a = Array::new(&shape, &parts.timing, &parts.variability);
            let last = PageAddress { plane: shape.planes() - 1, block: 0, page: shape.pages_per_block() - 1 };
            assert!(a.read(Nanos(0), last, shape.page_bytes()) > Nanos(0));
            a.check();
        }
    }
}
