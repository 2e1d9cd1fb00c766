//! No medium: what measures everything else.

use weir_spec::nvme::Status;

/// Zeroes to hand out; small enough to stay in the cache.
pub(super) static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Forgets what is written without fetching it. Whoever reads it gets zeroes, from a block of them that stays in the cache, or asks
/// [`Null::reads_zeroes`] first and leaves the reader's buffer as it is.
#[derive(Debug)]
pub struct Null {
    capacity: u64,
    reads_zeroes: bool,
}

impl Null {
    /// Of so many bytes.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, reads_zeroes: false }
    }

    /// The same, whose readers have to get zeroes if `yes`.
    #[must_use]
    pub fn read_zeroes(self, yes: bool) -> Self {
        Self { reads_zeroes: yes, ..self }
    }

    /// Whether readers have to get zeroes.
    #[inline]
    pub fn reads_zeroes(&self) -> bool {
        self.reads_zeroes
    }

    /// The size of the medium in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// See [`Store::read`](super::Store::read).
    #[inline]
    pub fn read(&self, offset: u64, len: u32, put: impl FnMut(u32, &[u8]) -> Result<(), Status>) -> Result<(), Status> {
        super::range(self.capacity, offset, len)?;
        put_zeroes(0, len, put)
    }

    /// See [`Store::write`](super::Store::write).
    #[inline]
    pub fn write(
        &mut self,
        offset: u64,
        len: u32,
        _get: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        super::range(self.capacity, offset, len).map(|_| ())
    }

    /// See [`Store::zero`](super::Store::zero).
    pub fn zero(&mut self, offset: u64, len: u32) -> Result<(), Status> {
        super::range(self.capacity, offset, len).map(|_| ())
    }
}

/// Puts `len` zeroes at `at`.
#[inline]
pub(super) fn put_zeroes(
    mut at: u32,
    mut len: u32,
    mut put: impl FnMut(u32, &[u8]) -> Result<(), Status>,
) -> Result<(), Status> {
    while len > 0 {
        let part = len.min(ZEROES.len() as u32);
        put(at, &ZEROES[..part as usize])?;
        at += part;
        len -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_zeroes_and_fetches_nothing() {
        let mut null = Null::new(1 << 20);
        null.write(0, 4096, |_, _| panic!("bytes were fetched")).unwrap();
        let mut next = 0;
        null.read(4096, 200 << 10, |at, bytes| {
            assert_eq!(at, next);
            assert!(bytes.iter().all(|b| *b == 0));
            next += bytes.len() as u32;
            Ok(())
        })
        .unwrap();
        assert_eq!(next, 200 << 10);
        assert_eq!(null.read(1 << 20, 512, |_, _| Ok(())), Err(Status::LBA_OUT_OF_RANGE));
        assert_eq!(null.read(u64::MAX, 512, |_, _| Ok(())), Err(Status::LBA_OUT_OF_RANGE));
        assert_eq!(null.zero((1 << 20) - 512, 1024), Err(Status::LBA_OUT_OF_RANGE));
        assert_eq!(null.read(0, 512, |_, _| Err(Status::DATA_TRANSFER_ERROR)), Err(Status::DATA_TRANSFER_ERROR));
    }
}
