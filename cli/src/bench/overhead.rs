//! What one request costs whoever asks for it: our driver on a drive of ours, and Linux's own ways, on the same media.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_config::DeviceConfig;
use weir_driver::{Done, Io, IoKind, QueuePair};
use weir_node::local::{Local, LocalTenant};
use weir_sim::reproduce::{AccessPath, AccessPattern, Overhead, Storage, Usage};
use weir_sys::media::{KernelFile, NonvolatileFile};
use weir_sys::reactor::now;
use weir_sys::sched::CpuTime;
use weir_units::{Class, Nanos};
use weir_workload::{Histogram, Xoshiro256};

/// Bytes of every file and drive: more than a core's caches hold.
const CAPACITY: u64 = 64 << 20;
/// One measurement lasts so long, and is of so many requests at least and at most.
const TIME: Nanos = Nanos::from_millis(25);
const REQUESTS: std::ops::RangeInclusive<u64> = 16..=5_000;
/// How long a request may go unanswered.
const ANSWER_TIMEOUT: Nanos = Nanos::from_secs(30);
/// A file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Files, drives and rings, made when first asked for. Files have no name once they are open, so nothing is left of them however
/// this process ends.
#[derive(Default)]
pub struct Overheads {
    disk: Option<Spot>,
    memory: Option<Spot>,
}

/// A file, and who reaches its bytes: in memory the drive's lie beside the file.
struct Spot {
    local: Local,
    kernel: KernelFile,
    rng: Xoshiro256,
    told: String,
}

/// A drive's files whose names are removed: who has opened them goes on.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // They are in a folder for what may be lost.
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(NonvolatileFile::path_of(&self.0));
    }
}

impl Overheads {
    /// Medians of a measurement.
    ///
    /// # Errors
    /// What cannot be made or done, and why.
    pub fn overhead(&mut self, access: AccessPattern) -> Result<Overhead, String> {
        let spot = self.spot(access.place)?;
        let (mut submit, mut complete, mut whole) = (Histogram::new(), Histogram::new(), Histogram::new());
        let begun = now();
        let mut count = 0;
        while count < *REQUESTS.start() || (count < *REQUESTS.end() && now().saturating_sub(begun) < TIME) {
            let [before, submitted, looked, found] = spot.one(access, false)?;
            submit.record(submitted.saturating_sub(before).0);
            complete.record(found.saturating_sub(looked).0);
            whole.record(found.saturating_sub(before).0);
            count += 1;
        }
        let middle = |h: &Histogram| h.percentile(50.0) as f64;
        Ok(Overhead { submit: middle(&submit), complete: middle(&complete), whole: middle(&whole) })
    }

    /// What the process used of the cores while it made requests for so long.
    ///
    /// # Errors
    /// As [`overhead`](Self::overhead).
    pub fn usage(&mut self, access: AccessPattern, time: Nanos) -> Result<Usage, String> {
        let spot = self.spot(access.place)?;
        let (begun, before) = (now(), CpuTime::of_this_process());
        let (mut ios, mut at) = (0, begun);
        while at.saturating_sub(begun) < time {
            at = spot.one(access, true)?[3];
            ios += 1;
        }
        let used = CpuTime::of_this_process().since(before);
        Ok(Usage { ios, time: at.saturating_sub(begun), user: used.user, system: used.system })
    }

    /// Where the bytes were.
    pub fn about(&self) -> Vec<String> {
        [&self.disk, &self.memory].into_iter().flatten().map(|spot| spot.told.clone()).collect()
    }

    fn spot(&mut self, place: Storage) -> Result<&mut Spot, String> {
        let spot = match place {
            Storage::Disk => &mut self.disk,
            Storage::Memory => &mut self.memory,
        };
        match spot {
            Some(spot) => Ok(spot),
            None => Ok(spot.insert(Spot::open(place)?)),
        }
    }
}

