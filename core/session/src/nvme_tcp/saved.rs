//! A connection as bytes, so that another process goes on where this one left off, in the middle of a PDU if need be.
//!
//! ```text
//!  Head │ a generation of each place │ RequestRecord, its data so far, … │ where unsent responses end: u64 …
//!       │ ready: u16 … │ waits for a buffer: u16 … │ waits for room: u16 … │ held input │ unsent output │ CRC32C u32 of all before
//! ```
//! `docs/reference/formats.md` has the tables. The settings go with it: the host was told some of them, and they stay as they are for as long as the
//! connection lives. Commands that are with the drive stay with it: whoever restores the connection restores those as well, or
//! [hands them back](Connection::hand_back) before. Nothing in the bytes is trusted.

use super::request::{Stage, Table};
use super::rx::Phase;
use super::tx::Tx;
use super::{Budget, Connection, ConnectionSettings, ConnectionState, DEPTH_MAX, MAX_TRANSFER, direction};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use weir_spec::nvme::opcode::Transfer;
use weir_spec::nvme::tcp::{Body, CommonHeader, DIGEST_LEN, Digest, Framing, HEADER_MAX, PDA_MAX};
use weir_spec::nvme::{Sqe, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"WEIRNTCP";
/// No place.
const NONE: u16 = 0xffff;
/// Bytes of the header that is being gathered, rounded up.
const GATHERED: usize = 136;
const _: () = assert!(HEADER_MAX + DIGEST_LEN <= GATHERED);

mod bit {
    pub const RUNNING: u32 = 1;
    pub const CONNECTED: u32 = 1 << 1;
    pub const SQ_FLOW_CONTROL: u32 = 1 << 2;
    pub const RX_HEADER_DIGEST: u32 = 1 << 3;
    pub const RX_DATA_DIGEST: u32 = 1 << 4;
    pub const TX_HEADER_DIGEST: u32 = 1 << 5;
    pub const TX_DATA_DIGEST: u32 = 1 << 6;
    pub const MAY_HEADER_DIGEST: u32 = 1 << 7;
    pub const MAY_DATA_DIGEST: u32 = 1 << 8;
    pub const C2H_SUCCESS: u32 = 1 << 9;
    pub const BODY_DIGEST: u32 = 1 << 10;
    pub const H2C: u32 = 1 << 11;
    pub const ALL: u32 = (1 << 12) - 1;
}

/// The fixed part.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// `WEIRNTCP`.
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Of all, the checksum included.
    pub length: U32,
    /// What it may do and what was negotiated: see `docs/reference/formats.md`.
    pub bits: U32,
    /// MAXH2CDATA as the host was told.
    pub maxh2cdata: U32,
    /// The most in-capsule data.
    pub in_capsule: U32,
    /// The longest transfer.
    pub max_transfer: U32,
    /// The most data of one C2HData PDU.
    pub c2h_data: U32,
    /// The most read data promised.
    pub tx_limit: U32,
    /// Time left for the host to send ICReq, ns; all ones: no matter.
    pub time_left: U64,
    /// How long a host may take to send ICReq, ns.
    pub icreq_timeout: U64,
    /// How long a host may take to close, ns.
    pub close_timeout: U64,
    /// Places for commands.
    pub depth: U32,
    /// Commands in them.
    pub requests: U32,
    /// Responses whose last byte has not been sent.
    pub responses: U32,
    /// Bytes of input that are held.
    pub stash: U32,
    /// Bytes of output that have not been sent.
    pub unsent: U32,
    /// Eligible commands.
    pub ready: U16,
    /// Commands that wait for a buffer of the budget.
    pub awaits_buffer: U16,
    /// Commands that wait for room in the output.
    pub awaits_tx: U16,
    /// The first command of a pair whose second has not come; all ones: none.
    pub first: U16,
    /// The command that the PDU in work belongs to.
    pub tag: U16,
    /// Bytes of its header or digest that are here.
    pub have: U16,
    /// Padding of it that is to come.
    pub padding: U32,
    /// Data of it that is to come.
    pub data: U32,
    /// The digest of its data so far.
    pub crc: U32,
    /// What the next byte belongs to: 0 header, 1 padding, 2 data, 3 digest.
    pub phase: u8,
    /// The alignment of data that arrives.
    pub rx_pda: u8,
    /// The alignment of data that leaves.
    pub tx_pda: u8,
    /// The largest alignment that is asked for.
    pub cpda: u8,
    /// Those bytes.
    pub head: [u8; GATHERED],
}

