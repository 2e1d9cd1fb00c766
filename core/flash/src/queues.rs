//! The write buffer's queues: slots in the order in which they came, and which queue is the longest, without a look at all of them.
//! There may be as many as the drive has planes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Queues of slots.
#[derive(Debug)]
pub(crate) struct Queues {
    queues: Vec<VecDeque<u32>>,
    /// By length, up to the longest there has been: how many queues have it.
    of_length: Vec<u32>,
    /// The length of the longest.
    longest: u32,
    /// Which queue has grown to that length last.
    grown: u32,
}

impl Queues {
    /// So many empty queues, with room for `each` slots at first.
    pub(crate) fn new(count: u32, each: usize) -> Queues {
        let queues = (0..count).map(|_| VecDeque::with_capacity(each)).collect();
        Queues { queues, of_length: Vec::from([count]), longest: 0, grown: 0 }
    }

    /// Slots of the longest queue.
    #[inline]
    pub(crate) fn longest_len(&self) -> u32 {
        self.longest
    }

    /// The longest queue, the last of equals.
    #[inline]
    pub(crate) fn longest(&self) -> Option<u32> {
        let is = |queue: &VecDeque<u32>| queue.len() as u32 == self.longest;
        if self.of_length[self.longest as usize] == 1 && self.queues.get(self.grown as usize).is_some_and(is) {
            return Some(self.grown);
        }
        self.queues.iter().rposition(is).map(|at| at as u32)
    }

    /// The first slot of a queue.
    #[inline]
    pub(crate) fn front(&self, queue: u32) -> Option<u32> {
        self.queues.get(queue as usize)?.front().copied()
    }

    #[inline]
    pub(crate) fn push(&mut self, queue: u32, slot: u32) {
        let slots = &mut self.queues[queue as usize];
        slots.push_back(slot);
        let len = slots.len();
        self.of_length[len - 1] -= 1;
        match self.of_length.get_mut(len) {
            Some(count) => *count += 1,
            None => self.of_length.push(1),
        }
        if len as u32 >= self.longest {
            (self.longest, self.grown) = (len as u32, queue);
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self, queue: u32) -> Option<u32> {
        let slots = self.queues.get_mut(queue as usize)?;
        let slot = slots.pop_front()?;
        let len = slots.len();
        self.moved(len + 1, len);
        Some(slot)
    }

    /// A queue of that length has become shorter.
    #[inline]
    fn moved(&mut self, before: usize, len: usize) {
        self.of_length[before] -= 1;
        self.of_length[len] += 1;
        while self.longest > 0 && self.of_length[self.longest as usize] == 0 {
            self.longest -= 1;
        }
    }

    /// Keeps the slots for which this holds.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        for queue in 0..self.queues.len() {
            let slots = &mut self.queues[queue];
            let before = slots.len();
            slots.retain(|slot| keep(*slot));
            let len = slots.len();
            self.moved(before, len);
        }
    }

    /// All slots of a queue.
    pub(crate) fn of(&self, queue: u32) -> impl Iterator<Item = u32> + '_ {
        self.queues.get(queue as usize).into_iter().flatten().copied()
    }

    /// All slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.iter().flatten().copied()
    }

    /// How many queues.
    pub(crate) fn count(&self) -> u32 {
        self.queues.len() as u32
    }

    pub(crate) fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.of_length.fill(0);
        self.of_length[0] = self.count();
        (self.longest, self.grown) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::rng::SplitMix64;

    #[test]
    fn the_longest_is_the_one_that_a_search_finds() {
        let (mut queues, mut rng) = (Queues::new(7, 2), SplitMix64::new(3));
        for i in 0..20_000 {
            let queue = rng.below(7);
            // Up and down: now and then they all run empty.
            let grows = rng.below(100) < if i / 1000 % 2 == 0 { 55 } else { 40 };
            match grows {
                true => queues.push(queue, i),
                false => _ = queues.pop(queue),
            }
            if i % 1234 == 0 {
                queues.retain(|slot| slot % 3 != 0);
            }
            if i % 7001 == 0 {
                queues.clear();
            }
            let search = (0..).zip(&queues.queues).max_by_key(|(_, slots)| slots.len()).map(|(queue, _)| queue);
            assert_eq!(queues.longest(), search);
            assert_eq!(queues.longest_len() as usize, queues.queues.iter().map(VecDeque::len).max().unwrap());
        }
    }
}
