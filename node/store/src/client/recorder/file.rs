//! The file of a process's record, and the thread that writes it: no call waits for it.

use crate::record::{Record, RecordHead, RecordLine};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};
use weir_sys::exit::at_exit;

/// Memory that lines wait in at the most; those that come while it is full are lost, and counted.
const MOST: usize = 4 << 20;
/// So much is written at once rather than later.
const WRITE_SIZE: usize = 256 << 10;
/// What most lines have room in.
const LINE: usize = 256;
/// A process that is killed loses what it did in this time.
const INTERVAL: Duration = Duration::from_millis(100);

/// All records that this process writes.
static OPEN: Mutex<Vec<(PathBuf, u32, Weak<RecordFile>)>> = Mutex::new(Vec::new());

/// A record that is being written. It ends with the last client that has it, or with the process.
#[derive(Debug)]
pub(super) struct RecordFile {
    began: Instant,
    clients: AtomicU32,
    process: u32,
    waiting: Arc<Waiting>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Lines between the calls and the thread that writes them.
#[derive(Debug, Default)]
struct Waiting {
    lines: Mutex<Lines>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Lines for which there was no room.
    lost: u64,
    is_ended: bool,
    /// The file takes no more.
    is_stopped: bool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for lines; takes them, and whether they are the last.
    fn take(&self, spare: Vec<u8>) -> (Vec<u8>, bool) {
        let lines = self.lock();
        let is_early = |lines: &mut Lines| lines.bytes.len() < WRITE_SIZE && !lines.is_ended;
        let waited = self.wake.wait_timeout_while(lines, INTERVAL, is_early);
        let (mut lines, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut bytes = std::mem::replace(&mut lines.bytes, spare);
        let lost = std::mem::take(&mut lines.lost);
        if lost > 0 {
            Record::put_lost(lost, &mut bytes);
        }
        if lines.is_ended {
            Record::put_end(&mut bytes);
        }
        (bytes, lines.is_ended)
    }

    /// Writes until the record ends.
    fn write_to(&self, mut file: File, path: &Path) {
        let mut spare = Vec::new();
        loop {
            let (mut bytes, is_last) = self.take(spare);
            if let Err(e) = file.write_all(&bytes) {
                let mut lines = self.lock();
                (lines.is_stopped, lines.bytes) = (true, Vec::new());
                eprintln!("weir: {}: {e}; nothing more is recorded, and the program goes on", path.display());
                return;
            }
            if is_last {
                return;
            }
            bytes.clear();
            spare = bytes;
        }
    }
}

impl RecordFile {
    /// The record of this process in that folder, which is made where it is not there.
    pub fn of_process(folder: &Path) -> io::Result<Arc<Self>> {
        let process = std::process::id();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, of, record)| *of == process && record.strong_count() > 0);
        let known = open.iter().find(|(of, ..)| of == folder).and_then(|(.., record)| record.upgrade());
        if let Some(record) = known {
            return Ok(record);
        }
        let record = Arc::new(Self::create(folder, process)?);
        open.push((folder.into(), process, Arc::downgrade(&record)));
        Ok(record)
    }

    fn create(folder: &Path, process: u32) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = if program.is_empty() { "program".into() } else { program };
        let (file, path) = new_file(folder, &program, process)?;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let began = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        let waiting = Arc::new(Waiting::default());
        RecordHead { program, process, host, began }.put(&mut waiting.lock().bytes);
        let of_thread = waiting.clone();
        let thread = thread::Builder::new().name("weir-recorder".into());
        let writer = Mutex::new(Some(thread.spawn(move || of_thread.write_to(file, &path))?));
        // Many programs end without having closed their clients.
        at_exit(end_all);
        Ok(Self { began: Instant::now(), clients: AtomicU32::new(1), process, waiting, writer })
    }

    pub fn next_client(&self) -> u32 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// Nanoseconds since the record began.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn put(&self, line: &RecordLine) {
        let mut text = Vec::with_capacity(LINE);
        line.put(&mut text);
        let mut lines = self.waiting.lock();
        if lines.is_stopped || lines.is_ended {
            return;
        }
        if lines.bytes.len() >= MOST {
            lines.lost += 1;
            return;
        }
        let before = lines.bytes.len();
        lines.bytes.extend_from_slice(&text);
        if before < WRITE_SIZE && lines.bytes.len() >= WRITE_SIZE {
            self.waiting.wake.notify_one();
        }
    }
}

/// The process ends: all that was recorded is written.
fn end_all() {
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    open.iter().filter_map(|(.., record)| record.upgrade()).for_each(|record| record.end());
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        self.end();
    }
}

impl RecordFile {
    /// Writes what there is, and nothing more.
    fn end(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A process that was forked has no such thread.
        let Some(writer) = writer.filter(|_| self.process == std::process::id()) else { return };
        self.waiting.lock().is_ended = true;
        self.waiting.wake.notify_one();
        // What it could not do it has said.
        let _ = writer.join();
    }
}

/// A file that was not there.
fn new_file(folder: &Path, program: &str, process: u32) -> io::Result<(File, PathBuf)> {
    let mut number = 1;
    loop {
        let again = if number == 1 { String::new() } else { format!("-{number}") };
        let path = folder.join(format!("{program}-{process}{again}.csv"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 10_000 => number += 1,
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat() -> RecordLine {
        RecordLine { call: crate::record::RecordedCall::Stat, ..RecordLine::default() }
    }

    #[test]
    fn a_full_disk_ends_the_record_and_nothing_else() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let waiting = Arc::new(Waiting::default());
        let record = RecordFile {
            began: Instant::now(),
            clients: AtomicU32::new(1),
            process: std::process::id(),
            waiting: waiting.clone(),
            writer: Mutex::default(),
        };
        record.put(&stat());
        waiting.write_to(full, Path::new("/dev/full"));
        assert!(waiting.lock().is_stopped);
        record.put(&stat());
        assert!(waiting.lock().bytes.is_empty(), "nothing is kept for a file that takes no more");
    }

    #[test]
    fn memory_is_bounded_and_what_is_lost_is_counted() {
        let folder = std::env::temp_dir().join(format!("weir-record-bounded-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let waiting = Arc::new(Waiting::default());
        let (began, clients, process) = (Instant::now(), AtomicU32::new(1), std::process::id());
        let record = RecordFile { began, clients, process, waiting: waiting.clone(), writer: Mutex::default() };
        RecordHead::default().put(&mut waiting.lock().bytes);
        let line = RecordLine { detail: vec![b'x'; 4000], ..stat() };
        (0..2 * MOST / 4000).for_each(|_| record.put(&line));
        assert!(waiting.lock().bytes.len() < MOST + 8192);
        waiting.lock().is_ended = true;
        let path = folder.join("record.csv");
        waiting.write_to(File::create(&path).unwrap(), &path);
        let read = Record::read(io::BufReader::new(File::open(&path).unwrap())).unwrap();
        assert!(read.is_whole && read.lost > 900 && read.lines.len() > 900, "{} lost", read.lost);
        assert_eq!(read.lost as usize + read.lines.len(), 2 * MOST / 4000);
        fs::remove_dir_all(&folder).unwrap();
    }
}
