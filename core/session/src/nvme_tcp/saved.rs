//! A connection as bytes, so that another process goes on where this one left off, in the middle of a PDU if need be.
//!
//! ```text
//!  Head │ a generation of each place │ a command's place u16, it, its data so far, … │ where unsent responses end: u64 …
//!       │ ready: u16 … │ waits for a buffer: u16 … │ waits for room: u16 … │ held input │ unsent output │ CRC32C u32 of all before
//! ```
//! `docs/reference/formats.md` has the tables. The settings go with it: the host was told some of them, and they stay as they are for as long as the
//! connection lives. Commands that are with the drive stay with it: whoever restores the connection restores those as well, or
//! [hands them back](Connection::hand_back) before. Nothing in the bytes is trusted.

use super::pdu::PduPhase;
use super::request::{Stage, Table, TcpRequest};
use super::rx::Rx;
use super::tx::Tx;
use super::{Budget, Connection, ConnectionSettings, ConnectionState, DEPTH_MAX, MAX_TRANSFER, direction};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_codec::{
    Count, Damaged, Flags, IsThere, Left, Padded, Reader, SavedError, SavedFormat, Unless, fields, numbered,
};
use weir_spec::nvme::opcode::Transfer;
use weir_spec::nvme::tcp::{CommonHeader, DIGEST_LEN, Digest, Framing, HEADER_MAX, PDA_MAX};
use weir_units::Nanos;

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
const FORMAT: SavedFormat = SavedFormat::new(b"WEIRNTCP", VERSION, "the state of a connection");

/// The fixed part: a connection without its commands, and how much of everything follows.
pub(super) struct Head {
    pub settings: ConnectionSettings,
    is_running: bool,
    connected: bool,
    sq_flow_control: bool,
    deadline: Nanos,
    pub rx: Rx,
    tx: Framing,
    first: Option<u16>,
    depth: u32,
    requests: u32,
    responses: u32,
    stash: u32,
    unsent: u32,
    ready: u16,
    awaits_buffer: u16,
    awaits_tx: u16,
}

numbered! {
    PduPhase: u8 { Header = 0, Padding = 1, Data = 2, Digest = 3 }
    Stage: u8 {
        Free = 0,
        InCapsule = 1,
        AwaitsBuffer = 2,
        Transferring = 3,
        AwaitsTx = 4,
        AwaitsPair = 5,
        Ready = 6,
        Executing = 7,
    }
}

fields! { pub(super) Head: put_head, get_head, head_rows {
    [
        is_running, connected, sq_flow_control, rx.framing.header_digest, rx.framing.data_digest, tx.header_digest, tx.data_digest,
        settings.header_digest, settings.data_digest, settings.c2h_success, rx.pdu.body.digest, rx.h2c
    ] as Flags<u32>: "capsules flow, it is a queue, SQ flow control, header and data digests of what arrives, of what leaves, which of them may be granted, SUCCESS may be sent, a data digest follows in the PDU in work, that PDU is H2CData",
    settings.maxh2cdata: "MAXH2CDATA, as the host was told",
    settings.in_capsule: "the most in-capsule data, bytes",
    settings.max_transfer: "the longest transfer, bytes",
    settings.c2h_data: "the most data of one C2HData PDU, bytes",
    settings.tx_limit: "the most read data promised, bytes",
    deadline as Left: "when the host is given up",
    settings.icreq_timeout: "how long a host may take to send ICReq",
    settings.close_timeout: "how long a host may take to close",
    depth: "places for commands, 1 to 4096",
    requests: "commands in them",
    responses: "responses whose last byte has not been sent",
    stash: "bytes of input that are held",
    unsent: "bytes of output that have not been sent",
    ready: "eligible commands",
    awaits_buffer: "commands whose R2T waits for the budget",
    awaits_tx: "commands whose answer waits for room",
    first as Unless<u16, 0xffff>: "the first command of a pair whose second has not come",
    rx.tag: "the command of the PDU in work",
    rx.pdu.have as Count<u16>: "bytes of its header or digest that are here",
    rx.pdu.body.padding: "padding of it that is to come, bytes",
    rx.pdu.body.data: "data of it that is to come, bytes",
    rx.pdu.crc: "CRC32C of its data so far",
    rx.pdu.phase: "what the next byte belongs to",
    rx.framing.pda: "alignment of data that arrives",
    tx.pda: "alignment of data that leaves",
    settings.cpda: "the largest alignment that is asked for",
    rx.pdu.head as Padded<136>: "those bytes of a header or digest",
} }

