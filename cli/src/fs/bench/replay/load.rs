//! Records of the processes of one run, as one list of steps.

use super::names::Names;
use super::order::Order;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use weir_sim::trace::compressed;
use weir_store::InodeKind;
use weir_store_node::record::{Record, RecordLine, RecordedCall};

/// More threads are not replayed.
const THREADS_MAX: usize = 4096;
/// The most bytes of a call.
const LENGTH_MAX: u64 = 1 << 30;
/// Lines before the first call.
const HEAD_LINES: usize = 3;

/// A call, and when it may be made.
#[derive(Clone, Debug, Default)]
pub struct RecordedStep {
    pub line: RecordLine,
    /// Its record, and its line there: for errors.
    pub source: (usize, usize),
    /// When it began, from the beginning of the first record on.
    pub start: u64,
    pub client: usize,
    pub thread: usize,
    /// What it is about; of a call of an open file the path that it was opened by.
    pub path: Vec<u8>,
    /// The other path.
    pub other: Vec<u8>,
    /// Which of [`Recording::files`].
    pub file: Option<usize>,
    /// Which of [`Recording::contents`].
    pub content: Option<usize>,
    /// Of an open file: it is open to be written.
    pub is_writer: bool,
    /// Its thread makes no further step.
    pub is_last_of_thread: bool,
    /// The thread goes on before it is over.
    pub is_overlapped: bool,
    /// Steps of other threads that come before it.
    pub after: Vec<usize>,
}

impl RecordedStep {
    /// When it was over. One that its program gave up was over for it when it had begun.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(if self.is_given_up() { self.line.called } else { self.line.took })
    }

    pub fn is_ok(&self) -> bool {
        self.line.errno == 0
    }

    /// Whether its program gave it up.
    pub fn is_given_up(&self) -> bool {
        /// `EINTR`: it was cancelled.
        const CANCELLED: i32 = 4;
        let moves = matches!(self.line.call, RecordedCall::Read | RecordedCall::Write);
        moves && matches!(self.line.errno, weir_store_node::record::UNWAITED | CANCELLED)
    }
}

/// Bytes of a file from when it was made or emptied on.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// The path that it was made by.
    pub path: Vec<u8>,
    /// How many it has before the replay.
    pub prepared: u64,
}

/// What has to be there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    pub kind: InodeKind,
    /// Bytes of a file; of a directory the names that were listed and of which the record says nothing else.
    pub size: u64,
    /// Of a symbolic link.
    pub target: Vec<u8>,
}

/// What is replayed.
#[derive(Debug, Default)]
pub struct Recording {
    /// In the order in which they began.
    pub steps: Vec<RecordedStep>,
    /// Of each thread.
    pub threads: Vec<Vec<usize>>,
    pub clients: usize,
    /// Open files.
    pub files: usize,
    pub contents: Vec<Content>,
    pub prepared: BTreeMap<Vec<u8>, Prepared>,
    pub records: Vec<PathBuf>,
    /// Records that were cut off.
    pub cut_off: usize,
    /// From the first call to the end of the last.
    pub span: u64,
}

impl Recording {
    /// Reads files, and folders of them.
    pub fn load(paths: &[PathBuf]) -> Result<Self, String> {
        let mut records = Vec::new();
        for path in files(paths)? {
            let about = |what: String| format!("{}: {what}", path.display());
            let lines = File::open(&path).and_then(compressed::lines).map_err(|e| about(e.to_string()))?;
            let record = Record::read(lines).map_err(|e| about(e.to_string()))?;
            if record.lost > 0 {
                let why = "calls are missing, because its disk was too slow; record into a faster folder";
                return Err(about(format!("{} {why}", record.lost)));
            }
            records.push((path, record));
        }
        Self::of(records)
    }

