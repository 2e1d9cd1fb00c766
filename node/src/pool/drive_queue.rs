//! Queues of pools and volumes at the drives, and what goes between shards where a drive is another one's.
//!
//! ```text
//!   shard of the volume                                  shard of the drive
//!   Front ─Sent::There─► Drives::post ─ShardMessage::Command─► Drives::deliver ─Event::Submit─► the guest's queue at the drive
//!   Front ◄── Part ◄──── Drives::deliver ◄─ShardMessage::Outcome── Drives::settle ◄── Part ◄── its answer
//! ```
//! The bytes of a command go along: a shard reaches no other shard's connections. A turn's messages go as one message a shard.

use super::parts::Ticket;
use crate::directory::Place;
use weir_controller::{BlockRequest, ControllerHandle, Event, SqHandle, Tag};
use weir_pool::{PoolError, PoolRequest, VolumeId, VolumeSegment};
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// A note of a volume, for its answer to find it: another volume's front may have the same place by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoteNumber {
    /// The volume.
    pub volume: VolumeId,
    /// The number among the notes of its front.
    pub number: u64,
}

/// A queue of a pool or a volume at a drive.
#[derive(Clone, Copy, Debug)]
pub enum DriveQueue {
    /// The drive is one of this shard's.
    Here {
        /// The drive's place in the shard.
        drive: u32,
        /// The controller there.
        controller: ControllerHandle,
        /// Its queue; `None`: the drive has dropped it.
        queue: Option<SqHandle>,
    },
    /// The drive is another shard's, which has the queue.
    There {
        /// That shard.
        shard: u32,
        /// The number of the guest there.
        guest: u32,
    },
    /// None any more: the drive is none of the pool's.
    Closed,
}

/// When a command for a drive is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartTime {
    /// When the drive says.
    Drives,
    /// Then: it was charged in the process before.
    Charged(Nanos),
    /// At once, as far as the drive is a model: the bookkeeping of a pool, while nobody is served.
    Untimed,
}

impl PartTime {
    /// What a drive is told.
    pub fn event(self, queue: SqHandle, request: BlockRequest, tag: Tag) -> Event {
        match self {
            PartTime::Drives => Event::Submit { queue, request, tag },
            PartTime::Charged(due) => Event::SubmitUntimed { queue, request, tag, due: Some(due) },
            PartTime::Untimed => Event::SubmitUntimed { queue, request, tag, due: None },
        }
    }
}

/// A command for a drive.
#[derive(Clone, Copy, Debug)]
pub enum Sent {
    /// Of this shard: its place, and the event.
    Here(u32, Event),
    /// Of another one.
    There {
        /// That shard.
        shard: u32,
        /// The number of the guest there.
        guest: u32,
        /// The command.
        request: BlockRequest,
        /// The part that it is.
        tag: Tag,
        /// When it is complete.
        time: PartTime,
    },
}

impl DriveQueue {
    /// It has a queue.
    pub fn is_open(&self) -> bool {
        !matches!(self, DriveQueue::Here { queue: None, .. } | DriveQueue::Closed)
    }

    /// The drive of this shard, and the queue there.
    pub fn here(&self) -> Option<(u32, ControllerHandle, SqHandle)> {
        match *self {
            DriveQueue::Here { drive, controller, queue } => Some((drive, controller, queue?)),
            _ => None,
        }
    }

    /// It is at that drive of this shard.
    pub fn is_at(&self, wanted: u32) -> bool {
        matches!(self, DriveQueue::Here { drive, .. } if *drive == wanted)
    }

    /// It is that guest's of another shard.
    pub fn is_guest(&self, of: u32, number: u32) -> bool {
        matches!(self, DriveQueue::There { shard, guest } if (*shard, *guest) == (of, number))
    }

    /// A command for its drive; `None` without a queue.
    pub fn send(&self, request: BlockRequest, tag: Tag, time: PartTime) -> Option<Sent> {
        Some(match *self {
            DriveQueue::Here { drive, queue, .. } => Sent::Here(drive, time.event(queue?, request, tag)),
            DriveQueue::There { shard, guest } => Sent::There { shard, guest, request, tag, time },
            DriveQueue::Closed => return None,
        })
    }
}

