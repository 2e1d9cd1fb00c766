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

impl<T: Copy> Cells<T> {
    /// A copy that is owned, in the memory of `used` where that has the same length: memory that is in use costs no page faults.
    pub(crate) fn copied_into(&self, used: Cells<T>) -> Cells<T> {
        match used {
            Cells::Own(mut own) if own.len() == self.len() => {
                own.copy_from_slice(self);
                Cells::Own(own)
            }
            _ => self.clone(),
        }
    }
}

impl<T: Clone> Clone for Cells<T> {
    fn clone(&self) -> Self {
        Cells::Own(self.to_vec())
    }
}
