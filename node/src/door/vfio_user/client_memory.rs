//! What commands and messages of one client reach: its memory, and the controller memory buffer.

use super::message_dma::MessageDma;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use weir_controller::{ControllerHandle, MemoryBuffer, Shadow, ShadowPages, Subsystem};
use weir_session::memory::{MapError, Memory};
use weir_session::vfio_user::{DmaAccess, DmaRegion, Port};
use weir_session::vhost_user::GuestRegion;
use weir_spec::nvme::Status;
use weir_sys::memory::{GuestMemory, sealed_file};

/// The controller memory buffer.
pub(super) struct Buffer {
    pub(super) file: OwnedFd,
    /// Its bytes, from address 0 on.
    pub(super) memory: GuestMemory,
    /// Where the client sees it, if it has said so.
    pub(super) at: Option<MemoryBuffer>,
}

impl Buffer {
    pub(super) fn new(len: u64) -> io::Result<Self> {
        Self::open(sealed_file("weir-cmb", len)?, len)
    }

    /// The file of such a buffer.
    pub(super) fn open(file: OwnedFd, len: u64) -> io::Result<Self> {
        let mut memory = GuestMemory::new();
        let all = GuestRegion { guest: 0, len, user: 0, offset: 0 };
        memory.add_for(all, file.try_clone()?, DmaAccess::ReadWrite).map_err(io::Error::other)?;
        Ok(Self { file, memory, at: None })
    }
}

/// A descriptor that a client has handed over.
pub(super) struct Handed {
    pub(super) fd: OwnedFd,
    /// What the keeper holds it as; 0: it does not.
    pub(super) name: u64,
}

/// The descriptors that a client has handed over.
#[derive(Default)]
pub(super) struct Files {
    /// Of DMA regions, by address.
    regions: BTreeMap<u64, Handed>,
    /// Of vectors.
    vectors: BTreeMap<u16, Handed>,
    request: Option<Handed>,
    /// Names that are not wanted any more.
    pub(super) gone: Vec<u64>,
    /// Some have come or gone since somebody [looked](Self::news).
    changed: bool,
}

impl Files {
    pub(super) fn set_region(&mut self, address: u64, fd: Option<OwnedFd>) {
        let old = match fd {
            Some(fd) => self.regions.insert(address, Handed { fd, name: 0 }),
            None => self.regions.remove(&address),
        };
        self.forget(old);
    }

    pub(super) fn set_vector(&mut self, vector: u16, fd: Option<OwnedFd>) {
        let old = match fd {
            Some(fd) => self.vectors.insert(vector, Handed { fd, name: 0 }),
            None => self.vectors.remove(&vector),
        };
        self.forget(old);
    }

    pub(super) fn set_request(&mut self, fd: Option<OwnedFd>) {
        let old = std::mem::replace(&mut self.request, fd.map(|fd| Handed { fd, name: 0 }));
        self.forget(old);
    }

    pub(super) fn has_request(&self) -> bool {
        self.request.is_some()
    }

    fn forget(&mut self, old: Option<Handed>) {
        self.changed = true;
        self.gone.extend(old.map(|old| old.name).filter(|name| *name != 0));
    }

    /// All of them, in the order that [`Client`](weir_session::vfio_user::Client) says.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Handed> {
        self.regions.values_mut().chain(self.vectors.values_mut()).chain(&mut self.request)
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = OwnedFd> {
        let all = self.regions.into_values().chain(self.vectors.into_values()).chain(self.request);
        all.map(|handed| handed.fd)
    }

    /// Whether some have come or gone since the last time.
    pub(super) fn news(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

/// What commands reach.
#[derive(Clone, Copy)]
pub(super) struct Homes<'a> {
    pub(super) memory: &'a GuestMemory,
    pub(super) buffer: Option<&'a Buffer>,
}

impl<'a> Homes<'a> {
    /// Where `len` bytes at an address are.
    #[inline]
    pub(super) fn of(self, address: u64, len: usize) -> Result<(&'a GuestMemory, u64), Status> {
        match self.buffer {
            None => Ok((self.memory, address)),
            Some(buffer) => self.beside(buffer, address, len),
        }
    }

