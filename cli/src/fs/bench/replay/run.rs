//! The replay itself: a thread for each of the record's.

use super::super::meter::Line;
use super::args::ReplayArgs;
use super::content::Contents;
use super::load::{RecordedStep, Recording};
use super::report::moves_bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_store_node::client::{Client, ClientError, CreateOptions, File, Pending};
use weir_store_node::record::RecordedCall;
use weir_workload::Histogram;

/// Of a thread that replays.
const STACK: usize = 512 << 10;

/// Buffers that a thread keeps.
const SPARE: usize = 16;

/// What came of all calls of a kind.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub operations: u64,
    pub bytes: u64,
    /// Nanoseconds of each.
    pub latency: Histogram,
}

/// What came of a replay.
#[derive(Debug, Default)]
pub struct Replayed {
    pub figures: BTreeMap<RecordedCall, Figures>,
    pub elapsed: Duration,
    /// What the process took of processors meanwhile.
    pub processor: Duration,
    /// What threads spent in calls, all together.
    pub called: Duration,
    /// Calls that came out otherwise than recorded, and the first of them.
    pub otherwise: u64,
    pub first_otherwise: Option<String>,
    /// Bytes that were compared; none where none were to be.
    pub compared: Option<u64>,
}

/// What all threads have in common.
pub(super) struct Run<'a> {
    pub recording: &'a Recording,
    pub clients: &'a [Client],
    pub options: &'a CreateOptions,
    pub contents: Contents,
    pub files: Vec<Mutex<Option<Arc<File>>>>,
    speed: f64,
    begun: Instant,
    board: Board,
    counted: Mutex<(Replayed, Line)>,
}

/// Which steps are over.
#[derive(Default)]
struct Board {
    done: Vec<AtomicBool>,
    waiters: AtomicUsize,
    /// Why the replay ends early.
    failed: Mutex<Option<String>>,
    has_failed: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The replay has failed in another thread, or in this one.
#[derive(Debug)]
struct Stopped;

impl Board {
    fn wait(&self, steps: &[usize]) -> Result<(), Stopped> {
        let is_done = || steps.iter().all(|step| self.done[*step].load(Ordering::SeqCst));
        if !is_done() {
            self.waiters.fetch_add(1, Ordering::SeqCst);
            let mut held = lock(&self.lock);
            while !is_done() && !self.has_failed.load(Ordering::SeqCst) {
                held = self.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
            drop(held);
            self.waiters.fetch_sub(1, Ordering::SeqCst);
        }
        if self.has_failed.load(Ordering::SeqCst) { Err(Stopped) } else { Ok(()) }
    }

    fn done(&self, step: usize) {
        self.done[step].store(true, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.lock));
            self.wake.notify_all();
        }
    }

    fn fail(&self, why: String) -> Stopped {
        lock(&self.failed).get_or_insert(why);
        self.has_failed.store(true, Ordering::SeqCst);
        drop(lock(&self.lock));
        self.wake.notify_all();
        Stopped
    }
}

/// A read or write that is under way.
struct UnderWay {
    index: usize,
    pending: Pending,
    since: Instant,
    called: Duration,
    known: Vec<(u64, u64)>,
}

/// A call that is over.
struct Over<'a> {
    /// How many bytes it moved, or names it listed.
    result: Result<u64, ClientError>,
    took: Duration,
    /// Of that, in calls.
    called: Duration,
    /// What was read, and what of it can be compared.
    bytes: &'a [u8],
    known: &'a [(u64, u64)],
}

/// Replays the steps of one thread.
struct Worker<'a> {
    run: &'a Run<'a>,
    spare: Vec<Vec<u8>>,
    under_way: Vec<UnderWay>,
    /// What the thread has seen last: when it was recorded, and when it was replayed.
    seen: (u64, Instant),
}

