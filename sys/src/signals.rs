//! Signals as something to wait for beside other descriptors (signalfd).

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that the calling thread, and every thread and program that it starts from now on, takes from here and no other way;
/// such a program begins with [`unblock`].
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these and waits for them here.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn block(signals: &[i32]) -> io::Result<Signals> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is initialised by sigemptyset before anything else reads it, and all pointers are to it.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if blocked != 0 {
                return Err(io::Error::from_raw_os_error(blocked));
            }
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else knows.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal that has come, if any.
    pub fn next(&self) -> Option<i32> {
        // struct signalfd_siginfo begins with the signal's number.
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.0, &mut info) {
                Ok(n) if n >= 4 => return Some(i32::from_ne_bytes([info[0], info[1], info[2], info[3]])),
                Err(Errno::INTR) => {}
                _ => return None,
            }
        }
    }
}

/// Has writes to pipes and sockets that nobody reads fail, and not end the process: so does Rust at the start of every program, and undoes it
/// before it executes another one, also when that fails.
pub fn ignore_broken_pipes() {
    // SAFETY: SIG_IGN is no function that could be called at a bad moment.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Whether the process ignores that signal, as programs that nohup(1) starts do SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed, and the structure is writable and of the right type; all zeroes are one.
    unsafe {
        let asked = libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
        asked == 0 && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Whether the process has a controlling terminal. One that was closed is none.
pub fn has_terminal() -> bool {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    !matches!(open("/dev/tty", flags, Mode::empty()), Err(Errno::NXIO | Errno::NOENT | Errno::IO))
}

/// Has a process of a terminal's background write to it, also where `stty tostop` would stop it.
pub fn write_from_background() {
    // SAFETY: SIG_IGN is no function that could be called at a bad moment.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
}

/// Has the calling thread take all signals as usual, whatever the program that started this one had blocked.
pub fn unblock() {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised by sigemptyset, and the pointers are to it.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_known() {
        // As whoever started the tests has it: nohup(1) ignores SIGHUP.
        let hang_up = is_ignored(libc::SIGHUP);
        assert!(!is_ignored(libc::SIGTTOU));
        write_from_background();
        assert!(is_ignored(libc::SIGTTOU) && is_ignored(libc::SIGHUP) == hang_up);
    }

    #[test]
    fn a_blocked_signal_is_read() {
        std::thread::spawn(|| {
            let signals = Signals::block(&[libc::SIGUSR2]).unwrap();
            assert_eq!(signals.next(), None);
            // SAFETY: the thread's own signal, which it has blocked.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
            assert_eq!((signals.next(), signals.next()), (Some(libc::SIGUSR2), None));
            unblock();
        })
        .join()
        .unwrap();
    }
}