    /// The steps of records, each with its file.
    pub fn of(records: Vec<(PathBuf, Record)>) -> Result<Self, String> {
        let mut all =
            Self { cut_off: records.iter().filter(|(_, record)| !record.is_whole).count(), ..Self::default() };
        let began = records.iter().map(|(_, record)| record.head.began).min().unwrap_or(0);
        let (mut threads, mut clients) = (HashMap::new(), HashMap::new());
        for (at, (path, record)) in records.into_iter().enumerate() {
            let later = record.head.began - began;
            all.records.push(path);
            for (number, line) in record.lines.into_iter().enumerate() {
                let known = threads.len();
                let thread = *threads.entry((at, line.thread)).or_insert(known);
                let known = clients.len();
                let client = *clients.entry((at, line.client)).or_insert(known);
                let (start, source) = (later.saturating_add(line.start), (at, number + HEAD_LINES + 1));
                all.steps.push(RecordedStep { line, source, start, client, thread, ..RecordedStep::default() });
            }
        }
        if threads.len() > THREADS_MAX {
            return Err(format!("{} threads, and {THREADS_MAX} are the most that are replayed", threads.len()));
        }
        all.clients = clients.len();
        all.threads = vec![Vec::new(); threads.len()];
        // Names are resolved in the order in which calls ended: only then was their result known.
        all.steps.sort_by_key(|step| (step.end(), step.start));
        all.resolve()?;
        all.steps.sort_by_key(|step| (step.start, step.end()));
        all.link();
        Ok(all)
    }

    /// Where a step is, as errors name it.
    pub fn place(&self, step: &RecordedStep) -> String {
        let (record, line) = step.source;
        let file = self.records.get(record).map(|path| path.display().to_string()).unwrap_or_default();
        format!("{file}: line {line}")
    }

    fn resolve(&mut self) -> Result<(), String> {
        let mut names = Names::default();
        let mut steps = std::mem::take(&mut self.steps);
        for step in &mut steps {
            let length = step.line.length;
            let moves = matches!(
                step.line.call,
                RecordedCall::Read | RecordedCall::Write | RecordedCall::Append | RecordedCall::Put | RecordedCall::Get
            );
            let resolved = match moves && length > LENGTH_MAX {
                true => Err(format!("{length} bytes at once, and {LENGTH_MAX} are the most that are replayed")),
                false => names.resolve(step),
            };
            resolved.map_err(|why| format!("{}: {why}", self.place(step)))?;
        }
        self.steps = steps;
        self.files = names.files();
        (self.contents, self.prepared) = names.end();
        Ok(())
    }

    /// Gives each thread its steps, and each step those that come before it.
    fn link(&mut self) {
        let mut order = Order::new(self.threads.len());
        let last: HashMap<usize, usize> = self.steps.iter().enumerate().map(|(at, step)| (step.thread, at)).collect();
        last.values().for_each(|at| self.steps[*at].is_last_of_thread = true);
        for at in 0..self.steps.len() {
            let step = &self.steps[at];
            let (thread, start) = (step.thread, step.start);
            self.span = self.span.max(step.end());
            let before: BTreeSet<usize> = order.before(step, &self.steps).into_iter().collect();
            self.steps[at].after = before.into_iter().collect();
            order.add(at, &self.steps);
            if let Some(last) = self.threads[thread].last() {
                let last = &mut self.steps[*last];
                last.is_overlapped = last.end() > start;
            }
            self.threads[thread].push(at);
        }
        self.span -= self.steps.first().map_or(0, |step| step.start).min(self.span);
    }
}

/// All files that are meant: of a folder those in it.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    for path in paths {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let inside = in_folder(path).map_err(|e| format!("{}: {e}", path.display()))?;
        if inside.is_empty() {
            return Err(format!("{}: no records are in this folder (*.csv, *.csv.gz, *.csv.zst)", path.display()));
        }
        all.extend(inside);
    }
    Ok(all)
}

fn in_folder(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if [".csv", ".csv.gz", ".csv.zst"].iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
