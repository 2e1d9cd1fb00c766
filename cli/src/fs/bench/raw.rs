//! A namespace without the store: the same driver, queue and waiting as a store's client has.

use super::args::{BenchMode, BenchPlan};
use super::meter::{Measured, Meter};
use super::target::{pattern, places};
use crate::failure::CommandFailure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};
use weir_store::file::FileBuffer;
use weir_store::service::LabelFound;
use weir_store_node::client::ClientOptions;
use weir_store_node::label;
use weir_store_node::tier::{
    self, LABEL_BYTES, MemoryPlace, Tier, TierCommand, TierCommandId, TierDone, TierGeometry, TierMemory, TierOptions,
};
use weir_sys::reactor::now;
use weir_units::Nanos;
use weir_workload::Xoshiro256;

/// How long nothing may come.
const SILENCE: Duration = Duration::from_secs(4);
/// Bytes of the longest operation.
const SIZE_MAX: u64 = 1 << 30;
/// Of an operation's number: 65,536 slots at the most.
const SLOT_BITS: u32 = 16;
/// The longest sleep.
const SLEEP: Nanos = Nanos::from_millis(100);

/// Runs a mode on the first `region` bytes of a namespace, so many times.
///
/// # Errors
/// The target is none or does not answer; an operation failed; it would write over a store.
pub fn measure(
    target: &str,
    plan: &BenchPlan,
    region: Option<u64>,
    experiments: u32,
) -> Result<Vec<Measured>, CommandFailure> {
    measure_with(target, plan, region, (experiments, TierOptions::default()))
}

/// The same, opened in another way.
pub(super) fn measure_with(
    target: &str,
    plan: &BenchPlan,
    region: Option<u64>,
    (experiments, options): (u32, TierOptions),
) -> Result<Vec<Measured>, CommandFailure> {
    let about = |e: &dyn std::fmt::Display| failed(plan, &format_args!("{target}: {e}"));
    let usage = |e| CommandFailure::usage(format_args!("fs bench: {e}"));
    let tier = tier::open(target, options).map_err(usage)?;
    let mut raw = Raw::new(tier, plan.batch, plan.size);
    let geometry = raw.open(is_written(plan.mode)).map_err(|e| about(&e))?;
    let bytes = region.unwrap_or(geometry.bytes).min(geometry.bytes);
    if plan.size as u64 % u64::from(geometry.sector) != 0 || plan.size as u64 > SIZE_MAX {
        let why = format!("fs bench: -s {}: a namespace takes whole sectors of {}", plan.size, geometry.sector);
        return Err(CommandFailure::usage(why));
    }
    let places = places(bytes, plan.size, target).map_err(|e| failed(plan, &e))?;
    let mut all = Vec::new();
    for _ in 0..experiments {
        // The warm-up reads: what it would write is what is measured.
        let warm_up = BenchPlan { mode: BenchMode::ReadRandom, operations: plan.warmup, ..*plan };
        raw.run(&warm_up, places).map_err(|e| about(&e))?;
        all.push(raw.run(plan, places).map_err(|e| about(&e))?);
    }
    Ok(all)
}

fn is_written(mode: BenchMode) -> bool {
    matches!(mode, BenchMode::Write | BenchMode::WriteAsync)
}

/// A buffer for each operation in flight.
struct Slots(Vec<Vec<u8>>);

impl TierMemory for Slots {
    fn bytes(&self, at: &MemoryPlace) -> &[u8] {
        self.0.get(at.file as usize).map_or(&[], |slot| part(at).and_then(|part| slot.get(part)).unwrap_or_default())
    }
    fn bytes_mut(&mut self, at: &MemoryPlace) -> &mut [u8] {
        let slot = self.0.get_mut(at.file as usize);
        slot.and_then(|slot| part(at).and_then(|part| slot.get_mut(part))).unwrap_or_default()
    }
}

fn part(at: &MemoryPlace) -> Option<std::ops::Range<usize>> {
    match at.buffer {
        FileBuffer::Own(_, first) => Some(first as usize..first as usize + at.len as usize),
        FileBuffer::Caller(..) => None,
    }
}

struct Raw {
    tier: Box<dyn Tier>,
    slots: Slots,
    /// Free slots.
    free: Vec<usize>,
    /// Of each slot: when its operation began.
    flight: Vec<Option<Instant>>,
    done: Vec<TierDone>,
    /// How long it looks for an answer without sleeping.
    spin: Duration,
    /// Operations so far; with the slot in the low bits that is an operation's number.
    begun: u64,
}

