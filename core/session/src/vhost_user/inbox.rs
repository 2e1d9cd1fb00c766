//! Bytes and descriptors of the socket become messages.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use weir_codec::{Code, Damaged, Reader, Writer, coded};
use weir_spec::vhost_user::{Header, MAX_PAYLOAD, MAX_TABLE_REGIONS, Request};
use zerocopy::FromBytes;

const HEADER: usize = size_of::<Header>();

/// What ends a connection: after it nothing on the socket can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// Not version 1.
    Version(u32),
    /// A payload longer than any message has.
    TooLong(u32),
    /// A reply where a request was due, or the other way round.
    UnexpectedReply(Request),
    /// More descriptors than any message carries.
    TooManyDescriptors,
    /// A request failed and the front end did not want to hear of it (no REPLY_ACK).
    Failed(Request),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::Version(v) => write!(f, "the front end speaks vhost-user version {v}, not 1"),
            ProtocolError::TooLong(n) => write!(f, "the front end announced a message of {n} bytes"),
            ProtocolError::UnexpectedReply(r) => {
                write!(f, "the front end sent a reply ({r:?}) where a request was due")
            }
            ProtocolError::TooManyDescriptors => f.write_str("the front end sent too many file descriptors"),
            ProtocolError::Failed(r) => write!(f, "{r:?} failed"),
        }
    }
}

impl core::error::Error for ProtocolError {}

/// A whole message.
#[derive(Debug)]
pub struct Message<F> {
    /// Which.
    pub request: Request,
    /// An answer is wanted in any case.
    pub needs_reply: bool,
    /// Said once more by the keeper: an earlier process has acted upon it ([`Header::AGAIN`]).
    pub again: bool,
    /// What follows the header.
    pub payload: Vec<u8>,
    /// Descriptors, in order.
    pub fds: Vec<F>,
}

/// Collects one message at a time, so that no byte of the next one is read early: a drain may have to come between.
#[derive(Debug)]
pub struct Inbox<F> {
    bytes: [u8; HEADER + MAX_PAYLOAD],
    have: usize,
    want: usize,
    fds: Vec<F>,
    /// Answers are due, not requests.
    answers: bool,
}

impl<F> Default for Inbox<F> {
    fn default() -> Self {
        Self { bytes: [0; HEADER + MAX_PAYLOAD], have: 0, want: HEADER, fds: Vec::new(), answers: false }
    }
}

impl<F> Inbox<F> {
    /// For what a back end answers.
    pub fn of_answers() -> Self {
        Self { answers: true, ..Self::default() }
    }

    /// Where the next bytes of the socket go: never empty, and never beyond the message.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.have..self.want]
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
        if self.fds.len() > MAX_TABLE_REGIONS {
            self.fds.clear();
            return Err(ProtocolError::TooManyDescriptors);
        }
        self.have = (self.have + count).min(self.want);
        if self.have < self.want {
            return Ok(None);
        }
        let header = self.header();
        if self.have == HEADER {
            check(&header, self.answers)?;
            self.want = HEADER + header.size.get() as usize;
            if self.want > HEADER {
                return Ok(None);
            }
        }
        let payload = self.bytes[HEADER..self.want].to_vec();
        (self.have, self.want) = (0, HEADER);
        Ok(Some(Message {
            request: Request(header.request.get()),
            needs_reply: header.needs_reply(),
            again: header.is_again(),
            payload,
            fds: core::mem::take(&mut self.fds),
        }))
    }

    /// Whether answers are due, not requests.
    pub fn has_answers(&self) -> bool {
        self.answers
    }

    /// What of a message is here: bytes, and the descriptors beside them.
    pub fn part(&self) -> (&[u8], &[F]) {
        (&self.bytes[..self.have], &self.fds)
    }

    /// The same, with other descriptors.
    ///
    /// # Errors
    /// The first that `f` has.
    pub fn try_map<'a, G, E>(&'a self, f: impl FnMut(&'a F) -> Result<G, E>) -> Result<Inbox<G>, E> {
        let fds = self.fds.iter().map(f).collect::<Result<_, E>>()?;
        Ok(Inbox { bytes: self.bytes, have: self.have, want: self.want, fds, answers: self.answers })
    }

    /// Puts what was [here](Self::part) into one that is empty; false where it is no part of a message.
    pub fn refill(&mut self, mut bytes: &[u8], fds: Vec<F>) -> bool {
        if fds.len() > MAX_TABLE_REGIONS || self.have > 0 {
            return false;
        }
        self.fds = fds;
        while !bytes.is_empty() {
            let space = self.space();
            let (now, later) = bytes.split_at(bytes.len().min(space.len()));
            space[..now.len()].copy_from_slice(now);
            if !matches!(self.advance(now.len(), []), Ok(None)) {
                return false;
            }
            bytes = later;
        }
        true
    }

    fn header(&self) -> Header {
        Header::read_from_prefix(&self.bytes).map(|(h, _)| h).unwrap_or_default()
    }
}

coded! { Message<u32> {
    request: "which",
    needs_reply: "an answer is wanted in any case",
    again: "it is said once more: an earlier process has acted upon it",
    payload: "what follows the header",
    fds: "descriptors, in order",
} }

/// What of a message is here: it is read once more.
impl<F: Code> Code for Inbox<F> {
    fn put(&self, to: &mut Writer) {
        let (bytes, fds) = self.part();
        to.put(&self.answers);
        to.bytes(bytes);
        to.u32(fds.len() as u32);
        to.many(fds);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut inbox = Inbox { answers: from.get()?, ..Self::default() };
        let (bytes, fds): (Vec<u8>, Vec<F>) = from.get()?;
        if inbox.refill(&bytes, fds) { Ok(inbox) } else { Err(Damaged) }
    }
    fn kind() -> String {
        format!("whether answers are due {}; {}", bool::kind(), <(Vec<u8>, Vec<F>)>::kind())
    }
}

fn check(header: &Header, answers: bool) -> Result<(), ProtocolError> {
    if header.version() != Header::VERSION {
        Err(ProtocolError::Version(header.version()))
    } else if header.is_reply() != answers {
        Err(ProtocolError::UnexpectedReply(Request(header.request.get())))
    } else if header.size.get() as usize > MAX_PAYLOAD {
        Err(ProtocolError::TooLong(header.size.get()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[test]
fn fields_are_lines_of_the_formats_page() {
    let page = include_str!("../../../../docs/reference/formats.md");
    let missing = weir_codec::undocumented(page, [("Message", Message::rows())]);
    assert!(missing.is_empty(), "formats.md has other lines than these:\n{missing}");
}
