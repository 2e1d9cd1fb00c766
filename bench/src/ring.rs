//! What shared memory gives: the limit that the vfio-user door is held against. A submission ring of 64-byte entries, a completion ring
//! of 16-byte entries with a phase tag, one doorbell, and for each request a copy between a random place of an array as large as
//! the drive and a buffer of the client's. Each end has a core and a mapping of its own and spins; there is no protocol, no
//! arbitration, no bounds check of anything that the other end says, no prefetch.

use crate::{BenchError, Setup, failed};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_session::memory::{Memory, MemoryFault};
use weir_session::vhost_user::{GuestRegion, Map};
use weir_sys::memory::{GuestMemory, memory_file};
use weir_workload::{Histogram, Xoshiro256};

/// Entries of the rings; more than are ever in flight.
const ENTRIES: u64 = 256;
/// Where things are in the shared memory.
const DOORBELL: u64 = 0;
const SQ: u64 = 4096;
const CQ: u64 = SQ + ENTRIES * 64;
const BUFFERS: u64 = CQ + 4096;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests in flight.
    pub depth: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// From the client to the array.
    pub write: bool,
}

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Requests a second.
    pub iops: f64,
    /// Median latency, ns.
    pub p50_ns: f64,
}

fn mapped(file: &OwnedFd, len: u64) -> Result<GuestMemory, BenchError> {
    let mut memory = GuestMemory::new();
    let file = file.as_fd().try_clone_to_owned()?;
    let region = GuestRegion { guest: 0, len, user: 0, offset: 0 };
    memory.add(region, file).map_err(|e| failed("shared memory", e))?;
    memory.populate();
    Ok(memory)
}

/// Keeps `load.depth` requests in flight for the time of a run, on an array that is written full.
///
/// # Errors
/// A core or the memory is not to be had.
pub fn run(setup: &Setup, array: &mut [u8], load: Load) -> Result<Run, BenchError> {
    let len = BUFFERS + load.depth * load.bytes;
    let file = memory_file("weir-bench-ring", len as usize)?;
    let (ours, theirs) = (mapped(&file, len)?, mapped(&file, len)?);
    let stop = AtomicBool::new(false);
    let (time, (s, c)) = (Duration::from_nanos(setup.time.get()), (setup.server_core, setup.client_core));
    let places = array.len() as u64 / load.bytes;
    let join = |e| failed("a thread", format!("{e:?}"));
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(theirs, array, load, s, &stop));
        let client = scope.spawn(move || ask(ours, places, load, time, c));
        let asked = client.join().map_err(join);
        stop.store(true, Ordering::Relaxed);
        server.join().map_err(join)??;
        asked?
    })
}

fn serve(memory: GuestMemory, array: &mut [u8], load: Load, core: usize, stop: &AtomicBool) -> Result<(), BenchError> {
    weir_sys::sched::pin(core)?;
    let fault = |e: MemoryFault| failed("the bare server", e);
    let doorbell = memory.window(DOORBELL, 8).map_err(fault)?;
    let mut head = 0;
    while !stop.load(Ordering::Relaxed) {
        let tail = memory.load64(&doorbell, 0, Ordering::Acquire).map_err(fault)?;
        while head != tail {
            let mut entry = [0; 64];
            memory.read(SQ + head % ENTRIES * 64, &mut entry).map_err(fault)?;
            let word = |i: usize| entry[8 * i..8 * i + 8].try_into().map_or(0, u64::from_le_bytes);
            let (slot, at) = (word(0), (word(1) * load.bytes) as usize);
            let (bytes, buffer) = (&mut array[at..at + load.bytes as usize], BUFFERS + slot * load.bytes);
            if load.write { memory.read(buffer, bytes) } else { memory.write(buffer, bytes) }.map_err(fault)?;
            let done = memory.window(CQ + head % ENTRIES * 16, 16).map_err(fault)?;
            memory.store64(&done, 0, word(2), Ordering::Relaxed).map_err(fault)?;
            let phase = (head / ENTRIES + 1) & 1;
            memory.store64(&done, 8, slot | phase << 48, Ordering::Release).map_err(fault)?;
            head += 1;
        }
    }
    Ok(())
}

fn ask(memory: GuestMemory, places: u64, load: Load, time: Duration, core: usize) -> Result<Run, BenchError> {
    weir_sys::sched::pin(core)?;
    let fault = |e: MemoryFault| failed("the bare client", e);
    let doorbell = memory.window(DOORBELL, 8).map_err(fault)?;
    let mut rng = Xoshiro256::new(5);
    let mut free: Vec<u64> = (0..load.depth).collect();
    let mut sent = vec![Instant::now(); load.depth as usize];
    let mut latency = Histogram::new();
    let (mut tail, mut head, mut polls) = (0, 0u64, 0u32);
    let begun = Instant::now();
    let mut now = begun;
    while now.duration_since(begun) < time {
        if !free.is_empty() {
            for slot in free.drain(..) {
                let mut entry = [0; 64];
                entry[..8].copy_from_slice(&slot.to_le_bytes());
                entry[8..16].copy_from_slice(&rng.below(places).to_le_bytes());
                memory.write(SQ + tail % ENTRIES * 64, &entry).map_err(fault)?;
                sent[slot as usize] = now;
                tail += 1;
            }
            memory.store64(&doorbell, 0, tail, Ordering::Release).map_err(fault)?;
        }
        let before = head;
        loop {
            let done = memory.window(CQ + head % ENTRIES * 16, 16).map_err(fault)?;
            let high = memory.load64(&done, 8, Ordering::Acquire).map_err(fault)?;
            if high >> 48 & 1 != (head / ENTRIES + 1) & 1 {
                break;
            }
            free.push(high & 0xffff);
            head += 1;
        }
        polls += 1;
        if head != before {
            now = Instant::now();
            free.iter().for_each(|slot| latency.record((now - sent[*slot as usize]).as_nanos() as u64));
        } else if polls % 1024 == 0 {
            now = Instant::now();
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Run { iops: head as f64 / seconds, p50_ns: latency.percentile(50.0) as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_comes_back_with_its_bytes() {
        let setup = Setup {
            rounds: 1,
            time: weir_units::Nanos::from_millis(50),
            capacity: "1MiB".to_string(),
            flash_capacity: "1MiB".to_string(),
            server_core: 0,
            client_core: 0,
            far_core: None,
            only: String::new(),
            weir: None,
            qemu_storage_daemon: None,
        };
        let mut array = vec![7u8; 1 << 20];
        for (depth, write) in [(1, false), (32, false), (128, true)] {
            let load = Load { depth, bytes: 4096, write };
            let run = run(&setup, &mut array, load).unwrap_or_else(|e| panic!("{e:?}"));
            assert!(run.iops > 0.0 && run.p50_ns > 0.0, "{run:?}");
            // What clients write are the zeroes of their buffers.
            assert_eq!(array.contains(&0), write);
        }
    }
}
