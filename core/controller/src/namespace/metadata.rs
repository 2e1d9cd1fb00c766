//! Metadata of logical blocks, and end-to-end protection of data (NVM command set 1.0, 5.2 and 5.3), with guards of 16 and of 64
//! bits. Pure: whoever moves the bytes hands them in.
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
use weir_spec::nvme::protection::{
    self, ExtendedLbaFormat, GuardSize, IdentifyNvmNamespace, PIC_STORAGE_CHECK_READ, PIFA_NO_MASKING, Protection,
    ProtectionDw12, ProtectionDw15,
};
use zerocopy::little_endian::{U16, U32};

/// An LBA format of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockFormat {
    /// Bytes of metadata.
    pub metadata: u16,
    /// The block size as a power of two.
    pub shift: u8,
    /// Guards of the protection information.
    guard: GuardSize,
    /// STS: bits of its storage tag.
    storage_bits: u8,
}

const fn plain(metadata: u16, shift: u8) -> BlockFormat {
    BlockFormat { metadata, shift, guard: GuardSize::Bits16, storage_bits: 0 }
}
const fn guard_64(metadata: u16, storage_bits: u8) -> BlockFormat {
    BlockFormat { metadata, shift: 12, guard: GuardSize::Bits64, storage_bits }
}

/// The LBA formats of a drive, in order. Their indexes are written down: new ones come last.
pub(crate) const FORMATS: [BlockFormat; 8] = [
    plain(0, 9),
    plain(0, 12),
    plain(8, 9),
    plain(8, 12),
    plain(64, 12),
    guard_64(16, 0),
    guard_64(16, 16),
    guard_64(64, 0),
];

/// The LBA formats that a drive has.
pub(crate) fn formats(management: &Management) -> impl Iterator<Item = BlockFormat> + '_ {
    let has = |f: &BlockFormat| (f.metadata == 0 || management.metadata) && 1u32 << f.shift >= management.least_block;
    FORMATS.into_iter().filter(has)
}

/// What the NVM command set's Identify Namespace says of the LBA formats, without a namespace's storage tag mask.
pub(crate) fn extended_formats(management: &Management) -> IdentifyNvmNamespace {
    let mut page = IdentifyNvmNamespace::default();
    for (to, layout) in page.elbaf.iter_mut().zip(formats(management)) {
        let format = ExtendedLbaFormat(0).with_pif(layout.guard.pif());
        *to = U32::new(format.with_storage_bits(layout.storage_bits.into()).0);
    }
    if management.metadata {
        (page.pic, page.pifa) = (PIC_STORAGE_CHECK_READ, PIFA_NO_MASKING);
    }
    page
}

/// Metadata lies on a medium of its own, at one byte for 64 of data: that of a block at offset n of the media at n >> 6.
pub const METADATA_SHIFT: u32 = 6;

/// An LBA format as Identify Namespace has it.
pub(crate) fn lba_format(BlockFormat { metadata, shift, .. }: BlockFormat) -> LbaFormat {
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
    /// Its guards.
    pub guard: GuardSize,
    /// Bits of its storage tag.
    pub storage_bits: u8,
}

impl Format {
    /// The format without metadata that has blocks of `1 << shift` bytes.
    pub(crate) fn plain(shift: u32, management: &Management) -> Self {
        let index = formats(management).position(|f| f == plain(0, shift as u8));
        Self { index: index.unwrap_or(0) as u8, ..Self::default() }
    }

    /// Blocks of a layout. `kind`: the type of the protection information, 0 for none, which lies first in the metadata or last.
    /// `None`: there is no room for it.
    pub(crate) fn new(index: usize, layout: BlockFormat, (kind, first): (u8, bool), extended: bool) -> Option<Self> {
        let BlockFormat { metadata, guard, storage_bits, .. } = layout;
        let fits = kind == 0 || kind <= 3 && usize::from(metadata) >= guard.bytes();
        let (extended, first) = (extended && metadata > 0, first && kind > 0);
        fits.then_some(Self { index: index as u8, metadata, extended, kind, first, guard, storage_bits })
    }

    /// Whether metadata and protection information of a block are the same in both.
    pub(crate) fn is_laid_out_as(&self, other: &Self) -> bool {
        let of = |f: &Self| (f.metadata, f.kind, f.first, f.guard, f.storage_bits);
        of(self) == of(other)
    }

    /// Whether it is one of the extended protection information formats, which a host must know of (NVM 1.0, 5.2.1).
    pub(crate) fn is_extended_protection(&self) -> bool {
        self.kind != 0 && (self.guard != GuardSize::Bits16 || self.storage_bits != 0)
    }

    /// LBSTM: all bits of the storage tag are compared.
    pub(crate) fn storage_mask(&self) -> u64 {
        if self.kind == 0 { 0 } else { (1 << self.storage_bits) - 1 }
    }

    /// Bits of the storage and reference space that are the reference tag.
    fn reference_mask(&self) -> u64 {
        (1 << (self.guard.space_bits() - u32::from(self.storage_bits))) - 1
    }

    /// FLBAS.
    pub(crate) fn flbas(&self) -> u8 {
        self.index & 0xf | if self.extended { protection::FLBAS_EXTENDED } else { 0 }
    }

    /// DPS.
    pub(crate) fn dps(&self) -> u8 {
        self.kind | u8::from(self.first) << 3
    }

