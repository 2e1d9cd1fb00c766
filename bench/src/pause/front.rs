//! The load: requests of one queue, always as many in flight as its depth, and the longest time without a completion.

use super::processes::{Way, on_the_way};
use super::{Case, Door};
use crate::servers::Node;
use crate::{BenchError, Setup, failed};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_driver::{Io, IoKind, QueuePair, nvme_tcp as tcp, vhost_user};
use weir_sys::reactor::now;
use weir_sys::sched::RunDelay;
use weir_sys::transport::{nvme_tcp, vfio_user, vhost_user::connect};
use weir_workload::Xoshiro256;

/// Bytes of a request.
const SIZE: u32 = 4096;
/// A gap that somebody looks at, ns.
pub(super) const GAP: u64 = 50_000;
/// How long a node that is away is waited for.
pub(super) const NODE_RETURN_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two attempts to connect to it.
const AGAIN: Duration = Duration::from_micros(100);
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:b0f5a6c2-6c3e-4f0f-9a71-2b1f6c1d0c11";

/// What the front end's thread tells.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) stop: AtomicBool,
    /// The process that stands for the node, and those of its workers that do not take over.
    pub(super) node: Mutex<(u32, Vec<i32>)>,
    /// When something was completed last, ns.
    pub(super) last: AtomicU64,
    /// The longest time without a completion since it was set to 0, when it ended, and what threads had waited until then.
    pub(super) gap: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) waited: AtomicU64,
    /// Of an upgrade: what was waited within that gap.
    pub(super) within: AtomicU64,
    /// The keeper and the new program's first thread; shards, which serve one after the other. Who is not in it yet has not waited.
    pub(super) ways: Mutex<[Way; 2]>,
}

impl Seen {
    /// Whose waits count.
    pub(super) fn is_of(&self, node: u32, others: Vec<i32>) {
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = (node, others);
    }

    /// What has been waited along each way so far, and by the front end itself.
    fn along(&self, own: &RunDelay) -> [u64; 3] {
        let [first, second] = &mut *self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        [first.waited(), second.waited(), own.read().map_or(0, |ns| ns.0)]
    }

    /// What those have waited so far that count.
    pub(super) fn waited_now(&self) -> u64 {
        let (node, others) = &*self.node.lock().unwrap_or_else(PoisonError::into_inner);
        on_the_way(*node, others)
    }
}

/// A front end that runs until it is told to stop.
pub(super) struct Front {
    pub(super) seen: Arc<Seen>,
    thread: JoinHandle<Result<(), BenchError>>,
}

impl Front {
    /// Connects to the node, on the client's core; `pcie` is the socket of its vfio-user door, where it has one.
    ///
    /// # Errors
    /// No thread can be started; why it could not connect [`stop`](Self::stop) says.
    pub(super) fn start(setup: &Setup, case: &Case, node: &Node, pcie: PathBuf) -> Result<Self, BenchError> {
        let seen = Arc::new(Seen::default());
        seen.is_of(node.server.id(), Vec::new());
        let (case, core, told) = (*case, setup.client_core, seen.clone());
        let (vhost, port) = (node.socket.clone(), node.port);
        let (ready, started) = std::sync::mpsc::channel();
        let run = move || {
            weir_sys::sched::pin(core)?;
            let none = || failed("the drive", "it gives no queue");
            match case.door {
                Door::VhostUser => {
                    let first = || {
                        let mut pairs = connect(&vhost, vhost_user::FrontEndOptions::default(), case.depth, SIZE)?;
                        pairs.pop().ok_or_else(none)
                    };
                    let pair = first()?;
                    let _ = ready.send(());
                    let again = || persist(first);
                    run(pair, case.begins_anew().then_some(&again), &case, &told)
                }
                // Its connection stays, or nothing does.
                Door::VfioUser => {
                    let options = vfio_user::VfioUserOptions {
                        depth: case.depth,
                        max_io: SIZE,
                        ..vfio_user::VfioUserOptions::default()
                    };
                    let pair = vfio_user::connect(&pcie, &options)?.pop().ok_or_else(none)?;
                    let _ = ready.send(());
                    run(pair, None::<&fn() -> _>, &case, &told)
                }
                Door::NvmeTcp => {
                    let depth = case.depth as u16;
                    let options = tcp::ConnectOptions { queues: 1, depth, ..tcp::ConnectOptions::new(Node::NQN, HOST) };
                    let first = || nvme_tcp::open("127.0.0.1", port, &options, SIZE)?.pop().ok_or_else(none);
                    let mut pair = first()?;
                    if !case.begins_anew() {
                        pair.reconnect_for(NODE_RETURN_TIMEOUT);
                    }
                    let _ = ready.send(());
                    let again = || persist(first);
                    run(pair, case.begins_anew().then_some(&again), &case, &told)
                }
            }
        };
        let thread = std::thread::Builder::new().name("front".into()).spawn(run)?;
        // Where it could not begin, joining it says why.
        let _ = started.recv();
        Ok(Front { seen, thread })
    }

