//! Wear levelling: which free block is written next (dynamic), and when data that never changes must move (static).

use super::encoding::HELD;
use super::victim::PlaneView;
use crate::name::names;
use alloc::boxed::Box;
use core::fmt;

/// Spreads erases over the blocks of a plane.
pub trait WearPolicy: fmt::Debug + Send {
    /// Which of the plane's `free` blocks to open, by its place in the list. `erases` is by block of the drive, as the
    /// list names them; `cold` data is what moves for wear. The list is not empty.
    fn take(&mut self, free: &[u32], erases: &[u32], cold: bool) -> usize;

    /// Asked after an erase: a block whose contents should move so that it can wear as well. They would go to the free block that
    /// `take` has for cold data, which was erased `target` times.
    fn rotate(&mut self, plane: &PlaneView<'_>, target: u32) -> Option<usize>;
}

/// The wear policies that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wear {
    /// The block freed last is written next.
    None,
    /// The least worn free block is written next.
    Dynamic,
    /// Dynamic; and where a block whose data is cold lags behind the most worn free one by more than `wear.gap` erases, its contents
    /// move there. Each move then puts a block to rest for as long as the others take to wear `wear.gap` more, which is what Chang,
    /// Hsieh and Kuo's bound on the extra erases says ("Endurance Enhancement of Flash-Memory Storage Systems: An Efficient Static Wear
    /// Leveling Design", 2007, section 4.2).
    Static,
}

names!(Wear, "wear levelling policy", None = "none", Dynamic = "dynamic", Static = "static");

impl Wear {
    /// The policy; `gap` is in erases, `pages` those of the drive.
    pub fn build(self, gap: u32, pages: u32) -> Box<dyn WearPolicy> {
        match self {
            Wear::None => Box::new(Last),
            Wear::Dynamic => Box::new(Dynamic),
            Wear::Static => Box::new(Static { gap, pages }),
        }
    }
}

#[derive(Debug)]
struct Last;

impl WearPolicy for Last {
    fn take(&mut self, free: &[u32], _: &[u32], _: bool) -> usize {
        free.len() - 1
    }

    fn rotate(&mut self, _: &PlaneView<'_>, _: u32) -> Option<usize> {
        None
    }
}

fn least(free: &[u32], erases: &[u32]) -> usize {
    let by = |i: &usize| erases[free[*i] as usize];
    (0..free.len()).min_by_key(by).unwrap_or(0)
}

fn most(free: &[u32], erases: &[u32]) -> usize {
    let by = |i: &usize| erases[free[*i] as usize];
    (0..free.len()).max_by_key(by).unwrap_or(0)
}

#[derive(Debug)]
struct Dynamic;

impl WearPolicy for Dynamic {
    fn take(&mut self, free: &[u32], erases: &[u32], _: bool) -> usize {
        least(free, erases)
    }

    fn rotate(&mut self, _: &PlaneView<'_>, _: u32) -> Option<usize> {
        None
    }
}

#[derive(Debug)]
struct Static {
    gap: u32,
    pages: u32,
}

impl Static {
    /// Whether what the block holds outlived as many programs as the drive has pages. A block of younger data is collected soon anyway: to
    /// move that costs an erase and levels nothing.
    fn is_cold(&self, plane: &PlaneView<'_>, block: usize) -> bool {
        plane.now.saturating_sub(plane.written_at[block]) > u64::from(self.pages)
    }
}

impl WearPolicy for Static {
    fn take(&mut self, free: &[u32], erases: &[u32], cold: bool) -> usize {
        if cold { most(free, erases) } else { least(free, erases) }
    }

    fn rotate(&mut self, plane: &PlaneView<'_>, target: u32) -> Option<usize> {
        let lags = target.checked_sub(self.gap)?;
        // A pass that the compiler vectorises: nearly always nothing lags.
        let erases = plane.valid.iter().zip(plane.erases).map(|(v, e)| if v & HELD == 0 { *e } else { u32::MAX });
        if erases.fold(u32::MAX, u32::min) >= lags {
            return None;
        }
        let lazy = plane.candidates().filter(|b| plane.erases[*b] < lags && self.is_cold(plane, *b));
        lazy.min_by_key(|b| (plane.erases[*b], plane.written_at[*b]))
    }
}
