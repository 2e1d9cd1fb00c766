//! Watched descriptors.
//!
//! ```text
//!   add ──► Armed ──(once: fired)──► Quiet ──rearm──► Armed
//!             │ remove                 │ remove
//!             ▼                        ▼
//!           Closing ──last word──► free (generation + 1)
//! ```

use super::Ready;
use super::ring::{CompletionKind, Uring, UserData};
use std::os::fd::RawFd;

/// What a descriptor is watched for. Hang-up and error are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Bytes to read, or a connection to accept, or that the peer stopped sending.
    pub const READ: Interest = Interest((libc::POLLIN | libc::POLLRDHUP) as u32);
    /// Space to write.
    pub const WRITE: Interest = Interest(libc::POLLOUT as u32);
    /// Both.
    pub const READ_WRITE: Interest = Interest(Self::READ.0 | Self::WRITE.0);

    pub(super) fn events(self) -> u32 {
        self.0
    }
}

/// When a watch reports; see [`Reactor::watch`](super::Reactor::watch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At every change to ready.
    Edge,
    /// Once per `rearm`.
    Once,
}

/// What a descriptor is ready for: the bits of poll(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness(u32);

impl Readiness {
    /// There is something to read, be it the end.
    pub fn readable(self) -> bool {
        self.0 & (libc::POLLIN | libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as u32 != 0
    }
    /// There is space to write, or writing fails at once.
    pub fn writable(self) -> bool {
        self.0 & (libc::POLLOUT | libc::POLLHUP | libc::POLLERR) as u32 != 0
    }
    /// The peer has closed its side.
    pub fn hung_up(self) -> bool {
        self.0 & (libc::POLLRDHUP | libc::POLLHUP) as u32 != 0
    }
    /// The descriptor has an error, or cannot be watched (no more events will come then).
    pub fn error(self) -> bool {
        self.0 & (libc::POLLERR | libc::POLLNVAL) as u32 != 0
    }
}

/// Names a watch; never the same for two watches within 16 million uses of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId {
    place: u32,
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Armed,
    Quiet,
    Closing,
}

struct Slot {
    fd: RawFd,
    interest: Interest,
    mode: Mode,
    state: State,
    generation: u32,
    token: u64,
}

#[derive(Default)]
pub(super) struct Watches {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Watches {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn add(&mut self, ring: &mut Uring, fd: RawFd, interest: Interest, mode: Mode, token: u64) -> WatchId {
        let slot = Slot { fd, interest, mode, state: State::Quiet, generation: 0, token };
        let place = match self.free.pop() {
            Some(place) => {
                let old = &mut self.slots[place as usize];
                *old = Slot { generation: old.generation, ..slot };
                place
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let id = WatchId { place, generation: self.slots[place as usize].generation };
        self.arm(ring, id);
        id
    }

    fn get(&mut self, id: WatchId) -> Option<&mut Slot> {
        self.slots.get_mut(id.place as usize).filter(|s| s.generation == id.generation && s.state != State::Free)
    }

    fn tag(id: WatchId) -> UserData {
        UserData::new(CompletionKind::Watch, id.generation, id.place)
    }

    fn arm(&mut self, ring: &mut Uring, id: WatchId) {
        if let Some(slot) = self.get(id) {
            slot.state = State::Armed;
            ring.poll(slot.fd, slot.interest.events(), slot.mode == Mode::Edge, Self::tag(id));
        }
    }

    pub(super) fn rearm(&mut self, ring: &mut Uring, id: WatchId) {
        if self.get(id).is_some_and(|s| s.state == State::Quiet) {
            self.arm(ring, id);
        }
    }

    pub(super) fn remove(&mut self, ring: &mut Uring, id: WatchId) {
        let Some(slot) = self.get(id) else { return };
        match slot.state {
            State::Armed => {
                slot.state = State::Closing;
                ring.cancel_poll(Self::tag(id));
            }
            State::Quiet => self.release(id.place),
            State::Closing | State::Free => {}
        }
    }

    fn release(&mut self, place: u32) {
        let slot = &mut self.slots[place as usize];
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1) & 0xff_ffff;
        self.free.push(place);
    }

    /// A completion of a poll; without `more` it is the kernel's last word on it.
    pub(super) fn completed(
        &mut self,
        ring: &mut Uring,
        tag: UserData,
        result: i32,
        more: bool,
        events: &mut Vec<Ready>,
    ) {
        let id = WatchId { place: tag.place(), generation: tag.generation() };
        let Some(slot) = self.get(id) else { return };
        if slot.state == State::Closing {
            if !more {
                self.release(id.place);
            }
            return;
        }
        let readiness = Readiness(if result < 0 { (libc::POLLERR | libc::POLLNVAL) as u32 } else { result as u32 });
        events.push(Ready::Fd { token: slot.token, watch: id, readiness });
        if more {
            return;
        }
        slot.state = State::Quiet;
        if slot.mode == Mode::Edge && result >= 0 {
            self.arm(ring, id);
        }
    }
}
