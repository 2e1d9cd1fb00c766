//! A client's socket: bytes in, frames out.

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::time::Instant;
use weir_store::protocol::FrameReader;

/// See the [module](self).
pub(super) struct Connection {
    pub socket: OwnedFd,
    pub frames: FrameReader,
    unsent: Vec<u8>,
    sent: usize,
    pub since: Instant,
    /// A message has come.
    pub has_spoken: bool,
    /// Since when the client takes nothing.
    stalled: Option<Instant>,
    /// It has messages that wait until what it was answered is taken.
    pub is_held: bool,
    /// It is closed when everything is sent.
    pub closes: bool,
    /// What is awaited of the socket, as it was registered.
    pub awaits_room: bool,
    pub awaits_bytes: bool,
}

impl Connection {
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            frames: FrameReader::default(),
            unsent: Vec::new(),
            sent: 0,
            since: Instant::now(),
            has_spoken: false,
            stalled: None,
            is_held: false,
            closes: false,
            awaits_room: false,
            awaits_bytes: true,
        }
    }

    pub fn push(&mut self, frame: &[u8]) {
        // What is sent goes when it is the larger part, so that no byte is moved often.
        if self.sent > self.unsent.len() / 2 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        self.unsent.extend_from_slice(frame);
    }

    pub fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// How long the client has taken nothing of what waits for it.
    pub fn stalled(&self) -> std::time::Duration {
        self.stalled.map_or(std::time::Duration::ZERO, |since| since.elapsed())
    }

    /// Sends what it can.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> Result<(), Errno> {
        while self.unsent() > 0 {
            match send(&self.socket, &self.unsent[self.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => {
                    self.sent += count;
                    self.stalled = None;
                }
                Err(Errno::AGAIN) => {
                    self.stalled.get_or_insert_with(Instant::now);
                    break;
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        if self.unsent() == 0 {
            self.unsent.clear();
            // An answer that was large does not keep its memory.
            self.unsent.shrink_to(4096);
            self.sent = 0;
        }
        Ok(())
    }
}
