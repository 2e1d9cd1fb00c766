//! A bare server of as many bytes: epoll, all requests of a connection that are there answered with one send, nothing looked up.

use super::answers::{self, Load, Rate, Shape};
use crate::{BenchError, Setup, failed, floors};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_workload::Histogram;

/// How long a client of a store looks for an answer before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// Runs something against a server with so many connections.
fn with_server<T>(
    setup: &Setup,
    shape: &Shape,
    connections: usize,
    run: impl FnOnce(&[TcpStream]) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..connections {
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        for socket in [&client, &server] {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
        }
        clients.push(client);
        servers.push(server);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, shape, core) = (stop.clone(), shape.clone(), setup.server_core);
    let server = std::thread::spawn(move || serve(&servers, &shape, core, &stopped));
    let outcome = run(&clients);
    stop.store(true, Ordering::Relaxed);
    server.join().map_err(|e| failed("a thread", format!("{e:?}")))??;
    outcome
}

fn serve(sockets: &[TcpStream], shape: &Shape, core: usize, stop: &AtomicBool) -> Result<(), BenchError> {
    weir_sys::sched::pin(core)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (at, socket) in sockets.iter().enumerate() {
        epoll::add(&poll, socket, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
    }
    // Of the answer's length, so that whoever asks counts it as one.
    let mut answer = vec![0; shape.answer];
    answer[..4].copy_from_slice(&(shape.answer as u32 - 4).to_le_bytes());
    let mut rest = vec![0; sockets.len()];
    let mut buffer = vec![0; 64 << 10];
    let mut events: Vec<epoll::Event> = Vec::with_capacity(sockets.len());
    while !stop.load(Ordering::Relaxed) {
        events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(failed("the bare server", e)),
        }
        for event in &events {
            let at = event.data.u64() as usize;
            let n = match recv(&sockets[at], &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(()),
                Ok((n, _)) => n,
                Err(_) => continue,
            };
            rest[at] += n;
            let whole = rest[at] / shape.request.len();
            rest[at] %= shape.request.len();
            let all = answer.repeat(whole);
            let mut left = all.as_slice();
            while !left.is_empty() && !stop.load(Ordering::Relaxed) {
                match send(&sockets[at], left, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(n) => left = &left[n..],
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(_) => return Ok(()),
                }
            }
        }
    }
    Ok(())
}

/// The median of so many round trips, one after the other, ns. The client looks for an answer for as long as one of a store, then sleeps.
///
/// # Errors
/// A socket or a core is not to be had.
pub fn round_trip(setup: &Setup, shape: &Shape, count: u64) -> Result<f64, BenchError> {
    with_server(setup, shape, 1, |clients| floors::on_the_core(setup, || ping(&clients[0], shape, count)))
}

fn ping(socket: &TcpStream, shape: &Shape, count: u64) -> Result<f64, BenchError> {
    let (mut latency, mut buffer) = (Histogram::new(), vec![0; shape.answer]);
    for _ in 0..count {
        let begun = Instant::now();
        send(socket, &shape.request, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map_err(|e| failed("a request", e))?;
        let mut have = 0;
        while have < shape.answer {
            match recv(socket, &mut buffer[have..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(failed("the bare server", "it closed the connection")),
                Ok((n, _)) => have += n,
                Err(Errno::AGAIN) if begun.elapsed() < SPIN => std::hint::spin_loop(),
                Err(Errno::AGAIN) => {
                    let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
                    // An interrupted wait is one that is over.
                    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout));
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(failed("an answer", e)),
            }
        }
        latency.record(begun.elapsed().as_nanos() as u64);
    }
    Ok(latency.percentile(50.0) as f64)
}

/// Answers a second to so many connections.
///
/// # Errors
/// As [`round_trip`].
pub fn rate(setup: &Setup, shape: &Shape, (connections, load): (usize, Load)) -> Result<Rate, BenchError> {
    with_server(setup, shape, connections, |clients| answers::rate(clients, std::slice::from_ref(&shape.request), load))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Nanos;

    #[test]
    fn as_many_answers_as_questions() {
        let setup = Setup { server_core: 0, client_core: 0, ..Setup::short("weir".into()) };
        let request = answers::lookups(std::iter::once("/many/1000".to_owned())).unwrap_or_else(|e| panic!("{e:?}"));
        let shape = Shape { request: request[0].clone(), answer: 120 };
        let ns = round_trip(&setup, &shape, 20).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(ns > 0.0);
        let load = Load { depth: 4, time: Nanos::from_millis(50), core: 0 };
        let rate = rate(&setup, &shape, (8, load)).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(rate.per_s > 0.0 && rate.p99_ns > 0.0, "{rate:?}");
    }
}
