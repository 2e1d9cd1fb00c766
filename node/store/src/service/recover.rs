//! A block that a lost writer has left: one copy is read, the others are written from it, and all are flushed.

use crate::label;
use crate::tier::{BlockingNamespace, TierOptions};
use weir_driver::TransportError;
use weir_store::service::{BlockCopy, RecoverBlock, TierAnswer};
use weir_store::space::BLOCK_MAX;
use weir_sys::crc::crc32c_append;

/// A copy that can be reached.
struct Reached<'a> {
    copy: &'a BlockCopy,
    namespace: BlockingNamespace,
}

impl Reached<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.namespace.write(self.copy.offset, bytes)
    }
}

/// Carries out a recovery.
///
/// # Errors
/// No copy could be read, or none has its bytes on the medium: which, and why.
pub(super) fn recover(block: &RecoverBlock, options: &TierOptions) -> Result<TierAnswer, String> {
    let length = usize::try_from(block.length.min(BLOCK_MAX)).unwrap_or_default();
    let (mut reached, mut failures) = (Vec::new(), Vec::new());
    for copy in &block.copies {
        let label = Some(label::check(block.store, copy.namespace, copy.content));
        match BlockingNamespace::open(&copy.target, TierOptions { label, is_locked: true, ..options.clone() }) {
            Ok(namespace) => reached.push(Reached { copy, namespace }),
            Err(e) => failures.push(told(copy, &e)),
        }
    }
    let mut bytes = vec![0; length];
    let mut source = None;
    for (at, reached) in reached.iter_mut().enumerate() {
        match reached.namespace.read(reached.copy.offset, &mut bytes) {
            Ok(()) => {
                source = Some(at);
                break;
            }
            Err(e) => failures.push(told(reached.copy, &e)),
        }
    }
    let Some(source) = source else { return Err(failures.join("; ")) };
    let behind = &mut bytes[usize::try_from(block.used).unwrap_or(length).min(length)..];
    let is_changed = behind.iter().any(|byte| *byte != 0);
    behind.fill(0);
    let mut good = Vec::new();
    for (at, reached) in reached.iter_mut().enumerate() {
        let written = if at == source && !is_changed { Ok(()) } else { reached.write(&bytes) };
        // What the lost writer wrote to the one that was read may be in the drive's memory alone.
        match written.and_then(|()| reached.namespace.flush()) {
            Ok(()) => good.push(reached.copy.index),
            Err(e) => failures.push(told(reached.copy, &e)),
        }
    }
    good.sort_unstable();
    if good.is_empty() {
        return Err(failures.join("; "));
    }
    Ok(TierAnswer::Recovered { checksums: block.seed.checksums(&bytes, crc32c_append), good })
}

/// What is wrong with a copy, with its target.
pub(super) fn told(copy: &BlockCopy, why: &TransportError) -> String {
    let why = why.to_string();
    if why.contains(&copy.target) { why } else { format!("{}: {why}", copy.target) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;
    use weir_store::file::BlockSeed;
    use weir_store::members::ContentLabel;
    use weir_store::{Generation, InodeId, NamespaceId};

    pub const STORE: u64 = 9;
    pub const OFFSET: u64 = 1 << 20;
    pub const LENGTH: u64 = 128 << 10;

    pub struct Folder(std::path::PathBuf);

    impl Folder {
        pub fn new(name: &str) -> Self {
            let folder = Self(std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id())));
            std::fs::create_dir_all(&folder.0).expect("a folder");
            folder
        }

        pub fn path(&self, number: u64) -> std::path::PathBuf {
            self.0.join(number.to_string())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).expect("the folder goes");
        }
    }

    pub fn drive(path: &Path, number: u64, byte: u8) {
        let file = std::fs::File::create(path).expect("a drive");
        file.set_len(4 << 20).expect("a size");
        file.write_all_at(&label::encode(STORE, NamespaceId(number), ContentLabel(number.into())), 0).expect("a label");
        file.write_all_at(&vec![byte; LENGTH as usize], OFFSET).expect("a block");
    }

    pub fn block_at(path: &Path) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH as usize];
        std::fs::File::open(path).expect("a drive").read_exact_at(&mut bytes, OFFSET).expect("a block");
        bytes
    }

    /// Three drives with different bytes in the block's place, of which one is a stranger's and one is gone.
    #[test]
    fn all_copies_that_can_be_are_made_alike() {
        let folder = Folder::new("recover");
        let path = |number: u64| folder.path(number);
        [(1, 1, 7), (2, 2, 8), (3, 33, 9)].into_iter().for_each(|(at, number, byte)| drive(&path(at), number, byte));
        let copy = |index: usize, number: u64| BlockCopy {
            index,
            target: format!("file:{}", path(number).display()),
            namespace: NamespaceId(number),
            content: ContentLabel(number.into()),
            offset: OFFSET,
        };
        let seed = BlockSeed { inode: InodeId(5), block: 6, generation: Generation(7) };
        let recovered_of = |used: u64, copies: Vec<BlockCopy>| {
            let options = TierOptions { allow_files: true, ..TierOptions::default() };
            recover(&RecoverBlock { store: STORE, seed, length: LENGTH, used, copies }, &options)
        };
        let recovered = |copies| recovered_of(LENGTH, copies);
        let nobody = recovered(vec![copy(0, 3), copy(1, 4)]).expect_err("a stranger, and nothing");
        assert!(nobody.contains("/3: another namespace") && nobody.contains("/4: "), "{nobody}");
        assert_eq!((block_at(&path(1)), block_at(&path(3))), (vec![7; LENGTH as usize], vec![9; LENGTH as usize]));
        let bytes = vec![8; LENGTH as usize];
        let checksums = seed.checksums(&bytes, crc32c_append);
        let answer = recovered(vec![copy(0, 4), copy(2, 2), copy(3, 1), copy(1, 3)]);
        assert_eq!(answer, Ok(TierAnswer::Recovered { checksums, good: vec![2, 3] }));
        assert_eq!((block_at(&path(1)), block_at(&path(2))), (bytes.clone(), bytes));
        // Another process may be in the middle of it, and stand still: it is not overtaken.
        let other = std::fs::File::open(path(1)).expect("a drive");
        flock(&other, FlockOperation::LockExclusive).expect("a lock");
        let waits = recovered(vec![copy(3, 1)]).expect_err("the drive is locked");
        assert!(waits.contains("another process is at work on it"), "{waits}");
        drop(other);
        // What was written behind the file's size is not the file's: also in the copy that is read.
        let (mut short, used) = (vec![8; LENGTH as usize], 70_000);
        short[used..].fill(0);
        let checksums = seed.checksums(&short, crc32c_append);
        let answer = recovered_of(used as u64, vec![copy(2, 2), copy(3, 1)]);
        assert_eq!(answer, Ok(TierAnswer::Recovered { checksums, good: vec![2, 3] }));
        assert_eq!((block_at(&path(1)), block_at(&path(2))), (short.clone(), short));
        assert_eq!(block_at(&path(3)), vec![9; LENGTH as usize], "a stranger's is left alone");
    }
}
