//! What bare sockets give: the limit that the NVMe/TCP door is held against. Requests of 72 bytes (a command capsule) are
//! answered with 24 bytes and the data (a data PDU with its header). Both ends spin, each on its core, with `MSG_DONTWAIT`.
//!
//! The server receives all requests that are there and answers them with one `sendmsg`, straight from random places of a
//! buffer as large as the drive: nothing is copied but by the kernel. With one request in flight it is a ping-pong.

use crate::{BenchError, Setup, failed};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg, sockopt};
use std::io::IoSlice;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_workload::{Histogram, Xoshiro256};

/// Bytes of a request: common header, command.
const REQUEST: usize = 72;
/// Bytes before the data of an answer.
const HEADER: usize = 24;
/// Bytes of a page of the buffer.
const PAGE: usize = 4096;
/// Most parts of one `sendmsg` (IOV_MAX), two of which make an answer.
const PARTS: usize = 1024;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests in flight.
    pub depth: usize,
    /// Bytes of data of each.
    pub bytes: usize,
}

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Requests a second.
    pub iops: f64,
    /// Median latency, ns.
    pub p50_ns: f64,
}

/// The buffer that answers come from.
pub struct Store(Vec<u8>);

impl Store {
    /// Written full, so that every page is there.
    pub fn new(bytes: u64) -> Self {
        let mut rng = Xoshiro256::new(2);
        let mut store = vec![0u8; bytes as usize];
        for page in store.chunks_mut(PAGE) {
            page.fill(rng.next_u64() as u8 | 1);
        }
        Store(store)
    }
}

/// Keeps `load.depth` requests in flight for the time of a run.
///
/// # Errors
/// A core or a socket is not to be had.
pub fn run(setup: &Setup, store: &Arc<Store>, load: Load) -> Result<Run, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for socket in [&client, &server] {
        sockopt::set_tcp_nodelay(socket, true)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (store, stopped, core) = (store.clone(), stop.clone(), setup.server_core);
    let server = thread::spawn(move || serve(&server, (&store, load.bytes), core, &stopped));
    let (time, core) = (Duration::from_nanos(setup.time.get()), setup.client_core);
    let asker = thread::spawn(move || ask(&client, load, time, core));
    let join = |e| failed("a thread", format!("{e:?}"));
    let asked = asker.join().map_err(join)?;
    stop.store(true, Ordering::Relaxed);
    server.join().map_err(join)??;
    asked
}

fn serve(
    socket: &TcpStream,
    (store, bytes): (&Store, usize),
    core: usize,
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    weir_sys::sched::pin(core)?;
    let mut rng = Xoshiro256::new(3);
    let places = (store.0.len() / bytes) as u64;
    let header = [0u8; HEADER];
    let mut requests = vec![0u8; REQUEST * PARTS / 2];
    let mut have = 0;
    while !stop.load(Ordering::Relaxed) {
        match recv(socket, &mut requests[have..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(()),
            Ok((n, _)) => have += n,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            // The client is done and closed with answers unread.
            Err(Errno::CONNRESET) => return Ok(()),
            Err(e) => return Err(failed("the bare server", e)),
        }
        let whole = have / REQUEST;
        let mut parts = Vec::with_capacity(2 * whole);
        for _ in 0..whole {
            let at = rng.below(places) as usize * bytes;
            parts.push(IoSlice::new(&header));
            parts.push(IoSlice::new(&store.0[at..at + bytes]));
        }
        requests.copy_within(whole * REQUEST..have, 0);
        have -= whole * REQUEST;
        let mut parts = parts.as_mut_slice();
        while !parts.is_empty() {
            match sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            {
                Ok(n) => IoSlice::advance_slices(&mut parts, n),
                Err(Errno::AGAIN | Errno::INTR) if !stop.load(Ordering::Relaxed) => {}
                Err(Errno::AGAIN | Errno::INTR | Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(e) => return Err(failed("the bare server", e)),
            }
        }
    }
    Ok(())
}

fn ask(socket: &TcpStream, load: Load, time: Duration, core: usize) -> Result<Run, BenchError> {
    let (depth, answer) = (load.depth, HEADER + load.bytes);
    weir_sys::sched::pin(core)?;
    let requests = vec![0u8; REQUEST * depth];
    let mut answers = vec![0u8; answer * depth];
    // When each request in flight left, oldest first: answers come in order.
    let mut sent = std::collections::VecDeque::with_capacity(depth);
    let mut latency = Histogram::new();
    let (mut have, mut owed, mut done) = (0, 0, 0u64);
    let begun = Instant::now();
    let mut now = begun;
    let mut polls = 0u32;
    while now.duration_since(begun) < time {
        let free = depth - sent.len();
        if free > 0 || owed > 0 {
            sent.extend(std::iter::repeat_n(now, free));
            owed += free * REQUEST;
            match send(socket, &requests[..owed], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => owed -= n,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(failed("the bare client", e)),
            }
        }
        match recv(socket, &mut answers[have..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(failed("the bare client", "the server closed the connection")),
            Ok((n, _)) => have += n,
            Err(Errno::AGAIN | Errno::INTR) => {
                polls += 1;
                // A server that died must not keep the client for ever.
                if polls % 1024 == 0 {
                    now = Instant::now();
                }
                continue;
            }
            Err(e) => return Err(failed("the bare client", e)),
        }
        let whole = have / answer;
        if whole > 0 {
            now = Instant::now();
            for since in sent.drain(..whole) {
                latency.record((now - since).as_nanos() as u64);
            }
            // Answers are looked at in place: only what is left of the last one moves.
            answers.copy_within(whole * answer..have, 0);
            have -= whole * answer;
            done += whole as u64;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Run { iops: done as f64 / seconds, p50_ns: latency.percentile(50.0) as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_pong_and_batches() {
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
        let store = Arc::new(Store::new(1 << 20));
        for depth in [1, 32] {
            let run = run(&setup, &store, Load { depth, bytes: 4096 }).unwrap_or_else(|e| panic!("{e:?}"));
            assert!(run.iops > 0.0 && run.p50_ns > 0.0, "{run:?}");
        }
    }
}
