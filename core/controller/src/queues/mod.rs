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
