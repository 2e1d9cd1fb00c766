//! Rings: children of one parent that take turns.
//!
//! A child spends its balance while it is the ring's `current` one; when the balance is used up or overdrawn, the
//! child waits for the round in which it is positive again. Rounds are buckets of a calendar, so that rounds in which
//! everybody is in debt cost nothing: the next bucket that is not empty is one rotation and one count of zeros away.
//!
//! ```text
//!  Ring ── current ──▶ Node                      due = round, balance > 0
//!   └ calendar[round % 128 ..] ─▶ Node ⇄ Node ⇄ …   due > round, balance as it will be in that round
//!  Node that is out: due and balance stay, that is its debt; a round that has passed has paid it
//! ```
//! `balance` is always what the child has left in round `due`, between 1 and its quantum. An only child has nobody to
//! share with: its account rests.

use alloc::vec::Vec;

/// No node, no ring.
pub(crate) const NONE: u32 = u32::MAX;
/// The `class` of a ring whose owner is a node and not one of a scheduler's classes.
pub(crate) const PLAIN: u8 = u8::MAX;
/// Rounds that a calendar sees ahead. A child further in debt is looked at again when that many have passed.
pub(crate) const ROUNDS: u64 = 128;

/// What a command costs in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
    /// Turns never end: first come, first served.
    Nothing,
    /// One.
    Command,
    /// Its cost in bytes.
    Bytes,
}

impl Price {
    #[inline]
    pub fn of(self, cost: u32) -> i64 {
        match self {
            Price::Bytes => i64::from(cost.max(1)),
            Price::Command => 1,
            Price::Nothing => 0,
        }
    }
}

/// A turn in a ring: what is counted, and how much of it a child of weight 1 may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub price: Price,
    pub credit: u32,
}

/// Rounds until an overdrawn balance (zero or less) is positive again, and what it is then.
#[inline]
pub(crate) fn repay(balance: i64, quantum: u32) -> (u64, u32) {
    debug_assert!(balance <= 0);
    // A balance was positive before a cost of 32 bits.
    let debt = balance.unsigned_abs() as u32;
    if debt < quantum {
        return (1, quantum - debt);
    }
    (u64::from(debt / quantum) + 1, quantum - debt % quantum)
}

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// Has nothing to serve.
    Out,
    /// In a bucket of the calendar.
    Waiting,
    /// Whose turn it is.
    Current,
    /// Held back, whatever it has to serve.
    Held,
    /// A queue that is held back and has a head.
    HeldReady,
}

/// A child of a ring: a queue, a controller or a tenant. Two fit a cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub next: u32,
    pub prev: u32,
    pub due: u64,
    pub balance: u32,
    /// The ring it is a child of.
    pub ring: u32,
    /// What it contains: a tenant the ring of its controllers and queues, a controller its classes, a queue `NONE`.
    pub inner: u32,
    pub weight: u16,
    pub bucket: u8,
    pub state: NodeState,
}

const _: () = assert!(size_of::<Node>() == 32);

/// The children of one parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// Which buckets are not empty.
    pub waiting: u128,
    pub round: u64,
    /// `NONE` when nobody in the ring has anything to serve, and only then.
    pub current: u32,
    /// `NONE` while there was never more than one child.
    pub calendar: u32,
    /// The owner: a node (`class` is `PLAIN`), or else a scheduler's `class`.
    pub up: u32,
    pub children: u32,
    pub turn: Turn,
    pub class: u8,
}

/// Those who wait for a round, first and last. The first's `prev` and the last's `next` mean nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub first: u32,
    pub last: u32,
}

type Calendar = [Bucket; ROUNDS as usize];

/// All rings and nodes of an arbiter, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rings {
    pub nodes: Vec<Node>,
    pub rings: Vec<Ring>,
    pub calendars: Vec<Calendar>,
    free_nodes: Vec<u32>,
    free_rings: Vec<u32>,
    free_calendars: Vec<u32>,
    /// Node visits, for the proof that choosing is O(1).
    #[cfg(test)]
    pub steps: u64,
}