/// Makes all steps.
///
/// # Errors
/// A call that succeeded when it was recorded fails; a wrong byte.
pub fn run(
    recording: &Recording,
    clients: &[Client],
    options: &CreateOptions,
    args: &ReplayArgs,
) -> Result<Replayed, String> {
    let compared = args.verify.then_some(0);
    let counted = Mutex::new((Replayed { compared, ..Replayed::default() }, Line::new(recording.steps.len() as u64)));
    let board = Board { done: recording.steps.iter().map(|_| AtomicBool::new(false)).collect(), ..Board::default() };
    let contents = Contents::new(&recording.contents, args.seed, args.verify);
    let files = (0..recording.files).map(|_| Mutex::new(None)).collect();
    let (begun, processor) = (Instant::now(), processor_time());
    let run = Run { recording, clients, options, contents, files, speed: args.speed, begun, board, counted };
    std::thread::scope(|scope| {
        for (number, steps) in recording.threads.iter().enumerate() {
            let run = &run;
            let thread = std::thread::Builder::new().name(format!("replay-{number}")).stack_size(STACK);
            let spawned = thread.spawn_scoped(scope, move || Worker::new(run).replay(steps));
            if let Err(e) = spawned {
                run.board.fail(format!("a thread: {e}"));
            }
        }
    });
    let (elapsed, processor) = (run.begun.elapsed(), processor_time().saturating_sub(processor));
    if let Some(why) = lock(&run.board.failed).take() {
        return Err(why);
    }
    let (mut replayed, mut line) = run.counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    line.clear();
    (replayed.elapsed, replayed.processor) = (elapsed, processor);
    Ok(replayed)
}

/// What this process has taken of processors.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl<'a> Worker<'a> {
    fn new(run: &'a Run<'a>) -> Self {
        let first = run.recording.steps.first().map_or(0, |step| step.start);
        Self { run, spare: Vec::new(), under_way: Vec::new(), seen: (first, run.begun) }
    }

    fn replay(mut self, steps: &[usize]) {
        // Why it ended early is on the board.
        let _ = self.replay_all(steps);
    }

    fn replay_all(&mut self, steps: &[usize]) -> Result<(), Stopped> {
        for index in steps {
            let step = &self.run.recording.steps[*index];
            self.end_until(step.start)?;
            self.wait_for_others(step)?;
            self.think(step.start);
            self.make(*index, step)?;
        }
        self.end_until(u64::MAX)
    }

    /// Ends what had ended by then.
    fn end_until(&mut self, recorded: u64) -> Result<(), Stopped> {
        let steps = &self.run.recording.steps;
        let (over, rest) =
            std::mem::take(&mut self.under_way).into_iter().partition(|one| steps[one.index].end() <= recorded);
        self.under_way = rest;
        let mut over: Vec<UnderWay> = over;
        over.sort_by_key(|one| steps[one.index].end());
        over.into_iter().try_for_each(|one| self.end(one))
    }

    fn wait_for_others(&mut self, step: &RecordedStep) -> Result<(), Stopped> {
        let steps = &self.run.recording.steps;
        let is_done = |index: &usize| self.run.board.done[*index].load(Ordering::SeqCst);
        if !step.after.iter().all(is_done) {
            // Others may wait for what this thread has under way.
            self.end_until(u64::MAX)?;
        }
        self.run.board.wait(&step.after)?;
        if let Some(end) = step.after.iter().map(|index| steps[*index].end()).max() {
            self.saw(end);
        }
        Ok(())
    }

    fn saw(&mut self, recorded: u64) {
        if recorded >= self.seen.0 {
            self.seen = (recorded, Instant::now());
        }
    }

    /// Takes the time that the program took for itself.
    fn think(&self, start: u64) {
        if self.run.speed > 0.0 {
            let thought = Duration::from_nanos(start.saturating_sub(self.seen.0)).div_f64(self.run.speed);
            std::thread::sleep((self.seen.1 + thought).saturating_duration_since(Instant::now()));
        }
    }

    fn make(&mut self, index: usize, step: &RecordedStep) -> Result<(), Stopped> {
        let run = self.run;
        let moves = matches!(step.line.call, RecordedCall::Read | RecordedCall::Write);
        if moves && (step.is_overlapped || step.is_given_up()) {
            return self.begin(index, step);
        }
        let spare = self.spare.pop().unwrap_or_default();
        let made = run.make(step, spare);
        self.saw(step.end());
        let over =
            Over { result: made.result, took: made.took, called: made.took, bytes: &made.bytes, known: &made.known };
        run.over(index, step, over)?;
        self.keep(made.bytes);
        Ok(())
    }

    /// Begins a read or write that is waited for later.
    fn begin(&mut self, index: usize, step: &RecordedStep) -> Result<(), Stopped> {
        let run = self.run;
        let spare = self.spare.pop().unwrap_or_default();
        let (since, known, pending) = run.begin(step, spare);
        let called = since.elapsed();
        let pending = match pending {
            Ok(pending) => pending,
            Err(e) => {
                let over = Over { result: Err(e), took: called, called, bytes: &[], known: &known };
                return run.over(index, step, over);
            }
        };
        self.saw(step.start);
        if step.is_given_up() {
            drop(pending);
            run.count(step.line.call, 0, called, called);
            run.board.done(index);
            return Ok(());
        }
        self.under_way.push(UnderWay { index, pending, since, called, known });
        Ok(())
    }

    fn end(&mut self, one: UnderWay) -> Result<(), Stopped> {
        let step = &self.run.recording.steps[one.index];
        let waited = Instant::now();
        let completed = one.pending.wait();
        let (took, called) = (one.since.elapsed(), one.called + waited.elapsed());
        self.saw(step.end());
        let result = completed.result.map(|n| n as u64);
        // A read of fewer bytes leaves those of before behind them.
        let n = result.as_ref().map_or(0, |n| *n as usize).min(completed.buffer.len());
        let over = Over { result, took, called, bytes: &completed.buffer[..n], known: &one.known };
        self.run.over(one.index, step, over)?;
        self.keep(completed.buffer);
        Ok(())
    }

    /// Memory for another read or write.
    fn keep(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() > 0 {
            self.spare.push(buffer);
        }
    }
}

