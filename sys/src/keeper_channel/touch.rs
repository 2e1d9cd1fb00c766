//! What a worker maps while it waits.

use super::{ToKeeper, send};
use crate::arena::Arena;
use crate::sched;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// What is done by who maps the pages of regions.
pub(super) enum Touch {
    Region(Weak<Arena>),
    /// All that there was is mapped: that is said.
    Warm(Warmth),
}

/// Says once that the worker is warm.
#[derive(Clone)]
pub(super) struct Warmth {
    channel: Arc<OwnedFd>,
    said: Arc<AtomicBool>,
}

impl Warmth {
    pub(super) fn of(channel: &OwnedFd) -> io::Result<Self> {
        Ok(Self { channel: Arc::new(channel.try_clone()?), said: Arc::default() })
    }

    pub(super) fn say(&self) {
        if !self.said.swap(true, Ordering::Relaxed) {
            let (kind, text) = ToKeeper::Warm.parts();
            // A keeper that has gone is noticed by who listens to it.
            let _ = send(&self.channel, kind, &text, &[]);
        }
    }
}

/// Maps the pages of regions, in a thread of its own that leaves most of its core to others, until it is dropped.
///
/// Not by a low priority: one that has lost its core in the middle of a piece holds the lock of the process's address space, and whoever is to
/// take over waits for that; and once it has the core the kernel takes it away at a tick only, which is 4 ms. It works for some 0.1 ms and sleeps for longer.
pub(super) struct Toucher {
    pub(super) work: mpsc::Sender<Touch>,
    stop: Arc<AtomicBool>,
}

/// So many times as long as a piece has taken it sleeps.
const SLEEP: u32 = 2;
/// But no longer at once: what it took may be time without a core.
const LONGEST: Duration = Duration::from_millis(1);

/// So long an upgrade waits for what is held to be mapped; the rest is mapped as it is used.
pub(super) const WARM_FOR: Duration = Duration::from_secs(3);

impl Toucher {
    pub(super) fn start() -> io::Result<Self> {
        let (work, queue) = mpsc::channel();
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let run = move || {
            sched::prompt();
            for touch in queue {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                match touch {
                    Touch::Region(region) => {
                        let mut begun = Instant::now();
                        Arena::touch(&region, || {
                            let stop = || stopped.load(Ordering::Relaxed);
                            if !stop() {
                                std::thread::sleep((begun.elapsed() * SLEEP).min(LONGEST));
                            }
                            begun = Instant::now();
                            stop()
                        });
                    }
                    Touch::Warm(warmth) => warmth.say(),
                }
            }
        };
        std::thread::Builder::new().name("weir-touch".into()).spawn(run)?;
        Ok(Self { work, stop })
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
