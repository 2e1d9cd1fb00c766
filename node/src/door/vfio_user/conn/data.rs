//! What the drive reads and writes of a client: entries, completions, data.

use super::Conn;
use crate::door::vfio_user::client_memory::Homes;
use crate::door::vfio_user::message_dma::Completion;
use std::sync::atomic::Ordering;
use weir_controller::{DataPiece, DataPointer, Direction, Walk};
use weir_session::memory::Memory;
use weir_spec::nvme::{Cqe, Status};

impl Conn {
    #[inline]
    fn homes(&self) -> Homes<'_> {
        Homes { memory: &self.memory, buffer: self.buffer.as_deref() }
    }

    #[inline]
    pub(in crate::door::vfio_user) fn fetch(&self, address: u64) -> Result<[u64; 8], Status> {
        self.homes().fetch(address)
    }

    /// Writes a completion queue entry, or keeps it until what its command has written is there; whether a vector was waiting
    /// for nothing else and nothing of this client was to be flushed before, or nothing is on its way by messages any more, which is to be
    /// written down.
    #[inline]
    pub(in crate::door::vfio_user) fn post(
        &mut self,
        address: u64,
        vector: Option<u16>,
        cqe: &Cqe,
    ) -> Result<bool, Status> {
        if cqe.sqid.get() == 0 && self.post_later(address, vector, cqe) {
            return Ok(true);
        }
        if !self.gate.is_empty() {
            return self.post_late(Completion { address, vector, cqe: *cqe, taken: None });
        }
        self.put(address, cqe)?;
        Ok(vector.is_some_and(|v| self.due(v)))
    }

    #[cold]
    pub(super) fn post_late(&mut self, completion: Completion) -> Result<bool, Status> {
        let Some(completion) = self.gate.hold(completion) else { return Ok(false) };
        Ok(self.release(&completion)? | self.survives())
    }

    /// The half with the phase tag comes last and is released: who sees it sees the rest, and the data.
    #[inline]
    pub(super) fn put(&self, address: u64, cqe: &Cqe) -> Result<(), Status> {
        let [first, last] = cqe.words();
        let (memory, address) = self.homes().of(address, 16)?;
        let window = memory.window(address, 16).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        let stored = memory.store64(&window, 0, first, Ordering::Relaxed);
        stored
            .and_then(|()| memory.store64(&window, 8, last, Ordering::Release))
            .map_err(|_| Status::DATA_TRANSFER_ERROR)
    }

    #[inline]
    pub(in crate::door::vfio_user) fn read_data(
        &self,
        data: &DataPointer,
        offset: u32,
        into: &mut [u8],
    ) -> Result<(), Status> {
        let mut walk = Walk::new(data, Direction::FromHost, offset, into.len() as u32);
        let mut at = 0;
        while let Some(piece) = walk.next(&mut |address, into: &mut [u8]| self.read(data, address, into))? {
            let DataPiece::Memory { address, len } = piece else { return Err(Status::INTERNAL_ERROR) };
            self.read(data, address, &mut into[at..at + len as usize])?;
            at += len as usize;
        }
        Ok(())
    }

    #[inline]
    pub(in crate::door::vfio_user) fn write_data(
        &mut self,
        data: &DataPointer,
        offset: u32,
        from: &[u8],
    ) -> Result<(), Status> {
        let mut walk = Walk::new(data, Direction::ToHost, offset, from.len() as u32);
        let mut at = 0;
        while let Some(piece) = walk.next(&mut |address, into: &mut [u8]| self.read(data, address, into))? {
            let len = match piece {
                DataPiece::Memory { address, len } => {
                    self.write(data, address, &from[at..at + len as usize])?;
                    len
                }
                DataPiece::Bucket { len } => len,
            };
            at += len as usize;
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, data: &DataPointer, address: u64, from: &[u8]) -> Result<(), Status> {
        let (memory, at) = self.homes().of(address, from.len())?;
        match memory.write(at, from) {
            Ok(()) => Ok(()),
            Err(_) => self.write_far(data, address, from),
        }
    }

    #[cold]
    fn write_far(&mut self, data: &DataPointer, address: u64, from: &[u8]) -> Result<(), Status> {
        let homes = Homes { memory: &self.memory, buffer: self.buffer.as_deref() };
        self.gate.write((data, weir_sys::reactor::now()), (homes, &mut self.device), (address, from))
    }

    #[inline]
    fn read(&self, data: &DataPointer, address: u64, into: &mut [u8]) -> Result<(), Status> {
        let (memory, at) = self.homes().of(address, into.len())?;
        match memory.read(at, into) {
            Ok(()) => Ok(()),
            Err(_) => self.gate.read(data, self.homes(), address, into),
        }
    }
}
