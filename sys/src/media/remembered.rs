//! What a drive remembers without power (`docs/formats.md`): a file beside its media, with two copies of which the newer whole one
//! counts. A write goes over the older one, so that a torn write leaves the drive with what it knew before.

use super::MediaError;
use crate::crc::{crc32c, crc32c_append};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

const MAGIC: [u8; 8] = *b"WEIRNVME";
const VERSION: u32 = 1;
/// Where the second copy begins, and so the room of each.
const COPY: u64 = 1 << 20;
/// Bytes before a copy's blob: magic, version, length, generation, its own CRC32C, that of the blob, zeroes.
const HEAD: usize = 64;

/// The file with a drive's nonvolatile state.
#[derive(Debug)]
pub struct Remembered {
    file: File,
    path: PathBuf,
    /// Of the newest copy; its place is the generation's parity. 0: there is none.
    generation: u64,
    /// Asks for the file to be made durable.
    sync: SyncSender<()>,
}

/// One copy, as it was found.
enum Copy {
    Whole(u64, Vec<u8>),
    /// Zeroes: it was never written.
    Empty,
    Damaged,
    /// It begins with something else.
    Foreign,
    Version(u32),
}

impl Remembered {
    /// The file's name beside a medium.
    pub fn path_of(media: &Path) -> PathBuf {
        let mut name = media.as_os_str().to_owned();
        name.push(".nvme");
        name.into()
    }

    /// Refuses what a drive remembered whose medium is gone. The medium is made by opening it: this is asked before.
    ///
    /// # Errors
    /// [`MediaError::LoneState`].
    pub fn check_pair(media: &Path, is_new: bool) -> Result<(), MediaError> {
        super::kind::check_pair(Self::path_of(media), media, is_new)
    }

    /// Opens the file of a medium, or makes it; with what it holds. A drive that is new begins with a new one.
    ///
    /// # Errors
    /// It cannot be opened, is something else or of another version, both copies are damaged, or it lies beside a medium that is
    /// missing or empty.
    pub fn open(media: &Path, is_new: bool) -> Result<(Remembered, Option<Vec<u8>>), MediaError> {
        Self::check_pair(media, is_new)?;
        let path = Self::path_of(media);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(|e| error(&path, e))?;
        super::own_as_medium(&file, media).map_err(|e| error(&path, e))?;
        Self::around(file, path)
    }

    /// As [`open`](Self::open), of a file in memory, which messages call `name`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn in_memory(fd: OwnedFd, name: PathBuf) -> Result<(Remembered, Option<Vec<u8>>), MediaError> {
        Self::around(File::from(fd), name)
    }

    fn around(file: File, path: PathBuf) -> Result<(Remembered, Option<Vec<u8>>), MediaError> {
        let wrong = |what: String| error(&path, io::Error::other(what));
        let mut newest: Option<(u64, Vec<u8>)> = None;
        let (mut damaged, mut whole) = (false, false);
        for place in 0..2 {
            match read_copy(&file, place).map_err(|e| error(&path, e))? {
                Copy::Whole(generation, blob) => {
                    whole = true;
                    if newest.as_ref().is_none_or(|(n, _)| *n < generation) {
                        newest = Some((generation, blob));
                    }
                }
                Copy::Empty => {}
                Copy::Damaged => damaged = true,
                Copy::Foreign => return Err(wrong("this is not the state of a drive".into())),
                Copy::Version(version) => {
                    return Err(wrong(format!("it is of layout {version}; this release reads layout {VERSION}")));
                }
            }
        }
        if damaged && !whole {
            let what = "both copies are damaged; remove it, and the drive begins with nothing remembered";
            return Err(wrong(what.into()));
        }
        let (generation, blob) = newest.map_or((0, None), |(generation, blob)| (generation, Some(blob)));
        let sync = syncer(file.try_clone().map_err(|e| error(&path, e))?, path.clone());
        Ok((Remembered { file, path, generation, sync }, blob))
    }

    /// Writes a new copy; it is there for the next process at once, and after a crash of the machine when the system's writes have
    /// ended, which another thread waits for.
    ///
    /// # Errors
    /// It cannot be written, or is too large.
    pub fn write(&mut self, blob: &[u8]) -> Result<(), MediaError> {
        let wrong = |e: io::Error| error(&self.path, e);
        if (blob.len() + HEAD) as u64 > COPY {
            return Err(wrong(io::Error::other(format!("{} bytes do not fit into it", blob.len()))));
        }
        let generation = self.generation + 1;
        let copy = copy_of(generation, blob);
        self.file.write_all_at(&copy, generation % 2 * COPY).map_err(wrong)?;
        self.generation = generation;
        // One that is asked already will see this write as well.
        let _ = self.sync.try_send(());
        Ok(())
    }

    /// Everything that was written is durable.
    ///
    /// # Errors
    /// The system cannot write it.
    pub fn sync(&self) -> Result<(), MediaError> {
        self.file.sync_data().map_err(|e| error(&self.path, e))
    }
}

fn error(path: &Path, source: io::Error) -> MediaError {
    MediaError::Io { medium: path.display().to_string(), what: "keep a drive's nonvolatile state", source }
}

/// A thread that makes a file durable whenever it is asked to, and ends with the one who asks.
fn syncer(file: File, path: PathBuf) -> SyncSender<()> {
    let (sender, asked) = sync_channel(1);
    let spawned = std::thread::Builder::new().name("nvme-state".into()).spawn(move || {
        while asked.recv().is_ok() {
            if let Err(e) = file.sync_data() {
                tracing::error!(
                    "{}: {e}: what the drive remembers may not outlive a crash of the machine",
                    path.display()
                );
            }
        }
    });
    if let Err(e) = spawned {
        tracing::error!("no thread for a drive's nonvolatile state: {e}; it is made durable when the drive is stopped");
    }
    sender
}

