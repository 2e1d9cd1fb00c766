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

/// Keeps the calling thread, and those that it starts from now on, off these cores, where that leaves it one; the cores that it had.
pub fn aside(cores: &[usize]) -> Vec<usize> {
    let had = allowed().unwrap_or_default();
    run_on(had.iter().copied().filter(|core| !cores.contains(core)));
    had
}

/// Takes [`aside`] back.
pub fn back(cores: &[usize]) {
    run_on(cores.iter().copied());
}

/// Lets threads run that wait for these cores, now: the calling one goes [`aside`], or to the end of the queue.
pub fn make_way(cores: &[usize]) {
    let had = aside(cores);
    if had.iter().all(|core| cores.contains(core)) {
        rustix::thread::sched_yield();
    }
}

/// So long the kernel lets a thread that is [`prompt`] run at once.
const PROMPT: u64 = 100_000;

/// Has the calling thread get a core soon when it wakes up, though others poll there: for one that sleeps nearly always and then does little. Its
/// share is no larger for that, and what it starts is as before. Linux 6.12 knows it; earlier ones let it wait for the end of the others' slices,
/// which is some milliseconds.
pub fn prompt() {
    slice(PROMPT);
}

/// Takes [`prompt`] back.
pub fn patient() {
    slice(0);
}

/// Asks the kernel to let the calling thread run for so many ns at once; 0 leaves it to the kernel.
fn slice(runtime: u64) {
    /// `struct sched_attr` of the kernel, sched_setattr(2).
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const RESET_ON_FORK: u64 = 1;
    // SAFETY: a system call on an integer. A policy that somebody has chosen (chrt) stays, with RESET_ON_FORK or without.
    if unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK != libc::SCHED_OTHER {
        return;
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: RESET_ON_FORK,
        nice: rustix::process::getpriority_process(None).unwrap_or(0),
        priority: 0,
        runtime,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads the structure, of the size that it names. Where it is refused all is as before.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Gives the calling thread a third of the weight of others, from now on: for one that nobody waits for at once. Not the least there is: one
/// that gets no core for seconds keeps locks of the kernel for as long, and whoever waits for it in the end.
pub fn background() {
    // Refused, all is as before.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 5);
}

/// Lets the calling thread run where the process's first one may, and not only where the one may that has started it.
pub fn as_the_process() {
    if let Ok(set) = rustix::thread::sched_getaffinity(Some(rustix::process::getpid())) {
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// Nothing where there are none. It may be refused where cores are taken away at this moment: then all is as before.
fn run_on(cores: impl Iterator<Item = usize>) {
    let mut set = CpuSet::new();
    cores.for_each(|core| set.set(core));
    if set.count() > 0 {
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
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
        Self::of_thread(std::process::id(), rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
    }

    /// Of any thread of a process.
    ///
    /// # Errors
    /// There is no such thread, or the kernel keeps no such statistics.
    pub fn of_thread(process: u32, thread: u32) -> io::Result<Self> {
        let path = format!("/proc/{process}/task/{thread}/schedstat");
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
    fn a_thread_goes_aside_and_comes_back() {
        std::thread::spawn(|| {
            let all = allowed().unwrap();
            let (first, rest) = all.split_first().unwrap();
            assert_eq!(aside(&[*first]), all);
            let left = if rest.is_empty() { &all[..] } else { rest };
            assert_eq!(allowed().unwrap(), left);
            // There has to be one.
            make_way(left);
            assert_eq!(allowed().unwrap(), left);
            back(&all);
            assert_eq!(allowed().unwrap(), all);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_a_prompt_thread_starts_is_as_before() {
        std::thread::spawn(|| {
            prompt();
            let slice = || {
                let sched = std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
                let line = sched.lines().find(|l| l.starts_with("se.slice"));
                line.and_then(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
            };
            // Not every kernel shows it.
            let (mine, theirs) = (slice(), std::thread::spawn(slice).join().unwrap());
            assert!(
                mine.zip(theirs).is_none_or(|(mine, theirs)| mine == PROMPT && theirs > mine),
                "{mine:?} {theirs:?}"
            );
            assert_eq!(rustix::process::getpriority_process(None).unwrap(), 0);
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
