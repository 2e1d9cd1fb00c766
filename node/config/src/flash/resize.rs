//! A flash drive made smaller: which blocks and pages offer the capacity, with the write amplification that it had.

use weir_flash::{FlashDriveConfig, GcMode, Mapping};
use weir_units::{Bytes, Nanos};

/// Blocks that a plane has at least where a drive is made smaller: over-provisioning and victims are counted in them.
const BLOCKS: u32 = 256;

/// Blocks of a plane that hold no data in the steady state: those kept free, the one that preemptive collection is at, and
/// half of those that are being written.
fn reserve(config: &FlashDriveConfig) -> f64 {
    let under_way = f64::from(u8::from(config.ftl.gc.mode == GcMode::Preemptive));
    f64::from(config.ftl.gc.start) + under_way + f64::from(config.ftl.streams + 1) / 2.0
}

/// Bytes of so many blocks a plane that can hold data.
fn usable(config: &FlashDriveConfig, blocks: u32) -> f64 {
    (f64::from(blocks) - reserve(config)).max(1.0) * row(config) as f64 * f64::from(config.geometry.pages)
}

/// The part of them that does.
fn share(config: &FlashDriveConfig) -> f64 {
    config.ftl.capacity.unwrap_or_default().0 as f64 / usable(config, config.geometry.blocks)
}

/// Bytes of a page of every plane.
fn row(config: &FlashDriveConfig) -> u64 {
    let g = &config.geometry;
    u64::from(g.channels) * u64::from(g.ways) * u64::from(g.planes) * u64::from(g.page_bytes)
}

/// The same drive with so many blocks of so many pages a plane.
///
/// Dies, channels, page size and times stay, so what a request waits for stays. Write amplification depends on which part of
/// the blocks that can hold data does (Desnoyers, "Analytic Models of SSD Write Performance", 2014; a block's size hardly
/// matters): that is kept, and with it the capacity follows. An erase takes so much less as a block is smaller, so that
/// erasing costs the same for each page.
pub fn resized(config: &FlashDriveConfig, blocks: u32, pages: u32) -> FlashDriveConfig {
    let mut small = *config;
    small.geometry.blocks = blocks;
    small.geometry.pages = pages;
    let erase = u128::from(config.timing.erase.0) * u128::from(pages) / u128::from(config.geometry.pages.max(1));
    small.timing.erase = Nanos(erase as u64);
    let offered = share(config) * usable(&small, blocks);
    small.ftl.capacity = Some(Bytes(offered as u64 / 4096 * 4096));
    small
}

/// Blocks of a plane, and pages of a block, that offer a capacity less than the drive's own: of the sizes that leave a plane
/// enough blocks the one that rounds them up least, because the few blocks to spare decide the write amplification.
fn fitted(config: &FlashDriveConfig, capacity: Bytes) -> (u32, u32) {
    let g = &config.geometry;
    let levels = g.cell.levels() as u32;
    // Pages of a plane that can hold data.
    let wanted = capacity.0 as f64 / share(config) / row(config) as f64;
    let most = (wanted / f64::from(BLOCKS)) as u32 / levels * levels;
    let most = most.clamp((2 * levels).min(g.pages), g.pages);
    let least = (most / 2).next_multiple_of(levels).clamp(levels.min(most), most);
    let excess = |pages: u32| {
        let blocks = wanted / f64::from(pages) + reserve(config);
        (blocks as u32 + 1, (f64::from(blocks as u32) + 1.0) / blocks)
    };
    let sizes = (least..=most).step_by(levels as usize);
    let best = sizes.min_by(|a, b| excess(*a).1.total_cmp(&excess(*b).1)).unwrap_or(most);
    (excess(best).0.min(g.blocks.max(4 * BLOCKS)), best)
}

/// The same drive with another capacity.
pub(crate) fn shrink(config: &mut FlashDriveConfig, capacity: Bytes) {
    let own = config.ftl.capacity.unwrap_or_default();
    let g = config.geometry;
    if config.ftl.mapping == Mapping::InPlace || capacity.0 >= own.0 {
        let blocks = u128::from(g.blocks) * u128::from(capacity.0);
        config.geometry.blocks = u32::try_from(blocks.div_ceil(u128::from(own.0.max(1)))).unwrap_or(u32::MAX);
    } else {
        let (blocks, pages) = fitted(config, capacity);
        *config = resized(config, blocks, pages);
    }
    config.ftl.capacity = Some(capacity);
}
