//! Who may complete commands: a word that outlives the workers, and that each of their shards looks at in every turn.
//!
//! The keeper lets a worker go when the one before it has ended, or has said that it touches nothing any more. This is what holds should
//! that be wrong: the worker that goes makes itself the owner by one compare-and-swap, and one that finds another owner ends on the spot,
//! before it completes anything.

use crate::notice::notice;
use rustix::io::fcntl_dupfd_cloexec;
use std::io;
use weir_sys::arena::{Arena, Pages, Schema};
use weir_sys::keeper_channel::Keep;

/// Of the memory that the word lies in: the owner epoch of its header, and nothing else.
pub const SCHEMA: Schema = Schema { name: "owner", version: 1 };
/// What the keeper calls it.
const NAME: &str = "owner";

/// A worker's claim; without a keeper nobody else can have one.
#[derive(Debug, Default)]
pub struct Ownership(Option<(Arena, u64)>);

impl Ownership {
    /// From now on this worker is the owner.
    ///
    /// # Errors
    /// There is no memory, what is held is no such memory, or another worker claims it at this moment.
    pub fn claim(keep: &Keep) -> io::Result<Self> {
        if !keep.is_kept() {
            return Ok(Self(None));
        }
        let arena = match keep.take_one(NAME) {
            Some(fd) => Arena::open(fd, SCHEMA).map_err(io::Error::other)?,
            None => {
                let arena = Arena::create("weir-owner", SCHEMA, 8, Pages::Small).map_err(io::Error::other)?;
                keep.hold(NAME, &[arena.fd()])?;
                arena
            }
        };
        let claimed = arena.claim(arena.epoch());
        let epoch = claimed.map_err(|_| io::Error::other("another worker takes over at this moment"))?;
        Ok(Self(Some((arena, epoch))))
    }

    /// The same claim, for another thread.
    ///
    /// # Errors
    /// No descriptor or no memory is left.
    pub fn share(&self) -> io::Result<Self> {
        let Some((arena, epoch)) = &self.0 else { return Ok(Self(None)) };
        let arena = Arena::open(fcntl_dupfd_cloexec(arena.fd(), 3)?, SCHEMA).map_err(io::Error::other)?;
        Ok(Self(Some((arena, *epoch))))
    }

    /// Whether another worker is the owner now.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|(arena, epoch)| arena.epoch() != *epoch)
    }
}

/// Ends the process: whatever it has in its hands is another one's.
#[cold]
pub fn give_up() -> ! {
    notice("another worker is the owner of what this one serves; it ends at once and completes nothing");
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use weir_sys::keeper_channel::{Channel, ToKeeper, ToWorker};

    /// A worker, with what the keeper holds.
    fn worker(held: Option<&dyn AsFd>) -> (Channel, Keep) {
        let (channel, theirs) = Channel::pair().unwrap();
        if let Some(fd) = held {
            channel.tell(&ToWorker::Held(NAME.into()), &[fd.as_fd()]).unwrap();
        }
        channel.tell(&ToWorker::Go(0), &[]).unwrap();
        (channel, Keep::join(theirs, "", |_| None).unwrap())
    }

    #[test]
    fn the_last_one_to_claim_is_the_owner() {
        let (channel, keep) = worker(None);
        let first = Ownership::claim(&keep).unwrap();
        let elsewhere = first.share().unwrap();
        assert!(!first.is_lost() && !elsewhere.is_lost());
        assert!(matches!(channel.hear().unwrap(), Some((ToKeeper::Prepared(_), _))));
        assert!(matches!(channel.hear().unwrap(), Some((ToKeeper::Goes, _))));
        let Some((ToKeeper::Hold(name), fds)) = channel.hear().unwrap() else { panic!("it is held") };
        assert_eq!(name, NAME);
        let (_channel, keep) = worker(Some(&fds[0]));
        let second = Ownership::claim(&keep).unwrap();
        assert!(first.is_lost() && elsewhere.is_lost() && !second.is_lost());
    }

    #[test]
    fn without_a_keeper_there_is_nobody_else() {
        let alone = Ownership::claim(&Keep::none()).unwrap();
        assert!(!alone.is_lost() && !alone.share().unwrap().is_lost());
    }
}
