//! Where a zone lies: blocks of some dies, its pages dealt out over them.
//!
//! ```text
//! zone  = row * groups + group          group: `dies` consecutive dies, so that they stripe over the channels
//! page p of a zone: plane p % planes of die p / planes % dies of the group; then the next page of those blocks
//! ```
//! `dies` = all is FEMU's layout (zns/zftl.c) and NVMeVirt's ZN540; 1 is NVMeVirt's prototype (DIES_PER_ZONE).

use crate::geometry::{Divisor, PageAddress, Shape, UNIT};
use core::fmt;

/// Why zones cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeError {
    /// The dies of a zone are none, or do not divide the dies of the drive.
    Dies {
        /// Dies of a zone.
        wanted: u32,
        /// Dies of the drive.
        dies: u32,
    },
    /// The flash does not hold so many zones.
    TooSmall {
        /// Zones wanted.
        zones: u32,
        /// Zones that fit.
        fit: u32,
    },
}

impl fmt::Display for StripeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dies { wanted, dies } => {
                write!(f, "{wanted} dies a zone: must be at least 1 and divide the drive's {dies}")
            }
            Self::TooSmall { zones, fit } => {
                write!(f, "{zones} zones do not fit: the flash has room for {fit} of this capacity")
            }
        }
    }
}

impl core::error::Error for StripeError {}

/// Where zones lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    planes: Divisor,
    dies: Divisor,
    groups: Divisor,
    pages: Divisor,
    units_per_page: Divisor,
    /// Blocks of each plane that a zone has.
    blocks: u32,
}

impl Stripe {
    /// Places `zones` zones of `units` 4 KiB units each on groups of `dies` dies (0: all of them).
    ///
    /// # Errors
    /// The dies do not divide evenly, or there are not enough blocks.
    pub fn new(shape: &Shape, zones: u32, units: u32, dies: u32) -> Result<Stripe, StripeError> {
        let all = shape.dies();
        let wanted = if dies == 0 { all } else { dies };
        if wanted > all || all % wanted != 0 {
            return Err(StripeError::Dies { wanted, dies: all });
        }
        let lanes = wanted * shape.planes_per_die();
        let blocks = units.div_ceil(lanes * shape.units_per_block()).max(1);
        let groups = all / wanted;
        let fit = shape.blocks_per_plane() / blocks * groups;
        if zones > fit {
            return Err(StripeError::TooSmall { zones, fit });
        }
        Ok(Stripe {
            planes: Divisor::new(shape.planes_per_die()),
            dies: Divisor::new(wanted),
            groups: Divisor::new(groups),
            pages: Divisor::new(shape.pages_per_block()),
            units_per_page: Divisor::new(shape.units_per_page()),
            blocks,
        })
    }

    /// 4 KiB units that one program takes: a page of each plane of a die.
    pub fn program_units(&self) -> u32 {
        self.units_per_page.get() * self.planes.get()
    }

    /// The page that holds a unit of a zone, and the unit's place in it.
    #[inline]
    pub fn place(&self, zone: u32, unit: u32) -> (PageAddress, u32) {
        let (page, part) = self.units_per_page.div_rem(unit);
        let (die_page, plane) = self.planes.div_rem(page);
        let (row, die) = self.dies.div_rem(die_page);
        let (block, page) = self.pages.div_rem(row);
        let (base, group) = self.groups.div_rem(zone);
        let die = group * self.dies.get() + die;
        (PageAddress { plane: die * self.planes.get() + plane, block: base * self.blocks + block, page }, part)
    }

    /// Calls `each` with plane and block of every block of a zone that holds one of its first `units` units.
    pub fn blocks_of(&self, zone: u32, units: u32, mut each: impl FnMut(u32, u32)) {
        let pages = units.div_ceil(self.units_per_page.get());
        let lanes = self.planes.get() * self.dies.get();
        for lane in 0..lanes.min(pages) {
            // Pages of this lane, and the blocks that they fill.
            let rows = (pages - lane).div_ceil(lanes);
            let (at, _) = self.place(zone, lane * self.units_per_page.get());
            (0..rows.div_ceil(self.pages.get())).for_each(|b| each(at.plane, at.block + b));
        }
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.units_per_page.get() * UNIT
    }
}
