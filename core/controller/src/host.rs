//! The port to the other side: where entries are fetched, completions go, and a command's bytes are.

use crate::fault::transfer::SpoiledTransfer;
use weir_spec::nvme::entry::SglDescriptor;
use weir_spec::nvme::{Cqe, Status};

/// Whose queue it is: opaque to the controller, chosen by the door, given back in every call and effect. The door's
/// kind sits in the top four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub u32);

/// A message-model command's place in its door's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag(pub u32);

/// What a ring's completion belongs to, for a host that keeps a [journal](crate::Journals).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingCompletion {
    /// What [`Host::take`] has answered; means nothing for admin commands that wait for an event.
    pub tag: Tag,
    /// How many completions its completion queue had before it: place and phase follow from that and the queue's size.
    pub place: u64,
}

/// Where the host's bytes of a command are, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The door knows.
    Tag(Tag),
    /// Host memory by physical region pages (base 2.0, 4.1.1).
    Prp {
        /// PRP entry 1.
        prp1: u64,
        /// PRP entry 2.
        prp2: u64,
    },
    /// Host memory by a scatter gather list (base 2.0, 4.1.2).
    Sgl(SglDescriptor),
    /// The drive's own media, at this offset in bytes: of [`Op::Copy`](crate::Op::Copy) only.
    Media(u64),
    /// These four bytes over and over, little-endian: of a write of the drive's own.
    Pattern(u32),
}

/// Where the host's bytes of a command are, and how many it has in all: [`Data`] as it travels with the command, in three
/// registers. [`Walk`](crate::Walk) finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPointer {
    /// PRP1 and PRP2, or the 16 bytes of an SGL descriptor, or a tag.
    words: [u64; 2],
    len: u32,
    kind: PointerKind,
    page_shift: u8,
}

const _: () = assert!(size_of::<DataPointer>() == 24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PointerKind {
    Tag,
    Prp,
    Sgl,
    Media,
    Pattern,
}

impl DataPointer {
    /// The door knows.
    #[inline]
    pub const fn tag(tag: Tag) -> Self {
        Self { words: [tag.0 as u64, 0], len: 0, kind: PointerKind::Tag, page_shift: 0 }
    }
    /// By physical region pages of `1 << page_shift` bytes, for a command that moves `len` bytes in all.
    #[inline]
    pub const fn prp(prp1: u64, prp2: u64, page_shift: u8, len: u32) -> Self {
        Self { words: [prp1, prp2], len, kind: PointerKind::Prp, page_shift }
    }
    /// By a scatter gather list whose first descriptor this is, for a command that moves `len` bytes in all.
    #[inline]
    pub const fn sgl(descriptor: SglDescriptor, len: u32) -> Self {
        Self { words: descriptor.words(), len, kind: PointerKind::Sgl, page_shift: 12 }
    }
    /// On the drive's own media.
    #[inline]
    pub const fn media(offset: u64) -> Self {
        Self { words: [offset, 0], len: 0, kind: PointerKind::Media, page_shift: 0 }
    }
    /// These four bytes over and over.
    #[inline]
    pub const fn pattern(pattern: u32) -> Self {
        Self { words: [pattern as u64, 0], len: 0, kind: PointerKind::Pattern, page_shift: 0 }
    }
    /// DPTR of an entry whose PSDT says PRP (0) or an SGL (1 and 2); its length is not known yet.
    #[inline]
    pub(crate) const fn from_dptr(psdt: u8, words: [u64; 2], page_shift: u8) -> Self {
        Self { words, len: 0, kind: if psdt == 0 { PointerKind::Prp } else { PointerKind::Sgl }, page_shift }
    }
    /// The same for a command that moves `len` bytes in all.
    #[inline]
    pub(crate) const fn of(self, len: u32) -> Self {
        Self { len, ..self }
    }
    /// Bytes that the whole command moves, of those in host memory: it decides whether PRP2 is a page or a list.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u32 {
        self.len
    }
    /// Host memory pages have `1 << page_shift` bytes (12 + CC.MPS).
    #[inline]
    pub const fn page_shift(&self) -> u8 {
        self.page_shift
    }
    /// Taken apart.
    #[inline]
    pub const fn get(&self) -> Data {
        let [first, second] = self.words;
        match self.kind {
            PointerKind::Tag => Data::Tag(Tag(first as u32)),
            PointerKind::Prp => Data::Prp { prp1: first, prp2: second },
            PointerKind::Sgl => Data::Sgl(SglDescriptor::from_words(self.words)),
            PointerKind::Media => Data::Media(first),
            PointerKind::Pattern => Data::Pattern(first as u32),
        }
    }
    /// The tag, if it is one.
    #[inline]
    pub const fn as_tag(&self) -> Option<Tag> {
        match self.kind {
            PointerKind::Tag => Some(Tag(self.words[0] as u32)),
            _ => None,
        }
    }
}

