use super::*;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Waits until `enough`, for ten seconds at the most.
fn wait_for(reactor: &mut Reactor, events: &mut Vec<Ready>, mut enough: impl FnMut(&[Ready]) -> bool) {
    let deadline = now().saturating_add(Nanos::from_secs(10));
    while !enough(events) {
        assert!(now() < deadline, "nothing came: {events:?}");
        reactor.wait(Some(deadline), events);
    }
}

/// As this kernel can, and as older ones can.
fn every_level(test: impl Fn(&mut Reactor)) {
    for level in [Level::Deferred, Level::Cooperative, Level::Plain] {
        test(&mut Reactor::at_level(Waker::new().unwrap(), level).unwrap());
    }
}

fn one(reactor: &mut Reactor) -> Ready {
    let mut events = Vec::new();
    wait_for(reactor, &mut events, |e| !e.is_empty());
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

/// Turns for a while and expects silence.
fn silence(reactor: &mut Reactor) {
    let mut events = Vec::new();
    let deadline = now().saturating_add(Nanos::from_millis(20));
    while now() < deadline {
        reactor.wait(Some(deadline), &mut events);
    }
    assert!(events.is_empty(), "{events:?}");
}

fn memfd(content: &[u8]) -> Arc<OwnedFd> {
    let fd = memfd_create("reactor-test", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&fd, content, 0).unwrap();
    Arc::new(fd)
}

fn file_done(event: Ready) -> FileDone {
    match event {
        Ready::File(done) => done,
        other => panic!("not a file operation: {other:?}"),
    }
}

#[test]
fn an_edge_watch_reports_every_arrival() {
    every_level(|reactor| {
        let (mut near, far) = UnixStream::pair().unwrap();
        let watch = reactor.watch(&far, Interest::READ, Mode::Edge, 7);
        silence(reactor);
        for round in 0..3 {
            near.write_all(b"x").unwrap();
            match one(reactor) {
                Ready::Fd { token, watch: id, readiness } => {
                    assert_eq!((token, id), (7, watch), "round {round}");
                    assert!(readiness.readable() && !readiness.hung_up() && !readiness.error());
                }
                other => panic!("{other:?}"),
            }
            silence(reactor);
        }
        drop(near);
        match one(reactor) {
            Ready::Fd { readiness, .. } => assert!(readiness.hung_up() && readiness.readable()),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_once_watch_is_quiet_until_it_is_armed() {
    every_level(|reactor| {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.write_all(b"x").unwrap();
        let watch = reactor.watch(&far, Interest::READ_WRITE, Mode::Once, 9);
        let event = one(reactor);
        assert!(matches!(event, Ready::Fd { readiness, .. } if readiness.readable() && readiness.writable()));
        near.write_all(b"y").unwrap();
        silence(reactor);
        reactor.rearm(watch);
        reactor.rearm(watch);
        assert_eq!(one(reactor).token(), 9, "what is there already counts, once");
        far.read_exact(&mut [0; 2]).unwrap();
        silence(reactor);
    });
}

#[test]
fn a_late_event_never_reaches_a_successor() {
    every_level(|reactor| {
        let mut events = Vec::new();
        let mut ids = std::collections::HashSet::new();
        for round in 0..200u64 {
            let (mut near, far) = UnixStream::pair().unwrap();
            let old = reactor.watch(&far, Interest::READ, if round % 2 == 0 { Mode::Edge } else { Mode::Once }, round);
            assert!(ids.insert(old), "a watch's name was used twice");
            if round % 3 == 0 {
                reactor.turn(&mut events);
            }
            // The event and the end of the watch cross.
            near.write_all(b"x").unwrap();
            reactor.unwatch(old);
            reactor.unwatch(old);
            reactor.rearm(old);
            let (mut next_near, next_far) = UnixStream::pair().unwrap();
            let new = reactor.watch(&next_far, Interest::READ, Mode::Edge, 1000 + round);
            drop(far);
            reactor.wait(Some(now()), &mut events);
            assert!(events.is_empty(), "round {round}: {events:?}");
            next_near.write_all(b"y").unwrap();
            match one(reactor) {
                Ready::Fd { token, watch, .. } => assert_eq!((token, watch), (1000 + round, new)),
                other => panic!("{other:?}"),
            }
            reactor.unwatch(new);
        }
        for _ in 0..3 {
            reactor.wait(Some(now()), &mut events);
        }
        assert_eq!(reactor.watches.len(), 0, "places came back");
        assert!(reactor.watches.capacity() < 20, "and were used again");
    });
}

#[test]
fn unwatching_lets_the_file_go() {
    every_level(|reactor| {
        let (mut near, far) = UnixStream::pair().unwrap();
        let watch = reactor.watch(&far, Interest::READ, Mode::Edge, 1);
        silence(reactor);
        reactor.unwatch(watch);
        drop(far);
        silence(reactor);
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "the peer sees the end");
    });
}

#[test]
fn what_cannot_be_watched_is_an_error_event() {
    let mut reactor = Reactor::new().unwrap();
    let file = memfd(b"");
    // A regular file has no readiness of its own: always ready.
    reactor.watch(&*file, Interest::READ, Mode::Once, 3);
    assert_eq!(one(&mut reactor).token(), 3);
    let dir = std::fs::File::open("/").unwrap();
    let path = rustix::fs::open(".", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    drop(dir);
    reactor.watch(&path, Interest::READ, Mode::Edge, 4);
    match one(&mut reactor) {
        Ready::Fd { token: 4, readiness, .. } => assert!(readiness.error()),
        other => panic!("{other:?}"),
    }
    silence(&mut reactor);
}

#[test]
fn more_starts_than_the_ring_has_entries() {
    every_level(|reactor| {
        let file = memfd(&[5; 8192]);
        let count = 10_000;
        for token in 0..count {
            let op = FileOp::Read { file: Arc::clone(&file), offset: 4096, buf: IoBuf::new(512), range: 0..512 };
            reactor.start(op, token);
        }
        assert_eq!(reactor.files_in_flight(), count as usize);
        let mut events = Vec::new();
        wait_for(reactor, &mut events, |e| e.len() as u64 == count);
        let mut tokens: Vec<u64> = events.iter().map(Ready::token).collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..count));
        for event in events {
            let done = file_done(event);
            assert_eq!(done.result, Ok(512));
            assert!(done.buf.unwrap()[..512].iter().all(|b| *b == 5));
        }
        assert_eq!(reactor.files_in_flight(), 0);
    });
}

#[test]
fn file_operations_do_what_they_say() {
    every_level(|reactor| {
        let file = memfd(&[1; 8192]);
        let mut buf = IoBuf::new(4096);
        buf.fill(2);
        let write = FileOp::Write { file: Arc::clone(&file), offset: 1024, buf, range: 512..1024, durable: true };
        reactor.start(write, 1);
        let done = file_done(one(reactor));
        assert_eq!((done.token, done.result), (1, Ok(512)));
        let mut content = [0; 8192];
        rustix::io::pread(&file, &mut content[..], 0).unwrap();
        let expected = |i: usize| if (1024..1536).contains(&i) { 2 } else { 1 };
        assert!(content.iter().enumerate().all(|(i, b)| *b == expected(i)));

        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        reactor.start(FileOp::Allocate { file: Arc::clone(&file), mode, offset: 0, len: 4096 }, 2);
        assert_eq!(file_done(one(reactor)).result, Ok(0));
        reactor.start(FileOp::Sync { file: Arc::clone(&file) }, 3);
        assert_eq!(file_done(one(reactor)).result, Ok(0));

        let buf = done.buf.unwrap();
        reactor.start(FileOp::Read { file: Arc::clone(&file), offset: 2048, buf, range: 0..4096 }, 4);
        let done = file_done(one(reactor));
        assert_eq!(done.result, Ok(4096));
        let read = done.buf.unwrap();
        assert!(read[..2048].iter().all(|b| *b == 0) && read[2048..4096].iter().all(|b| *b == 1));

        reactor.start(FileOp::Read { file: Arc::clone(&file), offset: 8000, buf: read, range: 0..4096 }, 5);
        assert_eq!(file_done(one(reactor)).result, Ok(192), "what there is before the end");
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        reactor.start(FileOp::Sync { file: Arc::new(pipe) }, 6);
        assert_eq!(file_done(one(reactor)).result, Err(Errno::INVAL));
    });
}

/// A read of an empty pipe is in flight for as long as we like.
#[test]
fn dropping_waits_for_what_is_in_flight() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let read = Arc::new(read);
    let mut reactor = Reactor::new().unwrap();
    for token in 0..4 {
        let op = FileOp::Read { file: Arc::clone(&read), offset: u64::MAX, buf: IoBuf::new(4096), range: 0..4096 };
        reactor.start(op, token);
    }
    let mut events = Vec::new();
    reactor.turn(&mut events);
    // One more that has not been submitted.
    reactor.start(FileOp::Sync { file: memfd(b"") }, 9);
    assert_eq!((events.len(), Arc::strong_count(&read)), (0, 5));
    let begin = Instant::now();
    drop(reactor);
    assert_eq!(Arc::strong_count(&read), 1, "the operations have ended and let the file go");
    assert!(begin.elapsed() < Duration::from_secs(4), "by cancellation, not by giving up");
    drop(write);
}

#[test]
fn no_wake_up_is_lost() {
    let waker = Waker::new().unwrap();
    let (there, inbox) = mailbox::<u64>(&waker);
    let total = 60_000u64;
    let seen = Arc::new(AtomicU64::new(0));
    let reader = {
        let seen = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut reactor = Reactor::with_waker(waker).unwrap();
            let (mut events, mut expected) = (Vec::new(), [0u64; 2]);
            while expected.iter().sum::<u64>() < total {
                // No deadline: one lost wake-up and this hangs.
                reactor.wait(None, &mut events);
                while let Ok(message) = inbox.try_recv() {
                    let (who, n) = (message as usize & 1, message >> 1);
                    assert_eq!(n, expected[who], "in the order of sending");
                    expected[who] += 1;
                    seen.fetch_add(1, Ordering::Release);
                }
            }
        })
    };
    let senders: Vec<_> = (0..2u64)
        .map(|who| {
            let (there, seen) = (there.clone(), Arc::clone(&seen));
            std::thread::spawn(move || {
                for n in 0..total / 2 {
                    there.send(n << 1 | who).unwrap();
                    // Some at once, some when the reader is about to sleep, some when it sleeps.
                    match n % 64 {
                        0 => std::thread::yield_now(),
                        1..4 => {
                            let until = Instant::now() + Duration::from_nanos(n % 5 * 700);
                            while Instant::now() < until {}
                        }
                        63 => {
                            let before = seen.load(Ordering::Acquire);
                            let patience = Instant::now();
                            while seen.load(Ordering::Acquire) == before && patience.elapsed().as_micros() < 200 {}
                        }
                        _ => {}
                    }
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|s| s.join().unwrap());
    reader.join().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), total);
    assert!(there.send(1).is_err(), "nobody is there any more");
}

#[test]
fn sending_to_a_spinning_reactor_is_no_system_call() {
    let mut reactor = Reactor::new().unwrap();
    let (there, inbox) = mailbox::<u32>(reactor.waker());
    let mut events = Vec::new();
    reactor.turn(&mut events);
    for n in 0..100 {
        there.send(n).unwrap();
        reactor.turn(&mut events);
        assert_eq!(inbox.try_recv(), Ok(n));
    }
    let mut count = [0u8; 8];
    assert_eq!(rustix::io::read(reactor.waker().eventfd(), &mut count), Err(Errno::AGAIN), "the eventfd was written");
    assert!(events.is_empty());
}

#[test]
fn wait_ends_before_its_deadline_and_not_long_before() {
    let mut reactor = Reactor::new().unwrap();
    let mut events = Vec::new();
    let mut late = Vec::new();
    for _ in 0..20 {
        let deadline = now().saturating_add(Nanos::from_millis(3));
        let mut waits = 0;
        while now() < deadline {
            reactor.wait(Some(deadline), &mut events);
            waits += 1;
        }
        late.push(now().saturating_sub(deadline).get());
        assert!(waits >= 1);
    }
    // A busy machine delays many of them, a wrong timeout all.
    let best = late.iter().min();
    assert!(best.is_some_and(|ns| *ns < 1_000_000), "every wait was late by more than 1 ms: {late:?}");
    reactor.wait(Some(Nanos(0)), &mut events);
    assert!(events.is_empty(), "a deadline in the past is a turn");
}

#[test]
fn an_idle_reactor_takes_no_time() {
    // In a process-wide measure other tests would count, so this one asks for its own thread.
    std::thread::spawn(|| {
        let mut reactor = Reactor::new().unwrap();
        let mut events = Vec::new();
        let (near, far) = UnixStream::pair().unwrap();
        reactor.watch(&far, Interest::READ, Mode::Edge, 0);
        let mut idle = Idle::default();
        let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let (begin, deadline) = (used(), now().saturating_add(Nanos::from_millis(400)));
        while now() < deadline {
            reactor.turn(&mut events);
            if !idle.keep_spinning(now(), !events.is_empty()) {
                reactor.wait(Some(deadline), &mut events);
            }
        }
        let end = used();
        let nanos = (end.tv_sec - begin.tv_sec) * 1_000_000_000 + end.tv_nsec - begin.tv_nsec;
        assert!(nanos < 40_000_000, "{nanos} ns of 400 ms");
        drop(near);
    })
    .join()
    .unwrap();
}

/// A reactor may be made by one thread and turned by another.
#[test]
fn belongs_to_whoever_turns_it_first() {
    let mut reactor = Reactor::new().unwrap();
    let (mut near, far) = UnixStream::pair().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    reactor.watch(&far, Interest::READ, Mode::Edge, 5);
    near.write_all(b"x").unwrap();
    let waker = reactor.waker().clone();
    let other = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            assert_eq!(one(&mut reactor).token(), 5);
            let mut events = Vec::new();
            while !stop.load(Ordering::Acquire) {
                reactor.wait(None, &mut events);
            }
        })
    };
    std::thread::sleep(Duration::from_millis(10));
    stop.store(true, Ordering::Release);
    waker.wake();
    other.join().unwrap();
}

#[test]
fn errors_say_what_to_do() {
    let text = |e: i32| ReactorError::from(std::io::Error::from_raw_os_error(e)).to_string();
    assert!(text(libc::ENOSYS).contains("Linux 5.13"));
    assert!(text(libc::EPERM).contains("kernel.io_uring_disabled=0"));
    assert!(text(libc::ENOMEM).contains("cannot set up io_uring"));
}
