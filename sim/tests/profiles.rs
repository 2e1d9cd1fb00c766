//! The drives' profiles where they have no data sheet, and the sizes that they are given. Their figures are held to the data
//! sheets by `weir reproduce datasheets` and its test.

use weir_config::profile::resized;
use weir_config::{DeviceConfig, Profile};
use weir_flash::{Flash, FlashDriveConfig, FlashOp, PageAddress, Precondition};
use weir_sim::reproduce::flash_loop;
use weir_units::Nanos;
use weir_workload::Xoshiro256;

const WRITE: FlashOp = FlashOp::Write { fua: false };

fn whole(drive: &str) -> FlashDriveConfig {
    let profile = Profile::named(drive).unwrap_or_else(|| panic!("no profile {drive}"));
    profile.config(false).unwrap_or_else(|e| panic!("{e}"))
}

/// Requests a second of 4 KiB anywhere.
fn random(config: &FlashDriveConfig, state: Precondition, op: FlashOp, depth: u32, counts: (u64, u64)) -> f64 {
    let mut flash = Flash::new(config, Nanos(0)).unwrap();
    flash.precondition(state);
    let (units, mut rng) = (u64::from(flash.units()), Xoshiro256::new(1));
    flash_loop(&mut flash, Nanos(0), (depth, Nanos(0)), counts, || (op, rng.below(units) as u32, 1)).iops()
}

#[test]
fn oc_westlake_has_the_paper_s_times_and_pages() {
    let config = whole("oc-westlake");
    let flash = Flash::new(&config, Nanos(0)).unwrap();
    let at = |page| PageAddress { plane: 0, block: 0, page };
    let (read, program) =
        (|page| flash.array().read_time(at(page), 16384), |page| flash.array().program_time(at(page)));
    // "48/64us for lower/upper-page read and 900/2400us for lower/upper-page write".
    assert_eq!([read(0), read(6)], [48, 64].map(Nanos::from_micros));
    assert_eq!([program(0), program(6)], [900, 2400].map(Nanos::from_micros));
    let letters: String = (0..14).map(|page| if read(page) == read(0) { 'L' } else { 'u' }).collect();
    assert_eq!(letters, "LLLLLLuLLuLLuu");
    let transfer = flash.array().transfer_time(4096);
    let alone = random(&resized(&config, 64, 512), Precondition::Sequential, FlashOp::Read, 1, (100, 4_000));
    let ours = 1e9 / alone;
    // Reads of lower and upper pages, half of each.
    let paper = 56_000.0 + transfer.0 as f64;
    assert!((ours / paper - 1.0).abs() < 0.1, "{ours} where the paper's times make {paper}");
}

#[test]
fn a_smaller_drive_writes_as_fast_as_a_larger_one() {
    let config = whole("960pro");
    let writes = |blocks, pages| {
        let config = resized(&config, blocks, pages);
        let some = u64::from(Flash::new(&config, Nanos(0)).unwrap().units()) / 8;
        random(&config, Precondition::Steady, WRITE, 128, (some, some)) / 1e3
    };
    let (small, twice, larger) = (writes(256, 16), writes(512, 16), writes(256, 64));
    for other in [twice, larger] {
        assert!((small / other - 1.0).abs() < 0.06, "{small:.1} against {other:.1} thousand a second");
    }
}

#[test]
fn every_profile_makes_small_and_large_drives() {
    for profile in Profile::all() {
        for capacity in ["2GiB", "16GiB"] {
            let device = DeviceConfig::from_query(&profile.to_string(), &format!("capacity={capacity}"));
            let config = device.unwrap_or_else(|e| panic!("{profile}, {capacity}: {e}")).flash.unwrap().config;
            assert_eq!(config.ftl.capacity.unwrap().to_string(), capacity, "{profile}");
            config.validate().unwrap_or_else(|e| panic!("{profile}, {capacity}: {e}"));
        }
    }
}

#[test]
fn the_guide_has_every_profile() {
    let guide = include_str!("../../docs/reference/profiles.md");
    for profile in Profile::all() {
        assert!(guide.contains(&format!("`{profile}`")), "{profile}");
        let about = profile.about().unwrap();
        assert!(!about.drive.is_empty() && !about.source.is_empty() && about.capacity.0 > 0, "{profile}: {about:?}");
    }
}

#[test]
fn every_number_of_a_drive_s_file_has_its_source() {
    for drive in Profile::DRIVES {
        for line in Profile::named(drive).unwrap().text().unwrap().lines().filter(|l| l.contains(" = ")) {
            let named = line.starts_with("drive") || line.starts_with("source");
            assert!(named || line.contains(" # "), "{drive}: {line}");
        }
    }
}
