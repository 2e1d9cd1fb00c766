//! What a front end of vhost-user has said, as short as a new worker needs it.
//!
//! ```text
//!   front end ──Message──► front() ──Envelope──► the worker           state: the last word on everything that is set
//!   front end ◄─Envelope── back()  ◄──reply──── the worker            tail:  what has not been answered yet
//!                          again() ──Envelope──► the next worker      = state, then tail
//! ```
//! A message that sets something and asks for no answer counts as heard as soon as it has been passed on: a worker that dies
//! before it reads it leaves it to the next one, which hears all of the state in any case. A message with an answer stays in
//! the tail until the answer is here, and is delivered again to the next worker; an answer that has been passed on is never
//! passed on twice.
//!
//! What starts and stops rings ([`is_turn`]) is always acknowledged by the worker, whether the front end wants to know or not, and
//! nothing behind it is passed on before. So a worker that hears it again can tell from the ring's journal how far the dead one came:
//! a ring of the state has begun for certain, and if its journal says that it was stopped, then it was by what stands in the tail.
//! Such messages carry [`Header::AGAIN`].
//!
//! Where the front end keeps no in-flight region (it did not take INFLIGHT_SHMFD), one is asked for in its place before the
//! first ring starts, so that a crash loses none of its requests either.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use weir_codec::{coded, numbered};
use weir_session::vhost_user::{Message, has_reply};
use weir_spec::vhost_user::{
    Header, Inflight, MAX_TABLE_REGIONS, MemoryRegion, MemoryTableHeader, Request, SingleRegion, VringAddress, VringFd,
    VringState, memory_table, protocol,
};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Most vrings that a front end can name in every message ([`VringFd`] has eight bits for them).
const MAX_VRINGS: u32 = 256;
/// Messages that wait for an answer before them, after which no more are to be read from the front end.
const MOST_HELD: usize = 64;
/// Entries of queues that most drivers do not exceed: a region for these serves one guest after the other.
const USUAL_SIZE: u16 = 256;

/// A message as it goes over a socket.
#[derive(Clone, Debug)]
pub struct Envelope<F> {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// Descriptors beside the first byte.
    pub fds: Vec<F>,
}

impl<F> Envelope<F> {
    fn new(flags: u32, request: Request, payload: &[u8], fds: Vec<F>) -> Self {
        let header = Header {
            request: U32::new(request.0),
            flags: U32::new(Header::VERSION | flags),
            size: U32::new(payload.len() as u32),
        };
        let mut bytes = Vec::with_capacity(size_of::<Header>() + payload.len());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(payload);
        Self { bytes, fds }
    }
}

/// What makes a conversation impossible to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The worker answered what was not asked.
    Unexpected(Request),
    /// The worker refused what the front end did not want to hear of: it is disconnected.
    Refused(Request),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Unexpected(request) => write!(f, "the worker answered {request:?}, which was not asked"),
            ReplayError::Refused(request) => write!(f, "{request:?} failed"),
        }
    }
}

impl core::error::Error for ReplayError {}

/// A message that was passed on and may have to be passed on again.
#[derive(Clone, Debug)]
pub(super) struct Said<F> {
    request: Request,
    need_reply: bool,
    payload: Vec<u8>,
    fds: Vec<F>,
}

impl<F: Clone> Said<F> {
    fn envelope(&self) -> Envelope<F> {
        let flags = if self.need_reply { Header::NEED_REPLY } else { 0 };
        if self.request == Request::SET_PROTOCOL_FEATURES {
            return Envelope::new(flags, self.request, &with_ack(&self.payload), Vec::new());
        }
        Envelope::new(flags, self.request, &self.payload, self.fds.clone())
    }
}

/// Who wants to hear of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Front,
    /// Only that it was done.
    Turn,
    /// The region that comes with it.
    Region,
}

/// Whether it starts or stops rings.
fn is_turn(request: Request) -> bool {
    matches!(request, Request::SET_VRING_KICK | Request::GET_VRING_BASE | Request::RESET_DEVICE)
}

