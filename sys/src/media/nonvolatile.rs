//! What a drive remembers without power (`docs/reference/formats.md`): a file beside its media, with five copies of which the newest whole one
//! counts. A write goes over a copy that is not needed ([`CopyPlaces`]), so that neither a kill nor a loss of power in the middle of any number
//! of writes leaves the drive with less than the last sync has made durable.
//!
//! A file of two copies is read. It goes on as one of five, except where the process follows another one that is alive in its keeper's
//! hands ([`NonvolatileFile::open`]): that one may be a program that reads two copies only, and may have to take over again.

mod copies;

use self::copies::{CopyPlaces, PLACES};
use super::MediaError;
use crate::crc::{crc32c, crc32c_append};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MAGIC: [u8; 8] = *b"WEIRNVME";
/// The layout of copies that are written; those of [`TWO_COPIES`] are read.
pub const VERSION: u32 = 2;
/// Files of two copies, the place of each its generation's parity.
const TWO_COPIES: u32 = 1;
/// Where the second copy begins, and so the room of each.
const COPY: u64 = 1 << 20;
/// Bytes before a copy's blob: magic, version, length, generation, CRC32C, zeroes, which generation was durable, zeroes.
const HEAD: usize = 64;

/// The file with a drive's nonvolatile state.
#[derive(Debug)]
pub struct NonvolatileFile {
    file: File,
    path: PathBuf,
    shared: Arc<Shared>,
    /// Asks for the file to be made durable.
    sync: SyncSender<()>,
}

/// What the thread that writes and the one that makes it durable know of the copies.
#[derive(Debug)]
struct Shared {
    places: Mutex<CopyPlaces>,
    /// One sync at a time: [`CopyPlaces`] knows of one.
    sync: Mutex<()>,
}

impl Shared {
    fn new(places: CopyPlaces) -> Arc<Self> {
        Arc::new(Self { places: Mutex::new(places), sync: Mutex::new(()) })
    }

    fn places(&self) -> MutexGuard<'_, CopyPlaces> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes durable what is written, where it is not.
    fn make_durable(&self, file: &File) -> io::Result<()> {
        let _one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.places().begin_sync() {
            return Ok(());
        }
        let synced = file.sync_data();
        self.places().synced(synced.is_ok());
        synced
    }
}

/// A copy that is whole.
struct Whole {
    generation: u64,
    /// The generation that was durable when it was written, where it says so.
    durable: Option<u64>,
    blob: Vec<u8>,
}

/// One copy, as it was found.
enum Copy {
    Whole(Whole),
    /// Zeroes: it was never written.
    Empty,
    Damaged,
    /// It begins with something else.
    Foreign,
    Version(u32),
}

impl NonvolatileFile {
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

    /// Opens the file of a medium, or makes it; with what it holds. A drive that is new begins with a new one. `keeps_layout`: a file of
    /// two copies stays one.
    ///
    /// # Errors
    /// It cannot be opened, is something else or of another version, all copies are damaged, or it lies beside a medium that is
    /// missing or empty.
    pub fn open(
        media: &Path,
        is_new: bool,
        keeps_layout: bool,
    ) -> Result<(NonvolatileFile, Option<Vec<u8>>), MediaError> {
        Self::check_pair(media, is_new)?;
        let path = Self::path_of(media);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(|e| error(&path, e))?;
        super::own_as_medium(&file, media).map_err(|e| error(&path, e))?;
        Self::around(file, path, keeps_layout)
    }

