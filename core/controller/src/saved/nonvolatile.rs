//! What a drive remembers without power: one blob, of sections that know their own versions.
//!
//! ```text
//!  magic "WEIRNVST" │ version u32 │ length u32 │ sections … │ crc32c u32 of all before
//!  a section: id u16 │ version u16 │ length u32 │ bytes
//! ```
//! All little-endian; `docs/reference/formats.md` has the sections. A section that is missing leaves the drive as it was made; one of an
//! identifier or a version that this release does not know is refused, and so the whole blob: a drive that forgot half of what it
//! was told would be worse. Where the blob is kept is the executor's affair: it writes it whenever
//! [`Subsystem::nonvolatile_generation`] has moved.
//!
//! A part of the drive that has something to remember adds a line to [`SECTIONS`], and calls [`Subsystem::touch`] when it changes.

use crate::saved::crc::crc32c;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;

const MAGIC: [u8; 8] = *b"WEIRNVST";
/// The version of the whole; sections have their own.
pub const VERSION: u32 = 1;
/// Magic, version and length.
const HEAD: usize = 16;
/// The checksum.
const TAIL: usize = 4;

/// A part of what is remembered.
pub(crate) struct Section {
    /// Its identifier: never given to anything else.
    pub id: u16,
    /// The version that is written; older ones are read.
    pub version: u16,
    /// Writes it; nothing at all is written where it leaves the writer empty.
    pub save: fn(&Subsystem, &mut Writer),
    /// Reads what was written, of that version or an older one, into a drive that was just made.
    pub restore: fn(&mut Subsystem, &mut Reader<'_>, u16) -> Result<(), Damaged>,
}

/// Every section, by identifier: 1 to 15 what the drive as a whole remembers, 16 to 31 namespaces, 32 to 47 reservations.
const SECTIONS: &[Section] = &[
    crate::admin::feature::SECTION,
    crate::power::lifetime::SECTION,
    crate::maintenance::firmware::SECTION,
    crate::maintenance::sanitize::SECTION,
    crate::maintenance::self_test::SECTION,
    crate::admin::persistent::SECTION,
    crate::admin::exactly_once::SECTION,
    crate::saved::namespaces::SECTION,
    crate::reservation::SECTION,
    crate::io::slow_path::state::UNREADABLE,
    crate::admin::lba_status::SECTION,
];

/// Bytes that are no section of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// Why a blob was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// It does not begin as such a blob does.
    Foreign,
    /// It is of another release: its version.
    Version(u32),
    /// Its length or its checksum is wrong.
    Damaged,
    /// A section that this release does not know: its identifier and version.
    Unknown(u16, u16),
    /// A section whose bytes make no sense: its identifier.
    Section(u16),
}

impl core::fmt::Display for RestoreError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            RestoreError::Foreign => f.write_str("it is not the state of a drive"),
            RestoreError::Version(version) => {
                write!(f, "it has the layout {version} and this release reads layout {VERSION}")
            }
            RestoreError::Damaged => f.write_str("its length or checksum is wrong: it is damaged"),
            RestoreError::Unknown(id, version) => {
                write!(f, "it holds section {id} of version {version}, which this release does not know")
            }
            RestoreError::Section(id) => write!(f, "its section {id} does not fit this drive"),
        }
    }
}

impl core::error::Error for RestoreError {}

/// Collects a section's bytes, little-endian.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// What was written.
    pub fn done(self) -> Vec<u8> {
        self.0
    }
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    pub fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub fn words<const N: usize>(&mut self, words: [u32; N]) {
        words.into_iter().for_each(|word| self.u32(word));
    }
    /// A length in 32 bits, and so many bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }
    /// Bytes whose number the reader knows.
    pub fn array(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Takes a section's bytes apart; nothing in it is trusted.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    fn take(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.take(N)?.try_into().map_err(|_| Damaged)
    }
    pub fn u8(&mut self) -> Result<u8, Damaged> {
        self.array::<1>().map(|[b]| b)
    }
    pub fn u16(&mut self) -> Result<u16, Damaged> {
        self.array().map(u16::from_le_bytes)
    }
    pub fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }
    pub fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }
    /// What [`Writer::bytes`] wrote.
    pub fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let len = self.u32()?;
        self.take(len as usize)
    }
    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Subsystem {
    /// Moves whenever something changes that the drive remembers without power.
    pub fn nonvolatile_generation(&self) -> u64 {
        self.nonvolatile
    }

    /// Something that the drive remembers has changed.
    #[cold]
    pub(crate) fn touch(&mut self) {
        self.nonvolatile += 1;
    }

    /// What the drive remembers without power, for [`restore`](Self::restore).
    pub fn save(&self) -> Vec<u8> {
        let mut blob = Writer::default();
        blob.array(&MAGIC);
        blob.u32(VERSION);
        blob.u32(0);
        for section in SECTIONS {
            let mut bytes = Writer::default();
            (section.save)(self, &mut bytes);
            if !bytes.0.is_empty() {
                blob.u16(section.id);
                blob.u16(section.version);
                blob.bytes(&bytes.0);
            }
        }
        let length = (blob.0.len() + TAIL) as u32;
        blob.0[HEAD - 4..HEAD].copy_from_slice(&length.to_le_bytes());
        let crc = crc32c(&blob.0);
        blob.u32(crc);
        blob.0
    }

    /// Gives a drive that was just made, and has its inside, what it remembered.
    ///
    /// # Errors
    /// Why the blob cannot be read. The drive is half restored then and must not be used.
    pub fn restore(&mut self, blob: &[u8]) -> Result<(), RestoreError> {
        if blob.len() < HEAD + TAIL || blob[..8] != MAGIC {
            return Err(RestoreError::Foreign);
        }
        let (body, tail) = blob.split_at(blob.len() - TAIL);
        let mut head = Reader(&body[8..HEAD]);
        let (version, length) = (head.u32().unwrap_or(0), head.u32().unwrap_or(0));
        if version != VERSION {
            return Err(RestoreError::Version(version));
        }
        if length as usize != blob.len() || crc32c(body).to_le_bytes() != tail {
            return Err(RestoreError::Damaged);
        }
        let mut rest = Reader(&body[HEAD..]);
        while !rest.is_empty() {
            let head = |rest: &mut Reader<'_>| Ok::<_, Damaged>((rest.u16()?, rest.u16()?));
            let (id, version) = head(&mut rest).map_err(|_| RestoreError::Damaged)?;
            let mut bytes = Reader(rest.bytes().map_err(|_| RestoreError::Damaged)?);
            let section = SECTIONS.iter().find(|s| s.id == id && version >= 1 && version <= s.version);
            let section = section.ok_or(RestoreError::Unknown(id, version))?;
            let restored = (section.restore)(self, &mut bytes, version);
            if restored.is_err() || !bytes.is_empty() {
                return Err(RestoreError::Section(id));
            }
        }
        self.resume_sanitize();
        self.resume_self_test();
        // The power has been back once more.
        self.touch();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_an_identifier_of_its_own() {
        for (i, section) in SECTIONS.iter().enumerate() {
            assert!(section.id != 0 && section.version >= 1);
            assert!(SECTIONS[..i].iter().all(|s| s.id < section.id), "ascending: {}", section.id);
        }
    }
}
