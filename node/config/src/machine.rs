//! The machine that is to run a configuration, as far as the configuration can be wrong for it.

use super::media::MediaConfig;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use weir_units::Bytes;

/// The machine of a configuration that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// None: its text alone is checked.
    Any,
    /// The one that this process runs on.
    This,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Identity {
    /// By file system and inode.
    File(u64, u64),
    /// By device number.
    Block(u64),
    /// A file that is yet to be made: its name in a folder that is there.
    New(u64, u64, std::ffi::OsString),
    /// Nothing is known but its path.
    Path(PathBuf),
}

impl Machine {
    /// The CPUs that a node may run on; none where they are not known.
    pub(super) fn cores(self) -> Option<Vec<usize>> {
        match self {
            Machine::Any => None,
            Machine::This => weir_sys::sched::allowed().ok(),
        }
    }

    /// What a medium is, where it is a file or a block device.
    pub(super) fn identity(self, media: &MediaConfig) -> Option<Identity> {
        match media {
            MediaConfig::File(path) | MediaConfig::Block(path) if self == Machine::This => Some(identity(path)),
            _ => None,
        }
    }

    /// How large a file is that a drive without `capacity` takes its size from.
    pub(super) fn size(self, media: &MediaConfig) -> Option<Bytes> {
        match (self, media) {
            (Machine::This, MediaConfig::File(path)) => {
                let meta = std::fs::metadata(path).ok()?;
                meta.is_file().then_some(Bytes(meta.len()))
            }
            _ => None,
        }
    }

    /// Whether a file or block device is a pool's drive already.
    pub(super) fn has_pool(self, media: &MediaConfig) -> bool {
        match media {
            MediaConfig::File(path) | MediaConfig::Block(path) if self == Machine::This => has_pool(path),
            _ => false,
        }
    }
}

/// One of the two copies of its metadata is enough.
fn has_pool(path: &Path) -> bool {
    // A pipe, say, would have to be waited for.
    let whole = |meta: &std::fs::Metadata| meta.is_file() || meta.file_type().is_block_device();
    let file = std::fs::metadata(path).ok().filter(whole).and_then(|_| std::fs::File::open(path).ok());
    let begins = |file: &std::fs::File, at: u64| {
        let mut magic = [0; weir_pool::MAGIC.len()];
        file.read_exact_at(&mut magic, at).is_ok() && magic == weir_pool::MAGIC
    };
    file.is_some_and(|file| begins(&file, 0) || begins(&file, weir_pool::STRIPE as u64))
}

fn identity(path: &Path) -> Identity {
    if let Ok(meta) = std::fs::metadata(path) {
        let block = meta.file_type().is_block_device();
        return if block { Identity::Block(meta.rdev()) } else { Identity::File(meta.dev(), meta.ino()) };
    }
    let parent = path.parent().and_then(|folder| std::fs::metadata(folder).ok());
    match (parent, path.file_name()) {
        (Some(folder), Some(name)) => Identity::New(folder.dev(), folder.ino(), name.to_owned()),
        _ => Identity::Path(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_identity_by_every_path() {
        let dir = std::env::temp_dir().join(format!("weir-machine-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("below")).unwrap();
        std::fs::write(dir.join("a"), "a").unwrap();
        std::fs::write(dir.join("b"), "b").unwrap();
        std::fs::hard_link(dir.join("a"), dir.join("hard")).unwrap();
        std::os::unix::fs::symlink("a", dir.join("soft")).unwrap();
        let of = |path: &str| identity(&dir.join(path));
        for other in ["./a", "below/../a", "hard", "soft"] {
            assert_eq!(of(other), of("a"), "{other}");
        }
        assert_eq!(of("new"), of("below/../new"));
        assert_ne!(of("new"), of("below/new"));
        assert_ne!(of("a"), of("b"));
        assert_ne!(of("nowhere/a"), of("nowhere/b"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
