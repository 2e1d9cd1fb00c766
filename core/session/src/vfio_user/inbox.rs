//! Bytes and descriptors of the socket become messages.

use super::{LEAST_TRANSFER, MAX_TRANSFER};
use alloc::vec::Vec;
use core::fmt;
use weir_spec::vfio_user::{Header, RegionAccess, VersionError};
use zerocopy::{FromBytes, IntoBytes};

/// Longest message: a write as long as may be.
const MAX_MESSAGE: usize = Header::LEN + size_of::<RegionAccess>() + MAX_TRANSFER as usize;
/// Most descriptors with one message.
pub(super) const MAX_FDS: usize = 16;

/// What ends a connection: after it nothing on the socket can be understood, or nothing may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A message of an impossible length.
    Size(u32),
    /// Neither a command nor a reply.
    Kind(u32),
    /// More descriptors than any message carries.
    TooManyDescriptors,
    /// Something else before VERSION.
    NoVersion(u16),
    /// Another major version.
    Version(u16, u16),
    /// Capabilities that cannot be read.
    Capabilities(VersionError),
    /// It takes fewer bytes in a message than the memory that only messages reach can be served by.
    Transfer(u64),
    /// A reply to nothing.
    UnexpectedReply(u16),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::Size(n) => write!(f, "the client announced a message of {n} bytes"),
            ProtocolError::Kind(kind) => write!(f, "the client sent a message of type {kind}"),
            ProtocolError::TooManyDescriptors => f.write_str("the client sent too many file descriptors"),
            ProtocolError::NoVersion(command) => {
                write!(f, "the client began with command {command} instead of its version")
            }
            ProtocolError::Version(major, minor) => {
                write!(f, "the client speaks vfio-user {major}.{minor}; 0.1 and below are spoken here")
            }
            ProtocolError::Capabilities(e) => e.fmt(f),
            ProtocolError::Transfer(n) => {
                write!(
                    f,
                    "the client takes {n} bytes in a message (max_data_xfer_size); {LEAST_TRANSFER} at least are needed"
                )
            }
            ProtocolError::UnexpectedReply(id) => write!(f, "the client replied ({id}) where nothing was asked"),
        }
    }
}

impl core::error::Error for ProtocolError {}

/// A whole message.
#[derive(Debug)]
pub struct Message<F> {
    /// The 16 bytes before it: identifier, command, length, flags.
    pub header: Header,
    /// What follows the header.
    pub payload: Vec<u8>,
    /// Descriptors, in order.
    pub fds: Vec<F>,
}

impl<F> Message<F> {
    /// As it came.
    pub fn bytes(&self) -> Vec<u8> {
        [self.header.as_bytes(), &self.payload].concat()
    }
}

/// Collects one message at a time, so that no byte of the next one is read early: its descriptors come with its first byte.
#[derive(Debug)]
pub struct Inbox<F> {
    bytes: Vec<u8>,
    have: usize,
    fds: Vec<F>,
}

impl<F> Default for Inbox<F> {
    fn default() -> Self {
        Self { bytes: alloc::vec![0; Header::LEN], have: 0, fds: Vec::new() }
    }
}

impl<F> Inbox<F> {
    /// What has arrived of the message that is being received.
    pub fn partial(&self) -> (&[u8], &[F]) {
        (&self.bytes[..self.have], &self.fds)
    }

    /// The same, with other descriptors.
    ///
    /// # Errors
    /// The first that `f` has.
    pub fn try_map<'a, G, E>(&'a self, f: impl FnMut(&'a F) -> Result<G, E>) -> Result<Inbox<G>, E> {
        let fds = self.fds.iter().map(f).collect::<Result<_, E>>()?;
        Ok(Inbox { bytes: self.bytes.clone(), have: self.have, fds })
    }

    /// Its descriptors so far.
    pub fn fds(&self) -> &[F] {
        &self.fds
    }

    /// Where the next bytes of the socket go: never empty, and never beyond the message.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.have..]
    }

    /// `count` bytes have been put there, and these descriptors came with them.
    ///
    /// # Errors
    /// The connection is beyond repair.
    pub fn advance(
        &mut self,
        count: usize,
        fds: impl IntoIterator<Item = F>,
    ) -> Result<Option<Message<F>>, ProtocolError> {
        self.fds.extend(fds);
        if self.fds.len() > MAX_FDS {
            self.fds.clear();
            return Err(ProtocolError::TooManyDescriptors);
        }
        self.have = (self.have + count).min(self.bytes.len());
        if self.have < self.bytes.len() {
            return Ok(None);
        }
        let header = Header::read_from_prefix(&self.bytes).map(|(h, _)| h).unwrap_or_default();
        if self.have == Header::LEN {
            let size = header.size.get();
            if !(Header::LEN..=MAX_MESSAGE).contains(&(size as usize)) {
                return Err(ProtocolError::Size(size));
            }
            if header.kind() > Header::REPLY {
                return Err(ProtocolError::Kind(header.kind()));
            }
            self.bytes.resize(size as usize, 0);
            if size as usize > Header::LEN {
                return Ok(None);
            }
        }
        let payload = self.bytes[Header::LEN..].to_vec();
        self.bytes.truncate(Header::LEN);
        self.bytes.shrink_to(4096);
        self.have = 0;
        Ok(Some(Message { header, payload, fds: core::mem::take(&mut self.fds) }))
    }
}
