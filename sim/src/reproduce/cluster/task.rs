//! A task of a job: it reads ahead, computes on a core of its own, and writes behind.

use super::Place;
use std::collections::VecDeque;
use weir_units::Nanos;

/// Reads that a task has under way ahead of what it computes, and writes behind: a stream's slices.
pub(crate) const STREAMS: usize = 8;

/// A piece of a task: what it reads is there, then it computes, then it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// What it needs.
    pub read: Option<Place>,
    /// On the task's core.
    pub compute: Nanos,
    /// What comes of it.
    pub write: Option<Place>,
}

/// What has happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// A read or a write of that work.
    Answered { work: u32, is_write: bool },
    /// The work under way is computed.
    Computed,
}

/// What a task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Read { work: u32, place: Place },
    Compute(Nanos),
    Write { work: u32, place: Place },
}

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// All of it, and how many are begun.
    works: Vec<Work>,
    begun: usize,
    /// Begun and not yet computed, in order: whether what it reads is there.
    ahead: VecDeque<bool>,
    /// The first of `ahead` is on the core.
    is_computing: bool,
    /// Computed, and its write not yet asked for.
    unwritten: Option<u32>,
    writing: usize,
    computed: Nanos,
    ended: Nanos,
}

impl Task {
    /// One that does all this in order.
    pub(crate) fn new(works: Vec<Work>) -> Self {
        let (ahead, ended) = (VecDeque::with_capacity(STREAMS), Nanos(0));
        let computed = Nanos(0);
        Self { works, begun: 0, ahead, is_computing: false, unwritten: None, writing: 0, computed, ended }
    }

    /// It begins nothing more.
    pub(super) fn stop(&mut self) {
        self.works.truncate(self.begun);
    }

    /// Whether nothing of it is left.
    pub(super) fn is_over(&self) -> bool {
        self.begun == self.works.len() && self.ahead.is_empty() && self.unwritten.is_none() && self.writing == 0
    }

    /// How long it has computed.
    pub(super) fn computed(&self) -> Nanos {
        self.computed
    }

    /// When it was over.
    pub(super) fn ended(&self) -> Nanos {
        self.ended
    }

    /// The number of the first work that is not computed.
    fn first(&self) -> usize {
        self.begun - self.ahead.len()
    }

    /// Something that it asked for is done.
    pub(super) fn apply(&mut self, now: Nanos, done: Done) {
        match done {
            Done::Answered { is_write: true, .. } => self.writing -= 1,
            Done::Answered { work, .. } => {
                let at = work as usize - self.first();
                self.ahead[at] = true;
            }
            Done::Computed => {
                let work = self.first();
                self.is_computing = false;
                self.ahead.pop_front();
                self.computed = self.computed.saturating_add(self.works[work].compute);
                self.unwritten = self.works[work].write.map(|_| work as u32);
            }
        }
        self.ended = now;
    }

    /// What it asks for now; `None` where it waits, or is over.
    pub(super) fn next_action(&mut self) -> Option<Action> {
        if self.writing < STREAMS
            && let Some(work) = self.unwritten.take()
        {
            let place = self.works[work as usize].write?;
            self.writing += 1;
            return Some(Action::Write { work, place });
        }
        if self.begun < self.works.len() && self.ahead.len() < STREAMS {
            let work = self.begun;
            self.begun += 1;
            self.ahead.push_back(self.works[work].read.is_none());
            match self.works[work].read {
                Some(place) => return Some(Action::Read { work: work as u32, place }),
                None => return self.next_action(),
            }
        }
        let is_ready = !self.is_computing && self.unwritten.is_none() && self.ahead.front() == Some(&true);
        is_ready.then(|| {
            self.is_computing = true;
            Action::Compute(self.works[self.first()].compute)
        })
    }
}

/// What one of so many tasks has of all, as even as it can be.
pub(crate) fn part<T>(all: &[T], task: usize, tasks: usize) -> &[T] {
    &all[all.len() * task / tasks..all.len() * (task + 1) / tasks]
}
