//! What has happened to a node that its operator may want to hear of: the latest [`SLOTS`](ring::SLOTS) events, each with a number.
//!
//! ```text
//!   drives (diagnosis) ─┐                        ┌─► memory, for the API and those who follow
//!   pools, upgrades ────┼─► EventLog::add ───────┼─► EventRing, which outlives the worker
//!   watch (promises) ───┘                        └─► OnFailure: the operator's command
//!   keeper, while no worker serves ─────────────────► EventRing
//! ```
//! Nothing here waits: an event costs a write into memory. The log has lines of its own; this is for programs, and for what was before.

mod disturbances;
mod event;
pub mod on_failure;
mod ring;

pub(crate) use disturbances::tell;
pub use event::{EventLevel, NodeEvent, kind};
pub use ring::{EventRing, NAME};

use ring::SLOTS;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_sys::keeper_channel::{Keep, memory_file};

/// Called with each new event, which has its number; it must not wait, nor add one.
pub type Listener = Box<dyn Fn(&NodeEvent) + Send + Sync>;

/// See the [module](self); cloning gives another reference.
#[derive(Clone, Default)]
pub struct EventLog(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    latest: VecDeque<NodeEvent>,
    /// Of the last event.
    number: u64,
    ring: Option<EventRing>,
    listeners: Vec<Listener>,
    /// Another process serves: it goes on with the ring.
    is_closed: bool,
}

impl EventLog {
    /// With what the worker before left, and so that the next one finds it. Without a keeper it ends with the process.
    pub fn of(keep: &Keep) -> Self {
        let log = Self::default();
        if !keep.is_kept() {
            return log;
        }
        let opened = match keep.take_one(NAME) {
            Some(fd) => EventRing::open(fd),
            None => new_ring(keep).map(|ring| (ring, Vec::new())),
        };
        match opened {
            Ok((ring, events)) => {
                let mut inner = log.inner();
                inner.number = events.last().map_or(0, |event| event.number);
                (inner.ring, inner.latest) = (Some(ring), events.into());
            }
            Err(e) => tracing::warn!("events will not outlive this process: {e}"),
        }
        log
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an event its number and keeps it; the number.
    pub fn add(&self, mut event: NodeEvent) -> u64 {
        let mut inner = self.inner();
        inner.number += 1;
        event.number = inner.number;
        let written = inner.ring.as_ref().filter(|_| !inner.is_closed).map(|ring| ring.write(&event));
        if let Some(Err(e)) = written {
            tracing::warn!("event {} will not outlive this process: {e}", event.number);
        }
        if inner.latest.len() as u64 == SLOTS {
            inner.latest.pop_front();
        }
        inner.listeners.iter().for_each(|listener| listener(&event));
        let number = event.number;
        inner.latest.push_back(event);
        number
    }

    /// Events with greater numbers than that, in their order.
    pub fn after(&self, number: u64) -> Vec<NodeEvent> {
        self.inner().latest.iter().filter(|event| event.number > number).cloned().collect()
    }

    /// The number of the last event; 0 before there was one.
    pub fn last(&self) -> u64 {
        self.inner().number
    }

    /// The last disturbance of a drive that is known; 0: none.
    pub fn last_episode(&self, device: &str) -> u64 {
        let inner = self.inner();
        let of_drive = inner.latest.iter().filter(|event| event.device.as_deref() == Some(device));
        of_drive.filter_map(|event| event.episode).max().unwrap_or(0)
    }

    /// From now on `listener` is called with each event, by whoever adds it.
    pub fn listen(&self, listener: Listener) {
        self.inner().listeners.push(listener);
    }

    /// Another process serves from now on: what is added here is not kept beyond this one.
    pub fn close(&self) {
        self.inner().is_closed = true;
    }
}

fn new_ring(keep: &Keep) -> io::Result<EventRing> {
    let ring = EventRing::create(memory_file(NAME)?)?;
    keep.hold(NAME, &[ring.file().as_fd()])?;
    Ok(ring)
}

/// Adds an event to a ring while no worker serves; the keeper does.
///
/// # Errors
/// The ring cannot be read, or written.
pub fn add_to_ring(fd: OwnedFd, mut event: NodeEvent) -> io::Result<()> {
    let (ring, events) = EventRing::open(fd)?;
    event.number = events.last().map_or(0, |last| last.number) + 1;
    ring.write(&event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sys::keeper_channel::{Channel, ToKeeper, ToWorker};

    fn event(device: &str, episode: u64) -> NodeEvent {
        let event = NodeEvent::new(kind::DRIVE, "pause", EventLevel::Info, "commands wait".into());
        NodeEvent { device: Some(device.into()), episode: Some(episode), ..event }
    }

    /// A worker, with what the keeper holds.
    fn worker(held: Option<OwnedFd>) -> (Channel, Keep) {
        let (channel, theirs) = Channel::pair().unwrap();
        if let Some(fd) = held {
            channel.tell(&ToWorker::Held(NAME.into()), &[fd.as_fd()]).unwrap();
        }
        channel.tell(&ToWorker::Go(0), &[]).unwrap();
        (channel, Keep::join(theirs, "", |_| None).unwrap())
    }

    #[test]
    fn events_have_numbers_and_are_asked_for_by_them() {
        let log = EventLog::of(&Keep::none());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        log.listen(Box::new(move |event| hears.lock().unwrap().push(event.number)));
        (1..=SLOTS + 5).for_each(|n| assert_eq!(log.add(event("ssd0", n)), n));
        assert_eq!(log.after(SLOTS + 3).iter().map(|event| event.number).collect::<Vec<_>>(), [SLOTS + 4, SLOTS + 5]);
        assert_eq!(log.after(0).len() as u64, SLOTS, "the oldest have gone");
        assert_eq!((log.last(), heard.lock().unwrap().len() as u64), (SLOTS + 5, SLOTS + 5));
        assert_eq!((log.last_episode("ssd0"), log.last_episode("ssd1")), (SLOTS + 5, 0));
    }

    #[test]
    fn what_a_worker_left_the_next_one_has_and_the_keeper_adds_between() {
        let (channel, keep) = worker(None);
        let first = EventLog::of(&keep);
        first.add(event("ssd0", 1));
        first.add(event("ssd1", 4));
        let held = loop {
            match channel.hear().unwrap() {
                Some((ToKeeper::Hold(name), mut fds)) if name == NAME => break fds.remove(0),
                Some(_) => {}
                None => panic!("it is held"),
            }
        };
        let died = NodeEvent::new(kind::WORKER, "restarting", EventLevel::Error, "the worker crashed".into());
        add_to_ring(held.try_clone().unwrap(), died).unwrap();
        let (_channel, keep) = worker(Some(held));
        let second = EventLog::of(&keep);
        let found = second.after(0);
        assert_eq!(found.iter().map(|event| event.what.as_str()).collect::<Vec<_>>(), ["pause", "pause", "restarting"]);
        assert_eq!((second.last_episode("ssd1"), second.add(event("ssd0", 2))), (4, 4));
        // One that has left does not write over what the next one has.
        first.close();
        first.add(event("ssd9", 1));
        assert_eq!(EventLog::of(&worker(Some(held_again(&second))).1).after(0).len(), 4);
    }

    fn held_again(log: &EventLog) -> OwnedFd {
        log.inner().ring.as_ref().unwrap().file().try_clone().unwrap().into()
    }
}
