//! What happens to a drive, and what it wants done.

use crate::host::{Data, DataPointer, Host, Owner, Tag};
use alloc::vec::Vec;
use weir_spec::nvme::{Sqe, Status};
use weir_units::Nanos;

/// A controller of a subsystem. Valid until `detach`, or until the last of its queues was disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControllerHandle(pub(crate) u32);

impl ControllerHandle {
    pub(crate) const fn new(index: u32, generation: u16) -> Self {
        Self(index & 0xffff | (generation as u32) << 16)
    }
    pub(crate) const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }
    pub(crate) const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// A message-model submission queue. Valid until [`crate::Subsystem::disconnect`]; a stale one is noticed and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqHandle(pub(crate) u32);

impl SqHandle {
    pub(crate) const fn new(index: u32, generation: u8) -> Self {
        Self(index & 0xff_ffff | (generation as u32) << 24)
    }
    pub(crate) const fn index(self) -> usize {
        (self.0 & 0xff_ffff) as usize
    }
    pub(crate) const fn generation(self) -> u8 {
        (self.0 >> 24) as u8
    }
}

/// A command in flight: given out with [`Effect::Io`], returned with [`Event::Done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

impl SlotId {
    /// As an index into the executor's own table (below [`crate::Subsystem::slot_limit`]).
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An I/O in bytes of a namespace, for message queues that carry no NVMe commands (virtio-blk).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// What to do.
    pub op: Op,
    /// The namespace.
    pub nsid: u32,
    /// Where, in bytes of the namespace; a multiple of the block size.
    pub offset: u64,
    /// How much, in bytes; a multiple of the block size; 0 for a flush.
    pub len: u32,
    /// Force unit access.
    pub fua: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A register or doorbell of a memory-model controller was written.
    Register {
        /// Whose.
        controller: ControllerHandle,
        /// Byte offset in BAR0.
        offset: u32,
        /// The value, in the low `size` bytes.
        value: u64,
        /// 4 or 8.
        size: u8,
    },
    /// A submission queue's tail doorbell (memory model), as a value read from a shared page or the driver's call.
    SqTail {
        /// Whose.
        controller: ControllerHandle,
        /// Queue identifier.
        qid: u16,
        /// The new tail.
        tail: u32,
    },
    /// A completion queue's head doorbell (memory model).
    CqHead {
        /// Whose.
        controller: ControllerHandle,
        /// Queue identifier.
        qid: u16,
        /// The new head.
        head: u32,
    },
    /// A command capsule arrived on a message queue, host-to-controller data included: the command is eligible.
    Capsule {
        /// On which queue.
        queue: SqHandle,
        /// The command.
        sqe: Sqe,
        /// Given back with the completion.
        tag: Tag,
    },
    /// A request arrived on a message queue of an internal front controller.
    Submit {
        /// On which queue.
        queue: SqHandle,
        /// The request.
        request: BlockRequest,
        /// Given back with the completion.
        tag: Tag,
    },
    /// The same of a request that the drive does not time, and that the arbiter does not charge: its time began in the process before, or it
    /// is the bookkeeping of whoever serves the drive, while nobody is served. Flash is told of what changes it all the same, unless it was before.
    SubmitUntimed {
        /// On which queue.
        queue: SqHandle,
        /// The request.
        request: BlockRequest,
        /// Given back with the completion.
        tag: Tag,
        /// When it is complete, if it was charged in the process before.
        due: Option<Nanos>,
    },
    /// The media has done an I/O, and its bytes are moved.
    Done {
        /// The slot of its [`Effect::Io`].
        slot: SlotId,
        /// How it went.
        status: Status,
    },
    /// Serve: admin first, then I/O as slots, bytes and effects permit. Call after a batch of other events.
    Run,
    /// [`crate::Subsystem::next_deadline`] has come: timers, then as `Run`.
    Tick,
}

