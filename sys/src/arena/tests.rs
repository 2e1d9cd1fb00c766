use super::*;
use std::mem::offset_of;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const SCHEMA: Schema = Schema { name: "test", version: 3 };

fn arena(payload: u64) -> Arena {
    Arena::create("test", SCHEMA, payload, Pages::Small).unwrap()
}

fn again(arena: &Arena) -> OwnedFd {
    arena.fd().try_clone_to_owned().unwrap()
}

/// A path of this test alone, gone at the end.
struct Path_(PathBuf);

impl Path_ {
    fn new(name: &str) -> Self {
        Self(PathBuf::from(format!("/dev/shm/weir-arena-test-{}-{name}", std::process::id())))
    }
}

impl Drop for Path_ {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn what_one_writes_another_reads() {
    let mut a = arena(10_000);
    assert_eq!(a.payload().len(), 3 * 4096, "whole pages");
    a.reserve(0..8192).unwrap();
    a.payload_mut()[5000] = 7;
    let b = Arena::open(again(&a), SCHEMA).unwrap();
    assert_eq!(b.payload()[5000], 7);
    a.payload_mut()[5001] = 8;
    assert_eq!(b.payload()[5001], 8, "the same memory, not a copy");
    a.release(4096..8192).unwrap();
    assert_eq!((b.payload()[5000], b.payload()[5001]), (0, 0));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("/memfd:test"), "it has its name");
}

#[test]
fn its_size_cannot_be_changed() {
    let a = arena(4096);
    assert!(rustix::fs::ftruncate(a.fd(), 0).is_err());
    assert!(rustix::fs::ftruncate(a.fd(), 1 << 20).is_err());
    assert!(rustix::fs::fcntl_add_seals(a.fd(), SealFlags::WRITE).is_err());
}

/// Opens a copy of a good arena after `spoil` changed its header.
fn spoiled(spoil: impl FnOnce(&mut Header)) -> ArenaError {
    let a = arena(8192);
    let mut header = Header::new(SCHEMA, 12288);
    spoil(&mut header);
    rustix::io::pwrite(a.fd(), header.as_bytes(), 0).unwrap();
    Arena::open(again(&a), SCHEMA).expect_err("a spoiled arena was opened")
}

#[test]
fn everything_wrong_is_refused_by_name() {
    let with_crc = |change: fn(&mut Header)| {
        spoiled(|h| {
            change(h);
            h.crc = h.checksum();
        })
        .to_string()
    };
    assert!(matches!(spoiled(|h| h.magic[0] ^= 1), ArenaError::NotAnArena));
    assert!(matches!(spoiled(|h| h.version = 2), ArenaError::Version { found: 2, known: 1 }));
    assert!(matches!(spoiled(|h| h.header_len = 8192), ArenaError::Version { .. }));
    assert!(matches!(spoiled(|h| h.length = 4096), ArenaError::Damaged));
    assert!(matches!(spoiled(|h| h.schema[0] = b'X'), ArenaError::Damaged));
    assert!(matches!(spoiled(|h| h.crc ^= 1), ArenaError::Damaged));
    assert!(with_crc(|h| h.schema = *b"journal\0\0\0\0\0\0\0\0\0").contains("holds 'journal', not 'test'"));
    assert!(with_crc(|h| h.schema_version = 4).contains("'test' of version 4, this program knows version 3"));
    assert!(with_crc(|h| h.length = 8192).contains("12288 bytes should have 8192"));
    let empty = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
    assert!(matches!(Arena::open(empty, SCHEMA), Err(ArenaError::Length { .. })));
    assert!(matches!(Arena::create("x", SCHEMA, u64::MAX, Pages::Small), Err(ArenaError::TooLarge(_))));
    assert!(matches!(Arena::create("x", SCHEMA, 1 << 60, Pages::Huge), Err(ArenaError::TooLarge(_))));
}