/// A command; the data that has arrived follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RequestRecord {
    /// Its place.
    pub tag: U16,
    /// Where it is: 1 in capsule, 2 waits for a buffer, 3 transferring, 4 waits for room, 5 waits for its pair, 6 ready, 7 executing.
    pub stage: u8,
    /// Bit 0: its data lies in a buffer of the budget.
    pub flags: u8,
    /// Bytes that its SGL describes.
    pub length: U32,
    /// Bytes that have arrived, and follow.
    pub received: U32,
    /// Bytes that were written towards the host.
    pub moved: U32,
    /// Bytes promised to it.
    pub reserved: U32,
    /// The status that its data's reader is told; all ones: none.
    pub error: U16,
    /// The command that it is fused with; all ones: none.
    pub partner: U16,
    /// Its submission queue entry.
    pub sqe: Sqe,
}

const HEAD: usize = size_of::<Head>();
const RECORD: usize = size_of::<RequestRecord>();
const TAIL: usize = DIGEST_LEN;
const _: () = assert!(HEAD == 248 && RECORD == 88);

/// Why bytes are no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedConnectionError {
    /// They do not begin as such bytes do.
    Foreign,
    /// They are of another release.
    Version(u32),
    /// Their length or their checksum is wrong, or they contradict themselves.
    Damaged,
}

impl fmt::Display for SavedConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SavedConnectionError::Foreign => f.write_str("it is not the state of a connection"),
            SavedConnectionError::Version(version) => {
                write!(f, "it has layout {version} and this release reads layout {VERSION}")
            }
            SavedConnectionError::Damaged => {
                f.write_str("it is damaged: its length, its checksum or what it says is wrong")
            }
        }
    }
}

impl core::error::Error for SavedConnectionError {}

fn code(stage: Stage) -> u8 {
    match stage {
        Stage::Free => 0,
        Stage::InCapsule => 1,
        Stage::AwaitsBuffer => 2,
        Stage::Transferring => 3,
        Stage::AwaitsTx => 4,
        Stage::AwaitsPair => 5,
        Stage::Ready => 6,
        Stage::Executing => 7,
    }
}

fn stage(code: u8) -> Option<Stage> {
    use Stage::*;
    [InCapsule, AwaitsBuffer, Transferring, AwaitsTx, AwaitsPair, Ready, Executing]
        .get(usize::from(code).wrapping_sub(1))
        .copied()
}

/// Takes the front off.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], SavedConnectionError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(SavedConnectionError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn list(&mut self, count: U16) -> Result<Vec<u16>, SavedConnectionError> {
        let bytes = self.take(usize::from(count.get()) * 2)?;
        Ok(bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect())
    }
}

