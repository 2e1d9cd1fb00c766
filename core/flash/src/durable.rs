//! Until when data that was acknowledged is still on its way into the cells.

use crate::array::Array;
use crate::lun::OpenEnd;
use alloc::vec::Vec;
use weir_units::Nanos;

/// The end of the host's programs so far. Where programs may be suspended their ends move until somebody asks.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    told: Nanos,
    /// By plane: its last open program; those before it end before it. Empty where none is open.
    open: Vec<OpenEnd>,
}

impl Durable {
    /// Nothing is on its way at `now`. `planes` of a drive that leaves programs open, else 0.
    pub fn new(now: Nanos, planes: u32) -> Durable {
        let none = (0..planes).map(|plane| OpenEnd::stays(plane, now));
        Durable { told: now, open: none.collect() }
    }

    /// A program whose end stays.
    pub fn told(&mut self, done: Nanos) {
        self.told = self.told.max(done);
    }

    /// A program whose end may move, or not.
    pub fn open(&mut self, end: OpenEnd) {
        match self.open.get_mut(end.plane as usize) {
            Some(last) if !end.is_told() => *last = end,
            _ => self.told(end.done),
        }
    }

    /// When all of it is in the cells: may be told, and stays.
    pub fn tell(&mut self, now: Nanos, silicon: &mut Array) -> Nanos {
        for end in &self.open {
            if silicon.latest(end) > now {
                self.told = self.told.max(silicon.tell(end));
            }
        }
        self.told.max(now)
    }
}
