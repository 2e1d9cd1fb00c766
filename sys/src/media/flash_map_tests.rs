use super::flash_map::MapHeader;
use super::*;
use crate::arena::tests::documented;
use crate::arena::{Arena, ArenaError};
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use weir_flash::{BufferConfig, Flash, FlashDriveConfig, FlashOp, Flush, Preset};
use weir_units::{Bytes, Nanos};
use zerocopy::IntoBytes;

fn config() -> FlashDriveConfig {
    let mut config = FlashDriveConfig::preset(Preset::FemuBbssd, false);
    config.geometry.channels = 2;
    config.geometry.blocks = 12;
    config.ftl.capacity = Some(Bytes(64 << 20));
    config.buffer = BufferConfig { size: Bytes(64 << 10), flush: Flush::Watermark, ..BufferConfig::NONE };
    config
}

/// What of a drive outlives its processes, as a keeper holds it.
struct Held {
    state: OwnedFd,
    map: OwnedFd,
}

type Left = Option<Result<Arena, ArenaError>>;

impl Held {
    fn state(&self) -> Result<Arena, ArenaError> {
        Arena::open(self.state.try_clone().unwrap(), FLASH_SCHEMA)
    }

    fn map(&self) -> Left {
        Some(Arena::open(self.map.try_clone().unwrap(), FLASH_MAP_SCHEMA))
    }

    /// A process goes on from the state, and from that map; whether it made another one, and the pages that it read for it.
    fn goes_on(&self, left: Left) -> (Flash, FlashState, Option<OwnedFd>, Option<u64>) {
        let (mut state, mut image, _) = FlashState::adopt("ssd0", self.state(), &config()).unwrap();
        let made = state.lend_map(&mut image, left, &config()).unwrap();
        let (flash, pages) = Flash::resume(&config(), Nanos(0), image).unwrap();
        flash.check();
        (flash, state, made, pages)
    }
}

fn write(flash: &mut Flash, times: u32) {
    for i in 0..times {
        flash.submit(Nanos(u64::from(i) * 1000), FlashOp::Write { fua: false }, i * 7919 % flash.units(), 1);
    }
    // What waits in the buffer is in the map as well, and goes with the process.
    flash.submit(Nanos(u64::from(times) * 1000), FlashOp::Flush, 0, 0);
}

fn new() -> (Flash, FlashState, Held) {
    let (mut state, mut image, _) = FlashState::in_memory("ssd0", &config()).unwrap();
    let map = state.lend_map(&mut image, None, &config()).unwrap().unwrap();
    let flash = Flash::create(&config(), Nanos(0), image).unwrap();
    let held = Held { state: state.file().try_clone().unwrap(), map };
    (flash, state, held)
}

/// Processes of one drive die one after the other, in the middle of their work. In one test: to distrust maps is of the whole process.
#[test]
fn a_map_is_gone_on_from_where_it_belongs_to_the_state() {
    let (mut flash, state, held) = new();
    write(&mut flash, 60_000);
    let before = flash.page_map().to_vec();
    drop((flash, state));
    let (mut flash, mut state, made, pages) = held.goes_on(held.map());
    assert!(made.is_none() && pages.is_none() && flash.page_map() == before);

    // Its power is cut, which counts as a start.
    flash.power_cut(Nanos(0), 1).unwrap();
    state.note_power_cut();
    write(&mut flash, 1000);
    let before = flash.page_map().to_vec();
    drop((flash, state));
    let (flash, state, _, pages) = held.goes_on(held.map());
    assert!(pages.is_none() && flash.page_map() == before);
    drop((flash, state));

    // A program that knows no map uses the state. Then there is another one, and what the first says counts for nothing.
    let (state, image, _) = FlashState::adopt("ssd0", held.state(), &config()).unwrap();
    let (mut flash, _) = Flash::recover(&config(), Nanos(0), image).unwrap();
    write(&mut flash, 1000);
    let before = flash.page_map().to_vec();
    drop((flash, state));
    let (flash, state, _, pages) = held.goes_on(held.map());
    assert!(pages.is_some_and(|pages| pages >= 16_384), "{pages:?}");
    assert!(flash.page_map() == before);
    drop((flash, state));
    let (flash, state, _, pages) = held.goes_on(held.map());
    assert_eq!(pages, None);
    drop((flash, state));

    // None, one that cannot be read, and one of another drive: each time a new one is made.
    let foreign = {
        let mut other = config();
        other.geometry.blocks = 13;
        let (mut state, mut image, _) = FlashState::in_memory("ssd1", &other).unwrap();
        let map = state.lend_map(&mut image, None, &other).unwrap().unwrap();
        Some(Arena::open(map, FLASH_MAP_SCHEMA))
    };
    for left in [None, Some(Err(ArenaError::Damaged)), foreign] {
        let (flash, state, made, pages) = held.goes_on(left);
        assert!(made.is_some() && pages.is_some());
        assert!(flash.page_map() == before);
        drop((flash, state));
    }

    // A thread of its process finds what cannot be.
    let (_, _, made, _) = held.goes_on(None);
    let held = Held { map: made.unwrap(), ..held };
    let (flash, state, _, pages) = held.goes_on(held.map());
    assert_eq!(pages, None);
    drop((flash, state));
    distrust_maps();
    let (flash, _, _, pages) = held.goes_on(held.map());
    assert!(pages.is_some(), "what a failed worker leaves is not believed");
    assert!(flash.page_map() == before);
}