/// Protocol features as the worker hears them: it acknowledges in any case, and the front end gets what it has agreed to.
fn with_ack(payload: &[u8]) -> Vec<u8> {
    match number(payload) {
        Some(bits) => U64::new(bits | protocol::REPLY_ACK).as_bytes().to_vec(),
        None => payload.to_vec(),
    }
}

#[derive(Debug)]
pub(super) struct Pending<F> {
    said: Said<F>,
    /// The worker answers it.
    answered: bool,
    asker: Asker,
}

impl<F> Pending<F> {
    /// What comes behind it has to wait.
    fn is_turn(&self) -> bool {
        self.answered && (self.asker == Asker::Region || is_turn(self.said.request))
    }
}

/// The last word on a vring.
#[derive(Debug)]
pub(super) struct Vring<F> {
    num: Option<u32>,
    base: Option<u32>,
    address: Option<VringAddress>,
    enable: Option<u32>,
    /// Payload and descriptor.
    call: Option<(Vec<u8>, Vec<F>)>,
    err: Option<(Vec<u8>, Vec<F>)>,
    /// A ring with a kick has started.
    kick: Option<(Vec<u8>, Vec<F>)>,
}

impl<F> Default for Vring<F> {
    fn default() -> Self {
        Self { num: None, base: None, address: None, enable: None, call: None, err: None, kick: None }
    }
}

/// See the [module](self). Descriptors are cloned by handing out another reference to them.
#[derive(Debug)]
pub struct Replay<F> {
    owned: bool,
    features: Option<Vec<u8>>,
    protocol: Option<Vec<u8>>,
    /// The last of each of these: the back end's channel, the in-flight region, the dirty log, the status.
    single: BTreeMap<u32, Said<F>>,
    regions: Vec<(MemoryRegion, F)>,
    vrings: BTreeMap<u32, Vring<F>>,
    tail: VecDeque<Pending<F>>,
    /// Messages that wait for the answer to one before them.
    held: VecDeque<Message<F>>,
    /// Whether the worker keeps in-flight regions.
    inflight: bool,
    /// The in-flight region is not the front end's: entries of its queues.
    region: Option<u16>,
    /// How many queues the worker has said that it has.
    queues: u32,
}

/// Where something goes.
#[derive(Debug)]
pub enum Passed<F> {
    /// To the worker.
    Worker(Envelope<F>),
    /// To the front end.
    Front(Envelope<F>),
}

impl<F: Clone> Replay<F> {
    /// Of a front end that has said nothing; `inflight` says that workers keep in-flight regions.
    pub fn new(inflight: bool) -> Self {
        Self {
            owned: false,
            features: None,
            protocol: None,
            single: BTreeMap::new(),
            regions: Vec::new(),
            vrings: BTreeMap::new(),
            tail: VecDeque::new(),
            held: VecDeque::new(),
            inflight,
            region: None,
            queues: 0,
        }
    }

    /// The front end has said something.
    pub fn front(&mut self, message: Message<F>, out: &mut Vec<Passed<F>>) {
        self.held.push_back(message);
        self.release(out);
    }

    /// So many messages wait that the front end has to wait as well.
    pub fn is_full(&self) -> bool {
        self.held.len() >= MOST_HELD
    }

    /// Passes on what waits no more.
    fn release(&mut self, out: &mut Vec<Passed<F>>) {
        while !self.tail.iter().any(Pending::is_turn) {
            let Some(message) = self.held.pop_front() else { return };
            self.say(message, out);
        }
    }

