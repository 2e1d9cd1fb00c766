//! A client as bytes, so that another process goes on where this one left off, in the middle of a message if need be.
//!
//! ```text
//!  Head │ configuration space │ a byte of each vector │ MSI-X table │ DmaRegion … │ UnansweredRecord … │ BellRecord … │ LateRecord …
//!       │ UnsentRecord, its bytes, … │ the message that is being received │ the one that waits │ CRC32C u32 of all before
//! ```
//! `docs/reference/formats.md` has the tables. Descriptors go beside it, in the order that [`SavedClient`] says; the controller itself is the drive's to
//! carry. Requests whose commands the drive has not seen are abandoned, and made again. Nothing in the bytes is trusted.

use super::device::VfioUserDevice;
use super::dma::{DmaAccess, DmaRegion, MAX_REGIONS, PAGE};
use super::inbox::{Inbox, MAX_FDS, Message};
use super::requests::{DmaRequest, DmaTicket, MOST, Requests};
use super::{DOORBELLS, DOORBELLS_END, DeviceShape, LEAST_TRANSFER, MAX_TRANSFER, Shared};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{
    Ago, Code, Coder, Damaged, Flags, Reader, SavedError, SavedFormat, Unless, Writer, coded_as, fields, numbered,
    record,
};
use weir_spec::nvme::Cqe;
use weir_spec::nvme::tcp::Digest;
use weir_spec::pci::CONFIG_SPACE;
use weir_spec::vfio_user::{Capabilities, Command};
use weir_units::Nanos;

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
const FORMAT: SavedFormat = SavedFormat::new(b"WEIRVFIO", VERSION, "the state of a vfio-user client");
const SHOWS_ANOTHER: &str = "its device has other vectors, doorbells, memory or another number by now";
/// Most messages of the server's own, and answers, that have not been sent.
const UNSENT: u32 = 1 << 16;
/// Most queue identifiers with doorbells.
const BELLS: u32 = ((DOORBELLS_END - DOORBELLS) / 8) as u32;

/// The fixed part: the device as it is shown, what the client says of itself, and how much of everything follows.
#[derive(Default)]
pub(super) struct Head {
    shape: DeviceShape,
    has_client: bool,
    pub says: Capabilities,
    function_mask: bool,
    request: bool,
    has_parked: bool,
    next: u16,
    pub regions: u32,
    pub requests: u32,
    pub bells: u32,
    pub late: u32,
    pub unsent: u32,
    pub inbox: u32,
    pub parked: u32,
    inbox_fds: u16,
    pub parked_fds: u16,
}

fields! { pub(super) Head: put_head, get_head, head_rows {
    [shape.mapped_doorbells, has_client, says.write_multiple, says.twin_socket, function_mask, request, has_parked] as Flags<u32>:
        "doorbells can be mapped, the client has said its version, it takes REGION_WRITE_MULTI, it has a twin socket, MSI-X function mask, there is an eventfd for requests, a message waits",
    shape.vectors: "MSI-X vectors",
    next: "identifier of the server's next message",
    shape.buffer: "length of the controller memory buffer, bytes",
    shape.serial: "device serial number",
    says.max_msg_fds: "the most descriptors that the client takes with a message",
    says.max_data_xfer_size: "the most bytes of a transfer",
    says.max_dma_maps: "the most DMA regions",
    says.pgsizes: "page sizes, a bit each",
    regions: "DMA regions",
    requests: "messages of the server without an answer",
    bells: "queue identifiers with doorbells",
    late: "completions that wait for answers",
    unsent: "messages that have not been sent as a whole",
    inbox: "bytes that have arrived of the message that is being received",
    parked: "bytes of the message that waits",
    inbox_fds: "descriptors of the one",
    parked_fds: "descriptors of the other",
} }

/// What the device may do with a DMA region, and whether it has a descriptor.
struct RegionFlags;

