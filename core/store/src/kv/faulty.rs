//! A key-value store that answers as a distributed one may: late, twice, or not knowing what became of a commit.

use super::{Commit, CommitOutcome, Kv, KvAnswer, KvRequest, KvToken, MemoryKv};
use alloc::vec::Vec;
use weir_units::rng::SplitMix64;

/// How often each fault happens, in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvFaults {
    /// A commit is made, and its answer is unknown.
    pub unknown_made: u32,
    /// A commit is not made, and its answer is unknown.
    pub unknown_dropped: u32,
    /// A commit is answered as unknown, and tried later: after others that were sent after that answer.
    pub unknown_late: u32,
    /// A commit is tried twice, as by a client library that tries again; the second outcome is the answer.
    pub twice: u32,
    /// A read is not answered.
    pub unavailable: u32,
    /// An answer is delivered twice.
    pub repeated: u32,
}

impl KvFaults {
    /// All of them at that rate.
    pub const fn all(rate: u32) -> Self {
        Self {
            unknown_made: rate,
            unknown_dropped: rate,
            unknown_late: rate,
            twice: rate,
            unavailable: rate,
            repeated: rate,
        }
    }
}

/// How often each fault has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvFaultCounts {
    /// Of [`KvFaults::unknown_made`].
    pub unknown_made: u64,
    /// Of [`KvFaults::unknown_dropped`].
    pub unknown_dropped: u64,
    /// Of [`KvFaults::unknown_late`] that were tried in the end.
    pub unknown_late: u64,
    /// Of [`KvFaults::twice`].
    pub twice: u64,
    /// Of [`KvFaults::unavailable`].
    pub unavailable: u64,
    /// Of [`KvFaults::repeated`].
    pub repeated: u64,
}

/// A late commit is passed over so often, on average, before it is tried.
const LATENESS: u32 = 8;

/// See the [module](self). Requests are sent with a sender's number of the caller's choice and carried out, and answered, in any order.
#[derive(Clone, Debug)]
pub struct FaultyKv {
    store: MemoryKv,
    random: SplitMix64,
    faults: KvFaults,
    counts: KvFaultCounts,
    requests: Vec<(u32, KvToken, KvRequest)>,
    answers: Vec<(u32, KvToken, KvAnswer)>,
    /// Commits that were answered as unknown and will be tried.
    late: Vec<Commit>,
}

impl FaultyKv {
    /// An empty one, with the faults that the seed brings.
    pub fn new(seed: u64, faults: KvFaults) -> Self {
        let counts = KvFaultCounts::default();
        let (requests, answers, late) = (Vec::new(), Vec::new(), Vec::new());
        Self { store: MemoryKv::default(), random: SplitMix64::new(seed), faults, counts, requests, answers, late }
    }

    /// What is in it.
    pub fn store(&self) -> &MemoryKv {
        &self.store
    }

    /// Changes or reads what is in it without faults.
    pub fn store_mut(&mut self) -> &mut MemoryKv {
        &mut self.store
    }

    /// How often each fault has happened.
    pub fn counts(&self) -> KvFaultCounts {
        self.counts
    }

    /// Other faults from here on.
    pub fn set_faults(&mut self, faults: KvFaults) {
        self.faults = faults;
    }

    /// Takes a request on its way.
    pub fn send(&mut self, sender: u32, token: KvToken, request: KvRequest) {
        self.requests.push((sender, token, request));
    }

    /// The store becomes what its medium had; nothing that was on its way is carried out, or answered.
    pub fn power_cut(&mut self, medium: MemoryKv) {
        self.store = medium;
        (self.requests, self.answers, self.late) = (Vec::new(), Vec::new(), Vec::new());
    }

    /// Puts an answer back whose receiver does not take it yet.
    pub fn deliver_again(&mut self, sender: u32, token: KvToken, answer: KvAnswer) {
        self.answers.push((sender, token, answer));
    }

    /// Requests, answers and late commits on their way.
    pub fn pending(&self) -> usize {
        self.requests.len() + self.answers.len() + self.late.len()
    }

    /// Lets one thing happen: a request is carried out, an answer is delivered, or a late commit is tried. `None` if nothing is
    /// delivered.
    pub fn advance(&mut self) -> Option<(u32, KvToken, KvAnswer)> {
        let at = self.random.below(self.pending() as u32) as usize;
        if at < self.requests.len() {
            let (sender, token, request) = self.requests.swap_remove(at);
            let answer = self.carry_out(&request);
            self.answers.push((sender, token, answer));
            return None;
        }
        let at = at - self.requests.len();
        if at < self.answers.len() {
            let answer = self.answers.swap_remove(at);
            if self.random.per_million(self.faults.repeated) {
                self.counts.repeated += 1;
                self.answers.push(answer.clone());
            }
            return Some(answer);
        }
        let at = at - self.answers.len();
        // It takes its time: most of what else is under way comes before it.
        if at < self.late.len() && self.random.below(LATENESS) == 0 {
            let commit = self.late.swap_remove(at);
            self.counts.unknown_late += 1;
            self.store.commit(&commit);
        }
        None
    }

