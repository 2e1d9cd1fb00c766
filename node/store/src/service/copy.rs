//! A block that gets a copy elsewhere: one copy whose bytes are those of the checksums is read, the new one written and flushed.

use super::recover::told;
use crate::label;
use crate::tier::{BlockingNamespace, TierOptions};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_driver::TransportError;
use weir_store::NamespaceId;
use weir_store::service::{BlockCopy, MoveBlock, TierAnswer};
use weir_store::space::BLOCK_MAX;
use weir_sys::crc::crc32c_append;

/// How long drives stay open for the next block: nothing keeps their associations alive meanwhile.
pub(super) const IDLE: Duration = Duration::from_millis(500);

/// Drives that blocks are read from and written to, as long as there are more.
#[derive(Debug, Default)]
pub(super) struct CopyDrives(BTreeMap<(NamespaceId, String), BlockingNamespace>);

impl CopyDrives {
    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves all of them.
    pub fn close(&mut self) {
        self.0.clear();
    }

    /// Makes the copy.
    ///
    /// # Errors
    /// No copy could be read, or none has the bytes of its checksums: which, and why. Nothing was written then.
    pub fn copy(&mut self, block: &MoveBlock, options: &TierOptions) -> Result<TierAnswer, String> {
        let mut bytes = vec![0; usize::try_from(block.length.min(BLOCK_MAX)).unwrap_or_default()];
        let mut failures = Vec::new();
        let mut is_read = false;
        for source in &block.sources {
            let read = self.with(block.store, source, options, |drive| drive.read(source.offset, &mut bytes));
            match read {
                Ok(()) if block.seed.checksums(&bytes, crc32c_append) == block.checksums => {
                    is_read = true;
                    break;
                }
                Ok(()) => failures.push(format!("{}: its bytes are not those of its checksums", source.target)),
                Err(e) => failures.push(told(source, &e)),
            }
        }
        if !is_read {
            return Err(failures.join("; "));
        }
        let to = &block.to;
        let written = self.with(block.store, to, options, |drive| {
            drive.write(to.offset, &bytes)?;
            drive.flush()
        });
        Ok(match written {
            Ok(()) => TierAnswer::Moved { checksums: block.becomes.checksums(&bytes, crc32c_append) },
            Err(e) => TierAnswer::NotWritten { why: told(to, &e) },
        })
    }

    /// Does something at a copy's drive, which is opened if it is not, and left if it fails.
    fn with(
        &mut self,
        store: u64,
        copy: &BlockCopy,
        options: &TierOptions,
        work: impl FnOnce(&mut BlockingNamespace) -> Result<(), TransportError>,
    ) -> Result<(), TransportError> {
        let key = (copy.namespace, copy.target.clone());
        let mut drive = match self.0.remove(&key) {
            Some(drive) => drive,
            None => {
                let label = Some(label::check(store, copy.namespace, copy.content));
                BlockingNamespace::open(&copy.target, TierOptions { label, ..options.clone() })?
            }
        };
        work(&mut drive)?;
        self.0.insert(key, drive);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::recover::tests::{Folder, LENGTH, OFFSET, STORE, block_at, drive};
    use weir_store::file::BlockSeed;
    use weir_store::members::ContentLabel;
    use weir_store::{Generation, InodeId};

    /// Of two copies one has other bytes, and of the drives that it may go to one is a stranger's.
    #[test]
    fn only_the_bytes_of_the_checksums_are_copied() {
        let folder = Folder::new("copy");
        let path = |number: u64| folder.path(number);
        [(1, 1, 7), (2, 2, 8), (3, 3, 9), (4, 44, 9)]
            .into_iter()
            .for_each(|(at, number, byte)| drive(&path(at), number, byte));
        let copy = |index: usize, number: u64| BlockCopy {
            index,
            target: format!("file:{}", path(number).display()),
            namespace: NamespaceId(number),
            content: ContentLabel(number.into()),
            offset: OFFSET,
        };
        let seed = BlockSeed { inode: InodeId(5), block: 6, generation: Generation(7) };
        let becomes = BlockSeed { generation: Generation(8), ..seed };
        let bytes = vec![8; LENGTH as usize];
        let block = |sources: Vec<BlockCopy>, to: BlockCopy| MoveBlock {
            store: STORE,
            seed,
            checksums: seed.checksums(&bytes, crc32c_append),
            becomes,
            length: LENGTH,
            sources,
            to,
        };
        let options = TierOptions { allow_files: true, lease: None, ..TierOptions::default() };
        let mut drives = CopyDrives::default();
        let mut copied = |block: MoveBlock| drives.copy(&block, &options);
        let nobody = copied(block(vec![copy(0, 1), copy(1, 9)], copy(1, 3))).expect_err("other bytes, and nothing");
        assert!(nobody.contains("/1: its bytes are not those of its checksums") && nobody.contains("/9: "), "{nobody}");
        assert_eq!(block_at(&path(3)), vec![9; LENGTH as usize], "nothing was written");
        let stranger = copied(block(vec![copy(0, 2)], copy(1, 4))).expect("it was read");
        assert!(
            matches!(&stranger, TierAnswer::NotWritten { why } if why.contains("/4: another namespace")),
            "{stranger:?}"
        );
        assert_eq!(block_at(&path(4)), vec![9; LENGTH as usize]);
        let moved = copied(block(vec![copy(0, 1), copy(1, 2)], copy(0, 3)));
        assert_eq!(moved, Ok(TierAnswer::Moved { checksums: becomes.checksums(&bytes, crc32c_append) }));
        assert_eq!(block_at(&path(3)), bytes);
        // Drives that were open are still the right ones.
        assert_eq!(drives.0.len(), 3);
        drives.close();
        assert!(drives.is_empty());
    }
}
