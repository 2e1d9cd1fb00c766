//! Numbers that Java keeps for things that are open: one that is closed, or never was, is an error and no crash.

use crate::failure::Failure;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// Things of one kind, by their numbers, which are never given out again.
#[derive(Debug)]
pub struct Handles<T> {
    /// What Java's user calls such a thing.
    what: &'static str,
    last: AtomicI64,
    open: LazyLock<RwLock<HashMap<i64, Arc<T>>>>,
}

impl<T> Handles<T> {
    /// None yet.
    pub const fn new(what: &'static str) -> Self {
        Self { what, last: AtomicI64::new(0), open: LazyLock::new(RwLock::default) }
    }

    /// Its number.
    pub fn add(&self, thing: T) -> i64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(thing));
        number
    }

    /// The thing of a number.
    ///
    /// # Errors
    /// [`Failure::Closed`].
    pub fn get(&self, number: i64) -> Result<Arc<T>, Failure> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).cloned().ok_or(Failure::Closed(self.what))
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes it out; nothing if that was done before.
    pub fn remove(&self, number: i64) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }
}
