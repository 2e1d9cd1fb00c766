//! Namespaces in files and over NVMe/TCP, and targets that go, hang up or are not there.

pub(crate) mod model_target;

use super::{
    BlockingNamespace, MemoryPlace, NamespaceUrl, Tier, TierCommand, TierCommandId, TierDone, TierMemory, TierOptions,
    open,
};
use model_target::ModelTarget;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_store::file::{FileBuffer, FileOpId};
use weir_sys::reactor::now;

/// The memory of each command, by its number.
struct Memory(Vec<Vec<u8>>);

impl Memory {
    fn range(at: &MemoryPlace) -> (usize, std::ops::Range<usize>) {
        let FileBuffer::Caller(FileOpId(op), from) = at.buffer else { panic!("a caller's memory") };
        (op as usize, from as usize..from as usize + at.len as usize)
    }
}

impl TierMemory for Memory {
    fn bytes(&self, at: &MemoryPlace) -> &[u8] {
        let (op, range) = Memory::range(at);
        &self.0[op][range]
    }
    fn bytes_mut(&mut self, at: &MemoryPlace) -> &mut [u8] {
        let (op, range) = Memory::range(at);
        &mut self.0[op][range]
    }
}

fn place(op: u64, len: usize) -> MemoryPlace {
    MemoryPlace { file: 0, buffer: FileBuffer::Caller(FileOpId(op), 0), len: len as u32 }
}

/// Polls until so many commands are over.
fn finish(tier: &mut dyn Tier, memory: &mut Memory, count: usize) -> Vec<TierDone> {
    let (mut done, begun) = (Vec::new(), Instant::now());
    while done.len() < count {
        if !tier.poll(now(), memory, &mut done) {
            std::thread::sleep(Duration::from_micros(50));
        }
        tier.attend(now());
        assert!(begun.elapsed() < Duration::from_secs(30), "{} of {count}: {:?}", done.len(), tier.trouble());
    }
    done
}

/// Many commands at once, longer than a transfer may be: all are carried out, also over connections that end.
fn many_commands(hang_up_every: u32) -> ModelTarget {
    let target = ModelTarget::new(32 << 20, 512);
    target.hang_up_every(hang_up_every);
    let mut tier = open(&target.url(), TierOptions::default()).unwrap();
    let len = |n: u64| 512 * (1 + (n as usize * 37) % 700);
    let content = |n: u64| (0..len(n)).map(|i| (i / 512) as u8 ^ (i as u8) ^ n as u8).collect::<Vec<u8>>();
    let mut memory = Memory((0..60).map(content).collect());
    for n in 0..60 {
        let what = TierCommand::Write(n * (512 << 10), place(n, len(n)));
        tier.submit(now(), TierCommandId(n), what, &mut memory);
    }
    assert!(finish(&mut *tier, &mut memory, 60).iter().all(|done| done.is_done));
    tier.submit(now(), TierCommandId(99), TierCommand::Flush, &mut memory);
    assert!(finish(&mut *tier, &mut memory, 1)[0].is_done);
    memory.0 = (0..60).map(|n| vec![0; len(n)]).collect();
    for n in 0..60 {
        let what = TierCommand::Read(n * (512 << 10), place(n, len(n)));
        tier.submit(now(), TierCommandId(100 + n), what, &mut memory);
    }
    let done = finish(&mut *tier, &mut memory, 60);
    assert!(done.iter().all(|done| done.is_done), "{done:?} {:?}", tier.trouble());
    for n in 0..60 {
        assert!(memory.0[n as usize] == content(n), "command {n}");
    }
    assert_eq!((tier.pending(), tier.geometry().unwrap().bytes), (0, 32 << 20));
    target
}

#[test]
fn many_commands_are_in_flight_at_once() {
    assert_eq!(many_commands(0).associations(), (1, 1));
}

