//! The clients of the campaign: each changes files of its own all the time, remembers what was acknowledged, and compares.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_store_node::client::{Client, ClientError, ClientOptions, CreateOptions, File, OpenOptions};
use weir_units::rng::SplitMix64;

use super::model::{Doubtful, Known, Model, SHAPES, Shape, bytes};
use super::{LIMIT, STEPS, Step};
use crate::harness::{Outcome, ensure};
use crate::process::until;

/// Clients at a time.
pub const CLIENTS: usize = 4;

/// Files of a client, about.
const FILES: usize = 10;

/// How long an operation may take, and how much later than that it may come back on a busy machine.
const DEADLINE: Duration = Duration::from_secs(40);
const LATE: Duration = Duration::from_secs(10);

/// How long a client that has given up on a drive may take to find out that it is there again; until then what it asks of it fails at once.
const CONNECTED: Duration = Duration::from_secs(3);

/// What the clients and the campaign have in common.
#[derive(Debug, Default)]
struct Shared {
    /// The step at which a blow is to fall: it is taken by the client that begins it next.
    wanted: Mutex<Option<Step>>,
    taken: Condvar,
    /// Odd while a storage node is struck, until all clients have found it again: files with one copy may fail then.
    phase: AtomicU32,
    /// The memory of a node was lost: files with one copy in memory may be lost, by name.
    is_memory_lost: AtomicBool,
    /// How often all files are to have been compared.
    round: AtomicU32,
    stops: AtomicBool,
    operations: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
    slowest_ms: AtomicU64,
}

/// All clients.
pub struct Team {
    shared: Arc<Shared>,
    rounds: Vec<Arc<AtomicU32>>,
    threads: Vec<JoinHandle<Result<Model, String>>>,
}

/// What the clients have done.
#[derive(Debug)]
pub struct Tally {
    pub operations: u64,
    pub failed: u64,
    pub lost: u64,
    pub slowest: Duration,
}

struct Worker {
    shared: Arc<Shared>,
    client: Client,
    folder: String,
    random: SplitMix64,
    model: Model,
    next: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// Clients with folders `/c0`, `/c1`, … at that address.
    pub fn start(address: &str, seed: u64) -> Result<Self, String> {
        let shared = Arc::<Shared>::default();
        let (mut rounds, mut threads) = (Vec::new(), Vec::new());
        for number in 0..CLIENTS {
            let options =
                ClientOptions { name: format!("e2e-{number}"), deadline: DEADLINE, ..ClientOptions::default() };
            let client = Client::connect(address, options).map_err(|e| e.to_string())?;
            let folder = format!("/c{number}");
            client.make_directory(&folder, false, 0o755).map_err(|e| e.to_string())?;
            let (random, round) = (SplitMix64::new(seed * 100 + number as u64), Arc::<AtomicU32>::default());
            let (model, next) = (Model::default(), 0);
            let mut worker = Worker { shared: shared.clone(), client, folder, random, model, next };
            let done = round.clone();
            threads.push(std::thread::spawn(move || worker.work(&done).map(|()| worker.model)));
            rounds.push(round);
        }
        Ok(Self { shared, rounds, threads })
    }

    /// Comes back when a client begins that step.
    pub fn reaches(&self, step: Step) -> Outcome {
        let mut wanted = lock(&self.shared.wanted);
        *wanted = Some(step);
        while wanted.is_some() {
            let (next, waited) = self.shared.taken.wait_timeout(wanted, LIMIT).unwrap_or_else(PoisonError::into_inner);
            wanted = next;
            if waited.timed_out() || self.is_over() {
                return Err(format!("no client comes to {step:?}: {}", self.why()));
            }
        }
        Ok(())
    }

    /// A blow is about to fall; on a storage node files with one copy may fail from now on.
    pub fn is_struck(&self, storage: bool, memory: bool) {
        self.shared.phase.fetch_add(u32::from(storage), Ordering::SeqCst);
        self.shared.is_memory_lost.store(memory, Ordering::SeqCst);
    }

