//! One copy of a job at work on one queue pair: fills it, and accounts for what comes back.
//!
//! ```text
//!   Waiting ──start──► Running ──stop──► Draining ──► Checking ──► Finished
//!                                            └── nothing to verify ──▲
//! ```
//! The clock is read once per batch: a request's latency runs from the start of the turn that submitted it to the end of
//! the poll that found it done. With one request in flight that is one reading per request and exact; with many it counts
//! a request's time up to the end of its batch, which is what a program that reaps in batches sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_driver::{Done, Io, IoKind, QueuePair, TransportError};
use weir_units::{Bytes, Nanos};
use weir_workload::verify::{Claim, Verifier};
use weir_workload::{Generator, Job, Pacer, Recorder, Request, RequestKind};

/// Draws of a verifying job before it waits for a request in flight to end.
const DRAWS: usize = 8;

/// How long a target may leave every request unanswered.
const ANSWER_TIMEOUT: Nanos = Nanos::from_secs(30);

/// What a worker has done so far, for the progress line.
#[derive(Debug, Default)]
pub struct WorkerProgress {
    /// Requests.
    pub ios: AtomicU64,
    /// Bytes of the requests that `ios` counts.
    pub bytes: AtomicU64,
    /// Its target is open, and its time runs.
    pub ready: AtomicBool,
}

/// When things happen, on one clock for all workers.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Where the intervals of all series begin.
    pub base: Nanos,
    /// The first request.
    pub start: Nanos,
    /// Counting begins: the end of the ramp, or the start.
    pub count: Nanos,
    /// The last request.
    pub stop: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Draining,
    /// Reads what was written; the next byte to look at.
    Checking(u64),
    Finished,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    since: Nanos,
    request: Request,
    claim: Claim,
}

/// See the [module](self).
pub struct Worker {
    /// Index of its job.
    pub job: usize,
    /// What has finished; filled by polling, emptied by [`reap`](Self::reap).
    pub done: Vec<Done>,
    generator: Generator,
    pacer: Option<Pacer>,
    verifier: Option<Verifier>,
    recorder: Recorder,
    schedule: Schedule,
    phase: Phase,
    free: Vec<u32>,
    flights: Vec<Flight>,
    /// Drawn, and waits for a request in flight to end.
    pending: Option<Request>,
    max_io: u32,
    trouble: Option<String>,
    has_wrong_data: bool,
    last_answer: Nanos,
    total: (u64, u64),
    progress: Arc<WorkerProgress>,
}

impl Worker {
    /// The same, which keeps latencies of writes apart.
    pub fn by_kind(self) -> Self {
        Worker { recorder: self.recorder.by_kind(), ..self }
    }

    /// A copy of a job on a queue pair.
    pub fn new<Q: QueuePair>(
        job: (usize, &Job),
        pair: &mut Q,
        generator: Generator,
        verifier: Option<Verifier>,
        schedule: Schedule,
        series: Option<Nanos>,
        progress: Arc<WorkerProgress>,
    ) -> Self {
        let (index, job) = job;
        let depth = pair.depth().min(job.depth);
        let empty = Request { kind: RequestKind::Read, offset: 0, len: 0 };
        if job.pattern.writes() && verifier.is_none() {
            fill_buffers(pair, depth);
        }
        progress.ready.store(true, Ordering::Relaxed);
        Worker {
            job: index,
            done: Vec::with_capacity(depth as usize),
            pacer: generator.pacer(job, schedule.start),
            generator,
            verifier,
            recorder: Recorder::new(schedule.base, series),
            schedule,
            phase: Phase::Waiting,
            free: (0..depth).rev().collect(),
            flights: vec![Flight { since: Nanos(0), request: empty, claim: Claim::default() }; depth as usize],
            pending: None,
            max_io: pair.max_io(),
            trouble: None,
            has_wrong_data: false,
            last_answer: Nanos(0),
            total: (0, 0),
            progress,
        }
    }

    /// Nothing more to do.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Whether it must know the time at every turn.
    pub fn is_timed(&self) -> bool {
        self.pacer.is_some() || self.phase == Phase::Waiting
    }

