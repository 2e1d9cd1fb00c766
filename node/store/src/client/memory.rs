//! The memory of operations: lent by callers that wait, owned while nobody does, and the machines' own.

use crate::tier::{MemoryPlace, TierMemory};
use std::collections::HashMap;
use weir_store::client::{ClientMemory, MemoryId, WorkId};
use weir_store::file::{FileBuffer, FileMemory, FileOpId};
use weir_sys::crc::crc32c_append;
use weir_sys::memory::lend::LentBytes;

/// A caller's memory.
#[derive(Debug)]
pub(super) enum CallerMemory {
    /// Of a call that waits.
    Lent(LentBytes),
    /// Handed over until the operation is over.
    Owned(Vec<u8>),
}

impl CallerMemory {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Lent(lent) => lent.bytes(),
            Self::Owned(bytes) => bytes,
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(lent) => lent.bytes_mut(),
            Self::Owned(bytes) => bytes,
        }
    }

    /// What was handed over.
    pub fn into_owned(self) -> Vec<u8> {
        match self {
            Self::Lent(_) => Vec::new(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// All memory under operations.
#[derive(Debug, Default)]
pub(super) struct OperationMemory {
    pub callers: HashMap<u64, CallerMemory>,
    own: HashMap<(u64, u64), Vec<u8>>,
}

impl OperationMemory {
    fn get(&self, file: u64, at: FileBuffer, len: u32) -> &[u8] {
        let (bytes, at) = match at {
            FileBuffer::Caller(FileOpId(op), at) => (self.callers.get(&op).map(CallerMemory::bytes), at as usize),
            FileBuffer::Own(number, at) => (self.own.get(&(file, number)).map(Vec::as_slice), at as usize),
        };
        bytes.and_then(|bytes| bytes.get(at..at + len as usize)).unwrap_or_default()
    }

    fn get_mut(&mut self, file: u64, at: FileBuffer, len: u32) -> &mut [u8] {
        let (bytes, at) = match at {
            FileBuffer::Caller(FileOpId(op), at) => {
                (self.callers.get_mut(&op).map(CallerMemory::bytes_mut), at as usize)
            }
            FileBuffer::Own(number, at) => (self.own.get_mut(&(file, number)).map(Vec::as_mut_slice), at as usize),
        };
        bytes.and_then(|bytes| bytes.get_mut(at..at + len as usize)).unwrap_or_default()
    }
}

impl ClientMemory for OperationMemory {
    type OfFile<'a> = FileView<'a>;

    fn of_file(&mut self, owner: MemoryId) -> FileView<'_> {
        FileView { memory: self, file: owner.0 }
    }

    fn fill(&mut self, work: WorkId, from: &[u8]) {
        let memory = self.callers.get_mut(&work.0).map(CallerMemory::bytes_mut);
        if let Some(to) = memory.and_then(|memory| memory.get_mut(..from.len())) {
            to.copy_from_slice(from);
        }
    }

    fn take(&mut self, work: WorkId, to: &mut [u8]) {
        let memory = self.callers.get(&work.0).map(CallerMemory::bytes);
        if let Some(from) = memory.and_then(|memory| memory.get(..to.len())) {
            to.copy_from_slice(from);
        }
    }

    fn keep(&mut self, work: WorkId, bytes: Vec<u8>) {
        self.callers.insert(work.0, CallerMemory::Owned(bytes));
    }

    fn release(&mut self, work: WorkId) {
        self.callers.remove(&work.0);
    }

    fn forget(&mut self, owner: MemoryId) {
        self.own.retain(|(of, _), _| *of != owner.0);
    }
}

impl TierMemory for OperationMemory {
    fn bytes(&self, at: &MemoryPlace) -> &[u8] {
        self.get(at.file, at.buffer, at.len)
    }
    fn bytes_mut(&mut self, at: &MemoryPlace) -> &mut [u8] {
        self.get_mut(at.file, at.buffer, at.len)
    }
}

/// The memory of one open file.
pub(super) struct FileView<'a> {
    memory: &'a mut OperationMemory,
    file: u64,
}

impl FileMemory for FileView<'_> {
    fn reserve(&mut self, number: u64, bytes: u32) {
        self.memory.own.insert((self.file, number), vec![0; bytes as usize]);
    }

    fn release(&mut self, number: u64) {
        self.memory.own.remove(&(self.file, number));
    }

    fn copy(&mut self, from: FileBuffer, to: FileBuffer, len: u32) {
        // Between the machine's own memory and a caller's: one of the two can be taken out.
        let key = match (from, to) {
            (FileBuffer::Own(number, _), _) | (_, FileBuffer::Own(number, _)) => (self.file, number),
            _ => return,
        };
        let Some(mut own) = self.memory.own.remove(&key) else { return };
        weir_sys::copies::count(len as usize);
        let range = |at: u32| at as usize..at as usize + len as usize;
        match (from, to) {
            (FileBuffer::Own(_, at), _) => {
                let to = self.memory.get_mut(self.file, to, len);
                if let Some(from) = own.get(range(at)).filter(|from| from.len() == to.len()) {
                    to.copy_from_slice(from);
                }
            }
            (_, FileBuffer::Own(_, at)) => {
                let from = self.memory.get(self.file, from, len);
                if let Some(to) = own.get_mut(range(at)).filter(|to| to.len() == from.len()) {
                    to.copy_from_slice(from);
                }
            }
            _ => {}
        }
        self.memory.own.insert(key, own);
    }

    fn zero(&mut self, at: FileBuffer, len: u32) {
        self.memory.get_mut(self.file, at, len).fill(0);
    }

    fn checksum(&mut self, so_far: u32, at: FileBuffer, len: u32) -> u32 {
        crc32c_append(so_far, self.memory.get(self.file, at, len))
    }
}