#[test]
fn one_owner_after_the_other() {
    let a = arena(4096);
    let b = Arena::open(again(&a), SCHEMA).unwrap();
    assert_eq!((a.epoch(), b.epoch()), (1, 1));
    assert_eq!(b.claim(1), Ok(2));
    assert_eq!(a.epoch(), 2, "the old owner sees it");
    assert_eq!(a.claim(1), Err(2));
}

#[test]
fn files_are_locked_and_kept() {
    let path = Path_::new("locked");
    let mut a = Arena::create_file(&path.0, SCHEMA, 8192).unwrap();
    a.reserve(0..1).unwrap();
    a.payload_mut()[0] = 9;
    assert!(matches!(Arena::open_file(&path.0, SCHEMA), Err(ArenaError::Busy)));
    assert!(matches!(Arena::create_file(&path.0, SCHEMA, 8192), Err(ArenaError::Io(_))), "it exists");
    drop(a);
    let b = Arena::open_file(&path.0, SCHEMA).unwrap();
    assert_eq!(b.payload()[0], 9);
    assert!(Arena::open_file(&PathBuf::from("/dev/shm/no-such-arena"), SCHEMA).is_err());
}

/// Runs the test of that name once more in a mount namespace of its own, where it finds itself [inside](inside_namespace).
pub(crate) fn again_in_namespace(test: &str) {
    let root = rustix::process::geteuid().is_root();
    let status = std::process::Command::new("unshare")
        .args(if root { ["--mount", "--"] } else { ["-rm", "--"] })
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("WEIR_TEST_NAMESPACE", "1")
        .status()
        .expect("unshare(1) is needed: apt install util-linux");
    assert!(status.success(), "needs root, or `sysctl kernel.unprivileged_userns_clone=1` and user namespaces");
}

