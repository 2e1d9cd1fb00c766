//! Locks of whole files and other things that one process has, also right after the process that had them was killed: the kernel lets go of a
//! dead process's files only when it has taken its io_uring apart, which outlasts the process itself by up to some 50 ms.
//!
//! Whether a file is free is for flock(2) alone to say. What /proc tells of the owner only says how long a file that is not free is asked for
//! again ([`Retry`]): nobody found is no sign of anybody alive, because the lock may have gone in between, or its owner may be in another
//! pid namespace.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long a lock is asked for again whose owner is seen to live: a process that is being killed looks alive for a moment.
const LIVING_WAIT: Duration = Duration::from_millis(100);
/// The same where no owner is seen.
const UNSEEN_WAIT: Duration = Duration::from_secs(3);
/// The same where the owner is seen to be on its way out: taking down much memory takes seconds.
const ENDING_WAIT: Duration = Duration::from_secs(30);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// What is seen of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs.
    Living,
    /// It was killed or has ended, and the kernel still has something of it.
    Ending,
    /// There is no such process in this pid namespace.
    Unseen,
}

impl ProcessState {
    /// What is seen of that process. One whose parent is on its way out may be about to follow it, as a worker does its keeper, and
    /// is given the same time; as soon as the parent has gone it has another one.
    pub fn of(pid: u32) -> ProcessState {
        match Self::and_parent(pid) {
            (ProcessState::Living, Some(parent)) if Self::and_parent(parent).0 == ProcessState::Ending => {
                ProcessState::Ending
            }
            (owner, _) => owner,
        }
    }

    fn and_parent(pid: u32) -> (ProcessState, Option<u32>) {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { return (ProcessState::Unseen, None) };
        let ends = is_exiting(&stat) || is_killed(&status);
        (
            if ends { ProcessState::Ending } else { ProcessState::Living },
            fields(&stat).get(1).and_then(|parent| parent.parse().ok()),
        )
    }

    fn wait(self) -> Duration {
        match self {
            ProcessState::Living => LIVING_WAIT,
            ProcessState::Ending => ENDING_WAIT,
            ProcessState::Unseen => UNSEEN_WAIT,
        }
    }
}

/// The parent of a process, where both are to be seen.
pub fn parent_of(pid: u32) -> Option<u32> {
    ProcessState::and_parent(pid).1.filter(|parent| *parent > 0)
}

/// proc_pid_stat(5) from the state on: "pid (name) state …", and the name may hold anything.
fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect()
}

/// proc_pid_stat(5): the state Z or X, or PF_EXITING among the flags.
fn is_exiting(stat: &str) -> bool {
    const PF_EXITING: u32 = 4;
    let fields = fields(stat);
    let flags = fields.get(6).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or(0);
    matches!(fields[..], ["Z" | "X", ..]) || flags & PF_EXITING != 0
}

/// proc_pid_status(5): SIGKILL is pending, which nothing can block.
fn is_killed(status: &str) -> bool {
    let pending = |line: &str| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")).map(str::trim).map(mask);
    status.lines().filter_map(pending).any(|mask| mask & (1 << (libc::SIGKILL - 1)) != 0)
}

fn mask(hex: &str) -> u64 {
    u64::from_str_radix(hex, 16).unwrap_or(0)
}

/// Attempts to get what somebody else has, who may be on the way out.
#[derive(Debug)]
pub struct Retry(Instant);

impl Retry {
    /// The first attempt begins.
    pub fn begin() -> Retry {
        Retry(Instant::now())
    }

    /// After an attempt that failed because of that owner: true, after a pause, where another one is worthwhile.
    pub fn again(&self, owner: ProcessState) -> bool {
        let again = self.0.elapsed() < owner.wait();
        if again {
            std::thread::sleep(PAUSE);
        }
        again
    }
}