impl Raw {
    fn new(tier: Box<dyn Tier>, batch: usize, size: usize) -> Raw {
        let slots = Slots(vec![pattern(size.max(LABEL_BYTES)); batch]);
        // As a client of a store has it: on a single core nobody spins.
        let can_spin = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        let spin = if can_spin { ClientOptions::default().spin } else { Duration::ZERO };
        Raw { tier, slots, free: (0..batch).collect(), flight: vec![None; batch], done: Vec::new(), spin, begun: 0 }
    }

    fn submit(&mut self, since: Instant, write: bool, at: u64, len: u32) {
        let Some(slot) = self.free.pop() else { return };
        self.begun += 1;
        let id = TierCommandId(self.begun << SLOT_BITS | slot as u64);
        let place = MemoryPlace { file: slot as u64, buffer: FileBuffer::Own(0, 0), len };
        let what = if write { TierCommand::Write(at, place) } else { TierCommand::Read(at, place) };
        self.flight[slot] = Some(since);
        self.tier.submit(now(), id, what, &mut self.slots);
    }

    /// Waits until something is over: when each of it began.
    fn wait(&mut self, over: &mut Vec<Instant>) -> Result<(), String> {
        let mut quiet: Option<Instant> = None;
        loop {
            self.tier.poll(now(), &mut self.slots, &mut self.done);
            if !self.done.is_empty() {
                break;
            }
            let quiet = quiet.get_or_insert_with(Instant::now).elapsed();
            if quiet > SILENCE {
                return Err(self.tier.trouble().unwrap_or_else(|| "it does not answer".into()));
            }
            if quiet < self.spin {
                std::hint::spin_loop();
            } else {
                self.sleep();
            }
        }
        for TierDone { command, is_done } in self.done.drain(..) {
            let slot = (command.0 & ((1 << SLOT_BITS) - 1)) as usize;
            over.extend(self.flight[slot].take());
            self.free.push(slot);
            if !is_done {
                return Err(self.tier.trouble().unwrap_or_else(|| "an operation failed".into()));
            }
        }
        Ok(())
    }

    /// As a client of the store: it has looked for so long, and sleeps.
    fn sleep(&mut self) {
        self.tier.attend(now());
        let left = self.tier.due().saturating_sub(now()).min(SLEEP);
        let Some((socket, for_room)) = self.tier.socket() else {
            return std::thread::sleep(Duration::from_millis(1));
        };
        let flags = if for_room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.get() as _ };
        // An interrupted sleep is one that is over.
        let _ = poll(&mut [PollFd::from_borrowed_fd(socket, flags)], Some(&timeout));
    }

    /// Connects, and looks at what is there where that is to be overwritten.
    fn open(&mut self, is_written: bool) -> Result<TierGeometry, String> {
        self.submit(Instant::now(), false, 0, LABEL_BYTES as u32);
        self.wait(&mut Vec::new())?;
        let geometry = self.tier.geometry().ok_or("it says nothing of its size")?;
        let slot = self.free.last().copied().unwrap_or(0);
        let found = label::decode(&self.slots.0[slot][..LABEL_BYTES]);
        match found {
            LabelFound::Label { .. } if is_written => {
                Err("files of a store are on it, which would be overwritten; measure the store instead".into())
            }
            _ => Ok(geometry),
        }
    }

    fn run(&mut self, plan: &BenchPlan, places: u64) -> Result<Measured, String> {
        let (write, random) = (is_written(plan.mode), plan.mode == BenchMode::ReadRandom);
        if write {
            // What was read before is in them.
            self.slots.0.iter_mut().for_each(|slot| *slot = pattern(slot.len()));
        }
        let mut rng = Xoshiro256::new(u64::from(std::process::id()));
        let mut over = Vec::with_capacity(plan.batch);
        let mut meter = Meter::begin(plan.operations);
        let (mut begun, mut since) = (0, meter.begun());
        let mut flying = 0;
        while begun < plan.operations || flying > 0 {
            while begun < plan.operations && !self.free.is_empty() {
                let place = if random { rng.below(places) } else { begun % places };
                self.submit(since, write, place * plan.size as u64, plan.size as u32);
                begun += 1;
                flying += 1;
            }
            self.wait(&mut over)?;
            for began in over.drain(..) {
                since = meter.count(began, plan.size as u64);
                flying -= 1;
            }
        }
        Ok(meter.end())
    }
}

fn failed(plan: &BenchPlan, e: &dyn std::fmt::Display) -> CommandFailure {
    CommandFailure::new(format_args!("fs bench {}: {e}", plan.mode.name()))
}
