//! The port to the memory of a journal.

use alloc::rc::Rc;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering;

/// Memory in 64-bit words that outlives the process and that others may change at any time. Accesses are atomic; loads take `Relaxed`
/// or `Acquire`, stores `Relaxed` or `Release`. `at` counts words.
pub trait JournalMemory: fmt::Debug {
    /// How many words there are. Never changes.
    fn count(&self) -> usize;
    /// Loads a word, one of [`JournalMemory::count`].
    fn load(&self, at: usize, order: Ordering) -> u64;
    /// Stores one.
    fn store(&self, at: usize, value: u64, order: Ordering);

    /// Stores several one after the other, each with `Release`, at places counted from word `from`. Who has them in memory of its own
    /// keeps in registers where that is: the compiler loads it anew after every such store.
    #[inline]
    fn store_each(&self, from: usize, stores: impl IntoIterator<Item = (usize, u64)>)
    where
        Self: Sized,
    {
        for (at, value) in stores {
            self.store(from + at, value, Ordering::Release);
        }
    }
}

macro_rules! shared {
    ($pointer:ident) => {
        impl<T: JournalMemory + ?Sized> JournalMemory for $pointer<T> {
            fn count(&self) -> usize {
                (**self).count()
            }
            #[inline]
            fn load(&self, at: usize, order: Ordering) -> u64 {
                (**self).load(at, order)
            }
            #[inline]
            fn store(&self, at: usize, value: u64, order: Ordering) {
                (**self).store(at, value, order);
            }
        }
    };
}

shared!(Rc);
shared!(Arc);
