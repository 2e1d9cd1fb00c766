//! The eventfd that a drive's interrupts signal, and its shard's watch on it. Nobody reads it: each signal is a new edge.

use std::os::fd::OwnedFd;
use weir_sys::reactor::{Interest, Mode, Reactor, WatchId};

/// The shard's own, and no file operation's: it wakes the shard, which looks at each drive with something in flight.
const TOKEN: u64 = 0;

/// See the [module](self).
#[derive(Default)]
pub struct Interrupt {
    eventfd: Option<OwnedFd>,
    watch: Option<WatchId>,
    /// What is watched is another one, or none.
    is_new: bool,
}

impl Interrupt {
    /// Another eventfd, or none, from now on.
    pub fn replace(&mut self, eventfd: Option<OwnedFd>) {
        self.is_new |= eventfd.is_some() || self.watch.is_some();
        self.eventfd = eventfd;
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.eventfd.is_some()
    }

    /// Whether [`watch`](Self::watch) has something to do.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Watches it, and no more what was before it.
    pub fn watch(&mut self, reactor: &mut Reactor) {
        self.is_new = false;
        if let Some(before) = self.watch.take() {
            reactor.unwatch(before);
        }
        self.watch = self.eventfd.as_ref().map(|eventfd| reactor.watch(eventfd, Interest::READ, Mode::Edge, TOKEN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use weir_sys::reactor::now;
    use weir_units::Nanos;

    fn signal(fd: &OwnedFd) {
        rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
    }

    /// Each signal wakes, also one that came before the sleep; the one of before is heard no more.
    #[test]
    fn a_signal_ends_the_sleep_of_the_shard() {
        let (mut reactor, mut interrupt, mut events) = (Reactor::new().unwrap(), Interrupt::default(), Vec::new());
        let [first, second] = [(); 2].map(|()| eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        for eventfd in [&first, &second] {
            interrupt.replace(Some(eventfd.try_clone().unwrap()));
            assert!(interrupt.is_there() && interrupt.is_new());
            interrupt.watch(&mut reactor);
            reactor.turn(&mut events);
            for _ in 0..3 {
                events.clear();
                signal(eventfd);
                let until = now().saturating_add(Nanos::from_secs(10));
                while events.is_empty() && now() < until {
                    reactor.wait(Some(until), &mut events);
                }
                assert_eq!(events.iter().map(|event| event.token()).collect::<Vec<_>>(), [TOKEN]);
            }
        }
        interrupt.replace(None);
        assert!(interrupt.is_new() && !interrupt.is_there());
        interrupt.watch(&mut reactor);
        for _ in 0..8 {
            reactor.turn(&mut events);
        }
        events.clear();
        signal(&first);
        signal(&second);
        reactor.wait(Some(now().saturating_add(Nanos::from_millis(20))), &mut events);
        assert!(events.is_empty(), "{events:?}");
    }
}
