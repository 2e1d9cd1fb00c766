//! A client as bytes, so that another process goes on where this one left off, in the middle of a message if need be.
//!
//! ```text
//!  Head │ configuration space │ a byte of each vector │ MSI-X table │ RegionRecord … │ RequestRecord … │ BellRecord … │ LateRecord …
//!       │ UnsentRecord, its bytes, … │ the message that is being received │ the one that waits │ CRC32C u32 of all before
//! ```
//! `docs/reference/formats.md` has the tables. Descriptors go beside it, in the order that [`SavedClient`] says; the controller itself is the drive's to
//! carry. Requests whose commands the drive has not seen are abandoned, and made again. Nothing in the bytes is trusted.

use super::device::VfioUserDevice;
use super::dma::{DmaAccess, DmaRegion, MAX_REGIONS, PAGE};
use super::inbox::{Inbox, MAX_FDS, Message};
use super::requests::{DmaRequest, DmaTicket, MOST, Requests};
use super::{DOORBELLS, DOORBELLS_END, DeviceShape, LEAST_TRANSFER, MAX_TRANSFER, Shared};
use alloc::vec::Vec;
use core::fmt;
use weir_spec::nvme::Cqe;
use weir_spec::nvme::tcp::Digest;
use weir_spec::pci::CONFIG_SPACE;
use weir_spec::pci::msix::ENTRY;
use weir_spec::vfio_user::{Capabilities, Command};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"WEIRVFIO";
/// Most messages of the server's own, and answers, that have not been sent.
const UNSENT: u32 = 1 << 16;
/// Most queue identifiers with doorbells.
const BELLS: u32 = ((DOORBELLS_END - DOORBELLS) / 8) as u32;

mod bit {
    pub const MAPPED_DOORBELLS: u32 = 1;
    pub const CLIENT: u32 = 1 << 1;
    pub const WRITE_MULTIPLE: u32 = 1 << 2;
    pub const TWIN_SOCKET: u32 = 1 << 3;
    pub const FUNCTION_MASK: u32 = 1 << 4;
    pub const REQUEST: u32 = 1 << 5;
    pub const PARKED: u32 = 1 << 6;
    pub const ALL: u32 = (1 << 7) - 1;
}

/// The fixed part.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// `WEIRVFIO`.
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Of all, the checksum included.
    pub length: U32,
    /// See `docs/reference/formats.md`.
    pub bits: U32,
    /// MSI-X vectors.
    pub vectors: U16,
    /// The identifier of the next request.
    pub next: U16,
    /// Length of the controller memory buffer.
    pub buffer: U64,
    /// Device serial number.
    pub serial: U64,
    /// What the client said of itself: descriptors of a message, bytes of a transfer, DMA regions, page sizes.
    pub client: [U64; 4],
    /// DMA regions.
    pub regions: U32,
    /// Requests without an answer.
    pub requests: U32,
    /// Queue identifiers with doorbells.
    pub bells: U32,
    /// Completions that wait for answers.
    pub late: U32,
    /// Messages that have not been sent as a whole.
    pub unsent: U32,
    /// Bytes of the message that is being received.
    pub inbox: U32,
    /// Of the message that waits.
    pub parked: U32,
    /// Descriptors of the one.
    pub inbox_fds: U16,
    /// Descriptors of the other.
    pub parked_fds: U16,
}

/// A DMA region.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RegionRecord {
    /// DMA address.
    pub address: U64,
    /// The region's length in bytes.
    pub len: U64,
    /// Where it begins in its file.
    pub offset: U64,
    /// Bit 0: may be read; 1: may be written; 2: has a descriptor.
    pub flags: U64,
}

/// A message of the server's own that has no answer yet.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RequestRecord {
    /// Whose; all ones: nobody waits for it any more.
    pub ticket: U64,
    /// Of what.
    pub address: U64,
    /// For how long it has been waiting, ns.
    pub age: U64,
    /// Bytes to be read or written.
    pub len: U32,
    /// Message identifier.
    pub id: U16,
    /// DMA_READ or DMA_WRITE.
    pub command: U16,
}