#[test]
fn commands_are_sent_again_over_connections_that_end() {
    let (associations, hosts) = many_commands(17).associations();
    assert!(associations > 3 && hosts == 1, "{associations} associations of {hosts} hosts");
}

/// Requests of before may still be carried out: an answer that says neither is no end.
#[test]
fn a_target_that_does_not_say_whether_an_association_has_ended_is_asked_on() {
    let target = ModelTarget::new(4 << 20, 4096);
    target.says_nothing();
    let keep_alive = Duration::from_millis(10);
    let mut tier = open(&target.url(), TierOptions { keep_alive, ..TierOptions::default() }).unwrap();
    let mut memory = Memory(vec![vec![3; 4096]]);
    tier.submit(now(), TierCommandId(1), TierCommand::Write(0, place(0, 4096)), &mut memory);
    assert!(finish(&mut *tier, &mut memory, 1)[0].is_done);
    target.go_away(true);
    target.go_away(false);
    tier.submit(now(), TierCommandId(2), TierCommand::Read(0, place(0, 4096)), &mut memory);
    assert!(finish(&mut *tier, &mut memory, 1)[0].is_done);
    assert!(target.asked() > 1, "it is connected to after {} questions", target.asked());
}

/// A connection ends between the parts of one write: its end is that of all of them over the next one.
#[test]
fn a_write_in_parts_is_carried_out_over_one_connection() {
    let mut commands = super::parts::Commands::default();
    commands.add(TierCommandId(1), TierCommand::Write(0, place(0, 12288)));
    let parts: Vec<_> = (0..3).map(|_| commands.next(4096).unwrap()).collect();
    commands.end_part(parts[0], true);
    commands.end_part(parts[2], true);
    // The connection is lost with the second part in flight.
    commands.waiting.push_front(parts[1]);
    commands.send_again();
    let again: Vec<_> = std::iter::from_fn(|| commands.next(4096)).collect();
    let mut offsets: Vec<u64> = again.iter().map(|part| part.offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 4096, 8192]);
    let mut done = Vec::new();
    for part in again {
        commands.take_over(&mut done);
        assert_eq!(done, [], "it is not over before its last part");
        commands.end_part(part, true);
    }
    commands.take_over(&mut done);
    assert_eq!(done, [TierDone { command: TierCommandId(1), is_done: true }]);
}

/// What a drive without a volatile write cache has acknowledged lasts: a flush is over at once. Before it is known to have none the flush is sent.
#[test]
fn a_drive_without_a_volatile_cache_is_not_flushed() {
    for (has_cache, sent) in [(true, 2), (false, 1)] {
        let target = ModelTarget::new(4 << 20, 4096);
        target.set_cache(has_cache);
        let mut tier = open(&target.url(), TierOptions::default()).unwrap();
        let mut memory = Memory(vec![vec![7; 4096]]);
        tier.submit(now(), TierCommandId(1), TierCommand::Flush, &mut memory);
        assert!(!tier.has_finished());
        tier.submit(now(), TierCommandId(2), TierCommand::Write(0, place(0, 4096)), &mut memory);
        assert!(finish(&mut *tier, &mut memory, 2).iter().all(|done| done.is_done));
        tier.submit(now(), TierCommandId(3), TierCommand::Flush, &mut memory);
        assert_eq!((tier.has_finished(), tier.pending()), (!has_cache, 1));
        assert_eq!(finish(&mut *tier, &mut memory, 1), [TierDone { command: TierCommandId(3), is_done: true }]);
        assert_eq!((target.flushes(), tier.pending(), tier.has_volatile_cache()), (sent, 0, has_cache));
    }
}

