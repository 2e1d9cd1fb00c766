//! The host's side of message queues: a command's bytes and its completion, by tag.

use std::collections::HashMap;
use weir_controller::{Data, DataPointer, Host, Owner, Tag};
use weir_spec::nvme::{Cqe, Status};

#[derive(Default)]
struct Command {
    bytes: Vec<u8>,
    completion: Option<Cqe>,
}

/// See the [module](self).
#[derive(Default)]
pub struct CapsuleHost(HashMap<u32, Command>);

impl CapsuleHost {
    /// A command is sent with these bytes, or with room for those that it brings.
    pub fn begin(&mut self, tag: Tag, bytes: Vec<u8>) {
        self.0.insert(tag.0, Command { bytes, completion: None });
    }

    /// Whether it has ended.
    pub fn is_answered(&self, tag: Tag) -> bool {
        self.0.get(&tag.0).is_some_and(|command| command.completion.is_some())
    }

    /// Forgets it; its completion, if there was one, and its bytes.
    pub fn end(&mut self, tag: Tag) -> (Option<Cqe>, Vec<u8>) {
        let Command { bytes, completion } = self.0.remove(&tag.0).unwrap_or_default();
        (completion, bytes)
    }

    fn bytes(&mut self, data: &DataPointer, offset: u32, len: usize) -> Result<&mut [u8], Status> {
        let Data::Tag(tag) = data.get() else { return Err(Status::DATA_TRANSFER_ERROR) };
        let command = self.0.get_mut(&tag.0).ok_or(Status::DATA_TRANSFER_ERROR)?;
        command.bytes.get_mut(offset as usize..offset as usize + len).ok_or(Status::DATA_TRANSFER_ERROR)
    }
}

impl Host for CapsuleHost {
    fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }

    fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> {
        Err(Status::DATA_TRANSFER_ERROR)
    }

    fn interrupt(&mut self, _: Owner, _: u16) {}

    fn respond(&mut self, _: Owner, tag: Tag, cqe: &Cqe) {
        if let Some(command) = self.0.get_mut(&tag.0) {
            command.completion = Some(*cqe);
        }
    }

    fn read_data(&mut self, _: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        into.copy_from_slice(self.bytes(data, offset, into.len())?);
        Ok(())
    }

    fn write_data(&mut self, _: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        self.bytes(data, offset, from.len())?.copy_from_slice(from);
        Ok(())
    }
}
