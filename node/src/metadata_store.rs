//! The metadata of a drive's blocks, on a medium of its own beside the data: a byte for 64. It is made when the first namespace is
//! formatted with metadata: in memory beside data that answers at once, in a file beside a file.

use crate::device::OpenError;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_config::{DeviceConfig, MediaConfig};
use weir_controller::{Data, Host, Io, METADATA_SHIFT, Metadata, Op, Owner};
use weir_spec::nvme::Status;
use weir_sys::media::{MetadataFile, Null, Ram, Store};

/// Where metadata lies.
enum Medium {
    Store(Store),
    File(MetadataFile),
}

/// Metadata of a drive, or what is needed to make room for it.
pub(crate) struct Beside {
    name: String,
    /// Bytes of data.
    capacity: u64,
    /// The file with the data, if that is where it is.
    media: Option<PathBuf>,
    medium: Option<Medium>,
}

impl Beside {
    pub fn new(name: &str, capacity: u64) -> Self {
        Self { name: format!("{name}-metadata"), capacity, media: None, medium: None }
    }

    /// Of a drive that is opened. `needed`: it has namespaces with metadata.
    ///
    /// # Errors
    /// The file with the metadata cannot be used, or is missing.
    pub fn open(config: &DeviceConfig, capacity: u64, needed: bool) -> Result<Self, OpenError> {
        let mut beside = Self::new(&config.name, capacity);
        if let MediaConfig::File(path) = &config.media {
            beside.medium = MetadataFile::find(path, capacity, METADATA_SHIFT, needed)?.map(Medium::File);
            beside.media = Some(path.clone());
        }
        Ok(beside)
    }

    /// Refuses what belongs to a drive that is gone.
    ///
    /// # Errors
    /// Says which file is alone.
    pub fn check_pair(path: &Path, is_new: bool) -> Result<(), OpenError> {
        Ok(MetadataFile::check_pair(path, is_new)?)
    }

    /// Whether there is any.
    pub fn is_made(&self) -> bool {
        self.medium.is_some()
    }

    /// Which memory it is in, as [`Device::medium`](crate::device::Device::medium) says of data.
    pub fn medium(&self) -> u64 {
        match &self.medium {
            Some(Medium::Store(store)) => store.identity(),
            Some(Medium::File(_)) | None => 0,
        }
    }

    /// The file that is to be made durable with the data's.
    pub fn file(&self) -> Option<Arc<OwnedFd>> {
        match &self.medium {
            Some(Medium::File(file)) => Some(Arc::clone(file.file())),
            _ => None,
        }
    }

