//! The host's translation layer keeps what it was given, whichever way collection moves data; and what that costs.

use super::*;
use proptest::prelude::*;
use weir_flash::{CellType, Geometry, HostTiming, OperationUnit, PageMap, Preset, Registers, Wire, uniform};
use weir_workload::Xoshiro256;

/// Two channels of two dies; 24 lines of 4 * 64 sectors.
fn small(collection: Collection, gate: OperationUnit, cell: CellType) -> HostFtlConfig {
    let parts = Preset::FemuBbssd.parts(false);
    let mut drive = OpenChannelConfig::of(&parts);
    drive.geometry = Geometry {
        channels: 2,
        ways: 2,
        planes: 2,
        blocks: 24,
        pages: 16,
        page_bytes: 8192,
        spare_bytes: 64,
        cell,
        page_map: PageMap::Modulo,
    };
    drive.timing.gate = gate;
    drive.timing.registers = Registers::Double;
    drive.timing.read = uniform(50_000);
    drive.timing.program = uniform(200_000);
    drive.timing.erase = Nanos(2_000_000);
    drive.timing.channel = Wire::proportional(8192, 20_000);
    drive.host = HostTiming::link(Wire::bytes_per_second(400_000_000));
    drive.factory_bad = 40_000;
    HostFtlConfig { drive, over_provisioning: 1.0, collection, buffer: 192, start: 5, reserve: 2 }
}

fn drain(ftl: &mut HostFtl, answered: &mut Vec<u32>) {
    while let Some((at, tag)) = ftl.next_answer() {
        assert!(at >= Nanos(0));
        answered.push(tag);
    }
}

proptest! {
    #[test]
    fn nothing_is_lost(host: bool, die: bool, mlc: bool, seed: u64, hot in 1u32..100,
            steps in proptest::collection::vec((0u8..20, any::<u32>(), 1u32..17), 1..300)) {
        let collection = if host { Collection::HostCopy } else { Collection::MovePage };
        let mut config = small(collection, if die { OperationUnit::Die } else { OperationUnit::Plane }, if mlc { CellType::Mlc } else { CellType::Slc });
        config.drive.seed = seed;
        let mut ftl = HostFtl::new(config).unwrap();
        let mut newest = vec![0u64; ftl.sectors() as usize];
        let (mut asked, mut answered) = (0u32, Vec::new());
        let mut waiting: Vec<HostRequest> = Vec::new();
        for (kind, lpn, sectors) in steps {
            let lpn = if lpn % 100 < hot { lpn / 100 % ftl.sectors() } else { lpn / 100 % (ftl.sectors() / 4) };
            match kind {
                0..=13 => {
                    // Enough in one go that lines are used up.
                    for i in 0..8 {
                        let request = HostRequest { write: true, lpn: (lpn + i * sectors) % ftl.sectors(), sectors, tag: asked };
                        asked += 1;
                        waiting.push(request);
                        ftl.submit(request);
                    }
                }
                14..=16 => {
                    ftl.submit(HostRequest { write: false, lpn, sectors, tag: asked });
                    asked += 1;
                }
                17 => { if let Some((_, tag)) = ftl.next_answer() { answered.push(tag); } }
                18 => drain(&mut ftl, &mut answered),
                _ => { drain(&mut ftl, &mut answered); ftl.flush(); }
            }
            ftl.check();
        }
        drain(&mut ftl, &mut answered);
        ftl.flush();
        ftl.check();
        // Everything was answered, once, and writes in their order: stamps were given in that order.
        answered.sort_unstable();
        prop_assert_eq!(answered, (0..asked).collect::<Vec<u32>>());
        let mut stamp = 0;
        for request in &waiting {
            for i in 0..request.sectors {
                stamp += 1;
                newest[((request.lpn + i) % ftl.sectors()) as usize] = stamp;
            }
        }
        prop_assert_eq!(stamp + 1, ftl.next_stamp());
        for (lpn, stamp) in (0..).zip(&newest) {
            prop_assert_eq!(ftl.stamp(lpn), *stamp, "logical sector {}", lpn);
        }
    }
}

/// Overwrites at random until every line was collected several times.
fn worn(collection: Collection, sectors: u32) -> HostFtl {
    let mut ftl = HostFtl::new(small(collection, OperationUnit::Plane, CellType::Slc)).unwrap();
    let mut rng = Xoshiro256::new(9);
    for tag in 0..40_000 / sectors {
        let lpn = rng.below(u64::from(ftl.sectors() / sectors)) as u32 * sectors;
        ftl.submit(HostRequest { write: true, lpn, sectors, tag });
        ftl.next_answer().unwrap();
    }
    ftl.flush();
    ftl.check();
    ftl
}

#[test]
fn a_move_crosses_no_link() {
    for sectors in [1, 4] {
        let (host, moved) = (worn(Collection::HostCopy, sectors), worn(Collection::MovePage, sectors));
        let link = |ftl: &HostFtl| {
            let (to_host, to_drive) = ftl.drive().host().busy_until(Nanos::from_secs(1000));
            let sector = Wire::bytes_per_second(400_000_000).time(4096).0;
            (to_host.0 / sector, to_drive.0 / sector)
        };
        for ftl in [&host, &moved] {
            assert!(ftl.work().resets > 30 && ftl.work().moved > 5_000, "{:?}", ftl.work());
        }
        // What is moved crosses the link twice, or not at all: there only what the foreground wrote and the padding does.
        assert_eq!(link(&host).0, host.work().moved);
        assert!(link(&host).1 >= host.work().written + host.work().moved);
        assert_eq!(link(&moved).0, 0);
        assert!(link(&moved).1 < moved.work().written + 16, "{:?} of {:?}", link(&moved), moved.work());
    }
    // Whole pages are copied back; single sectors of a page are put together by the controller.
    let copied_back = |sectors| worn(Collection::MovePage, sectors).drive().work().copy_backs;
    assert!(copied_back(4) > 4 * copied_back(1).max(1), "{} and {}", copied_back(4), copied_back(1));
}

#[test]
fn numbers_that_do_not_go_together() {
    let good = small(Collection::HostCopy, OperationUnit::Plane, CellType::Slc);
    let bad = |config: HostFtlConfig, says: &str| {
        let error = HostFtl::new(config).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    bad(HostFtlConfig { over_provisioning: 0.4, ..good }, "24 lines and would need 26");
    bad(HostFtlConfig { buffer: 100, ..good }, "100 sectors; 192 to a line");
    let drive = OpenChannelConfig { mw_cunits: Some(1 << 20), ..good.drive };
    bad(HostFtlConfig { drive, ..good }, "less than a chunk");
}

#[test]
fn the_same_every_time() {
    let (a, b) = (worn(Collection::MovePage, 2), worn(Collection::MovePage, 2));
    assert_eq!((a.now(), a.work(), a.drive().work()), (b.now(), b.work(), b.drive().work()));
}
