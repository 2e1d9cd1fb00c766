//! A front end behind the keeper whose workers die: what QEMU says when it starts, changes its memory, stops a ring with requests
//! in flight and starts it again, with I/O in between. The worker is killed after every message, every answer (delivered or
//! not) and every store, and the next one again.
//!
//! ```text
//!   guest + front end ──front()──► Replay ──line──► VhostUserDevice, rings, journal (the production code)
//!                     ◄─heard──── Replay ◄─back()── answers             killed anywhere ─► a new one, again()
//! ```
//! The oracle is the guest's, as in `crash`: every request once, the bytes it must have; and the front end hears what it would
//! have heard, once.

use super::crash::{PLACES, RAM, Rig, Step1, World, features, rig};
use crate::memory::Memory;
use crate::memory::model::ModelMemory;
use crate::vhost_user::{Action, Disk, Inbox, Message, VhostUserDevice};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use weir_keeper::{Envelope, FrontMessage, Passed, Replay};
use weir_spec::vhost_user::{
    Header, Inflight, MemoryRegion, Request, SingleRegion, VringAddress, VringFd, VringState, protocol,
};
use weir_spec::virtqueue::PackedIndex;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Memory that is plugged while the ring runs.
const PLUGGED: u64 = 0x10_0000;

/// Where the first worker dies.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Never,
    Message(usize),
    Answer { number: usize, delivered: bool },
    Store(u64),
}

/// How the ring goes on after it was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// A guest that was paused.
    GoesOn,
    /// A guest whose driver has begun anew: nothing of the ring's past counts.
    Anew,
}

struct Kept {
    w: World,
    replay: Replay<Rc<ModelMemory>>,
    line: VecDeque<Envelope<Rc<ModelMemory>>>,
    heard: Vec<(Request, Vec<u8>)>,
    cut: Cut,
    /// Stores of the second worker before it dies as well.
    second: u64,
    messages: usize,
    answers: usize,
    stores: u64,
    lives: u32,
}

impl Kept {
    fn new(rig: Rig, cut: Cut, second: u64) -> Self {
        let (w, replay) = (World::new(rig), Replay::new(true));
        let (line, heard) = (VecDeque::new(), Vec::new());
        let mut kept = Self { w, replay, line, heard, cut, second, messages: 0, answers: 0, stores: 0, lives: 0 };
        kept.next_worker();
        kept
    }

    /// A process that knows nothing takes over.
    fn next_worker(&mut self) {
        self.lives += 1;
        self.w.memory = ModelMemory::new();
        match (self.lives, self.cut) {
            (1, Cut::Store(stores)) => self.w.memory.die_after(stores),
            (2, _) => self.w.memory.die_after(self.second),
            _ => {}
        }
        self.w.device = VhostUserDevice::new(Disk::new(self.w.rig.sectors * 512, "kept"));
        self.w.taken.clear();
        self.w.found = None;
        self.line = self.replay.again().into();
        self.serve();
    }

    /// The worker reads what there is for it.
    fn serve(&mut self) {
        let life = self.lives;
        while life == self.lives && !self.w.device.is_draining() {
            let Some(envelope) = self.line.pop_front() else { break };
            self.messages += 1;
            let message = read(&envelope);
            let mut actions = Vec::new();
            self.w.device.message(message, &mut self.w.memory, &mut actions);
            let dies = life == 1 && matches!(self.cut, Cut::Message(n) if n == self.messages);
            self.after(actions);
            if dies && life == self.lives {
                return self.next_worker();
            }
        }
    }

    /// What the device wants done, as far as its process lives to do it.
    fn after(&mut self, actions: Vec<Action<Rc<ModelMemory>>>) {
        let life = self.lives;
        for action in actions {
            if self.w.memory.is_dead() {
                break;
            }
            match action {
                Action::Reply(bytes) => self.answer(&bytes, vec![]),
                Action::ReplyWith(bytes, fd) => self.answer(&bytes, vec![fd]),
                Action::Recovered(0, found) => {
                    let order = self.w.driver.added.iter().map(|a| a.head).filter(|h| found.heads.contains(h));
                    assert_eq!(order.collect::<Vec<_>>(), found.heads, "submitted again in the order of submission");
                }
                Action::Close(why) => panic!("disconnected: {why}"),
                Action::Unusable(_, why) => panic!("refused: {why}"),
                Action::Broken(_, why) => panic!("broken: {why}"),
                _ => {}
            }
            if life != self.lives {
                return;
            }
        }
        if self.w.memory.is_dead() {
            self.next_worker();
        }
    }

