//! Locks of whole files, with patience for the dead: a process that was killed can keep its files open for some time, while the kernel
//! takes its io_uring apart. A lock whose owner no longer lives is asked for again for a while.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a lock is asked for that no living process is seen to have.
const PATIENCE: Duration = Duration::from_secs(3);
/// And how often.
const AGAIN: Duration = Duration::from_millis(5);

/// Takes the file for this process alone; false if another one has it.
///
/// # Errors
/// What the kernel says otherwise.
pub fn exclusive(fd: &OwnedFd) -> Result<bool, Errno> {
    let start = Instant::now();
    loop {
        match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if start.elapsed() < PATIENCE && !owner_lives(fd) => std::thread::sleep(AGAIN),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// Whether a living process is seen to have the lock; where nothing is to be seen, it is taken for one.
fn owner_lives(fd: &OwnedFd) -> bool {
    let (Ok(stat), Ok(table)) = (rustix::fs::fstat(fd), std::fs::read_to_string("/proc/locks")) else { return true };
    let owner = table.lines().find_map(|line| owner_of(line, stat.st_ino));
    owner.is_none_or(crate::sched::is_alive)
}

/// Of one line of `/proc/locks`, `1: FLOCK ADVISORY WRITE pid major:minor:inode start end`: who has a lock of that inode.
fn owner_of(line: &str, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
    (file.rsplit(':').next()?.parse() == Ok(inode)).then(|| pid.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 fe:01:131075 0 EOF";
        assert_eq!(owner_of(line, 131_075), Some(4711));
        assert_eq!(owner_of(line, 31_075), None);
        assert_eq!(owner_of("3: POSIX  ADVISORY  WRITE 4711 fe:01:131075 0 EOF", 131_075), None);
        assert_eq!(owner_of("3: -> FLOCK ADVISORY WRITE 4711 fe:01:131075 0 EOF", 131_075), None);
        assert_eq!(owner_of("", 1), None);
    }

    #[test]
    fn who_lives_is_believed_at_once() {
        let dir = std::env::temp_dir().join(format!("weir-lock-{}", std::process::id()));
        let open = || OwnedFd::from(std::fs::File::options().create(true).append(true).open(&dir).expect("a file"));
        let (one, two) = (open(), open());
        assert_eq!(exclusive(&one), Ok(true));
        let start = Instant::now();
        assert_eq!(exclusive(&two), Ok(false));
        assert!(start.elapsed() < PATIENCE, "this process is alive, and has it");
        drop(one);
        assert_eq!(exclusive(&two), Ok(true));
        std::fs::remove_file(&dir).expect("remove");
    }
}
