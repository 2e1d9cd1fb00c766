//! `weir store fsck` over a store that no service has: the checks are those of [`weir_store::fsck`].
//!
//! A file is one process's: it is locked. In etcd the service's lease says who has the store ([`etcd`]).

mod etcd;

#[cfg(test)]
mod tests;

use crate::embedded::{Durability, EmbeddedKv};
use std::path::Path;
use weir_config::StoreMeta;
use weir_store::fsck::{Image, RepairReport, repair_watched};

/// What was found, and how much was looked at.
#[derive(Clone, Debug, Default)]
pub struct FsckReport {
    /// Records of the store.
    pub records: usize,
    /// What was put right, and what is left; without a repair all is left.
    pub findings: RepairReport,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsckStep {
    /// It is seen whether a service renews its lease: for four seconds at the most.
    Waits,
    /// So many records were read, since the reading began.
    Reads(usize),
}

/// Checks the metadata there, and with `repairs` puts right what can be. `watch` is told what is being done.
///
/// # Errors
/// There is no store, a service has it or stands by to have it, or it cannot be read or changed.
pub fn fsck(meta: &StoreMeta, repairs: bool, watch: &mut dyn FnMut(FsckStep)) -> Result<FsckReport, String> {
    match meta {
        StoreMeta::Redb(path) => in_file(path, repairs, &mut |records| watch(FsckStep::Reads(records))),
        StoreMeta::Etcd(meta) => etcd::fsck(meta, repairs, watch),
        StoreMeta::Memory => Err("memory: such metadata are their service's alone".into()),
    }
}

fn in_file(path: &Path, repairs: bool, watch: &mut dyn FnMut(usize)) -> Result<FsckReport, String> {
    if !path.exists() {
        return Err(format!("{}: there is no such file", path.display()));
    }
    let silent = |_| format!("{}: it does not answer", path.display());
    // What was put right is on the medium when that is said.
    let mut kv = EmbeddedKv::open(path, Durability::Power).map_err(|e| e.to_string())?;
    let image = Image::read_watched(&mut kv, watch).map_err(silent)?;
    let (records, places) = (image.records(), image.places());
    let findings = match repairs {
        true => repair_watched(&mut kv, &places, watch).map_err(silent)?,
        false => RepairReport { repaired: Vec::new(), left: image.findings(&places) },
    };
    match kv.trouble() {
        Some(trouble) => Err(trouble),
        None => Ok(FsckReport { records, findings }),
    }
}