    fn answer(&mut self, bytes: &[u8], fds: Vec<Rc<ModelMemory>>) {
        self.answers += 1;
        let cut = match self.cut {
            Cut::Answer { number, delivered } if self.lives == 1 && number == self.answers => Some(delivered),
            _ => None,
        };
        if cut != Some(false) {
            let (header, payload) = Header::read_from_prefix(bytes).unwrap();
            let mut out = Vec::new();
            self.replay.back(Request(header.request.get()), payload, fds, &mut out).unwrap();
            self.pass(out);
        }
        if cut.is_some() {
            self.next_worker();
        }
    }

    fn pass(&mut self, passed: Vec<Passed<Rc<ModelMemory>>>) {
        for one in passed {
            match one {
                Passed::Worker(envelope) => self.line.push_back(envelope),
                Passed::Front(envelope) => {
                    let (header, payload) = Header::read_from_prefix(&envelope.bytes).unwrap();
                    self.heard.push((Request(header.request.get()), payload.to_vec()));
                }
            }
        }
    }

    // --- the front end ---

    fn say(&mut self, request: Request, needs_reply: bool, payload: &[u8], fds: Vec<Rc<ModelMemory>>) {
        let mut out = Vec::new();
        self.replay
            .front(FrontMessage { request, needs_reply, again: false, payload: payload.to_vec(), fds }, &mut out);
        self.pass(out);
        self.serve();
    }

    /// Says it and waits for the answer, while I/O goes on.
    fn ask(&mut self, request: Request, payload: &[u8], fds: Vec<Rc<ModelMemory>>) -> Vec<u8> {
        let before = self.heard.len();
        self.say(request, true, payload, fds);
        for _ in 0..100 {
            if let Some((answered, payload)) = self.heard.get(before) {
                assert_eq!((*answered, self.heard.len()), (request, before + 1), "one answer, to what was asked");
                return payload.clone();
            }
            self.io(Step1::Take);
            if !self.w.taken.is_empty() {
                self.io(Step1::Complete(0));
            }
            self.io(Step1::Publish);
        }
        panic!("no answer to {request:?}");
    }

    fn state(&mut self, request: Request, num: u32) {
        self.say(request, false, VringState { index: U32::ZERO, num: U32::new(num) }.as_bytes(), vec![]);
    }

    /// A step of the guest's or the worker's.
    fn io(&mut self, step: Step1) {
        self.w.step(step);
        if self.w.memory.is_dead() {
            return self.next_worker();
        }
        if self.w.device.is_draining() {
            let mut actions = Vec::new();
            self.w.device.settle(&self.w.memory, &mut actions);
            self.after(actions);
            self.serve();
        }
    }

    fn start_ring(&mut self, base: u32) {
        let fd = vec![self.w.ram.clone()];
        let which = VringFd(U64::ZERO);
        self.state(Request::SET_VRING_NUM, self.w.rig.size.into());
        self.state(Request::SET_VRING_BASE, base);
        let [descriptor, available, used] = PLACES.map(U64::new);
        let address = VringAddress { descriptor, available, used, ..VringAddress::default() };
        self.say(Request::SET_VRING_ADDR, false, address.as_bytes(), vec![]);
        self.say(Request::SET_VRING_KICK, false, which.as_bytes(), fd.clone());
        self.say(Request::SET_VRING_CALL, false, which.as_bytes(), fd);
        self.state(Request::SET_VRING_ENABLE, 1);
    }

