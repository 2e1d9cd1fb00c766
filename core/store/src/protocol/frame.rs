//! Frames: where a message begins and ends.

use alloc::vec::Vec;
use core::fmt;
use weir_codec::{Damaged, Reader, Writer};

/// Bytes behind a frame's length at the most.
pub const FRAME_MAX: usize = 1 << 20;

/// Bytes of a frame before its body.
pub const HEADER_BYTES: usize = 4 + PREFIX;

/// Request number and kind: what a frame's length counts beside the body.
const PREFIX: usize = 8 + 2;

/// By what a client recognises the answer to a request; its choice. No two under way on one connection have the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNumber(pub u64);

/// What comes over a connection is no message of this protocol. The connection has no meaning any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A frame is said to be so long: more than [`FRAME_MAX`], or too short for a number and a kind.
    Length(u32),
    /// A message of that kind cannot be understood: there is no such kind, or its body is not one.
    Body(u16),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length(length) => {
                write!(f, "a message of {length} bytes; the metadata protocol has {PREFIX} to {FRAME_MAX}")
            }
            FrameError::Body(kind) => write!(f, "a message of kind {kind} that the metadata protocol does not have"),
        }
    }
}

impl core::error::Error for FrameError {}

/// A whole frame. `None` if the body is longer than a frame may be.
pub(super) fn encode(number: RequestNumber, kind: u16, body: impl FnOnce(&mut Writer)) -> Option<Vec<u8>> {
    let mut to = Writer::default();
    to.u32(0);
    to.u64(number.0);
    to.u16(kind);
    body(&mut to);
    let mut frame = to.done();
    let length = frame.len() - 4;
    if length > FRAME_MAX {
        return None;
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Some(frame)
}

/// Takes a frame apart that [`FrameReader::next`] has found.
pub(super) fn decode<T>(
    frame: &[u8],
    body: impl FnOnce(u16, &mut Reader<'_>) -> Result<T, Damaged>,
) -> Result<(RequestNumber, T), FrameError> {
    let mut from = Reader::of(frame);
    let mut prefix = || Ok::<_, Damaged>((from.u64()?, from.u16()?));
    let Ok((number, kind)) = prefix() else { return Err(FrameError::Length(frame.len() as u32)) };
    let message = body(kind, &mut from).and_then(|message| from.end().map(|()| message));
    message.map(|message| (RequestNumber(number), message)).map_err(|Damaged| FrameError::Body(kind))
}

/// Finds frames in a stream of bytes. It holds at most what was pushed: nothing is reserved for a length that is only promised.
#[derive(Clone, Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    /// Bytes at the beginning that were handed out already.
    taken: usize,
}

impl FrameReader {
    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, without its length, if all of it is there.
    ///
    /// # Errors
    /// Its length is none that a frame can have.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length);
        let len = length as usize;
        if !(PREFIX..=FRAME_MAX).contains(&len) {
            return Err(FrameError::Length(length));
        }
        let Some(frame) = rest.get(..len) else { return Ok(None) };
        self.taken += 4 + len;
        Ok(Some(frame))
    }

    /// Bytes that wait for the rest of their frame, or to be taken.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.taken
    }
}