/// What the controller asks of the side that the commands come from. Everything answers at once; an error is the
/// status that the command then fails with (a failed `fetch` or `post` is fatal for the controller).
pub trait Host {
    /// Ring queues: reads a submission queue entry, each byte once, as words ([`Sqe::words_of`](weir_spec::nvme::Sqe::words_of)).
    fn fetch(&mut self, owner: Owner, address: u64) -> Result<[u64; 8], Status>;
    /// Ring queues: writes a completion queue entry, the dword with the phase tag last and released, then signals the
    /// interrupt vector if there is one: once for a batch, and unless it is masked in the MSI-X table.
    fn post(&mut self, owner: Owner, address: u64, vector: Option<u16>, cqe: &Cqe) -> Result<(), Status>;
    /// Ring queues: a submission queue entry leaves its queue, which has `head` behind it, and nothing has been done of it yet. The tag comes
    /// back with its completion.
    #[inline]
    fn take(&mut self, owner: Owner, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        let _ = (owner, qid, entry, head);
        Tag(0)
    }
    /// Ring queues: the outcome of a command is known, and it must not be decided anew after a crash; its completion comes later. The phase of
    /// `cqe` means nothing.
    fn decide(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        let _ = (owner, tag, cqe);
    }
    /// Ring queues: a command is complete; [`post`](Self::post) for a host that keeps account of commands.
    #[inline]
    fn complete(
        &mut self,
        owner: Owner,
        address: u64,
        vector: Option<u16>,
        cqe: &Cqe,
        taken: RingCompletion,
    ) -> Result<(), Status> {
        let _ = taken;
        self.post(owner, address, vector, cqe)
    }
    /// Ring queues: signals the interrupt vector of completions that were posted before without it (the aggregation time of
    /// interrupt coalescing is over, or INTMC opened the vector).
    fn interrupt(&mut self, owner: Owner, vector: u16);
    /// Message queues: the command is complete. Called exactly once for every tag, unless its queue dies first.
    fn respond(&mut self, owner: Owner, tag: Tag, cqe: &Cqe);
    /// Host → drive: bytes `offset..offset + into.len()` of the command's data.
    fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status>;
    /// Drive → host.
    fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status>;
    /// Until [`end_spoiled`](Self::end_spoiled) some bytes of a command are wrong on the other side of
    /// [`read_data`](Self::read_data) and [`write_data`](Self::write_data); [`SpoiledTransfers`](crate::SpoiledTransfers) does it.
    fn begin_spoiled(&mut self, transfer: SpoiledTransfer) {
        let _ = transfer;
    }
    /// That command is over.
    fn end_spoiled(&mut self, owner: Owner, data: &DataPointer) {
        let _ = (owner, data);
    }
    /// Drive → host, `len` bytes from a medium that has none (null): zeroes, unless the bytes are the host's own memory and
    /// may keep what they hold.
    fn write_nothing(&mut self, owner: Owner, data: &DataPointer, offset: u32, len: u32) -> Result<(), Status> {
        self.write_zeroes(owner, data, offset, len)
    }
    /// Drive → host, `len` zeroes.
    fn write_zeroes(&mut self, owner: Owner, data: &DataPointer, offset: u32, len: u32) -> Result<(), Status> {
        const ZEROES: [u8; 4096] = [0; 4096];
        let mut at = 0;
        while at < len {
            let part = (len - at).min(ZEROES.len() as u32);
            self.write_data(owner, data, offset + at, &ZEROES[..part as usize])?;
            at += part;
        }
        Ok(())
    }
}

/// Where nobody is asked or told anything.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Host for Nobody {
    fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }
    fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {}
    fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &mut [u8]) -> Result<(), Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }
    fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }
}