fields! { pub(super) TcpRequest: put_request, get_request, request_rows {
    stage: "where it is",
    large as IsThere: "its data lies in a buffer of the tenant's budget",
    length: "bytes that its SGL describes",
    received: "bytes that have arrived, and follow",
    moved: "bytes that were written towards the host",
    reserved: "bytes promised to it",
    error as Unless<u16, 0xffff>: "the status that its data's reader is told",
    partner as Unless<u16, 0xffff>: "the command that it is fused with",
    sqe: "its submission queue entry",
} }

impl<D: Digest> Connection<D> {
    /// Commands that are with the drive, by place.
    pub fn executing(&self) -> impl Iterator<Item = u16> + '_ {
        let executing = |(_, r): &(usize, &TcpRequest)| r.stage == Stage::Executing;
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
            && rx.pdu.phase == PduPhase::Header
            && rx.pdu.have == 0
            && self.stash.is_empty()
            && self.tx.ready().is_empty()
            && self.tx.unsent().is_some()
            && self.table.iter().all(|r| r.stage == Stage::Free || r.stage == Stage::Executing && r.moved == 0)
    }

    /// The connection as bytes. `None` where it is not to be carried on: it ends, or an answer is half written or a read's data half there.
    pub fn save(&self, now: Nanos) -> Option<Vec<u8>> {
        let ends = matches!(self.state, ConnectionState::Quiescing(_) | ConnectionState::Closed(_));
        if ends || self.table.iter().any(|r| r.staged.is_some()) {
            return None;
        }
        let (unsent, responses) = self.tx.unsent()?;
        let used: Vec<_> = (0u16..).zip(self.table.iter()).filter(|(_, r)| r.stage != Stage::Free).collect();
        let (requests, responses_left, left) = (used.len() as u32, responses.len() as u32, unsent.len() as u32);
        let mut to = FORMAT.begin(now);
        put_head(&Head { requests, responses: responses_left, unsent: left, ..self.head() }, &mut to);
        to.many(self.table.iter().map(|r| &r.generation));
        for (tag, r) in used {
            to.u16(tag);
            put_request(r, &mut to);
            to.array(r.data());
            // What has no buffer yet has received nothing.
            debug_assert_eq!(r.data().len(), r.received as usize);
        }
        to.many(&responses);
        [&self.ready, &self.awaits_buffer, &self.awaits_tx].into_iter().for_each(|list| to.many(list));
        to.array(&self.stash);
        to.array(unsent);
        Some(FORMAT.seal::<D>(to))
    }

    /// What there is of the fixed part without asking the commands and the output.
    pub(super) fn head(&self) -> Head {
        Head {
            settings: self.settings,
            is_running: self.is_running(),
            connected: self.connected,
            sq_flow_control: self.sq_flow_control,
            deadline: self.deadline,
            rx: self.rx.clone(),
            tx: self.tx.framing,
            first: self.first,
            depth: self.table.len() as u32,
            requests: 0,
            responses: 0,
            stash: self.stash.len() as u32,
            unsent: 0,
            ready: self.ready.len() as u16,
            awaits_buffer: self.awaits_buffer.len() as u16,
            awaits_tx: self.awaits_tx.len() as u16,
        }
    }

    /// The connection that [`save`](Self::save) has written; its buffers are taken out of the budget, whatever that has left.
    ///
    /// # Errors
    /// The bytes are no connection, or of another release. The budget is as before.
    pub fn restore(now: Nanos, bytes: &[u8], budget: &mut Budget) -> Result<Self, SavedError> {
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
    fn read(now: Nanos, bytes: &[u8]) -> Result<Self, SavedError> {
        let (_, mut from) = FORMAT.open::<D>(now, bytes)?;
        let mut head = Self::new(now, ConnectionSettings::default()).head();
        get_head(&mut head, &mut from)?;
        let (responses, stash, unsent) = (head.responses, head.stash as usize, head.unsent as usize);
        let (requests, lists) = (head.requests, [head.ready, head.awaits_buffer, head.awaits_tx]);
        let mut connection = Self::begun(now, head)?;
        let generations = from.take(connection.table.len())?;
        for (r, generation) in connection.table.iter_mut().zip(generations) {
            r.generation = generation & 0xf;
        }
        for _ in 0..requests {
            connection.read_request(&mut from)?;
        }
        connection.table.find_free();
        let ends: Vec<u64> = from.many(responses)?;
        let mut list = |count: u16| from.many(count).map(VecDeque::from);
        let [ready, awaits_buffer, awaits_tx] = lists;
        (connection.ready, connection.awaits_buffer) = (list(ready)?, list(awaits_buffer)?);
        connection.awaits_tx = list(awaits_tx)?;
        connection.stash = from.take(stash)?.to_vec();
        connection.tx = Tx::of(connection.tx.framing, from.take(unsent)?, &ends).ok_or(Damaged)?;
        from.end()?;
        if connection.agrees() { Ok(connection) } else { Err(SavedError::Damaged) }
    }

    /// The connection that the fixed part describes, without commands.
    fn begun(now: Nanos, head: Head) -> Result<Self, Damaged> {
        let Head { settings, is_running, connected, sq_flow_control, deadline, rx, tx, first, depth, .. } = head;
        let sane = settings.lawful() == settings
            && settings.max_transfer <= MAX_TRANSFER
            && settings.in_capsule <= MAX_TRANSFER
            && (1..=DEPTH_MAX).contains(&depth)
            && rx.framing.pda <= PDA_MAX
            && tx.pda <= PDA_MAX
            && rx.pdu.have <= HEADER_MAX + DIGEST_LEN
            && (rx.pdu.phase != PduPhase::Digest || rx.pdu.have < DIGEST_LEN);
        if !sane {
            return Err(Damaged);
        }
        let state = if is_running { ConnectionState::Running } else { ConnectionState::AwaitsIcReq };
        let mut connection = Self {
            state,
            table: Table::new(depth),
            deadline,
            connected,
            sq_flow_control,
            first,
            rx,
            ..Self::new(now, settings)
        };
        connection.tx.framing = tx;
        Ok(connection)
    }

    /// A command, and the data of it that has arrived.
    fn read_request(&mut self, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let ConnectionSettings { max_transfer, in_capsule, .. } = self.settings;
        let r = self.table.place(from.u16()?).filter(|r| r.stage == Stage::Free).ok_or(Damaged)?;
        get_request(r, from)?;
        let data = from.take(r.received as usize)?;
        let toward_host = direction(&r.sqe) == Transfer::ControllerToHost;
        let sane = r.stage != Stage::Free
            && r.received <= r.length
            && (r.length <= max_transfer.max(in_capsule) || toward_host && r.received == 0)
            && r.moved <= r.length
            && r.reserved <= r.length.min(max_transfer)
            && (r.large.is_none() || self.connected && !toward_host);
        if !sane {
            return Err(Damaged);
        }
        self.promised += r.reserved as usize;
        if let Some(large) = &mut r.large {
            large.extend_from_slice(data);
        } else if !toward_host && r.stage != Stage::AwaitsBuffer {
            r.small = alloc::vec![0; r.length as usize];
            r.small.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        }
        // What has no buffer has received nothing.
        if r.data().len() == r.received as usize { Ok(()) } else { Err(Damaged) }
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
        let early = |r: &TcpRequest| !matches!(r.stage, Stage::Free | Stage::Ready | Stage::Executing);
        let paired = (0u16..).zip(self.table.iter()).all(|(tag, r)| {
            let Some(p) = r.partner.filter(|_| early(r)) else {
                return r.partner.is_none_or(|p| usize::from(p) < self.table.len());
            };
            let waits = |r: &TcpRequest| r.stage == Stage::AwaitsPair;
            let other = self.table.get(p).filter(|_| p != tag);
            other.is_some_and(|o| early(o) && o.partner == Some(tag) && !(waits(r) && waits(o)))
        });
        // The PDU in work is a command's that waits for just that.
        let expected = if self.rx.h2c { Stage::Transferring } else { Stage::InCapsule };
        let filling = self.rx.pdu.phase == PduPhase::Header
            || self.table.get(self.rx.tag).is_some_and(|r| {
                let end = u64::from(r.received) + u64::from(self.rx.pdu.body.data);
                r.stage == expected && end <= u64::from(r.length)
            });
        // A header that has arrived whole is acted on at once.
        let gathering = self.rx.pdu.phase != PduPhase::Header
            || self.rx.pdu.have < size_of::<CommonHeader>()
            || CommonHeader::peek(&self.rx.pdu.head)
                .is_some_and(|ch| self.expect(&ch).map_or(true, |whole| self.rx.pdu.have < whole));
        let capsules = count(Stage::InCapsule) == usize::from(self.rx.pdu.phase != PduPhase::Header && !self.rx.h2c);
        let most = self.settings.tx_limit as usize + self.settings.max_transfer as usize;
        let held_by = |r: &TcpRequest| r.stage == Stage::Transferring && self.connected && r.large.is_none();
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