    /// What it counted, and what went wrong first.
    pub fn into_result(mut self) -> (Recorder, Option<String>) {
        self.recorder.tick(self.schedule.stop);
        (self.recorder, self.trouble)
    }

    /// Submits what may be submitted now.
    ///
    /// # Errors
    /// The transport broke.
    #[inline]
    pub fn fill<Q: QueuePair>(&mut self, pair: &mut Q, now: Nanos) -> Result<(), TransportError> {
        if self.phase == Phase::Running && now < self.schedule.stop {
            return match (&self.verifier, &self.pacer) {
                (None, None) => self.issue(pair, now),
                _ => self.issue_with_care(pair, now),
            };
        }
        self.fill_at_the_ends(pair, now)
    }

    #[cold]
    fn fill_at_the_ends<Q: QueuePair>(&mut self, pair: &mut Q, now: Nanos) -> Result<(), TransportError> {
        loop {
            let idle = self.free.len() == self.flights.len();
            let next = match self.phase {
                Phase::Waiting if now >= self.schedule.start => Phase::Running,
                Phase::Running if now < self.schedule.stop => return self.fill(pair, now),
                Phase::Running => Phase::Draining,
                Phase::Draining if idle && self.verifier.is_some() => Phase::Checking(0),
                Phase::Draining if idle => Phase::Finished,
                Phase::Checking(from) => match self.check_next(pair, from, now)? {
                    None if idle => Phase::Finished,
                    None => return Ok(()),
                    Some(from) => Phase::Checking(from),
                },
                Phase::Waiting | Phase::Draining | Phase::Finished => return Ok(()),
            };
            self.phase = next;
            self.last_answer = now;
        }
    }

    /// The hot path: no rate, nothing to verify.
    #[inline]
    fn issue<Q: QueuePair>(&mut self, pair: &mut Q, now: Nanos) -> Result<(), TransportError> {
        while let Some(slot) = self.free.pop() {
            let request = self.generator.next_request();
            self.flights[slot as usize] = Flight { since: now, request, claim: Claim::default() };
            pair.submit(io(&request, slot))?;
        }
        Ok(())
    }

    fn issue_with_care<Q: QueuePair>(&mut self, pair: &mut Q, now: Nanos) -> Result<(), TransportError> {
        if let Some(pacer) = &mut self.pacer {
            pacer.look(now);
        }
        while !self.free.is_empty() {
            let due = self.pacer.as_ref().map_or(now, Pacer::due);
            if due > now {
                break;
            }
            let Some((request, claim)) = self.draw() else { break };
            if let Some(pacer) = &mut self.pacer {
                pacer.advance(request.len);
            }
            self.send(pair, due, request, claim)?;
        }
        Ok(())
    }

    /// The next request that overlaps none in flight.
    fn draw(&mut self) -> Option<(Request, Claim)> {
        for _ in 0..DRAWS {
            let request = self.pending.take().unwrap_or_else(|| self.generator.next_request());
            let Some(verifier) = &mut self.verifier else { return Some((request, Claim::default())) };
            match verifier.claim(&request) {
                Some(claim) => return Some((request, claim)),
                // What is written one after the other must stay so; what is random is drawn again.
                None if !self.generator.is_random() => {
                    self.pending = Some(request);
                    return None;
                }
                None => {}
            }
        }
        None
    }

    fn send<Q: QueuePair>(
        &mut self,
        pair: &mut Q,
        since: Nanos,
        request: Request,
        claim: Claim,
    ) -> Result<(), TransportError> {
        let Some(slot) = self.free.pop() else { return Ok(()) };
        if let (RequestKind::Write, Some(verifier)) = (request.kind, &self.verifier) {
            verifier.fill(&request, claim, pair.buffer(slot));
        }
        self.flights[slot as usize] = Flight { since, request, claim };
        pair.submit(io(&request, slot))
    }

    /// Reads back the next stretch of what was written; where to go on, or `None` where that has to wait or is the end.
    fn check_next<Q: QueuePair>(&mut self, pair: &mut Q, from: u64, now: Nanos) -> Result<Option<u64>, TransportError> {
        let Some(verifier) = &mut self.verifier else { return Ok(None) };
        if self.free.is_empty() {
            return Ok(None);
        }
        let Some(request) = verifier.written(from, self.max_io) else { return Ok(None) };
        let Some(claim) = verifier.claim(&request) else { return Ok(None) };
        self.send(pair, now, request, claim)?;
        Ok(Some(request.offset + u64::from(request.len)))
    }

