//! The work of a collection, and what of it a plane still owes.

use super::encoding::NONE;
use crate::array::Array;
use crate::geometry::{PageAddress, Shape};
use weir_units::Nanos;

/// Flash work that moves data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages read.
    pub reads: u32,
    /// Pages programmed.
    pub programs: u32,
    /// Units moved.
    pub units: u32,
}

/// Mean array times over the pages of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTimes {
    pub(crate) read: Nanos,
    pub(crate) program: Nanos,
}

impl PageTimes {
    /// Of a drive, as its page map mixes the levels.
    pub(crate) fn mean(silicon: &Array, shape: &Shape) -> Self {
        let pages = shape.pages_per_block();
        let place = |page| PageAddress { plane: 0, block: 0, page };
        let mean = |time: &dyn Fn(PageAddress) -> Nanos| {
            Nanos((0..pages).map(|p| time(place(p)).0).sum::<u64>() / u64::from(pages))
        };
        PageTimes {
            read: mean(&|at| silicon.read_time(at, shape.page_bytes())),
            program: mean(&|at| silicon.program_time(at)),
        }
    }
}

/// Collection of a block that is not yet paid for (preemptive mode).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debt {
    pub(crate) block: u32,
    pub(crate) work: Work,
    /// Steps for so many pages that the host writes: the victim's pages and its erase, and what it frees.
    pub(super) steps: u32,
    pub(super) frees: u32,
    /// Steps due, in parts of `frees`.
    pub(super) due: u32,
}

/// No debt.
pub(crate) const PAID: Debt =
    Debt { block: NONE, work: Work { reads: 0, programs: 0, units: 0 }, steps: 0, frees: 1, due: 0 };
