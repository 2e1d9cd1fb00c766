//! What a client of vfio-user and its device say to each other, so that no word of it is lost or heard twice when a worker dies.
//!
//! ```text
//!   client ──Message──► front() ──Envelope──► the worker            tail: messages that may not have had their effect yet
//!   client ◄─Envelope── back() ◄─ANSWER k, it, APPLIED n── the worker
//!                       again() ──BEGIN, tail──► the next worker
//! ```
//! The client's messages are numbered from 1, and so are the messages that it gets. A worker writes a checkpoint of the client's device,
//! which says how many messages have had their effect and which answers to them have not been sent, before it sends any of these, unless who
//! hears the messages behind the last one again would do and answer the same. It says
//! [`APPLIED`] then, and that part of the tail is forgotten. One that follows is told where the tail [begins](BEGIN), skips what its
//! checkpoint has had already, and sends the answers of its checkpoint (again): each behind its number ([`ANSWER`]), by which those that
//! have been passed on are known.

use super::replay::Envelope;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use weir_codec::coded;
use weir_session::vfio_user::Message;
use weir_spec::vfio_user::{Command, Header};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// On the line only, to the worker and first of all: [`Beginning`].
pub const BEGIN: Command = Command(0xff00);
/// On the line only: the message behind this one goes to the client, and has this number.
pub const ANSWER: Command = Command(0xff01);
/// On the line only: all messages up to this one have had their effect.
pub const APPLIED: Command = Command(0xff02);

/// Messages without effect after which no more are to be read from the client.
const MOST: usize = 128;

/// Where the messages on a line begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Beginning {
    /// Which client, of all that the keeper has let in.
    pub client: U64,
    /// The number of the first message that comes now.
    pub first: U64,
    /// How many come that were passed on to a worker before.
    pub again: U64,
    /// How many messages the client has got.
    pub answered: U64,
}

/// A word of the line's own.
fn word(command: Command, payload: &[u8]) -> Vec<u8> {
    let header = Header::command(0, command, payload.len());
    [header.as_bytes(), payload].concat()
}

/// The word that goes before message `number` to the client.
pub fn answer(number: u64) -> Vec<u8> {
    word(ANSWER, U64::new(number).as_bytes())
}

/// The word that says that all messages up to `number` have had their effect.
pub fn applied(number: u64) -> Vec<u8> {
    word(APPLIED, U64::new(number).as_bytes())
}

/// What a worker hears first on a line; `None` where it is something else.
pub fn beginning<F>(message: &Message<F>) -> Option<Beginning> {
    let is = message.header.kind() != Header::REPLY && message.header.command.get() == BEGIN.0;
    if is { Beginning::read_from_bytes(&message.payload).ok() } else { None }
}

/// What makes a conversation impossible to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayError {
    /// A message of the worker's without a number, or a number without a message.
    Unnumbered(u16),
    /// The message after this one is missing.
    Gap(u64),
    /// Something is to have had its effect that was never said, or not again.
    Applied(u64),
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayError::Unnumbered(command) => write!(f, "the worker sent command {command} without its number"),
            RelayError::Gap(number) => write!(f, "the worker left out what follows message {number}"),
            RelayError::Applied(number) => write!(f, "the worker has taken message {number}, which was not sent"),
        }
    }
}

impl core::error::Error for RelayError {}

/// See the [module](self). Descriptors are cloned by handing out another reference to them.
#[derive(Debug)]
pub struct Relay<F> {
    client: u64,
    /// The number of the tail's first message.
    first: u64,
    tail: VecDeque<Envelope<F>>,
    /// Messages that the client has got.
    answered: u64,
    /// The number of the message that comes next on the line.
    announced: Option<u64>,
}

impl<F: Clone> Default for Relay<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Clone> Relay<F> {
    /// Of a client that has said nothing and of which no worker knows.
    pub fn new() -> Self {
        Self { client: 0, first: 1, tail: VecDeque::new(), answered: 0, announced: None }
    }

    /// So many messages have had no effect yet that the client has to wait.
    pub fn is_full(&self) -> bool {
        self.tail.len() >= MOST
    }

    /// The client has said something; what the worker is to hear.
    pub fn front(&mut self, message: Message<F>) -> Envelope<F> {
        let said = Envelope { bytes: message.bytes(), fds: message.fds };
        self.tail.push_back(said.clone());
        said
    }

    /// The worker has said something; what the client is to hear of it.
    ///
    /// # Errors
    /// It is not in order: the connection cannot go on.
    pub fn back(&mut self, message: Message<F>) -> Result<Option<Envelope<F>>, RelayError> {
        let command = message.header.command.get();
        let Some(number) = self.announced.take() else {
            let number = U64::read_from_bytes(&message.payload).map_err(|_| RelayError::Unnumbered(command))?.get();
            match Command(command) {
                ANSWER => self.announced = Some(number),
                APPLIED => self.forget(number)?,
                _ => return Err(RelayError::Unnumbered(command)),
            }
            return Ok(None);
        };
        if number <= self.answered {
            return Ok(None);
        }
        if number != self.answered + 1 {
            return Err(RelayError::Gap(self.answered));
        }
        self.answered = number;
        Ok(Some(Envelope { bytes: message.bytes(), fds: message.fds }))
    }

    fn forget(&mut self, number: u64) -> Result<(), RelayError> {
        let gone = number.saturating_add(1).saturating_sub(self.first) as usize;
        if gone > self.tail.len() {
            return Err(RelayError::Applied(number));
        }
        self.tail.drain(..gone);
        self.first += gone as u64;
        Ok(())
    }

    /// Everything that another worker must hear, in order: from now on it is that one which speaks.
    pub fn again(&mut self) -> Vec<Envelope<F>> {
        self.announced = None;
        let begins = Beginning {
            client: U64::new(self.client),
            first: U64::new(self.first),
            again: U64::new(self.tail.len() as u64),
            answered: U64::new(self.answered),
        };
        let begin = Envelope { bytes: word(BEGIN, begins.as_bytes()), fds: Vec::new() };
        core::iter::once(begin).chain(self.tail.iter().cloned()).collect()
    }

    /// Descriptors held.
    pub fn descriptors(&self) -> usize {
        self.tail.iter().map(|said| said.fds.len()).sum()
    }
}

impl<F> Relay<F> {
    /// A worker is told of it by that number; the first one is its name.
    pub fn told(&mut self, number: u64) {
        if self.client == 0 {
            self.client = number;
        }
    }

    /// Whether it does not contradict itself.
    pub(super) fn agrees(&self) -> bool {
        self.first > 0 && self.tail.iter().all(|said| said.bytes.len() >= Header::LEN)
    }

    /// The same, with other descriptors.
    ///
    /// # Errors
    /// The first that `f` has.
    pub fn try_map<'a, G, E>(&'a self, mut f: impl FnMut(&'a F) -> Result<G, E>) -> Result<Relay<G>, E> {
        let mut one = |said: &'a Envelope<F>| {
            let fds = said.fds.iter().map(&mut f).collect::<Result<_, E>>()?;
            Ok(Envelope { bytes: said.bytes.clone(), fds })
        };
        let tail = self.tail.iter().map(&mut one).collect::<Result<_, E>>()?;
        let Relay { client, first, answered, announced, .. } = *self;
        Ok(Relay { client, first, tail, answered, announced })
    }
}

coded! { Relay<u32> {
    client: "the client's name",
    first: "the number of the tail's first message",
    tail: "messages that may have had no effect",
    answered: "messages that the client has got",
    announced: "the number of the message that comes next on the line",
} }
