//! Fabrics: Connect and its refusals (base 2.0, 3.3 and 6.3).

use crate::event::{ControllerHandle, SqHandle};
use crate::host::Owner;
use weir_spec::nvme::fabrics::{self, Connect, ConnectData};
use weir_spec::nvme::{Cqe, Sqe, Status};
use zerocopy::little_endian::{U16, U32};

/// A Connect command with its data, as a door received it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest {
    /// The command.
    pub command: Connect,
    /// Its data.
    pub data: ConnectData,
    /// What the door calls the queue.
    pub owner: Owner,
}

impl ConnectRequest {
    /// From the entry and its 1024 bytes of data.
    pub fn new(sqe: &Sqe, data: &ConnectData, owner: Owner) -> Self {
        Self { command: Connect::from(*sqe), data: *data, owner }
    }
}

/// A queue is connected.
#[derive(Clone, Copy, Debug)]
pub struct Connected {
    /// The queue.
    pub queue: SqHandle,
    /// Its controller.
    pub controller: ControllerHandle,
    /// CNTLID.
    pub cntlid: u16,
    /// Entries of the submission queue.
    pub depth: u32,
    /// The host asked for it and gets it: no SQ flow control (SQHD carries nothing; C2H success is allowed).
    pub flow_control_disabled: bool,
    /// The completion to send.
    pub cqe: Cqe,
}

/// A refused Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// Why.
    pub status: Status,
    /// IATTR: the invalid parameter is in the data (`true`) or in the command.
    pub in_data: bool,
    /// IPO: its byte offset.
    pub offset: u16,
}

impl ConnectError {
    /// The completion to send.
    pub fn cqe(&self, cid: u16) -> Cqe {
        let mut cqe = Cqe { cid: U16::new(cid), ..Cqe::default() };
        if self.status.same_code(Status::CONNECT_INVALID_PARAMETERS) {
            cqe.dw0 = U32::new(fabrics::invalid_parameter(self.in_data, self.offset));
        }
        cqe.set_status(self.status);
        cqe
    }
}
