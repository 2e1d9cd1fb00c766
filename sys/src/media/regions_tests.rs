use super::regions::RegionsHeader;
use super::*;
use crate::arena::Arena;
use crate::arena::tests::documented;
use std::mem::offset_of;
use std::path::PathBuf;
use weir_flash::{REGION_KEYS, RegionKeys, ZoneConfig, Zones};
use zerocopy::IntoBytes;

const ZONES: ZoneConfig = ZoneConfig {
    zones: 5,
    size: 64,
    capacity: 48,
    max_open: 0,
    max_active: 0,
    zrwa: None,
    read_across: false,
    extension: 1,
};

fn keys() -> RegionKeys {
    let mut keys = [0; REGION_KEYS.len()];
    keys[..6].copy_from_slice(&[0, 4096, 5 * 64 * 4096, 64 * 4096, 48 * 4096, 64]);
    keys
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("weir-regions-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn zones_go_on_where_they_were() {
    let dir = folder("again");
    let path = dir.join("zns.flash");
    let open = || {
        let mut zones = Zones::new(ZONES).unwrap();
        let (state, image, found) = FlashState::open_regions(&path, keys(), &zones.image_size()).unwrap();
        zones.adopt_image(image).unwrap();
        zones.check();
        (zones, state, found)
    };
    let (mut zones, state, found) = open();
    assert_eq!((found, state.starts()), (ImageCondition::New, 1));
    let busy = FlashState::open_regions(&path, keys(), &zones.image_size()).unwrap_err().to_string();
    assert!(busy.contains("in use by another process"), "{busy}");
    zones.write(0, 48).unwrap();
    zones.landed(0, 48, false);
    zones.write(64, 7).unwrap();
    zones.landed(1, 7, false);
    // Not over when the process dies.
    zones.write(71, 5).unwrap();
    zones.set_extension(2).unwrap();
    zones.put_extension(2, &[7; 64]);
    drop((zones, state));
    let (zones, state, found) = open();
    assert_eq!((found, state.starts(), state.unsafe_shutdowns()), (ImageCondition::Crashed, 2, 1));
    let wps: Vec<u32> = zones.iter().map(|z| z.wp).collect();
    assert_eq!((wps, zones.extension(2), zones.in_use().1), (vec![48, 7, 0, 0, 0], &[7; 64][..], 2));
    state.close().unwrap();
    let (_, state, found) = open();
    assert_eq!((found, state.starts(), state.unsafe_shutdowns()), (ImageCondition::Clean, 3, 1));
    drop(state);

    // Another drive's, and that of another kind of drive.
    let mut other = keys();
    other[4] = 32 * 4096;
    let e = FlashState::open_regions(&path, other, &Zones::new(ZONES).unwrap().image_size()).unwrap_err().to_string();
    assert!(e.contains("with zone_capacity = 196608, the configuration says 131072: change zone_capacity"), "{e}");
    let mapped = weir_flash::FlashDriveConfig::preset(weir_flash::Preset::FemuBbssd, false);
    let e = FlashState::open(&path, &mapped).unwrap_err().to_string();
    assert!(e.contains("region-state"), "{e}");
    std::fs::remove_dir_all(dir).unwrap();
}

/// The process of a drive in memory dies; who holds the descriptor hands it to the next one.
#[test]
fn zones_in_memory_go_on_where_they_were() {
    let size = Zones::new(ZONES).unwrap().image_size();
    let on = |image| {
        let mut zones = Zones::new(ZONES).unwrap();
        zones.adopt_image(image).unwrap();
        zones.check();
        zones
    };
    let (state, image, found) = FlashState::regions_in_memory("zns0", keys(), &size).unwrap();
    assert_eq!((found, state.starts()), (ImageCondition::New, 1));
    let held = state.file().try_clone().unwrap();
    let open = || Arena::open(held.try_clone().unwrap(), crate::media::REGIONS_SCHEMA);
    let mut zones = on(image);
    zones.write(0, 48).unwrap();
    zones.landed(0, 48, false);
    zones.write(64, 7).unwrap();
    zones.landed(1, 7, false);
    // Not over when the process dies.
    zones.write(71, 5).unwrap();
    drop((zones, state));
    let mut other = keys();
    other[4] = 32 * 4096;
    let e = FlashState::adopt_regions("zns0", open(), other, &size).unwrap_err().to_string();
    assert!(e.contains("zone_capacity = 196608, the configuration says 131072"), "{e}");
    let (state, image, found) = FlashState::adopt_regions("zns0", open(), keys(), &size).unwrap();
    assert_eq!((found, state.starts(), state.unsafe_shutdowns()), (ImageCondition::Crashed, 2, 1));
    assert_eq!(on(image).iter().map(|z| z.wp).collect::<Vec<_>>(), [48, 7, 0, 0, 0]);
    state.close().unwrap();
    let (_, _, found) = FlashState::adopt_regions("zns0", open(), keys(), &size).unwrap();
    assert_eq!(found, ImageCondition::Clean);
}

#[test]
fn data_without_its_state_is_refused() {
    let dir = folder("lone");
    let media = dir.join("zns");
    std::fs::File::create(&media).unwrap().set_len(1 << 20).unwrap();
    FlashState::check_blank(&media).unwrap();
    std::fs::write(&media, vec![1; 8192]).unwrap();
    let e = FlashState::check_blank(&media).unwrap_err().to_string();
    assert!(e.contains("holds data, but") && e.contains("zns.flash, which says"), "{e}");
    std::fs::write(dir.join("zns.flash"), "").unwrap();
    FlashState::check_blank(&media).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn docs_draw_the_layout() {
    macro_rules! fields {
        ($($name:ident),*) => { [$((offset_of!(RegionsHeader, $name), stringify!($name).to_owned())),*] };
    }
    let ours = fields!(keys, in_use, starts, unsafe_shutdowns, words_at, wear_at, extensions_at);
    let ends = ours.iter().skip(1).map(|f| f.0).chain([size_of::<RegionsHeader>()]);
    let ours: Vec<_> = ours.iter().zip(ends).map(|((at, name), end)| (*at, end - at, name.clone())).collect();
    assert_eq!(documented("State of zones and chunks"), ours);
}

/// A state of version 1, byte by byte: a later program must read it.
#[test]
fn golden_state() {
    let dir = folder("golden");
    let path = dir.join("zns.flash");
    let mut zones = Zones::new(ZONES).unwrap();
    let (state, image, _) = FlashState::open_regions(&path, keys(), &zones.image_size()).unwrap();
    zones.adopt_image(image).unwrap();
    zones.write(64, 7).unwrap();
    zones.landed(1, 7, false);
    zones.set_extension(3).unwrap();
    zones.put_extension(3, &[9; 64]);
    zones.manage(weir_flash::ZoneAction::Finish, weir_flash::Selection::One(4), |_, _| {}).unwrap();
    zones.degrade(0, true).unwrap();
    state.close().unwrap();
    let file = std::fs::read(&path).unwrap();
    let payload = &file[4096..];
    assert_eq!(&file[16..36], b"region-state\0\0\0\0\x01\0\0\0");
    let golden: [u64; 22] =
        [0, 4096, 1_310_720, 262_144, 196_608, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 4096, 8192, 8192];
    assert_eq!(&payload[..176], golden.as_bytes());
    // Offline; implicitly opened with 7 blocks; empty, never touched or normalised; closed with an extension; finished.
    let words: [u64; 5] = [0x0f << 32, 0x02 << 32 | 7, 0x01 << 32, 0x0204 << 32, 0x040e << 32];
    assert_eq!(&payload[4096..4136], words.as_bytes());
    assert_eq!(&payload[8192 + 3 * 64..8192 + 4 * 64], &[9; 64]);
    assert!(payload.len() >= 8192 + 5 * 64 && payload[8192 + 5 * 64..].iter().all(|b| *b == 0));
    std::fs::remove_dir_all(dir).unwrap();
}
