//! Bytes of saved state, little-endian: how they are written, and how they are read by somebody who trusts nothing in them.

use alloc::vec::Vec;
use weir_spec::crc32c::crc32c;

/// The version of the whole; sections have their own.
pub const VERSION: u32 = 1;

/// Magic, version and length.
const HEAD: usize = 16;
/// The checksum.
const TAIL: usize = 4;

/// What stands around saved state: magic, version and the whole length before it, CRC32C of all that behind it.
pub(crate) struct Envelope {
    pub magic: [u8; 8],
    /// The version that is written, and the only one that is read.
    pub version: u32,
}

impl Envelope {
    /// What comes before the state, with its length left open.
    pub fn begin(&self) -> Writer {
        let mut to = Writer::default();
        to.array(&self.magic);
        to.words([self.version, 0]);
        to
    }

    /// All of it, with its length and what comes behind the state.
    pub fn seal(&self, to: Writer) -> Vec<u8> {
        let mut bytes = to.done();
        let length = (bytes.len() + TAIL) as u32;
        bytes[HEAD - 4..HEAD].copy_from_slice(&length.to_le_bytes());
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The state within such bytes.
    ///
    /// # Errors
    /// They are foreign, of another version, or damaged.
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Result<Reader<'a>, RestoreError> {
        if bytes.len() < HEAD + TAIL || bytes[..8] != self.magic {
            return Err(RestoreError::Foreign);
        }
        let (body, tail) = bytes.split_at(bytes.len() - TAIL);
        let mut from = Reader::of(&body[8..]);
        let (version, length) = (from.u32().unwrap_or(0), from.u32().unwrap_or(0));
        if version != self.version {
            return Err(RestoreError::Version(version));
        }
        if length as usize != bytes.len() || crc32c(body).to_le_bytes() != tail {
            return Err(RestoreError::Damaged);
        }
        Ok(from)
    }
}

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
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
