//! What a worker maps while it waits.

use super::{ToKeeper, send};
use crate::arena::Arena;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

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

/// Maps the pages of regions, in a thread of its own that gives way to others, until it is dropped.
pub(super) struct Toucher {
    pub(super) work: mpsc::Sender<Touch>,
    stop: Arc<AtomicBool>,
}

/// Beside a thread that serves on the same core it gets a tenth of it.
const NICE: i32 = 10;

/// So long an upgrade waits for what is held to be mapped; the rest is mapped as it is used.
pub(super) const WARM_FOR: Duration = Duration::from_secs(3);

impl Toucher {
    pub(super) fn start() -> io::Result<Self> {
        let (work, queue) = mpsc::channel();
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let run = move || {
            // Of this thread alone.
            let _ = rustix::process::setpriority_process(None, NICE);
            for touch in queue {
                match touch {
                    Touch::Region(region) => Arena::touch(&region, &|| stopped.load(Ordering::Relaxed)),
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
