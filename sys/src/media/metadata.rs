//! Metadata of a drive's blocks (`docs/reference/formats.md`): a sparse file beside its media, a byte for 64 of data, written through the page
//! cache.
//!
//! The drive writes a block's metadata before its data, and makes the one durable before it says that the other is. A process that is
//! killed loses nothing of either; what was not complete when it was killed, or not flushed when the machine went down, may be new data
//! with old metadata or the other way round, block by block. Protection information tells.

use super::MediaError;
use super::status::{Doing, status};
use crate::crc::crc32c;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_spec::nvme::Status;

const MAGIC: [u8; 8] = *b"WEIRMETA";
const VERSION: u32 = 1;
/// Where the metadata of the first block begins.
const HEAD: u64 = 4096;
/// Bytes of the head that its CRC32C covers: magic, version, shift, capacity.
const COVERED: usize = 24;
/// Bytes of zeroes that are written at a time where the file system cannot punch holes.
const ZEROES: usize = 64 << 10;

/// See the [module](self).
#[derive(Debug)]
pub struct MetadataFile {
    file: Arc<OwnedFd>,
    /// The same, to be read and written.
    bytes: File,
    capacity: u64,
}

impl MetadataFile {
    /// The file's name beside a medium.
    pub fn path_of(media: &Path) -> PathBuf {
        let mut name = media.as_os_str().to_owned();
        name.push(".meta");
        name.into()
    }

    /// Refuses metadata whose medium is gone. The medium is made by opening it: this is asked before.
    ///
    /// # Errors
    /// [`MediaError::LoneState`].
    pub fn check_pair(media: &Path, is_new: bool) -> Result<(), MediaError> {
        super::kind::check_pair(Self::path_of(media), media, is_new)
    }

    /// Opens the metadata of a medium of `data` bytes with `1 << shift` bytes of data for one of metadata; `None` where there is none
    /// yet. `needed`: there are namespaces that have some.
    ///
    /// # Errors
    /// It cannot be opened, is something else, of another version, of a medium of another size, or missing though it is needed.
    pub fn find(media: &Path, data: u64, shift: u32, needed: bool) -> Result<Option<Self>, MediaError> {
        let path = Self::path_of(media);
        match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => {
                super::own_as_medium(&file, media).map_err(|e| error(&path, e))?;
                Self::check(file, &path, data, shift).map(Some)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound && needed => {
                Err(MediaError::MissingMetadata { path, medium: super::kind::name("file", media) })
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(error(&path, e)),
        }
    }

    /// Makes it; all blocks have the metadata of deallocated ones.
    ///
    /// # Errors
    /// It cannot be made; nothing is left of it then.
    pub fn create(media: &Path, data: u64, shift: u32) -> Result<Self, MediaError> {
        let (path, fresh) = (Self::path_of(media), {
            let mut name = Self::path_of(media).into_os_string();
            name.push(".new");
            PathBuf::from(name)
        });
        let make = || -> io::Result<File> {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            super::own_as_medium(&file, media)?;
            file.set_len(HEAD + (data >> shift))?;
            file.write_all_at(&head(data, shift), 0)?;
            file.sync_all()?;
            // What says that there are metadata is written behind it, and may not be found without them.
            super::rename_durably(&fresh, &path)?;
            Ok(file)
        };
        let file = make().map_err(|e| {
            let _ = std::fs::remove_file(&fresh);
            error(&path, e)
        })?;
        Self::check(file, &path, data, shift)
    }

    fn check(file: File, path: &Path, data: u64, shift: u32) -> Result<Self, MediaError> {
        let wrong = |what: &str| error(path, io::Error::other(what.to_owned()));
        let mut found = [0; COVERED + 4];
        file.read_exact_at(&mut found, 0).map_err(|_| wrong("it is cut short"))?;
        let word = |at: usize| u32::from_le_bytes([found[at], found[at + 1], found[at + 2], found[at + 3]]);
        if found[..8] != MAGIC {
            return Err(wrong("this is not the metadata of a drive"));
        }
        if word(8) != VERSION {
            return Err(wrong(&format!("it is of layout {}; this release reads layout {VERSION}", word(8))));
        }
        if crc32c(&found[..COVERED]) != word(COVERED) || word(12) != shift {
            return Err(wrong("its head is damaged"));
        }
        let of = u64::from(word(16)) | u64::from(word(20)) << 32;
        if of != data {
            return Err(MediaError::ForeignState { path: path.to_owned(), differs: ("capacity", of, data) });
        }
        let length = file.metadata().map_err(|e| error(path, e))?.len();
        if length != HEAD + (data >> shift) {
            return Err(wrong("it is cut short"));
        }
        let other = file.try_clone().map_err(|e| error(path, e))?;
        Ok(Self { file: Arc::new(OwnedFd::from(other)), bytes: file, capacity: data >> shift })
    }

    /// What is to be made durable with the medium.
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Reads metadata from byte `at` on.
    ///
    /// # Errors
    /// Outside of the file, or the kernel's reason as a status.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Status> {
        super::range(self.capacity, at, into.len() as u32)?;
        self.bytes.read_exact_at(into, HEAD + at).map_err(|e| failed(Doing::Read, &e))
    }