impl Event {
    /// The memory-model controller whose register or doorbell it is; `None` of other events.
    pub fn controller(&self) -> Option<ControllerHandle> {
        match *self {
            Event::Register { controller, .. }
            | Event::SqTail { controller, .. }
            | Event::CqHead { controller, .. } => Some(controller),
            _ => None,
        }
    }
}

/// What an I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Drive → host.
    Read,
    /// Host → drive.
    Write,
    /// Host data against the drive's; [`Status::COMPARE_FAILURE`] where they differ.
    Compare,
    /// Drive → nobody: the media is read, and what it says is thrown away.
    Verify,
    /// Zeroes, without data.
    WriteZeroes {
        /// The range may be deallocated (it reads as zeroes then).
        deallocate: bool,
    },
    /// The range need not be kept; it reads as zeroes afterwards.
    Deallocate,
    /// What was completed before is durable afterwards.
    Flush,
    /// Bytes of the media, which `data` names ([`Data::Media`](crate::Data::Media)), to another place of it. The two do not
    /// overlap.
    Copy,
}

/// One I/O on the drive's media. The executor moves the bytes between `data` (through [`crate::Host`], with `owner`) and the
/// media, then gives `slot` back with [`Event::Done`]. Where other events come in between, it asks
/// [`crate::Subsystem::is_live`] before it touches `data`: the queue may be gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Io {
    /// Comes back in [`Event::Done`].
    pub slot: SlotId,
    /// Whose data.
    pub owner: Owner,
    /// Where the host's bytes are; meaningless for operations without data.
    pub data: DataPointer,
    /// What to do.
    pub op: Op,
    /// The namespace; FFFFFFFFh for a flush of all.
    pub nsid: u32,
    /// Where, in bytes of the drive's media.
    pub offset: u64,
    /// How much, in bytes.
    pub len: u32,
    /// Durable when done.
    pub fua: bool,
    /// Where its bytes begin in the command's data; 0 but for a command of several pieces.
    pub skip: u32,
}

impl Io {
    /// Bytes `at..at + into.len()` of what a write, or a comparison, is given: the host's, or the drive's own pattern.
    ///
    /// # Errors
    /// The host does not deliver.
    #[inline]
    pub fn read_data<H: Host>(&self, host: &mut H, at: u32, into: &mut [u8]) -> Result<(), Status> {
        match self.data.get() {
            Data::Pattern(pattern) => {
                let bytes = pattern.to_le_bytes();
                into.iter_mut().zip(at as usize..).for_each(|(to, i)| *to = bytes[i % 4]);
                Ok(())
            }
            _ => host.read_data(self.owner, &self.data, self.skip + at, into),
        }
    }
}

/// What the drive wants done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Move bytes.
    Io(Io),
    /// Close the connection of this queue and then call [`crate::Subsystem::disconnect`]: keep-alive expiry, fatal
    /// controller, reset, or a violation of the queue protocol. Nothing is answered on it any more.
    Disconnect {
        /// The queue's owner.
        owner: Owner,
        /// The queue.
        queue: SqHandle,
    },
}

/// A bounded list of effects, allocated once. Whoever calls `apply` drains it before the next `Run` or `Tick`.
#[derive(Clone, Debug)]
pub struct Effects {
    list: Vec<Effect>,
    limit: usize,
}

impl Effects {
    /// Allocator for so many (at least 1).
    pub fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        Self { list: Vec::with_capacity(limit), limit }
    }
    /// How many more fit.
    pub fn room(&self) -> usize {
        self.limit - self.list.len()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// The effects so far.
    pub fn as_slice(&self) -> &[Effect] {
        &self.list
    }
    /// Takes all, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect> + '_ {
        self.list.drain(..)
    }
    /// Forgets all, after the caller went through [`Effects::as_slice`].
    pub fn clear(&mut self) {
        self.list.clear();
    }
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Effect) -> bool) {
        self.list.retain(keep);
    }
    #[inline]
    pub(crate) fn push(&mut self, effect: Effect) {
        debug_assert!(self.list.len() < self.limit, "effects are full");
        self.list.push(effect);
    }
}
