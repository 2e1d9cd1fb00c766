use super::flash::ImageHeader;
use super::*;
use crate::arena::Arena;
use crate::arena::tests::{again_in_namespace, documented, inside_namespace};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use weir_flash::{FlashDriveConfig, FlashOp, Preset};
use weir_units::{Bytes, Nanos};
use zerocopy::IntoBytes;

fn config() -> FlashDriveConfig {
    let mut config = FlashDriveConfig::preset(Preset::FemuBbssd, false);
    config.geometry.channels = 2;
    config.geometry.blocks = 12;
    config.ftl.capacity = Some(Bytes(64 << 20));
    config
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("weir-flash-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn names(dir: &Path) -> Vec<String> {
    let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    std::fs::read_dir(dir).unwrap().map(name).collect()
}

#[test]
fn a_drive_goes_on_where_it_was() {
    let dir = folder("again");
    let path = dir.join("ssd.flash");
    let config = config();
    let (state, image, found) = FlashState::open(&path, &config).unwrap();
    assert_eq!((found, state.starts(), names(&dir)), (ImageCondition::New, 1, vec!["ssd.flash".to_owned()]));
    let mut flash = weir_flash::Flash::create(&config, Nanos(0), image).unwrap();
    let busy = FlashState::open(&path, &config).unwrap_err().to_string();
    assert!(busy.contains("ssd.flash: memory region is in use by another process"), "{busy}");
    for i in 0..60_000u32 {
        flash.submit(Nanos(u64::from(i) * 1000), FlashOp::Write { fua: false }, i * 7919 % flash.units(), 1);
    }
    let wear = flash.wear();
    assert!(wear.max > 0, "{wear:?}");
    drop((flash, state));
    let (state, image, found) = FlashState::open(&path, &config).unwrap();
    assert_eq!((found, state.starts(), state.unsafe_shutdowns()), (ImageCondition::Crashed, 2, 1));
    let (flash, pages) = weir_flash::Flash::recover(&config, Nanos(0), image).unwrap();
    flash.check();
    assert!(pages >= 16_384 && (0..16_384).all(|i| flash.is_mapped(i)));
    assert_eq!(flash.wear(), wear);
    drop(flash);
    state.close().unwrap();
    let (state, _, found) = FlashState::open(&path, &config).unwrap();
    assert_eq!((found, state.starts(), state.unsafe_shutdowns()), (ImageCondition::Clean, 3, 1));
    std::fs::remove_dir_all(dir).unwrap();
}

/// The process of a drive in memory dies in the middle of its work; who holds the descriptor hands it to the next one.
#[test]
fn a_state_in_memory_goes_on_where_it_was() {
    let config = config();
    let (state, image, found) = FlashState::in_memory("ssd0", &config).unwrap();
    assert_eq!((found, state.starts()), (ImageCondition::New, 1));
    let held = state.file().try_clone().unwrap();
    let mut flash = weir_flash::Flash::create(&config, Nanos(0), image).unwrap();
    for i in 0..60_000u32 {
        flash.submit(Nanos(u64::from(i) * 1000), FlashOp::Write { fua: false }, i * 7919 % flash.units(), 1);
    }
    let wear = flash.wear();
    assert!(wear.max > 0, "collection is at work: {wear:?}");
    // Not stopped: as a process leaves it that is killed here.
    drop((flash, state));
    let mut other = config;
    other.geometry.blocks = 13;
    let e = FlashState::adopt("ssd0", Arena::open(held.try_clone().unwrap(), crate::media::FLASH_SCHEMA), &other)
        .unwrap_err()
        .to_string();
    assert!(e.contains("blocks = 12, the configuration says 13"), "{e}");
    let (state, image, found) =
        FlashState::adopt("ssd0", Arena::open(held, crate::media::FLASH_SCHEMA), &config).unwrap();
    assert_eq!((found, state.starts(), state.unsafe_shutdowns()), (ImageCondition::Crashed, 2, 1));
    let (flash, _) = weir_flash::Flash::recover(&config, Nanos(0), image).unwrap();
    flash.check();
    assert!((0..16_384).all(|i| flash.is_mapped(i)), "nothing is lost");
    assert_eq!(flash.wear(), wear);
}

#[test]
fn what_does_not_fit_is_refused_and_left_alone() {
    let dir = folder("refused");
    let path = dir.join("ssd.flash");
    let (state, ..) = FlashState::open(&path, &config()).unwrap();
    state.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let refused = |config: &FlashDriveConfig| FlashState::open(&path, config).unwrap_err().to_string();
    let mut other = config();
    other.geometry.blocks = 13;
    let e = refused(&other);
    assert!(e.contains("with blocks = 12, the configuration says 13: change blocks, or remove the file"), "{e}");
    other = config();
    other.ftl.capacity = Some(Bytes(65 << 20));
    assert!(refused(&other).contains("capacity = 67108864, the configuration says 68157440"), "{}", refused(&other));
    // Times may change.
    other = config();
    other.timing.erase = Nanos(1);
    drop(FlashState::open(&path, &other).unwrap());

    std::fs::write(&path, &whole[..whole.len() - 4096]).unwrap();
    assert!(refused(&config()).contains("it was cut or extended"), "{}", refused(&config()));
    let mut newer = whole.clone();
    newer[32] = 9;
    std::fs::write(&path, &newer).unwrap();
    assert!(refused(&config()).contains("wrong checksum"), "{}", refused(&config()));
    std::fs::write(&path, vec![7; whole.len()]).unwrap();
    assert!(refused(&config()).contains("not a Weir memory region"), "{}", refused(&config()));
    assert!(refused(&config()).contains("remove the file to begin with an empty map"), "{}", refused(&config()));
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; whole.len()]);
    assert_eq!(names(&dir), ["ssd.flash"]);

    let e = FlashState::check_pair(&dir.join("ssd")).unwrap_err().to_string();
    assert!(e.contains("ssd is missing or empty"), "{e}");
    std::fs::write(dir.join("ssd"), "x").unwrap();
    FlashState::check_pair(&dir.join("ssd")).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_full_disk_leaves_nothing() {
    let Some(dir) = inside_namespace("256k") else {
        return again_in_namespace("media::flash_tests::a_full_disk_leaves_nothing");
    };
    let e = FlashState::open(&dir.join("ssd.flash"), &config()).unwrap_err().to_string();
    assert!(e.contains("no memory left") || e.contains("No space left"), "{e}");
    assert!(names(&dir).is_empty(), "{:?}", names(&dir));
}

