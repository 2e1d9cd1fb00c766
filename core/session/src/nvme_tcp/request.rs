//! The commands of a connection: a table as long as its queue, allocated when Connect said how long that is.

use super::config::DEPTH_MAX;
use alloc::vec::Vec;
use weir_spec::nvme::{Sqe, Status};

/// Where a command is.
///
/// ```text
///  Free ─► InCapsule ──────────────────────────┐
///    └───► AwaitsBuffer ─► Transferring (R2T) ─┤
///    └───► AwaitsTx ───────────────────────────┴─► (AwaitsPair ─►) Ready ─► Executing ─► Free
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Free,
    /// Its capsule is being received.
    InCapsule,
    /// Its R2T waits for the tenant's budget.
    AwaitsBuffer,
    /// Its R2T is out.
    Transferring,
    /// Its answer would not fit behind what waits for the socket.
    AwaitsTx,
    /// Its data has arrived, and that of the command it is fused with has not.
    AwaitsPair,
    /// Eligible; to be fetched by `next_command`.
    Ready,
    /// With the drive.
    Executing,
}

/// Data of a command from one byte of its buffer on; what has not come yet is zeroes.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) from: u32,
    pub(super) bytes: Vec<u8>,
}

impl Staged {
    /// With what has come, of a buffer of that length.
    pub(super) fn new((from, mut bytes): (u32, Vec<u8>), length: u32) -> Self {
        bytes.reserve_exact((length - from) as usize - bytes.len());
        Self { from, bytes }
    }

    /// Bytes at a place of the command's buffer. What lies before the first one was sent.
    pub(super) fn put(&mut self, offset: u32, bytes: &[u8]) {
        let sent = (self.from.saturating_sub(offset) as usize).min(bytes.len());
        let (at, bytes) = (offset.saturating_sub(self.from) as usize, &bytes[sent..]);
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
    }

    /// One past the last byte.
    pub(super) fn end(&self) -> u32 {
        self.from + self.bytes.len() as u32
    }
}

#[derive(Debug)]
pub(super) struct TcpRequest {
    pub(super) stage: Stage,
    /// Changes with every use, so that a late TTAG is noticed.
    pub(super) generation: u8,
    pub(super) sqe: Sqe,
    /// Bytes that the command's SGL describes; the direction is the opcode's.
    pub(super) length: u32,
    /// Bytes that have arrived.
    pub(super) received: u32,
    /// One past the last byte that was written towards the host.
    pub(super) moved: u32,
    /// Read data that is gathered beside the transmit buffer, because another command's went there before all of it had come, or its pieces came
    /// in another order.
    pub(super) staged: Option<Staged>,
    /// Bytes promised to it out of the connection's transmit limit.
    pub(super) reserved: u32,
    /// What its data's reader or writer is told.
    pub(super) error: Option<Status>,
    /// The command that it is fused with.
    pub(super) partner: Option<u16>,
    /// Data from the capsule; kept for the next command.
    pub(super) small: Vec<u8>,
    /// Data by R2T, from the budget.
    pub(super) large: Option<Vec<u8>>,
}

impl TcpRequest {
    fn new() -> Self {
        Self {
            stage: Stage::Free,
            generation: 0,
            sqe: Sqe::default(),
            length: 0,
            received: 0,
            moved: 0,
            staged: None,
            reserved: 0,
            error: None,
            partner: None,
            small: Vec::new(),
            large: None,
        }
    }

    /// The buffer that data arrives in.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        match &mut self.large {
            Some(b) => b,
            None => &mut self.small,
        }
    }

    /// What has arrived.
    pub(super) fn data(&self) -> &[u8] {
        let all = self.large.as_deref().unwrap_or(&self.small);
        all.get(..self.received as usize).unwrap_or_default()
    }
}

#[derive(Debug)]
pub(super) struct Table {
    requests: Vec<TcpRequest>,
    free: Vec<u16>,
}

