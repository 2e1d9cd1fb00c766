use super::*;
use crate::arena::tests::{again_in_namespace, inside_namespace};
use crate::reactor::{IoBuf, Reactor, Ready};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A path that is gone at the end of the test.
struct Temp(PathBuf);

impl Temp {
    /// On a file system with direct I/O: where the build puts its files.
    fn new(name: &str) -> Self {
        let dir = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        Self(dir.join(format!("weir-media-{}-{name}", std::process::id())))
    }

    fn with_size(name: &str, size: u64) -> Self {
        let temp = Self::new(name);
        std::fs::File::create(&temp.0).unwrap().set_len(size).unwrap();
        temp
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A medium with its reactor, one request at a time or many.
struct Rig {
    media: FileMedia,
    reactor: Reactor,
}

const BASE: u64 = 0xabcd << 40;

impl Rig {
    fn new(mut media: FileMedia) -> Self {
        media.set_token_base(BASE);
        Self { media, reactor: Reactor::new().unwrap() }
    }

    fn start(&mut self, op: FileOpKind, offset: u64, len: u32, buf: Option<IoBuf>, token: u64) -> Result<(), Finished> {
        self.media.start(&mut self.reactor, FileRequest { op, offset, len, buf, token })
    }

    /// Everything that finishes until `count` requests have.
    fn finished(&mut self, count: usize) -> Vec<Finished> {
        let (mut events, mut finished) = (Vec::new(), Vec::new());
        let deadline = self.reactor.now().saturating_add(weir_units::Nanos::from_secs(30));
        while finished.len() < count {
            assert!(self.reactor.now() < deadline, "requests do not end: {:?}", self.media);
            self.reactor.wait(Some(deadline), &mut events);
            for event in events.drain(..) {
                assert_eq!(event.token() >> 24, BASE >> 24, "tokens start with the owner's base");
                let Ready::File(done) = event else { panic!("{event:?}") };
                finished.extend(self.media.ready(&mut self.reactor, done));
            }
        }
        finished
    }

    fn run(&mut self, op: FileOpKind, offset: u64, len: u32, buf: Option<IoBuf>) -> Finished {
        match self.start(op, offset, len, buf, 77) {
            Ok(()) => self.finished(1).remove(0),
            Err(finished) => finished,
        }
    }

    fn write(&mut self, offset: u64, len: u32, value: u8) -> Status {
        let mut buf = self.media.buffer(len);
        buf[..len as usize].fill(value);
        let done = self.run(FileOpKind::Write { durable: value % 2 == 0 }, offset, len, Some(buf));
        self.media.recycle(done.buf.expect("the buffer comes back"));
        done.status
    }

    fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        let mut buf = self.media.buffer(len);
        buf.fill(0xee);
        let done = self.run(FileOpKind::Read, offset, len, Some(buf));
        assert_eq!((done.token, done.status), (77, Status::SUCCESS));
        let buf = done.buf.unwrap();
        let bytes = buf[..len as usize].to_vec();
        self.media.recycle(buf);
        bytes
    }

    fn zero(&mut self, offset: u64, len: u32, deallocate: bool) -> Status {
        let done = self.run(FileOpKind::Zero { deallocate }, offset, len, None);
        assert!(done.buf.is_none());
        done.status
    }
}

fn exercise(mut rig: Rig, block: u32) {
    let (size, b) = (rig.media.capacity(), u64::from(block));
    let last = size - b;
    for (offset, len, value) in [(0, block, 3), (b * 3, block * 40, 4), (last, block, 5)] {
        assert_eq!(rig.write(offset, len, value), Status::SUCCESS);
    }
    assert!(rig.read(0, block).iter().all(|v| *v == 3));
    assert!(rig.read(b * 3, block * 40).iter().all(|v| *v == 4));
    assert!(rig.read(last, block).iter().all(|v| *v == 5));
    assert!(rig.read(b, block * 2).iter().all(|v| *v == 0), "between them nothing");
    assert_eq!(rig.zero(b * 5, block * 7, false), Status::SUCCESS);
    assert_eq!(rig.zero(b * 20, block * 9, true), Status::SUCCESS);
    let bytes = rig.read(b * 3, block * 40);
    let zero = |i: usize| (2..9).contains(&i) || (17..26).contains(&i);
    assert!(bytes.chunks(block as usize).enumerate().all(|(i, c)| c.iter().all(|v| *v == if zero(i) { 0 } else { 4 })));
    assert_eq!(rig.run(FileOpKind::Flush, 0, 0, None).status, Status::SUCCESS);
    // Outside, in halves of blocks, without a buffer.
    for (offset, len) in [(size, block), (last, 2 * block), (u64::MAX - b + 1, block), (u64::MAX, 1)] {
        let buf = Some(IoBuf::new(len as usize));
        assert_eq!(rig.run(FileOpKind::Read, offset, len, buf).status, Status::LBA_OUT_OF_RANGE);
        assert_eq!(rig.zero(offset, len, true), Status::LBA_OUT_OF_RANGE);
    }
    for (offset, len) in [(1, block), (0, block - 1)] {
        assert_eq!(
            rig.run(FileOpKind::Read, offset, len, Some(IoBuf::new(len as usize))).status,
            Status::INVALID_FIELD
        );
        assert_eq!(rig.zero(offset, len, false), Status::INVALID_FIELD);
    }
    assert_eq!(rig.run(FileOpKind::Write { durable: false }, 0, block, None).status, Status::INVALID_FIELD);
    assert_eq!(rig.run(FileOpKind::Read, 0, 0, None).status, Status::SUCCESS);
    assert_eq!(rig.media.in_flight(), 0);
    assert!(rig.media.fault().is_none());
}

/// Many at once against a map of what each block was written with last.
fn deep(mut rig: Rig, block: u32) {
    let blocks = rig.media.capacity() / u64::from(block);
    assert_eq!(rig.zero(0, rig.media.capacity() as u32, true), Status::SUCCESS);
    let mut model: HashMap<u64, u8> = HashMap::new();
    let mut state = 12345u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..8 {
        let mut started = HashMap::new();
        for token in 0..64 {
            let at = random(blocks);
            if started.values().any(|(other, _)| *other == at) {
                continue;
            }
            let value = random(255) as u8 + 1;
            let mut buf = rig.media.buffer(block);
            buf[..block as usize].fill(value);
            let op = match random(3) {
                0 => FileOpKind::Read,
                1 => FileOpKind::Zero { deallocate: value % 2 == 0 },
                _ => FileOpKind::Write { durable: false },
            };
            let buf = (!matches!(op, FileOpKind::Zero { .. })).then_some(buf);
            rig.start(op, at * u64::from(block), block, buf, token).unwrap();
            started.insert(token, (at, (op, value)));
        }
        for done in rig.finished(started.len()) {
            let (at, (op, value)) = started.remove(&done.token).expect("each token once");
            assert_eq!(done.status, Status::SUCCESS);
            match op {
                FileOpKind::Read => {
                    let expected = model.get(&at).copied().unwrap_or(0);
                    assert!(done.buf.unwrap()[..block as usize].iter().all(|v| *v == expected));
                }
                FileOpKind::Write { .. } => _ = model.insert(at, value),
                _ => _ = model.remove(&at),
            }
        }
    }
    assert!(model.len() > 20);
}

/// Opens a file that was open just now: a process that another test starts at that moment has its lock until it is another program.
fn open_again(path: &Path, block: u32) -> FileMedia {
    let begun = std::time::Instant::now();
    loop {
        match FileMedia::open_file(path, Some(8 << 20), block) {
            Err(MediaError::Busy(_)) if begun.elapsed() < std::time::Duration::from_secs(10) => {
                std::thread::yield_now()
            }
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn a_file_with_direct_io() {
    for block in [512, 4096] {
        let temp = Temp::new(&format!("direct-{block}"));
        let open = || open_again(&temp.0, block);
        // Where the build's files lie on a file system without direct I/O this is the other test once more.
        eprintln!("direct I/O with blocks of {block}: {}", open().is_direct());
        exercise(Rig::new(open()), block);
        deep(Rig::new(open()), block);
        assert_eq!(std::fs::metadata(&temp.0).unwrap().len(), 8 << 20);
    }
}

#[test]
fn a_file_without_direct_io() {
    let temp = Temp(PathBuf::from(format!("/dev/shm/weir-media-{}", std::process::id())));
    let media = FileMedia::open_file(&temp.0, Some(8 << 20), 512).unwrap();
    exercise(Rig::new(media), 512);
}

#[test]
fn zeroes_are_written_where_nothing_better_works() {
    let temp = Temp::new("no-punch");
    let mut media = FileMedia::open_file(&temp.0, Some(8 << 20), 512).unwrap();
    (media.can_punch, media.can_zero_range) = (false, false);
    let mut rig = Rig::new(media);
    assert_eq!(rig.write(0, 4 << 20, 9), Status::SUCCESS);
    assert_eq!(rig.zero(512, (3 << 20) + 512, true), Status::SUCCESS);
    let bytes = rig.read(0, 4 << 20);
    assert!(bytes[..512].iter().all(|b| *b == 9) && bytes[(3 << 20) + 1024..].iter().all(|b| *b == 9));
    assert!(bytes[512..(3 << 20) + 1024].iter().all(|b| *b == 0));
    (rig.media.can_punch, rig.media.can_zero_range) = (true, false);
    assert_eq!(rig.zero(0, 512, false), Status::SUCCESS);
    assert_eq!(rig.read(0, 512), [0; 512]);
}

#[test]
fn deallocation_gives_space_back() {
    use std::os::unix::fs::MetadataExt;
    let temp = Temp::new("space");
    let mut rig = Rig::new(FileMedia::open_file(&temp.0, Some(8 << 20), 4096).unwrap());
    assert!(std::fs::metadata(&temp.0).unwrap().blocks() < 64, "a new file is sparse");
    assert_eq!(rig.write(0, 4 << 20, 1), Status::SUCCESS);
    let full = std::fs::metadata(&temp.0).unwrap().blocks();
    assert_eq!(rig.zero(0, 4 << 20, true), Status::SUCCESS);
    let freed = std::fs::metadata(&temp.0).unwrap().blocks();
    assert!(full >= 8192 && freed < 64, "{full} -> {freed}");
}

#[test]
fn what_cannot_be_opened_says_why() {
    let says = |result: Result<FileMedia, MediaError>, words: &[&str]| {
        let text = result.expect_err("it was opened").to_string();
        assert!(words.iter().all(|w| text.contains(w)), "{text}");
    };
    let temp = Temp::with_size("sized", 4 << 20);
    says(FileMedia::open_file(&temp.0, Some(8 << 20), 512), &["is 4MiB", "capacity is 8MiB"]);
    says(FileMedia::open_file(&temp.0, Some(2 << 20), 512), &["is 4MiB", "capacity is 2MiB"]);
    says(FileMedia::open_file(Path::new("/"), None, 512), &["file:/", "directory"]);
    says(FileMedia::open_file(Path::new("/dev/null"), None, 512), &["not a regular file", "block:PATH"]);
    says(FileMedia::open_file(Path::new("/no/such/file"), Some(512), 512), &["/no/such/file", "No such file"]);
    says(FileMedia::open_block(&temp.0, None, 512), &["not a block device", "file:PATH"]);
    says(FileMedia::open_block(Path::new("/dev/null"), None, 512), &["not a block device"]);
    let missing = Temp::new("missing");
    says(FileMedia::open_file(&missing.0, None, 512), &["No such file"]);
    says(FileMedia::open_file(&missing.0, Some(1000), 512), &["1000 bytes", "512-byte blocks"]);
    assert!(!missing.0.exists(), "a file that could not be used is not left behind");
    let empty = Temp::with_size("empty", 0);
    says(FileMedia::open_file(&empty.0, None, 512), &["give the drive a capacity"]);
    let ragged = Temp::with_size("ragged", 4096 + 512);
    says(FileMedia::open_file(&ragged.0, None, 4096), &["4608 bytes"]);
    let held = FileMedia::open_file(&temp.0, None, 512).unwrap();
    assert_eq!(held.capacity(), 4 << 20, "it has its own size");
    says(FileMedia::open_file(&temp.0, None, 512), &["in use"]);
    drop(held);
    FileMedia::open_file(&temp.0, Some(4 << 20), 512).unwrap();
}

#[test]
fn media_of_every_kind_open() {
    let temp = Temp::new("kinds");
    let spec = |kind: &str, capacity| Spec { name: "d".into(), kind: kind.parse().unwrap(), capacity, block_size: 512 };
    for kind in ["null", "ram", &format!("file:{}", temp.0.display())] {
        let media = Media::open(&spec(kind, Some(1 << 20))).unwrap();
        assert_eq!(media.capacity(), 1 << 20);
        assert!(media.fault().is_none());
        assert_eq!(matches!(media, Media::File(_)), kind.starts_with("file"));
    }
    for kind in ["null", "ram"] {
        let e = Media::open(&spec(kind, None)).unwrap_err().to_string();
        assert!(e.contains("give the drive a capacity"), "{e}");
    }
}

/// A file that loses its second half behind the drive's back.
#[test]
fn a_medium_that_shrinks_is_a_read_error() {
    let temp = Temp::new("shrinks");
    let mut rig = Rig::new(FileMedia::open_file(&temp.0, Some(2 << 20), 4096).unwrap());
    assert_eq!(rig.write(0, 2 << 20, 6), Status::SUCCESS);
    std::fs::OpenOptions::new().write(true).open(&temp.0).unwrap().set_len(1 << 20).unwrap();
    let done = rig.run(FileOpKind::Read, (1 << 20) - 4096, 8192, Some(IoBuf::new(8192)));
    assert_eq!(done.status, Status::UNRECOVERED_READ_ERROR);
    assert!(rig.media.fault().is_none(), "a failed read poisons nothing");
    assert_eq!(rig.read(0, 4096), [6; 4096]);
}

#[test]
fn a_failed_write_poisons() {
    let temp = Temp::with_size("poison", 1 << 20);
    let file = std::fs::File::open(&temp.0).unwrap();
    file.read_exact_at(&mut [0; 16], 0).unwrap();
    // A descriptor that cannot write stands in for a drive that fails: EBADF.
    let mut rig = Rig::new(FileMedia::new("file:broken".into(), file.into(), 1 << 20, 512, false));
    assert_eq!(rig.write(8192, 512, 1), Status::WRITE_FAULT);
    let first = rig.media.fault().expect("poisoned").to_string();
    assert!(first.contains("file:broken: write failed at byte 8192"), "{first}");
    assert_eq!(rig.zero(0, 512, true), Status::WRITE_FAULT);
    assert_eq!(rig.run(FileOpKind::Flush, 0, 0, None).status, Status::WRITE_FAULT);
    assert_eq!(rig.write(0, 512, 1), Status::WRITE_FAULT);
    assert_eq!(rig.media.fault().unwrap().to_string(), first, "the first cause stays");
    assert_eq!(rig.read(0, 512), [0; 512], "reads go on");
    // A flush that fails poisons as well.
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let mut rig = Rig::new(FileMedia::new("file:pipe".into(), pipe, 1 << 20, 512, false));
    assert_eq!(rig.run(FileOpKind::Flush, 0, 0, None).status, Status::WRITE_FAULT);
    assert!(rig.media.fault().unwrap().to_string().contains("flush failed"));
}

/// A sparse file on a file system that is too small for it: a status, and the drive lives on.
#[test]
fn no_space_is_capacity_exceeded_and_passes() {
    let Some(dir) = inside_namespace("2m") else {
        return again_in_namespace("media::file_tests::no_space_is_capacity_exceeded_and_passes");
    };
    let mut rig = Rig::new(FileMedia::open_file(&dir.join("drive"), Some(16 << 20), 4096).unwrap());
    let mut at = 0;
    while rig.write(at, 64 << 10, 1) == Status::SUCCESS {
        at += 64 << 10;
        assert!(at <= 2 << 20);
    }
    assert_eq!(rig.write(8 << 20, 64 << 10, 1), Status::CAPACITY_EXCEEDED);
    assert!(rig.media.fault().is_none());
    assert_eq!(rig.zero(0, 1 << 20, true), Status::SUCCESS);
    assert_eq!(rig.write(8 << 20, 64 << 10, 2), Status::SUCCESS);
    assert!(rig.read(8 << 20, 64 << 10).iter().all(|b| *b == 2));
}

/// A loop device over a file, detached at the end.
///
/// Who looks for a free one (`losetup --find`, of any process of the machine) tries the next number, and claims that device for
/// the moment in which the kernel says that it is taken: an exclusive open of ours in that moment is refused. So our own tests have
/// one at a time, and what opens first waits for a stranger to let go.
struct Loop {
    device: PathBuf,
    _file: Temp,
    _alone: std::sync::MutexGuard<'static, ()>,
}

static ONE_LOOP: std::sync::Mutex<()> = std::sync::Mutex::new(());

impl Loop {
    /// Fails only where there are no loop devices at all (a container); with them, everything about them must work.
    fn new(name: &str, sector: u32) -> Option<Self> {
        let usable = std::fs::OpenOptions::new().read(true).write(true).open("/dev/loop-control").is_ok();
        if !usable {
            eprintln!("no loop devices here: the same code was tested on files only");
            return None;
        }
        let alone = ONE_LOOP.lock().unwrap_or_else(|e| e.into_inner());
        let file = Temp::with_size(name, 8 << 20);
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(&file.0)
            .output()
            .expect("losetup(8) is needed: apt install mount");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let device = String::from_utf8(output.stdout).unwrap().trim().into();
        Some(Self { device, _file: file, _alone: alone })
    }

    /// Opens it, once nobody claims it for a moment.
    fn open(&self, capacity: Option<u64>, block_size: u32) -> FileMedia {
        for _ in 0..100 {
            match FileMedia::open_block(&self.device, capacity, block_size) {
                Err(e) if e.to_string().contains("in use") => std::thread::sleep(std::time::Duration::from_millis(20)),
                opened => return opened.unwrap(),
            }
        }
        panic!("{} stays in use", self.device.display());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

#[test]
fn a_block_device() {
    let Some(device) = Loop::new("loop", 512) else { return };
    let open = |capacity| FileMedia::open_block(&device.device, capacity, 512);
    let media = device.open(None, 512);
    assert_eq!((media.capacity(), media.is_direct()), (8 << 20, true));
    let busy = open(None).unwrap_err().to_string();
    assert!(busy.contains("in use"), "{busy}");
    exercise(Rig::new(media), 512);
    deep(Rig::new(device.open(Some(1 << 20), 512)), 512);
    let large = open(Some(16 << 20)).unwrap_err().to_string();
    assert!(large.contains("is 8MiB") && large.contains("capacity is 16MiB"), "{large}");
    let file = FileMedia::open_file(&device.device, None, 512).unwrap_err().to_string();
    assert!(file.contains("block:PATH"), "{file}");
}

#[test]
fn a_block_device_of_larger_blocks() {
    let Some(device) = Loop::new("loop-4k", 4096) else { return };
    let e = FileMedia::open_block(&device.device, None, 512).unwrap_err().to_string();
    assert!(e.contains("give the drive a block size of 4096"), "{e}");
    exercise(Rig::new(device.open(None, 4096)), 4096);
}

#[test]
fn the_kernels_refusals_have_their_status() {
    use super::status::{Doing, status};
    for e in [Errno::IO, Errno::NODEV, Errno::ROFS, Errno::BADF] {
        assert_eq!(status(Doing::Read, e), Status::UNRECOVERED_READ_ERROR);
        assert_eq!(status(Doing::Zero, e), Status::WRITE_FAULT);
    }
}
