//! One unit of array work as a scheduler sees it: what waits for it, what its array does, what its cache register holds.
//!
//! ```text
//! one register      Idle ─ Entering (command, data in) ─ Working ─ Holding (data out) ─ Idle
//! two registers     the cache register takes the next program's data while the array works, and a read's data out of its way
//! unbounded         a program's data waits anywhere, a read's data leaves the array at once
//! ```

use alloc::collections::VecDeque;

/// What the array does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayState {
    Idle,
    /// The command of that operation, or its data, is on the bus or waits for it again.
    Entering(u32),
    /// Until then.
    Working(u32, u64),
    /// A read has come: what it works on stops.
    Stopping(u32),
    /// Data that was read is in the array's register.
    Holding(u32),
}

/// The cache register, where there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    Free,
    /// Data of a program comes in.
    Loading(u32),
    /// It waits for the array.
    Loaded(u32),
    /// Data that was read goes out.
    Leaving(u32),
}

/// What was stopped for reads, and what it still takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspended {
    pub(crate) operation: u32,
    pub(crate) left: u64,
}

/// A plane or die, or a chip whose dies take turns.
#[derive(Clone, Debug)]
pub(crate) struct ArrayTarget {
    pub(crate) channel: u32,
    pub(crate) state: ArrayState,
    pub(crate) cache: Cache,
    /// Reads that wait, in the order in which they came.
    pub(crate) reads: VecDeque<u32>,
    /// Programs, erases and moves.
    pub(crate) others: VecDeque<u32>,
    /// Programs whose data is there already: registers are unbounded.
    pub(crate) loaded: VecDeque<u32>,
    pub(crate) suspended: Option<Suspended>,
    /// Since when reads pass the first of the others: it came, the one before it ended, or it was stopped.
    pub(crate) passed_since: u64,
    /// Events of the array that name another one are void.
    pub(crate) epoch: u32,
    /// It is among those that want the bus.
    pub(crate) listed: bool,
    /// Since when the state has been what it is: idle, or anything else.
    pub(crate) since: u64,
    /// For how long the array worked or held a page, up to `since`.
    pub(crate) busy: u64,
}

impl ArrayTarget {
    pub(crate) fn on(channel: u32) -> ArrayTarget {
        ArrayTarget {
            channel,
            state: ArrayState::Idle,
            cache: Cache::Free,
            reads: VecDeque::new(),
            others: VecDeque::new(),
            loaded: VecDeque::new(),
            suspended: None,
            passed_since: 0,
            epoch: 0,
            listed: false,
            since: 0,
            busy: 0,
        }
    }

    /// The array does that from now on.
    #[inline]
    pub(crate) fn set(&mut self, now: u64, state: ArrayState) {
        if (self.state == ArrayState::Idle) != (state == ArrayState::Idle) {
            if state == ArrayState::Idle {
                self.busy += now - self.since;
            }
            self.since = now;
        }
        self.state = state;
    }

    /// Whether nothing is under way or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == ArrayState::Idle
            && self.suspended.is_none()
            && self.cache == Cache::Free
            && self.reads.is_empty()
            && self.others.is_empty()
            && self.loaded.is_empty()
    }

    /// Whether no program or erase waits.
    pub(crate) fn others_are_none(&self) -> bool {
        self.others.is_empty() && self.loaded.is_empty() && !matches!(self.cache, Cache::Loading(_) | Cache::Loaded(_))
    }

    /// For how long it was busy up to `now`.
    pub(crate) fn busy_until(&self, now: u64) -> u64 {
        self.busy + if self.state == ArrayState::Idle { 0 } else { now.saturating_sub(self.since) }
    }

    /// States the invariants; `passes`: reads pass through the cache register.
    pub(crate) fn check(&self, passes: bool) {
        if let (ArrayState::Holding(_), Cache::Loading(_) | Cache::Loaded(_), true) = (self.state, self.cache, passes) {
            panic!("a read waits for the cache register, and what is in that for the array: {self:?}");
        }
        if let ArrayState::Stopping(id) = self.state {
            assert_eq!(self.suspended.map(|s| s.operation), Some(id), "what stops will have to go on");
        }
    }
}