/// What was flushed over another connection than it was written is not known to be there.
#[test]
fn who_waits_is_told_of_a_flush_over_another_connection() {
    let target = ModelTarget::new(4 << 20, 4096);
    target.set_cache(true);
    let mut namespace = BlockingNamespace::open(&target.url(), TierOptions::default()).unwrap();
    namespace.write(0, &[1; 4096]).unwrap();
    namespace.flush().unwrap();
    namespace.write(0, &[2; 4096]).unwrap();
    target.go_away(true);
    target.go_away(false);
    let mut read = [0; 4096];
    // The connection is made again.
    namespace.read(0, &mut read).unwrap();
    let error = namespace.flush().unwrap_err().to_string();
    assert!(error.contains("between a write and its flush"), "{error}");
    namespace.write(0, &[2; 4096]).unwrap();
    namespace.flush().unwrap();
}

#[test]
fn a_target_that_goes_fails_commands_in_time_and_may_come_back() {
    let target = ModelTarget::new(4 << 20, 4096);
    let options = TierOptions { timeout: Duration::from_secs(1), ..TierOptions::default() };
    let mut tier = open(&target.url(), options).unwrap();
    let mut memory = Memory(vec![vec![3; 4096]]);
    tier.submit(now(), TierCommandId(1), TierCommand::Write(0, place(0, 4096)), &mut memory);
    assert!(finish(&mut *tier, &mut memory, 1)[0].is_done);
    target.go_away(true);
    let begun = Instant::now();
    for id in 2..5 {
        tier.submit(now(), TierCommandId(id), TierCommand::Read(0, place(0, 4096)), &mut memory);
        assert!(!finish(&mut *tier, &mut memory, 1)[0].is_done, "it waits for the timeout, and the next ones do not");
    }
    assert!(begun.elapsed() < Duration::from_secs(10) && tier.trouble().is_some());
    target.go_away(false);
    memory.0[0].fill(0);
    let begun = Instant::now();
    for id in 10.. {
        tier.submit(now(), TierCommandId(id), TierCommand::Read(0, place(0, 4096)), &mut memory);
        if finish(&mut *tier, &mut memory, 1)[0].is_done {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", tier.trouble());
    }
    assert_eq!(memory.0[0], [3; 4096]);
}

/// A target comes back while nobody asks anything of it: the connection is taken as soon as it is made, and kept alive; and what comes then is not late.
#[test]
fn a_target_that_comes_back_while_nobody_asks_is_there() {
    let target = ModelTarget::new(4 << 20, 4096);
    let options = TierOptions { timeout: Duration::from_millis(300), ..TierOptions::default() };
    let mut tier = open(&target.url(), options).unwrap();
    let mut memory = Memory(vec![vec![3; 4096]]);
    let mut read = |tier: &mut dyn Tier, id| {
        tier.submit(now(), TierCommandId(id), TierCommand::Read(0, place(0, 4096)), &mut memory);
        finish(tier, &mut memory, 1)[0].is_done
    };
    assert!(read(&mut *tier, 1));
    for (round, is_polled) in [(1, false), (2, true)] {
        target.go_away(true);
        assert!(!read(&mut *tier, 10 * round), "it is away");
        assert_eq!((tier.connection(), tier.due()), (round, weir_units::Nanos::NEVER));
        target.go_away(false);
        let begun = Instant::now();
        while tier.due() > now() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", tier.trouble());
            std::thread::sleep(Duration::from_millis(5));
        }
        if is_polled {
            tier.poll(now(), &mut Memory(Vec::new()), &mut Vec::new());
            assert_eq!(tier.connection(), round + 1, "it is taken although no command waits");
        }
        assert!(read(&mut *tier, 10 * round + 1), "{:?}", tier.trouble());
    }
}

