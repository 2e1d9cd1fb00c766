//! Waiting for operations of several clients at once: the thread drives all of them that no other thread drives, and sleeps until a socket
//! of one of them has something.

use super::{SLEEP, Shared, sleep_in};
use crate::client::connection::boot_time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use weir_store::client::WorkId;
use weir_units::Nanos;

/// Between looks at a client that another thread drives.
const LOOK: Nanos = Nanos::from_millis(1);

/// What is waited for of one client.
#[derive(Debug)]
pub(in crate::client) struct Waited {
    pub shared: Arc<Shared>,
    pub works: Vec<WorkId>,
}

/// A client that this thread drives while it sleeps.
struct Driven<'a> {
    shared: &'a Shared,
    poll: Arc<OwnedFd>,
    bell: Arc<OwnedFd>,
}

/// What a look at a client has found.
enum Found<'a> {
    /// Some of its work is over.
    Over,
    /// Another thread drives it.
    Followed,
    /// This thread drives it; its next turn is due then although nothing comes.
    Driven(Driven<'a>, Nanos),
}

/// Drives the clients until some of their work is over, or until that moment of CLOCK_BOOTTIME; whether some is.
pub(in crate::client) fn wait_any(waited: &[Waited], until: Nanos) -> bool {
    if let [one] = waited {
        return one.shared.wait_any(&one.works, until);
    }
    let is_over = loop {
        let mut next = until;
        let mut driven = Vec::new();
        let mut is_over = false;
        for one in waited {
            match one.look() {
                Found::Over => is_over = true,
                Found::Followed => next = next.min(boot_time().saturating_add(LOOK)),
                Found::Driven(client, due) => {
                    next = next.min(due);
                    driven.push(client);
                }
            }
        }
        if !is_over {
            sleep(&driven, next.saturating_sub(boot_time()).min(SLEEP));
        }
        driven.iter().for_each(Driven::let_go);
        if is_over || boot_time() >= until {
            break is_over;
        }
    };
    waited.iter().for_each(|one| one.shared.hand_over(&mut one.shared.lock()));
    is_over
}

impl Waited {
    /// Lets everything under way go on, and takes the client where nobody else drives it.
    fn look(&self) -> Found<'_> {
        let mut engine = self.shared.lock();
        let is_followed = engine.is_driven;
        if !is_followed {
            while engine.turn() {}
        }
        if self.works.iter().any(|work| engine.is_done(*work)) {
            return Found::Over;
        }
        if is_followed {
            return Found::Followed;
        }
        engine.is_driven = true;
        let driven = Driven { shared: &self.shared, poll: engine.poll.clone(), bell: engine.bell.clone() };
        Found::Driven(driven, engine.due())
    }
}

impl Driven<'_> {
    /// Says what has come, and that nobody drives.
    fn let_go(&self) {
        let woken = sleep_in(&self.poll, &self.bell, Nanos(0));
        let mut engine = self.shared.lock();
        engine.is_driven = false;
        engine.woken(woken.iter().map(|event| event.data.u64()));
    }
}

/// Sleeps until something comes for one of them, but no longer than that.
fn sleep(driven: &[Driven<'_>], left: Nanos) {
    if left == Nanos(0) {
        return;
    }
    let mut sockets: Vec<PollFd<'_>> = driven.iter().map(|one| PollFd::new(&*one.poll, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: left.get().min(999_999_999) as _ };
    // An interrupted sleep is one that is over.
    let _ = poll(&mut sockets, Some(&timeout));
}