    /// Bits of the storage and reference space that are the storage tag.
    fn storage_space(&self) -> u64 {
        ((1 << self.guard.space_bits()) - 1) & !self.reference_mask()
    }

    /// Where the protection information is among a block's metadata.
    fn protection_at(&self) -> usize {
        if self.first { 0 } else { usize::from(self.metadata) - self.guard.bytes() }
    }

    /// The bytes of a block's metadata that are protection information.
    fn protected(&self) -> core::ops::Range<usize> {
        if self.kind == 0 { 0..0 } else { self.protection_at()..self.protection_at() + self.guard.bytes() }
    }
}

/// What a command does about protection information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub dw12: ProtectionDw12,
    pub tags: ProtectionDw15,
    /// LBST and ILBRT, or ELBST and EILBRT: as much of it as the format has.
    pub space: u64,
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
        let mask = format.reference_mask();
        let wish = if format.kind == 0 { Wish::default() } else { wish };
        // Types 1 and 3 know what a reference tag must be (NVM 1.0, 5.2.2 and 3.2.4).
        let fits = match format.kind {
            1 => wish.space & mask == slba & mask,
            3 => false,
            _ => true,
        };
        if wish.dw12.check_reference() == 1 && !fits {
            return Err(Status::INVALID_PROTECTION_INFORMATION.dnr());
        }
        let stripped =
            format.kind != 0 && wish.dw12.pract() == 1 && usize::from(format.metadata) == format.guard.bytes();
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
        let space = slba & format.reference_mask();
        let wish = if format.kind == 0 { Wish::default() } else { Wish { dw12, space, ..Wish::default() } };
        Self { format, shift, wish, way: Way::None }
    }

    /// The same for a command without data: Write Zeroes, Verify, a deallocation.
    pub(crate) fn without_data(format: Format, shift: u32, slba: u64, wish: Wish) -> Result<Self, Status> {
        let way = Some(DataPointer::media(0));
        Self::new(format, shift, slba, wish, way).map(|m| Self { way: Way::None, ..m })
    }

    /// The same for what lies so many blocks behind the first.
    pub(crate) fn behind(mut self, blocks: u64) -> Self {
        self.wish.space = self.space(blocks);
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
        let protected = self.format.protected();
        if !protected.is_empty() {
            for one in metadata.chunks_exact_mut(self.format.metadata.into()) {
                one[protected.clone()].iter_mut().for_each(|b| *b = !*b);
            }
        }
    }

    fn guard(&self, data: &[u8], metadata: &[u8]) -> u64 {
        // What lies before the protection information is protected, too.
        self.format.guard.guard(data, &metadata[..self.format.protection_at()])
    }

    /// Storage and reference tag of the block so many behind the first; reference tags of type 3 are all the same.
    fn space(&self, index: u64) -> u64 {
        let (space, mask) = (self.wish.space, self.format.reference_mask());
        if self.format.kind == 3 { space } else { space & !mask | space.wrapping_add(index) & mask }
    }

    fn insert(&self, index: u32, data: &[u8], metadata: &mut [u8]) {
        let (guard, application) = (self.guard(data, metadata), self.wish.tags.tag() as u16);
        let made = Protection { guard, application, space: self.space(index.into()) };
        self.format.guard.write(&made, &mut metadata[self.format.protection_at()..]);
    }

    /// Checks a block as the command asks (NVM 1.0, 5.2.2): not at all where all bits of its application tag are 1 (and, for type 3,
    /// those of its reference tag).
    fn check(&self, index: u32, data: &[u8], metadata: &[u8]) -> Result<(), Status> {
        let Wish { dw12, tags, .. } = self.wish;
        let Protection { guard, application, space } = self.format.guard.read(&metadata[self.format.protection_at()..]);
        let (expected, reference) = (self.space(index.into()), self.format.reference_mask());
        if application == u16::MAX && (self.format.kind != 3 || space & reference == reference) {
            return Ok(());
        }
        if dw12.check_guard() == 1 && guard != self.guard(data, metadata) {
            return Err(Status::GUARD_CHECK_ERROR);
        }
        let mask = tags.mask() as u16;
        if dw12.check_application() == 1 && application & mask != tags.tag() as u16 & mask {
            return Err(Status::APPLICATION_TAG_CHECK_ERROR);
        }
        if dw12.check_storage() == 1 && (space ^ expected) & self.format.storage_space() != 0 {
            return Err(Status::STORAGE_TAG_CHECK_ERROR);
        }
        if dw12.check_reference() == 1 && (space ^ expected) & reference != 0 {
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
        let skip = self.format.protected();
        let same = |a: &[u8], b: &[u8]| a[..skip.start] == b[..skip.start] && a[skip.end..] == b[skip.end..];
        let size = usize::from(self.format.metadata);
        let beside = self.way == Way::None
            || metadata.chunks_exact(size).zip(beside.chunks_exact(size)).all(|(a, b)| same(a, b));
        if theirs == data && beside { Ok(()) } else { Err(Status::COMPARE_FAILURE) }
    }
}

/// The bits of CDW12 that ask for checks: those of PRINFO, and STC.
const CHECKS: u32 = 0b111 << 26 | 1 << 24;

#[cfg(test)]
mod tests;