#[test]
fn a_read_that_is_given_up_leaves_its_memory_alone() {
    let target = ModelTarget::new(4 << 20, 4096);
    target.get_stuck(true);
    let mut tier = open(&target.url(), TierOptions::default()).unwrap();
    let mut memory = Memory(vec![vec![1; 4096], vec![2; 4096]]);
    tier.submit(now(), TierCommandId(0), TierCommand::Read(0, place(0, 4096)), &mut memory);
    tier.submit(now(), TierCommandId(1), TierCommand::Write(4096, place(1, 4096)), &mut memory);
    assert_eq!(finish(&mut *tier, &mut memory, 1), [TierDone { command: TierCommandId(1), is_done: true }]);
    tier.abort(TierCommandId(0));
    assert_eq!(finish(&mut *tier, &mut memory, 1), [TierDone { command: TierCommandId(0), is_done: false }]);
    assert!(!tier.may_still_write(now()) && memory.0[0] == [1; 4096]);
    target.get_stuck(false);
    tier.submit(now(), TierCommandId(2), TierCommand::Read(4096, place(0, 4096)), &mut memory);
    assert!(finish(&mut *tier, &mut memory, 1)[0].is_done && memory.0[0] == [2; 4096]);
}

#[test]
fn labels_are_looked_at_over_a_network_as_well() {
    let target = ModelTarget::new(4 << 20, 512);
    let label = TierOptions {
        label: Some(Arc::new(|first: &[u8]| match first {
            [0x5a, ..] => Err("it has no label".into()),
            _ => Ok(()),
        })),
        ..options()
    };
    let error = BlockingNamespace::open(&target.url(), label.clone()).unwrap_err().to_string();
    assert!(error.contains("it has no label"), "{error}");
    let mut namespace = BlockingNamespace::open(&target.url(), options()).unwrap();
    namespace.write(0, &[1; 4096]).unwrap();
    assert_eq!(BlockingNamespace::open(&target.url(), label).unwrap().geometry().sector, 512);
}

fn options() -> TierOptions {
    TierOptions { allow_files: true, timeout: Duration::from_secs(2), ..TierOptions::default() }
}

#[test]
fn a_file_is_a_namespace() {
    let dir = std::env::temp_dir().join(format!("weir-tier-{}", std::process::id()));
    std::fs::write(&dir, vec![7; 1 << 20]).unwrap();
    let url = format!("file:{}?sector=512", dir.display());
    let mut namespace = BlockingNamespace::open(&url, options()).unwrap();
    assert_eq!((namespace.geometry().sector, namespace.geometry().bytes), (512, 1 << 20));
    namespace.write(1024, &[9; 512]).unwrap();
    namespace.flush().unwrap();
    let mut read = [0; 1536];
    namespace.read(512, &mut read).unwrap();
    assert_eq!((read[0], read[512], read[1024]), (7, 9, 7));
    assert!(namespace.write(1, &[0; 512]).is_err(), "no whole sector");
    assert!(namespace.read(1 << 20, &mut read).is_err(), "behind its end");
    let label = TierOptions {
        label: Some(Arc::new(|first: &[u8]| if first[0] == 7 { Err("it is a stranger's".into()) } else { Ok(()) })),
        ..options()
    };
    assert!(BlockingNamespace::open(&url, label).unwrap_err().to_string().contains("it is a stranger's"));
    let closed = TierOptions { allow_files: false, ..options() };
    assert!(BlockingNamespace::open(&url, closed).unwrap_err().to_string().contains("not let in"));
    std::fs::remove_file(&dir).unwrap();
}

#[test]
fn a_target_that_is_not_there_is_told_in_time() {
    let url = "nvme-tcp://127.0.0.1:1/nqn.2026-11.io.weir:none?ns=1";
    let begun = std::time::Instant::now();
    let error = BlockingNamespace::open(url, options()).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && begun.elapsed() < Duration::from_secs(20), "{error}");
}

#[test]
fn urls() {
    for bad in ["", "file:", "file:/a?sector=1024", "file:/a?x=1", "vfio-user:/a", "nvme-tcp://h/nqn.x"] {
        assert!(NamespaceUrl::parse(bad).is_err(), "{bad}");
    }
    let file = NamespaceUrl::parse("file:/a").unwrap();
    assert_eq!(file, NamespaceUrl::File { path: "/a".into(), sector: 4096 });
}
