//! Workers on a drive of plain bytes that the tests slow down and damage.

use super::*;
use weir_spec::nvme::Status;
use weir_workload::verify::Verifier;
use weir_workload::{JobTarget, Rate};

/// Answers at the poll after the next, newest first; may lose writes, or fail.
struct Disk {
    bytes: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    queued: Vec<Io>,
    in_flight: Vec<Io>,
    lose_write: Option<usize>,
    fail_all: bool,
    silent: bool,
    submitted: Vec<Io>,
}

const SIZE: usize = 1 << 20;

impl Disk {
    fn new(depth: usize) -> Self {
        Disk {
            bytes: vec![0; SIZE],
            buffers: vec![vec![0; 65536]; depth],
            queued: Vec::new(),
            in_flight: Vec::new(),
            lose_write: None,
            fail_all: false,
            silent: false,
            submitted: Vec::new(),
        }
    }

    fn serve(&mut self, io: &Io) {
        let range = io.offset as usize..io.offset as usize + io.len as usize;
        let buffer = &mut self.buffers[io.slot as usize][..io.len as usize];
        match io.kind {
            IoKind::Read => buffer.copy_from_slice(&self.bytes[range]),
            IoKind::Write if self.lose_write == Some(0) => self.lose_write = None,
            IoKind::Write => {
                self.lose_write = self.lose_write.map(|n| n - 1);
                self.bytes[range].copy_from_slice(buffer);
            }
            _ => {}
        }
    }
}

impl QueuePair for Disk {
    fn depth(&self) -> u32 {
        self.buffers.len() as u32
    }
    fn block_size(&self) -> u32 {
        512
    }
    fn capacity(&self) -> u64 {
        SIZE as u64
    }
    fn max_io(&self) -> u32 {
        65536
    }
    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.buffers[slot as usize]
    }
    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        io.check(self)?;
        self.submitted.push(io);
        self.queued.push(io);
        Ok(())
    }
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        if self.silent {
            return Ok(());
        }
        for io in std::mem::take(&mut self.in_flight).into_iter().rev() {
            self.serve(&io);
            let status = if self.fail_all { Status::WRITE_FAULT } else { Status::SUCCESS };
            done.push(Done { slot: io.slot, status });
        }
        self.in_flight = std::mem::take(&mut self.queued);
        Ok(())
    }
}

fn worker(disk: &mut Disk, text: &str, verify: bool, schedule: Schedule) -> Worker {
    let job = Job::parse(text, &Job::default()).unwrap();
    let device = JobTarget { capacity: SIZE as u64, block: 512, max_io: 65536 };
    let generator = Generator::new(&job, device, 0, 1).unwrap();
    let strict = !job.pattern.writes();
    let verifier = verify.then(|| Verifier::new(generator.region(), 512, 1, strict, weir_sys::crc::crc32c).unwrap());
    Worker::new((0, &job), disk, generator, verifier, schedule, Some(Nanos(1000)), Arc::default())
}

const PLAIN: Schedule = Schedule { base: Nanos(0), start: Nanos(0), count: Nanos(0), stop: Nanos(10_000) };

/// Turns of `step` nanoseconds until the worker has finished; how many.
fn drive(disk: &mut Disk, worker: &mut Worker, step: u64) -> u64 {
    for turn in 0..1_000_000 {
        worker.fill(disk, Nanos(turn * step)).unwrap();
        if worker.is_finished() {
            assert!(disk.queued.is_empty() && disk.in_flight.is_empty());
            return turn;
        }
        disk.poll(&mut worker.done).unwrap();
        if !worker.done.is_empty() {
            worker.reap(disk, Nanos(turn * step + step));
        }
    }
    panic!("it never ends");
}

#[test]
fn latency_runs_from_submission_to_the_poll_that_found_it() {
    let mut disk = Disk::new(1);
    let mut w = worker(&mut disk, "qd=1", false, PLAIN);
    drive(&mut disk, &mut w, 100);
    let (recorder, trouble) = w.into_result();
    let s = recorder.summary(Nanos(10_000));
    assert_eq!(trouble, None);
    // Submitted at the start of a turn, done at the end of the next one.
    assert_eq!((s.latency.p50, s.latency.max, s.latency.mean), (200, 200, 200.0));
    assert_eq!(recorder.so_far().0, 50);
    let points = recorder.series();
    assert_eq!(points.len(), 10);
    // A request that ends with a window counts in the next one: 200, 400, 600, 800 | 1000, ... 1800 | ...
    let expected = |i: usize| if i == 0 { 4e6 } else { 5e6 };
    assert!(points.iter().enumerate().all(|(i, p)| (p.iops - expected(i)).abs() < 1e-3), "{points:?}");
}

#[test]
fn keeps_its_depth_and_no_more() {
    let mut disk = Disk::new(8);
    let mut w = worker(&mut disk, "qd=5,bs=512", false, PLAIN);
    w.fill(&mut disk, Nanos(0)).unwrap();
    assert_eq!(disk.queued.len(), 5);
    drive(&mut disk, &mut w, 100);
    assert!(disk.submitted.iter().all(|io| io.slot < 5));
}

#[test]
fn starts_counts_and_stops_on_time() {
    let mut disk = Disk::new(1);
    let schedule = Schedule { base: Nanos(1000), start: Nanos(500), count: Nanos(2000), stop: Nanos(3000) };
    let mut w = worker(&mut disk, "qd=1", false, schedule);
    w.fill(&mut disk, Nanos(499)).unwrap();
    assert!(disk.submitted.is_empty() && w.is_timed());
    let turns = drive(&mut disk, &mut w, 100);
    assert!((30..=32).contains(&turns), "{turns}");
    let (recorder, _) = w.into_result();
    // Submitted at 1500 and every 200 after it: done at 2100, 2300, 2500, 2700, 2900.
    assert_eq!(recorder.so_far().0, 5, "done from 2000 to 3000");
    assert_eq!(recorder.series().iter().map(|p| p.iops.round() as u64).collect::<Vec<_>>(), [0, 5_000_000]);
}

