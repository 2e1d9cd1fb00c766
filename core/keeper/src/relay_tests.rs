//! A worker that dies after every step, of one and of two in a row: the client hears what it would have heard.

use super::relay::{ANSWER, APPLIED, RelayError, answer, applied, beginning};
use super::*;
use alloc::collections::VecDeque;
use alloc::vec;
use weir_session::vfio_user::checkpoint::{Checkpoint, SLOT, place};
use weir_session::vfio_user::{Message, gathered};
use weir_spec::nvme::tcp::TableDigest;
use weir_spec::vfio_user::{Command, Header};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

fn command(id: u16, command: Command, payload: &[u8], fds: Vec<u32>) -> Message<u32> {
    Message { header: Header::command(id, command, payload.len()), payload: payload.to_vec(), fds }
}

/// The message that these bytes are.
fn message(bytes: &[u8], fds: Vec<u32>) -> Message<u32> {
    gathered(bytes, fds).unwrap().1.unwrap()
}

/// What the device would say to message `x`, and the state after it. Some want no answer, and some make it say more than one thing.
fn device(state: u64, x: u64) -> (u64, Vec<u64>) {
    let after = state.wrapping_mul(31).wrapping_add(x);
    let says = if x % 5 == 0 {
        vec![]
    } else if x % 3 == 0 {
        vec![after, !after]
    } else {
        vec![after]
    };
    (after, says)
}

/// Both ends of the conversation, and what lies between.
struct World {
    relay: Relay<u32>,
    /// From the keeper to the worker that serves; nobody's when it dies.
    line: VecDeque<Envelope<u32>>,
    /// From the worker; the keeper reads it whoever lives.
    back: VecDeque<Vec<u8>>,
    file: Vec<u8>,
    heard: Vec<u64>,
}

/// A worker's own memory.
#[derive(Default)]
struct Worker {
    began: bool,
    next: u64,
    kept: Checkpoint,
    generation: u64,
    fresh: Vec<u64>,
    out: VecDeque<Vec<u8>>,
}

impl World {
    fn new() -> Self {
        let mut relay = Relay::new();
        relay.told(7);
        let mut world = World { relay, line: VecDeque::new(), back: VecDeque::new(), file: vec![], heard: vec![] };
        world.line = world.relay.again().into();
        world
    }

    fn say(&mut self, x: u64) {
        let message = command(x as u16, Command::REGION_WRITE, U64::new(x).as_bytes(), vec![x as u32]);
        let envelope = self.relay.front(message);
        self.line.push_back(envelope);
    }

    /// The keeper reads what the worker has said.
    fn hear(&mut self) {
        while let Some(bytes) = self.back.pop_front() {
            if let Some(envelope) = self.relay.back(message(&bytes, vec![])).unwrap() {
                self.heard.push(U64::read_from_bytes(&envelope.bytes[Header::LEN..]).unwrap().get());
            }
        }
    }

    fn next_worker(&mut self) -> Worker {
        self.hear();
        self.line = self.relay.again().into();
        let slots = [&self.file[..], self.file.get(SLOT as usize..).unwrap_or_default()];
        let found = Checkpoint::newest::<TableDigest>(slots).unwrap();
        let mut worker = Worker::default();
        if let Some((generation, kept)) = found {
            (worker.generation, worker.kept) = (generation, kept);
        }
        worker
    }
}