    /// Makes the medium, if there is none yet.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn make(&mut self) -> Result<(), Status> {
        self.made(None).map(drop)
    }

    /// Makes room, as the data's medium is: one that forgets data forgets metadata as well. `data`: one that answers at once.
    fn made(&mut self, data: Option<&Store>) -> Result<&mut Medium, Status> {
        if self.medium.is_none() {
            let capacity = (self.capacity >> METADATA_SHIFT).max(1);
            let full = |e: &dyn std::fmt::Display| {
                tracing::error!("no room for metadata: {e}");
                Status::CAPACITY_EXCEEDED
            };
            let made = match (data, &self.media) {
                (Some(Store::Null(_)), _) => Medium::Store(Store::Null(Null::new(capacity))),
                (Some(Store::Ram(_)), _) => {
                    Medium::Store(Store::Ram(Ram::create(&self.name, capacity).map_err(|e| full(&e))?))
                }
                (None, Some(path)) => {
                    Medium::File(MetadataFile::create(path, self.capacity, METADATA_SHIFT).map_err(|e| full(&e))?)
                }
                (None, None) => return Err(Status::INTERNAL_ERROR),
            };
            self.medium = Some(made);
        }
        self.medium.as_mut().ok_or(Status::INTERNAL_ERROR)
    }

    /// The metadata of these bytes of data is that of deallocated blocks.
    pub fn erase(&mut self, offset: u64, len: u32) -> Result<(), Status> {
        let (at, len) = (offset >> METADATA_SHIFT, len >> METADATA_SHIFT);
        match &mut self.medium {
            Some(Medium::Store(store)) => store.zero(at, len),
            Some(Medium::File(file)) => file.zero(at, len),
            None => Ok(()),
        }
    }

    /// Metadata of `len` bytes of blocks from `offset` on, as it is stored, without gaps.
    pub fn read(&self, m: &Metadata, offset: u64, len: u32) -> Result<Vec<u8>, Status> {
        let at = offset >> METADATA_SHIFT;
        let (mut medium, mut metadata) = (vec![0; (len >> METADATA_SHIFT) as usize], vec![0; m.size(len)]);
        match &self.medium {
            Some(Medium::Store(store)) => store.read(at, medium.len() as u32, |from, bytes| {
                medium[from as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            })?,
            Some(Medium::File(file)) => file.read(at, &mut medium)?,
            None => {}
        }
        m.gather(&medium, &mut metadata);
        Ok(metadata)
    }

    /// Stores metadata of the blocks from `offset` on.
    pub fn write(&mut self, data: Option<&Store>, m: &Metadata, offset: u64, metadata: &[u8]) -> Result<(), Status> {
        let mut medium = vec![0; m.places(metadata.len())];
        m.spread(metadata, &mut medium);
        let at = offset >> METADATA_SHIFT;
        match self.made(data)? {
            Medium::Store(store) => store.write(at, medium.len() as u32, |from, into| {
                into.copy_from_slice(&medium[from as usize..][..into.len()]);
                Ok(())
            }),
            Medium::File(file) => file.write(at, &medium),
        }
    }

    /// One I/O on blocks with metadata, of a medium that answers at once. A write that fails its checks has changed nothing.
    pub fn serve<H: Host>(&mut self, store: &mut Store, io: &Io, both: &Both, host: &mut H) -> Status {
        self.try_serve(store, io, both, host).err().unwrap_or(Status::SUCCESS)
    }

    fn try_serve<H: Host>(&mut self, store: &mut Store, io: &Io, both: &Both, host: &mut H) -> Result<(), Status> {
        let (host, m) = ((host, io.owner, &io.data), &both.metadata);
        match io.op {
            Op::Write => {
                let (mut data, mut metadata) = (vec![0; io.len as usize], vec![0; m.size(io.len)]);
                m.take(host, io.skip, &mut data, &mut metadata)?;
                // What can fail for want of room comes before what cannot be taken back.
                put(store, io, &data)?;
                self.write(Some(store), m, io.offset, &metadata)
            }
            Op::Read | Op::Compare | Op::Verify => {
                let mut metadata = self.read(m, io.offset, io.len)?;
                let data = get(store, io.offset, io.len)?;
                both.hand_over(io, &data, &mut metadata, host)
            }
            Op::WriteZeroes { deallocate } => {
                if deallocate { store.deallocate(io.offset, io.len) } else { store.zero(io.offset, io.len) }?;
                self.zeroed(Some(store), io, m)
            }
            Op::Deallocate => {
                store.deallocate(io.offset, io.len)?;
                self.erase(io.offset, io.len)
            }
            Op::Flush => Ok(()),
            Op::Copy => {
                let data = get(store, both.from(io)?, io.len)?;
                let metadata = both.carry_over(self, io, &data)?;
                put(store, io, &data)?;
                metadata.map_or(Ok(()), |metadata| self.write(Some(store), m, io.offset, &metadata))
            }
        }
    }

    /// The metadata of blocks that become zeroes.
    pub fn zeroed(&mut self, data: Option<&Store>, io: &Io, m: &Metadata) -> Result<(), Status> {
        match m.zeroed(io.skip, io.len) {
            Some(metadata) => self.write(data, m, io.offset, &metadata),
            None => self.erase(io.offset, io.len),
        }
    }
}

/// Metadata of the blocks that an I/O moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Both {
    /// Of a copy: of what it writes, or, where that has none, of what it reads.
    pub metadata: Metadata,
    /// Of a copy: of what it reads, and of what it writes.
    pub source: Option<Metadata>,
    pub target: Option<Metadata>,
}

impl Both {
    /// Where a copy reads.
    pub fn from(&self, io: &Io) -> Result<u64, Status> {
        match io.data.get() {
            Data::Media(from) => Ok(from),
            _ => Err(Status::INTERNAL_ERROR),
        }
    }

    /// What was read, of a read, a comparison or a verification; `metadata` as it is stored.
    pub fn hand_over<H: Host>(
        &self,
        io: &Io,
        data: &[u8],
        metadata: &mut [u8],
        host: (&mut H, Owner, &weir_controller::DataPointer),
    ) -> Result<(), Status> {
        match io.op {
            Op::Read => self.metadata.give(host, io.skip, data, metadata),
            Op::Compare => self.metadata.compare(host, io.skip, data, metadata),
            _ => self.metadata.verify(io.skip, data, metadata),
        }
    }

    /// A copy has read its data: the metadata of what it has read is checked, and that of what it writes is as it is to be stored.
    pub fn carry_over(&self, beside: &Beside, io: &Io, data: &[u8]) -> Result<Option<Vec<u8>>, Status> {
        let mut metadata = match &self.source {
            Some(source) => {
                let mut metadata = beside.read(source, self.from(io)?, io.len)?;
                source.verify(0, data, &mut metadata)?;
                metadata
            }
            None => vec![0; self.metadata.size(io.len)],
        };
        let Some(target) = &self.target else { return Ok(None) };
        target.put(0, data, &mut metadata)?;
        Ok(Some(metadata))
    }
}

fn get(store: &Store, offset: u64, len: u32) -> Result<Vec<u8>, Status> {
    let mut data = vec![0; len as usize];
    store.read(offset, len, |at, bytes| {
        data[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    })?;
    Ok(data)
}

fn put(store: &mut Store, io: &Io, data: &[u8]) -> Result<(), Status> {
    store.write(io.offset, io.len, |at, into| {
        into.copy_from_slice(&data[at as usize..][..into.len()]);
        Ok(())
    })
}
