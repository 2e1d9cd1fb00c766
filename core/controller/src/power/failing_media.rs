//! Where rules have made the media fail lately: blocks and dies, for the operator. What the media itself answers is its executor's to tell.

use crate::subsystem::Subsystem;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_fault::FlashPlace;
use weir_units::Nanos;

/// Blocks that are remembered; the one that has not failed for the longest time makes room.
const BLOCKS: usize = 16;
/// Different pages of a die that fail before the die is to blame.
const PAGES: usize = 4;

/// A block at which commands fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailingBlock {
    /// Its namespace.
    pub nsid: u32,
    /// The block.
    pub lba: u64,
    /// Commands that have failed there since it was last quiet for [`FAILING_FOR`].
    pub errors: u64,
    /// When the last one did.
    pub last: Nanos,
}

/// A die whose pages cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailingDie {
    /// Its number, over the drive.
    pub die: u32,
    /// Reads that have failed there since it was last quiet for [`FAILING_FOR`].
    pub errors: u64,
    /// When the last one did.
    pub last: Nanos,
    /// Different pages that have failed, `None` where fewer have.
    pages: [Option<(u32, u32)>; PAGES],
}

/// What has failed within this time fails now.
pub const FAILING_FOR: Nanos = Nanos::from_secs(60);

impl FailingDie {
    /// Whether several pages fail, so that it is more than one bad page.
    pub fn is_to_blame(&self) -> bool {
        self.pages.iter().all(Option::is_some)
    }

    fn fail(&mut self, now: Nanos, page: (u32, u32)) {
        (self.errors, self.last) = (self.errors + 1, now);
        if self.pages.contains(&Some(page)) {
            return;
        }
        if let Some(free) = self.pages.iter_mut().find(|known| known.is_none()) {
            *free = Some(page);
        }
    }
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct FailingMedia {
    blocks: Vec<FailingBlock>,
    dies: BTreeMap<u32, FailingDie>,
}

fn is_now(now: Nanos, last: Nanos) -> bool {
    now.saturating_sub(last) < FAILING_FOR
}

impl FailingMedia {
    fn fail(&mut self, now: Nanos, (nsid, lba): (u32, u64), place: Option<FlashPlace>) {
        self.blocks.retain(|block| is_now(now, block.last));
        if let Some(block) = self.blocks.iter_mut().find(|block| (block.nsid, block.lba) == (nsid, lba)) {
            (block.errors, block.last) = (block.errors + 1, now);
        } else {
            if self.blocks.len() == BLOCKS {
                let oldest = (0..BLOCKS).min_by_key(|at| self.blocks[*at].last).unwrap_or_default();
                self.blocks.remove(oldest);
            }
            self.blocks.push(FailingBlock { nsid, lba, errors: 1, last: now });
        }
        let Some(place) = place else { return };
        let new = FailingDie { die: place.die, errors: 0, last: now, pages: [None; PAGES] };
        let die = self.dies.entry(place.die).or_insert(new);
        if !is_now(now, die.last) {
            *die = new;
        }
        die.fail(now, (place.block, place.page));
    }
}

impl Subsystem {
    /// Blocks that rules have made fail within [`FAILING_FOR`] before `now`, the latest at the most 16, in no order.
    pub fn failing_blocks(&self, now: Nanos) -> impl Iterator<Item = FailingBlock> + '_ {
        self.failing_media.blocks.iter().copied().filter(move |block| is_now(now, block.last))
    }

    /// Dies with pages that rules have made fail within [`FAILING_FOR`] before `now`, by number.
    pub fn failing_dies(&self, now: Nanos) -> impl Iterator<Item = FailingDie> + '_ {
        self.failing_media.dies.values().copied().filter(move |die| is_now(now, die.last))
    }

    /// A command has failed because of the media at that block of a namespace; `is_read`: where the block lies is where it failed.
    pub(crate) fn note_failing(&mut self, nsid: u32, lba: u64, is_read: bool) {
        let place = if is_read { self.place_of_block(nsid, lba) } else { None };
        self.failing_media.fail(self.turn.now, (nsid, lba), place);
    }

    fn place_of_block(&self, nsid: u32, lba: u64) -> Option<FlashPlace> {
        let ns = self.namespaces.active(nsid).ok()?;
        let (offset, _) = self.namespaces.pieces(nsid, ns, lba, 1).first().copied()?;
        self.timing.0.as_ref()?.place_of(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(die: u32, page: u32) -> Option<FlashPlace> {
        Some(FlashPlace { channel: 0, die, block: 0, page })
    }

    #[test]
    fn a_die_is_to_blame_for_several_pages_and_not_for_one() {
        let mut failing = FailingMedia::default();
        (0..100).for_each(|_| failing.fail(Nanos(1), (1, 8), place(3, 0)));
        assert!(!failing.dies[&3].is_to_blame());
        (0..PAGES as u32).for_each(|page| failing.fail(Nanos(2), (1, 8 + u64::from(page)), place(3, page)));
        assert!(failing.dies[&3].is_to_blame() && failing.dies[&3].errors == 104);
        assert_eq!(failing.blocks.iter().map(|block| (block.lba, block.errors)).max(), Some((11, 1)));
    }

    #[test]
    fn what_was_quiet_begins_anew_and_the_list_is_bounded() {
        let mut failing = FailingMedia::default();
        (0..40).for_each(|lba| failing.fail(Nanos(lba), (1, lba), place(0, lba as u32)));
        assert_eq!(failing.blocks.len(), BLOCKS);
        assert!(failing.blocks.iter().all(|block| block.lba >= 24), "the oldest make room: {:?}", failing.blocks);
        failing.fail(FAILING_FOR.saturating_add(Nanos(100)), (1, 1), place(0, 1));
        assert_eq!((failing.blocks.len(), failing.dies[&0].errors), (1, 1));
        assert!(!failing.dies[&0].is_to_blame());
    }
}
