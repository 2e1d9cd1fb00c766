//! How large the namespace is that doors without namespaces serve, and its blocks.

use super::backend::Backend;
use super::{Device, OpenError};
use weir_units::Bytes;

impl Device {
    /// Bytes of the namespace that doors without namespaces serve; 0 while there is none.
    pub fn capacity(&self) -> u64 {
        self.shape().map_or(self.capacity, |(bytes, _)| bytes)
    }

    /// Has the medium take what its first bytes need, so that no write there fails for want of room; what they hold stays.
    ///
    /// # Errors
    /// Why there is no room.
    pub fn allocate(&mut self, bytes: u64) -> Result<(), String> {
        match &mut self.backend {
            Backend::Store(store) => store.allocate(bytes).map_err(|status| status.to_string()),
            Backend::KernelIo(direct) => direct.allocate(bytes).map_err(|e| e.to_string()),
            Backend::Remote(_) | Backend::Volume(_) => Ok(()),
        }
    }

    /// What was remembered of the drive has changed: whether that is its size for doors without namespaces.
    #[cold]
    pub(super) fn look_at_shape(&mut self) {
        let bytes = self.capacity();
        self.shape.seen = self.machine.nonvolatile_generation();
        if bytes != self.shape.bytes {
            self.shape.bytes = bytes;
            self.shape.news = Some(bytes);
        }
    }

    /// Its size for these doors, where hosts have changed it since the last call.
    #[inline]
    pub(super) fn take_news(&mut self) -> Option<u64> {
        self.shape.news.take()
    }

    /// Whether there is such a size.
    pub(super) fn has_news(&self) -> bool {
        self.shape.news.is_some()
    }

    /// Bytes and block size of namespace 1, where hosts may change them.
    fn shape(&self) -> Option<(u64, u32)> {
        self.machine.is_managed().then(|| self.machine.namespace(1).unwrap_or((0, self.block_size)))
    }

    /// Gives the namespace another size; its hosts are told by an event. What lies beyond a smaller size is kept.
    ///
    /// # Errors
    /// No whole blocks, none at all, or more than the medium has.
    pub fn resize(&mut self, bytes: u64) -> Result<(), OpenError> {
        if bytes == 0 || bytes > self.limit {
            let (size, most) = (Bytes(bytes), Bytes(self.limit));
            return Err(OpenError::Capacity(format!(
                "{size} is out of range: this drive was opened with room for {most} (max_capacity)"
            )));
        }
        self.machine_mut().resize_namespace(1, bytes)?;
        (self.capacity, self.shape.bytes) = (bytes, bytes);
        Ok(())
    }

    /// Bytes of a logical block of the same namespace.
    pub fn block_size(&self) -> u32 {
        self.shape().map_or(self.block_size, |(_, block_size)| block_size)
    }
}