impl Coder<(DmaAccess, bool)> for RegionFlags {
    fn put((access, mapped): &(DmaAccess, bool), to: &mut Writer) {
        Flags::<u64>::put(&[access.reads(), access.writes(), *mapped], to);
    }
    fn get(from: &mut Reader<'_>) -> Result<(DmaAccess, bool), Damaged> {
        let [reads, writes, mapped] = Flags::<u64>::get(from)?;
        let access = match (reads, writes) {
            (true, true) => DmaAccess::ReadWrite,
            (true, false) => DmaAccess::Read,
            (false, true) => DmaAccess::Write,
            (false, false) => return Err(Damaged),
        };
        Ok((access, mapped))
    }
    fn kind() -> String {
        <Flags<u64> as Coder<[bool; 3]>>::kind()
    }
}

fields! { pub(super) DmaRegion: put_region, get_region, region_rows {
    address: "DMA address",
    len: "bytes",
    offset: "where it begins in its file",
    (access, mapped) as RegionFlags: "may be read, may be written, has a descriptor",
} }

record! {
    /// A message of the server's own that has no answer yet.
    pub(super) struct UnansweredRecord {
        /// Of the request; all ones: nothing waits for the answer.
        ticket: DmaTicket,
        /// Of what.
        address: u64,
        /// When it was made.
        since: Nanos as Ago,
        /// Bytes to be read or written.
        len: u32,
        /// Message identifier.
        id: u16,
        /// DMA_READ or DMA_WRITE.
        command: Command,
    }

    /// The doorbells of a queue identifier; which of them count is said behind them.
    pub(super) struct BellRecord {
        /// What was found last in the mapped ones: tail and head.
        seen: [u32; 2],
        /// How far the client has rung a queue whose commands are shown one by one.
        rung: u32,
        /// How far the drive knows of it.
        told: u32,
        /// There was a submission queue, a completion queue, `rung` counts, `told` counts.
        flags: [bool; 4] as Flags<u32>,
    }

    /// A completion that waits; whether its vector counts is said before it.
    pub(super) struct LateRecord {
        /// Of its requests.
        ticket: DmaTicket,
        /// Where it goes.
        address: u64,
        /// Itself.
        cqe: Cqe,
        /// `vector` counts, a write has failed.
        flags: [bool; 2] as Flags<u16>,
        /// What is signalled then.
        vector: u16,
        /// DMA_WRITE messages without an answer.
        writes: u32,
    }

    /// A message that has not been sent as a whole; its bytes follow.
    pub(super) struct UnsentRecord {
        /// Its bytes.
        len: u32,
        /// How many of them went.
        sent: u32,
        /// The file that goes with the first.
        with: Option<Shared> as Unless<u32, 0>,
    }
}

numbered! { Shared: u32 { Doorbells = 1, Buffer = 2 } }

coded_as! {
    DmaTicket: u64, |ticket| ticket.0, |number| Some(DmaTicket(number));
    Bell: BellRecord, |bell| BellRecord {
        seen: bell.seen.into(),
        rung: bell.rung.unwrap_or(0),
        told: bell.told.unwrap_or(0),
        flags: [bell.there.0, bell.there.1, bell.rung.is_some(), bell.told.is_some()],
    }, |BellRecord { seen, rung, told, flags: [sq, cq, has_rung, has_told] }| Some(Bell {
        seen: seen.into(),
        there: (sq, cq),
        rung: has_rung.then_some(rung),
        told: has_told.then_some(told),
    });
    Late: LateRecord, |late| LateRecord {
        ticket: late.ticket,
        address: late.address,
        cqe: late.cqe,
        flags: [late.vector.is_some(), late.failed],
        vector: late.vector.unwrap_or(0),
        writes: late.writes,
    }, |LateRecord { ticket, address, cqe, flags: [signals, failed], vector, writes }| Some(Late {
        ticket, address, vector: signals.then_some(vector), cqe, writes, failed,
    });
}

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