    /// As [`open`](Self::open), of a file in memory, which messages call `name`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn in_memory(
        fd: OwnedFd,
        name: PathBuf,
        keeps_layout: bool,
    ) -> Result<(NonvolatileFile, Option<Vec<u8>>), MediaError> {
        Self::around(File::from(fd), name, keeps_layout)
    }

    fn around(file: File, path: PathBuf, keeps_layout: bool) -> Result<(NonvolatileFile, Option<Vec<u8>>), MediaError> {
        let wrong = |what: String| error(&path, io::Error::other(what));
        let mut newest: Option<Whole> = None;
        let (mut damaged, mut generations) = (false, [0; PLACES]);
        for (place, found) in generations.iter_mut().enumerate() {
            match read_copy(&file, place as u64).map_err(|e| error(&path, e))? {
                Copy::Whole(copy) => {
                    *found = copy.generation;
                    if newest.as_ref().is_none_or(|before| before.generation < copy.generation) {
                        newest = Some(copy);
                    }
                }
                Copy::Empty => {}
                Copy::Damaged => damaged = true,
                Copy::Foreign => return Err(wrong("this is not the state of a drive".into())),
                Copy::Version(version) => {
                    return Err(wrong(format!("it is of layout {version}; this release reads layouts 1 to {VERSION}")));
                }
            }
        }
        if damaged && newest.is_none() {
            let what = "all copies are damaged; remove it, and the drive begins with nothing remembered";
            return Err(wrong(what.into()));
        }
        let is_two_copies = newest.as_ref().is_some_and(|copy| copy.durable.is_none());
        let known = match &newest {
            Some(Whole { durable: Some(durable), .. }) => CopyPlaces::found(generations, *durable),
            Some(_) => None,
            None => Some(CopyPlaces::default()),
        };
        let places = match known {
            Some(places) => places,
            None => {
                file.sync_data().map_err(|e| error(&path, e))?;
                if is_two_copies && keeps_layout {
                    CopyPlaces::of_two(generations)
                } else {
                    CopyPlaces::of_durable(generations)
                }
            }
        };
        let shared = Shared::new(places);
        let sync = syncer(file.try_clone().map_err(|e| error(&path, e))?, path.clone(), shared.clone());
        // What the process before has written may not be durable.
        let _ = sync.try_send(());
        Ok((NonvolatileFile { file, path, shared, sync }, newest.map(|copy| copy.blob)))
    }

    /// Writes a new copy; it is there for the next process at once, and after a crash of the machine when the system's writes have
    /// ended, which another thread waits for; of the first copy that a file has, this one.
    ///
    /// # Errors
    /// It cannot be written, or is too large.
    pub fn write(&mut self, blob: &[u8]) -> Result<(), MediaError> {
        let wrong = |e: io::Error| error(&self.path, e);
        if (blob.len() + HEAD) as u64 > COPY {
            return Err(wrong(io::Error::other(format!("{} bytes do not fit into it", blob.len()))));
        }
        let (place, version, generation, durable) = {
            let mut places = self.shared.places();
            let version = if places.is_of_two() { TWO_COPIES } else { VERSION };
            (places.begin_write(), version, places.newest() + 1, places.durable())
        };
        let copy = copy_of(version, (generation, durable), blob);
        self.file.write_all_at(&copy, place as u64 * COPY).map_err(wrong)?;
        self.shared.places().wrote(place);
        if durable == 0 {
            return self.shared.make_durable(&self.file).map_err(wrong);
        }
        // One that is asked already and has not begun will see this write as well.
        let _ = self.sync.try_send(());
        Ok(())
    }

    /// Everything that was written is durable.
    ///
    /// # Errors
    /// The system cannot write it.
    pub fn sync(&self) -> Result<(), MediaError> {
        self.shared.make_durable(&self.file).map_err(|e| error(&self.path, e))
    }
}

fn error(path: &Path, source: io::Error) -> MediaError {
    MediaError::Io { medium: path.display().to_string(), what: "keep a drive's nonvolatile state", source }
}

