//! The controller's memory, where it outlives the process: a drive that is taken over goes on from it as it is.
//!
//! ```text
//!   Mapped ── l2p               the page map, a word a logical unit
//!          ├─ valid, written, stamp     by block: what collection wants to know
//!          ├─ waiting, behind   by slot of the write buffer: whose newest version is there, and where the one before is
//!          └─ undo              what the step under way has changed (ftl/undo.rs)
//! ```
//! All zero at first. What an [`Image`](crate::Image) holds is changed with it, in such an order that after any store both can be gone on
//! from: what the step under way had changed is taken back, and that takes as long as a step, not as long as the drive is large. It counts
//! for nothing once the power was lost, or where it is not the memory of the process that used the image last: the
//! image alone tells of everything.

use crate::config::FlashDriveConfig;
use crate::config_error::ConfigError;
use crate::derived_config::DerivedConfig;
use crate::ftl::undo_words;

/// How long the arrays of a [`Mapped`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedSize {
    /// Words of the page map: units that are mapped, and one.
    pub words: u64,
    /// Blocks of the flash: [`Mapped::valid`], [`Mapped::written`], [`Mapped::stamp`].
    pub blocks: u64,
    /// Slots of the write buffer: [`Mapped::waiting`], [`Mapped::behind`].
    pub slots: u64,
    /// [`Mapped::undo`].
    pub undo: u64,
}

impl MappedSize {
    /// Of a drive with this configuration.
    ///
    /// # Errors
    /// Names the key that does not fit.
    pub fn of(config: &FlashDriveConfig) -> Result<MappedSize, ConfigError> {
        Ok(config.plan()?.memory())
    }
}

impl DerivedConfig {
    pub(crate) fn memory(&self) -> MappedSize {
        MappedSize {
            words: u64::from(self.mapped) + 1,
            blocks: self.shape.blocks().into(),
            slots: self.slots.into(),
            undo: undo_words(self.shape.units_per_page()).into(),
        }
    }
}

/// See the [module](self). Lent for good, with the [`Image`](crate::Image) that it goes with.
#[derive(Debug, Default)]
pub struct Mapped {
    /// By logical unit: its physical unit; one word more than there are units.
    pub l2p: &'static mut [u32],
    /// By block: valid units.
    pub valid: &'static mut [u16],
    /// By block: units programmed since it was erased.
    pub written: &'static mut [u16],
    /// By block: its age.
    pub stamp: &'static mut [u64],
    /// By slot of the write buffer: its logical unit.
    pub waiting: &'static mut [u32],
    /// By slot: where the flash has the version before.
    pub behind: &'static mut [u32],
    /// What the step under way has changed.
    pub undo: &'static mut [u64],
}

impl Mapped {
    pub(crate) fn fits(&self, size: &MappedSize) -> bool {
        let blocks = size.blocks as usize;
        let by_block = self.valid.len() == blocks && self.written.len() == blocks && self.stamp.len() == blocks;
        let by_slot = self.waiting.len() as u64 == size.slots && self.behind.len() as u64 == size.slots;
        by_block && by_slot && self.l2p.len() as u64 == size.words && self.undo.len() as u64 == size.undo
    }
}
