//! Connects again to the target behind a drive, on a thread of its own: attempts wait for the network.

use crate::target::{self, OpenOptions, Opened, OpenedFor};
use std::sync::mpsc::{self, Receiver, Sender};
use weir_driver::{QueuePair, TransportError};
use weir_sys::sched;
use weir_sys::transport::nvme_tcp::Stage;
use weir_units::Nanos;

/// What an attempt has come to.
pub enum Step {
    /// It goes on.
    Reached(Stage),
    /// It is over.
    Opened(Opened),
    /// It is over, and has come to nothing.
    Failed(TransportError),
}

/// An attempt to be made: how long its controller may take for an answer, and what is closed before.
struct Attempt {
    answer_timeout: Nanos,
    old: Option<Box<dyn QueuePair + Send>>,
}

/// See the [module](self). The thread ends with its drop, after the attempt that goes on.
pub struct Connector {
    attempts: Sender<Attempt>,
    steps: Receiver<Step>,
}

impl Connector {
    /// Of a target as the configuration has it. No attempt is made yet.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(target: &str, how: OpenOptions, of: OpenedFor) -> Result<Self, TransportError> {
        let (attempts, orders) = mpsc::channel::<Attempt>();
        let (sender, steps) = mpsc::channel();
        let own = target.to_owned();
        let run = move || {
            sched::as_the_process();
            for Attempt { answer_timeout, old } in orders {
                // A server behind a socket has one client at a time.
                drop(old);
                if sender.send(attempt(&own, OpenOptions { answer_timeout, ..how }, &of, &sender)).is_err() {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("weir-reconnect".into()).spawn(run);
        spawned.map_err(|e| TransportError::Unreachable(format!("{target}: no thread to connect again: {e}")))?;
        Ok(Self { attempts, steps })
    }

    /// One whose attempts come to nothing and do not end.
    #[cfg(test)]
    pub fn idle() -> Self {
        let (attempts, orders) = mpsc::channel();
        std::mem::forget(orders);
        Self { attempts, steps: mpsc::channel().1 }
    }

    /// Begins an attempt; the one before has ended.
    pub fn attempt(&self, answer_timeout: Nanos, old: Option<Box<dyn QueuePair + Send>>) {
        // The thread lives as long as this does.
        let _ = self.attempts.send(Attempt { answer_timeout, old });
    }

    /// What has come of it since the last call, in order.
    pub fn step(&self) -> Option<Step> {
        self.steps.try_recv().ok()
    }
}

fn attempt(target: &str, how: OpenOptions, of: &OpenedFor, sender: &Sender<Step>) -> Step {
    let mut reached = |stage| {
        // Its receiver may have gone.
        let _ = sender.send(Step::Reached(stage));
    };
    match target::open(target, how, of, &mut reached) {
        Ok(opened) => Step::Opened(opened),
        Err(e) => Step::Failed(e),
    }
}