    /// Accounts for what a poll found done, at the time after the poll.
    #[inline]
    pub fn reap<Q: QueuePair>(&mut self, pair: &mut Q, now: Nanos) {
        let gap = now.saturating_sub(self.last_answer);
        self.last_answer = now;
        self.recorder.tick(now.min(self.schedule.stop));
        let counts = now >= self.schedule.count && now <= self.schedule.stop;
        if counts && self.pacer.is_none() {
            self.recorder.gap(gap);
        }
        let plain = counts && self.verifier.is_none();
        let mut done = std::mem::take(&mut self.done);
        for Done { slot, status } in done.drain(..) {
            let flight = &self.flights[slot as usize];
            if plain && status.is_success() {
                let len = flight.request.len;
                self.recorder.record(now.get() - flight.since.get(), len, flight.request.kind);
                self.total.0 += 1;
                self.total.1 += u64::from(len);
            } else {
                self.finish(pair, slot, status, counts.then_some(now));
            }
            self.free.push(slot);
        }
        self.done = done;
        self.progress.ios.store(self.total.0, Ordering::Relaxed);
        self.progress.bytes.store(self.total.1, Ordering::Relaxed);
    }

    #[cold]
    fn finish<Q: QueuePair>(
        &mut self,
        pair: &mut Q,
        slot: u32,
        status: weir_spec::nvme::Status,
        counted: Option<Nanos>,
    ) {
        let Flight { since, request, claim } = self.flights[slot as usize];
        let failed = !status.is_success();
        let mut wrong_data = None;
        if let Some(verifier) = &mut self.verifier {
            if !failed && request.kind == RequestKind::Read {
                wrong_data = verifier.check(&request, pair.buffer(slot)).err();
            }
            verifier.finish(&request, claim, !failed);
        }
        match wrong_data {
            Some(mismatch) => {
                self.recorder.wrong_data();
                // Worse than any request that failed before it.
                if !std::mem::replace(&mut self.has_wrong_data, true) {
                    self.trouble = Some(mismatch.to_string());
                }
            }
            None if failed => {
                self.recorder.error();
                self.trouble.get_or_insert_with(|| {
                    let (len, at) = (Bytes(u64::from(request.len)), request.offset);
                    format!("{} of {len} at byte {at}: {status}", name(request.kind))
                });
            }
            None => {
                if let Some(now) = counted {
                    self.recorder.record(now.saturating_sub(since).get(), request.len, request.kind);
                }
                self.total.0 += 1;
                self.total.1 += u64::from(request.len);
            }
        }
    }

    /// Nothing has come for a moment: has the target gone silent?
    ///
    /// # Errors
    /// It has.
    pub fn wait(&mut self, now: Nanos) -> Result<(), TransportError> {
        self.recorder.tick(now.min(self.schedule.stop));
        let waiting = self.flights.len() - self.free.len();
        if waiting == 0 || now.saturating_sub(self.last_answer) < ANSWER_TIMEOUT {
            return Ok(());
        }
        Err(TransportError::Timeout(format!("{waiting} requests have had no answer for {ANSWER_TIMEOUT}")))
    }
}

fn io(request: &Request, slot: u32) -> Io {
    let kind = match request.kind {
        RequestKind::Read => IoKind::Read,
        RequestKind::Write => IoKind::Write,
        RequestKind::Trim => IoKind::Trim,
    };
    Io { kind, offset: request.offset, len: request.len, slot }
}

fn name(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "read",
        RequestKind::Write => "write",
        RequestKind::Trim => "trim",
    }
}

/// Bytes that no drive can compress or recognise as zeroes, once: they are sent again and again.
fn fill_buffers<Q: QueuePair>(pair: &mut Q, depth: u32) {
    for slot in 0..depth {
        let mut rng = weir_workload::Xoshiro256::new(u64::from(slot));
        for word in pair.buffer(slot).chunks_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
        }
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