/// A thread that makes a file durable whenever it is asked to, and ends with the one who asks.
fn syncer(file: File, path: PathBuf, shared: Arc<Shared>) -> SyncSender<()> {
    let (sender, asked) = sync_channel(1);
    let spawned = std::thread::Builder::new().name("nvme-state".into()).spawn(move || {
        while asked.recv().is_ok() {
            if let Err(e) = shared.make_durable(&file) {
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

/// A copy as it lies in the file, of a generation, written when another one was durable.
fn copy_of(version: u32, (generation, durable): (u64, u64), blob: &[u8]) -> Vec<u8> {
    let mut copy = vec![0; HEAD];
    copy[..8].copy_from_slice(&MAGIC);
    copy[8..12].copy_from_slice(&version.to_le_bytes());
    copy[12..16].copy_from_slice(&(blob.len() as u32).to_le_bytes());
    copy[16..24].copy_from_slice(&generation.to_le_bytes());
    if version != TWO_COPIES {
        copy[32..40].copy_from_slice(&durable.to_le_bytes());
    }
    let crc = crc_of(&copy, blob);
    copy[24..28].copy_from_slice(&crc.to_le_bytes());
    copy.extend_from_slice(blob);
    copy
}

/// The checksum of a copy, by its head.
fn crc_of(head: &[u8], blob: &[u8]) -> u32 {
    let mut crc = crc32c(&head[..24]);
    if head[8..12] != TWO_COPIES.to_le_bytes() {
        crc = crc32c_append(crc, &head[32..40]);
    }
    crc32c_append(crc, blob)
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
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let (version, generation) = (word(8), long(16));
    if !(TWO_COPIES..=VERSION).contains(&version) {
        return Ok(Copy::Version(version));
    }
    let length = u64::from(word(12));
    if has < HEAD || length > COPY - HEAD as u64 {
        return Ok(Copy::Damaged);
    }
    let mut blob = vec![0; length as usize];
    let has = read_at_most(file, &mut blob, place * COPY + HEAD as u64)?;
    let durable = (version != TWO_COPIES).then(|| long(32));
    let good = has == blob.len()
        && generation != 0
        && durable.map_or(generation % 2 == place, |durable| durable < generation)
        && crc_of(&head, &blob) == word(24);
    Ok(if good { Copy::Whole(Whole { generation, durable, blob }) } else { Copy::Damaged })
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

    /// Golden bytes of layout 2.
    #[test]
    fn a_copy_lies_as_it_always_has() {
        let copy = copy_of(VERSION, (3, 2), b"abc");
        let mut golden = [0; HEAD + 3];
        golden[..24].copy_from_slice(b"WEIRNVME\x02\0\0\0\x03\0\0\0\x03\0\0\0\0\0\0\0");
        golden[24..28].copy_from_slice(&[0; 4]);
        golden[32] = 2;
        golden[HEAD..].copy_from_slice(b"abc");
        let crc = crc32c(b"WEIRNVME\x02\0\0\0\x03\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0abc");
        golden[24..28].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(copy, golden);
    }

    /// A copy of layout 1.
    fn copy_of_layout_1(generation: u8, blob: &[u8]) -> Vec<u8> {
        let mut copy = vec![0; HEAD];
        copy[..12].copy_from_slice(b"WEIRNVME\x01\0\0\0");
        (copy[12], copy[16]) = (blob.len() as u8, generation);
        let crc = crc32c_append(crc32c(&copy[..24]), blob);
        copy[24..28].copy_from_slice(&crc.to_le_bytes());
        [copy, blob.to_vec()].concat()
    }

    /// A file of layout 1 with generations 2 and 3, as a program of that layout has written it.
    fn file_of_layout_1() -> Vec<u8> {
        let mut file = copy_of_layout_1(2, b"two");
        assert_eq!(file[24..28], [0xc7, 0xb6, 0xb9, 0x4e]);
        file.resize(COPY as usize, 0);
        file.extend(copy_of_layout_1(3, b"three"));
        file
    }

    #[test]
    fn a_file_of_layout_1_is_read_and_goes_on_in_layout_2() {
        let (_dir, media) = Beside::new("remembered-1");
        let path = NonvolatileFile::path_of(&media);
        let file = file_of_layout_1();
        std::fs::write(&path, &file).expect("written");
        let (mut state, found) = NonvolatileFile::open(&media, false, false).expect("layout 1");
        assert_eq!(found, Some(b"three".to_vec()));
        state.write(b"four").expect("written");
        drop(state);
        let after = std::fs::read(&path).expect("it is there");
        assert!(after[COPY as usize..] == file[COPY as usize..], "the newest copy is as it was");
        assert_eq!(after[8], 2, "a program of layout 1 refuses the file");
        for keeps_layout in [false, true] {
            let found = NonvolatileFile::open(&media, false, keeps_layout).expect("both layouts").1;
            assert_eq!(found, Some(b"four".to_vec()));
        }
        // One of its copies in a place that is not its generation's counts for nothing.
        std::fs::write(&path, copy_of_layout_1(3, b"three")).expect("written");
        assert!(NonvolatileFile::open(&media, false, false).is_err());
    }

    #[test]
    fn a_file_of_layout_1_stays_one_where_its_program_may_take_over_again() {
        let (_dir, media) = Beside::new("remembered-stays");
        let path = NonvolatileFile::path_of(&media);
        std::fs::write(&path, file_of_layout_1()).expect("written");
        let (mut state, found) = NonvolatileFile::open(&media, false, true).expect("layout 1");
        assert_eq!(found, Some(b"three".to_vec()));
        state.write(b"four").expect("written");
        state.write(b"fifth").expect("written");
        drop(state);
        let mut expected = copy_of_layout_1(4, b"four");
        expected.resize(COPY as usize, 0);
        expected.extend(copy_of_layout_1(5, b"fifth"));
        assert!(std::fs::read(&path).expect("it is there") == expected, "two copies of layout 1, and nothing else");
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

    /// Changes one after the other, while the first sync after them does not end: what was durable before is there if all of them are torn.
    #[test]
    fn changes_while_a_sync_is_under_way_do_not_take_all_copies() {
        let (_dir, media) = Beside::new("remembered-fast");
        let path = NonvolatileFile::path_of(&media);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("new");
        // Only the first write makes it durable: as if the next sync took until the end.
        let (shared, (sync, _)) = (Shared::new(CopyPlaces::default()), sync_channel(1));
        let mut state = NonvolatileFile { file, path: path.clone(), shared, sync };
        state.write(b"durable").expect("written");
        let before = std::fs::read(&path).expect("it is there");
        for n in 0..9u8 {
            state.write(&[n + 1; 9]).expect("written");
            let mut torn = std::fs::read(&path).expect("it is there");
            // All that has been written since is torn.
            for (at, byte) in torn.iter_mut().enumerate() {
                if at as u64 % COPY >= HEAD as u64 && before.get(at).copied().unwrap_or(0) != *byte {
                    *byte ^= 0x55;
                }
            }
            let copy = media.with_extension("torn");
            std::fs::write(&copy, b"bytes").expect("a medium");
            std::fs::write(NonvolatileFile::path_of(&copy), &torn).expect("written");
            let found = NonvolatileFile::open(&copy, false, false).expect("one copy is whole").1;
            assert_eq!(found.as_deref(), Some(&b"durable"[..]), "after change {n}");
        }
    }

    #[test]
    fn the_newer_whole_copy_counts_wherever_a_write_is_torn() {
        let (_dir, media) = Beside::new("remembered");
        let (mut state, found) = NonvolatileFile::open(&media, true, false).expect("new");
        assert_eq!(found, None);
        for blob in [&b"one"[..], b"two", b"three"] {
            state.write(blob).expect("written");
        }
        state.sync().expect("durable");
        drop(state);
        let path = NonvolatileFile::path_of(&media);
        let whole = std::fs::read(&path).expect("it is there");
        let found = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            NonvolatileFile::open(&media, false, false).map(|(_, found)| found)
        };
        assert_eq!(found(&whole).expect("whole"), Some(b"three".to_vec()));
        // Copy 3 lies at 2 MiB: any byte of it that is wrong, and copy 2 counts.
        let third = 2 * COPY as usize;
        for at in 0..HEAD + 5 {
            if (28..32).contains(&at) || (40..HEAD).contains(&at) {
                continue;
            }
            let mut torn = whole.clone();
            torn[third + at] ^= 0x11;
            match found(&torn) {
                Ok(found) => assert_eq!(found, Some(b"two".to_vec()), "byte {at}"),
                Err(e) => assert!(at < 12, "byte {at}: {e}"),
            }
        }
        for cut in [1, HEAD, HEAD + 2] {
            assert!(matches!(found(&whole[..third + cut]), Ok(Some(blob)) if blob == b"two") || cut == 1);
        }
        let mut all = whole.clone();
        (0..3).for_each(|place| all[place * COPY as usize + HEAD] = 0);
        let e = found(&all).expect_err("all are damaged").to_string();
        assert!(e.contains("all copies are damaged") && e.contains("disk.nvme"), "{e}");
        let e = found(b"something else altogether").expect_err("foreign").to_string();
        assert!(e.contains("not the state of a drive"), "{e}");
        let mut newer = whole.clone();
        newer[8] = 9;
        let e = found(&newer).expect_err("another version").to_string();
        assert!(e.contains("layout 9"), "{e}");
        // After a torn write the next one goes over it.
        let mut torn = whole;
        torn[third + HEAD] ^= 1;
        std::fs::write(&path, torn).expect("written");
        let (mut state, _) = NonvolatileFile::open(&media, false, false).expect("copy 2");
        state.write(b"four").expect("written");
        drop(state);
        assert_eq!(NonvolatileFile::open(&media, false, false).expect("whole").1, Some(b"four".to_vec()));
        assert!(NonvolatileFile::open(&media, true, false).is_err(), "its medium is gone");
    }
}