impl<D: Digest> Connection<D> {
    /// Commands that are with the drive, by place.
    pub fn executing(&self) -> impl Iterator<Item = u16> + '_ {
        let executing = |(_, r): &(usize, &super::request::TcpRequest)| r.stage == Stage::Executing;
        self.table.iter().enumerate().filter(executing).map(|(tag, _)| tag as u16)
    }

    /// Commands that are with the drive and that it has not begun come back: they are the next to be fetched, in that order.
    pub fn hand_back(&mut self, tags: &[u16]) {
        for tag in tags.iter().rev() {
            if let Some(r) = self.table.get_mut(*tag).filter(|r| r.stage == Stage::Executing) {
                r.stage = Stage::Ready;
                self.ready.push_front(*tag);
            }
        }
    }

    /// Whether nothing is on its way: no part of a PDU has come that is not whole, all answers have gone, and all commands are with the
    /// drive.
    pub fn is_at_rest(&self) -> bool {
        let rx = &self.rx;
        self.is_running()
            && rx.phase == Phase::Header
            && rx.have == 0
            && self.stash.is_empty()
            && self.tx.ready().is_empty()
            && self.tx.unsent().is_some()
            && self.table.iter().all(|r| r.stage == Stage::Free || r.stage == Stage::Executing && r.moved == 0)
    }

    /// The connection as bytes. `None` where it is not to be carried on: it ends, or an answer is half written or a read's data half there.
    pub fn save(&self, now: Nanos) -> Option<Vec<u8>> {
        let running = match self.state {
            ConnectionState::Running => bit::RUNNING,
            ConnectionState::AwaitsIcReq => 0,
            ConnectionState::Quiescing(_) | ConnectionState::Closed(_) => return None,
        };
        if self.table.iter().any(|r| !r.staged.is_empty()) {
            return None;
        }
        let (unsent, responses) = self.tx.unsent()?;
        let used: Vec<_> = self.table.iter().enumerate().filter(|(_, r)| r.stage != Stage::Free).collect();
        let mut head = self.head(now, running);
        (head.requests, head.responses) = (U32::new(used.len() as u32), U32::new(responses.len() as u32));
        head.unsent = U32::new(unsent.len() as u32);
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend(self.table.iter().map(|r| r.generation));
        for (tag, r) in used {
            let record = RequestRecord {
                tag: U16::new(tag as u16),
                stage: code(r.stage),
                flags: r.large.is_some().into(),
                length: U32::new(r.length),
                received: U32::new(r.received),
                moved: U32::new(r.moved),
                reserved: U32::new(r.reserved),
                error: U16::new(r.error.map_or(NONE, Status::field)),
                partner: U16::new(r.partner.unwrap_or(NONE)),
                sqe: r.sqe,
            };
            bytes.extend_from_slice(record.as_bytes());
            let data = r.data();
            bytes.extend_from_slice(data);
            // What has no buffer yet has received nothing.
            debug_assert_eq!(data.len(), r.received as usize);
        }
        responses.iter().for_each(|end| bytes.extend_from_slice(&end.to_le_bytes()));
        for list in [&self.ready, &self.awaits_buffer, &self.awaits_tx] {
            list.iter().for_each(|tag| bytes.extend_from_slice(&tag.to_le_bytes()));
        }
        bytes.extend_from_slice(&self.stash);
        bytes.extend_from_slice(unsent);
        let length = (bytes.len() + TAIL) as u32;
        bytes.get_mut(12..16)?.copy_from_slice(&length.to_le_bytes());
        let crc = D::append(0, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        Some(bytes)
    }

    fn head(&self, now: Nanos, running: u32) -> Head {
        let (s, rx, tx) = (&self.settings, &self.rx, self.tx.framing);
        let mut gathered = [0; GATHERED];
        if let Some(to) = gathered.get_mut(..rx.head.len()) {
            to.copy_from_slice(&rx.head);
        }
        let bits = [
            (running, true),
            (bit::CONNECTED, self.connected),
            (bit::SQ_FLOW_CONTROL, self.sq_flow_control),
            (bit::RX_HEADER_DIGEST, rx.framing.header_digest),
            (bit::RX_DATA_DIGEST, rx.framing.data_digest),
            (bit::TX_HEADER_DIGEST, tx.header_digest),
            (bit::TX_DATA_DIGEST, tx.data_digest),
            (bit::MAY_HEADER_DIGEST, s.header_digest),
            (bit::MAY_DATA_DIGEST, s.data_digest),
            (bit::C2H_SUCCESS, s.c2h_success),
            (bit::BODY_DIGEST, rx.body.digest),
            (bit::H2C, rx.h2c),
        ];
        let time_left = if self.deadline == Nanos::NEVER { u64::MAX } else { self.deadline.saturating_sub(now).get() };
        let len = |n: usize| U16::new(n as u16);
        Head {
            magic: MAGIC,
            version: U32::new(VERSION),
            length: U32::new(0),
            bits: U32::new(bits.iter().filter(|(_, is)| *is).fold(0, |all, (bit, _)| all | bit)),
            maxh2cdata: U32::new(s.maxh2cdata),
            in_capsule: U32::new(s.in_capsule),
            max_transfer: U32::new(s.max_transfer),
            c2h_data: U32::new(s.c2h_data),
            tx_limit: U32::new(s.tx_limit),
            time_left: U64::new(time_left),
            icreq_timeout: U64::new(s.icreq_timeout.get()),
            close_timeout: U64::new(s.close_timeout.get()),
            depth: U32::new(self.table.len() as u32),
            requests: U32::new(0),
            responses: U32::new(0),
            stash: U32::new(self.stash.len() as u32),
            unsent: U32::new(0),
            ready: len(self.ready.len()),
            awaits_buffer: len(self.awaits_buffer.len()),
            awaits_tx: len(self.awaits_tx.len()),
            first: U16::new(self.first.unwrap_or(NONE)),
            tag: U16::new(rx.tag),
            have: len(rx.have),
            padding: U32::new(rx.body.padding),
            data: U32::new(rx.body.data),
            crc: U32::new(rx.crc),
            phase: rx.phase as u8,
            rx_pda: rx.framing.pda,
            tx_pda: tx.pda,
            cpda: s.cpda,
            head: gathered,
        }
    }

    /// The connection that [`save`](Self::save) has written; its buffers are taken out of the budget, whatever that has left.
    ///
    /// # Errors
    /// The bytes are no connection, or of another release. The budget is as before.
    pub fn restore(now: Nanos, bytes: &[u8], budget: &mut Budget) -> Result<Self, SavedConnectionError> {
        let mut connection = Self::read(now, bytes)?;
        // Nothing fails from here on.
        for r in connection.table.iter_mut() {
            if let Some(data) = r.large.take() {
                let mut buffer = budget.take_over(r.length);
                buffer.iter_mut().zip(&data).for_each(|(to, from)| *to = *from);
                connection.held += buffer.len() as u64;
                r.large = Some(buffer);
            }
        }
        Ok(connection)
    }

    /// Buffers of the budget hold what has arrived and nothing else, and are not counted.
    fn read(now: Nanos, bytes: &[u8]) -> Result<Self, SavedConnectionError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(SavedConnectionError::Foreign);
        }
        let damaged = SavedConnectionError::Damaged;
        let version = bytes.get(8..12).and_then(|v| v.first_chunk()).map(|v| u32::from_le_bytes(*v)).ok_or(damaged)?;
        if version != VERSION {
            return Err(SavedConnectionError::Version(version));
        }
        let (body, crc) = bytes.split_last_chunk::<TAIL>().ok_or(damaged)?;
        let (head, rest) = Head::read_from_prefix(body).map_err(|_| damaged)?;
        if head.length.get() as usize != bytes.len() || D::append(0, body).to_le_bytes() != *crc {
            return Err(damaged);
        }
        let mut rest = Rest(rest);
        let mut connection = Self::begun(now, &head)?;
        let depth = connection.table.len();
        let mut used = alloc::vec![false; depth];
        let generations = rest.take(depth)?;
        for (r, generation) in connection.table.iter_mut().zip(generations) {
            r.generation = generation & 0xf;
        }
        for _ in 0..head.requests.get() {
            let record = RequestRecord::read_from_bytes(rest.take(RECORD)?).map_err(|_| damaged)?;
            let data = rest.take(record.received.get() as usize)?;
            let place = used.get_mut(usize::from(record.tag.get())).filter(|used| !**used).ok_or(damaged)?;
            *place = true;
            connection.put_back(&record, data)?;
        }
        connection.table.find_free();
        let ends = rest.take((head.responses.get() as usize).checked_mul(8).ok_or(damaged)?)?;
        let ends: Vec<u64> =
            ends.chunks_exact(8).filter_map(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b)).collect();
        for (list, count) in [(0, head.ready), (1, head.awaits_buffer), (2, head.awaits_tx)] {
            let read = VecDeque::from(rest.list(count)?);
            match list {
                0 => connection.ready = read,
                1 => connection.awaits_buffer = read,
                _ => connection.awaits_tx = read,
            }
        }
        connection.stash = rest.take(head.stash.get() as usize)?.to_vec();
        let unsent = rest.take(head.unsent.get() as usize)?;
        connection.tx = Tx::of(connection.tx.framing, unsent, &ends).ok_or(damaged)?;
        let whole = rest.0.is_empty() && connection.agrees();
        whole.then_some(connection).ok_or(damaged)
    }

    /// The connection that the fixed part describes, without commands.
    fn begun(now: Nanos, head: &Head) -> Result<Self, SavedConnectionError> {
        let bits = head.bits.get();
        let is = |bit: u32| bits & bit != 0;
        let phase = [Phase::Header, Phase::Padding, Phase::Data, Phase::Digest].get(usize::from(head.phase)).copied();
        let phase = phase.ok_or(SavedConnectionError::Damaged)?;
        let settings = ConnectionSettings {
            header_digest: is(bit::MAY_HEADER_DIGEST),
            data_digest: is(bit::MAY_DATA_DIGEST),
            c2h_success: is(bit::C2H_SUCCESS),
            cpda: head.cpda,
            maxh2cdata: head.maxh2cdata.get(),
            in_capsule: head.in_capsule.get(),
            max_transfer: head.max_transfer.get(),
            c2h_data: head.c2h_data.get(),
            tx_limit: head.tx_limit.get(),
            icreq_timeout: Nanos(head.icreq_timeout.get()),
            close_timeout: Nanos(head.close_timeout.get()),
        };
        let depth = head.depth.get();
        let sane = bits & !bit::ALL == 0
            && settings.lawful() == settings
            && settings.max_transfer <= MAX_TRANSFER
            && settings.in_capsule <= MAX_TRANSFER
            && (1..=DEPTH_MAX).contains(&depth)
            && head.rx_pda <= PDA_MAX
            && head.tx_pda <= PDA_MAX
            && usize::from(head.have.get()) <= HEADER_MAX + DIGEST_LEN
            && (phase != Phase::Digest || usize::from(head.have.get()) < DIGEST_LEN);
        if !sane {
            return Err(SavedConnectionError::Damaged);
        }
        let mut connection = Self::new(now, settings);
        connection.table = Table::new(depth);
        connection.state = if is(bit::RUNNING) { ConnectionState::Running } else { ConnectionState::AwaitsIcReq };
        connection.deadline = match head.time_left.get() {
            u64::MAX => Nanos::NEVER,
            left => now.saturating_add(Nanos(left)),
        };
        (connection.connected, connection.sq_flow_control) = (is(bit::CONNECTED), is(bit::SQ_FLOW_CONTROL));
        connection.first = Some(head.first.get()).filter(|tag| *tag != NONE);
        let rx = &mut connection.rx;
        rx.framing = Framing {
            header_digest: is(bit::RX_HEADER_DIGEST),
            data_digest: is(bit::RX_DATA_DIGEST),
            pda: head.rx_pda,
        };
        rx.phase = phase;
        rx.have = head.have.get().into();
        rx.body = Body { padding: head.padding.get(), data: head.data.get(), digest: is(bit::BODY_DIGEST) };
        (rx.tag, rx.h2c, rx.crc) = (head.tag.get(), is(bit::H2C), head.crc.get());
        let len = rx.head.len();
        rx.head.copy_from_slice(&head.head[..len]);
        connection.tx.framing = Framing {
            header_digest: is(bit::TX_HEADER_DIGEST),
            data_digest: is(bit::TX_DATA_DIGEST),
            pda: head.tx_pda,
        };
        Ok(connection)
    }

    fn put_back(&mut self, record: &RequestRecord, data: &[u8]) -> Result<(), SavedConnectionError> {
        let stage = stage(record.stage).ok_or(SavedConnectionError::Damaged)?;
        let most = self.settings.max_transfer.max(self.settings.in_capsule);
        let toward_host = direction(&record.sqe) == Transfer::ControllerToHost;
        let (length, received, large) = (record.length.get(), record.received.get(), record.flags & 1 != 0);
        let sane = received <= length
            && (length <= most || toward_host && received == 0)
            && record.moved.get() <= length
            && record.reserved.get() <= length.min(self.settings.max_transfer)
            && record.flags & !1 == 0;
        if !sane {
            return Err(SavedConnectionError::Damaged);
        }
        self.promised += record.reserved.get() as usize;
        let connected = self.connected;
        let r = self.table.place(record.tag.get()).ok_or(SavedConnectionError::Damaged)?;
        r.stage = stage;
        r.sqe = record.sqe;
        (r.length, r.received, r.moved, r.reserved) = (length, received, record.moved.get(), record.reserved.get());
        r.error = Some(record.error.get()).filter(|e| *e != NONE).map(Status::from_field);
        r.partner = Some(record.partner.get()).filter(|p| *p != NONE);
        if large && connected && !toward_host {
            r.large = Some(data.to_vec());
        } else if large {
            return Err(SavedConnectionError::Damaged);
        } else if !toward_host && stage != Stage::AwaitsBuffer {
            r.small = alloc::vec![0; length as usize];
            r.small.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        }
        // What has no buffer has received nothing.
        if r.data().len() == received as usize { Ok(()) } else { Err(SavedConnectionError::Damaged) }
    }

    /// Whether what was read agrees with itself: what [`check`](Self::check) asserts, and what the code relies on beside.
    fn agrees(&self) -> bool {
        let is = |tag: &u16, stage: Stage| self.table.get(*tag).is_some_and(|r| r.stage == stage);
        let count = |stage: Stage| self.table.iter().filter(|r| r.stage == stage).count();
        // As many as there are, each of them one, none twice.
        let listed = |list: &VecDeque<u16>, stage: Stage| {
            let mut tags: Vec<u16> = list.iter().copied().filter(|tag| is(tag, stage)).collect();
            tags.sort_unstable();
            tags.dedup();
            tags.len() == list.len() && tags.len() == count(stage)
        };
        let lonely = self.table.iter().filter(|r| r.stage == Stage::AwaitsPair && r.partner.is_none()).count();
        // Two that become ready together are each other's, and one of them at least is still on its way.
        let early = |r: &super::request::TcpRequest| !matches!(r.stage, Stage::Free | Stage::Ready | Stage::Executing);
        let paired = (0u16..).zip(self.table.iter()).all(|(tag, r)| {
            let Some(p) = r.partner.filter(|_| early(r)) else {
                return r.partner.is_none_or(|p| usize::from(p) < self.table.len());
            };
            let waits = |r: &super::request::TcpRequest| r.stage == Stage::AwaitsPair;
            let other = self.table.get(p).filter(|_| p != tag);
            other.is_some_and(|o| early(o) && o.partner == Some(tag) && !(waits(r) && waits(o)))
        });
        // The PDU in work is a command's that waits for just that.
        let expected = if self.rx.h2c { Stage::Transferring } else { Stage::InCapsule };
        let filling = self.rx.phase == Phase::Header
            || self.table.get(self.rx.tag).is_some_and(|r| {
                let end = u64::from(r.received) + u64::from(self.rx.body.data);
                r.stage == expected && end <= u64::from(r.length)
            });
        // A header that has arrived whole is acted on at once.
        let gathering = self.rx.phase != Phase::Header
            || self.rx.have < size_of::<CommonHeader>()
            || CommonHeader::peek(&self.rx.head)
                .is_some_and(|ch| self.expect(&ch).map_or(true, |whole| self.rx.have < whole));
        let capsules = count(Stage::InCapsule) == usize::from(self.rx.phase != Phase::Header && !self.rx.h2c);
        let most = self.settings.tx_limit as usize + self.settings.max_transfer as usize;
        let held_by =
            |r: &super::request::TcpRequest| r.stage == Stage::Transferring && self.connected && r.large.is_none();
        listed(&self.ready, Stage::Ready)
            && listed(&self.awaits_buffer, Stage::AwaitsBuffer)
            && listed(&self.awaits_tx, Stage::AwaitsTx)
            && lonely <= 1
            && paired
            && self.first.is_none_or(|tag| self.table.get(tag).is_some())
            && filling
            && gathering
            && capsules
            && self.promised <= most
            && !self.table.iter().any(held_by)
            && (self.state == ConnectionState::Running || self.table.in_use() == 0)
    }
}