impl Spot {
    fn open(place: Storage) -> Result<Spot, String> {
        let shared = Path::new(SHARED_MEMORY);
        let folder = match place {
            Storage::Memory if shared.is_dir() => shared.to_path_buf(),
            _ => std::env::temp_dir(),
        };
        let path = folder.join(format!("weir-reproduce-{}-{place:?}.img", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let _gone_when_open = Scratch(path.clone());
        filled(&path).map_err(failed)?;
        let kernel = KernelFile::open(&path, AccessPattern::MOST).map_err(failed)?;
        let media = match place {
            Storage::Disk => format!("file:{}", path.display()),
            Storage::Memory => "ram".into(),
        };
        let local = drive(&media)?;
        let direct = if kernel.is_direct() { "direct I/O" } else { "without direct I/O, so through the page cache" };
        let told = match place {
            Storage::Disk => format!("The disk: {}, {direct}.", folder.display()),
            Storage::Memory => format!("Linux's file in memory: {}, {direct}.", folder.display()),
        };
        Ok(Spot { local, kernel, rng: Xoshiro256::new(1), told })
    }

    /// One request: when it was begun, submitted, and when the look that found its completion began and ended. `patient`
    /// sleeps in the kernel, which has nothing to do but that.
    #[inline]
    fn one(&mut self, access: AccessPattern, patient: bool) -> Result<[Nanos; 4], String> {
        let AccessPattern { way, size, write, .. } = access;
        let offset = self.rng.below(CAPACITY / u64::from(size)) * u64::from(size);
        match way {
            AccessPath::Driver => self.by_driver(write, offset, size),
            AccessPath::Uring => self.by_ring(write, offset, size, patient),
            AccessPath::Calls => {
                let before = now();
                let moved = self.kernel.call(write, offset, size).map_err(|e| e.to_string())?;
                let after = now();
                whole(moved, size)?;
                Ok([before, after, after, after])
            }
        }
    }

    #[inline]
    fn by_driver(&mut self, write: bool, offset: u64, len: u32) -> Result<[Nanos; 4], String> {
        let kind = if write { IoKind::Write } else { IoKind::Read };
        let mut done: Vec<Done> = Vec::new();
        let before = now();
        let mut pair = self.local.queue(0, before);
        pair.submit(Io { kind, offset, len, slot: 0 }).map_err(|e| e.to_string())?;
        pair.flush();
        let submitted = now();
        let mut looked = submitted;
        loop {
            self.local.run(looked);
            looked = now();
            self.local.queue(0, looked).reap(&mut done).map_err(|e| e.to_string())?;
            if let Some(done) = done.first() {
                let found = now();
                return match done.status.is_success() {
                    true => Ok([before, submitted, looked, found]),
                    false => Err(format!("a request of our driver failed: {}", done.status)),
                };
            }
            waited(submitted, looked)?;
        }
    }

    #[inline]
    fn by_ring(&mut self, write: bool, offset: u64, len: u32, patient: bool) -> Result<[Nanos; 4], String> {
        let failed = |e: std::io::Error| format!("io_uring: {e}");
        let before = now();
        self.kernel.submit(write, offset, len).map_err(failed)?;
        let submitted = now();
        if patient {
            whole(self.kernel.wait().map_err(failed)?, len)?;
            return Ok([before, submitted, submitted, now()]);
        }
        loop {
            let looked = now();
            if let Some(moved) = self.kernel.poll().map_err(failed)? {
                let found = now();
                whole(moved, len)?;
                return Ok([before, submitted, looked, found]);
            }
            waited(submitted, looked)?;
        }
    }
}

fn whole(moved: u32, wanted: u32) -> Result<(), String> {
    if moved == wanted { Ok(()) } else { Err(format!("Linux moved {moved} of {wanted} bytes")) }
}

fn waited(since: Nanos, at: Nanos) -> Result<(), String> {
    if at.saturating_sub(since) < ANSWER_TIMEOUT { Ok(()) } else { Err(format!("no answer for {ANSWER_TIMEOUT}")) }
}

/// A file of bytes that are no zeroes, on the disk.
fn filled(path: &Path) -> std::io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    let chunk: Vec<u8> = (0..1u32 << 20).map(|i| (i % 251) as u8).collect();
    for _ in 0..CAPACITY >> 20 {
        file.write_all(&chunk)?;
    }
    file.sync_all()
}

/// A drive with one client that has one request at a time, all of it written before.
fn drive(media: &str) -> Result<Local, String> {
    let config = DeviceConfig::from_query(media, &format!("capacity={CAPACITY}B")).map_err(|e| e.to_string())?;
    let tenants = [LocalTenant { name: "client".into(), class: Class::Medium }];
    let mut local = Local::open(&config, &tenants, now()).map_err(|e| e.to_string())?;
    local.connect(0, "client", 1, AccessPattern::MOST, now()).map_err(|e| e.to_string())?;
    let mut done = Vec::new();
    let mut pair = local.queue(0, now());
    pair.buffer(0).iter_mut().zip(0u32..).for_each(|(byte, i)| *byte = (i % 251) as u8);
    for offset in (0..CAPACITY).step_by(AccessPattern::MOST as usize) {
        let mut pair = local.queue(0, now());
        pair.submit(Io { kind: IoKind::Write, offset, len: AccessPattern::MOST, slot: 0 })
            .map_err(|e| e.to_string())?;
        let since = now();
        while done.is_empty() {
            local.queue(0, now()).poll(&mut done).map_err(|e| e.to_string())?;
            waited(since, now())?;
        }
        done.clear();
    }
    Ok(local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_moves_bytes_and_leaves_nothing() {
        let mut all = Overheads::default();
        for (place, ways) in [
            (Storage::Disk, &[AccessPath::Driver, AccessPath::Uring][..]),
            (Storage::Memory, &[AccessPath::Driver, AccessPath::Calls]),
        ] {
            for way in ways {
                for write in [false, true] {
                    let access = AccessPattern { way: *way, place, size: 16 << 10, write };
                    let seen = all.overhead(access).unwrap();
                    assert!(seen.submit > 0.0 && seen.whole >= seen.submit, "{access:?}: {seen:?}");
                }
            }
        }
        let access = AccessPattern { way: AccessPath::Driver, place: Storage::Memory, size: 4096, write: false };
        let used = all.usage(access, Nanos::from_millis(50)).unwrap();
        assert!(used.ios > 100 && used.time >= Nanos::from_millis(50), "{used:?}");
        assert_eq!(all.about().len(), 2);
        let mine = format!("weir-reproduce-{}-", std::process::id());
        for folder in [std::env::temp_dir(), SHARED_MEMORY.into()] {
            let names = fs::read_dir(&folder).into_iter().flatten().flatten().map(|f| f.file_name());
            let left: Vec<_> = names.filter(|n| n.to_string_lossy().starts_with(&mine)).collect();
            assert!(left.is_empty(), "{left:?} in {}", folder.display());
        }
    }
}
