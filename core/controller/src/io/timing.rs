//! What is inside the drive: how long a command takes once it has a slot.

use crate::event::Op;
use alloc::boxed::Box;
use core::any::Any;
use core::fmt::Debug;
use weir_fault::{FlashPlace, FlashShape};
use weir_flash::{DieWork, Flash, When};
use weir_units::Nanos;

/// A model of the drive's inside (flash, for one). It holds no data and reads no clock: each command is told to it when it
/// begins, and it answers with the time at which the command is complete. Commands come in the order in which they begin.
pub trait TimingModel: Debug + Send + Any {
    /// A command begins at `now`; when it is complete, not before `now`. A deallocation of several ranges is told range by
    /// range. Where that is not known yet, it is good until time passes: whoever needs it [asks to be told](TimingModel::tell).
    fn begin(&mut self, now: Nanos, operation: Operation) -> When;
    /// The later of two points in time that it has named.
    fn later_of(&mut self, a: When, b: When) -> When {
        When::at(a.known_or(Nanos::NEVER).max(b.known_or(Nanos::NEVER)))
    }
    /// Has `tag` told by [`TimingModel::told`] when it is known when that is.
    fn tell(&mut self, when: When, tag: u64) {
        let _ = (when, tag);
    }
    /// Goes on to `now`: the next tag that was asked for, and its time, which may lie ahead. `None`: no more are known.
    fn told(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let _ = now;
        None
    }
    /// Goes on by itself to the next tag that was asked for, if that is known before `until`, and no further than that: as [`TimingModel::told`]
    /// at each time of [`TimingModel::next_event`], for those who know that nothing else happens before.
    fn told_before(&mut self, until: Nanos) -> Option<(u64, Nanos)> {
        loop {
            let at = self.next_event().filter(|at| *at < until)?;
            let told = self.told(at);
            if told.is_some() {
                return told;
            }
        }
    }
    /// When it may know more, while somebody waits to be told; what it knows already counts as now.
    fn next_event(&self) -> Option<Nanos> {
        None
    }
    /// A command for these bytes has arrived and waits for its turn: whatever deciding about it will need can be brought nearer.
    /// A hint, which may be wrong or missing.
    fn prefetch(&self, offset: u64) {
        let _ = offset;
    }
    /// Flash with placement handles, where this is some (FDP): [`Operation::placement`] is then a hint for it.
    fn placement(&self) -> Option<&Flash> {
        None
    }
    /// The same, to change it.
    fn placement_mut(&mut self) -> Option<&mut Flash> {
        None
    }
    /// What the drive will spend on a command: the bytes that it could read in that time. Arbitration by device time charges
    /// so much.
    fn cost(&self, operation: Operation) -> u32 {
        operation.len
    }
    /// Bytes that the media were written, moves of the drive's own included; `None` where nobody counts.
    fn media_written(&self) -> Option<u64> {
        None
    }
    /// How much of its endurance is used, in percent; 255 is that or more.
    fn percentage_used(&self) -> u8 {
        0
    }
    /// How many of the blocks that may fail have not, in percent.
    fn available_spare(&self) -> u8 {
        100
    }
    /// The flash inside, as rules of failures name its parts; `None` where there is none.
    fn flash_shape(&self) -> Option<FlashShape> {
        None
    }
    /// Where the byte at an offset of the media lies, where that is known.
    fn place_of(&self, offset: u64) -> Option<FlashPlace> {
        let _ = offset;
        None
    }
    /// What sensing a page once more takes.
    fn retry_time(&self) -> Option<Nanos> {
        None
    }
    /// Array operations of a die take so many thousandths of their time from now on.
    fn set_die_times(&mut self, die: u32, thousandths: u32) {
        let _ = (die, thousandths);
    }
    /// What the array of each die has done; empty where nobody counts it.
    fn die_work(&self) -> &[DieWork] {
        &[]
    }
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
    /// Where a write's data is to lie, as [`weir_flash::Fdp::hint`] has it; 0: nobody said.
    pub placement: u8,
}

/// The inside that a drive has, if any.
#[derive(Debug, Default)]
pub(crate) struct OwnTiming(pub Option<Box<dyn TimingModel>>);

/// Tests copy drives to try every sequence of events on them; theirs have the fixed latency.
impl Clone for OwnTiming {
    fn clone(&self) -> Self {
        assert!(self.0.is_none(), "a drive whose inside is a model of its own cannot be copied");
        OwnTiming(None)
    }
}
