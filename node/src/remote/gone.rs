//! In place of a queue pair that has gone.

use weir_driver::{Done, Io, QueuePair, TransportError};

/// It takes nothing and answers nothing.
pub struct Gone;

impl Gone {
    fn error() -> TransportError {
        TransportError::Closed("the connection has ended".into())
    }
}

impl QueuePair for Gone {
    fn depth(&self) -> u32 {
        0
    }
    fn block_size(&self) -> u32 {
        512
    }
    fn capacity(&self) -> u64 {
        0
    }
    fn max_io(&self) -> u32 {
        0
    }
    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut []
    }
    fn submit(&mut self, _: Io) -> Result<(), TransportError> {
        Err(Self::error())
    }
    fn poll(&mut self, _: &mut Vec<Done>) -> Result<(), TransportError> {
        Err(Self::error())
    }
}
