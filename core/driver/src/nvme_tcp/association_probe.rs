//! Whether a target still has an association of before, its commands included.
//!
//! A host that connects an I/O queue names the controller (base 2.0, 6.3, CNTLID). A target that has no such controller says so by Connect
//! Invalid Parameters with CNTLID as the parameter. Targets keep a controller until nothing of its queues is in flight: Linux's has a
//! reference for each queue, which ends when its last command has, and SPDK's destroys it with its last queue pair, which waits for the
//! commands outstanding. The queue that is asked for is one that no controller has, so nothing is connected whatever the answer is.

use super::command;
use core::mem::offset_of;
use weir_spec::nvme::fabrics::{self, Connect, ConnectData};
use weir_spec::nvme::{Cqe, Sqe, Status};

/// QID of the queue that is asked for: a controller has 65,534 I/O queues at most (base 2.0, 5.27.1.5).
const NO_QUEUE: u16 = 0xffff;
/// Entries of it: the fewest that a queue may have.
const ENTRIES: u16 = 2;

/// What a target says of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Association {
    /// Its controller is no more: nothing of it will be carried out.
    Ended,
    /// Its controller is there, or commands of it are.
    Lives,
    /// The answer is one that says neither.
    Unclear,
}

/// Connect for a queue that no controller has; its data names the controller.
pub fn ask() -> Sqe {
    command::connect(NO_QUEUE, ENTRIES, 0, 0)
}

/// Reads the completion of [`ask`].
pub fn read(cqe: &Cqe) -> Association {
    let status = cqe.status();
    if status.same_code(Status::CONNECT_INVALID_PARAMETERS) {
        let controller =
            [offset_of!(ConnectData, cntlid), offset_of!(ConnectData, hostnqn), offset_of!(ConnectData, hostid)];
        return match fabrics::invalid_parameter_of(cqe.dw0.get()) {
            // One with another host is another one: its identifier was free.
            (true, offset) if controller.contains(&usize::from(offset)) => Association::Ended,
            (false, offset) if usize::from(offset) == offset_of!(Connect, qid) => Association::Lives,
            _ => Association::Unclear,
        };
    }
    let lives = [Status::INVALID_QUEUE_ID, Status::CONNECT_CONTROLLER_BUSY, Status::COMMAND_SEQUENCE_ERROR];
    if lives.iter().any(|code| status.same_code(*code)) { Association::Lives } else { Association::Unclear }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::little_endian::U32;

    fn answer(status: Status, in_data: bool, offset: u16) -> Association {
        let mut cqe = Cqe { dw0: U32::new(fabrics::invalid_parameter(in_data, offset)), ..Cqe::default() };
        cqe.set_status(status.dnr());
        read(&cqe)
    }

    #[test]
    fn what_targets_answer() {
        let (invalid, any) = (Status::CONNECT_INVALID_PARAMETERS, Status::INVALID_FIELD);
        for (status, in_data, offset, association) in [
            // No such controller: CNTLID (Linux, SPDK), HOSTNQN and HOSTID (Weir: another host has the identifier).
            (invalid, true, 16, Association::Ended),
            (invalid, true, 512, Association::Ended),
            (invalid, true, 0, Association::Ended),
            // QID: Linux; SPDK while the admin queue has gone or the controller is destroyed.
            (invalid, false, 42, Association::Lives),
            // SPDK, while the association is whole.
            (Status::INVALID_QUEUE_ID, false, 0, Association::Lives),
            // Weir, while commands of a controller that has gone are at the media.
            (Status::CONNECT_CONTROLLER_BUSY, false, 0, Association::Lives),
            (Status::COMMAND_SEQUENCE_ERROR, false, 0, Association::Lives),
            (invalid, true, 256, Association::Unclear),
            (invalid, false, 44, Association::Unclear),
            (Status::CONNECT_INVALID_HOST, false, 0, Association::Unclear),
            (any, false, 0, Association::Unclear),
            (Status::SUCCESS, false, 0, Association::Unclear),
        ] {
            assert_eq!(answer(status, in_data, offset), association, "{status:?} {in_data} {offset}");
        }
    }
}
