//! The hybrid mapping: blocks have fixed places, and what is overwritten goes to a few log blocks (BAST: Kim et al., 2002;
//! FAST: Lee et al., 2007). For comparison: its map is small, its random writes are dear.
//!
//! ```text
//! logical block ── data block: unit i at offset i, written in ascending order
//!               └─ log blocks: overwritten units, one after the other
//! merge   switch:  the log holds the whole block in order: it becomes the data block
//!         partial: the log holds its beginning in order: the rest is copied behind it
//!         full:    everything that is valid is copied to a new block
//! ```
//! Logical block b lies in plane b mod planes, with its log, so that merging needs one plane. Where each unit lies is kept
//! as in the page map (it is the emulator's own knowledge); what the blocks' places forbid is not done.

use super::encoding::NONE;
use crate::config::{Association, FlashDriveConfig, Mapping};
use crate::derived_config::DerivedConfig;
use crate::geometry::Divisor;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    pub(super) block: u32,
    /// The logical block that it serves; [`NONE`]: any.
    pub(super) owner: u32,
}

/// Which block is what.
#[derive(Clone, Debug)]
pub(crate) struct Hybrid {
    /// By logical block: its data block, or [`NONE`].
    pub(super) data: Vec<u32>,
    /// By plane: its log blocks, oldest first.
    pub(super) logs: Vec<VecDeque<Log>>,
    pub(super) most: usize,
    pub(super) association: Association,
    pub(super) by_planes: Divisor,
}

impl Hybrid {
    /// Of a drive with hybrid mapping.
    pub(crate) fn new(config: &FlashDriveConfig, plan: &DerivedConfig) -> Option<Hybrid> {
        let hybrid = &config.ftl.hybrid;
        (config.ftl.mapping == Mapping::Hybrid).then(|| Hybrid {
            data: vec![NONE; plan.logical.div_ceil(plan.shape.units_per_block()) as usize],
            logs: vec![VecDeque::with_capacity(hybrid.log_blocks as usize); plan.shape.planes() as usize],
            most: hybrid.log_blocks as usize,
            association: hybrid.association,
            by_planes: Divisor::new(plan.shape.planes()),
        })
    }

    /// No block is anything.
    pub(crate) fn clear(&mut self) {
        self.data.fill(NONE);
        self.logs.iter_mut().for_each(VecDeque::clear);
    }

    /// All blocks that are something.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u32> + '_ {
        let data = self.data.iter().copied().filter(|b| *b != NONE);
        data.chain(self.logs.iter().flatten().map(|l| l.block))
    }
}
