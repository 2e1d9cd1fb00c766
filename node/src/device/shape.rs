//! How large the namespace is that doors without namespaces serve, and its blocks.

use super::{Backend, Device, OpenError};
use weir_units::Bytes;

/// What doors without namespaces were told.
#[derive(Default)]
pub(super) struct Told {
    /// [`Subsystem::nonvolatile_generation`](weir_controller::Subsystem::nonvolatile_generation) when it was looked at.
    pub seen: u64,
    pub bytes: u64,
    news: Option<u64>,
}

impl Told {
    pub fn size(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }
}

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

/// Sixteen bytes that stay the same for a name and the memory behind it (0: none): FNV-1a over both, twice, marked as a UUID of version 8 (RFC 9562).
pub(super) fn uuid_of(name: &str, medium: u64) -> [u8; 16] {
    let medium = medium.to_le_bytes().into_iter().filter(|_| medium != 0);
    let hash = |seed: u64| {
        name.bytes().chain(medium.clone()).fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
    };
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash(0xcbf2_9ce4_8422_2325).to_be_bytes());
    uuid[8..].copy_from_slice(&hash(0x8422_2325_cbf2_9ce4).to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