/// The doorbells of a queue identifier.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BellRecord {
    /// What was found last in the mapped doorbells: tail and head.
    pub seen: [U32; 2],
    /// How far the client has rung a queue whose commands are shown one by one.
    pub rung: U32,
    /// How far the drive has been told.
    pub told: U32,
    /// Bit 0: it had a submission queue; 1: a completion queue; 2: `rung` counts; 3: `told` counts.
    pub flags: U32,
}

/// A completion that waits for the client's answers to what its command has written.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LateRecord {
    /// Its requests.
    pub ticket: U64,
    /// Where it goes.
    pub address: U64,
    /// Itself.
    pub cqe: [u8; 16],
    /// Bit 0: `vector` counts; 1: a write has failed.
    pub flags: U16,
    /// What is signalled then.
    pub vector: U16,
    /// Writes without an answer.
    pub writes: U32,
}

/// A message that has not been sent as a whole; its bytes follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UnsentRecord {
    /// Bytes of it.
    pub len: U32,
    /// How many went.
    pub sent: U32,
    /// The file that goes with the first: 0 none, 1 the doorbells, 2 the memory buffer.
    pub with: U32,
}

const HEAD: usize = size_of::<Head>();
const _: () = assert!(HEAD == 104 && size_of::<RegionRecord>() == 32 && size_of::<RequestRecord>() == 32);
const _: () = assert!(size_of::<BellRecord>() == 20 && size_of::<LateRecord>() == 40);

/// A message on its way to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// All of it.
    pub bytes: Vec<u8>,
    /// How many of them went.
    pub sent: usize,
    /// The file that goes with its first byte.
    pub with: Option<Shared>,
}

/// The doorbells of a queue identifier, as far as the door knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bell {
    /// What was found last where they are mapped: tail and head.
    pub seen: (u32, u32),
    /// Whether there was a submission queue, and a completion queue.
    pub there: (bool, bool),
    /// How far the client has rung a queue whose commands are shown one by one.
    pub rung: Option<u32>,
    /// How far the drive has been told.
    pub told: Option<u32>,
}

/// A completion that waits for the client's answers to what its command has written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Late {
    /// Its requests.
    pub ticket: DmaTicket,
    /// Where it goes.
    pub address: u64,
    /// What is signalled then.
    pub vector: Option<u16>,
    /// Itself.
    pub cqe: Cqe,
    /// Writes without an answer.
    pub writes: u32,
    /// One of them has failed.
    pub failed: bool,
}

/// What there is of a client beside its device. Beside the bytes go, in this order, the descriptors of: the DMA regions that have one
/// ([`VfioUserDevice::mapped`]), by address; the vectors that have one ([`Msix::assigned`](super::Msix::assigned)); the request for the device, if
/// it has one; the message that is being received; the message that waits.
#[derive(Debug)]
pub struct SavedClient<F> {
    /// Of the message that is being received, as much as is here.
    pub inbox: Inbox<F>,
    /// A message that is here and waits.
    pub parked: Option<Message<F>>,
    /// There is an eventfd for requests to give the device back.
    pub request: bool,
    /// Not sent yet, in order.
    pub unsent: Vec<Unsent>,
    /// By queue identifier.
    pub bells: Vec<Bell>,
    /// Completions that wait.
    pub late: Vec<Late>,
}

/// Why bytes are no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedClientError {
    /// They do not begin as such bytes do.
    Foreign,
    /// They are of another release.
    Version(u32),
    /// Their length or their checksum is wrong, or they contradict themselves.
    Damaged,
    /// The device shows something else by now.
    Shape,
}

