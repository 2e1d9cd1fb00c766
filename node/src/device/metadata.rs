//! The metadata of a drive's blocks, on a medium of its own beside the data: a byte for 64, where the data's own medium answers
//! at once. It is made when the first namespace is formatted with metadata.

use super::{Backend, Executor};
use weir_controller::{Host, Io, METADATA_SHIFT, Metadata, Op, Owner};
use weir_spec::nvme::Status;
use weir_sys::media::{Null, Ram, Store};

/// Metadata of a drive, or what is needed to make room for it.
pub(super) struct Beside {
    name: String,
    /// Bytes of data.
    capacity: u64,
    store: Option<Store>,
}

impl Beside {
    pub fn new(name: &str, capacity: u64) -> Self {
        Self { name: format!("{name}-metadata"), capacity, store: None }
    }

    /// Whether there is any.
    pub fn is_made(&self) -> bool {
        self.store.is_some()
    }

    /// As the data's medium is: one that forgets data forgets metadata as well.
    fn store(&mut self, data: &Store) -> Result<&mut Store, Status> {
        if self.store.is_none() {
            let capacity = (self.capacity >> METADATA_SHIFT).max(1);
            let made = match data {
                Store::Null(_) => Store::Null(Null::new(capacity)),
                Store::Ram(_) => Store::Ram(Ram::create(&self.name, capacity).map_err(|e| {
                    tracing::error!("no room for metadata: {e}");
                    Status::CAPACITY_EXCEEDED
                })?),
            };
            self.store = Some(made);
        }
        self.store.as_mut().ok_or(Status::INTERNAL_ERROR)
    }

    /// The metadata of these bytes of data is that of deallocated blocks.
    pub fn erase(&mut self, offset: u64, len: u32) -> Result<(), Status> {
        match &mut self.store {
            Some(store) => store.zero(offset >> METADATA_SHIFT, len >> METADATA_SHIFT),
            None => Ok(()),
        }
    }

    /// Metadata of the blocks of an I/O, as it is stored, without gaps.
    fn read(&mut self, data: &Store, m: &Metadata, io: &Io) -> Result<Vec<u8>, Status> {
        let (at, len) = (io.offset >> METADATA_SHIFT, io.len >> METADATA_SHIFT);
        let (mut medium, mut metadata) = (vec![0; len as usize], vec![0; m.size(io.len)]);
        self.store(data)?.read(at, len, |from, bytes| {
            medium[from as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        })?;
        m.gather(&medium, &mut metadata);
        Ok(metadata)
    }

    fn write(&mut self, data: &Store, m: &Metadata, io: &Io, metadata: &[u8]) -> Result<(), Status> {
        let (at, len) = (io.offset >> METADATA_SHIFT, io.len >> METADATA_SHIFT);
        let mut medium = vec![0; len as usize];
        m.spread(metadata, &mut medium);
        self.store(data)?.write(at, len, |from, into| {
            into.copy_from_slice(&medium[from as usize..][..into.len()]);
            Ok(())
        })
    }

    /// One I/O on blocks with metadata. A write that fails its checks has changed nothing.
    pub fn serve<H: Host>(&mut self, store: &mut Store, io: &Io, m: &Metadata, host: &mut H) -> Status {
        self.try_serve(store, io, m, host).err().unwrap_or(Status::SUCCESS)
    }

    fn try_serve<H: Host>(&mut self, store: &mut Store, io: &Io, m: &Metadata, host: &mut H) -> Result<(), Status> {
        let host = (host, io.owner, &io.data);
        match io.op {
            Op::Write => {
                let (mut data, mut metadata) = (vec![0; io.len as usize], vec![0; m.size(io.len)]);
                m.take(host, io.skip, &mut data, &mut metadata)?;
                // What can fail for want of room comes before what cannot be taken back.
                store.write(io.offset, io.len, |at, into| {
                    into.copy_from_slice(&data[at as usize..][..into.len()]);
                    Ok(())
                })?;
                self.write(store, m, io, &metadata)
            }
            Op::Read | Op::Compare | Op::Verify => {
                let mut metadata = self.read(store, m, io)?;
                let mut data = vec![0; io.len as usize];
                store.read(io.offset, io.len, |at, bytes| {
                    data[at as usize..][..bytes.len()].copy_from_slice(bytes);
                    Ok(())
                })?;
                match io.op {
                    Op::Read => m.give(host, io.skip, &data, &mut metadata),
                    Op::Compare => m.compare(host, io.skip, &data, &mut metadata),
                    _ => m.verify(io.skip, &data, &mut metadata),
                }
            }
            Op::WriteZeroes { deallocate } => {
                if deallocate { store.deallocate(io.offset, io.len) } else { store.zero(io.offset, io.len) }?;
                match m.zeroed(io.skip, io.len) {
                    Some(metadata) => self.write(store, m, io, &metadata),
                    None => self.erase(io.offset, io.len),
                }
            }
            Op::Deallocate => {
                store.deallocate(io.offset, io.len)?;
                self.erase(io.offset, io.len)
            }
            Op::Flush => Ok(()),
            // Copies are refused where there is metadata.
            Op::Copy => Err(Status::INTERNAL_ERROR),
        }
    }
}

impl Executor<'_> {
    /// An I/O on blocks with metadata; `false` where there is none to be moved.
    #[cold]
    pub(super) fn carry_out_whole<H: Host>(&mut self, io: &Io, host: &mut H) -> bool {
        if io.owner == Owner(u32::MAX) {
            // The drive's own: whatever it writes, the metadata there is that of deallocated blocks.
            let changes = !matches!(io.op, Op::Read | Op::Compare | Op::Verify | Op::Flush);
            if let (true, Err(status)) = (changes, self.beside.erase(io.offset, io.len)) {
                self.complete(io.slot, status, host);
                return true;
            }
            return false;
        }
        let Some(metadata) = self.machine.metadata_of(io.slot).copied() else { return false };
        let status = match &mut *self.backend {
            Backend::Store(store) => self.beside.serve(store, io, &metadata, host),
            _ => Status::INTERNAL_ERROR,
        };
        self.forget(io, status);
        self.complete(io.slot, status, host);
        true
    }
}
