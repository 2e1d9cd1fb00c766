//! Which thread drives the engine: the one that waits for an answer, so that no answer goes through another thread.
//!
//! ```text
//!   a call ─ begin ─► a turn ─► done?  ─ no ─► nobody drives: drive, look for answers, then sleep in epoll without the lock
//!                                              another drives: sleep until it says that the answer is there, or leaves
//!   keeper ── renews the lease, and drives what nobody waits for and nobody has driven for a millisecond
//! ```

mod several;

use super::connection::boot_time;
use super::engine::{Engine, Finished};
use super::memory::CallerMemory;
use super::recorder::Recorder;
use rustix::event::{Timespec, epoll};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use weir_store::client::{FileWork, OpenFileId, WorkId};
use weir_sys::transport::fds;
use weir_units::Nanos;

pub(super) use several::{Waited, wait_any};

/// The longest sleep.
const SLEEP: Nanos = Nanos::from_millis(250);
/// Between the keeper's looks while operations are under way that nobody waits for: it drives where nobody has since the look before. A thread that
/// begins operations and soon waits for them has them for itself.
const UNWAITED: Duration = Duration::from_millis(1);
/// How long a thread sleeps at the most while another one drives.
const FOLLOW: Duration = Duration::from_millis(100);

/// What all clones of a client have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub address: String,
    pub spin: Duration,
    pub deadline: Duration,
    engine: Mutex<Engine>,
    keeper: OnceLock<Thread>,
    pub recorder: Option<Recorder>,
}

impl Shared {
    /// With a keeper.
    pub fn new(
        address: &str,
        (spin, deadline): (Duration, Duration),
        engine: Engine,
        recorder: Option<Recorder>,
    ) -> std::io::Result<Arc<Self>> {
        let can_spin = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        let spin = if can_spin { spin } else { Duration::ZERO };
        let (engine, keeper) = (Mutex::new(engine), OnceLock::new());
        let shared = Arc::new(Self { address: address.into(), spin, deadline, engine, keeper, recorder });
        let weak = Arc::downgrade(&shared);
        let spawned = thread::Builder::new().name("weir-store-client".into()).spawn(move || keep(&weak))?;
        let _ = shared.keeper.set(spawned.thread().clone());
        Ok(shared)
    }

    pub fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Drives until the work is over.
    pub fn wait(&self, work: WorkId) -> Finished {
        let mut engine = self.lock();
        let mut quiet: Option<Instant> = None;
        loop {
            if let Some(outcome) = engine.take(work) {
                engine.waiters.remove(&work);
                self.hand_over(&mut engine);
                return outcome;
            }
            if engine.is_driven {
                engine.waiters.insert(work, thread::current());
                drop(engine);
                thread::park_timeout(FOLLOW);
                engine = self.lock();
                continue;
            }
            if engine.turn() {
                quiet = None;
                continue;
            }
            if engine.is_done(work) {
                continue;
            }
            let since = *quiet.get_or_insert_with(Instant::now);
            engine = match since.elapsed() < self.spin {
                true => self.spin(engine),
                false => self.sleep(engine, SLEEP),
            };
        }
    }

    /// Drives until one of these is over, or until that moment of CLOCK_BOOTTIME; whether one is.
    pub fn wait_any(&self, works: &[WorkId], until: Nanos) -> bool {
        let mut engine = self.lock();
        let mut quiet: Option<Instant> = None;
        let is_over = loop {
            if works.iter().any(|work| engine.is_done(*work)) {
                break true;
            }
            let left = until.saturating_sub(boot_time());
            if left == Nanos(0) {
                break false;
            }
            if engine.is_driven {
                works.iter().for_each(|work| drop(engine.waiters.insert(*work, thread::current())));
                drop(engine);
                thread::park_timeout(FOLLOW.min(Duration::from_nanos(left.get())));
                engine = self.lock();
                continue;
            }
            if engine.turn() {
                quiet = None;
                continue;
            }
            if works.iter().any(|work| engine.is_done(*work)) {
                continue;
            }
            let since = *quiet.get_or_insert_with(Instant::now);
            engine = match since.elapsed() < self.spin {
                true => self.spin(engine),
                false => self.sleep(engine, left),
            };
        };
        works.iter().for_each(|work| drop(engine.waiters.remove(work)));
        self.hand_over(&mut engine);
        is_over
    }

