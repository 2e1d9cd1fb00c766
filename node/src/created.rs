//! Images of new drives and the files beside them, which a start creates. If it fails, they are removed again.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use weir_config::{Config, MediaConfig};
use weir_sys::lock;
use weir_sys::media::{FlashState, MetadataFile, NonvolatileFile};

/// The images that were missing or empty before the start. One that has bytes is never touched.
#[derive(Debug, Default)]
pub(crate) struct Created(Vec<Image>);

#[derive(Debug)]
struct Image {
    path: PathBuf,
    was_missing: bool,
    /// Files beside it that were missing.
    beside: Vec<PathBuf>,
}

impl Created {
    /// Looks at what there is before the drives are opened.
    pub(crate) fn by_start_of(config: &Config) -> Self {
        let image = |media: &MediaConfig| match media {
            MediaConfig::File(path) => Image::of(path),
            _ => None,
        };
        Created(config.devices.iter().filter_map(|device| image(&device.media)).collect())
    }

    /// The start has failed, and its drives are closed.
    pub(crate) fn remove(&self) {
        self.0.iter().for_each(Image::remove);
    }
}

impl Image {
    fn of(path: &Path) -> Option<Image> {
        let was_missing = match std::fs::metadata(path) {
            Ok(found) if found.is_file() && found.len() == 0 => false,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
            _ => return None,
        };
        let beside = [FlashState::path_of(path), NonvolatileFile::path_of(path), MetadataFile::path_of(path)];
        let beside = beside.into_iter().filter(|path| !path.exists()).collect();
        Some(Image { path: path.to_owned(), was_missing, beside })
    }

    /// Another node may have made it in the same moment: whoever has its lock keeps it.
    fn remove(&self) {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&self.path).map(OwnedFd::from) else {
            // It was not made, so nothing was made beside it.
            return;
        };
        if lock::exclusive(&file) != Ok(true) {
            return;
        }
        for path in &self.beside {
            let _ = std::fs::remove_file(path);
        }
        if self.was_missing {
            let _ = std::fs::remove_file(&self.path);
        } else {
            let _ = File::from(file).set_len(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<(String, u64)> {
        let entry = |e: std::io::Result<std::fs::DirEntry>| {
            let e = e.unwrap();
            (e.file_name().into_string().unwrap(), e.metadata().unwrap().len())
        };
        let mut all: Vec<_> = std::fs::read_dir(dir).unwrap().map(entry).collect();
        all.sort();
        all
    }

    #[test]
    fn only_what_was_made_is_removed() {
        let dir = std::env::temp_dir().join(format!("weir-created-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).unwrap();
        write("empty", b"");
        write("used", b"bytes");
        write("used.nvme", b"state");
        let device =
            |name: &str| format!("[[device]]\nname = \"{name}\"\nmedia = \"file:{name}\"\ncapacity = \"8MiB\"\n");
        let text = ["empty", "used", "new", "taken", "never"].map(device).concat();
        let config = Config::parse(&text, "test.toml", &dir).unwrap();
        let before = names(&dir);
        let created = Created::by_start_of(&config);
        for name in ["empty", "new", "taken", "used"] {
            write(name, b"data of a drive");
            write(&format!("{name}.nvme"), b"x");
            write(&format!("{name}.flash"), b"x");
        }
        let other = OwnedFd::from(File::open(dir.join("taken")).unwrap());
        assert_eq!(lock::exclusive(&other), Ok(true));
        created.remove();
        let left = ["taken", "taken.flash", "taken.nvme", "used", "used.flash", "used.nvme"];
        let after: Vec<_> = names(&dir).into_iter().filter(|(name, _)| !left.contains(&name.as_str())).collect();
        assert_eq!(after, [("empty".to_owned(), 0)]);
        assert_eq!(names(&dir).len(), 1 + left.len(), "what another one has, and what was in use, stays");
        assert!(before.iter().any(|(name, _)| name == "used"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
