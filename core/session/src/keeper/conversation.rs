//! A vfio-user client's conversation, of which no message is lost with a worker.
//!
//! ```text
//!   client ──Message──► client() ──Delivery──► the worker          tail:  what has not been answered yet, by number
//!   client ◄──bytes──── answer() ◄──Answer──── the worker          state: the device as its worker said with its last answer
//!                       again()  ──Resumed, Delivery …──► the next worker
//! ```
//! A worker says with an answer what its device has become by it ([`State`]: the bytes that [`Device::save`] writes, and which descriptors
//! belong to them). The two are taken together, so a message has its effect on the device and its answer, or neither, and then
//! it is delivered to the next worker, with its descriptors: a client sends them once. Every message is answered to the keeper, those of
//! which the client wants no reply as well. Effects elsewhere (registers of the controller) are applied by number: a worker that finds
//! that number there leaves them out.
//!
//! What the worker asks of its client (DMA_READ, DMA_WRITE) has identifiers of the keeper's on the socket: answers to a worker that has
//! gone are nobody's, and those to the next one cannot be taken for them.
//!
//! Nothing here knows what is in the state. Not connected to any socket yet: docs/architecture.md, "What a crash leaves", says what is
//! missing.
//!
//! [`Device::save`]: crate::vfio_user::Device::save

use crate::vfio_user::{Message, ProtocolError};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use weir_spec::vfio_user::Header;
use zerocopy::{FromBytes, IntoBytes};

/// Messages without an answer, after which no more are to be read from the client.
const MOST: usize = 64;

/// A descriptor by the message that it came with, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName {
    /// Number of the message.
    pub message: u64,
    /// Place among its descriptors.
    pub place: u16,
}

/// What a device has become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// For the next worker; nothing before the first answer.
    pub bytes: Vec<u8>,
    /// The descriptors that belong to it, in an order of the worker's.
    pub files: Vec<FileName>,
}

/// A message on its way to the worker.
#[derive(Clone, Debug)]
pub struct Delivery<F> {
    /// Counted from 1 in the life of the connection.
    pub number: u64,
    /// As the client sent it.
    pub header: Header,
    /// What follows the header.
    pub payload: Vec<u8>,
    /// Its descriptors, with what they are called.
    pub fds: Vec<(FileName, F)>,
}

/// What the next worker begins with.
#[derive(Clone, Debug)]
pub struct Resumed<F> {
    /// The device.
    pub state: State,
    /// Its descriptors, in the order of [`State::files`].
    pub fds: Vec<F>,
    /// Messages up to this number have had their effect on the device.
    pub number: u64,
}

/// Where something goes.
#[derive(Debug)]
pub enum Heard<F> {
    /// A message of the client's goes to the worker.
    Deliver(Delivery<F>),
    /// The client's answer to a request of this worker's goes to it, under the identifier that it has given.
    Answered {
        /// With that identifier.
        header: Header,
        /// What follows.
        payload: Vec<u8>,
    },
    /// It is nobody's any more.
    Nothing,
}

/// What makes a conversation impossible to follow: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationError {
    /// The client broke the protocol.
    Client(ProtocolError),
    /// The worker answered another message than the oldest one.
    Unexpected(u64),
    /// The worker's device has a descriptor that there is not.
    NoFile(FileName),
    /// The worker sent what is no message.
    Garbled,
    /// The worker has asked for more than identifiers allow.
    TooMany,
}

impl fmt::Display for ConversationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConversationError::Client(e) => e.fmt(f),
            ConversationError::Unexpected(n) => write!(f, "the worker answered message {n}, which was not its turn"),
            ConversationError::NoFile(name) => {
                write!(f, "the worker named descriptor {} of message {}, which there is not", name.place, name.message)
            }
            ConversationError::Garbled => f.write_str("the worker sent what is no message"),
            ConversationError::TooMany => f.write_str("the worker asks its client for too much at a time"),
        }
    }
}

impl core::error::Error for ConversationError {}

