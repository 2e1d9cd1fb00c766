//! What of a drive survives the loss of power: the spare areas of its pages, and a few words for each block.
//!
//! ```text
//!   Image ── p2l, sequence        the spare areas: which unit, and how new
//!         ├─ trimmed              the log of trims, as an array
//!         └─ erases, erased_at, state    a block's wear, age and use
//! ```
//! The arrays are lent by who keeps them (in a file beside the media, for one), all zero at first. The drive changes them
//! word by word in such an order that what is found after any of these stores can be recovered from. What is found may also
//! be damaged: a drive recovers from anything, at the price of what the damage hides.

use crate::config::{FlashDriveConfig, Mapping};
use crate::config_error::ConfigError;
use crate::derived_config::DerivedConfig;
use crate::geometry::UNIT;
use crate::mapped::Mapped;
use alloc::format;
use alloc::sync::Arc;
use core::fmt;

/// A block that is erased and not open; also what was never used.
pub(crate) const FREE: u32 = 0;
/// A block that has failed.
pub(crate) const BAD: u32 = u32::MAX;
/// Sequence numbers from here on are damage: no drive lives that long.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// How long the arrays of an [`Image`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Units of 4 KiB of the flash: [`Image::p2l`].
    pub units: u64,
    /// Pages of the flash: [`Image::sequence`].
    pub pages: u64,
    /// Units that are mapped, those of a map in flash included: [`Image::trimmed`].
    pub mapped: u64,
    /// Blocks of the flash: the other arrays.
    pub blocks: u64,
}

/// What the keys of [`ImageKeys`] are called, as configurations write them.
pub const IMAGE_KEYS: [&str; 13] = [
    "channels",
    "ways",
    "planes",
    "blocks",
    "pages",
    "page_size",
    "capacity",
    "mapping",
    "streams",
    "slc_blocks",
    "page_map",
    "factory_bad",
    "seed",
];

/// The part of a configuration that decides what an image means, in the order of [`IMAGE_KEYS`]: capacity and pages in
/// bytes, the mapping by its place in [`Mapping::ALL`](crate::Mapping::ALL), the host's streams and from bit 8 on the handles
/// whose data collection keeps apart, of the page map the pages on the lowest level
/// where pseudo-SLC blocks use them. Whatever else changes, the image stays readable.
pub type ImageKeys = [u64; IMAGE_KEYS.len()];

impl FlashDriveConfig {
    /// What an image of this drive depends on.
    ///
    /// # Errors
    /// Names the key that does not fit.
    pub fn image_keys(&self) -> Result<ImageKeys, ConfigError> {
        let plan = self.plan()?;
        let (g, ftl) = (plan.shape.geometry(), &self.ftl);
        let mapping = Mapping::ALL.iter().position(|m| *m == ftl.mapping).unwrap_or_default() as u64;
        let (host, kept) = ftl.write_points();
        let low_pages = if ftl.slc.blocks > 0 { plan.slc_units / plan.shape.units_per_page() } else { 0 };
        Ok([
            g.channels.into(),
            g.ways.into(),
            g.planes.into(),
            g.blocks.into(),
            g.pages.into(),
            g.page_bytes.into(),
            u64::from(plan.logical) * u64::from(UNIT),
            mapping,
            u64::from(host) | u64::from(kept) << 8,
            ftl.slc.blocks.into(),
            low_pages.into(),
            ftl.factory_bad.into(),
            self.seed,
        ])
    }

    /// Whether an image holds all that such a drive needs. A hybrid map has blocks whose roles are not in it; where data is
    /// overwritten in place there is nothing to hold.
    pub fn has_image(&self) -> bool {
        matches!(self.ftl.mapping, Mapping::Page | Mapping::Cached)
    }
}

impl ImageSize {
    /// Of a drive with this configuration.
    ///
    /// # Errors
    /// Names the key that does not fit.
    pub fn of(config: &FlashDriveConfig) -> Result<ImageSize, ConfigError> {
        Ok(config.plan()?.image())
    }
}

impl DerivedConfig {
    /// What to say of an image of another size.
    pub(crate) fn foreign(&self, image: &Image) -> ConfigError {
        let (found, wanted) = (image.size(), self.image());
        ConfigError::Key {
            key: "geometry.blocks",
            message: format!("and the other sizes make {wanted:?}; the image that was lent has {found:?}"),
        }
    }

    pub(crate) fn image(&self) -> ImageSize {
        let blocks = u64::from(self.shape.blocks());
        ImageSize {
            units: self.shape.units().into(),
            pages: blocks * u64::from(self.shape.pages_per_block()),
            mapped: self.mapped.into(),
            blocks,
        }
    }
}

/// See the [module](self). Lent for good: the drive is the only one that uses them.
#[derive(Debug, Default)]
pub struct Image {
    /// By physical unit: its logical unit.
    pub p2l: &'static mut [u32],
    /// By page: the sequence number of its program.
    pub sequence: &'static mut [u64],
    /// By logical unit: the sequence number of its last trim.
    pub trimmed: &'static mut [u64],
    /// By block: erases.
    pub erases: &'static mut [u32],
    /// By block: the sequence number of its last erase.
    pub erased_at: &'static mut [u64],
    /// By block: what it is used for.
    pub state: &'static mut [u32],
    /// Whose they are.
    pub lender: Lender,
    /// The controller's memory, where it outlives the process as well.
    pub mapped: Option<Mapped>,
}

/// Whoever lends an [`Image`], to be told when much of it was looked at: the arrays of a large drive are larger than the memory
/// that it may have, and their lender can take the memory back where the contents lie elsewhere as well.
#[derive(Clone, Default)]
pub struct Lender {
    take_back: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Bytes since then, about.
    touched: u64,
}

/// So much of an image is touched between two times at which its lender is told.
const STRIDE: u64 = 16 << 20;

impl Lender {
    /// Told by a call, which must leave the arrays as they are.
    pub fn new(take_back: impl Fn() + Send + Sync + 'static) -> Lender {
        Lender { take_back: Some(Arc::new(take_back)), touched: 0 }
    }

    /// Work through an image as a whole has touched so many bytes more.
    #[inline]
    pub(crate) fn touched(&mut self, bytes: u64) {
        self.touched += bytes;
        if self.touched >= STRIDE {
            self.tell();
        }
    }

    /// Such work has ended.
    #[cold]
    pub(crate) fn tell(&mut self) {
        self.touched = 0;
        if let Some(take_back) = &self.take_back {
            take_back();
        }
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").field("told", &self.take_back.is_some()).finish_non_exhaustive()
    }
}

impl Image {
    /// The lengths.
    pub fn size(&self) -> ImageSize {
        ImageSize {
            units: self.p2l.len() as u64,
            pages: self.sequence.len() as u64,
            mapped: self.trimmed.len() as u64,
            blocks: self.state.len() as u64,
        }
    }

    pub(crate) fn fits(&self, size: &ImageSize) -> bool {
        let blocks = size.blocks as usize;
        self.size() == *size && self.erases.len() == blocks && self.erased_at.len() == blocks
    }
}