    fn say(&mut self, message: Message<F>, out: &mut Vec<Passed<F>>) {
        let size = self.vrings.values().filter_map(|v| v.num).max().unwrap_or(0).min(u32::from(u16::MAX)) as u16;
        if message.request == Request::SET_VRING_KICK && self.wants_region(size) {
            // Who does not ask how many there are has one, or names them all before the first one starts.
            let queues = self.vrings.keys().next_back().map_or(1, |last| last + 1).max(self.queues);
            let ask = Inflight {
                num_queues: (queues as u16).into(),
                queue_size: size.max(USUAL_SIZE).into(),
                ..Inflight::default()
            };
            let said = Said {
                request: Request::GET_INFLIGHT_FD,
                need_reply: true,
                payload: ask.as_bytes().to_vec(),
                fds: Vec::new(),
            };
            self.held.push_front(message);
            return self.pass(said, Asker::Region, out);
        }
        let Message { request, needs_reply, payload, fds, again: _ } = message;
        if request == Request::SET_INFLIGHT_FD {
            self.region = None;
        }
        let wants = needs_reply && self.acknowledges();
        let turn = is_turn(request) && !has_reply(request);
        let asker = if turn && !wants { Asker::Turn } else { Asker::Front };
        self.pass(Said { request, need_reply: wants || turn, payload, fds }, asker, out);
    }

    /// The first ring starts, and nobody keeps an in-flight region yet, or the one that was asked for in the front end's place is
    /// too small for the rings of its guest's next driver.
    fn wants_region(&self, size: u16) -> bool {
        let none = !self.single.contains_key(&Request::SET_INFLIGHT_FD.0);
        let small = self.region.is_some_and(|have| have < size) && self.vrings.values().all(|v| v.kick.is_none());
        self.inflight && (none || small)
    }

    fn pass(&mut self, said: Said<F>, asker: Asker, out: &mut Vec<Passed<F>>) {
        out.push(Passed::Worker(said.envelope()));
        let answered = has_reply(said.request) || said.need_reply;
        if answered || !self.tail.is_empty() {
            self.tail.push_back(Pending { said, answered, asker });
        } else {
            self.absorb(said, &[]);
        }
    }

    /// What the front end wants acknowledged depends on what was agreed before the message.
    fn acknowledges(&self) -> bool {
        let in_tail = self.tail.iter().rev().find(|p| p.said.request == Request::SET_PROTOCOL_FEATURES);
        let agreed = in_tail.map(|p| &p.said.payload).or(self.protocol.as_ref());
        agreed.and_then(|p| number(p)).is_some_and(|bits| bits & protocol::REPLY_ACK != 0)
    }

    /// The worker has answered.
    ///
    /// # Errors
    /// It has not been asked, or it has refused what ends the connection.
    pub fn back(
        &mut self,
        request: Request,
        payload: &[u8],
        fds: Vec<F>,
        out: &mut Vec<Passed<F>>,
    ) -> Result<(), ReplayError> {
        let at = self.tail.iter().position(|p| p.answered);
        if request == Request::SET_LOG_BASE && at.is_none_or(|at| self.tail[at].said.request != request) {
            // It was said again, and the front end has had its answer.
            return Ok(());
        }
        let at = at.filter(|at| self.tail[*at].said.request == request).ok_or(ReplayError::Unexpected(request))?;
        for _ in 0..at {
            // Heard before the one that was answered.
            if let Some(before) = self.tail.pop_front() {
                self.absorb(before.said, &[]);
            }
        }
        let Some(asked) = self.tail.pop_front() else { return Ok(()) };
        if request == Request::GET_QUEUE_NUM {
            self.queues = number(payload).map_or(0, |n| n.min(u64::from(MAX_VRINGS)) as u32);
        }
        // A log's answer is empty, and a number where it was refused.
        let refused = match request {
            Request::SET_LOG_BASE => !payload.is_empty(),
            _ => !has_reply(request) && number(payload) != Some(0),
        };
        match asked.asker {
            Asker::Region => self.got_region(payload, fds, out),
            Asker::Turn if refused => return Err(ReplayError::Refused(request)),
            Asker::Turn => self.absorb(asked.said, payload),
            Asker::Front => {
                out.push(Passed::Front(Envelope::new(Header::REPLY, request, payload, fds)));
                if !refused {
                    self.absorb(asked.said, payload);
                }
            }
        }
        while self.tail.front().is_some_and(|p| !p.answered) {
            if let Some(heard) = self.tail.pop_front() {
                self.absorb(heard.said, &[]);
            }
        }
        self.release(out);
        Ok(())
    }