    /// Everything is there again: all files are compared, and from then on nothing may fail.
    pub fn compare(&self) -> Outcome {
        let round = self.shared.round.fetch_add(1, Ordering::SeqCst) + 1;
        until(LIMIT * 2, "all clients have compared their files", || {
            let is_done = self.rounds.iter().all(|done| done.load(Ordering::SeqCst) >= round);
            if self.is_over() { Err(self.why()) } else { Ok(is_done.then_some(())) }
        })?;
        self.shared.is_memory_lost.store(false, Ordering::SeqCst);
        if self.shared.phase.load(Ordering::SeqCst) % 2 == 1 {
            std::thread::sleep(CONNECTED);
            self.shared.phase.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// What a client that has ended says is told by [`finish`](Self::finish).
    fn why(&self) -> String {
        let ended = self.threads.iter().position(JoinHandle::is_finished);
        ended.map_or("it takes too long".into(), |number| format!("client {number} has ended"))
    }

    /// What each client knows.
    pub fn finish(self) -> Result<(Vec<Model>, Tally), String> {
        self.shared.stops.store(true, Ordering::SeqCst);
        let mut models = Vec::new();
        for thread in self.threads {
            models.push(thread.join().map_err(|_| "a client has panicked".to_owned())??);
        }
        let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
        let shared = &self.shared;
        let slowest = Duration::from_millis(count(&shared.slowest_ms));
        let (operations, failed, lost) = (count(&shared.operations), count(&shared.failed), count(&shared.lost));
        Ok((models, Tally { operations, failed, lost, slowest }))
    }
}

impl Worker {
    fn work(&mut self, round: &AtomicU32) -> Outcome {
        while !self.shared.stops.load(Ordering::SeqCst) {
            let wanted = self.shared.round.load(Ordering::SeqCst);
            if round.load(Ordering::SeqCst) < wanted {
                self.compare()?;
                round.store(wanted, Ordering::SeqCst);
            }
            let step = STEPS[self.below(STEPS.len())];
            self.step(step).map_err(|e| format!("{step:?}: {e}"))?;
        }
        self.compare()
    }

    fn below(&mut self, most: usize) -> usize {
        (self.random.next_u64() % most.max(1) as u64) as usize
    }

    /// Lies in the inode, in a block, or in several.
    fn some_bytes(&mut self) -> Vec<u8> {
        let len = [100, 5000, 70_000, 300_000][self.below(4)] + self.below(1000);
        bytes(self.random.next_u64(), len)
    }

    /// The path of a file.
    fn some_file(&mut self) -> Option<String> {
        let at = self.below(self.model.known.len());
        self.model.known.keys().nth(at).cloned()
    }

    fn new_path(&mut self) -> String {
        self.next += 1;
        format!("{}/{:05}", self.folder, self.next)
    }

    fn step(&mut self, step: Step) -> Outcome {
        let full = self.model.known.len() >= FILES;
        let path = self.some_file();
        match (step, path) {
            (Step::Create, _) if full => Ok(()),
            (Step::Create, _) | (_, None) => self.create(),
            (Step::Overwrite, Some(path)) => self.change(Step::Overwrite, &path),
            (Step::Append, Some(path)) => self.change(Step::Append, &path),
            (Step::Publish, Some(path)) => self.change(Step::Publish, &path),
            (Step::Read, Some(path)) => self.read(&path),
            (Step::Rename, Some(path)) => self.rename(&path),
            (Step::Delete, Some(path)) if full => self.delete(&path),
            (Step::Delete, Some(_)) => Ok(()),
            (Step::List, Some(_)) => self.list(),
        }
    }

    /// Here a blow may fall.
    fn begins(&self, step: Step) {
        let mut wanted = lock(&self.shared.wanted);
        if wanted.take_if(|wanted| *wanted == step).is_some() {
            self.shared.taken.notify_all();
        }
    }

    /// Does it, and says what it came to; what takes longer than its deadline fails.
    fn timed<T>(&self, what: &str, work: impl FnOnce() -> Result<T, ClientError>) -> Result<Result<T, String>, String> {
        let begun = Instant::now();
        let result = work();
        let took = begun.elapsed();
        self.shared.operations.fetch_add(1, Ordering::SeqCst);
        self.shared.slowest_ms.fetch_max(took.as_millis() as u64, Ordering::SeqCst);
        let shown = || result.as_ref().map_or_else(ToString::to_string, |_| "done".into());
        ensure(took < DEADLINE + LATE, || format!("{what} took {took:?}: {}", shown()))?;
        Ok(result.map_err(|e| format!("{e} (after {took:?})")))
    }

    /// Whether a storage node is struck, or was since that phase.
    fn is_struck(&self, since: u32) -> bool {
        since % 2 == 1 || self.phase() != since
    }

    fn phase(&self) -> u32 {
        self.shared.phase.load(Ordering::SeqCst)
    }

    /// An error that may be counts; any other one is the campaign's end.
    fn may_fail(&self, shape: Shape, since: u32, why: &str) -> Outcome {
        ensure(shape.copies == 1 && self.is_struck(since), || format!("{shape:?}: {why}"))?;
        self.shared.failed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// A change of one file, which its close acknowledges.
    fn create(&mut self) -> Outcome {
        let (path, shape, since) = (self.new_path(), SHAPES[self.below(SHAPES.len())], self.phase());
        let content = self.some_bytes();
        let options = CreateOptions {
            classes: vec![shape.class.into()],
            copies: shape.copies,
            exclusive: true,
            ..CreateOptions::default()
        };
        self.begins(Step::Create);
        let done = self.timed(&path, || {
            let file = self.client.create(&path, &options)?;
            file.write_at(0, &content)?;
            file.close()
        })?;
        self.changed(path, shape, since, Vec::new(), content, done, true)
    }

    fn change(&mut self, step: Step, path: &str) -> Outcome {
        let since = self.phase();
        let Some(Known { shape, bytes: before, .. }) = self.model.known.get(path).cloned() else { return Ok(()) };
        let (piece, mut after) = (self.some_bytes(), before.clone());
        let at = if step == Step::Overwrite { self.below(before.len()) } else { before.len() };
        let end = (at + piece.len()).min(if step == Step::Overwrite { before.len() } else { usize::MAX });
        let piece = &piece[..end - at];
        after.resize(before.len().max(end), 0);
        after[at..end].copy_from_slice(piece);
        if step != Step::Publish {
            self.begins(step);
        }
        let work = |file: File| {
            file.write_at(at as u64, piece)?;
            if step == Step::Publish {
                self.begins(step);
            }
            file.flush()?;
            file.close()
        };
        let done = self.timed(path, || self.client.open(path, OpenOptions::read_write()).and_then(work))?;
        // What would be too large is made anew.
        if after.len() > 1 << 20 {
            self.changed(path.into(), shape, since, before, after, done, false)?;
            return if self.model.known.contains_key(path) { self.delete(path) } else { Ok(()) };
        }
        self.changed(path.into(), shape, since, before, after, done, false)
    }

    #[allow(clippy::too_many_arguments, reason = "all that is known of one change")]
    fn changed(
        &mut self,
        path: String,
        shape: Shape,
        since: u32,
        before: Vec<u8>,
        after: Vec<u8>,
        done: Result<(), String>,
        may_be_missing: bool,
    ) -> Outcome {
        match done {
            Ok(()) => {
                self.model.known.insert(path, Known { shape, bytes: after });
            }
            Err(why) => {
                self.may_fail(shape, since, &why)?;
                self.model.known.remove(&path);
                self.model.doubtful.insert(path, Doubtful { before, after, may_be_missing, why });
            }
        }
        Ok(())
    }

    fn get(&self, path: &str) -> Result<Result<Vec<u8>, String>, String> {
        self.timed(path, || {
            let file = self.client.open(path, OpenOptions::default())?;
            let mut found = vec![0; usize::try_from(file.size()).unwrap_or_default()];
            let len = file.read_at(0, &mut found)?;
            found.truncate(len);
            Ok(found)
        })
    }

    /// The same, tried again for so long.
    fn get_again(&self, path: &str, limit: Duration) -> Result<Result<Vec<u8>, String>, String> {
        let begun = Instant::now();
        loop {
            let found = self.get(path)?;
            let is_over = found.is_ok() || begun.elapsed() >= limit;
            if is_over || found.as_ref().is_err_and(|why| self.is_final(why)) {
                return Ok(found);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether that stays so: nothing is there, or it was lost with a node's memory.
    fn is_final(&self, why: &str) -> bool {
        let is_lost = self.shared.is_memory_lost.load(Ordering::SeqCst) && why.contains("its content is gone");
        is_lost || why.contains("no such file")
    }

    fn read(&mut self, path: &str) -> Outcome {
        let since = self.phase();
        self.begins(Step::Read);
        let Some(known) = self.model.known.get(path) else { return Ok(()) };
        match self.get(path)? {
            Ok(found) => known.is(path, &found),
            Err(why) => {
                ensure(why.starts_with(path), || format!("{path} is not named: {why}"))?;
                self.may_fail(known.shape, since, &why)
            }
        }
    }

    /// To a new name, or in the place of another file.
    fn rename(&mut self, path: &str) -> Outcome {
        let to = match self.below(2) {
            0 => self.new_path(),
            _ => self.some_file().filter(|to| to != path).unwrap_or_else(|| format!("{path}r")),
        };
        self.begins(Step::Rename);
        self.timed(path, || self.client.rename(path, &to, true))?.map_err(|e| format!("to {to}: {e}"))?;
        if let Some(known) = self.model.known.remove(path) {
            self.model.known.insert(to, known);
        }
        Ok(())
    }

    fn delete(&mut self, path: &str) -> Outcome {
        self.begins(Step::Delete);
        self.timed(path, || self.client.remove(path, false))??;
        self.model.known.remove(path);
        Ok(())
    }

    fn list(&self) -> Outcome {
        self.begins(Step::List);
        let list = || {
            let names = self.client.list(&self.folder)?.map(|entry| entry.map(|entry| entry.name.as_bytes().to_vec()));
            names.collect::<Result<Vec<_>, _>>()
        };
        let found = self.timed(&self.folder, list)??;
        let path = |name: &Vec<u8>| format!("{}/{}", self.folder, String::from_utf8_lossy(name));
        let found: Vec<String> = found.iter().map(path).collect();
        let is_right =
            found.iter().all(|path| self.model.known.contains_key(path) || self.model.doubtful.contains_key(path));
        let all = self.model.known.keys().all(|path| found.contains(path));
        let sure = self.model.doubtful.iter().filter(|(_, of)| !of.may_be_missing);
        let all = all && sure.clone().all(|(path, _)| found.contains(path));
        let known = || format!("{:?} are known, {:?} in doubt", self.model.known.keys(), self.model.doubtful.keys());
        ensure(is_right && all, || format!("{}: {found:?} are there, {}", self.folder, known()))
    }

    /// All files are as they were acknowledged. Those in doubt are as before or as after, and are deleted.
    fn compare(&mut self) -> Outcome {
        self.list()?;
        let is_memory_lost = self.shared.is_memory_lost.load(Ordering::SeqCst);
        let paths: Vec<String> = self.model.known.keys().cloned().collect();
        for path in paths {
            let Some(known) = self.model.known.get(&path) else { continue };
            let again = if known.shape.copies == 1 { CONNECTED } else { Duration::ZERO };
            match self.get_again(&path, again)? {
                Ok(found) => known.is(&path, &found)?,
                Err(why) => {
                    let may_be = is_memory_lost && known.shape == SHAPES[0];
                    let names = why.starts_with(&path) && why.contains("nvme-tcp://");
                    ensure(may_be && names, || format!("{:?}: all is up again: {why}", known.shape))?;
                    self.shared.lost.fetch_add(1, Ordering::SeqCst);
                    self.delete(&path)?;
                }
            }
        }
        for (path, doubtful) in std::mem::take(&mut self.model.doubtful) {
            // What its writer has left is recovered when no write of it can come any more.
            match self.get_again(&path, DEADLINE)? {
                Ok(found) => doubtful.may_be(&path, &found)?,
                Err(why) if doubtful.may_be_missing && why.contains("no such file") => continue,
                Err(why) => ensure(is_memory_lost, || format!("all is up again: {why}, first {}", doubtful.why))?,
            }
            self.timed(&path, || self.client.remove(&path, false))??;
        }
        self.list()
    }
}