impl Run<'_> {
    fn count(&self, call: RecordedCall, bytes: u64, took: Duration, called: Duration) {
        let mut counted = lock(&self.counted);
        let (replayed, line) = &mut *counted;
        let figures = replayed.figures.entry(call).or_default();
        figures.operations += 1;
        figures.bytes += bytes;
        figures.latency.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        replayed.called += called;
        let done = replayed.figures.values().map(|figures| figures.operations).sum();
        line.show(Instant::now(), done);
    }

    /// A step is over: it is counted, its bytes are compared, and others may go on.
    fn over(&self, index: usize, step: &RecordedStep, over: Over<'_>) -> Result<(), Stopped> {
        let moved = over.result.as_ref().ok().filter(|_| moves_bytes(step.line.call)).copied().unwrap_or(0);
        self.count(step.line.call, moved, over.took, over.called);
        match (step.is_ok(), over.result) {
            (true, Err(e)) => return Err(self.fail(step, &format!("{e}; it succeeded when it was recorded"))),
            (true, Ok(moved)) => {
                self.check(step, moved, over.bytes, over.known)?;
                self.note_written(step, moved);
            }
            (false, Ok(_)) => self.came_otherwise(step, "it failed when it was recorded"),
            (false, Err(e)) if e.errno() != step.line.errno => self.came_otherwise(step, &format!("now {e}")),
            (false, Err(_)) => {}
        }
        self.board.done(index);
        Ok(())
    }

    fn fail(&self, step: &RecordedStep, why: &str) -> Stopped {
        self.board.fail(format!("{}: {}: {why}", self.recording.place(step), step.line.call.name()))
    }

    fn came_otherwise(&self, step: &RecordedStep, why: &str) {
        let mut counted = lock(&self.counted);
        counted.0.otherwise += 1;
        let text = || format!("{}: {}: {why}", self.recording.place(step), step.line.call.name());
        counted.0.first_otherwise.get_or_insert_with(text);
    }

    fn check(&self, step: &RecordedStep, moved: u64, bytes: &[u8], known: &[(u64, u64)]) -> Result<(), Stopped> {
        let counts =
            matches!(step.line.call, RecordedCall::Read | RecordedCall::Get | RecordedCall::List | RecordedCall::Page);
        if counts && moved != step.line.done {
            self.came_otherwise(step, &format!("{moved} came, and {} when it was recorded", step.line.done));
        }
        let reads = matches!(step.line.call, RecordedCall::Read | RecordedCall::Get);
        if let (true, Some(content)) = (reads, step.content) {
            let compared = self.contents.compare(content, step.line.offset, bytes, known);
            let about =
                |why: String| self.fail(step, &format!("{}: {why}", super::super::super::path::shown(&step.path)));
            let compared = compared.map_err(about)?;
            if let Some(all) = &mut lock(&self.counted).0.compared {
                *all += compared;
            }
        }
        Ok(())
    }

    fn note_written(&self, step: &RecordedStep, moved: u64) {
        let Some(content) = step.content else { return };
        match step.line.call {
            RecordedCall::Write | RecordedCall::Append => self.contents.wrote(content, step.line.offset, moved),
            RecordedCall::Put => self.contents.wrote(content, 0, moved),
            RecordedCall::Truncate => self.contents.cut(content, step.line.length),
            _ => {}
        }
    }
}