    /// The worker has made a region for a front end that has none: it is set in its name.
    fn got_region(&mut self, payload: &[u8], fds: Vec<F>, out: &mut Vec<Passed<F>>) {
        if fds.is_empty() {
            // None to be had: then without.
            self.inflight = false;
        } else {
            let said = Said { request: Request::SET_INFLIGHT_FD, need_reply: false, payload: payload.to_vec(), fds };
            self.region = Inflight::read_from_bytes(payload).ok().map(|wire| wire.queue_size.get());
            self.pass(said, Asker::Front, out);
        }
    }

    /// Everything that a worker which knows nothing must hear, in order.
    pub fn again(&self) -> Vec<Envelope<F>> {
        let mut out = Vec::new();
        let mut say =
            |request, payload: &[u8], fds: &[F]| out.push(Envelope::new(Header::AGAIN, request, payload, fds.to_vec()));
        let none = U64::ZERO;
        say(Request::SET_PROTOCOL_FEATURES, &with_ack(self.protocol.as_deref().unwrap_or(none.as_bytes())), &[]);
        if self.owned {
            say(Request::SET_OWNER, &[], &[]);
        }
        if let Some(payload) = &self.features {
            say(Request::SET_FEATURES, payload, &[]);
        }
        for said in self.single.values() {
            say(said.request, &said.payload, &said.fds);
        }
        if self.regions.len() <= MAX_TABLE_REGIONS {
            if !self.regions.is_empty() {
                let count = U32::new(self.regions.len() as u32);
                let mut payload = MemoryTableHeader { regions: count, padding: U32::ZERO }.as_bytes().to_vec();
                self.regions.iter().for_each(|(r, _)| payload.extend_from_slice(r.as_bytes()));
                let fds: Vec<F> = self.regions.iter().map(|(_, fd)| fd.clone()).collect();
                say(Request::SET_MEM_TABLE, &payload, &fds);
            }
        } else {
            for (region, fd) in &self.regions {
                let single = SingleRegion { padding: U64::ZERO, region: *region };
                say(Request::ADD_MEM_REG, single.as_bytes(), core::slice::from_ref(fd));
            }
        }
        for (index, vring) in &self.vrings {
            let state = |num: u32| VringState { index: U32::new(*index), num: U32::new(num) };
            let states = [(Request::SET_VRING_NUM, vring.num), (Request::SET_VRING_BASE, vring.base)];
            for (request, num) in states {
                if let Some(num) = num {
                    say(request, state(num).as_bytes(), &[]);
                }
            }
            if let Some(address) = &vring.address {
                say(Request::SET_VRING_ADDR, address.as_bytes(), &[]);
            }
            let descriptors = [
                (Request::SET_VRING_CALL, &vring.call),
                (Request::SET_VRING_ERR, &vring.err),
                (Request::SET_VRING_KICK, &vring.kick),
            ];
            for (request, said) in descriptors {
                if let Some((payload, fds)) = said {
                    say(request, payload, fds);
                }
            }
            if let Some(num) = vring.enable {
                say(Request::SET_VRING_ENABLE, state(num).as_bytes(), &[]);
            }
        }
        out.extend(self.tail.iter().map(|p| p.said.envelope()));
        out
    }

    /// Whether a new worker can go on where the last one stood: rings that have started need their in-flight region.
    pub fn survives(&self) -> bool {
        let started = self.vrings.values().any(|v| v.kick.is_some());
        !started || self.single.contains_key(&Request::SET_INFLIGHT_FD.0)
    }

    /// Descriptors held.
    pub fn descriptors(&self) -> usize {
        let single: usize = self.single.values().map(|s| s.fds.len()).sum();
        let of = |said: &Option<(Vec<u8>, Vec<F>)>| said.as_ref().map_or(0, |(_, fds)| fds.len());
        let vrings: usize = self.vrings.values().map(|v| of(&v.call) + of(&v.err) + of(&v.kick)).sum();
        let tail: usize = self.tail.iter().map(|p| p.said.fds.len()).sum();
        let held: usize = self.held.iter().map(|m| m.fds.len()).sum();
        single + self.regions.len() + vrings + tail + held
    }

