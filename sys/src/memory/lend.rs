//! Memory that a call lends while it waits, so that another thread may read or fill it.
//!
//! ```text
//!   lend(bytes, |lent| …)  ─ lent ─► any thread reads or fills it ─► dropped ─► lend returns
//! ```
//! [`lend`] returns when the lent memory was dropped, whatever its closure does. Memory that is forgotten instead of dropped is waited
//! for without an end.
//!
//! [`lend_until_dropped`] does not wait: the lender is told by a [`Loan`] when it has the memory again. It is for memory of other languages,
//! whose programs promise to leave it alone until they are told.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Bytes of a lender, which has them again when this was dropped.
#[derive(Debug)]
pub struct LentBytes {
    bytes: NonNull<u8>,
    len: usize,
    can_fill: bool,
    is_out: OutFlag,
}

/// Where a lender reads that its memory is lent out.
#[derive(Debug)]
enum OutFlag {
    /// On the stack of a call that waits.
    OfCall(NonNull<AtomicBool>),
    /// Of a [`Loan`].
    OfLoan(Arc<AtomicBool>),
}

/// Memory that was lent by [`lend_until_dropped`], for its lender.
#[derive(Debug)]
pub struct Loan(Arc<AtomicBool>);

impl Loan {
    /// Whether the memory is the lender's again.
    pub fn is_over(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
}

// SAFETY: it is the only way to the bytes while it lives: the lender's borrow of them is held by a call that waits for its drop.
unsafe impl Send for LentBytes {}
// SAFETY: shared references only read.
unsafe impl Sync for LentBytes {}

impl LentBytes {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `lend` and `lend_to_read` hold the borrow that these come from until this is dropped; the caller of
        // `lend_until_dropped` has promised the same.
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
        let is_out = match &self.is_out {
            // SAFETY: the flag is on the stack of the call that waits for just this store, which is the last access to it.
            OutFlag::OfCall(flag) => unsafe { flag.as_ref() },
            OutFlag::OfLoan(flag) => flag,
        };
        is_out.store(false, Ordering::Release);
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
    run(LentBytes {
        bytes: NonNull::from(bytes).cast(),
        len,
        can_fill: true,
        is_out: OutFlag::OfCall(NonNull::from(&is_out)),
    })
}

/// Lends bytes to be read. It returns when they were dropped.
pub fn lend_to_read<R>(bytes: &[u8], run: impl FnOnce(LentBytes) -> R) -> R {
    let len = bytes.len();
    let is_out = AtomicBool::new(true);
    let _returned = Return(&is_out);
    run(LentBytes {
        bytes: NonNull::from(bytes).cast(),
        len,
        can_fill: false,
        is_out: OutFlag::OfCall(NonNull::from(&is_out)),
    })
}

/// Lends bytes, to be filled or only to be read, and returns at once.
///
/// # Safety
/// Until [`Loan::is_over`] the bytes are there, and nobody else changes them, or with `can_fill` reads them.
pub unsafe fn lend_until_dropped(bytes: NonNull<[u8]>, can_fill: bool) -> (LentBytes, Loan) {
    let flag = Arc::new(AtomicBool::new(true));
    let is_out = OutFlag::OfLoan(flag.clone());
    (LentBytes { bytes: bytes.cast(), len: bytes.len(), can_fill, is_out }, Loan(flag))
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
    fn a_loan_is_over_when_the_bytes_were_dropped() {
        let mut bytes = *b"bytes";
        // SAFETY: the bytes are left alone until the loan is over.
        let (mut lent, loan) = unsafe { lend_until_dropped(NonNull::from(&mut bytes[..]), true) };
        let other = thread::spawn(move || lent.bytes_mut().copy_from_slice(b"other"));
        other.join().unwrap();
        assert!(loan.is_over());
        assert_eq!(&bytes, b"other");
        // SAFETY: as above.
        let (mut lent, loan) = unsafe { lend_until_dropped(NonNull::from(&mut bytes[..]), false) };
        assert_eq!((lent.bytes(), loan.is_over()), (&b"other"[..], false));
        assert!(lent.bytes_mut().is_empty());
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