/// A drive as a pool or a front comes to it: of another shard, with the guest's number there and how many commands fit into its queue.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// The drive.
    pub place: Place,
    /// Where it is another shard's.
    pub guest: Option<(u32, u32)>,
}

/// A run of chunks of a volume, and the ways to the drives of its copies; none to one that is lost.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The way to the copy that is read.
    pub first: Option<Reach>,
    /// The way to the other one.
    pub second: Option<Reach>,
    /// Where the chunks lie.
    pub segment: VolumeSegment,
}

/// When a volume lay somewhere.
#[derive(Clone, Debug)]
pub struct LayoutTime {
    /// [Changes](weir_pool::Pool::changes) of the pool by then.
    pub changes: u64,
    /// Places in the pool's list of drives that were [back](weir_pool::Pool::returning).
    pub returning: Vec<usize>,
}

/// Where chunks of a volume lie, at a time.
#[derive(Clone, Debug)]
pub struct ChunkPlaces {
    /// The chunks.
    pub segments: Vec<VolumeSegment>,
    /// [Changes](weir_pool::Pool::changes) of the pool by then.
    pub changes: u64,
}

/// Somebody of another shard who has a queue at a drive of this one.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The other shard.
    pub home: u32,
    /// The drive's place.
    pub drive: u32,
    /// Whose it is.
    pub tenant: u16,
    /// What the drive calls it.
    pub host: String,
    /// Its controller.
    pub controller: ControllerHandle,
    /// Its queue; `None`: the drive has dropped it.
    pub queue: Option<SqHandle>,
}

/// From one shard to another.
#[derive(Debug)]
pub enum ShardMessage {
    /// A command for a drive.
    Command {
        /// Whose queue it goes to.
        guest: u32,
        /// Comes back.
        ticket: Ticket,
        /// The command.
        request: BlockRequest,
        /// When it is complete.
        time: PartTime,
        /// It may be [taken back](ShardMessage::TakenBack).
        returns: bool,
        /// Of a command that takes bytes: these.
        bytes: Vec<u8>,
    },
    /// What became of one.
    Outcome {
        /// As it came.
        ticket: Ticket,
        /// How it ended.
        status: Status,
        /// Of a command that gives bytes: these, if it was done.
        bytes: Vec<u8>,
    },
    /// The process ends, and a command of the receiver's goes on in the next one: nothing of it has moved.
    TakenBack {
        /// As it came.
        ticket: Ticket,
        /// When it is due, if the drive has begun it.
        due: Option<Nanos>,
    },
    /// Something that a pool of the shard is to be told of a volume's copies.
    Note {
        /// The pool.
        pool: u32,
        /// The front of the volume, on the sender's shard.
        front: u32,
        /// The note's number there.
        number: NoteNumber,
        /// What the pool is asked.
        request: PoolRequest,
    },
    /// What became of one.
    Noted {
        /// The front.
        front: u32,
        /// The note's number.
        number: NoteNumber,
        /// What the pool has said.
        result: Result<(), PoolError>,
        /// Where the chunks lie that it was asked to make the volume's own.
        placed: Option<ChunkPlaces>,
    },
    /// The guest of that number has gone.
    Gone(u32),
    /// The drive of the sender's guest of that number may have lost what it had acknowledged and not flushed.
    Loss(u32),
}

/// Messages of a turn, by the shard that they go to.
#[derive(Debug, Default)]
pub struct Outbox(Vec<(u32, Vec<ShardMessage>)>);

impl Outbox {
    /// One more.
    pub fn put(&mut self, shard: u32, message: ShardMessage) {
        match self.0.iter_mut().find(|(to, _)| *to == shard) {
            Some((_, messages)) => messages.push(message),
            None => self.0.push((shard, vec![message])),
        }
    }

    /// All for one shard.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, Vec<ShardMessage>)> {
        self.0.pop()
    }
}
