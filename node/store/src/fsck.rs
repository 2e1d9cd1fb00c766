//! `weir store fsck` over the file of a store that no service has open: the checks are those of [`weir_store::fsck`].

use crate::embedded::{Durability, EmbeddedKv};
use std::path::Path;
use weir_store::fsck::{Image, RepairReport, repair_watched};

/// What was found, and how much was looked at.
#[derive(Clone, Debug, Default)]
pub struct FsckReport {
    /// Records of the store.
    pub records: usize,
    /// What was put right, and what is left; without a repair all is left.
    pub findings: RepairReport,
}

/// Checks the metadata in a file, and with `repairs` puts right what can be. `watch` is told how many records were read so far.
///
/// # Errors
/// There is no such file, a service has it open, it is none of a store, or it cannot be read.
pub fn fsck(path: &Path, repairs: bool, watch: &mut dyn FnMut(usize)) -> Result<FsckReport, String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::keys::{inode_key, name_key};
    use weir_store::kv::{Commit, Kv as _, KvWrite};
    use weir_store::{EntryName, InodeId, UnixNanos, make_store};

    #[test]
    fn a_file_is_checked_and_put_right_while_nobody_has_it() {
        let folder = std::env::temp_dir().join(format!("weir-fsck-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("meta.redb");
        let check = |repairs| fsck(&path, repairs, &mut |_| {});
        assert!(check(false).expect_err("nothing is there").contains("no such file") && !path.exists());
        let other = folder.join("other");
        std::fs::write(&other, [7; 100_000]).expect("it is written");
        assert!(fsck(&other, false, &mut |_| {}).is_err());
        let left: Vec<_> = std::fs::read_dir(&folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
        assert_eq!(left, [other], "nothing is left beside a file that is no store");
        let mut kv = EmbeddedKv::open(&path, Durability::Process).expect("it opens");
        kv.commit(&make_store(7, UnixNanos(1)));
        assert!(check(false).expect_err("it is in use").contains("somebody has the store open"));
        drop(kv);
        let report = check(false).expect("it opens");
        assert!(report.records > 3 && report.findings.left.is_empty(), "{report:?}");
        let mut kv = EmbeddedKv::open(&path, Durability::Process).expect("it opens");
        let value = kv.get(&inode_key(InodeId::ROOT)).expect("an answer").expect("the root").value;
        let name = name_key(InodeId::ROOT, &EntryName::new(b"x").expect("a name"));
        let writes = vec![KvWrite::Put(name, value), KvWrite::Delete(inode_key(InodeId::ROOT))];
        kv.commit(&Commit { expect: Vec::new(), writes });
        drop(kv);
        assert_eq!(check(false).expect("it opens").findings.left.len(), 3, "the name, the root, and its parent record");
        let report = check(true).expect("it opens");
        assert!(report.findings.repaired.len() >= 2 && report.findings.left.is_empty(), "{report:?}");
        let report = check(true).expect("it opens");
        assert!(report.findings.repaired.is_empty() && report.findings.left.is_empty(), "{report:?}");
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }
}
