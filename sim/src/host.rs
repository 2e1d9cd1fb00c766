//! The drive's port to clients that have no memory: completions are collected, data goes nowhere.

use weir_controller::{DataPointer, Host, Owner, Tag};
use weir_spec::nvme::{Cqe, Status};

/// Completions since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct Answers(pub Vec<(Tag, Status)>);

impl Host for Answers {
    fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }

    fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }

    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, tag: Tag, cqe: &Cqe) {
        self.0.push((tag, cqe.status()));
    }

    fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, into: &mut [u8]) -> Result<(), Status> {
        into.fill(0);
        Ok(())
    }

    fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> {
        Ok(())
    }
}