    fn vring(&mut self, index: u32) -> Option<&mut Vring<F>> {
        (index < MAX_VRINGS).then(|| self.vrings.entry(index).or_default())
    }

    /// What was said is part of the state from now on. What no worker can make sense of is not kept: it refuses it, and the
    /// connection ends.
    fn absorb(&mut self, said: Said<F>, reply: &[u8]) {
        let Said { request, payload, fds, .. } = &said;
        match *request {
            Request::SET_OWNER => self.owned = true,
            Request::SET_FEATURES => self.features = Some(said.payload),
            Request::SET_PROTOCOL_FEATURES => self.protocol = Some(said.payload),
            Request::RESET_OWNER => self.vrings.values_mut().for_each(|v| v.enable = Some(0)),
            Request::RESET_DEVICE => {
                self.features = None;
                self.vrings.clear();
            }
            Request::SET_MEM_TABLE => {
                if let Some(regions) = memory_table(payload).filter(|r| r.len() == fds.len()) {
                    self.regions = regions.iter().copied().zip(fds.iter().cloned()).collect();
                }
            }
            Request::ADD_MEM_REG => {
                if let (Ok(single), Some(fd)) = (SingleRegion::read_from_bytes(payload), fds.first()) {
                    self.regions.push((single.region, fd.clone()));
                }
            }
            Request::REM_MEM_REG => {
                if let Ok(SingleRegion { region: gone, .. }) = SingleRegion::read_from_bytes(payload) {
                    let of = |r: &MemoryRegion| (r.guest_address, r.user_address, r.size);
                    self.regions.retain(|(r, _)| of(r) != of(&gone));
                }
            }
            Request::SET_VRING_ADDR => {
                if let Ok(address) = VringAddress::read_from_bytes(payload) {
                    if let Some(vring) = self.vring(address.index.get()) {
                        vring.address = Some(address);
                    }
                }
            }
            Request::SET_VRING_NUM | Request::SET_VRING_BASE | Request::SET_VRING_ENABLE => self.absorb_state(&said),
            Request::GET_VRING_BASE => {
                // Its ring has stopped, and is where the answer says; a refusal names no ring that was asked for.
                let (asked, state) = (VringState::read_from_bytes(payload), VringState::read_from_bytes(reply));
                if let (Ok(asked), Ok(state)) = (asked, state) {
                    if let Some(vring) = self.vring(state.index.get()).filter(|_| asked.index == state.index) {
                        (vring.kick, vring.base) = (None, Some(state.num.get()));
                    }
                }
            }
            Request::SET_VRING_CALL | Request::SET_VRING_ERR | Request::SET_VRING_KICK => self.absorb_descriptor(said),
            Request::SET_BACKEND_REQ_FD
            | Request::SET_INFLIGHT_FD
            | Request::SET_LOG_BASE
            | Request::SET_LOG_FD
            | Request::SET_STATUS => drop(self.single.insert(request.0, said)),
            // Questions, and what no worker knows.
            _ => {}
        }
    }

    fn absorb_state(&mut self, said: &Said<F>) {
        let Ok(state) = VringState::read_from_bytes(&said.payload) else { return };
        let Some(vring) = self.vring(state.index.get()) else { return };
        let num = Some(state.num.get());
        match said.request {
            Request::SET_VRING_NUM => vring.num = num,
            Request::SET_VRING_BASE => vring.base = num,
            _ => vring.enable = num,
        }
    }

    fn absorb_descriptor(&mut self, said: Said<F>) {
        let Ok(which) = VringFd::read_from_bytes(&said.payload) else { return };
        let Some(vring) = self.vring(u32::from(which.index())) else { return };
        let what = Some((said.payload, said.fds));
        match said.request {
            Request::SET_VRING_CALL => vring.call = what,
            Request::SET_VRING_ERR => vring.err = what,
            _ => vring.kick = what,
        }
    }
}