/// Takes the file for this process alone; false if another one has it.
///
/// # Errors
/// What the kernel says otherwise.
pub fn exclusive(fd: impl AsFd) -> Result<bool, Errno> {
    let fd = fd.as_fd();
    let retry = Retry::begin();
    loop {
        match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if retry.again(owner_of(fd)) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// What is seen of the process that has the lock.
fn owner_of(fd: BorrowedFd<'_>) -> ProcessState {
    let (Ok(stat), Ok(table)) = (rustix::fs::fstat(fd), std::fs::read_to_string("/proc/locks")) else {
        return ProcessState::Unseen;
    };
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let pid = table.lines().find_map(|line| pid_in(line, device, stat.st_ino));
    pid.map_or(ProcessState::Unseen, ProcessState::of)
}

/// Of one line of `/proc/locks`, `1: FLOCK ADVISORY WRITE pid major:minor:inode start end`: who has a lock of that inode.
fn pid_in(line: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
    (file == format!("{major:02x}:{minor:02x}:{inode}")).then(|| pid.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    #[test]
    fn lines_of_the_kernel() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 fe:01:131075 0 EOF";
        let device = (0xfe, 1);
        assert_eq!(pid_in(line, device, 131_075), Some(4711));
        assert_eq!(pid_in(line, device, 31_075), None);
        assert_eq!(pid_in(line, (0xfe, 2), 131_075), None, "the same inode of another file system");
        assert_eq!(pid_in("3: POSIX  ADVISORY  WRITE 4711 fe:01:131075 0 EOF", device, 131_075), None);
        assert_eq!(pid_in("3: -> FLOCK ADVISORY WRITE 4711 fe:01:131075 0 EOF", device, 131_075), None);
        assert_eq!(pid_in("", device, 1), None);
        let stat = |state, flags| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 0 0");
        assert!(is_exiting(&stat("R", 0x40_0104)) && is_exiting(&stat("Z", 0)) && !is_exiting(&stat("R", 0x40_0100)));
        assert!(is_killed("State:\tR\nSigPnd:\t0000000000000100\n") && is_killed("ShdPnd:\t0000000000000100"));
        assert!(!is_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004200\nSigBlk:\t0000000000000100"));
    }

    /// A file of this test's own.
    fn file(name: &str) -> (std::path::PathBuf, impl Fn() -> OwnedFd) {
        let path = std::env::temp_dir().join(format!("weir-lock-{name}-{}", std::process::id()));
        let opened = path.clone();
        (path, move || OwnedFd::from(std::fs::File::options().create(true).append(true).open(&opened).expect("a file")))
    }

    #[test]
    fn who_lives_is_believed_soon() {
        let (path, open) = file("lives");
        let (one, two) = (open(), open());
        assert_eq!(exclusive(&one), Ok(true));
        let start = Instant::now();
        assert_eq!(exclusive(&two), Ok(false));
        assert!(start.elapsed() < UNSEEN_WAIT, "this process is alive, and has it");
        drop(one);
        assert_eq!(exclusive(&two), Ok(true));
        std::fs::remove_file(&path).expect("remove");
    }

    /// The lock goes only some time after its owner has ended, as with an io_uring that the kernel still takes apart: the process that took it
    /// is gone, and a copy of its descriptor stays open for a while.
    #[test]
    fn a_lock_whose_owner_is_not_to_be_seen_is_waited_for() {
        let (path, open) = file("gone");
        let (kept, wanted) = (open(), open());
        let taken = Command::new("flock")
            .args(["-n", "0"])
            .stdin(Stdio::from(kept.try_clone().expect("a copy")))
            .status()
            .expect("flock(1)");
        assert!(taken.success());
        assert_eq!(owner_of(wanted.as_fd()), ProcessState::Unseen);
        let goes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(kept);
        });
        assert_eq!(exclusive(&wanted), Ok(true));
        goes.join().expect("it was let go");
        std::fs::remove_file(&path).expect("remove");
    }

    #[test]
    fn processes_as_they_are_seen() {
        assert_eq!(ProcessState::of(std::process::id()), ProcessState::Living);
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat(1)");
        assert_eq!(ProcessState::of(child.id()), ProcessState::Living);
        child.kill().expect("kill");
        // The pipe closes while it ends.
        child.stdout.as_mut().expect("a pipe").read_to_end(&mut Vec::new()).expect("its end");
        assert_eq!(ProcessState::of(child.id()), ProcessState::Ending);
        child.wait().expect("wait");
        assert_eq!(ProcessState::of(child.id()), ProcessState::Unseen);
    }
}