    fn carry_out(&mut self, request: &KvRequest) -> KvAnswer {
        match request {
            KvRequest::Commit(commit) => KvAnswer::Outcome(self.commit_with_faults(commit)),
            KvRequest::Get(_) | KvRequest::Range { .. } => {
                if self.random.per_million(self.faults.unavailable) {
                    self.counts.unavailable += 1;
                    return request.unanswered();
                }
                request.perform(&mut self.store)
            }
        }
    }

    fn commit_with_faults(&mut self, commit: &Commit) -> CommitOutcome {
        if self.random.per_million(self.faults.unknown_made) {
            self.counts.unknown_made += 1;
            self.store.commit(commit);
            return CommitOutcome::Unknown;
        }
        if self.random.per_million(self.faults.unknown_dropped) {
            self.counts.unknown_dropped += 1;
            return CommitOutcome::Unknown;
        }
        if self.random.per_million(self.faults.unknown_late) {
            self.late.push(commit.clone());
            return CommitOutcome::Unknown;
        }
        if self.random.per_million(self.faults.twice) {
            self.counts.twice += 1;
            self.store.commit(commit);
        }
        self.store.commit(commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Expect, KvKey, KvWrite};

    fn put(key: &[u8], expect: Expect, value: u8) -> Commit {
        let key = KvKey(key.into());
        Commit {
            expect: alloc::vec![(key.clone(), expect)],
            writes: alloc::vec![KvWrite::Put(key, alloc::vec![value])],
        }
    }

    fn drain(kv: &mut FaultyKv) -> Vec<KvAnswer> {
        let mut answers = Vec::new();
        while kv.pending() > 0 {
            answers.extend(kv.advance().map(|(_, _, answer)| answer));
        }
        answers
    }

    #[test]
    fn without_faults_every_request_has_one_answer() {
        let mut kv = FaultyKv::new(1, KvFaults::default());
        kv.send(0, KvToken(1), KvRequest::Commit(put(b"a", Expect::Absent, 1)));
        assert!(matches!(drain(&mut kv)[..], [KvAnswer::Outcome(CommitOutcome::Done(_))]));
        assert_eq!(kv.counts(), KvFaultCounts::default());
    }

    /// Each fault, with what it leaves in the store and what the sender is told.
    #[test]
    fn each_fault_alone() {
        let always = 1_000_000;
        let none = KvFaults::default();
        let unknown = KvAnswer::Outcome(CommitOutcome::Unknown);
        for (faults, is_made, told) in [
            (KvFaults { unknown_made: always, ..none }, true, &unknown),
            (KvFaults { unknown_dropped: always, ..none }, false, &unknown),
            (KvFaults { unknown_late: always, ..none }, true, &unknown),
            (KvFaults { twice: always, ..none }, true, &KvAnswer::Outcome(CommitOutcome::Conflict)),
        ] {
            let mut kv = FaultyKv::new(7, faults);
            kv.send(0, KvToken(1), KvRequest::Commit(put(b"a", Expect::Absent, 1)));
            assert_eq!(drain(&mut kv), core::slice::from_ref(told), "{faults:?}");
            assert_eq!(kv.store().iter().count() == 1, is_made, "{faults:?}");
            assert_ne!(kv.counts(), KvFaultCounts::default(), "{faults:?}");
        }
        let mut kv = FaultyKv::new(7, KvFaults { unavailable: always, ..none });
        let get = KvRequest::Get(KvKey(b"a".to_vec()));
        kv.send(0, KvToken(1), get.clone());
        assert_eq!(drain(&mut kv), [get.unanswered()]);
    }

    #[test]
    fn a_late_commit_is_tried_after_what_was_sent_behind_it() {
        let is_overtaken = |seed| {
            let mut kv = FaultyKv::new(seed, KvFaults { unknown_late: 1_000_000, ..KvFaults::default() });
            kv.send(0, KvToken(1), KvRequest::Commit(put(b"a", Expect::Absent, 1)));
            while kv.advance().is_none() {}
            kv.set_faults(KvFaults::default());
            kv.send(0, KvToken(2), KvRequest::Commit(put(b"a", Expect::Absent, 2)));
            drain(&mut kv);
            kv.store().iter().all(|(_, found)| found.value == [2])
        };
        assert!((0..200).any(is_overtaken) && !(0..200).all(is_overtaken));
    }

    #[test]
    fn an_answer_can_come_twice() {
        let mut kv = FaultyKv::new(3, KvFaults { repeated: 500_000, ..KvFaults::default() });
        for token in 0..20 {
            kv.send(0, KvToken(token), KvRequest::Get(KvKey(b"a".to_vec())));
        }
        assert!(drain(&mut kv).len() > 20);
        assert!(kv.counts().repeated > 0);
    }
}