impl Rings {
    #[inline]
    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }

    #[inline]
    pub fn quantum(&self, n: u32) -> u32 {
        let node = &self.nodes[n as usize];
        self.rings[node.ring as usize].turn.credit * u32::from(node.weight)
    }

    /// Adds a ring for the owner `up`.
    pub fn add_ring(&mut self, up: u32, class: u8, turn: Turn) -> u32 {
        let ring = Ring { waiting: 0, round: 0, current: NONE, calendar: NONE, up, children: 0, turn, class };
        place(&mut self.rings, &mut self.free_rings, ring)
    }

    /// Drops a ring that has no children left.
    pub fn remove_ring(&mut self, r: u32) {
        let ring = &mut self.rings[r as usize];
        assert_eq!(ring.children, 0, "ring {r} is dropped with children");
        if ring.calendar != NONE {
            self.free_calendars.push(ring.calendar);
        }
        ring.calendar = NONE;
        self.free_rings.push(r);
    }

    /// Adds a node that is in no ring yet.
    pub fn add_node(&mut self, inner: u32) -> u32 {
        let node = Node {
            next: NONE,
            prev: NONE,
            due: 0,
            balance: 1,
            ring: NONE,
            inner,
            weight: 1,
            bucket: 0,
            state: NodeState::Out,
        };
        place(&mut self.nodes, &mut self.free_nodes, node)
    }

    /// Drops a node that is in no ring.
    pub fn remove_node(&mut self, n: u32) {
        assert_eq!(self.nodes[n as usize].ring, NONE, "node {n} is dropped inside a ring");
        self.free_nodes.push(n);
    }

    /// Makes `n` a child of `r`, with nothing to serve yet. A second child brings the calendar.
    pub fn adopt(&mut self, r: u32, n: u32, weight: u16) {
        let ring = &mut self.rings[r as usize];
        ring.children += 1;
        if ring.children == 2 && ring.calendar == NONE {
            let empty = [Bucket { first: NONE, last: NONE }; ROUNDS as usize];
            let calendar = place(&mut self.calendars, &mut self.free_calendars, empty);
            self.rings[r as usize].calendar = calendar;
        }
        let round = self.rings[r as usize].round;
        let node = &mut self.nodes[n as usize];
        (node.ring, node.weight, node.due) = (r, weight.max(1), round);
        self.nodes[n as usize].balance = self.quantum(n);
    }

    /// Takes a child that has left out of the family.
    pub fn disown(&mut self, n: u32) {
        let node = &mut self.nodes[n as usize];
        debug_assert!(!matches!(node.state, NodeState::Waiting | NodeState::Current));
        self.rings[node.ring as usize].children -= 1;
        node.ring = NONE;
        node.state = NodeState::Out;
    }

    /// Cuts balances to what a turn is now, after turns or weights have changed.
    pub fn cut(&mut self) {
        for n in 0..self.nodes.len() as u32 {
            if self.nodes[n as usize].ring != NONE {
                let quantum = self.quantum(n);
                let node = &mut self.nodes[n as usize];
                node.balance = node.balance.min(quantum);
            }
        }
    }

    /// `n`, which is out, has something to serve. True when that changes whose turn it is (the ring was empty).
    #[inline]
    pub fn join(&mut self, n: u32) -> bool {
        self.step();
        let node = &mut self.nodes[n as usize];
        debug_assert_eq!(node.state, NodeState::Out);
        let ring = &mut self.rings[node.ring as usize];
        if node.due < ring.round {
            node.due = ring.round;
            node.balance = ring.turn.credit * u32::from(node.weight);
        }
        if ring.current != NONE {
            self.push(n);
            return false;
        }
        (ring.round, ring.current) = (node.due, n);
        node.state = NodeState::Current;
        true
    }

    /// `n` has nothing to serve any more. True when that changes whose turn it is.
    pub fn leave(&mut self, n: u32) -> bool {
        self.step();
        let node = &mut self.nodes[n as usize];
        let ring = &self.rings[node.ring as usize];
        let quantum = ring.turn.credit * u32::from(node.weight);
        // What is left of a turn is lost, or else coming back would be a way to a second one in the same round. Who is held
        // has no turn to lose.
        let held = matches!(node.state, NodeState::Held | NodeState::HeldReady);
        if node.due == ring.round && node.balance < quantum && ring.children > 1 && !held {
            (node.due, node.balance) = (node.due + 1, quantum);
        }
        self.take_out(n)
    }

    #[inline]
    fn take_out(&mut self, n: u32) -> bool {
        let Node { ring, state, .. } = self.nodes[n as usize];
        self.nodes[n as usize].state = match state {
            NodeState::Current => {
                self.advance(ring);
                NodeState::Out
            }
            NodeState::Waiting => {
                self.unlink(n);
                NodeState::Out
            }
            NodeState::HeldReady => NodeState::Held,
            NodeState::Out | NodeState::Held => state,
        };
        state == NodeState::Current
    }

    /// `n` was served a command of this cost and has (`keep`) or has not more to serve. True when that changes whose
    /// turn it is. Charging a child out of turn, or one that is out, brings it into debt all the same.
    // Most commands do not end a turn: that much belongs into the caller, the rest does not.
    #[inline(always)]
    pub fn charge(&mut self, n: u32, cost: u32, keep: bool) -> bool {
        self.step();
        let node = &mut self.nodes[n as usize];
        let ring = &self.rings[node.ring as usize];
        if ring.children == 1 {
            return !keep && self.take_out(n);
        }
        let left = i64::from(node.balance) - ring.turn.price.of(cost);
        if keep && left > 0 && node.state == NodeState::Current {
            node.balance = left as u32;
            return false;
        }
        if keep && node.state == NodeState::Current { self.end_turn(n, left) } else { self.settle(n, cost, keep) }
    }

    /// The current child has used its turn up, and `left` is what it owes.
    #[inline(never)]
    fn end_turn(&mut self, n: u32, left: i64) -> bool {
        let node = &mut self.nodes[n as usize];
        let r = node.ring;
        let ring = &mut self.rings[r as usize];
        let (rounds, balance) = repay(left, ring.turn.credit * u32::from(node.weight));
        (node.due, node.balance) = (node.due + rounds, balance);
        if ring.waiting == 0 {
            ring.round = node.due;
            return false;
        }
        self.push(n);
        self.advance(r);
        self.rings[r as usize].current != n
    }

    /// Charges a child that leaves, or whose turn it is not.
    #[inline(never)]
    fn settle(&mut self, n: u32, cost: u32, keep: bool) -> bool {
        let node = &mut self.nodes[n as usize];
        let ring = &self.rings[node.ring as usize];
        let quantum = ring.turn.credit * u32::from(node.weight);
        if node.due < ring.round {
            (node.due, node.balance) = (ring.round, quantum);
        }
        let left = i64::from(node.balance) - ring.turn.price.of(cost);
        if left > 0 {
            node.balance = left as u32;
            return !keep && self.leave(n);
        }
        let (rounds, balance) = repay(left, quantum);
        let account = (node.due + rounds, balance);
        if keep && node.state == NodeState::Waiting {
            self.unlink(n);
            let node = &mut self.nodes[n as usize];
            (node.due, node.balance) = account;
            self.push(n);
            return false;
        }
        let moved = !keep && self.take_out(n);
        let node = &mut self.nodes[n as usize];
        (node.due, node.balance) = account;
        moved
    }

    /// Puts a node at the end of the bucket of its round.
    #[inline]
    fn push(&mut self, n: u32) {
        let node = &mut self.nodes[n as usize];
        let ring = &mut self.rings[node.ring as usize];
        let bucket = ((ring.round + (node.due - ring.round).min(ROUNDS - 1)) % ROUNDS) as usize;
        let list = &mut self.calendars[ring.calendar as usize][bucket];
        let bit = 1u128 << bucket;
        (node.bucket, node.state) = (bucket as u8, NodeState::Waiting);
        if ring.waiting & bit == 0 {
            ring.waiting |= bit;
            *list = Bucket { first: n, last: n };
            return;
        }
        let last = core::mem::replace(&mut list.last, n);
        node.prev = last;
        self.nodes[last as usize].next = n;
    }

    /// Takes a node out of its bucket.
    fn unlink(&mut self, n: u32) {
        let Node { next, prev, bucket, ring, .. } = self.nodes[n as usize];
        let ring = &mut self.rings[ring as usize];
        let list = &mut self.calendars[ring.calendar as usize][usize::from(bucket)];
        match (list.first == n, list.last == n) {
            (true, true) => ring.waiting &= !(1u128 << bucket),
            (true, false) => list.first = next,
            (false, true) => list.last = prev,
            (false, false) => {
                self.nodes[prev as usize].next = next;
                self.nodes[next as usize].prev = prev;
            }
        }
    }

    /// Gives the turn to the first node of the next round that has any.
    #[inline]
    fn advance(&mut self, r: u32) {
        loop {
            self.step();
            let ring = &mut self.rings[r as usize];
            if ring.waiting == 0 {
                ring.current = NONE;
                return;
            }
            let here = (ring.round % ROUNDS) as u32;
            ring.round += u64::from(ring.waiting.rotate_right(here).trailing_zeros());
            let bucket = (ring.round % ROUNDS) as usize;
            let list = &mut self.calendars[ring.calendar as usize][bucket];
            let first = list.first;
            let node = &mut self.nodes[first as usize];
            if list.last == first {
                ring.waiting &= !(1u128 << bucket);
            } else {
                list.first = node.next;
            }
            if node.due > ring.round {
                // So deep in debt that the calendar could not see its round.
                self.push(first);
                continue;
            }
            node.state = NodeState::Current;
            ring.current = first;
            return;
        }
    }
}

pub(crate) fn place<T>(slab: &mut Vec<T>, free: &mut Vec<u32>, item: T) -> u32 {
    match free.pop() {
        Some(i) => {
            slab[i as usize] = item;
            i
        }
        None => {
            slab.push(item);
            (slab.len() - 1) as u32
        }
    }
}
