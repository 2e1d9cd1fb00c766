//! Buffers that the kernel may own for a while.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment and granularity of [`IoBuf`]: enough for direct I/O on every medium.
pub const ALIGN: usize = 4096;

/// Page-aligned bytes on the heap, zeroed at first. Moving it does not move the bytes, so an operation in flight may keep
/// their address while the reactor's table owns the value.
pub struct IoBuf {
    bytes: NonNull<u8>,
    len: usize,
}

// SAFETY: the only owner of plain bytes on the heap, as `Box<[u8]>` is.
unsafe impl Send for IoBuf {}
// SAFETY: shared references only read.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// At least `len` bytes, rounded up to whole pages; zeroed.
    pub fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(ALIGN);
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let bytes = unsafe { alloc_zeroed(layout) };
        Self { bytes: NonNull::new(bytes).unwrap_or_else(|| handle_alloc_error(layout)), len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN).expect("a buffer's length fits the address space")
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(self.bytes.as_ptr(), Self::layout(self.len)) }
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes that this value owns, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len) }
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

/// Keeps used buffers by size (powers of two of pages), so that steady I/O does not allocate. What exceeds its limit is freed.
#[derive(Debug)]
pub struct BufferPool {
    free: Vec<Vec<IoBuf>>,
    held: usize,
    limit: usize,
}

impl BufferPool {
    /// Keeps at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { free: Vec::new(), held: 0, limit }
    }

    fn class(len: usize) -> usize {
        len.max(1).div_ceil(ALIGN).next_power_of_two().trailing_zeros() as usize
    }

    /// A buffer of at least `len` bytes. Its content is undefined: what an earlier user left, or zeroes.
    pub fn get(&mut self, len: usize) -> IoBuf {
        let class = Self::class(len);
        match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buf) => {
                self.held -= buf.len();
                buf
            }
            None => IoBuf::new(ALIGN << class),
        }
    }

    /// Takes a buffer back.
    pub fn put(&mut self, buf: IoBuf) {
        let class = Self::class(buf.len());
        if buf.len() != ALIGN << class || self.held + buf.len() > self.limit {
            return;
        }
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.held += buf.len();
        self.free[class].push(buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_reused() {
        let mut pool = BufferPool::new(64 << 10);
        let mut a = pool.get(512);
        assert_eq!((a.len(), a.as_ptr() as usize % ALIGN), (4096, 0));
        a[7] = 9;
        let at = a.as_ptr();
        pool.put(a);
        let b = pool.get(4096);
        assert_eq!((b.as_ptr(), b[7]), (at, 9));
        assert_eq!(pool.get(4097).len(), 8192);
    }

    #[test]
    fn holds_no_more_than_its_limit() {
        let mut pool = BufferPool::new(8192);
        let bufs: Vec<_> = (0..3).map(|_| pool.get(4096)).collect();
        bufs.into_iter().for_each(|b| pool.put(b));
        assert_eq!(pool.held, 8192);
        pool.put(IoBuf::new(12288));
        assert_eq!(pool.held, 8192, "only sizes that get() asks for are kept");
    }
}
