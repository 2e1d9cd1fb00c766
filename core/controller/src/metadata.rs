//! Metadata of logical blocks, and end-to-end protection of data (NVM command set 1.0, 5.2 and 5.3). Pure: whoever moves the bytes
//! hands them in.
//!
//! ```text
//!  host ──(take: fetch, check or insert)──▶ data │ metadata as stored ──(give: check, strip, hand over)──▶ host
//! ```
//! *As stored* means that bytes of protection information are inverted: so that zeroes, which is what a medium without them
//! reads as, are protection information of FFh bytes, which is what deallocated blocks have and nobody checks.

use crate::config::Management;
use crate::host::{DataPointer, Host, Owner};
use weir_spec::nvme::Status;
use weir_spec::nvme::identify::LbaFormat;
use weir_spec::nvme::protection::{self, ProtectionDw12, ProtectionDw15, TUPLE, Tuple};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

/// The LBA formats of a drive, in order: bytes of metadata, and the block size as a power of two.
pub(crate) const FORMATS: [(u16, u8); 5] = [(0, 9), (0, 12), (8, 9), (8, 12), (64, 12)];

/// The LBA formats that a drive has.
pub(crate) fn formats(management: &Management) -> impl Iterator<Item = (u16, u8)> + '_ {
    FORMATS
        .into_iter()
        .filter(|(ms, shift)| (*ms == 0 || management.metadata) && 1u32 << *shift >= management.least_block)
}

/// Metadata lies on a medium of its own, at one byte for 64 of data: that of a block at offset n of the media at n >> 6.
pub const METADATA_SHIFT: u32 = 6;

/// An LBA format as Identify Namespace has it.
pub(crate) fn lba_format((metadata, shift): (u16, u8)) -> LbaFormat {
    // Small blocks cost more commands.
    LbaFormat { ms: U16::new(metadata), lbads: shift, rp: if shift < 12 { 1 } else { 0 } }
}

/// How a namespace is formatted, beside its block size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Its place among the drive's LBA formats.
    pub index: u8,
    /// Bytes of metadata of a block.
    pub metadata: u16,
    /// Metadata is transferred as part of an extended block.
    pub extended: bool,
    /// Type of the protection information; 0: there is none.
    pub kind: u8,
    /// It lies in the first bytes of the metadata, not in the last.
    pub first: bool,
}

impl Format {
    /// The format without metadata that has blocks of `1 << shift` bytes.
    pub(crate) fn plain(shift: u32, management: &Management) -> Self {
        let index = formats(management).position(|f| f == (0, shift as u8));
        Self { index: index.unwrap_or(0) as u8, ..Self::default() }
    }

    /// FLBAS.
    pub(crate) fn flbas(&self) -> u8 {
        self.index & 0xf | if self.extended { protection::FLBAS_EXTENDED } else { 0 }
    }

    /// DPS.
    pub(crate) fn dps(&self) -> u8 {
        self.kind | u8::from(self.first) << 3
    }

    /// Where the protection information is among a block's metadata.
    fn tuple_at(&self) -> usize {
        if self.first { 0 } else { usize::from(self.metadata) - TUPLE }
    }
}

/// What a command does about protection information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub dw12: ProtectionDw12,
    pub tags: ProtectionDw15,
    /// ILBRT or EILBRT.
    pub reference: u32,
}

/// Where the host's metadata is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// None is transferred.
    None,
    /// Behind each block.
    Extended,
    /// In a buffer of its own.
    Separate(DataPointer),
}

/// Metadata of the blocks of one command. The executor calls it with the command's data, whole blocks at a time, and the
/// metadata that belongs to them, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    format: Format,
    shift: u32,
    wish: Wish,
    way: Way,
}

impl Metadata {
    /// For blocks of `1 << shift` bytes. `separate` is where a separate buffer is, where the queue can have one.
    ///
    /// # Errors
    /// Invalid Protection Information; Invalid Field where the host's metadata cannot be reached.
    pub(crate) fn new(
        format: Format,
        shift: u32,
        slba: u64,
        wish: Wish,
        separate: Option<DataPointer>,
    ) -> Result<Self, Status> {
        let wish = if format.kind == 0 { Wish::default() } else { wish };
        // Types 1 and 3 know what a reference tag must be (NVM 1.0, 5.2.2 and 3.2.4).
        let fits = match format.kind {
            1 => wish.reference == slba as u32,
            3 => false,
            _ => true,
        };
        if wish.dw12.check_reference() == 1 && !fits {
            return Err(Status::INVALID_PROTECTION_INFORMATION.dnr());
        }
        let stripped = format.kind != 0 && wish.dw12.pract() == 1 && usize::from(format.metadata) == TUPLE;
        let way = match (stripped, format.extended, separate) {
            (true, ..) => Way::None,
            (_, true, _) => Way::Extended,
            (_, _, Some(pointer)) => Way::Separate(pointer),
            _ => return Err(Status::INVALID_FIELD.dnr()),
        };
        Ok(Self { format, shift, wish, way })
    }

