//! Repairs, each by one commit that expects what it was made for.

use super::finding::{Finding, Repair};
use super::image::{Image, RegionPlaces};
use crate::kv::{Commit, CommitOutcome, Expect, Kv, KvUnavailable};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// How often the store is read again at the most: each time what was put right may have shown what lay behind it.
const ROUNDS_MAX: usize = 64;

/// What a repair has come to.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// What was found and put right.
    pub repaired: Vec<Finding>,
    /// What is left.
    pub left: Vec<Finding>,
}

/// Finds what is wrong and puts right what can be, until nothing more can.
///
/// # Errors
/// The key-value store did not answer; what was put right so far stays so.
pub fn repair(kv: &mut impl Kv, places: &RegionPlaces) -> Result<RepairReport, KvUnavailable> {
    repair_watched(kv, places, &mut |_| {})
}

/// The same; `watch` is told how many records each reading has read so far.
///
/// # Errors
/// The key-value store did not answer; what was put right so far stays so.
pub fn repair_watched(
    kv: &mut impl Kv,
    places: &RegionPlaces,
    watch: &mut dyn FnMut(usize),
) -> Result<RepairReport, KvUnavailable> {
    let mut report = RepairReport::default();
    for _ in 0..ROUNDS_MAX {
        let image = Image::read_watched(kv, watch)?;
        let findings = image.findings(places);
        let (mut done, mut touched) = (0, BTreeSet::new());
        for finding in &findings {
            let Repair::Writes(writes) = &finding.repair else { continue };
            // What another repair of this round has changed is looked at again in the next.
            if writes.iter().any(|write| touched.contains(write.key())) {
                continue;
            }
            let expect = writes.iter().map(|write| {
                let expect = image.raw(write.key()).map_or(Expect::Absent, |value| Expect::Value(value.into()));
                (write.key().clone(), expect)
            });
            let commit = Commit { expect: expect.collect(), writes: writes.clone() };
            match kv.commit(&commit) {
                CommitOutcome::Done(_) => {
                    touched.extend(writes.iter().map(|write| write.key().clone()));
                    report.repaired.push(finding.clone());
                    done += 1;
                }
                CommitOutcome::Conflict | CommitOutcome::TooLarge => {}
                CommitOutcome::Unknown => return Err(KvUnavailable),
            }
        }
        if done == 0 {
            report.left = findings;
            break;
        }
    }
    Ok(report)
}