impl fmt::Display for SavedClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SavedClientError::Foreign => f.write_str("it is not the state of a vfio-user client"),
            SavedClientError::Version(version) => {
                write!(f, "it has layout {version} and this release reads layout {VERSION}")
            }
            SavedClientError::Damaged => {
                f.write_str("it is damaged: its length, its checksum or what it says is wrong")
            }
            SavedClientError::Shape => {
                f.write_str("its device has other vectors, doorbells, memory or another number by now")
            }
        }
    }
}

impl core::error::Error for SavedClientError {}

/// Takes the front off.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], SavedClientError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(SavedClientError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn record<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, SavedClientError> {
        T::read_from_bytes(self.take(size_of::<T>())?).map_err(|_| SavedClientError::Damaged)
    }
}

fn shared(with: Option<Shared>) -> u32 {
    match with {
        None => 0,
        Some(Shared::Doorbells) => 1,
        Some(Shared::Buffer) => 2,
    }
}

impl VfioUserDevice {
    /// The DMA regions that have a descriptor, by address.
    pub fn mapped(&self) -> impl Iterator<Item = &DmaRegion> {
        self.regions.all().filter(|r| r.mapped)
    }

    /// The device and its client as bytes.
    pub fn save<D: Digest, F>(&self, now: Nanos, client: &SavedClient<F>) -> Vec<u8> {
        let (inbox, inbox_fds) = client.inbox.partial();
        let parked = client.parked.as_ref().map(Message::bytes).unwrap_or_default();
        let says = self.client.unwrap_or_default();
        let bits = [
            (bit::MAPPED_DOORBELLS, self.shape.mapped_doorbells),
            (bit::CLIENT, self.client.is_some()),
            (bit::WRITE_MULTIPLE, says.write_multiple),
            (bit::TWIN_SOCKET, says.twin_socket),
            (bit::FUNCTION_MASK, self.msix.function_mask()),
            (bit::REQUEST, client.request),
            (bit::PARKED, client.parked.is_some()),
        ];
        let head = Head {
            magic: MAGIC,
            version: U32::new(VERSION),
            length: U32::new(0),
            bits: U32::new(bits.iter().filter(|(_, is)| *is).fold(0, |all, (bit, _)| all | bit)),
            vectors: U16::new(self.shape.vectors),
            next: U16::new(self.requests.next_id()),
            buffer: U64::new(self.shape.buffer),
            serial: U64::new(self.shape.serial),
            client: [says.max_msg_fds, says.max_data_xfer_size, says.max_dma_maps, says.pgsizes].map(U64::new),
            regions: U32::new(self.regions.len() as u32),
            requests: U32::new(self.requests.len() as u32),
            bells: U32::new(client.bells.len() as u32),
            late: U32::new(client.late.len() as u32),
            unsent: U32::new(client.unsent.len() as u32),
            inbox: U32::new(inbox.len() as u32),
            parked: U32::new(parked.len() as u32),
            inbox_fds: U16::new(inbox_fds.len() as u16),
            parked_fds: U16::new(client.parked.as_ref().map_or(0, |m| m.fds.len() as u16)),
        };
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(self.config.bytes());
        self.msix.write_saved(&mut bytes);
        self.regions.all().for_each(|r| bytes.extend_from_slice(RegionRecord::of(r).as_bytes()));
        let waits = |ticket: DmaTicket| client.late.iter().any(|late| late.ticket == ticket);
        for (id, request) in self.requests.all() {
            let ticket = if waits(request.ticket) { request.ticket } else { Requests::NOBODY };
            bytes.extend_from_slice(RequestRecord::of(now, id, &DmaRequest { ticket, ..*request }).as_bytes());
        }
        client.bells.iter().for_each(|bell| bytes.extend_from_slice(BellRecord::of(bell).as_bytes()));
        client.late.iter().for_each(|late| bytes.extend_from_slice(LateRecord::of(late).as_bytes()));
        for Unsent { bytes: message, sent, with } in &client.unsent {
            let (len, sent) = (U32::new(message.len() as u32), U32::new(*sent as u32));
            bytes.extend_from_slice(UnsentRecord { len, sent, with: U32::new(shared(*with)) }.as_bytes());
            bytes.extend_from_slice(message);
        }
        bytes.extend_from_slice(inbox);
        bytes.extend_from_slice(&parked);
        let length = (bytes.len() + 4) as u32;
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let crc = D::append(0, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The device that [`save`](Self::save) has written, which has to show the same by now, and its client; `fds` are the descriptors
    /// that went beside it. What is left of them are those of regions, vectors and requests.
    ///
    /// # Errors
    /// The bytes are no client, or of another release, or of another device.
    pub fn restore<D: Digest, F>(
        now: Nanos,
        bytes: &[u8],
        shape: DeviceShape,
        mut fds: Vec<F>,
    ) -> Result<(Self, SavedClient<F>, Vec<F>), SavedClientError> {
        let damaged = SavedClientError::Damaged;
        if !bytes.starts_with(&MAGIC) {
            return Err(SavedClientError::Foreign);
        }
        let version = bytes.get(8..12).and_then(|v| v.first_chunk()).map(|v| u32::from_le_bytes(*v)).ok_or(damaged)?;
        if version != VERSION {
            return Err(SavedClientError::Version(version));
        }
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(damaged)?;
        let (head, rest) = Head::read_from_prefix(body).map_err(|_| damaged)?;
        if head.length.get() as usize != bytes.len() || D::append(0, body).to_le_bytes() != *crc {
            return Err(damaged);
        }
        let mut rest = Rest(rest);
        let mut device = Self::begun(&head, shape, &mut rest)?;
        if head.requests.get() as usize > MOST
            || head.bells.get() > BELLS
            || head.unsent.get() > UNSENT
            || head.late.get() > head.requests.get()
        {
            return Err(damaged);
        }
        device.read_requests(now, &head, &mut rest)?;
        let bells = (0..head.bells.get()).map(|_| Ok(rest.record::<BellRecord>()?.bell()));
        let bells = bells.collect::<Result<_, SavedClientError>>()?;
        let mut late = Vec::new();
        for _ in 0..head.late.get() {
            late.push(device.read_late(&late, &rest.record()?)?);
        }
        let unsent = (0..head.unsent.get()).map(|_| read_unsent(&mut rest)).collect::<Result<_, _>>()?;
        let (inbox, parked) = (rest.take(head.inbox.get() as usize)?, rest.take(head.parked.get() as usize)?);
        let request = head.bits.get() & bit::REQUEST != 0;
        let own = device.mapped().count() + device.msix.assigned().count() + usize::from(request);
        let with = [usize::from(head.inbox_fds.get()), usize::from(head.parked_fds.get())];
        if !rest.0.is_empty() || fds.len() != own + with[0] + with[1] || with.iter().any(|n| *n > MAX_FDS) {
            return Err(damaged);
        }
        let parked_fds = fds.split_off(own + with[0]);
        let inbox_fds = fds.split_off(own);
        let (inbox, None) = gathered(inbox, inbox_fds)? else { return Err(damaged) };
        let parked = match gathered(parked, parked_fds)? {
            (left, message) if left.partial().0.is_empty() && left.partial().1.is_empty() => message,
            _ => return Err(damaged),
        };
        if parked.is_some() != (head.bits.get() & bit::PARKED != 0) {
            return Err(damaged);
        }
        Ok((device, SavedClient { inbox, parked, request, unsent, bells, late }, fds))
    }

    /// The device without its requests.
    fn begun(head: &Head, shape: DeviceShape, rest: &mut Rest<'_>) -> Result<Self, SavedClientError> {
        let bits = head.bits.get();
        let is = |bit: u32| bits & bit != 0;
        if bits & !bit::ALL != 0 {
            return Err(SavedClientError::Damaged);
        }
        let mut device = Self::new(shape);
        let shown = DeviceShape {
            vectors: head.vectors.get(),
            mapped_doorbells: is(bit::MAPPED_DOORBELLS),
            buffer: head.buffer.get(),
            serial: head.serial.get(),
        };
        if shown != device.shape {
            return Err(SavedClientError::Shape);
        }
        let [max_msg_fds, max_data_xfer_size, max_dma_maps, pgsizes] = head.client.map(U64::get);
        let (write_multiple, twin_socket) = (is(bit::WRITE_MULTIPLE), is(bit::TWIN_SOCKET));
        let says = Capabilities { max_msg_fds, max_data_xfer_size, max_dma_maps, pgsizes, write_multiple, twin_socket };
        device.client = is(bit::CLIENT).then_some(says);
        if device.client.is_some() {
            if max_data_xfer_size < LEAST_TRANSFER.into() {
                return Err(SavedClientError::Damaged);
            }
            device.requests.limit(max_data_xfer_size);
        }
        device.config.read_saved(rest.take(CONFIG_SPACE)?);
        let vectors = usize::from(device.shape.vectors);
        let flags = rest.take(vectors)?;
        let table = rest.take(vectors * ENTRY)?;
        device.msix.read_saved(flags, table, is(bit::FUNCTION_MASK)).ok_or(SavedClientError::Damaged)?;
        if head.regions.get() > MAX_REGIONS {
            return Err(SavedClientError::Damaged);
        }
        for _ in 0..head.regions.get() {
            let region = rest.record::<RegionRecord>()?.region().ok_or(SavedClientError::Damaged)?;
            device.regions.admits(&region).map_err(|_| SavedClientError::Damaged)?;
            device.regions.insert(region);
        }
        device.messaged = device.regions.any_unmapped();
        Ok(device)
    }

    fn read_requests(&mut self, now: Nanos, head: &Head, rest: &mut Rest<'_>) -> Result<(), SavedClientError> {
        for _ in 0..head.requests.get() {
            let record = rest.record::<RequestRecord>()?;
            let command = Command(record.command.get());
            let known = matches!(command, Command::DMA_READ | Command::DMA_WRITE);
            if !known || record.len.get() > MAX_TRANSFER {
                return Err(SavedClientError::Damaged);
            }
            let request = DmaRequest {
                ticket: DmaTicket(record.ticket.get()),
                command,
                address: record.address.get(),
                len: record.len.get(),
                since: now.saturating_sub(Nanos(record.age.get())),
            };
            self.requests.put_back(record.id.get(), request).ok_or(SavedClientError::Damaged)?;
        }
        self.requests.go_on_with(head.next.get());
        Ok(())
    }

    fn read_late(&self, before: &[Late], record: &LateRecord) -> Result<Late, SavedClientError> {
        let (flags, ticket) = (record.flags.get(), DmaTicket(record.ticket.get()));
        let waits = |r: &&DmaRequest| r.ticket == ticket && r.command == Command::DMA_WRITE;
        let asked = self.requests.all().map(|(_, r)| r).filter(waits).count();
        // It waits for just the requests that there are.
        let sane = flags & !3 == 0
            && asked > 0
            && asked == record.writes.get() as usize
            && before.iter().all(|late| late.ticket != ticket)
            && ticket != Requests::NOBODY
            && record.vector.get() < self.shape.vectors;
        if !sane {
            return Err(SavedClientError::Damaged);
        }
        Ok(Late {
            ticket,
            address: record.address.get(),
            vector: (flags & 1 != 0).then_some(record.vector.get()),
            cqe: Cqe::read_from_bytes(&record.cqe).map_err(|_| SavedClientError::Damaged)?,
            writes: record.writes.get(),
            failed: flags & 2 != 0,
        })
    }
}

fn read_unsent(rest: &mut Rest<'_>) -> Result<Unsent, SavedClientError> {
    let record = rest.record::<UnsentRecord>()?;
    let with = match record.with.get() {
        0 => None,
        1 => Some(Shared::Doorbells),
        2 => Some(Shared::Buffer),
        _ => return Err(SavedClientError::Damaged),
    };
    let bytes = rest.take(record.len.get() as usize)?.to_vec();
    let sent = record.sent.get() as usize;
    if sent < bytes.len() { Ok(Unsent { bytes, sent, with }) } else { Err(SavedClientError::Damaged) }
}

/// An inbox that has received these bytes, and the message that they are if they are a whole one.
///
/// # Errors
/// More than one message, or descriptors without a byte that they came with.
pub fn gathered<F>(mut bytes: &[u8], fds: Vec<F>) -> Result<(Inbox<F>, Option<Message<F>>), SavedClientError> {
    let (mut inbox, mut message) = (Inbox::default(), None);
    let mut fds = Some(fds);
    while !bytes.is_empty() {
        let space = inbox.space();
        let n = space.len().min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        bytes = &bytes[n..];
        message = inbox.advance(n, fds.take().into_iter().flatten()).map_err(|_| SavedClientError::Damaged)?;
        if message.is_some() && !bytes.is_empty() {
            return Err(SavedClientError::Damaged);
        }
    }
    if fds.is_some_and(|fds| !fds.is_empty()) { Err(SavedClientError::Damaged) } else { Ok((inbox, message)) }
}

impl RegionRecord {
    fn of(r: &DmaRegion) -> Self {
        let flags = u64::from(r.access.reads()) | u64::from(r.access.writes()) << 1 | u64::from(r.mapped) << 2;
        let [address, len, offset, flags] = [r.address, r.len, r.offset, flags].map(U64::new);
        Self { address, len, offset, flags }
    }

    fn region(&self) -> Option<DmaRegion> {
        let access = match self.flags.get() & 3 {
            1 => DmaAccess::Read,
            2 => DmaAccess::Write,
            3 => DmaAccess::ReadWrite,
            _ => return None,
        };
        let (address, len, offset) = (self.address.get(), self.len.get(), self.offset.get());
        let ends = address.checked_add(len).is_some() && offset.checked_add(len).is_some();
        let sane = len > 0 && (address | len) % PAGE == 0 && ends && self.flags.get() < 8;
        sane.then_some(DmaRegion { address, len, offset, access, mapped: self.flags.get() & 4 != 0 })
    }
}

impl RequestRecord {
    fn of(now: Nanos, id: u16, r: &DmaRequest) -> Self {
        Self {
            ticket: U64::new(r.ticket.0),
            address: U64::new(r.address),
            age: U64::new(now.saturating_sub(r.since).get()),
            len: U32::new(r.len),
            id: U16::new(id),
            command: U16::new(r.command.0),
        }
    }
}

impl BellRecord {
    fn of(bell: &Bell) -> Self {
        let flags = [bell.there.0, bell.there.1, bell.rung.is_some(), bell.told.is_some()];
        Self {
            seen: [U32::new(bell.seen.0), U32::new(bell.seen.1)],
            rung: U32::new(bell.rung.unwrap_or(0)),
            told: U32::new(bell.told.unwrap_or(0)),
            flags: U32::new((0..).zip(flags).fold(0, |all, (bit, is)| all | u32::from(is) << bit)),
        }
    }

    fn bell(&self) -> Bell {
        let is = |bit: u32| self.flags.get() >> bit & 1 == 1;
        Bell {
            seen: (self.seen[0].get(), self.seen[1].get()),
            there: (is(0), is(1)),
            rung: is(2).then_some(self.rung.get()),
            told: is(3).then_some(self.told.get()),
        }
    }
}

impl LateRecord {
    fn of(late: &Late) -> Self {
        let mut cqe = [0; 16];
        cqe.copy_from_slice(late.cqe.as_bytes());
        Self {
            ticket: U64::new(late.ticket.0),
            address: U64::new(late.address),
            cqe,
            flags: U16::new(u16::from(late.vector.is_some()) | u16::from(late.failed) << 1),
            vector: U16::new(late.vector.unwrap_or(0)),
            writes: U32::new(late.writes),
        }
    }
}
