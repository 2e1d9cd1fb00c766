//! A queue pair whose connection ends connects again, by a controller of its own, and submits again what was not answered.
//!
//! A write that was executed and not answered is executed twice, with the same bytes. Nothing is repeated before the target says that the
//! controller of before is no more, where it says that clearly: a write that it still has could undo a newer one.

use super::association_probe::await_end;
use super::{ConnectOptions, NvmeTcpQueue, RemoteController};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use weir_driver::{Io, TransportError};

/// Between attempts.
const RETRY: Duration = Duration::from_millis(1);

/// What a queue pair must know to go on.
#[derive(Debug)]
pub(super) struct Reconnect {
    patience: Duration,
    /// Not answered, by slot.
    pub(super) flying: Vec<Option<Io>>,
    times: u64,
}

impl NvmeTcpQueue {
    /// From now on a connection that ends is no error: for so long somebody tries to connect again.
    pub fn reconnect_for(&mut self, patience: Duration) {
        self.again = Some(Box::new(Reconnect { patience, flying: vec![None; self.depth as usize], times: 0 }));
    }

    /// How often it was connected again.
    pub fn reconnects(&self) -> u64 {
        self.again.as_ref().map_or(0, |again| again.times)
    }

    /// Makes the connection that ended with `why` anew, if that is wanted.
    #[cold]
    pub(super) fn renew(&mut self, why: TransportError) -> Result<(), TransportError> {
        let Some(mut again) = self.again.take() else { return Err(why) };
        let deadline = Instant::now() + again.patience;
        let mut last = why;
        loop {
            let gone =
                matches!(last, TransportError::Closed(_) | TransportError::Unreachable(_) | TransportError::Timeout(_));
            if !gone || Instant::now() >= deadline {
                return Err(last);
            }
            match self.connect_anew(&again.flying, deadline) {
                Ok(()) => break,
                Err(e) => last = e,
            }
            std::thread::sleep(RETRY);
        }
        again.times += 1;
        self.again = Some(again);
        Ok(())
    }

    fn connect_anew(&mut self, flying: &[Option<Io>], deadline: Instant) -> Result<(), TransportError> {
        let options = ConnectOptions { queues: 1, spare: false, ..self.dial.options.clone() };
        let mut controller = RemoteController::connect(&self.dial.host, self.dial.port, options)?;
        // The controller may have gone with the other side's process between the two connections.
        let made = controller.queue_pair_in(self.class, self.max_io).map_err(|e| match e {
            TransportError::Refused(why) => TransportError::Closed(why),
            other => other,
        })?;
        let ready = |q: &NvmeTcpQueue| (q.dial.ready.block_size, q.dial.ready.capacity, q.dial.ready.nguid);
        if ready(&made) != ready(self) || made.depth < self.depth || made.max_io < self.max_io {
            return Err(TransportError::Refused(format!(
                "{} is not the drive it was: what was written to that one is not on it",
                self.dial.options.subnqn
            )));
        }
        if flying.iter().any(Option::is_some) {
            self.shut_down();
            await_end((&self.dial.host, self.dial.port), &self.dial.options, self.association(), deadline)?;
        }
        // The buffers stay: they hold what is written.
        (self.link, self.admin, self.dial, self.qid) = (made.link, made.admin, made.dial, made.qid);
        self.completions.clear();
        flying.iter().flatten().try_for_each(|io| self.send(*io))
    }

    /// Ends the association: one connection of it may have been left.
    fn shut_down(&self) {
        let admin = self.admin.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for stream in [&admin.link.stream, &self.link.stream] {
            // It fails where the connection has ended.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}
