//! The bell of a sleeping reactor under every interleaving and every reordering that the memory model allows: no message is
//! left behind while the reactor sleeps, and nothing is read before it was written.

mod atomic {
    pub use loom::sync::atomic::{AtomicU32, Ordering};
}

#[path = "../src/reactor/bell.rs"]
mod bell;

use bell::Bell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};

/// A reactor's bell, its eventfd, and a place for each sender's message. Places are written and read relaxed: whether what
/// was sent can be seen is up to the bell alone.
struct Desk {
    bell: Bell,
    eventfd: Mutex<u32>,
    written: Condvar,
    places: Vec<AtomicU32>,
}

impl Desk {
    fn new(senders: u32) -> Arc<Self> {
        let places = (0..senders).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { bell: Bell::new(), eventfd: Mutex::new(0), written: Condvar::new(), places })
    }

    fn send(&self, n: u32) {
        self.places[n as usize].store(n + 1, Ordering::Relaxed);
        if self.bell.notify() {
            *self.eventfd.lock().unwrap() += 1;
            self.written.notify_one();
        }
    }

    /// As the reactor does: take, empty the queues, sleep where nobody has notified since.
    fn receive_all(&self) -> u32 {
        loop {
            self.bell.take();
            let messages: Vec<u32> = self.places.iter().map(|place| place.load(Ordering::Relaxed)).collect();
            if messages.iter().all(|message| *message > 0) {
                return messages.iter().sum();
            }
            if self.bell.sleep() {
                // A lost wake-up ends here: nobody can go on, and loom says so.
                let mut count = self.eventfd.lock().unwrap();
                while *count == 0 {
                    count = self.written.wait(count).unwrap();
                }
                *count = 0;
            } else {
                loom::thread::yield_now();
            }
        }
    }
}

fn all_are_heard(senders: u32) {
    let desk = Desk::new(senders);
    let send = |n| {
        let desk = desk.clone();
        loom::thread::spawn(move || desk.send(n))
    };
    let threads: Vec<_> = (0..senders).map(send).collect();
    assert_eq!(desk.receive_all(), senders * (senders + 1) / 2);
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn one_sender_is_always_heard() {
    loom::model(|| all_are_heard(1));
}

#[test]
fn two_senders_are_always_heard() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| all_are_heard(2));
}
