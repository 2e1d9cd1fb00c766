//! A drive behind `media = "nvme:nvme-tcp://…"` whose association was lost is connected to again, by a thread of its own.

use crate::target::{self, Opened};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use weir_driver::TransportError;
use weir_sys::keeper_channel::Keep;
use weir_sys::sched;
use weir_units::Nanos;

/// Between attempts: the first pause and the longest; each one is twice the one before.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// What it takes to connect again.
#[derive(Clone, Debug)]
pub struct Source {
    /// The drive's name in the configuration.
    pub drive: String,
    /// Its NQN.
    pub nqn: String,
    /// As the configuration has it.
    pub target: String,
    /// Requests at once.
    pub depth: u32,
    /// Holds the connections.
    pub keep: Keep,
    /// How long commands wait for a target that has gone.
    pub timeout: Nanos,
}

/// The attempts, until one succeeds. Ends with its drop, after the attempt that goes on.
#[derive(Debug)]
pub struct Attempts {
    opened: Receiver<Opened>,
    is_dropped: Arc<AtomicBool>,
}

impl Attempts {
    /// Begins them.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(source: &Source) -> Result<Self, TransportError> {
        let (sender, opened) = mpsc::sync_channel(1);
        let is_dropped = Arc::new(AtomicBool::new(false));
        let (stop, target, depth) = (is_dropped.clone(), source.target.clone(), source.depth);
        let run = move || {
            sched::as_the_process();
            let mut pause = PAUSE.0;
            while !stop.load(Ordering::Acquire) {
                match target::open(&target, depth) {
                    // Its receiver may have gone.
                    Ok(opened) => return drop(sender.send(opened)),
                    Err(e) => tracing::debug!("{target}: {e}"),
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            }
        };
        let spawned = std::thread::Builder::new().name("weir-reconnect".into()).spawn(run);
        spawned
            .map_err(|e| TransportError::Unreachable(format!("{}: no thread to connect again: {e}", source.target)))?;
        Ok(Self { opened, is_dropped })
    }

    /// What was opened, once.
    pub fn opened(&self) -> Option<Opened> {
        self.opened.try_recv().ok()
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Release);
    }
}
