//! Wear levelling: which free block is written next (dynamic), and when data that never changes must move (static).

use super::victim::PlaneView;
use crate::name::names;
use alloc::boxed::Box;
use core::fmt;

/// Spreads erases over the blocks of a plane.
pub trait WearPolicy: fmt::Debug + Send {
    /// Which of the plane's `free` blocks to open, by its place in the list. `erases` is by block of the drive, as the
    /// list names them; `cold` data is what garbage collection moves. The list is not empty.
    fn take(&mut self, free: &[u32], erases: &[u32], cold: bool) -> usize;

    /// Asked once in a while after an erase: a block whose contents should move so that it can wear as well.
    fn rotate(&mut self, plane: &PlaneView<'_>) -> Option<usize>;
}

/// The wear policies that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wear {
    /// The block freed last is written next.
    None,
    /// The least worn free block is written next.
    Dynamic,
    /// Dynamic; moved data goes to the most worn free block; and where a full block lags behind the most worn one
    /// by more than `wear.gap` erases, its contents move.
    Static,
}

names!(Wear, "wear levelling policy", None = "none", Dynamic = "dynamic", Static = "static");

impl Wear {
    /// The policy; `gap` is in erases.
    pub fn build(self, gap: u32) -> Box<dyn WearPolicy> {
        match self {
            Wear::None => Box::new(Last),
            Wear::Dynamic => Box::new(Dynamic),
            Wear::Static => Box::new(Static { gap }),
        }
    }
}

#[derive(Debug)]
struct Last;

impl WearPolicy for Last {
    fn take(&mut self, free: &[u32], _: &[u32], _: bool) -> usize {
        free.len() - 1
    }

    fn rotate(&mut self, _: &PlaneView<'_>) -> Option<usize> {
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

    fn rotate(&mut self, _: &PlaneView<'_>) -> Option<usize> {
        None
    }
}

#[derive(Debug)]
struct Static {
    gap: u32,
}

impl WearPolicy for Static {
    fn take(&mut self, free: &[u32], erases: &[u32], cold: bool) -> usize {
        if cold { most(free, erases) } else { least(free, erases) }
    }

    fn rotate(&mut self, plane: &PlaneView<'_>) -> Option<usize> {
        let worst = plane.erases.iter().copied().max()?;
        let lazy = plane.candidates().min_by_key(|b| plane.erases[*b])?;
        (worst - plane.erases[lazy] > self.gap).then_some(lazy)
    }
}
