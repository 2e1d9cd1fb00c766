//! Commands of a vendor's own, behind one trait. The Open-Channel set and `move-page` ([`OpenChannelSet`]) are its first users;
//! `docs/guides/vendor-commands.md` shows how to add one.
//!
//! ```text
//!  capsule, ring entry ─▶ plan: is it in `commands()`? ─▶ start ─▶ VendorCommand::serve(now, request, port) ─┬─▶ refused: complete
//!                                                                                                             └─▶ slot ─▶ (its time) ─▶ port's moves, one Effect::Io after the other ─▶ complete
//! ```
//! A set belongs to one namespace. One that [claims](VendorCommand::claims) its namespace serves the
//! ordinary commands there as well, and so decides where their bytes lie.

mod io;
mod open_channel;

pub use open_channel::OpenChannelSet;

use crate::data_pointer::check_pointer;
use crate::event::Op;
use crate::host::{DataPointer, Host, Owner};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt::Debug;
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// The first opcode of I/O commands that a vendor may define; of admin commands it is C0h (base 2.0, Figures 138 and 371).
pub const FIRST_OPCODE: u8 = 0x80;

/// Which queues take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VendorQueue {
    /// The admin queue.
    Admin,
    /// I/O queues.
    Io,
}

/// How many bytes a command moves between host and drive, beside those of its [`VendorPort`] moves. Which way is in the two
/// lowest bits of its opcode, as everywhere (base 2.0, Figure 88).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VendorData {
    /// None.
    None,
    /// So many.
    Bytes(u32),
    /// So many for each of the NLB + 1 (CDW12 bits 15:0) entries.
    Each(u32),
}

/// A command of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorOpcode {
    /// Where it is taken.
    pub queue: VendorQueue,
    /// Its opcode.
    pub opcode: u8,
    /// Its data.
    pub data: VendorData,
    /// Bytes that arbitration charges for each of its entries, where that is more than its data.
    pub charge: u32,
    /// It changes what logical blocks hold (LBCC of the effects log).
    pub changes: bool,
}

/// A command as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorRequest {
    /// The queue that it came by.
    pub queue: VendorQueue,
    /// Its opcode.
    pub opcode: u8,
    /// Its namespace.
    pub nsid: u32,
    /// Command dwords 10 to 15.
    pub cdw: [u32; 6],
}

impl VendorRequest {
    /// CDW10 and CDW11: an address, or where a list of them lies.
    pub const fn slba(&self) -> u64 {
        self.cdw[0] as u64 | (self.cdw[1] as u64) << 32
    }
    /// CDW14 and CDW15.
    pub const fn second(&self) -> u64 {
        self.cdw[4] as u64 | (self.cdw[5] as u64) << 32
    }
    /// NLB + 1: entries, or blocks.
    pub const fn entries(&self) -> u32 {
        (self.cdw[2] & 0xffff) + 1
    }
}

/// How a command ends that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorAnswer {
    /// When; its moves are done then.
    pub at: Nanos,
    /// How. With another status than success its moves are not done.
    pub status: Status,
    /// DW0 and DW1 of the completion.
    pub result: u64,
}

/// A command that is refused at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorRefusal {
    /// Why.
    pub status: Status,
    /// DW0 and DW1 of the completion.
    pub result: u64,
}

impl From<Status> for VendorRefusal {
    fn from(status: Status) -> Self {
        Self { status, result: 0 }
    }
}

/// A set of commands. It holds no data and reads no clock.
pub trait VendorCommand: Debug + Send + Any {
    /// Its commands.
    fn commands(&self) -> &'static [VendorOpcode];

    /// Whether its namespace's ordinary commands come to it, too: read, write, compare, write zeroes and deallocations.
    fn claims(&self) -> bool {
        false
    }

    /// Serves a command that begins now. Every field of it may be wrong.
    ///
    /// # Errors
    /// It is complete at once, with that status.
    fn serve(
        &mut self,
        now: Nanos,
        request: &VendorRequest,
        port: &mut VendorPort<'_>,
    ) -> Result<VendorAnswer, VendorRefusal>;

    /// A command that it has [given a ticket](VendorPort::ticket) is over, one way or another: its moves are done, or will
    /// never be.
    fn settled(&mut self, _ticket: u64) {}

    /// The bytes of a log page of its own; `None`: it has none of this identifier.
    fn log_length(&self, _lid: u8) -> Option<u64> {
        None
    }

    /// Bytes of that log page from `offset` on. What lies behind its end stays as it is.
    fn log(&self, _lid: u8, _offset: u64, _into: &mut [u8]) {}

    /// States its invariants.
    fn check(&self) {}

    /// For whoever knows what it is.
    fn as_any(&self) -> &dyn Any;

    /// The same, to change it; `None`: it lets nobody.
    fn as_any_mut(&mut self) -> Option<&mut dyn Any> {
        None
    }
}

/// What a command can reach while it is served: its data, and the drive's media by moves that are done when its time has come,
/// in their order.
pub struct VendorPort<'a> {
    host: &'a mut dyn Host,
    owner: Owner,
    data: DataPointer,
    moves: Vec<Move>,
    /// Bytes of the command's data that moves have taken so far.
    moved: u32,
    ticket: Option<u64>,
}

/// The most that one deallocation touches.
const PIECE: u64 = 1 << 30;

