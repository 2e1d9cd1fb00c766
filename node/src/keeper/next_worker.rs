//! The next worker's part: what it hears while it waits, and whether it may go before the end of the last one's process.

use super::{Process, Running};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use weir_keeper::{Event, WorkerId};
use weir_sys::keeper_channel::{HEAR_TIMEOUT, ToWorker};
use weir_sys::robust_futex::DeathWatch;
use weir_units::Nanos;

/// Begins the names of rosters, which are the keeper's own affair.
const ROSTERS: &str = "threads:";

/// What the roster of a worker's threads is held as.
fn roster_of(id: WorkerId) -> String {
    format!("{ROSTERS}{}", id.0)
}

impl Running {
    /// Tells it of what is held, by name.
    pub(super) fn tell_held<'a>(&self, name: &str, fds: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
        let fds: Vec<BorrowedFd> = fds.collect();
        self.channel.tell(&ToWorker::Held(name.to_owned()), &fds)
    }
}

impl Process {
    /// Tells a worker all that is held, unless it knows.
    pub(super) fn tell_all(&mut self, id: WorkerId) -> io::Result<()> {
        let Some(worker) = self.workers.get_mut(&id).filter(|w| !w.told) else { return Ok(()) };
        worker.told = true;
        let mut held = self.held.iter().filter(|(name, _)| !name.starts_with(ROSTERS));
        held.try_for_each(|(name, fds)| worker.tell_held(name, fds.iter().map(AsFd::as_fd)))?;
        // At these the keeper listens itself, as long as the worker does not say otherwise.
        let mut fronts = self.fronts.iter();
        fronts.try_for_each(|front| worker.tell_held(&front.name(), std::iter::once(front.listener())))?;
        worker.channel.tell(&ToWorker::Told, &[])
    }

    /// Tells the worker that waits of a change of what is held. One that does not hear it is of no use any more.
    pub(super) fn tell_waiting(&mut self, tell: impl Fn(&Running) -> io::Result<()>) {
        let deaf = |(id, worker): (&WorkerId, &Running)| (worker.told && tell(worker).is_err()).then_some(*id);
        let deaf: Vec<WorkerId> = self.workers.iter().filter_map(deaf).collect();
        deaf.into_iter().for_each(|id| self.kill(id));
    }

    /// When the next worker that waits counts as one that does not listen.
    pub(super) fn deaf_at(&self) -> Option<Nanos> {
        let since = self.workers.values().filter(|w| w.told).filter_map(|w| w.channel.unheard_since()).min()?;
        let left = HEAR_TIMEOUT.saturating_sub(since.elapsed());
        Some(self.now().saturating_add(Nanos(left.as_nanos() as u64)))
    }

    /// A worker that waits and does not take what it is told could not serve when it is needed: another one takes its place.
    pub(super) fn kill_the_deaf(&mut self) {
        let deaf =
            |w: &Running| w.told && w.channel.unheard_since().is_some_and(|since| since.elapsed() >= HEAR_TIMEOUT);
        for (id, worker) in self.workers.iter_mut().filter(|(_, w)| deaf(w)) {
            tracing::warn!("worker {} has not listened for {HEAR_TIMEOUT:?} and is killed", id.0);
            worker.kill();
            worker.told = false;
        }
    }

    /// Whether every worker has taken what it was told.
    pub(super) fn all_heard(&self) -> bool {
        self.workers.values().all(|w| w.channel.unheard_since().is_none())
    }

    /// The death of these threads is enough for the next worker.
    pub(super) fn watch(&mut self, id: WorkerId, fds: Vec<OwnedFd>) {
        // For the program that the keeper goes on as.
        self.held.insert(roster_of(id), fds);
        self.watch_again(id);
    }

    /// Watches them where their worker has told of some.
    pub(super) fn watch_again(&mut self, id: WorkerId) {
        let roster = self.held.get(&roster_of(id)).and_then(|fds| fds.first()).map(OwnedFd::try_clone);
        let (Some(worker), Some(roster)) = (self.workers.get_mut(&id), roster) else { return };
        match roster.and_then(DeathWatch::begin) {
            Ok(watch) => worker.threads = Some(watch),
            Err(e) => tracing::warn!("the threads of worker {} are not watched: {e}; the end of its process is", id.0),
        }
    }

    /// After its death, or its leave.
    pub(super) fn forget_threads(&mut self, id: WorkerId) {
        self.held.remove(&roster_of(id));
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.threads = None;
        }
    }

    /// A worker's threads are dead; what they said before counts. Its process ends in a while.
    pub(super) fn still(&mut self, id: WorkerId) {
        self.listen(id);
        self.lose(id);
        self.apply(Event::Still(id));
    }
}