impl Code for Unsent {
    fn put(&self, to: &mut Writer) {
        to.put(&UnsentRecord { len: self.bytes.len() as u32, sent: self.sent as u32, with: self.with });
        to.array(&self.bytes);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let UnsentRecord { len, sent, with } = from.get()?;
        let bytes = from.take(len as usize)?.to_vec();
        if sent < len { Ok(Unsent { bytes, sent: sent as usize, with }) } else { Err(Damaged) }
    }
    fn kind() -> String {
        format!("{}, bytes", UnsentRecord::kind())
    }
}

/// What of a message is here.
impl<F: Code> Code for Inbox<F> {
    fn put(&self, to: &mut Writer) {
        let (bytes, fds) = self.partial();
        to.bytes(bytes);
        to.u32(fds.len() as u32);
        to.many(fds);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (bytes, fds): (Vec<u8>, Vec<F>) = from.get()?;
        let (inbox, whole) = gathered(&bytes, fds)?;
        if whole.is_some() { Err(Damaged) } else { Ok(inbox) }
    }
    fn kind() -> String {
        <(Vec<u8>, Vec<F>)>::kind()
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
        let mut to = FORMAT.begin(now);
        let head = Head {
            shape: self.shape,
            has_client: self.client.is_some(),
            says: self.client.unwrap_or_default(),
            function_mask: self.msix.function_mask(),
            request: client.request,
            has_parked: client.parked.is_some(),
            next: self.requests.next_id(),
            regions: self.regions.len() as u32,
            requests: self.requests.len() as u32,
            bells: client.bells.len() as u32,
            late: client.late.len() as u32,
            unsent: client.unsent.len() as u32,
            inbox: inbox.len() as u32,
            parked: parked.len() as u32,
            inbox_fds: inbox_fds.len() as u16,
            parked_fds: client.parked.as_ref().map_or(0, |m| m.fds.len() as u16),
        };
        put_head(&head, &mut to);
        to.array(self.config.bytes());
        self.msix.write_saved(&mut to);
        self.regions.all().for_each(|region| put_region(region, &mut to));
        let waits = |ticket: DmaTicket| client.late.iter().any(|late| late.ticket == ticket);
        for (id, request) in self.requests.all() {
            let DmaRequest { ticket, command, address, len, since } = *request;
            let ticket = if waits(ticket) { ticket } else { Requests::NOBODY };
            to.put(&UnansweredRecord { ticket, address, since, len, id, command });
        }
        to.many(&client.bells);
        to.many(&client.late);
        to.many(&client.unsent);
        to.array(inbox);
        to.array(&parked);
        FORMAT.seal::<D>(to)
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
    ) -> Result<(Self, SavedClient<F>, Vec<F>), SavedError> {
        let (_, mut from) = FORMAT.open::<D>(now, bytes)?;
        let (mut head, damaged) = (Head::default(), SavedError::Damaged);
        get_head(&mut head, &mut from)?;
        let mut device = Self::new(shape);
        if head.shape != device.shape {
            return Err(SavedError::Misfit(SHOWS_ANOTHER));
        }
        device.begin(&head, &mut from)?;
        if head.requests as usize > MOST || head.bells > BELLS || head.unsent > UNSENT || head.late > head.requests {
            return Err(damaged);
        }
        device.read_requests(&head, &mut from)?;
        let bells = from.many(head.bells)?;
        let late: Vec<Late> = from.many(head.late)?;
        if !(0..late.len()).all(|at| device.awaits(&late[..at], &late[at])) {
            return Err(damaged);
        }
        let unsent = from.many(head.unsent)?;
        let (inbox, parked) = (from.take(head.inbox as usize)?, from.take(head.parked as usize)?);
        let own = device.mapped().count() + device.msix.assigned().count() + usize::from(head.request);
        let with = [usize::from(head.inbox_fds), usize::from(head.parked_fds)];
        if !from.is_empty() || fds.len() != own + with[0] + with[1] || with.iter().any(|n| *n > MAX_FDS) {
            return Err(damaged);
        }
        let parked_fds = fds.split_off(own + with[0]);
        let inbox_fds = fds.split_off(own);
        let (inbox, None) = gathered(inbox, inbox_fds)? else { return Err(damaged) };
        let parked = match gathered(parked, parked_fds)? {
            (left, message) if left.partial().0.is_empty() && left.partial().1.is_empty() => message,
            _ => return Err(damaged),
        };
        if parked.is_some() != head.has_parked {
            return Err(damaged);
        }
        Ok((device, SavedClient { inbox, parked, request: head.request, unsent, bells, late }, fds))
    }

