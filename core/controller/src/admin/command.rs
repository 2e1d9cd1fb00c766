//! An admin command that has left its queue.

use crate::data_pointer::check_pointer;
use crate::host::{DataPointer, Host, Owner};
use weir_spec::nvme::{Sqe, Status};

/// An admin command being served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admin {
    /// Its controller.
    pub c: u32,
    /// Its admin queue.
    pub q: u32,
    pub owner: Owner,
    pub sqe: Sqe,
    /// Which one of its controller's life, see [`crate::admin::exactly_once`]; 0: it is not counted.
    pub number: u64,
    pub tag: u32,
    pub data: DataPointer,
}

impl Admin {
    /// Sends an answer's bytes to the host.
    pub fn answer<H: Host>(&self, host: &mut H, offset: u32, bytes: &[u8]) -> Result<(), Status> {
        let end = u64::from(offset) + bytes.len() as u64;
        check_pointer(&self.data, end)?;
        host.write_data(self.owner, &self.data, offset, bytes)
    }
}
