//! I/O priorities (`ionice`) as wishes for a class.

use std::io;
use weir_units::{Class, Nanos};

/// How long a priority counts as what it was.
const LOOK_AGAIN: Nanos = Nanos::from_millis(100);

/// The class that a thread wishes for by its I/O priority (`ionice`): 1 → high, 2 → medium, 3 → low, 0 (nobody niced it) →
/// `None`. A process is its main thread; 0 is the calling thread.
///
/// # Errors
/// There is no such thread.
pub fn io_class(pid: i32) -> io::Result<Option<Class>> {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    // SAFETY: a system call on two integers.
    let r = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, pid) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(class_of(r as u32)) }
}

/// An I/O priority has its class in bits 15:13.
fn class_of(ioprio: u32) -> Option<Class> {
    match ioprio >> 13 & 7 {
        1 => Some(Class::High),
        2 => Some(Class::Medium),
        3 => Some(Class::Low),
        _ => None,
    }
}

/// The class that the calling thread wishes for, followed while it changes.
///
/// A thread has the priority that its creator had; `ionice -p PID` changes that of the process' main thread alone. So both
/// are looked at, and what was changed last counts: a program of many threads follows `ionice -p` as one of a single thread does, and
/// a thread may still be niced by itself.
#[derive(Clone, Debug)]
pub struct ClassWatch {
    own: Option<Class>,
    main: Option<Class>,
    class: Option<Class>,
    look_at: Nanos,
}

impl ClassWatch {
    /// As it is now.
    pub fn of_this_thread(now: Nanos) -> Self {
        let (own, main) = look();
        Self { own, main, class: own.or(main), look_at: now.saturating_add(LOOK_AGAIN) }
    }

    /// The wish, as last looked up.
    #[inline]
    pub fn class(&self) -> Option<Class> {
        self.class
    }

    /// Looks again where the last look is too long ago (100 ms); true if the wish has changed. Two system calls then.
    #[inline]
    pub fn look(&mut self, now: Nanos) -> bool {
        now >= self.look_at && self.look_now(now)
    }

    #[cold]
    fn look_now(&mut self, now: Nanos) -> bool {
        self.look_at = now.saturating_add(LOOK_AGAIN);
        let (own, main) = look();
        let before = self.class;
        if std::mem::replace(&mut self.main, main) != main {
            self.class = main;
        }
        if std::mem::replace(&mut self.own, own) != own {
            self.class = own;
        }
        self.class != before
    }
}

/// Of the calling thread, and of the main one.
fn look() -> (Option<Class>, Option<Class>) {
    let class = |pid| io_class(pid).ok().flatten();
    (class(0), class(rustix::process::getpid().as_raw_nonzero().get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(class: i64) {
        // SAFETY: a system call on integers; 0 is the calling thread.
        assert_eq!(unsafe { libc::syscall(libc::SYS_ioprio_set, 1, 0, class << 13 | 4) }, 0);
    }

    #[test]
    fn ionice_becomes_a_class() {
        std::thread::spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            assert_eq!(io_class(tid).unwrap(), None);
            for (class, wish) in [(2, Class::Medium), (3, Class::Low)] {
                set(class);
                assert_eq!(io_class(tid).unwrap(), Some(wish));
            }
        })
        .join()
        .unwrap();
        assert_eq!(class_of(1 << 13 | 7), Some(Class::High));
        assert!(io_class(i32::MAX).is_err());
    }

    #[test]
    fn a_thread_is_followed_not_oftener_than_it_may_be() {
        std::thread::spawn(|| {
            set(2);
            let mut watch = ClassWatch::of_this_thread(Nanos(0));
            assert_eq!(watch.class(), Some(Class::Medium));
            set(3);
            assert!(!watch.look(Nanos::from_millis(99)));
            assert_eq!(watch.class(), Some(Class::Medium));
            assert!(watch.look(Nanos::from_millis(100)));
            assert_eq!(watch.class(), Some(Class::Low));
            assert!(!watch.look(Nanos::from_millis(200)), "nothing has changed");
        })
        .join()
        .unwrap();
    }
}
