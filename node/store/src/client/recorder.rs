//! What a client's program asks of it, recorded ([`crate::record`]): with [`ClientOptions::record`](super::ClientOptions::record) each call
//! is a line of a file that all clients of the process share.
//!
//! ```text
//!   a call ─ recorded ─► RecordLine ─► RecordFile: memory, bounded ─ its thread ─► FOLDER/PROGRAM-PROCESS.csv
//! ```
//! What a call makes of itself (an `open` looks the path up) is a part of it. Streams are recorded as the slices that they read ahead and write behind.

mod file;

use super::error::{ClientError, ClientErrorKind};
use super::{Client, CreateOptions, File, Stat};
use crate::record::{RecordLine, RecordPath, RecordedCall, UNWAITED, kind_name};
use file::RecordFile;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use weir_store::{EntryPath, InodeId};

/// Names the folder of records for programs that are not asked.
pub(super) const VARIABLE: &str = "WEIR_STORE_RECORD";

static THREADS: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// Its number in records.
    static THREAD: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
    /// Whether it is in a call that is recorded.
    static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Of one client.
#[derive(Debug)]
pub(super) struct Recorder {
    client: u32,
    file: Arc<RecordFile>,
}

impl Recorder {
    /// Records into a file of that folder.
    pub fn new(folder: &Path) -> Result<Self, ClientError> {
        let file = RecordFile::of_process(folder).map_err(|e| {
            let text = format!("recording into {}: {e}; name a folder that can be written", folder.display());
            ClientError::new(ClientErrorKind::Usage(text))
        })?;
        Ok(Self { client: file.next_client(), file })
    }

    /// Nanoseconds of the record.
    fn now(&self) -> u64 {
        self.file.now()
    }

    /// A call is over that began then.
    fn put(&self, since: u64, line: RecordLine) {
        let took = self.now().saturating_sub(since);
        self.put_waited(since, took, line);
    }

    /// The same, of one during which the program went on; the calls took so much of it.
    fn put_waited(&self, since: u64, called: u64, line: RecordLine) {
        let took = self.now().saturating_sub(since);
        let thread = THREAD.with(|number| *number);
        self.file.put(&RecordLine { start: since, took, called, thread, client: self.client, ..line });
    }
}

/// A read or write that was begun, and will be recorded when its program has waited for it.
#[derive(Debug)]
pub(super) struct BegunCall {
    since: u64,
    /// What calls have taken of it so far.
    called: AtomicU64,
    line: RecordLine,
}

impl BegunCall {
    /// A call that waited for it has taken so long.
    pub fn add_called(&self, client: &Client, since: u64) {
        if let Some(recorder) = &client.shared.recorder {
            self.called.fetch_add(recorder.now().saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// It is over, after a wait since then; with as many bytes.
    pub fn end(self, client: &Client, since: u64, result: Result<usize, i32>) {
        self.add_called(client, since);
        let done = result.map_or(0, |n| n as u64);
        self.put(client, RecordLine { done, errno: result.err().unwrap_or(0), ..self.line.clone() });
    }

    /// Its program waits no more.
    pub fn give_up(self, client: &Client) {
        self.put(client, RecordLine { errno: UNWAITED, ..self.line.clone() });
    }

    fn put(&self, client: &Client, line: RecordLine) {
        if let Some(recorder) = &client.shared.recorder {
            recorder.put_waited(self.since, self.called.load(Ordering::Relaxed), line);
        }
    }
}

/// Ends what [`IS_WITHIN`] says.
struct Within;

impl Drop for Within {
    fn drop(&mut self) {
        IS_WITHIN.set(false);
    }
}

impl Client {
    /// The recorder, unless the call is a part of another one.
    fn outer_recorder(&self) -> Option<&Recorder> {
        self.shared.recorder.as_ref().filter(|_| !IS_WITHIN.get())
    }

    /// When a call begins, of the record's time; 0 where there is none.
    pub(super) fn record_time(&self) -> u64 {
        self.shared.recorder.as_ref().map_or(0, Recorder::now)
    }

    /// Makes a call, and records it as what `line` makes of its result.
    pub(super) fn recorded<T>(
        &self,
        run: impl FnOnce() -> Result<T, ClientError>,
        line: impl FnOnce(Option<&T>) -> RecordLine,
    ) -> Result<T, ClientError> {
        let Some(recorder) = self.outer_recorder() else { return run() };
        IS_WITHIN.set(true);
        let within = Within;
        let since = recorder.now();
        let result = run();
        drop(within);
        let line = line(result.as_ref().ok());
        recorder.put(since, RecordLine { errno: result.as_ref().err().map_or(0, ClientError::errno), ..line });
        result
    }

    /// Records a call that is over at once.
    pub(super) fn record(&self, line: impl FnOnce() -> RecordLine) {
        if let Some(recorder) = self.outer_recorder() {
            recorder.put(recorder.now(), line());
        }
    }

    /// Records a call whose time the caller has added up.
    pub(super) fn record_called(&self, since: u64, called: u64, line: impl FnOnce() -> RecordLine) {
        if let Some(recorder) = self.outer_recorder() {
            recorder.put_waited(since, called, line());
        }
    }

    /// A read or write that begins; none where nothing is recorded.
    pub(super) fn begin_recorded(&self, since: u64, line: impl FnOnce() -> RecordLine) -> Option<BegunCall> {
        let recorder = self.outer_recorder()?;
        let called = AtomicU64::new(recorder.now().saturating_sub(since));
        Some(BegunCall { since, called, line: line() })
    }
}

/// A call about a path.
pub(super) fn of_path(call: RecordedCall, path: &[u8]) -> RecordLine {
    RecordLine { call, path: RecordPath::Absolute(path.into()), ..RecordLine::default() }
}

/// A call about a name in a container.
pub(super) fn of_entry(call: RecordedCall, entry: &EntryPath) -> RecordLine {
    let path = RecordPath::Entry { container: entry.container.0, name: entry.name.as_bytes().into() };
    RecordLine { call, path, ..RecordLine::default() }
}

/// A call about an inode.
pub(super) fn of_inode(call: RecordedCall, inode: InodeId) -> RecordLine {
    RecordLine { call, path: RecordPath::Inode(inode.0), ..RecordLine::default() }
}

/// A call that makes a file with these options.
pub(super) fn of_creation(line: RecordLine, options: &CreateOptions) -> RecordLine {
    line.with_detail(match (options.exclusive, options.parents) {
        (true, true) => "xp",
        (true, false) => "x",
        (false, true) => "p",
        (false, false) => "",
    })
}

impl RecordLine {
    /// The same with words of the call; the empty ones are left out.
    pub(super) fn with_detail(self, detail: impl AsRef<[u8]>) -> Self {
        Self { detail: detail.as_ref().into(), ..self }
    }

    /// The same with what was found.
    pub(super) fn with_stat(self, found: Option<&Stat>) -> Self {
        let Some(Stat { at, inode }) = found else { return self };
        let detail = kind_name(inode.kind).into();
        Self { inode: at.inode.0, length: inode.size, detail, ..self }
    }

    /// The same with the file that was opened.
    pub(super) fn with_file(self, file: Option<&File>) -> Self {
        let Some(file) = file else { return self };
        Self { file: file.number(), inode: file.at().inode.0, length: file.size(), ..self }
    }
}