    fn beside(self, buffer: &'a Buffer, address: u64, len: usize) -> Result<(&'a GuestMemory, u64), Status> {
        let inside = buffer.at.map_or(Ok(None), |at| at.offset(address, len as u64))?;
        Ok(inside.map_or((self.memory, address), |offset| (&buffer.memory, offset)))
    }
}

impl Homes<'_> {
    /// How many of the `len` bytes at an address are in one piece here; 0 if the first one is not.
    pub(super) fn prefix(self, address: u64, len: u32) -> u32 {
        self.of(address, len as usize).map_or(0, |(memory, at)| memory.prefix(at, len))
    }

    /// A submission queue entry.
    #[inline]
    pub(super) fn fetch(self, address: u64) -> Result<[u64; 8], Status> {
        let mut words = [0; 8];
        let (memory, address) = self.of(address, 64)?;
        let window = memory.window(address, 64).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        for (i, word) in words.iter_mut().enumerate() {
            let loaded = memory.load64(&window, i * 8, Ordering::Relaxed);
            *word = loaded.map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        }
        Ok(words)
    }
}

/// Maps a DMA region, and keeps its descriptor where somebody may want it.
pub(super) fn map(
    memory: &mut GuestMemory,
    files: Option<&mut Files>,
    region: &DmaRegion,
    fd: OwnedFd,
) -> Result<(), MapError> {
    let DmaRegion { address, len, offset, access, .. } = *region;
    let region = GuestRegion { guest: address, len, user: address, offset };
    let Some(files) = files else { return memory.add_for(region, fd, access) };
    let again = fd.try_clone().map_err(|e| MapError::System(e.raw_os_error().unwrap_or_default()))?;
    memory.add_for(region, fd, access)?;
    files.set_region(address, Some(again));
    Ok(())
}

/// What the device reaches while it handles a message.
pub(super) struct Reach<'a> {
    pub(super) memory: &'a mut GuestMemory,
    pub(super) files: Option<&'a mut Files>,
    pub(super) buffer: Option<&'a Buffer>,
    pub(super) drive: &'a Subsystem,
    pub(super) controller: ControllerHandle,
}

impl Port<OwnedFd> for Reach<'_> {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        self.drive.register(self.controller, offset, size)
    }

    fn read_buffer(&mut self, offset: u64, into: &mut [u8]) {
        // Inside, as the port says; all of it is mapped.
        let _ = self.buffer.map(|b| b.memory.read(offset, into));
    }

    fn write_buffer(&mut self, offset: u64, from: &[u8]) {
        let _ = self.buffer.map(|b| b.memory.write(offset, from));
    }

    fn map(&mut self, region: &DmaRegion, fd: Option<OwnedFd>) -> Result<(), MapError> {
        // Without one it is reached by messages.
        fd.map_or(Ok(()), |fd| map(self.memory, self.files.as_deref_mut(), region, fd))
    }

    fn unmap(&mut self, region: &DmaRegion) {
        self.memory.forget(region.address, region.len);
        if let Some(files) = &mut self.files {
            files.set_region(region.address, None);
        }
    }
}

/// A client's shadow doorbells in its memory.
pub(super) struct Pages<'a> {
    pub(super) homes: Homes<'a>,
    pub(super) shadow: Shadow,
    /// Who says how far the drive may see a queue.
    pub(super) gate: Option<&'a MessageDma>,
}

impl ShadowPages for Pages<'_> {
    fn load(&mut self, index: u32) -> Result<u32, Status> {
        if let Some(told) = self.gate.filter(|_| index % 2 == 0).and_then(|gate| gate.told(index as u16 / 2)) {
            return Ok(told);
        }
        let address = self.shadow.doorbells.wrapping_add(u64::from(index) * 4);
        let (memory, address) = self.homes.of(address, 4)?;
        let window = memory.window(address, 4);
        let loaded = window.and_then(|window| memory.load32(&window, 0, Ordering::Acquire));
        loaded.map_err(|_| Status::DATA_TRANSFER_ERROR)
    }

    /// Event indexes have 16 bits; the upper half is 0 since the page was set up.
    fn store(&mut self, index: u32, value: u32) -> Result<(), Status> {
        let address = self.shadow.event_indexes.wrapping_add(u64::from(index) * 4);
        let (memory, address) = self.homes.of(address, 4)?;
        let window = memory.window(address, 4);
        let stored = window.and_then(|window| memory.store16(&window, 0, value as u16, Ordering::Release));
        stored.map_err(|_| Status::DATA_TRANSFER_ERROR)
    }

    fn fence(&mut self) {
        self.homes.memory.fence(Ordering::SeqCst);
    }
}
