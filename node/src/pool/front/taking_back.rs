//! The end of a process: a front's commands that have moved nothing go on in the next one.

use super::{Flight, Front};
use weir_controller::{Op, SlotId};

/// A command that another process may begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returning {
    /// Its slot.
    pub slot: SlotId,
    /// All of its parts are at their drives, or over. A drive has heard of nothing else, and its flash has not mapped it.
    pub is_whole: bool,
}

impl Front {
    /// The commands that are on their way, if each of them can be begun anew by another process; `None`: one of them cannot, or the pool is being told
    /// that a copy is stale. Parts that are over are carried out once more there: the host has heard of none. What the front copies or compares
    /// by itself is begun anew as after a crash.
    pub fn to_take_back(&self) -> Option<Vec<Returning>> {
        let tells = self.copies.as_ref().is_some_and(|copies| !copies.may_forget_notes());
        if tells || !self.outbox.is_empty() || !self.flushed.is_empty() {
            return None;
        }
        let drives = self.ways.len() as u32;
        let flights = self.flights.iter().zip(0u32..).filter_map(|(flight, slot)| Some((flight.as_ref()?, slot)));
        let returning = |(flight, slot): (&Flight, u32)| {
            let all = if flight.io.op == Op::Flush { drives } else { flight.io.len };
            let returning = Returning { slot: SlotId(slot), is_whole: flight.begun >= all };
            flight.may_begin_anew().then_some(returning)
        };
        flights.map(returning).collect()
    }

    /// They are no more.
    pub fn forget_all(&mut self) {
        self.flights.clear();
        self.waiting.clear();
        self.ways.iter_mut().for_each(|way| way.used = 0);
    }
}

impl Flight {
    fn may_begin_anew(&self) -> bool {
        self.io.op != Op::Copy && self.status.is_success() && self.copies.is_untroubled()
    }
}
