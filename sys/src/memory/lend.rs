//! Memory that a call lends while it waits, so that another thread may read or fill it.
//!
//! ```text
//!   lend(bytes, |lent| …)  ─ lent ─► any thread reads or fills it ─► dropped ─► lend returns
//! ```
//! [`lend`] returns when the lent memory was dropped, whatever its closure does. Memory that is forgotten instead of dropped is waited
//! for without an end.

use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Bytes of another thread's call, which waits for the drop of this.
#[derive(Debug)]
pub struct LentBytes {
    bytes: NonNull<u8>,
    len: usize,
    can_fill: bool,
    is_out: NonNull<AtomicBool>,
}

// SAFETY: it is the only way to the bytes while it lives: the lender's borrow of them is held by a call that waits for its drop.
unsafe impl Send for LentBytes {}
// SAFETY: shared references only read.
unsafe impl Sync for LentBytes {}

impl LentBytes {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `lend` and `lend_to_read` hold the borrow that these come from until this is dropped.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }

    /// The bytes, to be filled; none where they were lent only to be read.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = if self.can_fill { self.len } else { 0 };
        // SAFETY: as above, and it was an exclusive borrow if `can_fill`; `&mut self` is the only way to them.
        unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr(), len) }
    }
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        // SAFETY: the flag is on the stack of the call that waits for just this store, which is the last access to it.
        unsafe { self.is_out.as_ref() }.store(false, Ordering::Release);
    }
}

/// Waits for the drop of what was lent, also when the closure panics.
struct Return<'a>(&'a AtomicBool);

impl Drop for Return<'_> {
    fn drop(&mut self) {
        while self.0.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }
}

/// Lends bytes to be read or filled. It returns when they were dropped.
pub fn lend<R>(bytes: &mut [u8], run: impl FnOnce(LentBytes) -> R) -> R {
    let len = bytes.len();
    let is_out = AtomicBool::new(true);
    let _returned = Return(&is_out);
    run(LentBytes { bytes: NonNull::from(bytes).cast(), len, can_fill: true, is_out: NonNull::from(&is_out) })
}

/// Lends bytes to be read. It returns when they were dropped.
pub fn lend_to_read<R>(bytes: &[u8], run: impl FnOnce(LentBytes) -> R) -> R {
    let len = bytes.len();
    let is_out = AtomicBool::new(true);
    let _returned = Return(&is_out);
    run(LentBytes { bytes: NonNull::from(bytes).cast(), len, can_fill: false, is_out: NonNull::from(&is_out) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn another_thread_fills_what_was_lent() {
        let (sender, receiver) = mpsc::channel::<LentBytes>();
        let other = thread::spawn(move || {
            let mut lent = receiver.recv().unwrap();
            thread::sleep(Duration::from_millis(20));
            lent.bytes_mut().copy_from_slice(b"other");
        });
        let mut bytes = *b"bytes";
        lend(&mut bytes, |lent| sender.send(lent).unwrap());
        assert_eq!(&bytes, b"other", "lend has waited");
        other.join().unwrap();
    }

    #[test]
    fn what_was_lent_to_be_read_cannot_be_filled() {
        let read = lend_to_read(b"bytes", |mut lent| (lent.bytes().to_vec(), lent.bytes_mut().len()));
        assert_eq!(read, (b"bytes".to_vec(), 0));
    }

    #[test]
    fn a_panic_waits_as_well() {
        let (sender, receiver) = mpsc::channel::<LentBytes>();
        let other = thread::spawn(move || {
            let mut lent = receiver.recv().unwrap();
            thread::sleep(Duration::from_millis(20));
            lent.bytes_mut().fill(7);
        });
        let mut bytes = [0; 3];
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lend(&mut bytes, |lent| {
                sender.send(lent).unwrap();
                panic!("in the closure");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(bytes, [7; 3]);
        other.join().unwrap();
    }
}
