//! Whether a history is linearizable: an order of its calls in which each takes effect between its beginning and its end, and the model
//! gives the same answers (Wing and Gong, "Testing and Verifying Concurrent Objects", 1993).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use std::collections::hash_map::DefaultHasher;

/// What a history is held against: a state, and what each call may be answered in it.
pub(crate) trait Model: Clone + PartialEq + Hash {
    /// A call, with its answer.
    type Call: Clone;
    /// When it began and when it was answered, in moments that no two share; never: `u64::MAX`.
    fn span(call: &Self::Call) -> (u64, u64);
    /// Whether the answer is right at this moment; then the model is as it is afterwards.
    fn accepts(&mut self, call: &Self::Call) -> bool;
    /// Whether a call changes nothing for sure.
    fn is_query(call: &Self::Call) -> bool;
    /// Whether a call may never have taken effect, because nobody was told.
    fn is_unknown(_: &Self::Call) -> bool {
        false
    }
}

/// Why a history is not known to be linearizable.
#[derive(Clone, Debug)]
pub(crate) enum Unexplained<C> {
    /// No order explains these calls.
    Wrong(Vec<C>),
    /// There are too many orders to look at.
    TooMany,
}

/// States that are looked at before the checker gives up.
const STATES_MAX: usize = 20_000;

struct Search<'a, M: Model> {
    calls: &'a [M::Call],
    seen: BTreeSet<u64>,
    /// The most calls that fitted, and what was left then.
    best: Vec<usize>,
    states: usize,
}

/// Whether an order explains the history, from that state on.
pub(crate) fn linearize<M: Model>(model: M, calls: &[M::Call]) -> Result<(), Unexplained<M::Call>> {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| M::span(call).0);
    let left: Vec<usize> = (0..calls.len()).collect();
    let mut search: Search<'_, M> = Search { calls: &calls, seen: BTreeSet::new(), best: left.clone(), states: 0 };
    match search.explains(model, left) {
        true => Ok(()),
        false if search.states > STATES_MAX => Err(Unexplained::TooMany),
        false => Err(Unexplained::Wrong(search.best.iter().take(12).map(|at| calls[*at].clone()).collect())),
    }
}

impl<M: Model> Search<'_, M> {
    fn explains(&mut self, mut model: M, mut left: Vec<usize>) -> bool {
        loop {
            let end = left.iter().map(|at| M::span(&self.calls[*at]).1).min().unwrap_or(0);
            let open: Vec<usize> = left.iter().copied().take_while(|at| M::span(&self.calls[*at]).0 < end).collect();
            // What fits and changes nothing can come first: it takes nothing away from the others.
            let fits = open.iter().copied().find(|at| {
                let (mut after, call) = (model.clone(), &self.calls[*at]);
                M::is_query(call) && after.accepts(call) && after == model
            });
            let Some(at) = fits else {
                return self.branches(&mut model, left, &open);
            };
            left.retain(|other| *other != at);
            self.note(&left);
        }
    }

    fn branches(&mut self, model: &mut M, left: Vec<usize>, open: &[usize]) -> bool {
        if left.iter().all(|at| M::is_unknown(&self.calls[*at])) {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        (&*model, &left).hash(&mut hasher);
        self.states += 1;
        if self.states > STATES_MAX || !self.seen.insert(hasher.finish()) {
            return false;
        }
        for at in open {
            let (mut after, call) = (model.clone(), &self.calls[*at]);
            if after.accepts(call) {
                let rest: Vec<usize> = left.iter().copied().filter(|other| other != at).collect();
                self.note(&rest);
                if self.explains(after, rest) {
                    return true;
                }
            }
        }
        false
    }

    fn note(&mut self, left: &[usize]) {
        if left.len() < self.best.len() {
            self.best = left.to_vec();
        }
    }
}
