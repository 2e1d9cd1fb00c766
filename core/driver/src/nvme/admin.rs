//! The host's end of the admin queue, and what it notes of it for the process after it.
//!
//! A process that dies leaves the controller enabled, and its own counts with it. So the counts lie in the memory that host and controller
//! share, behind the admin submission ring: whoever has that memory and the registers goes on with the queue, without a reset
//! ([`BringUp::taking_over`](super::BringUp::taking_over)). A count is stored before its doorbell is rung, so at most one command is in doubt: one
//! that was noted and perhaps not rung.

use super::plan::ADMIN_ENTRIES;
use super::{ControllerPlan, Port, QueuePairRings};
use crate::TransportError;
use weir_spec::nvme::{Cqe, Sqe};

/// Begins a record, with its version.
const MAGIC: u64 = u64::from_le_bytes(*b"weirnvm1");

/// A count and its complement in one word: a store that a death has torn is none of the counts that there were.
fn doubled(count: u32) -> u64 {
    u64::from(!count) << 32 | u64::from(count)
}

fn single(word: u64) -> Option<u32> {
    (word == doubled(word as u32)).then_some(word as u32)
}

/// The admin queue, with one command on its way at the most.
#[derive(Clone, Debug)]
pub struct AdminQueue {
    rings: QueuePairRings,
    /// Where the record lies.
    record: u64,
    /// The parts of the plan that addresses and commands follow from.
    plan: [u64; 3],
    /// The controller is up, with the I/O queues of the plan.
    is_up: bool,
    sent: u32,
    answered: u32,
}

impl AdminQueue {
    /// Of a controller that is to be enabled.
    pub(super) fn new(plan: &ControllerPlan) -> Self {
        let rings = QueuePairRings::new(0, ADMIN_ENTRIES, plan.admin_sq(), plan.admin_cq());
        let first = plan.queues.first().map_or(0, |queue| queue.depth);
        let plan_words = [
            u64::from(plan.nsid) << 32
                | u64::from(plan.interrupts) << 9
                | u64::from(plan.shadow_doorbells) << 8
                | u64::from(plan.ams),
            u64::from(plan.buffer) << 32 | plan.queues.len() as u64,
            plan.memory() << 16 | u64::from(first),
        ];
        AdminQueue { rings, record: plan.record(), plan: plan_words, is_up: false, sent: 0, answered: 0 }
    }

    /// As the process before has left it; `None` where it had another plan, or no controller that was up.
    pub(super) fn left<P: Port>(plan: &ControllerPlan, port: &mut P) -> Option<Self> {
        let mut queue = AdminQueue::new(plan);
        let mut words = [0; 8];
        for (i, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            port.read(queue.record + 8 * i as u64, &mut bytes);
            *word = u64::from_le_bytes(bytes);
        }
        let [magic, a, b, c, is_up, sent, answered, _] = words;
        let (sent, answered) = (single(sent)?, single(answered)?);
        if (magic, [a, b, c], is_up) != (MAGIC, queue.plan, 1) || sent.wrapping_sub(answered) > 1 {
            return None;
        }
        (queue.is_up, queue.sent, queue.answered) = (true, sent, answered);
        queue.rings = QueuePairRings::left(0, ADMIN_ENTRIES, (plan.admin_sq(), plan.admin_cq()), (sent, answered));
        Some(queue)
    }

    /// Whether a command is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.rings.in_flight() > 0
    }

    /// The controller is up, or about to be disabled: what the next process may do. One that was taken over has been up all the time.
    pub(super) fn set_up<P: Port>(&mut self, port: &mut P, is_up: bool) {
        if self.is_up && is_up {
            return;
        }
        self.is_up = is_up;
        let [a, b, c] = self.plan;
        let counts = [doubled(self.sent), doubled(self.answered)];
        // It counts for nothing before all of it is there.
        self.store(port, 4, 0);
        for (i, word) in [(0, MAGIC), (1, a), (2, b), (3, c), (5, counts[0]), (6, counts[1])] {
            self.store(port, i, word);
        }
        self.store(port, 4, u64::from(is_up));
    }

    fn store<P: Port>(&self, port: &mut P, word: usize, value: u64) {
        port.write(self.record + 8 * word as u64, &value.to_le_bytes());
    }

    /// Sends a command. None may be on its way, so the ring has room.
    pub(super) fn send<P: Port>(&mut self, port: &mut P, sqe: &Sqe) {
        self.rings.push(port, &sqe.words());
        self.sent = self.sent.wrapping_add(1);
        self.store(port, 5, doubled(self.sent));
        self.rings.ring_tail(port);
    }

    /// Rings for a command that the process before has noted and perhaps not rung for.
    pub(super) fn ring_again<P: Port>(&mut self, port: &mut P) {
        self.rings.ring_tail_again(port);
    }

    /// The answer, if it has come.
    ///
    /// # Errors
    /// As of [`QueuePairRings::pop`].
    pub(super) fn answer<P: Port>(&mut self, port: &mut P) -> Result<Option<Cqe>, TransportError> {
        let Some(cqe) = self.rings.pop(port)? else { return Ok(None) };
        self.rings.ring_head(port);
        self.answered = self.answered.wrapping_add(1);
        self.store(port, 6, doubled(self.answered));
        Ok(Some(cqe))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_count_is_none() {
        for count in [0, 1, 0xff, 0x100, u32::MAX] {
            assert_eq!(single(doubled(count)), Some(count));
        }
        // Half of the bytes of 0x100 over those of 0xff.
        assert_eq!(single(doubled(0xff) & 0xffff_ffff_0000_0000 | doubled(0x100) & 0xffff_ffff), None);
        assert_eq!(single(0), None);
    }
}