#[test]
fn docs_draw_the_layout() {
    macro_rules! fields {
        ($($name:ident),*) => { [$((offset_of!(ImageHeader, $name), stringify!($name).to_owned())),*] };
    }
    let ours = fields!(
        keys,
        in_use,
        starts,
        unsafe_shutdowns,
        p2l_at,
        sequence_at,
        trimmed_at,
        erases_at,
        erased_at_at,
        state_at
    );
    let ends = ours.iter().skip(1).map(|f| f.0).chain([size_of::<ImageHeader>()]);
    let ours: Vec<_> = ours.iter().zip(ends).map(|((at, name), end)| (*at, end - at, name.clone())).collect();
    assert_eq!(documented("State of a flash drive"), ours);
}

/// A state of version 1, byte by byte: a later program must read it.
#[test]
fn golden_state() {
    let dir = folder("golden");
    let path = dir.join("ssd.flash");
    let config = config();
    let (state, image, _) = FlashState::open(&path, &config).unwrap();
    let mut flash = weir_flash::Flash::create(&config, Nanos(0), image).unwrap();
    flash.submit(Nanos(0), FlashOp::Write { fua: false }, 5, 1);
    flash.submit(Nanos(0), FlashOp::Trim, 5, 1);
    state.close().unwrap();
    let file = std::fs::read(&path).unwrap();
    let payload = &file[4096..];
    // 2 x 8 planes of 12 blocks of 256 pages of 4 KiB.
    let (units, logical, blocks) = (49_152u64, 16_384u64, 192u64);
    let ats = [4096, 4096 + 4 * units, 4096 + 12 * units, 4096 + 12 * units + 8 * logical];
    let [p2l, sequence, trimmed, erases] = ats;
    let golden: [u64; 22] = [
        2,
        8,
        1,
        12,
        256,
        4096,
        64 << 20,
        0,
        1,
        0,
        0,
        0,
        1,
        0,
        1,
        0,
        p2l,
        sequence,
        trimmed,
        erases,
        erases + 4096,
        erases + 8192,
    ];
    assert_eq!(&payload[..176], golden.as_bytes());
    assert_eq!(file.len() as u64, 4096 + erases + 8192 + 4096);
    // The last block of the first plane is opened first.
    let first = 11 * 256;
    let word = |at: u64| u32::from_le_bytes(payload[at as usize..][..4].try_into().unwrap());
    assert_eq!([word(p2l + 4 * first), word(p2l + 4 * first + 4)], [5, logical as u32]);
    assert_eq!([word(sequence + 8 * first), word(sequence + 8 * first + 8)], [1, 0]);
    assert_eq!([word(trimmed + 4 * 10), word(trimmed + 4 * 12), word(erases)], [2, 0, 0]);
    let state = erases + 8192;
    assert_eq!([word(state), word(state + 4 * 11), word(state + 4 * (blocks - 1))], [0, 1, 0]);
    std::fs::remove_dir_all(dir).unwrap();
}