    /// Writes metadata from byte `at` on.
    ///
    /// # Errors
    /// As of [`read`](Self::read); Capacity Exceeded where the file system is full.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Status> {
        super::range(self.capacity, at, bytes.len() as u32)?;
        self.bytes.write_all_at(bytes, HEAD + at).map_err(|e| failed(Doing::Write, &e))
    }

    /// Has metadata read as zeroes, and gives the space back where the file system can.
    ///
    /// # Errors
    /// As of [`write`](Self::write).
    pub fn zero(&self, at: u64, len: u32) -> Result<(), Status> {
        super::range(self.capacity, at, len)?;
        let punch = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        if len == 0 || rustix::fs::fallocate(&self.file, punch, HEAD + at, len.into()).is_ok() {
            return Ok(());
        }
        let zeroes = vec![0; ZEROES.min(len as usize)];
        for part in (0..u64::from(len)).step_by(ZEROES) {
            let n = zeroes.len().min((u64::from(len) - part) as usize);
            self.write(at + part, &zeroes[..n])?;
        }
        Ok(())
    }
}

fn head(data: u64, shift: u32) -> [u8; COVERED + 4] {
    let mut head = [0; COVERED + 4];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&shift.to_le_bytes());
    head[16..24].copy_from_slice(&data.to_le_bytes());
    let crc = crc32c(&head[..COVERED]);
    head[COVERED..].copy_from_slice(&crc.to_le_bytes());
    head
}

fn failed(doing: Doing, e: &io::Error) -> Status {
    status(doing, e.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
}

fn error(path: &Path, source: io::Error) -> MediaError {
    MediaError::Io { medium: path.display().to_string(), what: "keep the metadata of blocks", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medium(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weir-meta-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        dir.join("disk")
    }

    /// Golden bytes of layout 1.
    #[test]
    fn its_head_lies_as_it_always_has() {
        let mut golden = *b"WEIRMETA\x01\0\0\0\x06\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\0";
        let crc = crc32c(&golden[..24]);
        golden[24..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(head(1 << 30, 6), golden);
    }

    #[test]
    fn metadata_is_there_again_and_what_does_not_fit_is_refused() {
        let media = medium("again");
        assert!(MetadataFile::find(&media, 1 << 20, 6, false).expect("none yet").is_none());
        let e = MetadataFile::find(&media, 1 << 20, 6, true).expect_err("it is needed").to_string();
        assert!(e.contains("disk.meta") && e.contains("missing"), "{e}");
        let made = MetadataFile::create(&media, 1 << 20, 6).expect("made");
        made.write(16, b"12345678").expect("written");
        assert!(made.write((1 << 14) - 4, b"12345678").is_err(), "beyond its end");
        drop(made);
        let open = |data: u64| MetadataFile::find(&media, data, 6, true);
        let found = open(1 << 20).expect("whole").expect("there");
        let mut bytes = [1; 24];
        found.read(8, &mut bytes).expect("read");
        assert_eq!(&bytes, b"\0\0\0\0\0\0\0\x0012345678\0\0\0\0\0\0\0\0");
        found.zero(18, 4).expect("zeroed");
        found.read(8, &mut bytes).expect("read");
        assert_eq!(&bytes, b"\0\0\0\0\0\0\0\x0012\0\0\0\x0078\0\0\0\0\0\0\0\0");
        let e = open(2 << 20).expect_err("another drive's").to_string();
        assert!(e.contains("capacity"), "{e}");
        assert!(MetadataFile::check_pair(&media, true).is_err(), "its medium is gone");
        let path = MetadataFile::path_of(&media);
        let whole = std::fs::read(&path).expect("it is there");
        for (at, says) in [(0, "not the metadata"), (8, "layout"), (12, "damaged"), (17, "damaged"), (25, "damaged")] {
            let mut torn = whole.clone();
            torn[at] ^= 0x40;
            std::fs::write(&path, torn).expect("written");
            let e = open(1 << 20).expect_err("damaged").to_string();
            assert!(e.contains(says), "byte {at}: {e}");
        }
        std::fs::write(&path, &whole[..5000]).expect("written");
        assert!(open(1 << 20).expect_err("short").to_string().contains("cut short"));
        std::fs::remove_dir_all(media.parent().expect("its directory")).expect("removed");
    }
}
