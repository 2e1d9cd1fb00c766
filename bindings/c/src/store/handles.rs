//! What C holds for things that are open: a number in the guise of a pointer, so that one which was closed is told from one that is open.

use super::failure::StoreFailure;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// What the handles of C point to: nothing.
#[derive(Debug)]
#[repr(C)]
pub struct Handle {
    _nothing: [u8; 0],
}

/// The last number that was given out, of things of any kind: none is given out again.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// A thing, and the process that has opened it: one that was forked has neither its threads nor a right to its sockets.
#[derive(Debug)]
struct Open<T> {
    process: u32,
    thing: Arc<T>,
}

/// Things of one kind that are open.
#[derive(Debug)]
pub struct Handles<T> {
    /// What its user calls such a thing.
    what: &'static str,
    open: LazyLock<RwLock<HashMap<usize, Open<T>>>>,
}

impl<T> Handles<T> {
    /// None yet.
    pub const fn new(what: &'static str) -> Self {
        Self { what, open: LazyLock::new(RwLock::default) }
    }

    /// Takes a thing in: its handle.
    pub fn add(&self, thing: T) -> *mut Handle {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let open = Open { process: std::process::id(), thing: Arc::new(thing) };
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, open);
        std::ptr::without_provenance_mut(number)
    }

    /// The thing of a handle.
    ///
    /// # Errors
    /// It is null, closed, none of these, or another process has opened it.
    pub fn get(&self, handle: *const Handle) -> Result<Arc<T>, StoreFailure> {
        if handle.is_null() {
            return Err(StoreFailure::usage(format!("the {} is null", self.what)));
        }
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        match open.get(&handle.addr()) {
            Some(open) if open.process == std::process::id() => Ok(open.thing.clone()),
            Some(_) => {
                let text = format!("the {} was opened by the process that forked this one; open it again", self.what);
                Err(StoreFailure::usage(text))
            }
            None => Err(StoreFailure::usage(format!("the {} is closed, or never was open", self.what))),
        }
    }

    /// Takes a thing out: its handle is closed.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn remove(&self, handle: *const Handle) -> Result<Arc<T>, StoreFailure> {
        let thing = self.get(handle)?;
        match self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr()) {
            Some(_) => Ok(thing),
            None => Err(StoreFailure::usage(format!("the {} is closed", self.what))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_closed_is_told_from_what_is_open() {
        static NUMBERS: Handles<u32> = Handles::new("number");
        let (one, two) = (NUMBERS.add(1), NUMBERS.add(2));
        assert_eq!((*NUMBERS.get(one).unwrap(), *NUMBERS.get(two).unwrap()), (1, 2));
        assert_eq!(*NUMBERS.remove(one).unwrap(), 1);
        let said = |handle| NUMBERS.get(handle).unwrap_err();
        assert_eq!(said(one).to_string(), "the number is closed, or never was open");
        assert_eq!(said(std::ptr::null_mut()).to_string(), "the number is null");
        assert_eq!(NUMBERS.remove(one).unwrap_err(), said(one));
        let three = NUMBERS.add(3);
        assert!(three != one && three != two, "no number is given out again");
    }
}