/// See the [module](self). Descriptors are cloned by handing out another reference to them.
#[derive(Debug, Default)]
pub struct Conversation<F> {
    /// Of the client's last message.
    number: u64,
    tail: VecDeque<Delivery<F>>,
    state: State,
    /// Those of the state.
    files: BTreeMap<FileName, F>,
    /// What the client was asked, by its identifier on the socket: that of the worker, while that one serves.
    asked: BTreeMap<u16, Option<u16>>,
    next: u16,
}

impl<F: Clone> Conversation<F> {
    /// With a client that has said nothing.
    pub fn new() -> Self {
        Self {
            number: 0,
            tail: VecDeque::new(),
            state: State::default(),
            files: BTreeMap::new(),
            asked: BTreeMap::new(),
            next: 0,
        }
    }

    /// So much waits for answers that the client has to wait as well.
    pub fn is_full(&self) -> bool {
        self.tail.len() >= MOST
    }

    /// The client has said something.
    ///
    /// # Errors
    /// It answers what it was not asked.
    pub fn client(&mut self, message: Message<F>) -> Result<Heard<F>, ConversationError> {
        let Message { header, payload, fds } = message;
        if header.kind() == Header::REPLY {
            let id = header.id.get();
            let wrong = ConversationError::Client(ProtocolError::UnexpectedReply(id));
            let of = self.asked.remove(&id).ok_or(wrong)?;
            return Ok(of.map_or(Heard::Nothing, |id| {
                let header = Header { id: id.into(), ..header };
                Heard::Answered { header, payload }
            }));
        }
        self.number += 1;
        let number = self.number;
        let name = |(place, fd)| (FileName { message: number, place }, fd);
        let delivery = Delivery { number, header, payload, fds: (0u16..).zip(fds).map(name).collect() };
        self.tail.push_back(delivery.clone());
        Ok(Heard::Deliver(delivery))
    }

    /// The worker has answered the oldest message; `state` is what its device has become, unless that is as it was. What goes to the
    /// client: nothing where that wants no reply.
    ///
    /// # Errors
    /// It is not that message's turn, or the state has descriptors that there are not. Nothing is taken then.
    pub fn answer(
        &mut self,
        number: u64,
        reply: Vec<u8>,
        state: Option<State>,
    ) -> Result<Option<Vec<u8>>, ConversationError> {
        let turn = self.tail.front().filter(|said| said.number == number);
        let said = turn.ok_or(ConversationError::Unexpected(number))?;
        if let Some(state) = state {
            let file = |name: &FileName| {
                let own = said.fds.iter().find(|(n, _)| n == name).map(|(_, fd)| fd);
                let fd = own.or_else(|| self.files.get(name)).ok_or(ConversationError::NoFile(*name))?;
                Ok((*name, fd.clone()))
            };
            let files = state.files.iter().map(file).collect::<Result<_, _>>()?;
            (self.state, self.files) = (state, files);
        }
        let silent = said.header.no_reply();
        self.tail.pop_front();
        Ok((!silent).then_some(reply))
    }

    /// The worker asks something of its client: what goes there.
    ///
    /// # Errors
    /// It is no message, or there are too many already.
    pub fn ask(&mut self, mut bytes: Vec<u8>) -> Result<Vec<u8>, ConversationError> {
        let (header, _) = Header::read_from_prefix(&bytes).map_err(|_| ConversationError::Garbled)?;
        if header.size.get() as usize != bytes.len() || header.kind() == Header::REPLY {
            return Err(ConversationError::Garbled);
        }
        if self.asked.len() > usize::from(u16::MAX) {
            return Err(ConversationError::TooMany);
        }
        while self.asked.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        self.asked.insert(id, Some(header.id.get()));
        let renamed = Header { id: id.into(), ..header };
        bytes.splice(..size_of::<Header>(), renamed.as_bytes().iter().copied());
        Ok(bytes)
    }

    /// The worker has gone: what the next one begins with, and the messages that it is then to hear.
    pub fn again(&mut self) -> (Resumed<F>, Vec<Delivery<F>>) {
        self.asked.values_mut().for_each(|of| *of = None);
        // Each name is in both, since the state was taken.
        let fds = self.state.files.iter().filter_map(|name| self.files.get(name).cloned()).collect();
        let number = self.tail.front().map_or(self.number, |said| said.number - 1);
        (Resumed { state: self.state.clone(), fds, number }, self.tail.iter().cloned().collect())
    }
}
