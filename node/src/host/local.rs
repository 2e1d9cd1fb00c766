//! Queue pairs on a drive of this process, each with memory of its own that may be handed out while others run the drive.

use super::LocalDrive;
use weir_driver::{Done, Io, IoKind, QueuePair, TransportError};
use weir_sys::reactor::now;
use weir_units::Class;

/// A queue pair on a drive of this process.
pub(super) struct LocalQueue {
    pub(super) drive: LocalDrive,
    pub(super) client: usize,
    depth: u32,
    block_size: u32,
    capacity: u64,
    max_io: u32,
    memory: Vec<u8>,
    /// Bytes that a finished request brings, by slot.
    reads: Vec<u32>,
}

impl LocalQueue {
    pub(super) fn connect(
        drive: &LocalDrive,
        tenant: u16,
        (depth, max_io): (u32, u32),
        priority: Class,
    ) -> Result<Self, TransportError> {
        let mut local = drive.lock();
        let at = now();
        let client = local.connect_in(tenant, "host", (depth, max_io), priority, at)?;
        let pair = local.queue(client, at);
        let (block_size, capacity, max_io) = (pair.block_size(), pair.capacity(), pair.max_io());
        let memory = vec![0; depth as usize * max_io as usize];
        let reads = vec![0; depth as usize];
        Ok(LocalQueue { drive: drive.clone(), client, depth, block_size, capacity, max_io, memory, reads })
    }
}

impl QueuePair for LocalQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn max_io(&self) -> u32 {
        self.max_io
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.memory[slot as usize * self.max_io as usize..][..self.max_io as usize]
    }

    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        io.check(self)?;
        let mut local = self.drive.lock();
        let mut pair = local.queue(self.client, now());
        let bytes = &self.memory[io.slot as usize * self.max_io as usize..][..io.len as usize];
        self.reads[io.slot as usize] = match io.kind {
            IoKind::Read => io.len,
            IoKind::Write => {
                pair.buffer(io.slot)[..bytes.len()].copy_from_slice(bytes);
                0
            }
            IoKind::WriteZeroes | IoKind::Trim | IoKind::Flush => 0,
        };
        pair.submit(io)
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        let mut local = self.drive.lock();
        let mut pair = local.queue(self.client, now());
        let before = done.len();
        pair.poll(done)?;
        for d in &done[before..] {
            let len = self.reads[d.slot as usize] as usize;
            let at = d.slot as usize * self.max_io as usize;
            self.memory[at..at + len].copy_from_slice(&pair.buffer(d.slot)[..len]);
        }
        Ok(())
    }
}