impl Table {
    pub(super) fn new(depth: u32) -> Self {
        let mut table = Self { requests: Vec::new(), free: Vec::new() };
        table.grow(depth);
        table
    }

    /// Makes room for so many commands; a table never shrinks.
    pub(super) fn grow(&mut self, depth: u32) {
        let depth = depth.clamp(1, DEPTH_MAX) as usize;
        let old = self.requests.len();
        if depth > old {
            self.requests.resize_with(depth, TcpRequest::new);
            self.free.reserve(depth);
            // The list is a stack: the lowest place is used first, and the last one freed next.
            self.free.splice(0..0, (old..depth).rev().map(|i| i as u16));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn in_use(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    pub(super) fn get(&self, index: u16) -> Option<&TcpRequest> {
        self.requests.get(usize::from(index)).filter(|r| r.stage != Stage::Free)
    }

    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut TcpRequest> {
        self.requests.get_mut(usize::from(index)).filter(|r| r.stage != Stage::Free)
    }

    /// A place for a command, or `None` when all are taken.
    pub(super) fn take(&mut self, sqe: Sqe) -> Option<(u16, &mut TcpRequest)> {
        let index = self.free.pop()?;
        let r = self.requests.get_mut(usize::from(index))?;
        r.stage = Stage::InCapsule;
        r.generation = (r.generation + 1) & 0xf;
        r.sqe = sqe;
        (r.length, r.received, r.moved, r.reserved, r.error) = (0, 0, 0, 0, None);
        r.partner = None;
        Some((index, r))
    }

    /// Gives the place back; the caller has taken the budget's buffer out.
    pub(super) fn put(&mut self, index: u16) {
        if let Some(r) = self.get_mut(index) {
            debug_assert!(r.large.is_none(), "the buffer went back to its budget");
            r.staged = None;
            r.stage = Stage::Free;
            self.free.push(index);
        }
    }

    /// A place, taken or not; [`find_free`](Self::find_free) afterwards.
    pub(super) fn place(&mut self, index: u16) -> Option<&mut TcpRequest> {
        self.requests.get_mut(usize::from(index))
    }

    /// Makes the list of free places anew.
    pub(super) fn find_free(&mut self) {
        let free = |(_, r): &(usize, &TcpRequest)| r.stage == Stage::Free;
        self.free = self.requests.iter().enumerate().rev().filter(free).map(|(i, _)| i as u16).collect();
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut TcpRequest> {
        self.requests.iter_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TcpRequest> {
        self.requests.iter()
    }

    /// TTAG of a place: generation in the top four bits.
    pub(super) fn ttag(&self, index: u16) -> u16 {
        let generation = self.requests.get(usize::from(index)).map_or(0, |r| r.generation);
        u16::from(generation) << 12 | index
    }

    /// The place that a TTAG names, if an R2T with exactly this TTAG is out.
    pub(super) fn find_ttag(&mut self, ttag: u16) -> Option<(u16, &mut TcpRequest)> {
        let index = ttag & 0xfff;
        let r = self.requests.get_mut(usize::from(index))?;
        (r.stage == Stage::Transferring && u16::from(r.generation) == ttag >> 12).then_some((index, r))
    }

    pub(super) fn check(&self) {
        let free = self.requests.iter().filter(|r| r.stage == Stage::Free).count();
        assert_eq!(free, self.free.len(), "every free place is in the list once");
        for r in &self.requests {
            assert!(r.received <= r.length, "no more data arrives than the command describes");
            assert!(r.stage != Stage::Free || r.large.is_none(), "a free place holds no budget");
            assert!(r.stage == Stage::Executing || r.staged.is_none(), "only what is executed has data for its host");
            assert!(r.staged.as_ref().is_none_or(|staged| staged.end() <= r.moved), "what is staged was moved");
        }
    }
}

const _: () = assert!(DEPTH_MAX <= 1 << 12, "TTAG keeps the place in twelve bits");