    /// All of the device but its requests.
    fn begin(&mut self, head: &Head, from: &mut Reader<'_>) -> Result<(), Damaged> {
        self.client = head.has_client.then_some(head.says);
        if self.client.is_some() {
            if head.says.max_data_xfer_size < LEAST_TRANSFER.into() {
                return Err(Damaged);
            }
            self.requests.limit(head.says.max_data_xfer_size);
        }
        self.config.read_saved(from.take(CONFIG_SPACE)?);
        self.msix.read_saved(from, head.function_mask)?;
        if head.regions > MAX_REGIONS {
            return Err(Damaged);
        }
        for _ in 0..head.regions {
            let mut region = DmaRegion { address: 0, len: 0, offset: 0, access: DmaAccess::Read, mapped: false };
            get_region(&mut region, from)?;
            let DmaRegion { address, len, offset, .. } = region;
            let ends = address.checked_add(len).is_some() && offset.checked_add(len).is_some();
            if len == 0 || (address | len) % PAGE != 0 || !ends || self.regions.admits(&region).is_err() {
                return Err(Damaged);
            }
            self.regions.insert(region);
        }
        self.messaged = self.regions.any_unmapped();
        Ok(())
    }

    fn read_requests(&mut self, head: &Head, from: &mut Reader<'_>) -> Result<(), Damaged> {
        for _ in 0..head.requests {
            let UnansweredRecord { ticket, address, since, len, id, command } = from.get()?;
            if !matches!(command, Command::DMA_READ | Command::DMA_WRITE) || len > MAX_TRANSFER {
                return Err(Damaged);
            }
            self.requests.put_back(id, DmaRequest { ticket, command, address, len, since }).ok_or(Damaged)?;
        }
        self.requests.go_on_with(head.next);
        Ok(())
    }

    /// Whether a completion waits for just the requests that there are, and no other one does.
    fn awaits(&self, before: &[Late], late: &Late) -> bool {
        let waits = |r: &&DmaRequest| r.ticket == late.ticket && r.command == Command::DMA_WRITE;
        let asked = self.requests.all().map(|(_, r)| r).filter(waits).count();
        asked > 0
            && asked == late.writes as usize
            && before.iter().all(|other| other.ticket != late.ticket)
            && late.ticket != Requests::NOBODY
            && late.vector.is_none_or(|vector| vector < self.shape.vectors)
    }
}

/// An inbox that has received these bytes, and the message that they are if they are a whole one.
///
/// # Errors
/// More than one message, or descriptors without a byte that they came with.
pub fn gathered<F>(mut bytes: &[u8], fds: Vec<F>) -> Result<(Inbox<F>, Option<Message<F>>), Damaged> {
    let (mut inbox, mut message) = (Inbox::default(), None);
    let mut fds = Some(fds);
    while !bytes.is_empty() {
        let space = inbox.space();
        let n = space.len().min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        bytes = &bytes[n..];
        message = inbox.advance(n, fds.take().into_iter().flatten()).map_err(|_| Damaged)?;
        if message.is_some() && !bytes.is_empty() {
            return Err(Damaged);
        }
    }
    if fds.is_some_and(|fds| !fds.is_empty()) { Err(Damaged) } else { Ok((inbox, message)) }
}