    /// QEMU 10's start of vhost-user-blk with `queues` of 1; `region`: with an in-flight region of its own.
    fn start(&mut self, region: bool) {
        let (rig, ram) = (self.w.rig, self.w.ram.clone());
        self.ask(Request::GET_FEATURES, &[], vec![]);
        self.ask(Request::GET_PROTOCOL_FEATURES, &[], vec![]);
        let bits = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG | protocol::CONFIGURE_MEM_SLOTS;
        let bits = bits | if region { protocol::INFLIGHT_SHMFD } else { 0 };
        self.say(Request::SET_PROTOCOL_FEATURES, false, U64::new(bits).as_bytes(), vec![]);
        self.ask(Request::GET_QUEUE_NUM, &[], vec![]);
        self.ask(Request::GET_MAX_MEM_SLOTS, &[], vec![]);
        self.say(Request::SET_OWNER, false, &[], vec![]);
        self.say(Request::SET_VRING_CALL, false, VringFd(U64::ZERO).as_bytes(), vec![ram.clone()]);
        self.ask(Request::SET_FEATURES, U64::new(features(&rig)).as_bytes(), vec![]);
        if region {
            let (num_queues, queue_size) = (U16::new(1), U16::new(rig.size));
            let ask = Inflight { num_queues, queue_size, ..Inflight::default() };
            let made = self.ask(Request::GET_INFLIGHT_FD, ask.as_bytes(), vec![]);
            // The test's answers carry no descriptors to the front end: the region is one of its own.
            let wire = Inflight::read_from_bytes(&made).unwrap();
            let carrier = Rc::new(ModelMemory::flat(0, wire.mmap_size.get() as usize));
            self.say(Request::SET_INFLIGHT_FD, false, wire.as_bytes(), vec![carrier]);
        }
        self.ask(Request::ADD_MEM_REG, memory(RAM, rig.ram_len() as u64).as_bytes(), vec![ram]);
        self.start_ring(rig.base());
    }

    /// All of it; what the front end heard.
    fn live(mut self, region: bool, after: After) -> Self {
        let rig = self.w.rig;
        self.start(region);
        self.w.add();
        self.w.add();
        self.io(Step1::Take);
        self.io(Step1::Take);
        if !self.w.taken.is_empty() {
            self.io(Step1::Complete(self.w.taken.len() - 1));
        }
        let plugged = memory(PLUGGED, 0x1000);
        self.ask(Request::ADD_MEM_REG, plugged.as_bytes(), vec![Rc::new(ModelMemory::flat(PLUGGED, 0x1000))]);
        self.io(Step1::Publish);
        while self.w.can_reap() {
            self.w.reap();
        }
        self.w.add();
        self.io(Step1::Take);
        self.ask(Request::REM_MEM_REG, plugged.as_bytes(), vec![]);
        // Requests are in flight, and one may not have been taken yet.
        if self.w.can_add() {
            self.w.add();
        }
        let state = VringState { index: U32::ZERO, num: U32::ZERO };
        let answer = self.ask(Request::GET_VRING_BASE, state.as_bytes(), vec![]);
        let base = VringState::read_from_bytes(&answer).unwrap().num.get();
        while self.w.can_reap() {
            self.w.reap();
        }
        match after {
            After::GoesOn => self.start_ring(base),
            After::Anew => {
                // What was not taken is given to the next driver by those above it.
                let left: Vec<u16> = self.w.driver.added.iter().map(|a| a.head).collect();
                if !left.is_empty() {
                    self.start_ring(base);
                    while !self.w.driver.added.is_empty() {
                        self.turn();
                    }
                    self.ask(Request::GET_VRING_BASE, state.as_bytes(), vec![]);
                }
                let base = anew(&mut self.w);
                self.start_ring(base);
            }
        }
        self.w.add();
        for _ in 0..8 {
            self.turn();
        }
        self.ask(Request::GET_FEATURES, &[], vec![]);
        self.stores = self.w.memory.stores();
        self.w.memory.die_after(u64::MAX);
        self.w.found = None;
        self.w.finish(rig.packed);
        self
    }

    /// A bit of everything.
    fn turn(&mut self) {
        self.io(Step1::Take);
        if !self.w.taken.is_empty() {
            self.io(Step1::Complete(0));
        }
        self.io(Step1::Publish);
        while self.w.can_reap() {
            self.w.reap();
        }
    }
}

/// The driver resets its ring; where it begins.
fn anew(w: &mut World) -> u32 {
    let len = (RAM + w.rig.ram_len() as u64 - PLACES[0]).min(0x8000);
    w.ram.write(PLACES[0], &vec![0; len as usize]).unwrap();
    let start = if w.rig.packed { PackedIndex::START.bits() } else { 0 };
    (w.driver.next_avail, w.driver.next_used) = (start, start);
    if w.rig.packed { u32::from(start) << 16 | u32::from(start) } else { 0 }
}