    /// Whether it has ended, which it does by itself only where something has failed.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Lets what is in flight complete, and ends.
    ///
    /// # Errors
    /// Something had failed.
    pub(super) fn stop(self) -> Result<(), BenchError> {
        self.seen.stop.store(true, Relaxed);
        self.thread.join().map_err(|_| failed("front end", "panicked"))?
    }
}

/// Tries until it succeeds, or [`NODE_RETURN_TIMEOUT`] is over.
fn persist<T>(one: impl Fn() -> Result<T, BenchError>) -> Result<T, BenchError> {
    let begun = Instant::now();
    loop {
        match one() {
            Err(_) if begun.elapsed() < NODE_RETURN_TIMEOUT => std::thread::sleep(AGAIN),
            result => return result,
        }
    }
}

/// Where requests go: to pieces that lie over all of a drive, of which no more is written than there is memory for.
struct Places {
    pieces: u64,
    /// From one to the next, bytes.
    stride: u64,
    /// Requests of a piece.
    blocks: u64,
}

/// Bytes of a piece: a huge page.
const PIECE: u64 = 2 << 20;
/// Bytes of all pieces at most.
const WRITTEN: u64 = 1 << 30;

impl Places {
    fn of(capacity: u64) -> Self {
        let pieces = (capacity.min(WRITTEN) / PIECE).max(1);
        let blocks = (capacity.min(PIECE) / u64::from(SIZE)).max(1);
        Places { pieces, stride: capacity / pieces / PIECE * PIECE, blocks }
    }

    fn random(&self, random: &mut Xoshiro256) -> u64 {
        random.below(self.pieces) * self.stride + random.below(self.blocks) * u64::from(SIZE)
    }
}

/// Keeps requests in flight until it is told to stop. `again` makes a new queue where one is lost, with all that was in flight.
fn run<Q: QueuePair>(
    mut pair: Q,
    again: Option<&impl Fn() -> Result<Q, BenchError>>,
    case: &Case,
    seen: &Seen,
) -> Result<(), BenchError> {
    let depth = case.depth.min(pair.depth());
    let (mut free, mut done): (Vec<u32>, Vec<_>) = ((0..depth).collect(), Vec::new());
    let mut random = Xoshiro256::new(7);
    let places = Places::of(pair.capacity());
    let mut last = now().0;
    let own = RunDelay::of_this_thread()?;
    // What had been waited when the gap began that there is.
    let mut begun = None;
    while !(seen.stop.load(Relaxed) && free.len() == depth as usize) {
        while !seen.stop.load(Relaxed) {
            let Some(slot) = free.pop() else { break };
            let kind = if case.write || random.below(2) == 0 { IoKind::Write } else { IoKind::Read };
            pair.submit(Io { kind, offset: places.random(&mut random), len: SIZE, slot })?;
        }
        if let Err(e) = pair.poll(&mut done) {
            pair = again.ok_or(e)?()?;
            free = (0..depth).collect();
            done.clear();
            continue;
        }
        if done.is_empty() {
            if begun.is_none() && now().0 - last > GAP {
                begun = Some(seen.along(&own));
            }
            continue;
        }
        let at = now().0;
        let gap = at - last;
        if gap > GAP && gap > seen.gap.load(Relaxed) {
            // A gap that is over when it is first looked at is the front end's own.
            let (after, own) = (seen.along(&own), at - last);
            let within = |begun: [u64; 3]| after.iter().zip(begun).map(|(a, b)| a.saturating_sub(b)).max();
            seen.within.store(begun.and_then(within).unwrap_or(own), Relaxed);
            seen.waited.store(seen.waited_now(), Relaxed);
            seen.ended.store(at, Relaxed);
            seen.gap.store(gap, Relaxed);
        }
        begun = None;
        // What was looked at takes a while, which is nobody's gap.
        last = now().0;
        seen.last.store(last, Relaxed);
        for one in done.drain(..) {
            if !one.status.is_success() {
                return Err(failed("a request", one.status));
            }
            free.push(one.slot);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_lie_over_all_of_a_drive_and_in_a_gibibyte_of_it() {
        for capacity in [1 << 20, 64 << 20, 1 << 30, 64 << 30, 1_000_000_000_000] {
            let (places, mut random) = (Places::of(capacity), Xoshiro256::new(1));
            assert!(places.pieces * PIECE <= WRITTEN.max(PIECE), "{capacity}: {} pieces", places.pieces);
            assert!(places.stride >= PIECE || places.pieces == 1, "{capacity}: pieces overlap");
            let farthest = (0..10_000).map(|_| places.random(&mut random)).max().unwrap_or(0);
            assert!(farthest + u64::from(SIZE) <= capacity, "{capacity}: {farthest} lies behind its end");
            assert!(farthest >= capacity / 2, "{capacity}: {farthest} is the farthest");
        }
    }
}
