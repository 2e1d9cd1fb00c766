//! Arrays that may lie where they outlive the process.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// An array that is owned, or lent for good by whoever keeps it where it survives. A loop takes the slice once; a single
/// access costs one branch that always goes the same way.
#[derive(Debug)]
pub(crate) enum Cells<T: 'static> {
    Own(Vec<T>),
    Lent(&'static mut [T]),
}

impl<T> Deref for Cells<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        match self {
            Cells::Own(own) => own,
            Cells::Lent(lent) => lent,
        }
    }
}

impl<T> DerefMut for Cells<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Cells::Own(own) => own,
            Cells::Lent(lent) => lent,
        }
    }
}

impl<T: Clone> Clone for Cells<T> {
    fn clone(&self) -> Self {
        Cells::Own(self.to_vec())
    }
}