fn memory(at: u64, len: u64) -> SingleRegion {
    let (guest_address, user_address, size) = (U64::new(at), U64::new(at), U64::new(len));
    SingleRegion {
        padding: U64::ZERO,
        region: MemoryRegion { guest_address, size, user_address, mmap_offset: U64::ZERO },
    }
}

/// As the worker's inbox has it.
fn read(envelope: &Envelope<Rc<ModelMemory>>) -> Message<Rc<ModelMemory>> {
    let mut inbox = Inbox::default();
    let (mut rest, mut fds) = (&envelope.bytes[..], envelope.fds.clone());
    loop {
        let space = inbox.space();
        let n = space.len().min(rest.len());
        space[..n].copy_from_slice(&rest[..n]);
        rest = &rest[n..];
        if let Some(message) = inbox.advance(n, core::mem::take(&mut fds)).unwrap() {
            return message;
        }
    }
}

fn every_cut(rig: Rig, region: bool, after: After) {
    let whole = Kept::new(rig, Cut::Never, u64::MAX).live(region, after);
    let (messages, answers, stores) = (whole.messages, whole.answers, whole.stores);
    assert!(messages > 20 && answers > 8 && stores > 40, "{messages} messages, {answers} answers, {stores} stores");
    let mut cuts: Vec<Cut> = (1..=messages).map(Cut::Message).collect();
    cuts.extend((1..=answers).flat_map(|number| [false, true].map(|delivered| Cut::Answer { number, delivered })));
    cuts.extend((0..stores).map(Cut::Store));
    let requests = |kept: &Kept| kept.heard.iter().map(|(r, _)| *r).collect::<Vec<_>>();
    for cut in cuts {
        // The second one dies while it recovers, soon after, or not.
        for second in [0, 1, 2, 3, 5, 8, 13, 21, u64::MAX] {
            std::println!("{rig:?}, region {region}, {after:?}: {cut:?}, then {second}");
            let kept = Kept::new(rig, cut, second).live(region, after);
            assert!(kept.lives >= 2, "{cut:?} cuts");
            if after == After::GoesOn {
                assert_eq!(requests(&kept), requests(&whole), "{cut:?}, then {second}");
            }
        }
    }
}

#[test]
fn a_kept_front_end_loses_nothing_wherever_its_worker_dies() {
    for packed in [false, true] {
        for region in [false, true] {
            every_cut(rig(packed, false, 4, 9, 5), region, After::GoesOn);
        }
    }
}

/// The next driver's ring begins where it says, and never where the one before it stood.
#[test]
fn a_kept_ring_that_begins_anew_does() {
    for packed in [false, true] {
        every_cut(rig(packed, false, 4, 9, 5), false, After::Anew);
    }
}

/// The hole: the worker dies after it has noted the stop and before the answer has been heard. The front end's question, asked
/// again of the next worker, is answered with what the first one noted, and the ring stays stopped.
#[test]
fn a_ring_stopped_before_its_answer_was_heard_stays_stopped() {
    for packed in [false, true] {
        let rig = rig(packed, false, 4, 6, 4);
        let last = {
            let mut kept = Kept::new(rig, Cut::Never, u64::MAX);
            kept.start(false);
            kept.answers
        };
        let mut kept = Kept::new(rig, Cut::Answer { number: last + 1, delivered: false }, u64::MAX);
        kept.start(false);
        kept.w.add();
        kept.w.add();
        let state = VringState { index: U32::ZERO, num: U32::ZERO };
        kept.io(Step1::Take);
        kept.io(Step1::Take);
        let answer = kept.ask(Request::GET_VRING_BASE, state.as_bytes(), vec![]);
        assert_eq!(kept.lives, 2, "killed before it was heard");
        assert!(kept.w.device.queue(0).is_none() && kept.w.taken.is_empty());
        let base = VringState::read_from_bytes(&answer).unwrap().num.get();
        let moved = |at: u32| if packed { (at & 0x7fff) + 2 } else { (at + 2) & 0xffff };
        assert_eq!(if packed { base & 0x7fff } else { base }, moved(rig.base()), "two requests further");
        kept.start_ring(base);
        kept.w.found = None;
        kept.w.finish(false);
    }
}
