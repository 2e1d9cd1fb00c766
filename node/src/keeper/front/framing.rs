//! The two protocols as the keeper passes them on: what it reads, and what is to become of it.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use weir_keeper::{Envelope, Passed, Relay, Replay};
use weir_session::{vfio_user, vhost_user};

/// Bytes and descriptors of a socket become messages.
pub(super) trait Frames {
    type Message;
    /// Where the next bytes go.
    fn space(&mut self) -> &mut [u8];
    /// So many have been put there, and these descriptors came with them.
    fn advance(&mut self, count: usize, fds: Vec<OwnedFd>) -> Result<Option<Self::Message>, String>;
}

/// What a client and the worker say to each other.
pub(super) trait Talk {
    type Inbox: Frames;
    /// For what the client says.
    fn inbox() -> Self::Inbox;
    /// For what the worker says.
    fn inbox_of_answers() -> Self::Inbox;
    /// The worker will know it by that number.
    fn told(&mut self, number: u64);
    /// The client has said something.
    fn front(&mut self, message: <Self::Inbox as Frames>::Message, out: &mut Vec<Passed<Rc<OwnedFd>>>);
    /// The worker has; the error ends the connection.
    fn back(
        &mut self,
        message: <Self::Inbox as Frames>::Message,
        out: &mut Vec<Passed<Rc<OwnedFd>>>,
    ) -> Result<(), String>;
    /// What another worker must hear first.
    fn again(&mut self) -> Vec<Envelope<Rc<OwnedFd>>>;
    /// Whether one can go on.
    fn survives(&self) -> bool;
    /// Whether the client has to wait.
    fn is_full(&self) -> bool;
}

impl Frames for vhost_user::Inbox<OwnedFd> {
    type Message = vhost_user::Message<OwnedFd>;
    fn space(&mut self) -> &mut [u8] {
        self.space()
    }
    fn advance(&mut self, count: usize, fds: Vec<OwnedFd>) -> Result<Option<Self::Message>, String> {
        self.advance(count, fds).map_err(|e| e.to_string())
    }
}

impl Frames for vfio_user::Inbox<OwnedFd> {
    type Message = vfio_user::Message<OwnedFd>;
    fn space(&mut self) -> &mut [u8] {
        self.space()
    }
    fn advance(&mut self, count: usize, fds: Vec<OwnedFd>) -> Result<Option<Self::Message>, String> {
        self.advance(count, fds).map_err(|e| e.to_string())
    }
}

fn share(fds: Vec<OwnedFd>) -> Vec<Rc<OwnedFd>> {
    fds.into_iter().map(Rc::new).collect()
}

impl Talk for Replay<Rc<OwnedFd>> {
    type Inbox = vhost_user::Inbox<OwnedFd>;
    fn inbox() -> Self::Inbox {
        Self::Inbox::default()
    }
    fn inbox_of_answers() -> Self::Inbox {
        Self::Inbox::of_answers()
    }
    fn told(&mut self, _: u64) {}
    fn front(&mut self, message: vhost_user::Message<OwnedFd>, out: &mut Vec<Passed<Rc<OwnedFd>>>) {
        let vhost_user::Message { request, needs_reply, payload, fds, .. } = message;
        let message = vhost_user::Message { request, needs_reply, again: false, payload, fds: share(fds) };
        self.front(message, out);
    }
    fn back(&mut self, answer: vhost_user::Message<OwnedFd>, out: &mut Vec<Passed<Rc<OwnedFd>>>) -> Result<(), String> {
        self.back(answer.request, &answer.payload, share(answer.fds), out).map_err(|e| e.to_string())
    }
    fn again(&mut self) -> Vec<Envelope<Rc<OwnedFd>>> {
        Replay::again(self)
    }
    /// One whose rings cannot be taken up again is disconnected, and comes back.
    fn survives(&self) -> bool {
        self.survives()
    }
    fn is_full(&self) -> bool {
        self.is_full()
    }
}

impl Talk for Relay<Rc<OwnedFd>> {
    type Inbox = vfio_user::Inbox<OwnedFd>;
    fn inbox() -> Self::Inbox {
        Self::Inbox::default()
    }
    fn inbox_of_answers() -> Self::Inbox {
        Self::Inbox::default()
    }
    fn told(&mut self, number: u64) {
        self.told(number);
    }
    fn front(&mut self, message: vfio_user::Message<OwnedFd>, out: &mut Vec<Passed<Rc<OwnedFd>>>) {
        let vfio_user::Message { header, payload, fds } = message;
        out.push(Passed::Worker(self.front(vfio_user::Message { header, payload, fds: share(fds) })));
    }
    fn back(&mut self, message: vfio_user::Message<OwnedFd>, out: &mut Vec<Passed<Rc<OwnedFd>>>) -> Result<(), String> {
        let vfio_user::Message { header, payload, fds } = message;
        let passed = self.back(vfio_user::Message { header, payload, fds: share(fds) }).map_err(|e| e.to_string())?;
        out.extend(passed.map(Passed::Front));
        Ok(())
    }
    fn again(&mut self) -> Vec<Envelope<Rc<OwnedFd>>> {
        self.again()
    }
    /// The next worker finds out by what the last one has written.
    fn survives(&self) -> bool {
        true
    }
    fn is_full(&self) -> bool {
        self.is_full()
    }
}
