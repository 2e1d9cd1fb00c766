//! Where a drive's medium may have something other than zeroes.

use super::Device;
use super::backend::Backend;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use weir_pool::{CHUNK, ChunkRun};

/// What is known of some chunks of a drive.
#[derive(Debug)]
pub enum ChunkContents {
    /// Nothing: all of them have to be read.
    Unknown,
    /// Which of them may have something, in their order.
    Known(Vec<bool>),
    /// The file system of this file knows, and may take its time.
    In(Arc<OwnedFd>),
}

impl Device {
    /// What is known of these chunks of its only namespace.
    pub fn contents(&self, chunks: ChunkRun) -> ChunkContents {
        // A drive of a pool has one namespace; where hosts have made others before, or cut it up, nothing is sure.
        if self.machine.start_of(1) != Some(0) {
            return ChunkContents::Unknown;
        }
        match &self.backend {
            Backend::Store(store) => {
                let has = |chunk| store.may_have_data(chunk * CHUNK, CHUNK as u32);
                ChunkContents::Known((u64::from(chunks.start)..chunks.end()).map(has).collect())
            }
            Backend::KernelIo(direct) => ChunkContents::In(direct.file().clone()),
            Backend::Remote(_) | Backend::Volume(_) => ChunkContents::Unknown,
        }
    }
}
