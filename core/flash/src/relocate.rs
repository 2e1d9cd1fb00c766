//! Garbage collection in aggregate: a victim's pages moved and its block erased, booked as one.

use crate::array::Array;
use crate::lun::Promise;
use crate::name::names;
use weir_units::Nanos;

/// What garbage collection blocks (papers/002 section 4, figure 6a; "Tiny-Tail Flash", FAST '17, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The whole drive until it is over: nothing that is asked for later begins before. What was booked stays.
    Controller,
    /// The channel that the pages cross, from the first read to the last program.
    Channel,
    /// The plane only: copy-back, no page leaves it.
    Plane,
}

names!(Scope, "scope", Controller = "controller", Channel = "channel", Plane = "plane");

/// A victim's pages moved within a plane and its block erased, as sums. [`Array::read_time`] and [`Array::program_time`]
/// give the terms; a chip that is slower or faster takes longer or shorter, but retries are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relocation {
    /// The array times of all page reads.
    pub read: Nanos,
    /// The array times of all programs.
    pub program: Nanos,
    /// Bytes that leave the plane and come back; copy-back moves them without the channel.
    pub bytes: u64,
    /// The block to erase at the end.
    pub erase: Option<u32>,
    /// Whether the erase may be suspended by a read ([`Promise::Open`]): then the end that is answered may still move, and
    /// [`Array::settle`] says the one to rely on.
    pub erase_yields: bool,
}

impl Array {
    /// Garbage collection of one victim on one plane; `scope` says what else stands still. The end; `now` where a scheduler does not
    /// know it.
    pub fn relocate(&mut self, now: Nanos, plane: u32, work: &Relocation, scope: Scope) -> Nanos {
        if self.is_scheduled() {
            self.ask_relocate(now, plane, work, scope);
            return now;
        }
        let index = self.lun_of(plane);
        let start = now.0.max(self.locked).max(self.luns[index].free);
        let mut moving = self.begin_on_chip(plane, work.read.saturating_add(work.program)).0;
        let mut begun = start;
        if scope != Scope::Plane {
            moving = moving.saturating_add(self.transfer_sum(work.bytes).saturating_mul(2));
            let channel = self.luns[index].channel as usize;
            begun = match self.rings.get_mut(channel) {
                Some(ring) => ring.seize(now, Nanos(start), Nanos(moving)).0,
                None => self.channels[channel].book(now, Nanos(start), Nanos(moving)).0,
            };
        }
        let lun = &mut self.luns[index];
        if moving > 0 {
            lun.free = begun.saturating_add(moving);
            lun.busy += moving;
            lun.settle();
        }
        let moved = lun.free;
        let end = match work.erase {
            None => Nanos(moved.max(start)),
            Some(block) => {
                let promise = if work.erase_yields { Promise::Open } else { Promise::Told };
                self.erase_as(Nanos(start.max(moved)), plane, block, promise)
            }
        };
        if scope == Scope::Controller {
            self.locked = self.locked.max(end.0);
        }
        end
    }

    /// Channel time of more bytes than one transfer has.
    pub(crate) fn transfer_sum(&self, bytes: u64) -> u64 {
        let page = u64::from(self.page_bytes());
        let rest = (bytes % page) as u32;
        (bytes / page).saturating_mul(self.transfer_time(self.page_bytes()).0) + self.transfer_time(rest).0
    }
}
