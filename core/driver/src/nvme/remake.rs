//! Make a submission queue anew in another class: QPRIO is fixed for a queue's life (base 2.0, 5.5 and 5.7).

use super::bring_up::create_sq;
use super::{AdminQueue, IoQueue, Port, protocol, refused};
use crate::TransportError;
use alloc::string::ToString;
use weir_spec::nvme::register::{self, Cap};
use weir_spec::nvme::{AdminOpcode, Sqe};
use weir_units::{Class, Nanos};
use zerocopy::little_endian::{U16, U32};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Start,
    Delete,
    Create,
    Done,
}

/// Deletes an empty submission queue and creates it again with another QPRIO; its completion queue stays. Counts only where CC.AMS
/// is not round robin.
#[derive(Debug)]
pub struct Remake {
    priority: Class,
    step: Step,
    deadline: Nanos,
}

impl Remake {
    /// Nothing is touched before the first poll.
    pub fn new(priority: Class) -> Self {
        Remake { priority, step: Step::Start, deadline: Nanos::NEVER }
    }

    /// Goes as far as it can without waiting; true once the queue is there again. Nothing may be in flight on the queue, and
    /// nothing else on the admin queue.
    ///
    /// # Errors
    /// Something is in flight; the controller refuses, or is late (CAP.TO).
    pub fn poll<P: Port>(
        &mut self,
        now: Nanos,
        admin: &mut AdminQueue,
        queue: &mut IoQueue,
        port: &mut P,
    ) -> Result<bool, TransportError> {
        loop {
            let (what, next) = match self.step {
                Step::Start if queue.rings().in_flight() > 0 => {
                    let text = "a queue with commands in flight cannot be made anew";
                    return Err(TransportError::Usage(text.to_string()));
                }
                Step::Start => {
                    let cap = Cap(port.register(register::CAP, 8));
                    self.deadline = now.saturating_add(Nanos::from_millis(500 * cap.to().max(1)));
                    self.send(Step::Delete, admin, queue, port);
                    continue;
                }
                Step::Delete => ("Delete I/O Submission Queue", Step::Create),
                Step::Create => ("Create I/O Submission Queue", Step::Done),
                Step::Done => return Ok(true),
            };
            let Some(cqe) = admin.answer(port)? else {
                if now <= self.deadline {
                    return Ok(false);
                }
                return Err(TransportError::Timeout(alloc::format!("the controller does not answer {what}")));
            };
            if cqe.cid.get() != queue.rings().qid() {
                return Err(protocol("a completion of a command that was not sent"));
            }
            if !cqe.status().is_success() {
                return Err(refused(what, cqe.status()));
            }
            match next {
                Step::Create => self.send(Step::Create, admin, queue, port),
                _ => {
                    queue.restart();
                    self.step = Step::Done;
                }
            }
        }
    }

    fn send<P: Port>(&mut self, step: Step, admin: &mut AdminQueue, queue: &IoQueue, port: &mut P) {
        let qid = queue.rings().qid();
        let mut sqe = match step {
            Step::Create => {
                queue.rings().clear_shadow_tail(port);
                create_sq(qid, queue.rings(), self.priority)
            }
            _ => Sqe { opcode: AdminOpcode::DELETE_IO_SQ.0, cdw10: U32::new(qid.into()), ..Sqe::default() },
        };
        sqe.cid = U16::new(qid);
        // One command at a time: the ring cannot be full.
        admin.send(port, &sqe);
        self.step = step;
    }
}