/// A copy as it lies in the file.
fn copy_of(generation: u64, blob: &[u8]) -> Vec<u8> {
    let mut copy = vec![0; HEAD];
    copy[..8].copy_from_slice(&MAGIC);
    copy[8..12].copy_from_slice(&VERSION.to_le_bytes());
    copy[12..16].copy_from_slice(&(blob.len() as u32).to_le_bytes());
    copy[16..24].copy_from_slice(&generation.to_le_bytes());
    let crc = crc32c_append(crc32c(&copy[..24]), blob);
    copy[24..28].copy_from_slice(&crc.to_le_bytes());
    copy.extend_from_slice(blob);
    copy
}

fn read_copy(file: &File, place: u64) -> io::Result<Copy> {
    let mut head = [0; HEAD];
    let has = read_at_most(file, &mut head, place * COPY)?;
    if head[..has].iter().all(|b| *b == 0) {
        return Ok(Copy::Empty);
    }
    if head[..8] != MAGIC {
        return Ok(Copy::Foreign);
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let generation = u64::from(word(16)) | u64::from(word(20)) << 32;
    if word(8) != VERSION {
        return Ok(Copy::Version(word(8)));
    }
    let length = u64::from(word(12));
    if has < HEAD || length > COPY - HEAD as u64 {
        return Ok(Copy::Damaged);
    }
    let mut blob = vec![0; length as usize];
    let has = read_at_most(file, &mut blob, place * COPY + HEAD as u64)?;
    let good = has == blob.len()
        && generation != 0
        && generation % 2 == place
        && crc32c_append(crc32c(&head[..24]), &blob) == word(24);
    Ok(if good { Copy::Whole(generation, blob) } else { Copy::Damaged })
}

fn read_at_most(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut has = 0;
    while has < into.len() {
        match file.read_at(&mut into[has..], at + has as u64) {
            Ok(0) => break,
            Ok(n) => has += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden bytes of layout 1.
    #[test]
    fn a_copy_lies_as_it_always_has() {
        let copy = copy_of(3, b"abc");
        let mut golden = [0; HEAD + 3];
        golden[..24].copy_from_slice(b"WEIRNVME\x01\0\0\0\x03\0\0\0\x03\0\0\0\0\0\0\0");
        golden[24..28].copy_from_slice(&crc32c(b"WEIRNVME\x01\0\0\0\x03\0\0\0\x03\0\0\0\0\0\0\0abc").to_le_bytes());
        golden[HEAD..].copy_from_slice(b"abc");
        assert_eq!(copy, golden);
    }

    /// A directory of its own with a medium, removed at the end.
    struct Beside(PathBuf);

    impl Beside {
        fn new(name: &str) -> (Self, PathBuf) {
            let dir = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("a directory");
            let media = dir.join("disk");
            std::fs::write(&media, b"bytes").expect("a medium");
            (Self(dir), media)
        }
    }

    impl Drop for Beside {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_newer_whole_copy_counts_wherever_a_write_is_torn() {
        let (_dir, media) = Beside::new("remembered");
        let (mut state, found) = Remembered::open(&media, true).expect("new");
        assert_eq!(found, None);
        for blob in [&b"one"[..], b"two", b"three"] {
            state.write(blob).expect("written");
        }
        state.sync().expect("durable");
        drop(state);
        let path = Remembered::path_of(&media);
        let whole = std::fs::read(&path).expect("it is there");
        let found = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            Remembered::open(&media, false).map(|(_, found)| found)
        };
        assert_eq!(found(&whole).expect("whole"), Some(b"three".to_vec()));
        // Copy 3 lies at 1 MiB: any byte of it that is wrong, and copy 2 counts.
        for at in 0..HEAD + 5 {
            if (28..HEAD).contains(&at) {
                continue;
            }
            let mut torn = whole.clone();
            torn[COPY as usize + at] ^= 0x11;
            match found(&torn) {
                Ok(found) => assert_eq!(found, Some(b"two".to_vec()), "byte {at}"),
                Err(e) => assert!(at < 12, "byte {at}: {e}"),
            }
        }
        for cut in [1, HEAD, HEAD + 2] {
            assert!(matches!(found(&whole[..COPY as usize + cut]), Ok(Some(blob)) if blob == b"two") || cut == 1);
        }
        let mut both = whole.clone();
        (both[HEAD], both[COPY as usize + HEAD]) = (0, 0);
        let e = found(&both).expect_err("both are damaged").to_string();
        assert!(e.contains("both copies are damaged") && e.contains("disk.nvme"), "{e}");
        let e = found(b"something else altogether").expect_err("foreign").to_string();
        assert!(e.contains("not the state of a drive"), "{e}");
        let mut newer = whole.clone();
        newer[8] = 9;
        let e = found(&newer).expect_err("another version").to_string();
        assert!(e.contains("layout 9"), "{e}");
        // After a torn write the next one goes over it.
        let mut torn = whole;
        torn[COPY as usize + HEAD] ^= 1;
        std::fs::write(&path, torn).expect("written");
        let (mut state, _) = Remembered::open(&media, false).expect("copy 2");
        state.write(b"four").expect("written");
        drop(state);
        assert_eq!(Remembered::open(&media, false).expect("whole").1, Some(b"four".to_vec()));
        assert!(Remembered::open(&media, true).is_err(), "its medium is gone");
    }
}