    /// For somebody who knows of data only: protection information is inserted and stripped, other metadata is zeroes.
    pub(crate) fn hidden(format: Format, shift: u32, slba: u64) -> Self {
        let dw12 = ProtectionDw12(0).with_pract(1).with_check_guard(1);
        let wish =
            if format.kind == 0 { Wish::default() } else { Wish { dw12, reference: slba as u32, ..Wish::default() } };
        Self { format, shift, wish, way: Way::None }
    }

    /// The same for a command without data: Write Zeroes, Verify, a deallocation.
    pub(crate) fn without_data(format: Format, shift: u32, slba: u64, wish: Wish) -> Result<Self, Status> {
        let way = Some(DataPointer::media(0));
        Self::new(format, shift, slba, wish, way).map(|m| Self { way: Way::None, ..m })
    }

    /// The same for what lies so many blocks behind the first.
    pub(crate) fn behind(mut self, blocks: u64) -> Self {
        if self.format.kind != 3 {
            self.wish.reference = self.wish.reference.wrapping_add(blocks as u32);
        }
        self
    }

    /// Bytes of the command's data, of which `blocks` are in it.
    pub(crate) fn transfer(&self, blocks: u32) -> u64 {
        let metadata = if self.way == Way::Extended { u64::from(self.format.metadata) } else { 0 };
        u64::from(blocks) * ((1u64 << self.shift) + metadata)
    }

    /// Bytes of a block's data.
    pub fn block(&self) -> usize {
        1 << self.shift
    }

    /// Bytes of metadata of `len` bytes of blocks.
    pub fn size(&self, len: u32) -> usize {
        (len >> self.shift) as usize * usize::from(self.format.metadata)
    }

    /// Bytes that so much metadata, without gaps, takes on its own medium.
    pub fn places(&self, metadata: usize) -> usize {
        metadata / usize::from(self.format.metadata) * (self.block() >> METADATA_SHIFT)
    }

    /// Metadata as it lies on its own medium, one byte for 64 of data whatever the format, from metadata without gaps.
    pub fn spread(&self, metadata: &[u8], medium: &mut [u8]) {
        let places = medium.chunks_exact_mut(self.block() >> METADATA_SHIFT);
        for (to, from) in places.zip(metadata.chunks_exact(self.format.metadata.into())) {
            to[..from.len()].copy_from_slice(from);
        }
    }

    /// The other way.
    pub fn gather(&self, medium: &[u8], metadata: &mut [u8]) {
        let places = medium.chunks_exact(self.block() >> METADATA_SHIFT);
        for (to, from) in metadata.chunks_exact_mut(self.format.metadata.into()).zip(places) {
            to.copy_from_slice(&from[..to.len()]);
        }
    }

