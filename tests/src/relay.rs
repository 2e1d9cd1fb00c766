//! A relay between a real client and the socket of a door: message by message, with something done after each of the client's.
//!
//! ```text
//!   client ──message k──► relay ──message k──► the node, then after(k)        client ◄── answers, as they come ── the node
//! ```
//! While `after` runs nothing goes either way, so that message k + 1 is never there before it is done with message k.

use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::harness::{Context, Outcome, ensure};

/// How messages are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Request, flags and length of the payload, 32 bits each.
    VhostUser,
    /// Identifier and command of 16 bits each, length of the whole, flags, error.
    VfioUser,
}

impl Protocol {
    fn header(self) -> usize {
        match self {
            Self::VhostUser => 12,
            Self::VfioUser => 16,
        }
    }

    /// Of a header: what it is, and how many bytes follow it.
    fn parse(self, header: &[u8]) -> Result<(u32, usize), String> {
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (what, len) = match self {
            Self::VhostUser => (word(0), Some(word(8) as usize)),
            Self::VfioUser => (word(0) >> 16, (word(4) as usize).checked_sub(self.header())),
        };
        let len = len.filter(|len| *len <= 1 << 20).ok_or_else(|| format!("no message begins with {header:02x?}"))?;
        Ok((what, len))
    }
}

/// What goes through a relay.
pub struct Relay {
    protocol: Protocol,
    listen: PathBuf,
    to: PathBuf,
    seen: Mutex<Vec<u32>>,
    /// Identifiers of the client's messages of vfio-user that have no answer yet.
    asked: Mutex<Vec<u32>>,
    failed: Mutex<Option<String>>,
    over: AtomicBool,
}

impl Relay {
    /// Between the clients of `listen`, one after the other, and the door at `to`.
    pub fn new(protocol: Protocol, listen: &Path, to: &Path) -> Self {
        let (seen, asked, failed) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { protocol, listen: listen.into(), to: to.into(), seen, asked, failed, over: AtomicBool::new(false) }
    }

    /// Requests or commands of the messages that the client has sent so far, in order.
    pub fn seen(&self) -> Vec<u32> {
        self.seen.lock().map_or_else(|e| e.into_inner().clone(), |seen| seen.clone())
    }

    /// What has gone wrong so far.
    pub fn fine(&self) -> Outcome {
        let failed = self.failed.lock().map_err(|e| e.to_string())?;
        failed.clone().map_or(Ok(()), Err)
    }

    /// Relays while `test` runs; `after` is told the number of each message, from 1, and what it is.
    pub fn along(&self, after: impl FnMut(usize, u32) -> Outcome + Send, test: impl FnOnce() -> Outcome) -> Outcome {
        let listener = UnixListener::bind(&self.listen).context(|| self.listen.display().to_string())?;
        std::thread::scope(|scope| {
            scope.spawn(|| self.serve(&listener, after));
            let tested = test();
            self.over.store(true, Ordering::Release);
            // Why it is over for the client comes first.
            self.fine().and(tested)
        })
    }

    fn serve(&self, listener: &UnixListener, mut after: impl FnMut(usize, u32) -> Outcome) {
        while !self.is_over() {
            let done = match ready(&[listener.as_fd()]) {
                Ok(ready) if ready[0] => self.client(listener, &mut after),
                other => other.map(drop),
            };
            if let (Err(e), Ok(mut failed)) = (done, self.failed.lock()) {
                failed.get_or_insert(e);
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// One client until it or the node hangs up.
    fn client(&self, listener: &UnixListener, after: &mut impl FnMut(usize, u32) -> Outcome) -> Outcome {
        let (mut client, _) = listener.accept().context(|| "accept".into())?;
        let mut node = UnixStream::connect(&self.to).context(|| self.to.display().to_string())?;
        let mut pending = Vec::new();
        while !self.is_over() {
            let ready = ready(&[node.as_fd(), client.as_fd()])?;
            if ready[0] {
                let mut bytes = vec![0; 1 << 16];
                let (len, fds) = receive(&node, &mut bytes)?;
                pending.extend_from_slice(&bytes[..len]);
                self.answers(&mut pending)?;
                // A client that has gone reads nothing, and its end is found below.
                if len > 0 && send(&client, &bytes[..len], &fds).is_err() && !ready[1] {
                    return Ok(());
                }
                ensure(len > 0 || self.is_over() || ready[1], || "the node has hung up".into())?;
            }
            if ready[1] {
                let Some(what) = self.message(&mut client, &mut node)? else { return Ok(()) };
                let number = {
                    let mut seen = self.seen.lock().map_err(|e| e.to_string())?;
                    seen.push(what);
                    seen.len()
                };
                after(number, what).map_err(|e| format!("after message {number}, which is {what}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Looks at what the node has said: every answer of vfio-user is one to something that was asked, and the only one.
    fn answers(&self, pending: &mut Vec<u8>) -> Outcome {
        let header = self.protocol.header();
        while pending.len() >= header {
            let (what, len) = self.protocol.parse(&pending[..header])?;
            if pending.len() < header + len {
                return Ok(());
            }
            let message: Vec<u8> = pending.drain(..header + len).collect();
            if self.protocol == Protocol::VhostUser || message[8] & 0xf == 0 {
                continue;
            }
            let id = u32::from(message[0]) | u32::from(message[1]) << 8;
            let mut asked = self.asked.lock().map_err(|e| e.to_string())?;
            let at = asked.iter().position(|one| *one == id | what << 16);
            let at = at.ok_or_else(|| format!("{:02x?} answers nothing: {asked:x?}", &message[..header]))?;
            asked.remove(at);
        }
        Ok(())
    }

    /// Passes a message of the client's on; nothing where it has hung up.
    fn message(&self, client: &mut UnixStream, node: &mut UnixStream) -> Result<Option<u32>, String> {
        let header = self.protocol.header();
        let mut bytes = vec![0; header];
        let (len, fds) = receive(client, &mut bytes)?;
        if len == 0 {
            return Ok(None);
        }
        client.read_exact(&mut bytes[len..]).context(|| "half a header".into())?;
        let (what, len) = self.protocol.parse(&bytes)?;
        bytes.resize(header + len, 0);
        client.read_exact(&mut bytes[header..]).context(|| "half a message".into())?;
        // Unless it wants none.
        if self.protocol == Protocol::VfioUser && bytes[8] & 0x1f == 0 {
            let id = u32::from(bytes[0]) | u32::from(bytes[1]) << 8;
            self.asked.lock().map_err(|e| e.to_string())?.push(id | what << 16);
        }
        send(node, &bytes, &fds)?;
        Ok(Some(what))
    }
}

/// Which of these have something to read, after a while at most.
fn ready(all: &[std::os::fd::BorrowedFd<'_>]) -> Result<Vec<bool>, String> {
    let mut polled: Vec<_> = all.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let while_ = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    poll(&mut polled, Some(&while_)).context(|| "poll".into())?;
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Bytes and the descriptors beside them; none at the end of the stream.
fn receive(from: &UnixStream, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), String> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(from, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let len = match received {
        Ok(received) => received.bytes,
        Err(rustix::io::Errno::CONNRESET) => 0,
        Err(e) => return Err(format!("recvmsg: {e}")),
    };
    let rights = control.drain().filter_map(|m| match m {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((len, rights.flatten().collect()))
}

/// All of the bytes, with the descriptors beside the first one.
fn send(to: &UnixStream, bytes: &[u8], fds: &[OwnedFd]) -> Outcome {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let sent = sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).context(|| "sendmsg".into())?;
    ensure(sent == bytes.len(), || "half a message was sent".into())
}
