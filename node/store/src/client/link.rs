//! The connection to the metadata service, made again by a thread of its own when it is lost.

use super::connection::{Caller, Connection};
use super::error::{ClientError, ClientErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use weir_store::client::ClientEvent;
use weir_store::protocol::{Answer, Request, RequestNumber, SessionWish, WelcomeInfo};
use weir_sys::transport::fds;

/// Between attempts to connect again: the first pause and the longest; each one is twice the one before.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long a service may leave requests without any answer before another one is tried, where there are several: longer than it takes for the slowest
/// answer.
const SILENCE: Duration = Duration::from_secs(3);

type Connected = Result<(Connection, WelcomeInfo), ClientError>;

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Link {
    caller: Caller,
    connection: Option<Connection>,
    /// Rises with each connection.
    connections: u64,
    again: Option<Receiver<Connected>>,
    bell: Arc<OwnedFd>,
    answers: Vec<(RequestNumber, Answer)>,
    /// Requests that were not answered over this connection.
    unanswered: usize,
    /// When something came last, or the first of these was sent.
    heard: Instant,
}

impl Link {
    /// Over a connection that was let in. The bell rings when another one is there.
    pub fn new(caller: Caller, connection: Connection, bell: Arc<OwnedFd>) -> Self {
        let (connection, answers, heard) = (Some(connection), Vec::new(), Instant::now());
        Self { caller, connection, connections: 1, again: None, bell, answers, unanswered: 0, heard }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What is to be waited for, the number of the connection, and whether also for room to send.
    pub fn socket(&self) -> Option<(BorrowedFd<'_>, u64, bool)> {
        self.connection.as_ref().map(|c| (c.socket(), self.connections, c.has_output()))
    }

    /// Queues a request; nothing comes of it where there is no connection: the machine sends it again over the next one. `false` if it is longer
    /// than a message may be.
    pub fn put(&mut self, number: RequestNumber, request: &Request) -> bool {
        let Some(connection) = &mut self.connection else { return true };
        if self.unanswered == 0 {
            self.heard = Instant::now();
        }
        let is_put = connection.put(request, number).is_ok();
        self.unanswered += usize::from(is_put);
        is_put
    }

    /// Sends what was queued, as far as the socket takes it.
    pub fn flush(&mut self) {
        if let Some(connection) = &mut self.connection {
            // What is wrong with it is found when it is received from.
            let _ = connection.flush();
        }
    }

    /// Connects again, by a thread.
    pub fn connect(&mut self, wish: SessionWish) {
        if self.again.is_some() {
            return;
        }
        let (sender, again) = mpsc::sync_channel(1);
        let (caller, bell) = (self.caller.clone(), self.bell.clone());
        let run = move || {
            let mut pause = PAUSE.0;
            loop {
                let made = caller.connect(wish, ATTEMPT).map(|(c, welcome, _)| (c, welcome));
                let is_final = match &made {
                    Ok(_) => true,
                    Err(error) => *error.kind() == ClientErrorKind::SessionOver,
                };
                if is_final {
                    // Its receiver may have gone.
                    let _ = sender.send(made);
                    return fds::signal(&*bell);
                }
                // Only this thread and the client's have the bell.
                if Arc::strong_count(&bell) == 1 {
                    return;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            }
        };
        match std::thread::Builder::new().name("weir-store-meta".into()).spawn(run) {
            Ok(_) => self.again = Some(again),
            Err(e) => tracing::warn!("{}: no thread to connect again: {e}", self.caller.address()),
        }
    }

    /// Whether something is to come, or to be sent.
    pub fn is_expecting(&self) -> bool {
        self.unanswered > 0 || self.again.is_some() || self.connection.as_ref().is_some_and(Connection::has_output)
    }

    /// Sends and receives; what has happened.
    pub fn poll(&mut self, events: &mut Vec<ClientEvent>) {
        if let Some(made) = self.again.as_ref().and_then(|again| again.try_recv().ok()) {
            self.again = None;
            events.push(match made {
                Ok((connection, welcome)) => {
                    self.connection = Some(connection);
                    self.connections += 1;
                    self.unanswered = 0;
                    ClientEvent::Connected(Box::new(welcome))
                }
                Err(_) => ClientEvent::Refused,
            });
        }
        let Some(connection) = &mut self.connection else { return };
        let result = connection.flush().and_then(|()| connection.receive(&mut self.answers));
        if !self.answers.is_empty() {
            self.heard = Instant::now();
            self.unanswered = self.unanswered.saturating_sub(self.answers.len());
        }
        let is_silent = self.caller.has_several() && self.unanswered > 0 && self.heard.elapsed() > SILENCE;
        let result = match result {
            Ok(_) if is_silent => Err("it does not answer".into()),
            result => result,
        };
        events.extend(self.answers.drain(..).map(|(number, answer)| ClientEvent::Answer(number, answer)));
        if let Err(why) = result {
            tracing::debug!("{}: {why}; it is connected to again", self.caller.address());
            self.connection = None;
            events.push(ClientEvent::Disconnected(why));
        }
    }
}