    /// Blocks of a command with their metadata, and each one's number in the command. `skip`: where the data begins in that of
    /// the command, without metadata.
    fn blocks<'a>(
        &self,
        skip: u32,
        data: &'a [u8],
        metadata: &'a [u8],
    ) -> impl Iterator<Item = (u32, &'a [u8], &'a [u8])> {
        let (size, first) = (usize::from(self.format.metadata), skip >> self.shift);
        let both = data.chunks_exact(self.block()).zip(metadata.chunks_exact(size));
        both.enumerate().map(move |(i, (data, metadata))| (first + i as u32, data, metadata))
    }

    /// Inverts protection information: what is stored becomes what hosts see, and back.
    fn turn(&self, metadata: &mut [u8]) {
        if self.format.kind != 0 {
            let at = self.format.tuple_at();
            for one in metadata.chunks_exact_mut(self.format.metadata.into()) {
                one[at..at + TUPLE].iter_mut().for_each(|b| *b = !*b);
            }
        }
    }

    fn tuple(&self, metadata: &[u8]) -> Tuple {
        let at = self.format.tuple_at();
        Tuple::read_from_bytes(&metadata[at..at + TUPLE]).unwrap_or_default()
    }

    fn guard(&self, data: &[u8], metadata: &[u8]) -> u16 {
        // What lies before the protection information is protected, too.
        protection::guard(protection::guard(0, data), &metadata[..self.format.tuple_at()])
    }

    /// The reference tag of a block of the command; those of type 3 are all the same.
    fn reference(&self, index: u32) -> u32 {
        if self.format.kind == 3 { self.wish.reference } else { self.wish.reference.wrapping_add(index) }
    }

    fn insert(&self, index: u32, data: &[u8], metadata: &mut [u8]) {
        let tuple = Tuple {
            guard: self.guard(data, metadata).into(),
            application: (self.wish.tags.tag() as u16).into(),
            reference: self.reference(index).into(),
        };
        let at = self.format.tuple_at();
        metadata[at..at + TUPLE].copy_from_slice(tuple.as_bytes());
    }

    /// Checks a block as the command asks (NVM 1.0, 5.2.2): not at all where its application tag is FFFFh (and, for type 3, its
    /// reference tag FFFFFFFFh).
    fn check(&self, index: u32, data: &[u8], metadata: &[u8]) -> Result<(), Status> {
        let Wish { dw12, tags, .. } = self.wish;
        let tuple = self.tuple(metadata);
        let (application, reference) = (tuple.application.get(), tuple.reference.get());
        if application == u16::MAX && (self.format.kind != 3 || reference == u32::MAX) {
            return Ok(());
        }
        if dw12.check_guard() == 1 && tuple.guard.get() != self.guard(data, metadata) {
            return Err(Status::GUARD_CHECK_ERROR);
        }
        let mask = tags.mask() as u16;
        if dw12.check_application() == 1 && application & mask != tags.tag() as u16 & mask {
            return Err(Status::APPLICATION_TAG_CHECK_ERROR);
        }
        if dw12.check_reference() == 1 && reference != self.reference(index) {
            return Err(Status::REFERENCE_TAG_CHECK_ERROR);
        }
        Ok(())
    }

    fn check_all(&self, skip: u32, data: &[u8], metadata: &[u8]) -> Result<(), Status> {
        if self.format.kind == 0 || self.wish.dw12.0 & CHECKS == 0 {
            return Ok(());
        }
        self.blocks(skip, data, metadata).try_for_each(|(i, data, metadata)| self.check(i, data, metadata))
    }

    /// Fetches the host's bytes.
    fn fetch<H: Host>(
        &self,
        (host, owner, pointer): (&mut H, Owner, &DataPointer),
        skip: u32,
        data: &mut [u8],
        metadata: &mut [u8],
    ) -> Result<(), Status> {
        let (block, size, first) = (self.block(), usize::from(self.format.metadata), skip >> self.shift);
        match &self.way {
            Way::Extended => {
                for (i, (data, metadata)) in
                    data.chunks_exact_mut(block).zip(metadata.chunks_exact_mut(size)).enumerate()
                {
                    let at = (first + i as u32) * (block + size) as u32;
                    host.read_data(owner, pointer, at, data)?;
                    host.read_data(owner, pointer, at + block as u32, metadata)?;
                }
                Ok(())
            }
            way => {
                host.read_data(owner, pointer, skip, data)?;
                match way {
                    Way::Separate(pointer) => host.read_data(owner, pointer, first * size as u32, metadata),
                    _ => {
                        metadata.fill(0);
                        Ok(())
                    }
                }
            }
        }
    }

    /// A write: fetches the host's data and metadata, checks protection information or inserts it. `metadata` is as it is to be
    /// stored then.
    ///
    /// # Errors
    /// The host does not deliver, or the checks' statuses.
    pub fn take<H: Host>(
        &self,
        (host, owner, pointer): (&mut H, Owner, &DataPointer),
        skip: u32,
        data: &mut [u8],
        metadata: &mut [u8],
    ) -> Result<(), Status> {
        self.fetch((host, owner, pointer), skip, data, metadata)?;
        self.put(skip, data, metadata)
    }

    /// Data and metadata that are to be written, as a host sees them: protection information is checked or inserted. `metadata` is
    /// as it is to be stored then.
    ///
    /// # Errors
    /// The checks' statuses.
    pub fn put(&self, skip: u32, data: &[u8], metadata: &mut [u8]) -> Result<(), Status> {
        if self.format.kind != 0 && self.wish.dw12.pract() == 1 {
            self.insert_all(skip, data, metadata);
        } else {
            self.check_all(skip, data, metadata)?;
        }
        self.turn(metadata);
        Ok(())
    }

    fn insert_all(&self, skip: u32, data: &[u8], metadata: &mut [u8]) {
        let first = skip >> self.shift;
        let both = data.chunks_exact(self.block()).zip(metadata.chunks_exact_mut(self.format.metadata.into()));
        both.enumerate().for_each(|(i, (data, metadata))| self.insert(first + i as u32, data, metadata));
    }

    /// The metadata of blocks of zeroes, as it is to be stored; `None`: that of deallocated blocks, which is all zeroes.
    pub fn zeroed(&self, skip: u32, len: u32) -> Option<alloc::vec::Vec<u8>> {
        if self.format.kind == 0 || self.wish.dw12.pract() == 0 {
            return None;
        }
        let mut metadata = alloc::vec![0; self.size(len)];
        let zeroes = alloc::vec![0; self.block()];
        let first = skip >> self.shift;
        for (i, one) in metadata.chunks_exact_mut(self.format.metadata.into()).enumerate() {
            self.insert(first + i as u32, &zeroes, one);
        }
        self.turn(&mut metadata);
        Some(metadata)
    }

    /// A read: checks protection information as asked and gives the host what it gets. `metadata` as it is stored; it is changed.
    ///
    /// # Errors
    /// The checks' statuses, and nothing has moved then; or the host does not take it.
    pub fn give<H: Host>(
        &self,
        (host, owner, pointer): (&mut H, Owner, &DataPointer),
        skip: u32,
        data: &[u8],
        metadata: &mut [u8],
    ) -> Result<(), Status> {
        self.verify(skip, data, metadata)?;
        match &self.way {
            Way::Extended => {
                for (i, data, metadata) in self.blocks(skip, data, metadata) {
                    let at = i * (data.len() + metadata.len()) as u32;
                    host.write_data(owner, pointer, at, data)?;
                    host.write_data(owner, pointer, at + data.len() as u32, metadata)?;
                }
                Ok(())
            }
            way => {
                host.write_data(owner, pointer, skip, data)?;
                match way {
                    Way::Separate(pointer) => {
                        let at = (skip >> self.shift) * u32::from(self.format.metadata);
                        host.write_data(owner, pointer, at, metadata)
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Checks only; `metadata`, as it is stored, is turned into what a host sees.
    ///
    /// # Errors
    /// The checks' statuses.
    pub fn verify(&self, skip: u32, data: &[u8], metadata: &mut [u8]) -> Result<(), Status> {
        self.turn(metadata);
        self.check_all(skip, data, metadata)
    }

    /// A comparison: both sides' protection information is checked, and compared is everything else.
    ///
    /// # Errors
    /// The checks' statuses, Compare Failure, or the host does not deliver.
    pub fn compare<H: Host>(
        &self,
        (host, owner, pointer): (&mut H, Owner, &DataPointer),
        skip: u32,
        data: &[u8],
        metadata: &mut [u8],
    ) -> Result<(), Status> {
        self.verify(skip, data, metadata)?;
        let (mut theirs, mut beside) = (alloc::vec![0; data.len()], alloc::vec![0; metadata.len()]);
        self.fetch((host, owner, pointer), skip, &mut theirs, &mut beside)?;
        if self.way != Way::None {
            self.check_all(skip, &theirs, &beside)?;
        }
        let tuple = if self.format.kind == 0 { 0..0 } else { self.format.tuple_at()..self.format.tuple_at() + TUPLE };
        let same = |a: &[u8], b: &[u8]| a[..tuple.start] == b[..tuple.start] && a[tuple.end..] == b[tuple.end..];
        let size = usize::from(self.format.metadata);
        let beside = self.way == Way::None
            || metadata.chunks_exact(size).zip(beside.chunks_exact(size)).all(|(a, b)| same(a, b));
        if theirs == data && beside { Ok(()) } else { Err(Status::COMPARE_FAILURE) }
    }
}

/// The bits of PRINFO that ask for checks.
const CHECKS: u32 = 0b111 << 26;

#[cfg(test)]
mod tests;
