//! What is inside the drive: how long a command takes once it has a slot.

use crate::event::Op;
use alloc::boxed::Box;
use core::any::Any;
use core::fmt::Debug;
use weir_units::Nanos;

/// A model of the drive's inside (flash, for one). It holds no data and reads no clock: each command is told to it when it
/// begins, and it answers with the time at which the command is complete. Commands come in the order in which they begin.
pub trait Service: Debug + Send + Any {
    /// A command begins at `now`; when it is complete, not before `now`. A deallocation of several ranges is told range by
    /// range.
    fn begin(&mut self, now: Nanos, operation: Operation) -> Nanos;
    /// For whoever knows what it is.
    fn as_any(&self) -> &dyn Any;
    /// The same, to change it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// One command, as far as the inside cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub op: Op,
    /// Where, in bytes of the drive's media.
    pub offset: u64,
    /// How much, in bytes.
    pub len: u32,
    /// Durable when complete.
    pub fua: bool,
}

/// The inside that a drive has, if any.
#[derive(Debug, Default)]
pub(crate) struct Inside(pub Option<Box<dyn Service>>);

/// Tests copy drives to try every sequence of events on them; theirs have the fixed latency.
impl Clone for Inside {
    fn clone(&self) -> Self {
        assert!(self.0.is_none(), "a drive whose inside is a model of its own cannot be copied");
        Inside(None)
    }
}