impl<F> Replay<F> {
    /// The same, with other descriptors.
    ///
    /// # Errors
    /// The first that `f` has.
    pub fn try_map<'a, G, E>(&'a self, mut f: impl FnMut(&'a F) -> Result<G, E>) -> Result<Replay<G>, E> {
        let all = &mut |fds: &'a Vec<F>| fds.iter().map(&mut f).collect::<Result<Vec<G>, E>>();
        let single = self.single.iter().map(|(request, said)| Ok((*request, said.try_map(all)?)));
        let single = single.collect::<Result<_, E>>()?;
        let vrings = self.vrings.iter().map(|(index, vring)| Ok((*index, vring.try_map(all)?)));
        let vrings = vrings.collect::<Result<_, E>>()?;
        let pending =
            |p: &'a Pending<F>| Ok(Pending { said: p.said.try_map(all)?, answered: p.answered, asker: p.asker });
        let tail = self.tail.iter().map(pending).collect::<Result<_, E>>()?;
        let message = |m: &'a Message<F>| {
            let (payload, fds) = (m.payload.clone(), all(&m.fds)?);
            Ok(Message { request: m.request, needs_reply: m.needs_reply, again: m.again, payload, fds })
        };
        let held = self.held.iter().map(message).collect::<Result<_, E>>()?;
        let regions = self.regions.iter().map(|(region, fd)| Ok((*region, f(fd)?))).collect::<Result<_, E>>()?;
        Ok(Replay {
            owned: self.owned,
            features: self.features.clone(),
            protocol: self.protocol.clone(),
            single,
            regions,
            vrings,
            tail,
            held,
            inflight: self.inflight,
            region: self.region,
            queues: self.queues,
        })
    }
}

impl<F> Said<F> {
    fn try_map<'a, G, E>(&'a self, all: &mut impl FnMut(&'a Vec<F>) -> Result<Vec<G>, E>) -> Result<Said<G>, E> {
        let (payload, fds) = (self.payload.clone(), all(&self.fds)?);
        Ok(Said { request: self.request, need_reply: self.need_reply, payload, fds })
    }
}

impl<F> Vring<F> {
    fn try_map<'a, G, E>(&'a self, all: &mut impl FnMut(&'a Vec<F>) -> Result<Vec<G>, E>) -> Result<Vring<G>, E> {
        let mut of = |said: &'a Option<(Vec<u8>, Vec<F>)>| {
            let one = |(payload, fds): &'a (Vec<u8>, Vec<F>)| Ok((payload.clone(), all(fds)?));
            said.as_ref().map(one).transpose()
        };
        let (call, err, kick) = (of(&self.call)?, of(&self.err)?, of(&self.kick)?);
        Ok(Vring { num: self.num, base: self.base, address: self.address, enable: self.enable, call, err, kick })
    }
}

coded! {
    Replay<u32> {
        owned: "it has an owner",
        features: "as it has acknowledged them",
        protocol: "protocol features, as it has acknowledged them",
        single: "the last of each request of which only the last counts",
        regions: "memory regions, a descriptor each",
        vrings: "rings by index",
        tail: "what has no answer yet",
        held: "messages that wait for an answer before them",
        inflight: "the worker keeps in-flight regions",
        region: "the in-flight region was made in its name: entries of its queues",
        queues: "queues that the worker has said it has",
    }
    Said<u32> {
        request: "which",
        need_reply: "an answer is wanted in any case",
        payload: "what follows the header",
        fds: "descriptors, in order",
    }
    Vring<u32> {
        num: "its size",
        base: "where it begins",
        address: "where it lies",
        enable: "whether it is enabled",
        call: "payload, and the descriptor to signal",
        err: "payload, and the descriptor for errors",
        kick: "payload, and the descriptor to wait for: it has started",
    }
    Pending<u32> {
        said: "what was said",
        answered: "the worker answers it",
        asker: "who wants to hear of the answer: the front end, a turn of a ring, the region",
    }
}

numbered! { Asker: u8 { Front = 0, Turn = 1, Region = 2 } }

fn number(payload: &[u8]) -> Option<u64> {
    U64::read_from_bytes(payload).ok().map(U64::get)
}
