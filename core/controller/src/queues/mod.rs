//! Submission and completion queues: what they hold, how they come and go, and how their hosts ring and are told.

use crate::event::SqHandle;
use crate::queues::interrupt::HeldInterrupts;
use crate::queues::queue::{Cq, Sq};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub(crate) mod command;
pub(crate) mod interrupt;
pub(crate) mod queue;
mod registry;
mod rings;
pub(crate) mod shadow;

/// All queues of a drive.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// Submission queues, by arbiter key.
    pub sqs: Vec<Option<Sq>>,
    /// A new generation for each submission queue.
    pub generation: u8,
    /// Completion queues.
    pub cqs: Vec<Option<Cq>>,
    /// Changes with the queues that there are.
    pub epoch: u32,
    /// Queues whose connection is to be closed and whose door does not know yet.
    pub to_disconnect: VecDeque<SqHandle>,
    pub interrupts: HeldInterrupts,
}

impl Queues {
    /// A completion queue, where there is one of that index.
    #[inline]
    pub fn cq_mut(&mut self, index: u32) -> Option<&mut Cq> {
        self.cqs.get_mut(index as usize)?.as_mut()
    }

    /// Whether there is a submission queue of that index, and it has commands in flight.
    pub fn has_in_flight(&self, q: u32) -> bool {
        self.sqs.get(q as usize).is_some_and(|sq| sq.as_ref().is_some_and(|sq| sq.in_flight > 0))
    }

    /// None.
    pub fn new() -> Self {
        Self {
            sqs: Vec::new(),
            generation: 0,
            cqs: Vec::new(),
            epoch: 0,
            to_disconnect: VecDeque::new(),
            interrupts: HeldInterrupts::default(),
        }
    }
}
