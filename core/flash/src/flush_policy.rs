//! When data leaves the write buffer.

use crate::config::{BufferConfig, Flush};
use alloc::boxed::Box;
use core::fmt;

/// How full the buffer is, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Not yet on their way to flash.
    pub dirty: u32,
    /// The most units among them that one program could take: of one stream, and of one partition where addresses say the planes.
    pub longest: u32,
    /// All that fit.
    pub capacity: u32,
    /// What one program takes.
    pub program: u32,
}

/// Decides when data leaves the buffer.
pub trait FlushPolicy: fmt::Debug + Send {
    /// How many units should leave now; asked after each unit that comes in.
    fn due(&mut self, level: &Level) -> u32;
}

impl Flush {
    /// The policy.
    pub fn build(self, config: &BufferConfig) -> Box<dyn FlushPolicy> {
        match self {
            Flush::Eager => Box::new(Eager),
            Flush::Watermark => Box::new(Watermark { high: config.high, low: config.low }),
        }
    }
}

#[derive(Debug)]
struct Eager;

impl FlushPolicy for Eager {
    fn due(&mut self, level: &Level) -> u32 {
        if level.longest >= level.program { level.program } else { 0 }
    }
}

#[derive(Debug)]
struct Watermark {
    high: u32,
    low: u32,
}

impl FlushPolicy for Watermark {
    fn due(&mut self, level: &Level) -> u32 {
        let of = |hundredths: u32| (u64::from(level.capacity) * u64::from(hundredths) / 100) as u32;
        if level.dirty >= of(self.high).max(1) { level.dirty - of(self.low) } else { 0 }
    }
}