#[test]
fn docs_draw_the_layout() {
    macro_rules! fields {
        ($($name:ident),*) => { [$((offset_of!(MapHeader, $name), stringify!($name).to_owned())),*] };
    }
    let ours =
        fields!(keys, slots, state, start, undo_at, waiting_at, behind_at, valid_at, written_at, stamp_at, l2p_at);
    let ends = ours.iter().skip(1).map(|f| f.0).chain([size_of::<MapHeader>()]);
    let ours: Vec<_> = ours.iter().zip(ends).map(|((at, name), end)| (*at, end - at, name.clone())).collect();
    assert_eq!(documented("Map of a flash drive"), ours);
}

/// A map of version 1, byte by byte: a later program must read it, or raise the version and find it again.
#[test]
fn golden_map() {
    let (mut flash, state, held) = new();
    flash.submit(Nanos(0), FlashOp::Write { fua: true }, 5, 1);
    flash.submit(Nanos(0), FlashOp::Write { fua: false }, 6, 1);
    flash.submit(Nanos(0), FlashOp::Trim, 6, 1);
    flash.submit(Nanos(0), FlashOp::Write { fua: false }, 7, 1);
    let identity = held.state().unwrap().identity();
    drop((flash, state));
    let arena = held.map().unwrap().unwrap();
    let payload = arena.payload();
    let size = weir_flash::MappedSize::of(&config()).unwrap();
    // 2 x 8 planes of 12 blocks, pages of one unit.
    assert_eq!((size.words, size.blocks, size.undo), (16_385, 192, 18));
    let golden: [u64; 24] = [
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
        size.slots,
        identity,
        1,
        4096,
        8192,
        12_288,
        16_384,
        20_480,
        24_576,
        28_672,
        28_672 + 4 * 16_385,
    ];
    assert_eq!(&payload[..184], golden[..23].as_bytes());
    assert_eq!(payload.len() as u64, golden[23].next_multiple_of(4096));
    let bytes = |at: u64, len: usize| &payload[at as usize..][..len];
    let word = |at: u64| u32::from_le_bytes(bytes(at, 4).try_into().unwrap());
    let half = |at: u64| u16::from_le_bytes(bytes(at, 2).try_into().unwrap());
    // Whole, and no step is under way.
    assert_eq!(bytes(4096, 32), [1u64, 0, 0, 0].as_bytes());
    // Unit 5 in the last block of the first plane, which is being written; unit 6 is trimmed, others were never written.
    assert_eq!([word(28_672 + 4 * 5), word(28_672 + 4 * 6), word(28_672)], [11 * 256, u32::MAX, u32::MAX]);
    assert_eq!([half(16_384 + 2 * 11), half(20_480 + 2 * 11)], [0x8001, 1]);
    assert_eq!(word(28_672 + 4 * 16_384), 0x7fff_ffff);
    // Unit 7 waits in a slot, alone, and the flash has no version before.
    let waiting: Vec<u64> = (0..size.slots).filter(|slot| word(8192 + 4 * slot) != u32::MAX).collect();
    let [slot] = waiting[..] else { panic!("{waiting:?}") };
    assert_eq!([word(8192 + 4 * slot), word(12_288 + 4 * slot)], [7, u32::MAX]);
    assert_eq!(word(28_672 + 4 * 7), 1 << 31 | slot as u32);
}

/// The memory of a drive that was never trimmed is its map and its spare areas.
#[test]
fn trims_take_memory_as_they_come() {
    let (mut flash, state, held) = new();
    let taken = || rustix::fs::fstat(&held.state).unwrap().st_blocks as u64 * 512;
    flash.precondition(weir_flash::Precondition::Steady);
    write(&mut flash, 30_000);
    let size = weir_flash::ImageSize::of(&config()).unwrap();
    let log = size.mapped * 8;
    let all = rustix::fs::fstat(&held.state).unwrap().st_size as u64;
    assert!(taken() + log <= all + 16_384, "{} of {all}, {log} of it trims", taken());
    let before = taken();
    (0..flash.units()).for_each(|unit| _ = flash.submit(Nanos(0), FlashOp::Trim, unit, 1));
    assert!(taken() >= before + log - 8192);
    drop(state);
}