/// In the namespace: a tmpfs of that size on a new directory.
pub(crate) fn inside_namespace(size: &str) -> Option<PathBuf> {
    std::env::var_os("WEIR_TEST_NAMESPACE")?;
    let dir = std::env::temp_dir().join(format!("weir-tmpfs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
        .arg(&dir)
        .status()
        .expect("mount(8) is needed: apt install mount");
    assert!(mount.success());
    Some(dir)
}

#[test]
fn a_shortage_is_an_error_and_not_a_signal() {
    let Some(dir) = inside_namespace("1m") else {
        return again_in_namespace("arena::tests::a_shortage_is_an_error_and_not_a_signal");
    };
    let mut a = Arena::create_file(&dir.join("arena"), SCHEMA, 4 << 20).unwrap();
    a.reserve(0..512 << 10).unwrap();
    assert!(matches!(a.reserve(512 << 10..4 << 20), Err(ArenaError::Full)));
    a.payload_mut()[0] = 1;
    a.release(512 << 10..4 << 20).unwrap();
    a.reserve(512 << 10..768 << 10).unwrap();
    a.payload_mut()[512 << 10] = 1;
    std::fs::write(dir.join("rest"), vec![0; 1 << 20]).unwrap_err();
    assert!(matches!(Arena::create_file(&dir.join("b"), SCHEMA, 4096), Err(ArenaError::Full)));
    assert!(!dir.join("b").exists(), "what could not be made is not left behind");
}

#[test]
fn huge_pages_where_they_can_be_had() {
    let mut a = Arena::create("test-huge", SCHEMA, 8 << 20, Pages::Huge).unwrap();
    let first = HUGE - HEADER;
    a.reserve(first..first + 9 * HUGE / 4).unwrap();
    a.payload_mut()[first + HUGE + 5] = 9;
    a.want_huge(first..first + 9 * HUGE / 4);
    let begun = std::time::Instant::now();
    while !a.is_hugetlb() && huge_pages(&a) < 2 && begun.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    assert_eq!(a.payload()[first + HUGE + 5], 9);
    let at = a.payload()[first..].as_ptr() as usize;
    assert_eq!(at % HUGE, 0, "a huge page's boundary of the file is one of memory");
    a.payload_mut()[first..first + 2 * HUGE].fill(3);
    a.release(first..first + HUGE).unwrap();
    assert_eq!((a.payload()[first], a.payload()[first + HUGE]), (0, 3));
    let b = Arena::open(again(&a), SCHEMA).unwrap();
    assert_eq!(b.payload()[first + HUGE], 3);
    assert_eq!(b.is_hugetlb(), a.is_hugetlb());
    eprintln!("from the system's reserve: {}, huge pages: {}", a.is_hugetlb(), huge_pages(&a));
    // What is given back stays so.
    a.release(first + HUGE..first + 2 * HUGE).unwrap();
    let blocks = |a: &Arena| rustix::fs::fstat(a.fd()).unwrap().st_blocks;
    let before = blocks(&a);
    std::thread::sleep(std::time::Duration::from_millis(250));
    assert!(blocks(&a) <= before);
}

/// That its mapping has of its file: smaps, in the transparent ones.
fn huge_pages(a: &Arena) -> usize {
    of_smaps(a, "ShmemPmdMapped:") / HUGE
}

/// Bytes of its mapping, as a line of smaps has them.
fn of_smaps(a: &Arena, name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let from = format!("{:x}-", a.payload().as_ptr() as usize - HEADER);
    let of = maps.lines().skip_while(|l| !l.starts_with(&from)).find_map(|l| l.strip_prefix(name));
    let kib = of.and_then(|l| l.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse::<usize>().ok());
    kib.unwrap_or(0) << 10
}

/// Huge pages are assembled while memory is used, given back and unmapped; what it holds is what was stored last.
#[test]
fn memory_is_used_while_its_pages_become_huge() {
    for _ in 0..4 {
        let mut a = Arena::create("test-collapse", SCHEMA, 16 << 20, Pages::Huge).unwrap();
        let first = HUGE - HEADER;
        // Nothing is assembled in the first 100 ms.
        let (begun, enough) = (std::time::Instant::now(), std::time::Duration::from_millis(300));
        for turn in (0..1 << 20).take_while(|turn| *turn < 200 || begun.elapsed() < enough) {
            let at = first + turn % 7 * HUGE;
            let byte = at + turn * 4099 % HUGE;
            a.reserve(byte..byte + 1).unwrap();
            a.payload_mut()[byte] = turn as u8 | 1;
            a.want_huge(at..at + HUGE);
            assert_eq!(a.payload()[byte], turn as u8 | 1);
            if turn % 5 == 4 {
                a.release(at..at + HUGE).unwrap();
                assert_eq!(a.payload()[byte], 0);
            }
        }
    }
}

#[test]
fn touching_makes_nothing_that_is_not_there() {
    for pages in [Pages::Small, Pages::Huge] {
        let mut a = Arena::create("test-touch", SCHEMA, 16 << 20, pages).unwrap();
        // Holes in a piece, between pieces and behind them.
        for at in [HUGE, HUGE + 4 * 4096, 5 * HUGE - HEADER] {
            a.reserve(at..at + 2 * 4096).unwrap();
        }
        let blocks = |a: &Arena| rustix::fs::fstat(a.fd()).unwrap().st_blocks;
        let before = blocks(&a);
        let again = std::sync::Arc::new(Arena::open(again(&a), SCHEMA).unwrap());
        let mut pieces = 0;
        let count = || {
            pieces += 1;
            false
        };
        Arena::touch(&std::sync::Arc::downgrade(&again), count);
        assert_eq!(blocks(&again), before, "from the system's reserve: {}", a.is_hugetlb());
        if !a.is_hugetlb() {
            // The header; two in the second piece; one.
            assert_eq!(pieces, 4);
            assert_eq!(of_smaps(&again, "Rss:"), blocks(&again) as usize * 512);
        }
    }
}

#[test]
fn unmapping_leaves_nothing() {
    let before = std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:gone").count();
    for len in [4096, HUGE as u64 - 4096, HUGE as u64, 3 * HUGE as u64 + 4096] {
        let a = Arena::create("gone", SCHEMA, len, Pages::Small).unwrap();
        assert!(std::fs::read_to_string("/proc/self/maps").unwrap().contains("memfd:gone"));
        drop(a);
    }
    let after = std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:gone").count();
    assert_eq!(before, after);
}

/// The rows `| offset | bytes | name |` under a heading of docs/reference/formats.md.
pub(crate) fn documented(heading: &str) -> Vec<(usize, usize, String)> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/formats.md")).unwrap();
    let section = text.split(&format!("\n## {heading}\n")).nth(1).expect("a section of that name");
    let section = section.split("\n## ").next().unwrap();
    let cells = |line: &str| line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let row = |line: &str| {
        let c = cells(line);
        Some((c.first()?.parse().ok()?, c.get(1)?.parse().ok()?, c.get(2)?.trim_matches('`').to_owned()))
    };
    section.lines().filter(|l| l.starts_with('|')).filter_map(row).collect()
}

#[test]
fn docs_draw_the_header() {
    macro_rules! fields {
        ($($name:ident),*) => { [$((offset_of!(Header, $name), stringify!($name).to_owned())),*] };
    }
    let mut ours = fields!(magic, version, header_len, schema, schema_version, crc, length, epoch).to_vec();
    ours.sort();
    let ends = ours.iter().skip(1).map(|f| f.0).chain([size_of::<Header>()]);
    let ours: Vec<_> = ours.iter().zip(ends).map(|((at, name), end)| (*at, end - at, name.clone())).collect();
    assert_eq!(documented("Memory regions (arenas)"), ours);
}

/// The header of version 1, byte by byte: a later program must read it.
#[test]
fn golden_header() {
    let header = Header::new(Schema { name: "ram-media", version: 1 }, 0x40_0000);
    let mut golden = b"WEIRMEM\0\x01\0\0\0\x00\x10\0\0ram-media\0\0\0\0\0\0\0\x01\0\0\0".to_vec();
    golden.extend(header.crc.to_le_bytes());
    golden.extend(b"\0\0\x40\0\0\0\0\0\x01\0\0\0\0\0\0\0");
    assert_eq!(header.as_bytes(), golden);
    let crc = crate::crc::crc32c_append(crate::crc::crc32c(&golden[..36]), &golden[40..48]);
    assert_eq!(header.crc, crc);
}

/// Where there are no huge pages the kernel refuses to map a file of them. Taking back what had been made for it took
/// whatever another thread had been given there meanwhile.
#[test]
fn an_arena_that_is_refused_takes_nobody_elses_memory() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..3u8 {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // So large that each is a mapping of its own, and hardly touched: what counts is how often.
                    let mut block = vec![0u8; 40 << 20];
                    (block[0], block[20 << 20]) = (n + 1, n + 2);
                    std::thread::yield_now();
                    assert!((block[0], block[20 << 20]) == (n + 1, n + 2), "memory changed under its owner");
                }
            });
        }
        for _ in 0..2000 {
            let arena = Arena::create("weir-test-refused", SCHEMA, 128 << 20, Pages::Huge).unwrap();
            assert_eq!(arena.payload().as_ptr().addr() % 4096, 0);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Kilobytes of a mapping that count as this process's memory.
fn resident(at: *const u8) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in maps.lines() {
        if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
            let edge = |text: &str| usize::from_str_radix(text, 16).unwrap();
            inside = (edge(from)..edge(to)).contains(&at.addr());
        } else if inside && line.starts_with("Rss:") {
            return line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
        }
    }
    panic!("not mapped");
}

#[test]
fn lent_memory_is_given_back_and_keeps_what_it_holds() {
    let path = std::env::temp_dir().join(format!("weir-lent-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let arena = Arena::create_file(&path, SCHEMA, 4 << 20).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (payload, give_back) = arena.lend();
    payload.iter_mut().zip(0u32..).for_each(|(byte, i)| *byte = (i / 4096) as u8);
    assert!(resident(payload.as_ptr()) >= 4096);
    give_back();
    assert_eq!(resident(payload.as_ptr()), 0);
    assert!(payload.iter().zip(0u32..).all(|(byte, i)| *byte == (i / 4096) as u8));
    assert!(resident(payload.as_ptr()) > 0);
}