/// Bytes to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub op: Op,
    pub offset: u64,
    pub len: u32,
    /// Of the command's data: where its bytes begin. Of a copy: nothing.
    pub skip: u32,
    /// Of a copy: where its bytes come from.
    pub from: u64,
}

impl<'a> VendorPort<'a> {
    pub(crate) fn new(host: &'a mut dyn Host, owner: Owner, data: DataPointer) -> Self {
        Self { host, owner, data, moves: Vec::new(), moved: 0, ticket: None }
    }

    /// Reads the command's data, now.
    ///
    /// # Errors
    /// The host does not deliver.
    pub fn read(&mut self, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        check_pointer(&self.data, u64::from(offset) + into.len() as u64)?;
        self.host.read_data(self.owner, &self.data, offset, into)
    }

    /// Writes the command's data, now.
    ///
    /// # Errors
    /// The host does not take it.
    pub fn write(&mut self, offset: u32, from: &[u8]) -> Result<(), Status> {
        check_pointer(&self.data, u64::from(offset) + from.len() as u64)?;
        self.host.write_data(self.owner, &self.data, offset, from)
    }

    /// Reads host memory at a physical address that the command names beside its data, at most two pages of 4 KiB.
    ///
    /// # Errors
    /// The queue's host has no memory that we could read: over a network a command has its data and nothing else.
    pub fn list(&mut self, address: u64, into: &mut [u8]) -> Result<(), Status> {
        if self.data.as_tag().is_some() || address % 8 != 0 || into.len() > 4096 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let next = (address & !4095).checked_add(4096).ok_or(Status::INVALID_FIELD.dnr())?;
        self.host.read_data(self.owner, &DataPointer::prp(address, next, 12, into.len() as u32), 0, into)
    }

    /// The media's bytes at `offset` go to the host, behind those of the moves before.
    pub fn to_host(&mut self, offset: u64, len: u32) {
        self.data_move(Op::Read, offset, len);
    }

    /// The host's bytes go to the media.
    pub fn from_host(&mut self, offset: u64, len: u32) {
        self.data_move(Op::Write, offset, len);
    }

    /// The host's bytes are compared with the media's.
    pub fn compare(&mut self, offset: u64, len: u32) {
        self.data_move(Op::Compare, offset, len);
    }

    /// The set [hears](VendorCommand::settled) of the command's end, by this number.
    pub fn ticket(&mut self, ticket: u64) {
        self.ticket = Some(ticket);
    }

    /// So many bytes of the command's data are passed over by the moves that follow.
    pub fn pass(&mut self, len: u32) {
        self.moved += len;
    }

    /// The media's bytes at `from` go to `to`.
    pub fn copy(&mut self, from: u64, to: u64, len: u32) {
        match self.moves.last_mut() {
            Some(last) if last.op == Op::Copy && last.from + u64::from(last.len) == from && last.end() == to => {
                last.len += len;
            }
            _ => self.moves.push(Move { op: Op::Copy, offset: to, len, skip: 0, from }),
        }
    }

    /// The media's bytes there read as zeroes.
    pub fn deallocate(&mut self, offset: u64, len: u64) {
        let mut at = 0;
        while at < len {
            let piece = (len - at).min(PIECE);
            self.moves.push(Move { op: Op::Deallocate, offset: offset + at, len: piece as u32, skip: 0, from: 0 });
            at += piece;
        }
    }

    fn data_move(&mut self, op: Op, offset: u64, len: u32) {
        let skip = self.moved;
        self.moved += len;
        match self.moves.last_mut() {
            Some(last) if last.op == op && last.end() == offset && last.skip + last.len == skip => last.len += len,
            _ => self.moves.push(Move { op, offset, len, skip, from: 0 }),
        }
    }

    fn into_parts(self) -> (Vec<Move>, Option<u64>) {
        (self.moves, self.ticket)
    }
}

impl Move {
    fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// What is left of a command when its time has come.
#[derive(Clone, Debug)]
pub(crate) struct VendorWork {
    /// Moves to do, the last one first.
    moves: Vec<Move>,
    pub answer: VendorAnswer,
    data: DataPointer,
    pub ticket: Option<u64>,
    /// Each move is durable when it is done.
    fua: bool,
}

impl VendorWork {
    /// What is left of an ordinary command: these extents of the media, of data that begins `skip` bytes into the command's.
    pub fn pieces(op: Op, extents: &[(u64, u64)], skip: u32, (data, fua): (DataPointer, bool)) -> Self {
        let mut skip = skip;
        let each = |(offset, len): &(u64, u64)| {
            let (at, len) = (skip, *len as u32);
            skip += len;
            Move { op, offset: *offset, len, skip: at, from: 0 }
        };
        let mut moves: Vec<Move> = extents.iter().map(each).collect();
        moves.reverse();
        let answer = VendorAnswer { at: Nanos(0), status: Status::SUCCESS, result: 0 };
        Self { moves, answer, data, fua, ticket: None }
    }
}

/// The set of a drive, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Vendor(pub Option<Box<dyn VendorCommand>>);

/// Tests copy drives to try every sequence of events on them; theirs have no such commands.
impl Clone for Vendor {
    fn clone(&self) -> Self {
        assert!(self.0.is_none(), "a drive with a vendor's commands cannot be copied");
        Vendor(None)
    }
}