    /// Lets others in for a moment.
    fn spin<'a>(&'a self, mut engine: MutexGuard<'a, Engine>) -> MutexGuard<'a, Engine> {
        engine.is_driven = true;
        drop(engine);
        std::hint::spin_loop();
        let mut engine = self.lock();
        engine.is_driven = false;
        engine
    }

    /// Sleeps until something comes, or is due, but no longer than that, without the lock.
    fn sleep<'a>(&'a self, mut engine: MutexGuard<'a, Engine>, most: Nanos) -> MutexGuard<'a, Engine> {
        let left = engine.due().saturating_sub(boot_time()).min(SLEEP).min(most);
        if left == Nanos(0) {
            return engine;
        }
        let (poll, bell) = (engine.poll.clone(), engine.bell.clone());
        engine.is_driven = true;
        drop(engine);
        let woken = sleep_in(&poll, &bell, left);
        let mut engine = self.lock();
        engine.is_driven = false;
        engine.woken(woken.iter().map(|event| event.data.u64()));
        engine
    }

    /// Another thread drives from now on, if there is work.
    fn hand_over(&self, engine: &mut Engine) {
        if engine.is_driven {
            return;
        }
        match engine.waiters.first_key_value() {
            Some((_, waiter)) => waiter.unpark(),
            None if engine.has_work() => self.attend(engine),
            None => {}
        }
    }

    /// Begins an operation of a file that nobody waits for yet.
    pub fn begin_unwaited(&self, file: OpenFileId, what: FileWork, memory: CallerMemory, until: Nanos) -> WorkId {
        let mut engine = self.lock();
        let work = engine.begin(file, what, Some(memory), until);
        if !engine.is_driven && engine.has_work() {
            self.attend(&mut engine);
        }
        work
    }

    /// The keeper looks from now on after work that nobody waits for. It is not woken for each operation: it goes on until there is none.
    fn attend(&self, engine: &mut Engine) {
        if !std::mem::replace(&mut engine.is_attended, true) {
            self.wake_keeper();
        }
    }

    fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.engine.get_mut().unwrap_or_else(PoisonError::into_inner).close();
        self.wake_keeper();
    }
}

fn sleep_in(poll: &OwnedFd, bell: &OwnedFd, left: Nanos) -> Vec<epoll::Event> {
    let mut events: Vec<epoll::Event> = Vec::with_capacity(16);
    let timeout = Timespec { tv_sec: 0, tv_nsec: left.get().min(999_999_999) as _ };
    // An interrupted sleep is one that is over.
    let _ = epoll::wait(poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
    fds::drain(bell);
    events
}

/// Renews the lease, and drives what nobody waits for.
fn keep(shared: &Weak<Shared>) {
    let mut turns = 0;
    loop {
        let pause = {
            let Some(shared) = shared.upgrade() else { return };
            // Who has the lock is about to drive, or does. To wait for it would make each of its unlocks a call into the kernel.
            let Some(mut engine) = shared.try_lock() else {
                drop(shared);
                thread::park_timeout(UNWAITED);
                continue;
            };
            if engine.is_closed {
                return;
            }
            let is_left_alone = engine.turns == turns || boot_time() >= engine.due();
            if !engine.is_driven && is_left_alone {
                while engine.turn() {}
            }
            // A thread that drives says when it leaves; while it does so at every moment, asking for the keeper each time would cost more than its looks.
            let is_busy = engine.turns != std::mem::replace(&mut turns, engine.turns);
            engine.is_attended = engine.has_work() && engine.waiters.is_empty() && (!engine.is_driven || is_busy);
            match engine.is_attended {
                true => UNWAITED,
                false => Duration::from_nanos(engine.due().saturating_sub(boot_time()).min(SLEEP).get().max(1)),
            }
        };
        thread::park_timeout(pause);
    }
}