#[test]
fn an_open_loop_counts_from_when_a_request_was_due() {
    let mut disk = Disk::new(4);
    // One request every 50 ns, while the drive answers one every 200.
    let mut w = worker(&mut disk, "qd=1,rate=20M", false, PLAIN);
    drive(&mut disk, &mut w, 100);
    let (recorder, _) = w.into_result();
    let s = recorder.summary(Nanos(10_000));
    assert_eq!(recorder.so_far().0, 50);
    assert!(s.latency.max > 7_000, "the last one was due long before: {}", s.latency.max);
    let mut slow = worker(&mut disk, "qd=4,rate=1M", false, PLAIN);
    drive(&mut disk, &mut slow, 100);
    let (recorder, _) = slow.into_result();
    assert_eq!((recorder.so_far().0, recorder.summary(Nanos(10_000)).latency.max), (10, 200));
    assert!(Rate::Iops(1) != Rate::Bandwidth(1));
}

#[test]
fn what_was_written_is_read_back() {
    for text in ["qd=4,rw=randwrite,bs=4KiB:50/8KiB:50", "qd=4,rw=write,region=64KiB", "qd=4,rw=randrw,region=32KiB"] {
        let mut disk = Disk::new(4);
        let mut w = worker(&mut disk, text, true, PLAIN);
        drive(&mut disk, &mut w, 100);
        let (recorder, trouble) = w.into_result();
        assert_eq!((trouble, recorder.so_far().1), (None, 0), "{text}");
        let reads = disk.submitted.iter().rev().take_while(|io| io.kind == IoKind::Read);
        let covered: u64 = reads.map(|io| u64::from(io.len)).sum();
        let mut written: Vec<u64> = disk
            .submitted
            .iter()
            .filter(|io| io.kind == IoKind::Write)
            .flat_map(|io| (0..u64::from(io.len / 512)).map(|i| io.offset / 512 + i))
            .collect();
        written.sort_unstable();
        written.dedup();
        assert!(covered >= written.len() as u64 * 512, "{text}: {covered}");
    }
}

#[test]
fn no_two_requests_of_a_verifying_job_overlap() {
    let mut disk = Disk::new(8);
    let mut w = worker(&mut disk, "qd=8,rw=randrw,bs=512:50/2KiB:50,region=8KiB", true, PLAIN);
    for turn in 0..90 {
        w.fill(&mut disk, Nanos(turn * 100)).unwrap();
        let both: Vec<Io> = disk.queued.iter().chain(&disk.in_flight).copied().collect();
        for (i, a) in both.iter().enumerate() {
            for b in &both[i + 1..] {
                assert!(a.offset + u64::from(a.len) <= b.offset || b.offset + u64::from(b.len) <= a.offset);
            }
        }
        disk.poll(&mut w.done).unwrap();
        w.reap(&mut disk, Nanos(turn * 100 + 100));
    }
}

#[test]
fn a_lost_write_is_found() {
    let run = |region: &str, lose: Option<usize>| {
        let mut disk = Disk::new(2);
        disk.lose_write = lose;
        let text = format!("qd=2,rw=write,bs=16KiB,region={region}");
        let mut w = worker(&mut disk, &text, true, Schedule { stop: Nanos(3000), ..PLAIN });
        drive(&mut disk, &mut w, 100);
        let writes = disk.submitted.iter().filter(|io| io.kind == IoKind::Write).count();
        let (recorder, trouble) = w.into_result();
        (writes, recorder.so_far().1, trouble)
    };
    let (writes, errors, trouble) = run("32KiB", None);
    assert_eq!((errors, trouble), (0, None));
    assert!(writes > 10);
    let (_, errors, trouble) = run("32KiB", Some(writes - 1));
    assert_eq!(errors, 1);
    let trouble = trouble.unwrap();
    assert!(trouble.contains("the block is stale: it is of write"), "{trouble}");
    assert_eq!(run("32KiB", Some(0)).1, 0, "what is written again later is not lost");
    // One place each, so that nothing is written again.
    let (_, errors, trouble) = run("1MiB", Some(1));
    assert_eq!(errors, 1);
    let trouble = trouble.unwrap();
    assert!(trouble.contains("verification failed at byte 0: the block is all zeroes"), "{trouble}");
}

#[test]
fn failures_are_counted_and_the_first_is_told() {
    let mut disk = Disk::new(2);
    disk.fail_all = true;
    let mut w = worker(&mut disk, "qd=2,rw=write", false, PLAIN);
    drive(&mut disk, &mut w, 100);
    let (recorder, trouble) = w.into_result();
    assert_eq!(recorder.so_far(), (0, 100));
    assert!(trouble.unwrap().starts_with("write of 4KiB at byte 4096: Write Fault"), "the newest answers first");
}

#[test]
fn a_silent_target_is_given_up() {
    let mut disk = Disk::new(1);
    disk.silent = true;
    let mut w = worker(&mut disk, "qd=1", false, PLAIN);
    w.fill(&mut disk, Nanos(0)).unwrap();
    assert_eq!(w.wait(Nanos::from_secs(29)), Ok(()));
    let e = w.wait(Nanos::from_secs(31)).unwrap_err().to_string();
    assert_eq!(e, "1 requests have had no answer for 30s");
}
