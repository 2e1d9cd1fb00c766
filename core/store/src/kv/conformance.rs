//! What every implementation of [`Kv`] is held to.

use super::{
    COMMIT_BYTES_MAX, COMMIT_KEYS_MAX, Commit, CommitOutcome, Expect, Kv, KvKey, KvWrite, RANGE_MAX, Revision,
    Versioned,
};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::fmt;
use weir_units::rng::SplitMix64;

/// A rule that an implementation does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvFailure {
    /// The rule.
    pub rule: &'static str,
    /// What came instead.
    pub found: String,
}

impl fmt::Display for KvFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule not kept: {}: {}", self.rule, self.found)
    }
}

impl core::error::Error for KvFailure {}

type Verdict = Result<(), String>;

/// What a rule says, and whether a store keeps it.
type Rule<K> = (&'static str, fn(&mut K) -> Verdict);

/// From, until, how many at the most, and what is found.
type RangeCase = (&'static [u8], &'static [u8], usize, core::ops::Range<usize>);

/// Runs the suite. Each rule gets an empty store from `open`; one that does not answer fails.
///
/// # Errors
/// The first rule that is not kept.
pub fn conformance<K: Kv>(mut open: impl FnMut() -> K) -> Result<(), KvFailure> {
    let rules: [Rule<K>; 11] = [
        ("what was put is read back, and what was deleted is not there", put_get_delete),
        ("keys and values may hold any bytes, and a value may be empty", any_bytes),
        ("each commit has a higher revision, and all its keys have that one", revisions),
        ("each precondition holds when it should, and only then", preconditions),
        ("a commit that conflicts changes nothing", conflicts_change_nothing),
        ("a key that is written again has another revision, even with the same value", no_return),
        ("preconditions are about what was before the commit's own changes", before_its_own),
        ("a commit without changes only checks", only_checks),
        ("a range is in order, from its first key on and before its last", ranges),
        ("commits up to the limits are made, and larger ones are refused", limits),
        ("a long random history is as in a sorted map", random_history),
    ];
    for (rule, keeps) in rules {
        keeps(&mut open()).map_err(|found| KvFailure { rule, found })?;
    }
    Ok(())
}

fn key(text: &str) -> KvKey {
    KvKey(text.as_bytes().to_vec())
}

fn put(name: &str, value: &[u8]) -> KvWrite {
    KvWrite::Put(key(name), value.to_vec())
}

fn is(found: impl fmt::Debug + PartialEq, expected: impl fmt::Debug, equal: bool) -> Verdict {
    if equal { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
}

fn same<T: fmt::Debug + PartialEq>(found: T, expected: T) -> Verdict {
    let equal = found == expected;
    is(found, expected, equal)
}

fn done<K: Kv>(kv: &mut K, expect: Vec<(KvKey, Expect)>, writes: Vec<KvWrite>) -> Result<Revision, String> {
    match kv.commit(&Commit { expect, writes }) {
        CommitOutcome::Done(revision) => Ok(revision),
        other => Err(format!("the commit is {other:?} instead of done")),
    }
}

fn refused<K: Kv>(kv: &mut K, expect: Vec<(KvKey, Expect)>, writes: Vec<KvWrite>, as_: CommitOutcome) -> Verdict {
    same(kv.commit(&Commit { expect, writes }), as_)
}

fn value<K: Kv>(kv: &mut K, of: &KvKey) -> Result<Option<Versioned>, String> {
    kv.get(of).map_err(|_| "no answer".into())
}

fn range<K: Kv>(kv: &mut K, from: &KvKey, until: &KvKey, most: usize) -> Result<Vec<(KvKey, Versioned)>, String> {
    kv.range(from, until, most).map_err(|_| "no answer".into())
}

fn put_get_delete<K: Kv>(kv: &mut K) -> Verdict {
    same(value(kv, &key("a"))?, None)?;
    let revision = done(kv, vec![], vec![put("a", b"1"), put("b", b"2")])?;
    same(value(kv, &key("a"))?, Some(Versioned { value: b"1".to_vec(), revision }))?;
    done(kv, vec![], vec![KvWrite::Delete(key("a")), KvWrite::Delete(key("never"))])?;
    same(value(kv, &key("a"))?, None)?;
    same(value(kv, &key("b"))?, Some(Versioned { value: b"2".to_vec(), revision }))
}

fn any_bytes<K: Kv>(kv: &mut K) -> Verdict {
    let keys = [vec![0], vec![0, 0], vec![0xff; 300], (0..=255).collect::<Vec<u8>>()];
    for name in keys {
        let name = KvKey(name);
        for bytes in [vec![], vec![0], (0..=255).collect()] {
            done(kv, vec![], vec![KvWrite::Put(name.clone(), bytes.clone())])?;
            same(value(kv, &name)?.map(|found| found.value), Some(bytes))?;
        }
    }
    Ok(())
}

fn revisions<K: Kv>(kv: &mut K) -> Verdict {
    let mut last = Revision(0);
    for turn in 0..5u8 {
        let revision = done(kv, vec![], vec![put("a", &[turn]), put("b", &[turn])])?;
        is(revision, ("above", last), revision > last)?;
        for name in ["a", "b"] {
            same(value(kv, &key(name))?.map(|found| found.revision), Some(revision))?;
        }
        last = revision;
    }
    done(kv, vec![], vec![put("c", b"")])?;
    same(value(kv, &key("a"))?.map(|found| found.revision), Some(last))
}

fn preconditions<K: Kv>(kv: &mut K) -> Verdict {
    let revision = done(kv, vec![], vec![put("a", b"1")])?;
    let other = Revision(revision.0 + 1);
    let cases = [
        ("a", Expect::Present, true),
        ("a", Expect::Absent, false),
        ("a", Expect::Value(b"1".to_vec()), true),
        ("a", Expect::Value(b"".to_vec()), false),
        ("a", Expect::Value(b"11".to_vec()), false),
        ("a", Expect::Revision(revision), true),
        ("a", Expect::Revision(other), false),
        ("b", Expect::Present, false),
        ("b", Expect::Absent, true),
        ("b", Expect::Value(b"".to_vec()), false),
        ("b", Expect::Revision(Revision(0)), false),
        ("b", Expect::Revision(revision), false),
    ];
    for (name, expect, holds) in cases {
        let outcome = kv.commit(&Commit { expect: vec![(key(name), expect.clone())], writes: vec![put("c", b"")] });
        is(outcome, (name, expect, holds), matches!(outcome, CommitOutcome::Done(_)) == holds)?;
        is(outcome, "done or a conflict", matches!(outcome, CommitOutcome::Done(_) | CommitOutcome::Conflict))?;
    }
    Ok(())
}

fn conflicts_change_nothing<K: Kv>(kv: &mut K) -> Verdict {
    done(kv, vec![], vec![put("a", b"1"), put("b", b"1")])?;
    let expect = vec![(key("a"), Expect::Value(b"1".to_vec())), (key("b"), Expect::Absent)];
    let writes = vec![put("a", b"2"), KvWrite::Delete(key("b")), put("c", b"2")];
    refused(kv, expect, writes, CommitOutcome::Conflict)?;
    for (name, expected) in [("a", Some(b"1".to_vec())), ("b", Some(b"1".to_vec())), ("c", None)] {
        same(value(kv, &key(name))?.map(|found| found.value), expected)?;
    }
    Ok(())
}

fn no_return<K: Kv>(kv: &mut K) -> Verdict {
    let first = done(kv, vec![], vec![put("a", b"1")])?;
    done(kv, vec![], vec![put("a", b"1")])?;
    refused(kv, vec![(key("a"), Expect::Revision(first))], vec![put("b", b"")], CommitOutcome::Conflict)?;
    done(kv, vec![], vec![KvWrite::Delete(key("a"))])?;
    done(kv, vec![], vec![put("a", b"1")])?;
    refused(kv, vec![(key("a"), Expect::Revision(first))], vec![put("b", b"")], CommitOutcome::Conflict)
}

fn before_its_own<K: Kv>(kv: &mut K) -> Verdict {
    done(kv, vec![(key("a"), Expect::Absent)], vec![put("a", b"1")])?;
    refused(kv, vec![(key("a"), Expect::Absent)], vec![put("a", b"2")], CommitOutcome::Conflict)?;
    done(kv, vec![(key("a"), Expect::Value(b"1".to_vec()))], vec![KvWrite::Delete(key("a"))])?;
    same(value(kv, &key("a"))?, None)
}

fn only_checks<K: Kv>(kv: &mut K) -> Verdict {
    done(kv, vec![], vec![put("a", b"1")])?;
    let before = value(kv, &key("a"))?;
    done(kv, vec![(key("a"), Expect::Present)], vec![])?;
    refused(kv, vec![(key("a"), Expect::Absent)], vec![], CommitOutcome::Conflict)?;
    same(value(kv, &key("a"))?, before)
}

fn ranges<K: Kv>(kv: &mut K) -> Verdict {
    let names: [&[u8]; 6] = [b"a", b"a\0", b"a\xff", b"b", b"ba", b"c"];
    done(kv, vec![], names.iter().map(|name| KvWrite::Put(KvKey(name.to_vec()), b"".to_vec())).collect())?;
    let cases: [RangeCase; 7] = [
        (b"a", b"c", 10, 0..5),
        (b"a", b"c", 2, 0..2),
        (b"a\0", b"b", 10, 1..3),
        (b"a\x01", b"ba\0", 10, 2..5),
        (b"b", b"b", 10, 0..0),
        (b"c", b"a", 10, 0..0),
        (b"a", b"z", 0, 0..0),
    ];
    for (from, until, most, expected) in cases {
        let found = range(kv, &KvKey(from.to_vec()), &KvKey(until.to_vec()), most)?;
        let found: Vec<Vec<u8>> = found.into_iter().map(|(key, _)| key.0).collect();
        same(found, names[expected].iter().map(|name| name.to_vec()).collect())?;
    }
    let numbered = |n: usize| key(&format!("n{n:05}"));
    for part in 0..=RANGE_MAX / 64 {
        let of = part * 64..part * 64 + 64;
        done(kv, vec![], of.map(|n| KvWrite::Put(numbered(n), b"".to_vec())).collect())?;
    }
    same(range(kv, &key("n"), &key("o"), usize::MAX)?.len(), RANGE_MAX)
}

fn limits<K: Kv>(kv: &mut K) -> Verdict {
    let many = |count: usize| (0..count).map(|n| put(&format!("k{n:03}"), b"")).collect::<Vec<_>>();
    let absent = vec![(key("x"), Expect::Absent)];
    done(kv, absent.clone(), many(COMMIT_KEYS_MAX - 1))?;
    refused(kv, absent, many(COMMIT_KEYS_MAX), CommitOutcome::TooLarge)?;
    let large = |bytes: usize| vec![KvWrite::Put(key("l"), vec![7; bytes])];
    done(kv, vec![], large(COMMIT_BYTES_MAX - 1))?;
    refused(kv, vec![], large(COMMIT_BYTES_MAX), CommitOutcome::TooLarge)?;
    same(value(kv, &key("l"))?.map(|found| found.value.len()), Some(COMMIT_BYTES_MAX - 1))?;
    refused(kv, vec![], vec![put("t", b"1"), put("t", b"2")], CommitOutcome::TooLarge)?;
    let twice = vec![(key("t"), Expect::Absent), (key("t"), Expect::Absent)];
    refused(kv, twice, vec![put("t", b"1")], CommitOutcome::TooLarge)?;
    refused(kv, vec![], vec![put("", b"1")], CommitOutcome::TooLarge)?;
    same(value(kv, &key("t"))?, None)
}

/// Commits and reads of a few keys, beside a map of what each was last.
fn random_history<K: Kv>(kv: &mut K) -> Verdict {
    let mut random = SplitMix64::new(0x5eed);
    let mut map: BTreeMap<KvKey, Versioned> = BTreeMap::new();
    let some = |random: &mut SplitMix64| key(&format!("r{}", random.below(6)));
    for _ in 0..400 {
        let (one, other, bytes) = (some(&mut random), some(&mut random), vec![random.below(3) as u8]);
        let expect = match random.below(4) {
            0 => Expect::Absent,
            1 => Expect::Present,
            2 => Expect::Value(vec![random.below(3) as u8]),
            _ => map.get(&one).map_or(Expect::Absent, |found| Expect::Revision(found.revision)),
        };
        let holds = match (&expect, map.get(&one)) {
            (Expect::Absent, found) => found.is_none(),
            (Expect::Present, found) => found.is_some(),
            (Expect::Value(value), found) => found.is_some_and(|found| found.value == *value),
            (Expect::Revision(revision), found) => found.is_some_and(|found| found.revision == *revision),
        };
        let is_delete = random.below(3) == 0;
        let write = if is_delete { KvWrite::Delete(other.clone()) } else { KvWrite::Put(other.clone(), bytes.clone()) };
        match (kv.commit(&Commit { expect: vec![(one, expect)], writes: vec![write] }), holds) {
            (CommitOutcome::Done(_), true) if is_delete => drop(map.remove(&other)),
            (CommitOutcome::Done(revision), true) => drop(map.insert(other, Versioned { value: bytes, revision })),
            (CommitOutcome::Conflict, false) => {}
            (outcome, _) => return Err(format!("{outcome:?} where the precondition holds: {holds}")),
        }
        same(range(kv, &key("r"), &key("s"), 10)?, map.clone().into_iter().collect())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{KvUnavailable, MemoryKv};

    /// How an implementation can be wrong.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Flaw {
        None,
        HalfOfAConflict,
        NoLimit,
        EndIncluded,
        RevisionPerKey,
        NoAnswer,
    }

    struct Flawed(MemoryKv, Flaw);

    impl Kv for Flawed {
        fn get(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable> {
            if self.1 == Flaw::NoAnswer { Err(KvUnavailable) } else { self.0.get(key) }
        }

        fn range(
            &mut self,
            from: &KvKey,
            until: &KvKey,
            most: usize,
        ) -> Result<Vec<(KvKey, Versioned)>, KvUnavailable> {
            let mut until = until.clone();
            if self.1 == Flaw::EndIncluded {
                until.0.push(0);
            }
            self.0.range(from, &until, most)
        }

        fn commit(&mut self, commit: &Commit) -> CommitOutcome {
            let write = |write: &KvWrite| Commit { expect: vec![], writes: vec![write.clone()] };
            match self.1 {
                Flaw::NoLimit if !commit.is_legal() => self.0.commit(&write(&commit.writes[0])),
                Flaw::RevisionPerKey if commit.is_legal() && commit.expect.is_empty() => commit
                    .writes
                    .iter()
                    .map(|each| self.0.commit(&write(each)))
                    .last()
                    .unwrap_or(CommitOutcome::Unknown),
                Flaw::HalfOfAConflict => {
                    let outcome = self.0.commit(commit);
                    if let (CommitOutcome::Conflict, Some(each)) = (outcome, commit.writes.first()) {
                        self.0.commit(&write(each));
                    }
                    outcome
                }
                _ => self.0.commit(commit),
            }
        }
    }

    #[test]
    fn it_finds_what_is_wrong() {
        let run = |flaw| conformance(|| Flawed(MemoryKv::default(), flaw));
        assert_eq!(run(Flaw::None), Ok(()));
        for flaw in [Flaw::HalfOfAConflict, Flaw::NoLimit, Flaw::EndIncluded, Flaw::RevisionPerKey, Flaw::NoAnswer] {
            assert!(run(flaw).is_err(), "{flaw:?}");
        }
    }
}
