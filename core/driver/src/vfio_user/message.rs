//! Single messages and their answers.

use alloc::vec::Vec;
use core::fmt;
use weir_spec::vfio_user::{Command, Header, RegionAccess, VersionError};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// A message for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Which.
    pub command: Command,
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// The memory's descriptor goes with it.
    pub memory: bool,
}

impl Outgoing {
    pub(super) fn new(id: u16, command: Command, parts: &[&[u8]]) -> Self {
        let payload: usize = parts.iter().map(|p| p.len()).sum();
        let mut bytes = Vec::with_capacity(Header::LEN + payload);
        bytes.extend_from_slice(Header::command(id, command, payload).as_bytes());
        parts.iter().for_each(|p| bytes.extend_from_slice(p));
        Self { command, bytes, memory: false }
    }
}

/// An answer that makes no sense, or is a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// To another message, or no answer at all.
    Unexpected(Command),
    /// Of the wrong length, or it contradicts itself.
    Malformed(Command),
    /// The server refused the message with this error number.
    Refused(Command, u32),
    /// The server speaks another version of the protocol.
    Version(u16, u16),
    /// What it says of itself cannot be read.
    Capabilities(VersionError),
    /// It lacks what is needed.
    Missing(&'static str),
    /// It is another kind of device; the class code that it has.
    NotNvme(u32),
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected(c) => write!(f, "the server did not answer {c:?} but something else"),
            Self::Malformed(c) => write!(f, "the server's answer to {c:?} is malformed"),
            Self::Refused(c, errno) => write!(f, "the server refused {c:?} (error number {errno})"),
            Self::Version(major, minor) => {
                write!(f, "the server speaks version {major}.{minor} of vfio-user, and this client 0.1")
            }
            Self::Capabilities(e) => write!(f, "the server's version: {e}"),
            Self::Missing(what) => write!(f, "the server does not offer {what}"),
            Self::NotNvme(class) => write!(f, "the device there is no NVMe drive (PCI class {class:06x})"),
        }
    }
}

impl core::error::Error for ReplyError {}

/// Judges the header of an answer to the message with that number.
///
/// # Errors
/// It is not the answer, or a no.
pub fn check(header: &Header, id: u16, command: Command) -> Result<(), ReplyError> {
    if header.kind() != Header::REPLY || header.id.get() != id || header.command.get() != command.0 {
        return Err(ReplyError::Unexpected(command));
    }
    if header.failed() {
        return Err(ReplyError::Refused(command, header.error.get()));
    }
    Ok(())
}

fn access(region: u32, offset: u64, count: usize) -> RegionAccess {
    RegionAccess { offset: U64::new(offset), region: U32::new(region), count: U32::new(count as u32) }
}

/// REGION_READ of `count` bytes.
pub fn read(id: u16, region: u32, offset: u64, count: usize) -> Outgoing {
    Outgoing::new(id, Command::REGION_READ, &[access(region, offset, count).as_bytes()])
}

/// REGION_WRITE; a posted one is not answered.
pub fn write(id: u16, region: u32, offset: u64, bytes: &[u8], posted: bool) -> Outgoing {
    let access = access(region, offset, bytes.len());
    let mut message = Outgoing::new(id, Command::REGION_WRITE, &[access.as_bytes(), bytes]);
    if posted {
        let flags = core::mem::offset_of!(Header, flags);
        message.bytes[flags..flags + 4].copy_from_slice(&Header::NO_REPLY.to_le_bytes());
    }
    message
}