impl Worker {
    fn state(&self) -> u64 {
        self.kept.device.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Every step of a turn; false where the process has died before it.
    fn turn(&mut self, world: &mut World, alive: &mut impl FnMut() -> bool) -> bool {
        let mut said = self.kept.controller.chunks_exact(8).count() as u64;
        for _ in 0..3 {
            let Some(envelope) = world.line.pop_front() else { break };
            if !alive() {
                return false;
            }
            let message = message(&envelope.bytes, envelope.fds);
            if !self.began {
                let begins = beginning(&message).expect("a line begins so");
                assert_eq!(begins.client.get(), 7);
                assert!(
                    begins.first.get() <= self.kept.applied + 1 && begins.answered.get() <= self.kept.answered + said
                );
                (self.began, self.next) = (true, begins.first.get());
                // What the checkpoint says was not sent is sent again.
                let unsent = core::mem::take(&mut self.kept.controller);
                self.fresh = unsent.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
                said = 0;
                continue;
            }
            let number = self.next;
            self.next += 1;
            if number <= self.kept.applied {
                continue;
            }
            let x = U64::read_from_bytes(&message.payload).unwrap().get();
            assert_eq!((x, &message.fds[..]), (number, &[x as u32][..]), "in order, with their descriptors");
            let (state, says) = device(self.state(), x);
            self.kept.device = state.to_le_bytes().to_vec();
            self.kept.applied = number;
            self.fresh.extend(says);
        }
        if !self.began {
            return true;
        }
        // Everything that was sent so far has gone.
        self.kept.answered += said;
        self.kept.controller = self.fresh.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.generation += 1;
        let bytes = self.kept.to_bytes::<TableDigest>(self.generation).unwrap();
        let at = place(self.generation) as usize;
        world.file.resize(world.file.len().max(at + bytes.len()), 0);
        let half = bytes.len() / 2;
        for (at, part) in [(at, &bytes[..half]), (at + half, &bytes[half..])] {
            if !alive() {
                return false;
            }
            world.file[at..at + part.len()].copy_from_slice(part);
        }
        self.out.push_back(applied(self.kept.applied));
        for (number, says) in (self.kept.answered + 1..).zip(core::mem::take(&mut self.fresh)) {
            let reply = command(0, Command::REGION_WRITE, U64::new(says).as_bytes(), vec![]).bytes();
            self.out.extend([answer(number), reply]);
        }
        while let Some(word) = self.out.pop_front() {
            if !alive() {
                return false;
            }
            world.back.push_back(word);
        }
        true
    }
}

const MESSAGES: u64 = 10;

/// What the client hears, and how many steps it took, where the worker dies before each of these steps.
fn conversation(deaths: &[u64]) -> (Vec<u64>, u64, u64) {
    let (mut world, mut worker, mut steps) = (World::new(), Worker::default(), 0u64);
    let mut said = 0;
    for _ in 0..400 {
        // The client goes on while nobody serves it.
        if said < MESSAGES && steps % 2 == 0 {
            said += 1;
            world.say(said);
        }
        let mut alive = || {
            steps += 1;
            !deaths.contains(&steps)
        };
        if !worker.turn(&mut world, &mut alive) {
            worker = world.next_worker();
        }
        world.hear();
        while said < MESSAGES && said % 3 != 0 {
            said += 1;
            world.say(said);
        }
        if said < MESSAGES {
            said += 1;
            world.say(said);
        }
        if said == MESSAGES
            && world.line.is_empty()
            && worker.kept.applied == MESSAGES
            && world.relay.descriptors() == 0
        {
            break;
        }
    }
    world.hear();
    (world.heard, worker.state(), steps)
}

#[test]
fn a_worker_may_die_anywhere() {
    let (mut state, mut want) = (0, vec![]);
    for x in 1..=MESSAGES {
        let (after, says) = device(state, x);
        state = after;
        want.extend(says);
    }
    let (heard, end, steps) = conversation(&[]);
    assert_eq!((&heard, end), (&want, state));
    assert!(steps > 30, "{steps}");
    for first in 1..=steps {
        for second in core::iter::once(0).chain(first + 1..=first + 25) {
            let (heard, end, _) = conversation(&[first, second]);
            assert_eq!((&heard, end), (&want, state), "deaths before steps {first} and {second}");
        }
    }
}

#[test]
fn what_is_not_in_order_ends_the_connection() {
    let reply = || command(3, Command::REGION_READ, &[0; 8], vec![]);
    let mut relay: Relay<u32> = Relay::new();
    assert_eq!(relay.back(reply()).unwrap_err(), RelayError::Unnumbered(Command::REGION_READ.0));
    let short = command(0, ANSWER, &[0; 4], vec![]);
    assert_eq!(relay.back(short).unwrap_err(), RelayError::Unnumbered(ANSWER.0));
    assert!(relay.back(message(&answer(2), vec![])).unwrap().is_none());
    assert_eq!(relay.back(reply()).unwrap_err(), RelayError::Gap(0));
    assert_eq!(relay.back(message(&applied(1), vec![])).unwrap_err(), RelayError::Applied(1));
    assert_eq!(relay.back(message(&applied(u64::MAX), vec![])).unwrap_err(), RelayError::Applied(u64::MAX));
    // A number is the next message's, whatever that says of itself.
    let mut relay: Relay<u32> = Relay::new();
    relay.back(message(&answer(1), vec![])).unwrap();
    let passed = relay.back(command(0, APPLIED, &[9; 8], vec![4])).unwrap().unwrap();
    assert_eq!((passed.fds, passed.bytes.len()), (vec![4], Header::LEN + 8));
    // A number that came before the worker died counts no more.
    relay.back(message(&answer(2), vec![])).unwrap();
    assert_eq!(relay.again().len(), 1);
    assert!(relay.back(message(&answer(1), vec![])).unwrap().is_none());
    assert!(relay.back(reply()).unwrap().is_none(), "the client has had it");
}

#[test]
fn a_client_that_says_too_much_waits() {
    let mut relay: Relay<u32> = Relay::new();
    let mut said = 0u64;
    while !relay.is_full() {
        relay.front(command(0, Command::REGION_READ, &[0; 8], vec![1, 2]));
        said += 1;
    }
    assert_eq!((relay.descriptors() as u64, relay.again().len() as u64), (2 * said, said + 1));
    relay.back(message(&applied(said - 1), vec![])).unwrap();
    assert!(!relay.is_full() && relay.descriptors() == 2);
    relay.back(message(&applied(said - 1), vec![])).unwrap();
    assert_eq!(relay.again().len(), 2, "twice is no more than once");
    let begins = beginning(&message(&relay.again()[0].bytes, vec![])).unwrap();
    assert_eq!((begins.first.get(), begins.again.get()), (said, 1));
}

#[test]
fn it_is_the_same_after_a_renewal() {
    let mut relay: Relay<u32> = Relay::new();
    relay.told(5);
    relay.told(6);
    relay.front(command(1, Command::DMA_MAP, &[1; 8], vec![9]));
    relay.back(message(&answer(1), vec![])).unwrap();
    let mut after = saved::again(&relay);
    assert_eq!(alloc::format!("{after:?}"), alloc::format!("{relay:?}"));
    assert_eq!(after.try_map(|fd| Ok::<u32, ()>(fd + 1)).unwrap().again()[1].fds, [10]);
    assert_eq!(beginning(&message(&after.again()[0].bytes, vec![])).unwrap().client.get(), 5);
    assert!(beginning(&message(&answer(1), vec![])).is_none());
}
