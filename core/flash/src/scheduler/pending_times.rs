//! Points in time that are not known yet, and who waits for them.
//!
//! ```text
//! read of a page ─ Wait ─┐
//! read of a page ─ Wait ─┴─ later_of ─ Wait ── told: the command is complete
//! ```
//! A [`When`] is a time, or names a wait. It is good until time passes: whoever needs it longer asks to be told. A wait is over
//! when everything that it waits for has happened; its time, the latest of all, is then passed on, possibly ahead of that time.

use alloc::vec::Vec;
use weir_units::Nanos;

/// The end of a list.
const NIL: u32 = u32::MAX;

/// The bit that tells the name of a wait from a time: times are shorter than 292 years.
const PENDING: u64 = 1 << 63;

/// A point in time that may not be known yet. Good until time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When(u64);

impl When {
    /// A known time; [`Nanos::NEVER`] is the latest that there is.
    #[inline]
    pub const fn at(time: Nanos) -> When {
        When(if time.0 >= PENDING { PENDING - 1 } else { time.0 })
    }

    /// The time, if it is known.
    #[inline]
    pub const fn known(self) -> Option<Nanos> {
        if self.0 & PENDING == 0 { Some(Nanos(self.0)) } else { None }
    }

    /// The time; `present` where it is not known.
    #[inline]
    pub const fn known_or(self, present: Nanos) -> Nanos {
        if self.0 & PENDING == 0 { Nanos(self.0) } else { present }
    }

    /// The later of two known times.
    #[inline]
    pub(crate) const fn later_known(self, other: When) -> Option<When> {
        if (self.0 | other.0) & PENDING != 0 {
            return None;
        }
        Some(if self.0 < other.0 { other } else { self })
    }

    /// The wait behind it.
    fn wait(self) -> u32 {
        self.0 as u32
    }
}

/// A wait that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitId(u32);

impl WaitId {
    pub(crate) const fn when(self) -> When {
        When(PENDING | self.0 as u64)
    }
}

/// What follows when a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Another wait has one thing less to wait for.
    Wait(WaitId),
    /// An operation of the flash can begin.
    Operation(u32),
    /// The controller is not blocked any more by one collection.
    Unlock,
    /// Who is outside hears of it.
    Signal(Signal),
}

/// What those outside the scheduler hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Units have left the flash: they cross the host's link, and then that wait is over.
    Deliver { bytes: u32, wait: WaitId },
    /// A program of the host's data is in the cells: its number, and units that have left the buffer.
    Programmed { number: u64, units: u32 },
    /// What a write needs before its unit can be buffered is there.
    Admit { ticket: u32 },
    /// Units that were read stay in the controller's memory.
    Kept { lpn: u32, units: u32 },
    /// A command is complete.
    Told { tag: u64 },
}

/// A cache line: of thousands of programs that a buffer has sent, the one that ends is far from what is at work.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Wait {
    /// The latest of what has happened.
    at: u64,
    /// What has not.
    left: u32,
    /// How much later it is over.
    delay: u64,
    /// Who waits for it: the first, and the first and the last of the others.
    first: Option<Then>,
    others: u32,
    last: u32,
}

const _: () = assert!(size_of::<Wait>() == 64);

#[derive(Clone, Copy, Debug)]
struct Link {
    then: Then,
    next: u32,
}

/// All waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    waits: Vec<Wait>,
    free: Vec<u32>,
    links: Vec<Link>,
    free_links: Vec<u32>,
}

impl Waits {
    /// A wait for `left` things, at least one.
    pub(crate) fn add(&mut self, left: u32) -> WaitId {
        let wait = Wait { at: 0, left, delay: 0, first: None, others: NIL, last: NIL };
        match self.free.pop() {
            Some(id) => {
                self.waits[id as usize] = wait;
                WaitId(id)
            }
            None => {
                self.waits.push(wait);
                WaitId(self.waits.len() as u32 - 1)
            }
        }
    }

    /// That follows when a pending time is known.
    pub(crate) fn follow(&mut self, when: When, then: Then) {
        let wait = &mut self.waits[when.wait() as usize];
        if wait.first.is_none() {
            wait.first = Some(then);
            return;
        }
        let link = Link { then, next: NIL };
        let id = match self.free_links.pop() {
            Some(id) => {
                self.links[id as usize] = link;
                id
            }
            None => {
                self.links.push(link);
                self.links.len() as u32 - 1
            }
        };
        let wait = &mut self.waits[when.wait() as usize];
        match wait.last {
            NIL => wait.others = id,
            last => self.links[last as usize].next = id,
        }
        wait.last = id;
    }

