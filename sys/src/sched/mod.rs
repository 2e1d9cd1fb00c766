//! What the scheduler knows: cores, time spent waiting for one, and the priority of who is at the other end of a socket.

mod priority;
mod spin;
mod waits;

pub use priority::{ClassWatch, io_class};
pub use spin::spin;
pub use waits::{Delay, Waits};

use rustix::fs::{Mode, OFlags};
use rustix::thread::CpuSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use weir_units::Nanos;

/// Pins the calling thread to one core.
///
/// # Errors
/// The core does not exist or is not ours to use; the message names it.
pub fn pin(core: usize) -> io::Result<()> {
    let refused = |e: io::Error| {
        let allowed = allowed().map(|c| format!("{c:?}")).unwrap_or_default();
        io::Error::new(e.kind(), format!("cannot run on core {core}: {e} (allowed: {allowed})"))
    };
    if core >= CpuSet::MAX_CPU {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| refused(e.into()))
}

/// The cores that the calling thread may run on.
///
/// # Errors
/// The kernel has more cores than fit the set.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect())
}

/// How long a thread has been ready to run without a core, which is part of every latency it reports and not its fault.
#[derive(Debug)]
pub struct RunDelay(OwnedFd);

impl RunDelay {
    /// Of the calling thread; may be read from any.
    ///
    /// # Errors
    /// The kernel keeps no such statistics.
    pub fn of_this_thread() -> io::Result<Self> {
        let path = format!("/proc/self/task/{}/schedstat", rustix::thread::gettid().as_raw_nonzero());
        Ok(Self(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Since the thread began.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn read(&self) -> io::Result<Nanos> {
        let mut text = [0; 96];
        let n = rustix::io::pread(&self.0, &mut text[..], 0)?;
        parse_schedstat(&text[..n]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// "time on a core, time waiting for one, slices"
fn parse_schedstat(text: &[u8]) -> Option<Nanos> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok().map(Nanos)
}

/// What a process has used of the cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In its own code.
    pub user: Nanos,
    /// In the kernel.
    pub system: Nanos,
}

impl CpuTime {
    /// Of this process so far, all of its threads and the kernel's workers for them (getrusage(2)). Many kernels divide the exact
    /// sum by what they saw at their ticks, so spans of less than a few hundred ticks say little.
    pub fn of_this_process() -> CpuTime {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the structure is writable and of the right type, and all of its fields are integers.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let nanos = |t: libc::timeval| Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000);
        CpuTime { user: nanos(usage.ru_utime), system: nanos(usage.ru_stime) }
    }

    /// What was used after `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        let left = |now: Nanos, then| now.saturating_sub(then);
        CpuTime { user: left(self.user, earlier.user), system: left(self.system, earlier.system) }
    }
}

/// How long the calling thread has been on a core, user and system time together and exact; costs a system call.
pub fn time_on_core() -> Nanos {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// Who is at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process, where it is visible from here.
    pub pid: Option<i32>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// SO_PEERCRED: who connected, or listened, at that moment.
///
/// # Errors
/// Not a Unix socket.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    // SAFETY: the option is a ucred, whose address and size are given.
    let r = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len) };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    // On anything but a connected Unix socket the kernel fills in "nobody".
    if peer.uid == u32::MAX {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(Peer { pid: (peer.pid > 0).then_some(peer.pid), uid: peer.uid, gid: peer.gid })
}

/// Whether there is such a process that has not ended: one that only waits to be reaped has nothing any more.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // "pid (name) state …", and the name may hold anything.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']) && !rest.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn pins_to_an_allowed_core_and_names_a_missing_one() {
        std::thread::spawn(|| {
            let core = allowed().unwrap()[0];
            pin(core).unwrap();
            assert_eq!(allowed().unwrap(), [core]);
            for missing in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU] {
                let e = pin(missing).unwrap_err().to_string();
                assert!(e.contains(&format!("core {missing}")), "{e}");
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn two_threads_on_one_core_wait_for_each_other() {
        let core = allowed().unwrap()[0];
        let spin = move || {
            pin(core).unwrap();
            let (delay, start) = (RunDelay::of_this_thread().unwrap(), std::time::Instant::now());
            let before = delay.read().unwrap();
            while start.elapsed().as_millis() < 60 {}
            delay.read().unwrap().checked_sub(before).unwrap()
        };
        let other = std::thread::spawn(spin);
        let total = std::thread::spawn(spin).join().unwrap().get() + other.join().unwrap().get();
        assert!(total > 5_000_000, "60 ms of two threads on a core, but only {total} ns of waiting");
        assert_eq!(parse_schedstat(b"1 22 3\n"), Some(Nanos(22)));
        assert_eq!(parse_schedstat(b"1"), None);
    }

    #[test]
    fn knows_its_peer_and_its_class() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = peer(&a).unwrap();
        assert_eq!(peer.pid, Some(std::process::id() as i32));
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(super::peer(&tcp).is_err());
    }
}