    /// The later of two points in time; what is pending is later than the `present`.
    pub(crate) fn later_of(&mut self, present: u64, a: When, b: When) -> When {
        let (known, pending) = match (a.known(), b.known()) {
            (Some(a), Some(b)) => return When::at(a.max(b)),
            (Some(known), None) => (known, b),
            (None, Some(known)) => (known, a),
            (None, None) if a == b => return a,
            (None, None) => {
                let both = self.add(2);
                self.follow(a, Then::Wait(both));
                self.follow(b, Then::Wait(both));
                return both.when();
            }
        };
        if known.0 <= present {
            return pending;
        }
        // Others may wait for what is pending alone.
        let both = self.add(1);
        self.waits[both.0 as usize].at = known.0;
        self.follow(pending, Then::Wait(both));
        both.when()
    }

    /// The same pending point in time, so many nanoseconds later.
    pub(crate) fn delayed(&mut self, when: When, delay: u64) -> When {
        let later = self.add(1);
        self.waits[later.0 as usize].delay = delay;
        self.follow(when, Then::Wait(later));
        later.when()
    }

    /// The same as [`Waits::happened`] for most: one thing was waited for, and one follows. `None`, and nothing has changed, for others.
    #[inline]
    pub(crate) fn happened_alone(&mut self, id: WaitId, at: u64) -> Option<(u64, Then)> {
        let wait = &self.waits[id.0 as usize];
        let alone = |then: &Then| !matches!(then, Then::Wait(_));
        let then = wait.first.filter(|then| wait.left == 1 && wait.others == NIL && alone(then))?;
        self.free.push(id.0);
        Some((wait.at.max(at).saturating_add(wait.delay), then))
    }

    /// One of the things has happened, or is known to happen at `at`. Where it was the last one, `over` gets what follows, with the
    /// time of all, in the order in which they began to wait.
    pub(crate) fn happened(&mut self, id: WaitId, at: u64, over: &mut Vec<(u64, Then)>) {
        let wait = &mut self.waits[id.0 as usize];
        debug_assert!(wait.left > 0, "wait {} was over", id.0);
        wait.at = wait.at.max(at);
        wait.left -= 1;
        if wait.left > 0 {
            return;
        }
        let Wait { at, delay, first, others, .. } = *wait;
        let at = at.saturating_add(delay);
        self.free.push(id.0);
        if let Some(then) = first {
            self.follows(at, then, over);
        }
        let mut next = others;
        while next != NIL {
            let link = self.links[next as usize];
            self.free_links.push(next);
            next = link.next;
            self.follows(at, link.then, over);
        }
    }

    #[inline]
    fn follows(&mut self, at: u64, then: Then, over: &mut Vec<(u64, Then)>) {
        match then {
            Then::Wait(id) => self.happened(id, at, over),
            then => over.push((at, then)),
        }
    }

    /// Waits that are not over.
    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.waits.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(waits: &mut Waits, id: WaitId, at: u64) -> Vec<(u64, Then)> {
        let mut over = Vec::new();
        waits.happened(id, at, &mut over);
        over
    }

    #[test]
    fn the_later_of_two_is_over_when_both_are() {
        let mut waits = Waits::default();
        let (a, b) = (waits.add(1), waits.add(1));
        let both = waits.later_of(0, a.when(), b.when());
        let all = waits.later_of(0, both, When::at(Nanos(70)));
        waits.follow(all, Then::Operation(7));
        assert_eq!(over(&mut waits, b, 60), []);
        assert_eq!(over(&mut waits, a, 50), [(70, Then::Operation(7))]);
        assert_eq!(waits.open(), 0);
    }

    #[test]
    fn known_times_need_no_wait() {
        let mut waits = Waits::default();
        let later = waits.later_of(0, When::at(Nanos(3)), When::at(Nanos(4)));
        assert_eq!((later.known(), waits.open()), (Some(Nanos(4)), 0));
        assert_eq!(When::at(Nanos::NEVER).known(), Some(Nanos(PENDING - 1)));
    }

    #[test]
    fn everybody_who_waits_is_told() {
        let mut waits = Waits::default();
        let a = waits.add(2);
        (0..3).for_each(|op| waits.follow(a.when(), Then::Operation(op)));
        assert_eq!(over(&mut waits, a, 9), []);
        let told = over(&mut waits, a, 4);
        assert_eq!(told, [(9, Then::Operation(0)), (9, Then::Operation(1)), (9, Then::Operation(2))]);
    }
}
